"""Documents as levels: the nodes of each level in reading order, and the rows that a model of nested documents reads."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from ramify.batching.forest import Ints, ranges, token_cache
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.nn import counter_rng
from ramify.progress import track
from ramify.readers.base import pc
from ramify.tokenizer import Tokenizer
from ramify.tree import DOCUMENT

Bools = NDArray[np.bool_]
Overflow = Literal["cut", "pack", "truncate"]
"""The treatment of a node with more children than a row holds. cut: several rows, all but the last of which end in a mark of
continuation. pack: as cut, and short neighbours share a row. truncate: the children past the limit are left out."""
Divisions = Literal["flatten", "level"]

USUAL = ("sentence", "paragraph", "chapter", DOCUMENT)
"""The levels of a book, from the lowest."""


def level_names(store: Store, divisions: Divisions = "flatten") -> tuple[str, ...]:
    """The levels of a store's documents, from the lowest. `level` includes divisions other than the usual ones, such as parts.

    Raises `RamifyError` if the store holds no documents, or levels without an order.
    """
    if divisions == "flatten":
        kinds = kinds_of(store)
        return tuple(name for name in USUAL if name in kinds)
    check_documents(store)
    kinds = store.column("kind", np.arange(store.num_nodes))
    parent = store.parent
    codes = pc.dictionary_encode(pc.fill_null(kinds, ""))
    names, code = codes.dictionary.to_pylist(), codes.indices.to_numpy()
    inner = np.flatnonzero(parent >= 0)
    pairs = np.unique(code[inner] * len(names) + code[parent[inner]])
    order: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(sorted(names), ()))
    for child, above in zip((pairs // len(names)).tolist(), (pairs % len(names)).tolist(), strict=True):
        order.add(names[above], names[child])
    try:
        return tuple(name for name in order.static_order() if name)
    except CycleError as error:
        circle = " inside ".join(error.args[1])
        raise RamifyError(
            f"{store.path or 'the data'}: the kinds of nodes have no order, because there is {circle}. Set "
            "view.divisions=flatten."
        ) from None


def kinds_of(store: Store) -> set[str]:
    """The kinds of the nodes of a store's documents. Raises `RamifyError` if it holds no documents."""
    check_documents(store)
    kinds = pc.unique(store.column("kind", np.arange(store.num_nodes))).to_pylist()
    return {kind for kind in kinds if kind}


def check_documents(store: Store) -> None:
    """Raise `RamifyError` if a store holds other trees than documents."""
    if store.structure != "document":
        raise RamifyError(
            f"{store.path or 'the data'} holds {store.structure}, not documents. Build documents with `ramify data build FILES "
            "--format book`."
        )


@dataclass(frozen=True)
class Level:
    """The nodes of one level in reading order. A node's children are consecutive nodes of the level below, or tokens."""

    name: str
    node: Ints
    """The store's number of each node; that of the first node below for a node that fills a missing level."""
    stored: Bools
    """Whether the store has this node."""
    counts: Ints
    """The number of children."""
    tree: Ints
    """The store's tree of each node."""

    @cached_property
    def offsets(self) -> Ints:
        """Node i has the children `offsets[i]` to `offsets[i + 1] - 1`."""
        return np.concatenate([[0], np.cumsum(self.counts)])


