"""The parts that all measures of nested documents share: their values, the held-out vectors, and copies of rows to probe."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from ramify.batching.document_batch import DocumentCollator, LevelBatch
from ramify.batching.forest import Ints, ranges
from ramify.batching.levels import DocumentRows, LevelRows
from ramify.inference.documents.document_banks import DocumentBanks, banks_of
from ramify.inference.documents.vectors import EncodedDocuments
from ramify.nn.ragged import runs
from ramify.tasks.nested.similarity import Similarity
from ramify.tasks.nested.task import NestedAutoencoder

Advance = Callable[[int], None]

BATCH_SLOTS = 8_192
"""Slots of the copies of rows that are computed at once."""

PROBED_SLOTS = 65_536
"""About the greatest number of slots of the copies of rows that a measure probes."""


@dataclass(frozen=True)
class Measure:
    """A measure of a level. NaN stands for a value that the data do not determine."""

    value: float
    baseline: float
    chance: float
    count: int
    """The number of items behind the value."""
    p: float = math.nan
    """The p-value of the difference from the baseline, or of an AUROC from 1/2."""
    others: dict[str, float] = field(default_factory=dict)
    """Further baselines, by name."""
    items: Mapping[str, NDArray[Any]] = field(default_factory=dict, compare=False, repr=False)
    """The values of every item from which the measure comes, by name, so that those of several models can be pooled. Not part
    of the JSON."""

    def to_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {"value": self.value, "baseline": self.baseline, "chance": self.chance}
        record = {name: None if math.isnan(number) else number for name, number in record.items()} | {"count": self.count}
        if not math.isnan(self.p):
            record["p"] = self.p
        if self.others:
            record["others"] = {name: None if math.isnan(value) else value for name, value in self.others.items()}
        return record


Measures = dict[str, Measure]
"""Measures by name. A name after a dot is a part of the items, or another choice of candidates."""


def counted_nodes(number: int, count: int) -> Measure:
    """A number of nodes among `count` nodes."""
    return Measure(float(number), math.nan, math.nan, count)


def mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else math.nan


def spread(number: int, most: int) -> Ints:
    """At most `most` of `number` places, evenly spaced."""
    return np.arange(number) if number <= most else np.arange(most) * number // most


def generator(seed: int, *parts: int) -> np.random.Generator:
    """The random draws of one measure."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, sum(part << (8 * n) for n, part in enumerate(parts))])))


def below_one_node(nodes: Ints, one: Ints | int, other: Ints | int) -> NDArray[np.bool_]:
    """Whether rows lie below the same node, given the node above each row of their level, as `HeldOut.node_above` does. A row
    that truncation leaves out lies below none."""
    return (nodes[one] == nodes[other]) & (nodes[one] >= 0)


@dataclass(frozen=True)
class RowPool:
    """Rows of one level among which a node is found: vectors, contents, documents and terms."""

    vectors: NDArray[np.float32]
    content: Ints
    tree: Ints
    terms: csr_matrix
    """The number of times that each row holds each token."""

    @cached_property
    def tfidf(self) -> csr_matrix:
        """Term frequencies times smooth inverse frequencies of rows, of length 1."""
        rows, size = self.terms.get_shape()
        having = np.bincount(self.terms.indices, minlength=size)
        weighted = self.terms.multiply(np.log((1 + rows) / (1 + having)) + 1).tocsr()
        lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(1)).ravel())
        return csr_matrix(weighted.multiply(1 / np.maximum(lengths, 1e-12)[:, None]))


def term_counts(rows: DocumentRows, vocab_size: int) -> list[csr_matrix]:
    """The number of times that each row of each level holds each token."""
    counts: list[csr_matrix] = []
    for number, level in enumerate(rows.levels):
        child, above = level.held_children, level.child_row
        if number == 0:
            place, size = rows.ids[child].astype(np.int64), vocab_size
        else:
            place, size = child, level.num_below
        of_children = csr_matrix((np.ones(len(child)), (above, place)), shape=(len(level), size))
        counts.append(of_children if number == 0 else csr_matrix(of_children @ counts[-1]))
    return counts


