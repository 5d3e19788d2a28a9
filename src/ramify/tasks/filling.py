"""Masked words in a tree: likeliest pieces, several masks jointly, given candidates, and pseudo-log-likelihood."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ramify.batching.batch import want
from ramify.batching.forest import Forest
from ramify.batching.views.base import Example
from ramify.batching.views.comment_trees import Discussions, Reading, Seen, units
from ramify.errors import RamifyError
from ramify.models.base import decode_parts
from ramify.tasks.texts import TOKENS
from ramify.tree import Tree

if TYPE_CHECKING:
    from ramify.tasks.masked_lm import MaskedLM


@dataclass(frozen=True)
class Slot:
    """A node of a tree whose text is to be varied, and what it reads."""

    task: "MaskedLM"
    reading: Reading
    forest: Forest
    tree: Tree
    node: int
    part: int
    """The node's place in the forest: of its first part, where long texts are chained."""
    context: tuple[int, ...]
    """Places in the forest."""

    @classmethod
    def of(cls, task: "MaskedLM", tree: Tree, node: str | int, seen: Seen | None) -> "Slot":
        # What was trained with a stranger's ancestors reads its own, where there are no others.
        seen = seen or ("tree" if task.reading.seen == "wrong" else task.reading.seen)
        if seen == "wrong":
            raise RamifyError("a single tree has no other tree's ancestors to read: choose the context tree, parent or none.")
        place = tree.index(node) if isinstance(node, str) else node
        if not 0 <= place < len(tree):
            raise RamifyError(f"tree {tree.id!r} has no node {node}; its nodes are 0 to {len(tree) - 1}.")
        reading = task.reading_as(seen)
        forest = task.forest([tree])
        part = int(np.searchsorted(forest.node, place))
        view = Discussions(forest, units(forest, [0], predict_post=True), reading)
        whole = view.example(0)
        row = int(np.flatnonzero(whole.targets == part)[0])
        stop = int(whole.context_lengths[: row + 1].sum())
        start = stop - int(whole.context_lengths[row])
        return cls(task, reading, forest, tree, place, part, tuple(whole.context[start:stop].tolist()))

    @property
    def head(self) -> dict[str, Any]:
        """What every answer begins with."""
        ancestors = [self.tree.nodes[index].id for index in np.unique(self.forest.node[list(self.context)])]
        return {"node": self.tree.nodes[self.node].id, "context": self.reading.seen, "ancestors": ancestors}

    @torch.no_grad()
    def log_probabilities(
        self, texts: Sequence[Sequence[int]], asked: Sequence[Sequence[int]]
    ) -> Float[Tensor, "text place vocab"]:
        """For every variant of the text (all of one length), the log-probabilities at its asked places (equally many)."""
        length = len(texts[0])
        if length > self.reading.max_tokens - 2:
            raise RamifyError(
                f"node {self.tree.nodes[self.node].id!r} has {length} tokens; this model reads {self.reading.max_tokens - 2}. "
                "Shorten the text."
            )
        task = self.task
        forest = self.forest.with_text(self.part, texts[0])
        count = len(texts)
        example = Example(
            np.full(count, self.part),
            np.ones(count),
            np.tile(np.array(self.context, dtype=np.int64), count),
            np.full(count, len(self.context)),
        )
        batch = task.collator(forest, self.reading)([example])
        own = torch.tensor([list(text) for text in texts])
        ids = batch.target_ids.view(count, -1).clone()
        ids[:, -length - 1 : -1] = own
        width = ids.shape[1]
        places = torch.tensor([list(places) for places in asked]) + width - length - 1
        index = (places + torch.arange(count)[:, None] * width).flatten()
        batch = replace(
            batch,
            target_ids=ids.flatten(),
            labels=ids.flatten()[index],
            wanted=want(index, np.full(count, places.shape[1]), batch.targets, batch.readers),
        ).to(task.device)
        with task.evaluating():
            parts = decode_parts(task.backbone, batch, TOKENS)
            scores = [task.head(hidden.tokens).float().log_softmax(-1) for _, hidden in parts]
        return torch.cat(scores).unflatten(0, (count, -1)).cpu()


