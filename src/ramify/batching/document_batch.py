"""Batches of nested documents: the rows of every level on flat axes, one pass per level over all nodes of all documents."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from ramify.batching.batch import AnyBatch
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.forest import Ints, ranges
from ramify.batching.levels import DocumentRows
from ramify.batching.movable import Movable, moved
from ramify.batching.views.documents import DocumentExample
from ramify.nn.ragged import Rows, inverse, length_key, runs

EOS, CONT, JOIN, PAD, BOS, MASK = range(6)
NUM_MARKS = 6
"""The marks of a level: the end of a row, the end of a row whose node continues in the next row, the border between packed
nodes, padding, the start of a row that a decoder writes, and a masked child. They precede the children in the level's table."""


class Role(Enum):
    """The part of a model that learns from a batch. `runs/nested_documents/stages.py` says when."""

    ALL = auto()
    """Every level that the batch has."""
    LOWEST = auto()
    """Frozen levels alone, before they are frozen."""
    ABOVE = auto()
    """Levels above the frozen ones, from given vectors."""
    DECODER = auto()
    """The decoder of the batch's highest level alone. Encoders are in evaluation mode."""


@dataclass(frozen=True)
class Banks(Movable):
    """The answers of documents to the questions of a memory of names (`models/name_memory.py`)."""

    answers: Float[Tensor, "bank question dim"]
    known: Bool[Tensor, " bank"]
    """Whether a bank holds answers. That of a sentence without others holds none."""

    @classmethod
    def of(cls, answers: Float[Tensor, "bank question dim"]) -> "Banks":
        """Banks that all hold these answers."""
        return cls(answers, torch.ones(len(answers), dtype=torch.bool, device=answers.device))

    def at(self, numbers: Int[Tensor, " chosen"]) -> "Banks":
        """The banks with these numbers. A number may occur several times."""
        return Banks(self.answers.index_select(0, numbers), self.known.index_select(0, numbers))

    def without_answers(self) -> "Banks":
        """As many banks that hold nothing, so that tokens keep their states."""
        return Banks(torch.zeros_like(self.answers), torch.zeros_like(self.known))

    def to(self, device: torch.device | str) -> "Banks":
        return moved(self, device)


@dataclass(frozen=True)
class LevelBatch(Movable):
    """The rows of one level. Each becomes a vector, which is a child in the rows of the level above, under the row's number."""

    rows: Rows
    slots: Int[Tensor, " slot"]
    """The content of each place of a row: a mark, or NUM_MARKS plus the number of a child (a row below, or a token id)."""
    is_child: Bool[Tensor, " slot"]
    child_slot: Int[Tensor, " child"]
    """The slot of each child."""
    child_row: Int[Tensor, " child"]
    """The row of each child."""
    tree: Int[Tensor, " row"]
    """The document of each row."""
    content: Int[Tensor, " row"]
    """A hash of each row's content: rows with equal content have the same number."""
    true_slots: Int[Tensor, " true"]
    """The slots that are no padding."""
    child_place: Int[Tensor, " child"]
    """The place of each child among the slots that are no padding."""
    counts: Ints
    """The number of children of each row."""
    lengths: Ints
    """The number of children and marks of each row, without padding."""
    source: Ints
    """The number of each row among the rows of the data."""
    node: Ints
    """The number of each row's node. Pieces of a node that was cut have one number, and nodes that share a row, too."""
    document: Ints
    """The document of each row, as `tree`, on the host."""

    def to(self, device: torch.device | str) -> "LevelBatch":
        return moved(self, device)

    def token_rows(self, vocab_size: int) -> EncoderInput:
        """Rows of tokens as the input of an encoder of texts. The ids of marks follow the vocabulary."""
        return EncoderInput.of_rows(
            torch.where(self.slots < NUM_MARKS, self.slots + vocab_size, self.slots - NUM_MARKS), self.rows
        )

    @property
    def children(self) -> Int[Tensor, " child"]:
        """The number of each child."""
        return self.slots.index_select(0, self.child_slot) - NUM_MARKS


