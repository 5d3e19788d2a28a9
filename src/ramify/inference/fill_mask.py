"""Filling of masked words in a tree: the likeliest pieces, several masks jointly, and given candidates."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ramify.batching.text_input import Context
from ramify.errors import RamifyError, shown
from ramify.inference.answers import FilledMask, FilledMasks, Filling, PseudoLikelihood, TokenProbability
from ramify.inference.base import verb
from ramify.inference.embed import ContextPipeline, TextPipeline
from ramify.inference.mask_query import ContextQuery, MaskQuery, chosen_node
from ramify.inference.score import ScoringPipeline, pseudo_log_likelihood
from ramify.inference.search import best_continuations
from ramify.tasks.masked_lm import MaskedLM
from ramify.tokenizer import Tokenizer
from ramify.tree import Tree


class FillingPipeline(TextPipeline, ABC):
    """A pipeline of a model that predicts single words of a text."""

    @abstractmethod
    def mask_query(self, tree: Tree, node: str | int, context: Context | None) -> MaskQuery:
        """The question about a node's text. Raises `RamifyError` if the model cannot read the context."""

    @verb
    def fill_mask(
        self,
        tree: Tree | str,
        node: str | int | None = None,
        *,
        top_k: int = 5,
        context: Context | None = None,
        candidates: Sequence[str] | None = None,
        joint: bool = False,
    ) -> FilledMasks:
        """The likeliest pieces for every mask token in a text, or in a node's text, given the node's ancestors.

        `position` counts the text's pieces from 0. With `candidates` (words of any number of pieces), only these words are
        scored, and their probabilities add up to 1. `joint` adds the likeliest fillings of all masks together (with the
        candidates, if there are any), found by beam search from left to right.
        """
        if top_k < 1:
            raise RamifyError(f"top_k must be at least 1, but is {top_k}.")
        if candidates is not None and not candidates:
            raise RamifyError("candidates=[] holds no words. Add some, or leave it out.")
        if isinstance(candidates, str):
            raise RamifyError(f"candidates must be a list of words, but is the string {candidates!r}. Pass [{candidates!r}].")
        tree, node = chosen_node(tree, node)
        query = self.mask_query(tree, node, context)
        tokenizer = self.tokenizer
        ids = tokenizer.encode(tree.nodes[query.node].text, masks=True)
        masks = [place for place, token in enumerate(ids) if token == tokenizer.mask_id]
        if not masks:
            mask = tokenizer.token(tokenizer.mask_id)
            asked = tree.nodes[query.node]
            place = f"tree {tree.id!r}, node {asked.id!r}: its text" if tree.id or asked.id else f"the text {shown(asked.text)}"
            raise RamifyError(f"{place} holds no {mask}. Write {mask} in place of a word.")
        words = [] if not candidates else _spelled(tokenizer, candidates, tree.nodes[query.node].text)
        if words:
            answers = [_rank_candidates(query, ids, *choice) for choice in zip(masks, words, strict=True)]
        else:
            scores = query.log_probabilities([ids], [masks])[0].exp()
            best = [torch.topk(row, min(top_k, len(row))) for row in scores]
            answers = [
                tuple(
                    TokenProbability(tokenizer.token(token), probability)
                    for probability, token in zip(top.values.tolist(), top.indices.tolist(), strict=True)
                )
                for top in best
            ]
        filled_masks = tuple(FilledMask(place, tokens) for place, tokens in zip(masks, answers, strict=True))
        together: tuple[Filling, ...] = ()
        if joint and words:
            together = tuple(
                Filling(tuple(chosen), tokenizer.decode(filled), float(np.exp(score)))
                for chosen, filled, score in _word_beams(query, ids, masks, words, top_k)
            )
        elif joint:
            together = tuple(
                Filling(
                    tuple(tokenizer.token(filled[place]) for place in masks), tokenizer.decode(filled), float(np.exp(score))
                )
                for filled, score in _beams(query, ids, masks, top_k)
            )
        return FilledMasks(*query.head, filled_masks, together)


class MaskFiller(ContextPipeline, FillingPipeline, ScoringPipeline):
    """A trained masked language model, which fills masks, scores texts and embeds them."""

    verbs = ("embed", "fill_mask", "score", "attention", "nearest")
    usage = (
        'model.fill_mask(tree, node="id")  # a ramify.Tree whose node holds [MASK], or a text without a node',
        "model.embed(trees)",
    )

    def __init__(self, task: MaskedLM) -> None:
        self.task = task
        self.backbone = task.backbone
        self.tokenizer = task.tokenizer
        self.input = task.input

    @property
    def module(self) -> nn.Module:
        return self.task

    def parts(self) -> dict[str, Any]:
        return {"task": self.task.config, "input": self.input}

    def mask_query(self, tree: Tree, node: str | int, context: Context | None) -> ContextQuery:
        return ContextQuery.of(self.task, tree, node, context)

    def _score(
        self, tree: Tree | str, node: str | int | None, context: Context | None, order: str | None, seed: int, begin: bool
    ) -> PseudoLikelihood:
        return pseudo_log_likelihood(self.mask_query(*chosen_node(tree, node), context))