@dataclass(frozen=True)
class HeldOut:
    """Documents that a model is measured on, with the vectors of all their rows.

    Level l here is that of the rows whose children are on level l of the model: rows of level 0 are sentences.
    """

    task: NestedAutoencoder
    collator: DocumentCollator
    encoded: EncodedDocuments
    more: EncodedDocuments | None = None
    """Other documents, which are only candidates."""
    seed: int = 0
    sentences: dict[int, Ints] = field(default_factory=dict, compare=False, repr=False)
    """The slots of those of the lowest rows that have been decoded from their own vectors (see `decoded_sentences`)."""

    @property
    def rows(self) -> DocumentRows:
        return self.encoded.rows

    def level(self, number: int) -> LevelRows:
        return self.encoded.rows.levels[number]

    @cached_property
    def pools(self) -> list[RowPool]:
        """The rows of each level: first those of the documents, then those of the other documents."""
        sources = [documents for documents in (self.encoded, self.more) if documents is not None]
        size = self.task.tokenizer.vocab_size
        terms = [term_counts(documents.rows, size) for documents in sources]
        pools = []
        for number in range(len(self.rows.levels)):
            levels = [documents.rows.levels[number] for documents in sources]
            pools.append(
                RowPool(
                    np.concatenate([documents.vectors[number] for documents in sources]),
                    np.concatenate([level.content for level in levels]),
                    np.concatenate([level.tree for level in levels]),
                    csr_matrix(_stacked([counts[number] for counts in terms])),
                )
            )
        return pools

    @cached_property
    def parents(self) -> list[Ints]:
        """The row above each row of each level but the highest; -1 if truncation leaves it out."""
        parents = []
        for level in self.rows.levels[1:]:
            above = np.full(level.num_below, -1)
            above[level.held_children] = level.child_row
            parents.append(above)
        return parents

    @cached_property
    def nodes(self) -> list[Ints]:
        """The node of each row of each level. A row of packed nodes stands for all of them."""
        nodes = []
        for level in self.rows.levels:
            nodes.append(np.arange(len(level)) if level.num_packed else level.row_node)
        return nodes

    @torch.no_grad()
    def keys(self, similarity: Similarity, number: int) -> NDArray[np.float32]:
        """The keys of the pool's rows of a level: their dot products with queries are the rows' scores."""
        vectors = self.pools[number].vectors
        return similarity.keys(torch.from_numpy(vectors).to(self.task.device)).cpu().numpy()

    def node_above(self, number: int, distance: int) -> Ints | None:
        """The node so many levels above each row of a level, -1 if truncation leaves it out; None if there is no such level."""
        if number + distance >= len(self.rows.levels):
            return None
        above = np.arange(len(self.level(number)))
        for level in range(number, number + distance):
            above = np.where(above >= 0, self.parents[level][above], -1)
        return np.where(above >= 0, self.nodes[number + distance][above], -1)

    def children_of(self, number: int, row: int) -> Ints:
        """The rows of the level below, or tokens' places, that are the children of a row."""
        level = self.level(number)
        parts = slice(level.part_offsets[row], level.part_offsets[row + 1])
        return ranges(level.start[parts], level.start[parts] + level.count[parts])

    def true_slots(self, number: int, rows: Ints) -> list[Ints]:
        """The content of each place of some rows, which are in ascending order: a mark, or NUM_MARKS plus a child's number (or
        a token id)."""
        below = np.arange(self.level(number).num_below if number else 0)
        return slots_of(self.collator.level(number, rows, below, below))

    @cached_property
    def banks(self) -> DocumentBanks | None:
        """The banks of names of the documents; None if the model has no memory of names."""
        return banks_of(self.task, self.collator)

    @cached_property
    def items(self) -> list[Float[Tensor, "item _dim"]]:
        """All that a slot of each level's rows can hold, with the vectors of the documents and of the other documents."""
        items = []
        with torch.no_grad():
            for number in range(len(self.rows.levels)):
                vectors = None if number == 0 else torch.from_numpy(self.pools[number - 1].vectors).to(self.task.device)
                items.append(self.task.backbone.encoder(number).items(vectors))
        return items


def slots_of(batch: LevelBatch) -> list[Ints]:
    """The content of each row's places without padding, in the order of the rows of the data."""
    slots = batch.slots.index_select(0, batch.true_slots).numpy()
    pieces = np.split(slots, np.cumsum(batch.lengths)[:-1]) if len(batch.lengths) else []
    return [pieces[row] for row in np.argsort(batch.source, kind="stable").tolist()]


def _stacked(matrices: list[csr_matrix]) -> Any:
    from scipy.sparse import vstack

    return vstack(matrices) if len(matrices) > 1 else matrices[0]


@dataclass(frozen=True)
class Copies:
    """Copies of rows, one per probed child, in a batch."""

    start: int
    stop: int
    """The probes of this batch, among all probes."""
    batch: LevelBatch
    row: Int[Tensor, " probe"]
    """The row of the batch that holds each probe's copy."""
    slot: Int[Tensor, " probe"]
    """The slot of each probe's child."""


def copies(held: HeldOut, number: int, rows: Ints, children: Ints) -> Iterator[Copies]:
    """Batches with one copy of a row per probe. `rows` are in ascending order; `children` are places among a row's children."""
    level = held.level(number)
    below = np.arange(level.num_below if number else 0)
    for start, stop in runs(held.collator.num_slots(number)[rows], BATCH_SLOTS):
        batch = held.collator.level(number, rows[start:stop], below, below)
        # Rows of a batch are sorted by length, and equal rows keep their order.
        row = np.argsort(batch.source, kind="stable")
        first = np.cumsum(batch.counts) - batch.counts
        slot = batch.child_slot.numpy()[first[row] + children[start:stop]]
        device = held.task.device
        yield Copies(start, stop, batch.to(device), torch.from_numpy(row).to(device), torch.from_numpy(slot).to(device))


def probes(held: HeldOut, number: int, most: int, *, least: int = 2) -> tuple[Ints, Ints]:
    """At most `most` children of rows with at least `least` children, evenly spaced over all of these: the row of each, and
    its place among the row's children. Their copies hold at most about `PROBED_SLOTS` slots."""
    level = held.level(number)
    counts = np.where(level.children >= least, level.children, 0)
    ends, slots = np.cumsum(counts), int((counts * (level.children + level.parts)).sum())
    total = int(ends[-1]) if len(ends) else 0
    chosen = spread(total, min(most, max(1, PROBED_SLOTS * total // max(1, slots))))
    rows = np.searchsorted(ends, chosen, side="right")
    return rows, chosen - (ends - counts)[rows]