@dataclass(frozen=True)
class LevelDraws(Movable):
    """Random draws for one level of a batch: masked and replaced children."""

    masked_slots: Int[Tensor, " slot"]
    """The content of each slot where masked children are hidden."""
    masked: Int[Tensor, " masked"]
    """The slots of the masked children."""
    marked: Int[Tensor, " marked"]
    """The slots of the children with the second segment vector. If the model is not told, there are none."""
    replaced_slots: Int[Tensor, " slot"]
    """The content of each slot where some children are replaced."""
    segments: Int[Tensor, " slot"] | None
    """1 for the children that could be replaced; None: the model is not told."""
    share: Float[Tensor, " row"]
    """The share of each row's children that were replaced."""
    checked: Int[Tensor, " checked"]
    """The rows that have children."""

    def hides(self, rows: LevelBatch) -> Bool[Tensor, " masked"]:
        """Whether each masked child of these rows is hidden: some are shown unchanged."""
        return torch.ne(self.masked_slots, rows.slots).index_select(0, self.masked)

    def to(self, device: torch.device | str) -> "LevelDraws":
        return moved(self, device)


@dataclass(frozen=True)
class CollectionDraws(Movable):
    """The documents of a batch in reading order as rows of their own, with masked documents."""

    rows: Rows
    slots: Int[Tensor, " slot"]
    masked_slots: Int[Tensor, " slot"]
    masked: Int[Tensor, " masked"]

    def to(self, device: torch.device | str) -> "CollectionDraws":
        return moved(self, device)


@dataclass(frozen=True)
class DocumentBatch(AnyBatch):
    """The rows of every level, from the lowest. The children of the lowest rows are tokens.

    If there are `parts`, the children of the lowest rows are the vectors of the parts' highest rows, one part after the other:
    the graph of all would be too large. The parts have losses of their own if they are `chunks`: rows of the lowest level that
    occur nowhere else. Otherwise they are the units of a whole document, which are examples, too.
    """

    levels: tuple[LevelBatch, ...]
    lowest: int
    """The level of the lowest rows' children: 0 for tokens."""
    parts: tuple["DocumentBatch", ...]
    num_tokens: int
    draws: tuple[LevelDraws, ...] = ()
    """The random draws for each level that is encoded, after corruption."""
    chunks: bool = False
    role: Role = Role.ALL
    given: int = 0
    """The number of the lowest levels that are not encoded, because `vectors` holds the vectors of the highest of them."""
    vectors: Float[Tensor, "row dim"] | None = None
    """The Compressor's vectors of the rows of the highest level that is not encoded."""
    collection: CollectionDraws | None = None
    """The documents as rows, if the objective reads them so."""
    banks: Banks | None = None
    """The banks of names of the lowest rows, from whole documents; None: those of the batch's own sentences."""

    @property
    def device(self) -> torch.device:
        return self.levels[0].slots.device if self.levels else torch.device("cpu")

    @property
    def num_targets(self) -> int:
        return len(self.levels[0].rows) if self.levels else 0

    @property
    def num_target_tokens(self) -> int:
        return 0 if self.parts and not self.chunks else self.num_tokens

    @property
    def first(self) -> int:
        """The lowest level of children of which the batch has losses."""
        return 0 if self.chunks else self.lowest + self.given

    def to(self, device: torch.device | str) -> "DocumentBatch":
        return replace(
            self,
            levels=tuple(level.to(device) for level in self.levels),
            parts=tuple(part.to(device) for part in self.parts),
            draws=tuple(draw.to(device) for draw in self.draws),
            vectors=None if self.vectors is None else self.vectors.to(device),
            collection=None if self.collection is None else self.collection.to(device),
            banks=None if self.banks is None else self.banks.to(device),
        )

    def below(self, number: int) -> tuple[LevelBatch, ...]:
        """The rows whose vectors are the children of one of the batch's levels; () if its children are tokens."""
        return self.levels[number - 1 : number] if number else tuple(part.levels[-1] for part in self.parts)