@dataclass(frozen=True)
class Levels:
    """The levels of some trees, from the lowest, whose children are tokens, to the highest."""

    ids: NDArray[np.unsignedinteger]
    """The token ids of the nodes of the lowest level, one node after the other."""
    levels: tuple[Level, ...]
    flattened: dict[str, int]
    """The number of nodes of each kind that is no level."""

    @classmethod
    def open(cls, store: Store, tokenizer: Tokenizer, names: Sequence[str], trees: Ints) -> "Levels":
        """Read some trees, which are in ascending order, on the levels with these names.

        Nodes of other kinds are left out: their texts and children belong to the nearest node above that is on a level. Where a
        level is missing, a node fills it for each run of neighbours. Raises `RamifyError` if the store holds no documents, none
        of these levels, or a level inside a lower one.
        """
        check_documents(store)
        nodes = ranges(store.offsets[trees], store.offsets[trees + 1])
        kinds = store.column("kind", nodes)
        rank = np.array(pc.fill_null(pc.index_in(kinds, value_set=pa.array(names)), len(names)))
        if len(nodes) and not (rank < len(names)).any():
            _check_any(store, names)
        tokenized = token_cache(store, tokenizer)
        lengths = np.diff(tokenized.starts)[nodes]
        builder = _Builder(store, names)
        parents = store.parent[nodes]
        columns = (nodes.tolist(), parents.tolist(), rank.tolist(), lengths.tolist())
        for node, parent, level, length in track("reading levels", zip(*columns, strict=True), len(nodes)):
            builder.add(node, parent, level, length)
        others = pc.value_counts(kinds.filter(pc.invert(pc.is_in(kinds, value_set=pa.array(names)))))
        return cls(
            tokenized.ids[ranges(tokenized.starts[nodes], tokenized.starts[nodes + 1])],
            builder.levels(),
            {str(kind["values"]): kind["counts"] for kind in others.to_pylist()},
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(level.name for level in self.levels)

    @cached_property
    def _lowest(self) -> "dict[int, Levels]":
        return {len(self.levels): self}

    def lowest(self, number: int) -> "Levels":
        """The lowest levels alone."""
        if number not in self._lowest:
            self._lowest[number] = Levels(self.ids, self.levels[:number], self.flattened)
        return self._lowest[number]

    @cached_property
    def _rows(self) -> "dict[Any, DocumentRows]":
        return {}

    def rows(self, longest: Sequence[int], overflow: Overflow, most_tokens: Sequence[int | None]) -> "DocumentRows":
        """`DocumentRows.of` these levels, which is slow, and so computed once."""
        key = (tuple(longest), overflow, tuple(most_tokens))
        if key not in self._rows:
            self._rows[key] = DocumentRows.of(self, longest, overflow, most_tokens=most_tokens)
        return self._rows[key]

    @property
    def filled(self) -> dict[str, int]:
        """The number of nodes on each level that fill a missing one."""
        return {level.name: int((~level.stored).sum()) for level in self.levels}


def _check_any(store: Store, names: Sequence[str]) -> None:
    """Raise `RamifyError` if no node of a store is on one of these levels. Single documents may have none of them."""
    kinds = pc.unique(store.column("kind", np.arange(store.num_nodes)))
    if not pc.any(pc.is_in(kinds, value_set=pa.array(names))).as_py():
        known = ", ".join(sorted(map(str, kinds.to_pylist())))
        raise RamifyError(
            f"{store.path or 'the data'}: the documents have the levels {known}, but none of {', '.join(names)}. Choose "
            "other levels."
        )


class _Builder:
    """Puts nodes in reading order on levels."""

    def __init__(self, store: Store, names: Sequence[str]) -> None:
        self.store = store
        self.names = names
        self.node: list[list[int]] = [[] for _ in names]
        self.stored: list[list[bool]] = [[] for _ in names]
        self.counts: list[list[int]] = [[] for _ in names]
        self.open: list[bool] = [False] * len(names)
        """Whether the last node of each level may take further children."""
        self.path: list[int] = []
        """The last node, and the nodes above it, from the root on."""
        self.hosts: list[int] = []
        """The level of each of these, or of the nearest node above on a level; the number of levels if there is none."""

    def add(self, node: int, parent: int, level: int, length: int) -> None:
        """Add a node with this number of tokens. `level` is the number of levels if the node is on none."""
        top = len(self.names)
        while self.path and self.path[-1] != parent:
            self.path.pop()
            self.hosts.pop()
        if parent >= 0 and not self.path:
            self._refuse_order(node, parent)
        host = self.hosts[-1] if parent >= 0 else top
        if parent < 0:
            self.open = [False] * top
        if level < top:
            if parent >= 0 and host <= level:
                self._refuse(node, level, host)
            self._fill(node, level + 1, host)
            self._begin(node, level, stored=True)
            host = level
        self.path.append(node)
        self.hosts.append(host)
        if length:
            self._fill(node, 0, host)
            self.counts[0][-1] += length

    def _fill(self, node: int, low: int, host: int) -> None:
        """Open nodes on the levels from `low` to below `host`, unless fillers are open there."""
        for level in reversed(range(low, min(host, len(self.names)))):
            if not self.open[level] or self.stored[level][-1]:
                self._begin(node, level, stored=False)

    def _begin(self, node: int, level: int, *, stored: bool) -> None:
        if level + 1 < len(self.names):
            self.counts[level + 1][-1] += 1
        self.node[level].append(node)
        self.stored[level].append(stored)
        self.counts[level].append(0)
        self.open[: level + 1] = [False] * level + [True]

    def _refuse(self, node: int, level: int, host: int) -> None:
        tree = self.store.tree_ids(self.store.tree_of([node]))[0]
        raise RamifyError(
            f"document {tree!r}, node {self.store.ids([node])[0]!r}: a {self.names[level]} lies inside a {self.names[host]}, "
            f"but the levels are {', '.join(self.names)}, from the lowest. Choose other levels."
        )

    def _refuse_order(self, node: int, parent: int) -> None:
        tree = self.store.tree_ids(self.store.tree_of([node]))[0]
        name, above = self.store.ids([node, parent])
        raise RamifyError(
            f"document {tree!r}, node {name!r}: it lies in node {above!r}, which ended before. The nodes of documents are in "
            "reading order: a node, all that it contains, then the next node. Sort the nodes."
        )

    def levels(self) -> tuple[Level, ...]:
        levels = []
        for name, node, stored, counts in zip(self.names, self.node, self.stored, self.counts, strict=True):
            numbers = np.array(node, dtype=np.int64)
            tree = self.store.tree_of(numbers)
            levels.append(Level(name, numbers, np.array(stored, dtype=bool), np.array(counts, dtype=np.int64), tree))
        return tuple(levels)


# --- rows ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LevelRows:
    """The rows of one level, in reading order. Each row becomes one vector, which is a child in a row of the level above.

    A row holds the children of one part of a node; with `pack`, those of several parts, with a mark between them.
    """

    level: Level
    start: Ints
    """The first child of each part: a row of the level below, or a token."""
    count: Ints
    """The number of children of each part."""
    parts: Ints
    """The number of parts of each row."""
    continued: Bools
    """Whether a row's node continues in the next row."""
    first_row: Ints
    """The first row of each node."""
    num_rows: Ints
    """The number of rows of each node. Packed nodes share a row."""
    tokens: Ints
    """The number of tokens below each row."""
    content: Ints
    """A hash of each row's content. Rows with equal content have the same number."""
    num_below: int
    """The number of rows (or tokens) of the level below."""
    left_out: int
    """The number of children that no row holds."""

    def __len__(self) -> int:
        return len(self.parts)

    @cached_property
    def part_offsets(self) -> Ints:
        """Row i has the parts `part_offsets[i]` to `part_offsets[i + 1] - 1`."""
        return np.concatenate([[0], np.cumsum(self.parts)])

    @cached_property
    def children(self) -> Ints:
        """The number of children of each row."""
        return np.add.reduceat(self.count, self.part_offsets[:-1]) if len(self) else np.zeros(0, dtype=np.int64)

    @cached_property
    def node_of_row(self) -> Ints:
        """A number for the node of each row, in ascending order. All pieces of a node that was cut have one number, and nodes
        that are packed into a row share its number."""
        return np.cumsum(np.append(False, ~self.continued[:-1]))[: len(self)]

    @cached_property
    def tree(self) -> Ints:
        """The store's tree of each row."""
        return self.level.tree[np.searchsorted(self.first_row, np.arange(len(self)), side="right") - 1]

    @cached_property
    def spans(self) -> Ints:
        """The rows (or tokens) of the level below between the start of row i and that of row i + 1 are `spans[i]` to
        `spans[i + 1] - 1`. Truncation leaves some of them out of the row."""
        return np.append(self.start[self.part_offsets[:-1]], self.num_below)

    @cached_property
    def child_row(self) -> Ints:
        """The row that holds each child, in the order of `held_children`."""
        return np.repeat(np.repeat(np.arange(len(self)), self.parts), self.count)

    @cached_property
    def held_children(self) -> Ints:
        """The children that rows hold: rows of the level below, or tokens, row after row."""
        return ranges(self.start, self.start + self.count)

    @cached_property
    def node_rows(self) -> Ints:
        """The rows of each node, one node after the other. Each node has at least one; packed nodes share it."""
        return ranges(self.first_row, self.first_row + self.num_rows)

    @cached_property
    def row_node(self) -> Ints:
        """The number of the node of each of `node_rows`."""
        return np.repeat(np.arange(len(self.num_rows)), self.num_rows)

    @property
    def num_cut(self) -> int:
        """The number of nodes with several rows."""
        return int((self.num_rows > 1).sum())

    @property
    def num_packed(self) -> int:
        """The number of nodes that share a row."""
        return int(self.parts[self.parts > 1].sum())


@dataclass(frozen=True)
class DocumentRows:
    """The rows of all levels, from the lowest."""

    ids: NDArray[np.unsignedinteger]
    levels: tuple[LevelRows, ...]

    def held_tokens(self, level: int) -> Ints:
        """The tokens that a batch with each row of a level holds: those of all rows below, also of rows that truncation leaves
        out of the row itself."""
        tokens = self.levels[0].children
        for rows in self.levels[1 : level + 1]:
            ends = np.concatenate([[0], np.cumsum(tokens)])
            tokens = ends[rows.spans[1:]] - ends[rows.spans[:-1]]
        return tokens

    @classmethod
    def of(
        cls,
        levels: Levels,
        longest: Sequence[int],
        overflow: Overflow = "cut",
        *,
        most_tokens: Sequence[int | None] | None = None,
    ) -> "DocumentRows":
        """Cut the nodes of each level into rows of at most `longest` places, one of which is the end mark.

        `most_tokens` limits the tokens below a row of each level, except that a row has at least one child.
        """
        limits = [None] * len(levels.levels) if most_tokens is None else most_tokens
        cut: list[LevelRows] = []
        tokens, content = np.ones(len(levels.ids), dtype=np.int64), levels.ids.astype(np.int64)
        offsets = np.arange(len(levels.ids) + 1)
        above = [np.repeat(np.arange(len(level.counts)), level.counts) for level in levels.levels[1:]]
        parents = [*above, levels.levels[-1].tree]
        for level, parent, places, limit in zip(levels.levels, parents, longest, limits, strict=True):
            rows = _cut(level, parent, offsets, tokens, content, places - 1, overflow, limit)
            # Packed nodes share a row, so a row may belong to several nodes, but all of one parent.
            offsets = np.append(rows.first_row, len(rows))
            tokens, content = rows.tokens, rows.content
            cut.append(rows)
        return cls(levels.ids, tuple(cut))

    def unpacked(self, level: int, places: int, most_tokens: int | None) -> "DocumentRows":
        """The rows up to a level, where the nodes of that level share none. Rows below it stay as they are.

        `places` and `most_tokens` are those of this level in `of`.
        """
        nodes = self.levels[level].level
        if level:
            below = self.levels[level - 1]
            offsets, tokens, content = np.append(below.first_row, len(below)), below.tokens, below.content
        else:
            tokens, content = np.ones(len(self.ids), dtype=np.int64), self.ids.astype(np.int64)
            offsets = np.arange(len(self.ids) + 1)
        rows = _cut(nodes, nodes.tree, offsets, tokens, content, places - 1, "cut", most_tokens)
        return DocumentRows(self.ids, (*self.levels[:level], rows))


def _cut(
    level: Level,
    parent: Ints,
    offsets: Ints,
    tokens: Ints,
    content: Ints,
    room: int,
    overflow: Overflow,
    most_tokens: int | None,
) -> LevelRows:
    """Cut one level. Child c of the level begins with the row (or token) `offsets[c]` below; packed children share a row."""
    starts = offsets[level.offsets[:-1]]
    # Rows do not cross the borders of nodes, so this node's rows end where the next node's rows begin.
    stops = np.where(level.counts > 0, offsets[level.offsets[1:]], starts)
    parts = np.maximum(-(-(stops - starts) // room), 1)
    node = np.repeat(np.arange(len(starts)), parts)
    place = np.arange(len(node)) - np.repeat(np.cumsum(parts) - parts, parts)
    start = starts[node] + place * room
    count = np.minimum(stops[node] - start, room)
    if most_tokens is not None:
        node, start, count = _limited(node, start, count, tokens, most_tokens)
    left_out = 0
    if overflow == "truncate":
        first = np.append(True, node[1:] != node[:-1])[: len(node)]
        left_out = int(count[~first].sum())
        node, start, count = node[first], start[first], count[first]
    continued = np.append(node[1:] == node[:-1], False)[: len(node)]
    num_parts = np.ones(len(node), dtype=np.int64)
    row = np.arange(len(node))
    if overflow == "pack":
        ends = np.concatenate([[0], np.cumsum(tokens)])
        part_tokens = ends[start + count] - ends[start]
        row = _packed(parent[node], count, continued, room, part_tokens, most_tokens)
        num_parts = np.bincount(row)
    first_part = np.searchsorted(node, np.arange(len(starts)))
    last = np.cumsum(num_parts) - 1
    num_rows = np.bincount(node, minlength=len(starts))
    row_tokens = np.bincount(np.repeat(row, count), weights=tokens[ranges(start, start + count)], minlength=len(num_parts))
    return LevelRows(
        level=level,
        start=start,
        count=count,
        parts=num_parts,
        continued=continued[last] if len(last) else continued,
        first_row=row[first_part] if len(row) else row,
        num_rows=num_rows,
        tokens=row_tokens.astype(np.int64),
        content=_contents(row, start, count, continued, content, len(num_parts)),
        num_below=len(tokens),
        left_out=left_out,
    )


def _limited(node: Ints, start: Ints, count: Ints, tokens: Ints, limit: int) -> tuple[Ints, Ints, Ints]:
    """Cut parts further, so that each holds at most `limit` tokens or one child."""
    ends = np.concatenate([[0], np.cumsum(tokens)])
    over = ends[start + count] - ends[start] > limit
    parts: list[tuple[int, int, int]] = []
    for owner, first, number, is_over in zip(node.tolist(), start.tolist(), count.tolist(), over.tolist(), strict=True):
        if not is_over:
            parts.append((owner, first, number))
            continue
        begin = first
        while begin < first + number:
            end = int(np.searchsorted(ends, ends[begin] + limit, side="right")) - 1
            end = min(max(end, begin + 1), first + number)
            parts.append((owner, begin, end - begin))
            begin = end
    table = np.array(parts, dtype=np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def _packed(parent: Ints, count: Ints, continued: Bools, room: int, tokens: Ints, most_tokens: int | None) -> Ints:
    """The row of each part, if neighbours with the same parent share rows. A node with several parts shares none."""
    split = continued | np.append(False, continued[:-1])[: len(continued)]
    row, rows, filled, held = np.empty(len(parent), dtype=np.int64), -1, 0, 0
    limit = math.inf if most_tokens is None else most_tokens
    previous = None
    parts = zip(*(array.tolist() for array in (parent, count, tokens, split)), strict=True)
    for part, (above, size, number, alone) in enumerate(parts):
        # A mark separates parts.
        if alone or above != previous or filled + 1 + size > room or held + number > limit:
            rows, filled, held = rows + 1, size, number
        else:
            filled, held = filled + 1 + size, held + number
        previous = None if alone else above
        row[part] = rows
    return row


def _contents(row: Ints, start: Ints, count: Ints, continued: Bools, content: Ints, num_rows: int) -> Ints:
    """A hash of each row's children, their places and marks."""
    places = ranges(start, start + count)
    first_of_row = np.searchsorted(row, np.arange(num_rows))
    # Each part counts its children and one more place for the mark at its end.
    before = np.cumsum(count + 1) - (count + 1)
    offset = before - before[first_of_row][row] if len(row) else before
    child_place = np.repeat(offset, count) + np.arange(len(places)) - np.repeat(np.cumsum(count) - count, count)
    keys = torch.from_numpy(np.concatenate([content[places], np.where(continued, -2, -1)]))
    at = torch.from_numpy(np.concatenate([child_place, offset + count]))
    hashes = counter_rng.random_bits(keys, at).numpy()
    total = np.zeros(num_rows, dtype=np.int64)
    np.add.at(total, np.concatenate([np.repeat(row, count), row]), hashes)
    return total
