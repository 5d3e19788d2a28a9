"""Batches of labelled texts: rows for a model that encodes, and their targets.

Targets have the order of the rows of `LabelledBatch.input`; `order` undoes it. `targets` has one entry per row for classes and
numbers, and one per row and class for several labels. A task with other targets (a tag per word, the ends of an answer, the
right choice) has a collator of its own, which gives the same batch; `part` holds what else the task needs.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy.typing import NDArray
from torch import Tensor

from ramify.batching.batch import AnyBatch, target_rows
from ramify.batching.encoder_input import EncoderInput, NodeContext
from ramify.batching.forest import Forest, Ints, ranges
from ramify.batching.movable import Movable
from ramify.batching.views.labelled import LabelledText, RowTexts
from ramify.nn.ragged import Rows, doubling_key, length_key
from ramify.tokenizer import RowLayout


@dataclass(frozen=True)
class LabelledBatch(AnyBatch):
    """Rows of texts and their targets."""

    input: EncoderInput
    targets: Shaped[Tensor, "*targets"] | None
    """In the order of the rows; None: the labels are not known."""
    order: Ints
    """The example of each row."""
    features: Float[Tensor, "row layer dim"] | None = None
    """Vectors of a frozen model. If there are any, the rows of `input` are empty."""
    tokens: int = 0
    """The number of tokens that `features` stand for."""
    states: Float[Tensor, "token layer dim"] | None = None
    """The states of all tokens of `input` in each layer of a frozen model, if they are known."""
    part: Movable | None = None
    """Further tensors that a single task reads."""

    @property
    def device(self) -> torch.device:
        return self.input.ids.device if self.features is None else self.features.device

    @property
    def num_targets(self) -> int:
        return len(self.order)

    @property
    def num_target_tokens(self) -> int:
        return self.input.rows.total + self.tokens


class LabelCollator(ABC):
    """Makes the batches of a label task, and knows which vector of a frozen model belongs to which place of a batch."""

    @abstractmethod
    def __call__(self, examples: Sequence[Any]) -> LabelledBatch: ...

    @abstractmethod
    def places(self, batch: LabelledBatch) -> Ints:
        """The place of each vector of a batch among those of its examples."""


@dataclass(frozen=True)
class LabelledCollator(LabelCollator):
    """Lays labelled texts flat."""

    layout: RowLayout
    forest: Forest
    two_texts: bool
    """Whether rows are laid out as two texts."""
    vectors: bool
    """Whether rows read vectors of nodes."""
    longest: int
    """The longest row, with special tokens."""

    @classmethod
    def of(cls, rows: RowTexts) -> "LabelledCollator":
        """The collator of the rows of a view."""
        vectors = rows.input.reads_above and rows.input.context_as == "vectors"
        return cls(rows.layout, rows.forest, rows.two_texts, vectors, rows.input.max_tokens)

    def places(self, batch: LabelledBatch) -> Ints:
        """The place of the vector of each row of a batch among those of its examples."""
        return batch.order

    def __call__(self, examples: Sequence[LabelledText]) -> LabelledBatch:
        targets = None
        if all(example.target is not None for example in examples):
            targets = torch.from_numpy(np.array([example.target for example in examples]))
        if examples and examples[0].features is not None:
            features = torch.from_numpy(np.stack([example.features for example in examples if example.features is not None]))
            nothing = torch.zeros(0, dtype=torch.int64)
            empty = EncoderInput.of_rows(nothing, Rows.build(np.zeros(len(examples), dtype=np.int64)))
            tokens = sum(example.length for example in examples)
            return LabelledBatch(empty, targets, np.arange(len(examples)), features, tokens)
        # Of rows of similar length, those that read similarly many nodes become adjacent.
        sizes = doubling_key(np.array([len(example.context) for example in examples], dtype=np.int64))
        by_context = np.argsort(sizes, kind="stable")
        rows = self._rows([examples[place] for place in by_context])
        order = by_context[rows.source]
        rows = replace(rows, source=order)
        return LabelledBatch(rows, None if targets is None else targets[torch.from_numpy(order)], order)

    def _rows(self, examples: Sequence[LabelledText]) -> EncoderInput:
        texts = _flat([example.text for example in examples])
        if self.two_texts:
            before = _flat([np.zeros(0, np.int64) if example.before is None else example.before for example in examples])
            rows = EncoderInput.of_pairs(before, texts, self.layout, None)
        else:
            rows = EncoderInput.of_texts(texts, self.layout, None)
        if self.vectors:
            rows = self._in_context(rows, [examples[place] for place in rows.source])
        return rows if self.forest.lexicon is None else rows.spelled(self.forest.lexicon)

    def _in_context(self, rows: EncoderInput, examples: Sequence[LabelledText]) -> EncoderInput:
        """The rows with the clean texts of the nodes that they read, each once and cut to the length of a row."""
        keys = np.array([len(example.context) for example in examples], dtype=np.int64)
        read = np.concatenate([np.zeros(0, dtype=np.int64), *(example.context for example in examples)])
        nodes, index = np.unique(read, return_inverse=True)
        special = self.layout.num_special
        lengths = np.minimum(self.forest.length[nodes], self.longest - special)
        by_length = np.argsort(length_key(lengths + special), kind="stable")
        rank = np.argsort(by_length)
        nodes, lengths = nodes[by_length], lengths[by_length]
        targets, contexts, readers = target_rows(rows.rows.host_lengths, keys)
        context = NodeContext(
            ids=torch.from_numpy(self.layout.wrap_batch(self.forest.gather(nodes, lengths), lengths)),
            nodes=Rows.build(lengths + special),
            depth=torch.from_numpy(self.forest.depth[nodes]),
            index=torch.from_numpy(rank[index.reshape(-1)].astype(np.int64)),
            contexts=contexts,
            readers=readers,
            row_depth=torch.from_numpy(self.forest.depth[[example.node for example in examples]]),
        )
        return replace(rows, rows=targets, context=context)


def token_places(rows: EncoderInput) -> Ints:
    """The place of each token of rows among those of their texts, text after text, each with its rows in the order of the
    text."""
    lengths = rows.rows.host_lengths
    in_order = np.lexsort((rows.offsets.sum(1), rows.source))
    starts = np.empty_like(lengths)
    starts[in_order] = np.cumsum(lengths[in_order]) - lengths[in_order]
    return ranges(starts, starts + lengths)


def known_states(rows: EncoderInput, states: Sequence[NDArray[np.float32] | None]) -> Float[Tensor, "token layer dim"] | None:
    """The states of the tokens of rows, given those of their texts; None: a text has none."""
    known = [part for part in states if part is not None]
    if not known or len(known) < len(states):
        return None
    return torch.from_numpy(np.concatenate(known)[token_places(rows)])


def _flat(parts: Sequence[Ints]) -> tuple[Ints, Ints]:
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts]), lengths