Words = Mapping[str, list[int]]
"""The pieces of each candidate at the place of a mask."""


def _spelled(tokenizer: Tokenizer, candidates: Sequence[str], text: str) -> list[Words]:
    """The candidates at each mask of a text. The pieces of a word behind a space may be other ones than at a beginning."""
    words: list[Words] = []
    for spaced in tokenizer.spaced_masks(text):
        read = [f" {word.lstrip()}" if spaced else word for word in candidates]
        # A word in several spellings would share its probability with itself.
        pieces = {tuple(tokenizer.encode(text)): word for text, word in zip(read[::-1], candidates[::-1], strict=True)}
        if () in pieces:
            raise RamifyError(f"the candidate {pieces[()]!r} has no piece in this model's vocabulary. Leave it out.")
        words.append({word: [*ids] for ids, word in reversed(pieces.items())})
    return words


def _rank_candidates(query: MaskQuery, ids: list[int], place: int, words: Words) -> tuple[TokenProbability, ...]:
    """Candidates with their probabilities, likeliest first."""
    shares = [float(np.exp(score)) for _, _, score in _words(query, ids, place, words)]
    ranked = sorted(zip(shares, words, strict=True), key=lambda pair: -pair[0])
    return tuple(TokenProbability(word, share) for share, word in ranked)


def _words(query: MaskQuery, ids: list[int], place: int, words: Words) -> list[tuple[str, list[int], float]]:
    """(word, text with this word, log of its share) for every candidate. A word of several pieces takes as many masks, which
    are filled from left to right."""
    mask_id = query.tokenizer.mask_id
    scores, texts = [], []
    for pieces in words.values():
        rows = []
        for known in range(len(pieces)):
            rows.append(ids[:place] + pieces[:known] + [mask_id] * (len(pieces) - known) + ids[place + 1 :])
        log_probabilities = query.log_probabilities(rows, [[place + known] for known in range(len(pieces))])
        scores.append(sum(float(log_probabilities[known, 0, piece]) for known, piece in enumerate(pieces)))
        texts.append([*ids[:place], *pieces, *ids[place + 1 :]])
    shares = torch.tensor(scores, dtype=torch.float64).log_softmax(0).tolist()
    return list(zip(words, texts, shares, strict=True))


def _word_beams(
    query: MaskQuery, ids: list[int], masks: list[int], candidates: Sequence[Words], width: int
) -> list[tuple[list[str], list[int], float]]:
    """(words, filled text, log-probability): a candidate for every mask, each given the candidates to its left."""
    beams: list[tuple[list[str], list[int], float]] = [([], ids, 0.0)]
    for place, here in zip(masks, candidates, strict=True):
        # Words of several pieces shift the masks to their right.
        grown = [_words(query, text, place + len(text) - len(ids), here) for _, text, _ in beams]
        shares = torch.tensor([[share for _, _, share in words] for words in grown], dtype=torch.float64)
        beams = [
            ([*beams[beam][0], grown[beam][choice][0]], grown[beam][choice][1], total)
            for total, beam, choice in best_continuations(_totals(beams, shares), width)
        ]
    return beams


def _beams(query: MaskQuery, ids: list[int], masks: list[int], width: int) -> list[tuple[list[int], float]]:
    """Fillings of all masks with their log-probabilities, each mask given the fillings to its left."""
    beams = [(list(ids), 0.0)]
    for place in masks:
        log_probabilities = query.log_probabilities([text for text, _ in beams], [[place]] * len(beams))[:, 0]
        beams = [
            ([*beams[beam][0][:place], token, *ids[place + 1 :]], total)
            for total, beam, token in best_continuations(_totals(beams, log_probabilities.double()), width)
        ]
    return beams


def _totals(beams: Sequence[tuple[Any, ...]], log_probabilities: Float[Tensor, "beam choice"]) -> Float[Tensor, "beam choice"]:
    """The log-probabilities of beams, which are their last entries, with one more choice each."""
    return log_probabilities.new_tensor([beam[-1] for beam in beams])[:, None] + log_probabilities
