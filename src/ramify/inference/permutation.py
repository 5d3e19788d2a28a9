"""Pipelines of models of running text: likelihoods under any factorization order, generation, single words, and vectors."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ramify.batching.encoder_input import EncoderInput
from ramify.batching.forest import Ints
from ramify.batching.stream_batch import StreamBatch, StreamTargets, plain_rows
from ramify.batching.text_input import Context
from ramify.config import check_seed
from ramify.errors import RamifyError
from ramify.inference.answers import Likelihood, NodeAttention, StreamAttention
from ramify.inference.attention import AttentionRequest, AttentionTable, check_pairs, check_records, spelled, text_tables
from ramify.inference.base import TOKENS, longer_than_trained
from ramify.inference.fill_mask import FillingPipeline
from ramify.inference.generate import GeneratingPipeline
from ramify.inference.mask_query import Head, MaskQuery, chosen_node
from ramify.inference.rows import recorded
from ramify.inference.score import ScoringPipeline, known_part
from ramify.inference.streams import StreamPipeline
from ramify.inference.verbs import ORDERS
from ramify.nn.attention import AttentionRecord
from ramify.nn.modes import evaluating
from ramify.tasks.denoising_lm import DenoisingLM
from ramify.tasks.permutation_lm import PermutationLM
from ramify.tokenizer import Tokenizer
from ramify.tree import Tree

RECORDED = 1 << 26
"""Number of attention weights that are recorded at once."""


class WordPipeline(StreamPipeline, FillingPipeline, ABC):
    """A pipeline of a model that reads both sides of a word. It fills masks, each text alone, without separators or memory."""

    def mask_query(self, tree: Tree, node: str | int, context: Context | None) -> "StreamQuery":
        return StreamQuery(self, self.tokenizer, tree, self.number_alone(tree, node, context))

    def _text(self, tree: Tree | str, node: str | int | None, context: Context | None) -> tuple["StreamQuery", Ints]:
        """A text whose attention is recorded, and its tokens."""
        check_records(self.backbone)
        tree, node = chosen_node(tree, node)
        query = self.mask_query(tree, node, context)
        ids = np.array(self.tokenizer.encode(tree.nodes[query.node].text, masks=True), dtype=np.int64)
        room = self.input.room(self.tokenizer)
        if not 0 < len(ids) <= room:
            raise RamifyError(
                f"node {tree.nodes[query.node].id!r} has {len(ids)} tokens; this model reads 1 to {room}. Choose another text."
            )
        check_pairs(len(ids) ** 2, alone=True)
        return query, ids

    def _content(self, query: "StreamQuery", ids: Ints) -> list[AttentionTable]:
        """The content stream of a text without an order: every token reads all tokens."""
        rows = EncoderInput.of_texts((ids, np.array([len(ids)])), self.layout, None).to(self.device)
        with evaluating(self.module):
            record = recorded(self.backbone, rows)
        return text_tables(record, query.tree.nodes[query.node].id, spelled(self.tokenizer, rows.ids), [])

    def _ordered_content(self, query: "StreamQuery", ids: Ints, order: Ints) -> list[AttentionTable]:
        """The content stream of a text under a factorization order."""
        layers = self._streams(plain_rows(ids[None], order[None]))
        return [self._table(query, "content", ids, ids, [layer["content"][0] for layer in layers])]

    def _streams(self, batch: StreamBatch) -> list[dict[str, list[Tensor]]]:
        """The weights of each layer of both streams."""
        record: AttentionRecord = {}
        with torch.no_grad(), evaluating(self.module):
            self.backbone(batch.to(self.device), record=record)
        return record["streams"]

    def _table(self, query: "StreamQuery", kind: str, of: Ints, ids: Ints, layers: list[Tensor]) -> AttentionTable:
        """The weights of the tokens `of` among the tokens `ids`."""
        queries, keys = (spelled(self.tokenizer, torch.from_numpy(token_ids)) for token_ids in (of, ids))
        return AttentionTable("streams", kind, query.tree.nodes[query.node].id, queries, keys, layers)

    @abstractmethod
    def _states(self, ids: Ints, places: Ints) -> Float[Tensor, "row place dim"]:
        """The states from which the tokens at some places are predicted."""

    def log_probabilities(
        self, texts: Sequence[Sequence[int]], asked: Sequence[Sequence[int]]
    ) -> Float[Tensor, "text place vocab"]:
        """Log-probabilities at places of texts of equal length, each given all tokens that are no mask tokens."""
        ids, places = np.array(texts, dtype=np.int64), np.array(asked, dtype=np.int64)
        parts = []
        step = max(1, TOKENS // ids.shape[1])
        for start in range(0, len(ids), step):
            with torch.no_grad(), evaluating(self.module):
                states = self._states(ids[start : start + step], places[start : start + step])
                parts.append(self.task.head(states.flatten(0, 1)).float().log_softmax(-1).unflatten(0, states.shape[:2]).cpu())
        return torch.cat(parts)


class DenoisingPipeline(WordPipeline):
    """A masked language model of running text."""

    task: DenoisingLM
    verbs = ("embed", "fill_mask", "attention", "nearest")
    usage = ('model.fill_mask("Some [MASK] text.").masks[0].tokens', 'model.embed("Some text.")')

    def __init__(self, task: DenoisingLM) -> None:
        self.task = task
        self.backbone = task.backbone
        self.tokenizer = task.tokenizer
        self.input = task.input

    def _states(self, ids: Ints, places: Ints) -> Float[Tensor, "row place dim"]:
        hidden = self.backbone(plain_rows(ids).to(self.device)).tokens
        assert hidden is not None
        index = torch.from_numpy(places).to(self.device)[:, :, None].expand(-1, -1, hidden.shape[-1])
        return hidden.gather(1, index)

    def _attention(
        self, tree: Tree | str, node: str | int | None, context: Context | None, wanted: AttentionRequest
    ) -> NodeAttention:
        query, ids = self._text(tree, node, context)
        return NodeAttention(*query.head, wanted.of(self._content(query, ids)))


class PermutationPipeline(WordPipeline, ScoringPipeline, GeneratingPipeline):
    """A permutation language model, which also scores texts under factorization orders and generates text."""

    task: PermutationLM
    verbs = ("score", "generate", "fill_mask", "embed", "attention", "nearest")
    abilities = (*WordPipeline.abilities, *GeneratingPipeline.abilities, ORDERS)
    usage = ('model.score("Some text.", order="forward").log_likelihood', 'model.generate("Some", tokens=20, seed=0).text')

    def __init__(self, task: PermutationLM) -> None:
        self.task = task
        self.backbone = task.backbone
        self.tokenizer = task.tokenizer
        self.input = task.input

    @property
    def knows_full_orders(self) -> bool:
        """Whether training predicted all tokens of a row, in orders of the whole row, so that full orders are no surprise."""
        return self.task.config.k == 1 and not self.input.overlap

    def _score(
        self, tree: Tree | str, node: str | int | None, context: Context | None, order: str | None, seed: int, begin: bool
    ) -> Likelihood:
        tree, node = chosen_node(tree, node)
        text = tree.nodes[self.mask_query(tree, node, context).node].text
        order = "forward" if order is None else order
        ids = np.array(self.tokenizer.encode(text), dtype=np.int64)
        if not len(ids):
            raise RamifyError(f"the text {text[:40]!r} has no tokens, so it has no likelihood. Pass another text.")
        unknown = known_part(self.tokenizer, ids, text)
        forward = np.arange(len(ids))
        many = _num_random_orders(order)
        if many:
            check_seed(seed)
            random = np.random.Generator(np.random.Philox(key=seed))
            ranks = np.stack([random.permutation(len(ids)) for _ in range(many)])
        else:
            ranks = (forward if order == "forward" else forward[::-1])[None]
        log_likelihoods = self.log_likelihoods(ids, ranks)
        longer = len(ids) > self.input.row_tokens
        notes = (*self._notes(len(ids)), *unknown.notes("the text"))
        answer = Likelihood(float(log_likelihoods[0]), len(ids), len(text.encode()), order, longer, unknown.count, notes=notes)
        if not many:
            return answer
        log_mean_exp = float(np.logaddexp.reduce(log_likelihoods) - np.log(many))
        return replace(
            answer, orders=tuple(log_likelihoods.tolist()), mean=float(log_likelihoods.mean()), log_mean_exp=log_mean_exp
        )

    def _notes(self, tokens: int) -> tuple[str, ...]:
        """Notes on answers under full orders if the model was trained to predict only the last tokens of an order, or orders
        of parts of rows, and on texts that are longer than a row."""
        longer = longer_than_trained([tokens], "text", self.input.row_tokens, "input.row_tokens")
        if self.knows_full_orders:
            return longer
        settings, reason = f"task.k={self.task.config.k:g}", "it always saw most of a row"
        if self.task.config.k == 1:
            settings = f"input.reused_tokens={self.input.reused_tokens} of input.row_tokens={self.input.row_tokens}"
            reason = "the first part of a row never read the second"
        return (
            f"the model was trained with {settings}, so {reason}. Full orders are off its distribution; ramify train xlnet-lm "
            "trains a model for them.",
            *longer,
        )

    def log_likelihoods(self, ids: Ints, ranks: NDArray[np.int64]) -> NDArray[np.float64]:
        """The log-likelihood of one text under each order. `ranks` has the place of every token in the order, [order, token].

        Raises `RamifyError` if a row of `ranks` is no permutation.
        """
        if ranks.shape[1:] != ids.shape or not (np.sort(ranks, 1) == np.arange(len(ids))).all():
            raise RamifyError(f"an order of {len(ids)} tokens must hold each number from 0 to {len(ids) - 1} once. Check it.")
        every = np.tile(np.arange(len(ids)), (len(ranks), 1))
        return self.ordered_log_probabilities(np.tile(ids, (len(ranks), 1)), ranks, every).sum(1)

    def ordered_log_probabilities(self, texts: Ints, order: Ints, places: Ints) -> NDArray[np.float64]:
        """log p of the tokens at places of texts of equal length, each given the tokens with lower numbers in the order.

        Tokens of equal numbers read each other, but none of them reads a token of a higher number. `order` is [text, token],
        `places` is [text, place].
        """
        log_probabilities = []
        step = max(1, TOKENS // (2 * texts.shape[1]))
        for start in range(0, len(texts), step):
            part = slice(start, start + step)
            ids, asked = np.ascontiguousarray(texts[part]), places[part]
            labels = torch.from_numpy(np.take_along_axis(ids, asked, 1).flatten()).to(self.device)
            with torch.no_grad(), evaluating(self.module):
                states = self._targets(plain_rows(ids, np.ascontiguousarray(order[part])), asked)
                losses, _ = self.task.head.measure(states.flatten(0, 1), labels)
            log_probabilities.append(-losses.double().view(asked.shape).cpu().numpy())
        return np.concatenate(log_probabilities)

    def _attention(
        self, tree: Tree | str, node: str | int | None, context: Context | None, wanted: AttentionRequest
    ) -> StreamAttention:
        query, ids = self._text(tree, node, context)
        masks = np.flatnonzero(ids == self.tokenizer.mask_id)
        order, ranks = wanted.order, None
        if order is not None:
            ranks = _ranks(order, len(ids), wanted.seed)
            if len(masks):
                mask = self.tokenizer.token(self.tokenizer.mask_id)
                raise RamifyError(f"order={order} needs a text without {mask}, which this model never reads. Remove {mask}.")
            every = np.arange(len(ids))[None]
            batch = plain_rows(ids[None], ranks[None])
            layers = [layer["query"][0] for layer in self._streams(self._asking(batch, every))]
            asked = ids
        elif len(masks):
            # As in `fill_mask`: no word reads a mask, and a mask reads all words.
            ranks = (ids == self.tokenizer.mask_id).astype(np.int64)
            batch = plain_rows(ids[None], ranks[None])
            layers = [layer["query"][0] for layer in self._streams(self._asking(batch, masks[None]))]
            asked = ids[masks]
        else:
            layers, asked = self._each_alone(ids), ids
        tables = self._content(query, ids) if ranks is None else self._ordered_content(query, ids, ranks)
        tables.append(self._table(query, "query", asked, ids, layers))
        places = () if order is None or ranks is None else tuple(ranks.tolist())
        return StreamAttention(*query.head, order, places, wanted.of(tables))

    def _each_alone(self, ids: Ints) -> list[Tensor]:
        """The query stream of each layer where each token alone is predicted, in a row of its own."""
        config = self.backbone.config
        step = max(1, RECORDED // (len(ids) ** 2 * config.num_heads * config.num_layers))
        batches: list[list[Tensor]] = []
        for start in range(0, len(ids), step):
            places = np.arange(start, min(start + step, len(ids)))
            order = (np.arange(len(ids)) == places[:, None]).astype(np.int64)
            batch = plain_rows(np.tile(ids, (len(places), 1)), order)
            layers = self._streams(self._asking(batch, places[:, None]))
            batches.append([torch.cat(layer["query"], 1) for layer in layers])
        return [torch.cat(parts, 1) for parts in zip(*batches, strict=True)]

    @staticmethod
    def _asking(batch: StreamBatch, places: Ints) -> StreamBatch:
        """The batch with targets at these places."""
        return replace(batch, targets=StreamTargets.at(places, batch.input_ids))

    def _states(self, ids: Ints, places: Ints) -> Float[Tensor, "row place dim"]:
        hidden_words = (ids == self.tokenizer.mask_id).astype(np.int64)
        return self._targets(plain_rows(ids, hidden_words), places)

    def _targets(self, batch: StreamBatch, places: Ints) -> Float[Tensor, "row place dim"]:
        states = self.backbone(self._asking(batch, places).to(self.device), targets_only=True).queries
        assert states is not None
        return states


@dataclass(frozen=True)
class StreamQuery(MaskQuery):
    """A question about a text, read alone."""

    pipeline: WordPipeline
    tokenizer: Tokenizer
    tree: Tree
    node: int

    @property
    def head(self) -> Head:
        return Head(self.tree.nodes[self.node].id, "none", ())

    def log_probabilities(
        self, texts: Sequence[Sequence[int]], asked: Sequence[Sequence[int]]
    ) -> Float[Tensor, "text place vocab"]:
        return self.pipeline.log_probabilities(texts, asked)


def _num_random_orders(order: str) -> int:
    """The number N of random:N; 0 for forward and backward. Raises for any other order."""
    kind, _, number = order.partition(":")
    if kind == "random" and number.isdecimal() and int(number):
        return int(number)
    if order not in ("forward", "backward"):
        raise RamifyError(f"order={order} is not an order. Give forward, backward, or random:N with N of at least 1.")
    return 0


def _ranks(order: str, length: int, seed: int) -> Ints:
    """The place of every token in the order."""
    forward = np.arange(length)
    if order == "random":
        check_seed(seed)
        return np.random.Generator(np.random.Philox(key=seed)).permutation(length)
    if order not in ("forward", "backward"):
        raise RamifyError(f"order={order!r} is not forward, backward or random. Choose one of them, or leave it out.")
    return forward if order == "forward" else forward[::-1].copy()