EMPTY = DocumentBatch((), 0, (), 0)
"""A batch without rows, which the loop skips."""


@dataclass(frozen=True)
class DocumentCollator:
    """Makes batches of the rows of documents."""

    rows: DocumentRows
    unit: int
    budget: int
    """The greatest number of tokens of a part."""
    document_draws: int = 1
    """The number of copies of a document that is encoded part by part. Each has random draws of its own."""
    padded: tuple[int, ...] | None = None
    """The length to which rows of each level are padded; None: rows are not padded."""
    chunked: bool = False
    """Whether the lowest level is encoded in parts of at most `budget` tokens, with losses of their own."""
    role: Role = Role.ALL
    depth: int | None = None
    """The number of the lowest levels that a batch holds; None: all."""
    given: int = 0
    """The number of the lowest levels that are not encoded."""
    vectors: Callable[[Ints], NDArray[np.float32]] | None = field(default=None, compare=False)
    """Reads the vectors of rows of the highest level that is not encoded."""

    @cached_property
    def held_tokens(self) -> Ints:
        """The tokens of a batch with each row of the unit's level."""
        return self.rows.held_tokens(self.unit)

    def num_slots(self, level: int) -> Ints:
        """The number of slots of each row of a level, padding included."""
        rows = self.rows.levels[level]
        return rows.children + rows.parts if self.padded is None else np.full(len(rows), self.padded[level])

    def __call__(self, examples: Sequence[DocumentExample]) -> DocumentBatch:
        if not examples:
            return EMPTY
        if any(example.apart for example in examples):
            return self._apart(sorted(examples, key=lambda example: example.start))
        ordered = sorted(examples, key=lambda example: example.start)
        units = _joined((example.start, example.stop) for example in ordered)
        documents = _joined((example.document_start, example.document_stop) for example in ordered)
        return self.batch(units, documents, chunked=self.chunked)

    def batch(self, units: Ints, documents: Ints, *, chunked: bool = False) -> DocumentBatch:
        """Rows of the unit's level and all rows below, and the rows of documents whose units are all among them. Both are in
        ascending order."""
        below = [units]
        for level in reversed(self.rows.levels[1 : self.unit + 1]):
            below.append(ranges(level.spans[below[-1]], level.spans[below[-1] + 1]))
        numbers = (below[::-1] + ([documents] if len(documents) else []))[: self.depth]
        num_tokens = int(self.held_tokens[units].sum())
        levels: list[LevelBatch] = []
        parts: tuple[DocumentBatch, ...] = ()
        chosen, rank = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        if chunked and len(numbers) > 1:
            chosen = numbers[0]
            parts, rank = self._chunks(chosen)
        for level, wanted in list(enumerate(numbers))[len(parts) > 0 :]:
            levels.append(self.level(level, wanted, chosen, rank))
            # Rows are sorted by length, so the number of a row in the batch is its rank.
            chosen, rank = wanted, inverse(np.searchsorted(wanted, levels[-1].source))
        vectors = None
        if self.vectors is not None:
            vectors = torch.from_numpy(self.vectors(levels[self.given - 1].source))
        return DocumentBatch(
            levels=tuple(levels),
            lowest=int(bool(parts)),
            parts=parts,
            num_tokens=num_tokens,
            chunks=bool(parts),
            role=self.role,
            given=self.given,
            vectors=vectors,
        )

    def _chunks(self, rows: Ints) -> tuple[tuple[DocumentBatch, ...], Ints]:
        """Rows of the lowest level in parts, and the number of each row among those of all parts."""
        tokens = self.rows.levels[0].children[rows]
        parts, rank, none = [], np.empty(len(rows), dtype=np.int64), np.zeros(0, dtype=np.int64)
        for start, stop in runs(tokens, self.budget):
            level = self.level(0, rows[start:stop], none, none)
            rank[start:stop] = start + inverse(np.searchsorted(rows[start:stop], level.source))
            parts.append(DocumentBatch((level,), 0, (), int(tokens[start:stop].sum())))
        return tuple(parts), rank

    def _apart(self, examples: Sequence[DocumentExample]) -> DocumentBatch:
        units = _joined((example.start, example.stop) for example in examples)
        tokens = self.held_tokens[units]
        parts, rank = [], np.empty(len(units), dtype=np.int64)
        for start, stop in runs(tokens, self.budget):
            part = self.batch(units[start:stop], np.zeros(0, dtype=np.int64))
            rank[start:stop] = start + inverse(np.searchsorted(units[start:stop], part.levels[-1].source))
            parts.append(part)
        documents = _joined((example.document_start, example.document_stop) for example in examples)
        top = self.level(self.unit + 1, np.repeat(documents, self.document_draws), units, rank)
        return DocumentBatch((top,), self.unit + 1, tuple(parts), int(tokens.sum()), role=self.role)

    def level(self, number: int, wanted: Ints, below: Ints, rank: Ints) -> LevelBatch:
        """The rows with these numbers, sorted by length.

        `below` are the rows of the level below that the batch has, in ascending order, and `rank` their numbers in the batch.
        """
        level = self.rows.levels[number]
        offsets = level.part_offsets
        lengths = level.children[wanted] + level.parts[wanted]
        order = np.argsort(length_key(lengths), kind="stable")
        wanted, lengths = wanted[order], lengths[order]
        parts = ranges(offsets[wanted], offsets[wanted + 1])
        count = level.count[parts]
        held = ranges(level.start[parts], level.start[parts] + count)
        children = self.rows.ids[held].astype(np.int64) if number == 0 else rank[np.searchsorted(below, held)]
        # A part is its children and one mark.
        mark_place = np.cumsum(count + 1) - 1
        slots = np.empty(len(held) + len(parts), dtype=np.int64)
        is_child = np.ones(len(slots), dtype=bool)
        is_child[mark_place] = False
        slots[is_child] = NUM_MARKS + children
        marks = np.full(len(parts), JOIN)
        marks[np.cumsum(level.parts[wanted]) - 1] = np.where(level.continued[wanted], CONT, EOS)
        slots[mark_place] = marks
        rows = Rows.build(lengths)
        if self.padded is not None:
            slots, is_child, rows = _padded(slots, is_child, lengths, self.padded[number])
        true_slots = np.flatnonzero(slots != PAD)
        child_slot = np.flatnonzero(is_child)
        row = np.repeat(np.arange(len(wanted)), rows.host_lengths)
        return LevelBatch(
            rows=rows,
            slots=torch.from_numpy(slots),
            is_child=torch.from_numpy(is_child),
            child_slot=torch.from_numpy(child_slot),
            child_row=torch.from_numpy(row[child_slot]),
            tree=torch.from_numpy(level.tree[wanted]),
            content=torch.from_numpy(level.content[wanted]),
            true_slots=torch.from_numpy(true_slots),
            child_place=torch.from_numpy(np.flatnonzero(is_child[true_slots])),
            counts=level.children[wanted],
            lengths=lengths,
            source=wanted,
            node=level.node_of_row[wanted],
            document=level.tree[wanted],
        )


def _padded(slots: Ints, is_child: NDArray[np.bool_], lengths: Ints, length: int) -> tuple[Ints, NDArray[np.bool_], Rows]:
    """Fill all rows up to one length with padding marks."""
    filled = np.arange(length) < lengths[:, None]
    table = np.full(filled.shape, PAD)
    table[filled] = slots
    children = np.zeros(filled.shape, dtype=bool)
    children[filled] = is_child
    return table.ravel(), children.ravel(), Rows.build(np.full(len(lengths), length))


def _joined(spans: Any) -> Ints:
    table = np.array(list(spans), dtype=np.int64).reshape(-1, 2)
    return ranges(table[:, 0], table[:, 1])