def fill(
    task: "MaskedLM",
    tree: Tree,
    node: str | int,
    *,
    top_k: int = 5,
    context: Seen | None = None,
    candidates: Sequence[str] | None = None,
    joint: bool = False,
) -> dict[str, Any]:
    """The likeliest pieces for each mask token in a node's text.

    `position` counts the text's pieces from 0. `candidates` (words of any number of pieces) share the probability among them.
    `joint` adds the likeliest fillings of all masks together, of the candidates where there are any, found by beam search from
    left to right.
    """
    if top_k < 1:
        raise RamifyError(f"top_k must be at least 1, not {top_k}.")
    if candidates is not None and not candidates:
        raise RamifyError("candidates holds no words: leave it out, or give some.")
    if isinstance(candidates, str):
        raise RamifyError(f"candidates is a list of words, not {candidates!r}.")
    slot = Slot.of(task, tree, node, context)
    tokenizer = task.tokenizer
    if candidates is not None:
        # Spelled in several ways, a word would share its probability with itself.
        candidates = list({tuple(tokenizer.encode(word)): word for word in reversed(candidates)}.values())[::-1]
    ids = tokenizer.encode(tree.nodes[slot.node].text, masks=True)
    masks = [place for place, token in enumerate(ids) if token == tokenizer.mask_id]
    if not masks:
        mask = tokenizer.token(tokenizer.mask_id)
        raise RamifyError(
            f"tree {tree.id!r}, node {tree.nodes[slot.node].id!r}: its text holds no {mask}. "
            f"Write {mask} where a word is to be filled."
        )
    if candidates:
        answers = [_among(slot, ids, place, candidates) for place in masks]
    else:
        scores = slot.log_probabilities([ids], [masks])[0].exp()
        best = [torch.topk(each, min(top_k, len(each))) for each in scores]
        answers = [
            [
                {"token": tokenizer.token(token), "probability": probability}
                for probability, token in zip(top.values.tolist(), top.indices.tolist(), strict=True)
            ]
            for top in best
        ]
    found = [{"position": place, "tokens": tokens} for place, tokens in zip(masks, answers, strict=True)]
    answer = {**slot.head, "masks": found}
    if joint and candidates:
        answer["joint"] = [
            {"tokens": words, "text": tokenizer.decode(filled), "probability": float(np.exp(score))}
            for words, filled, score in _word_beams(slot, ids, masks, candidates, top_k)
        ]
    elif joint:
        answer["joint"] = [
            {
                "tokens": [tokenizer.token(filled[place]) for place in masks],
                "text": tokenizer.decode(filled),
                "probability": float(np.exp(score)),
            }
            for filled, score in _beams(slot, ids, masks, top_k)
        ]
    return answer


def _among(slot: Slot, ids: list[int], place: int, candidates: Sequence[str]) -> list[dict[str, Any]]:
    """Candidates by probability."""
    shares = [float(np.exp(score)) for _, _, score in _words(slot, ids, place, candidates)]
    ranked = sorted(zip(shares, candidates, strict=True), key=lambda pair: -pair[0])
    return [{"token": word, "probability": share} for share, word in ranked]


def _words(slot: Slot, ids: list[int], place: int, candidates: Sequence[str]) -> list[tuple[str, list[int], float]]:
    """(word, the text with it, log of its share) of every candidate. A word of several pieces takes as many masks, filled from
    left to right."""
    mask_id = slot.task.tokenizer.mask_id
    scores, texts = [], []
    for word in candidates:
        pieces = slot.task.tokenizer.encode(word)
        if not pieces:
            raise RamifyError(f"the candidate {word!r} has no piece in this model's vocabulary.")
        rows = []
        for known in range(len(pieces)):
            rows.append(ids[:place] + pieces[:known] + [mask_id] * (len(pieces) - known) + ids[place + 1 :])
        found = slot.log_probabilities(rows, [[place + known] for known in range(len(pieces))])
        scores.append(sum(float(found[known, 0, piece]) for known, piece in enumerate(pieces)))
        texts.append([*ids[:place], *pieces, *ids[place + 1 :]])
    shares = torch.tensor(scores, dtype=torch.float64).log_softmax(0).tolist()
    return list(zip(candidates, texts, shares, strict=True))


def _word_beams(
    slot: Slot, ids: list[int], masks: list[int], candidates: Sequence[str], width: int
) -> list[tuple[list[str], list[int], float]]:
    """(words, filled text, log-probability): a candidate for every mask, each given those left of it."""
    beams: list[tuple[list[str], list[int], float]] = [([], ids, 0.0)]
    for place in masks:
        grown = [
            ([*words, word], filled, score + own)
            for words, text, score in beams
            # Words of several pieces have moved what stands right of them.
            for word, filled, own in _words(slot, text, place + len(text) - len(ids), candidates)
        ]
        beams = sorted(grown, key=lambda beam: -beam[2])[:width]
    return beams


def _beams(slot: Slot, ids: list[int], masks: list[int], width: int) -> list[tuple[list[int], float]]:
    """Fillings of all masks with their log-probabilities, each mask given those left of it."""
    beams = [(list(ids), 0.0)]
    for place in masks:
        found = slot.log_probabilities([text for text, _ in beams], [[place]] * len(beams))[:, 0]
        total = found.double() + torch.tensor([score for _, score in beams], dtype=torch.float64)[:, None]
        best = torch.topk(total.flatten(), min(width, total.numel()))
        beams = [
            ([*beams[flat // total.shape[1]][0][:place], flat % total.shape[1], *ids[place + 1 :]], score)
            for score, flat in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]
    return beams


def pseudo_log_likelihood(task: "MaskedLM", tree: Tree, node: str | int, *, context: Seen | None = None) -> dict[str, Any]:
    """Σ log p(piece | all other pieces, what is read) in nats (Salazar et al. 2020), and each piece's share of it."""
    slot = Slot.of(task, tree, node, context)
    ids = task.tokenizer.encode(tree.nodes[slot.node].text)
    each = []
    step = max(1, TOKENS // (len(ids) + 2))
    for start in range(0, len(ids), step):
        places = range(start, min(start + step, len(ids)))
        rows = [[*ids[:place], task.tokenizer.mask_id, *ids[place + 1 :]] for place in places]
        found = slot.log_probabilities(rows, [[place] for place in places])[:, 0]
        each += [float(found[row, ids[place]]) for row, place in enumerate(places)]
    tokens = [{"token": task.tokenizer.token(token), "log_probability": value} for token, value in zip(ids, each, strict=True)]
    return {**slot.head, "pseudo_log_likelihood": float(sum(each)), "tokens": tokens}
