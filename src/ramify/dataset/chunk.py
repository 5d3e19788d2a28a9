"""Whole trees during a build: arrays for their structure, and references to the rows that hold their content."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ramify.dataset.store import NODES, decoded
from ramify.readers.base import EXAMPLES, ReadCounts, pc
from ramify.tree import DOCUMENT, NO_PARENT, PLACEHOLDER, Indices, depths, roots_of

Mask = NDArray[np.bool_]

INTACT, EMPTIED, ADDED = 0, 1, 2
"""The `state` of a node: with its content (INTACT), a root that a filter rejected and that remains without text because it has
descendants (EMPTIED), or a root that is missing from the input and was added (ADDED)."""

BLANK_KINDS = {EMPTIED: "emptied", ADDED: PLACEHOLDER}
"""State of a root without content -> its kind in the store."""


@dataclass(frozen=True)
class Chunk:
    """Trees in the order of their hashes. The nodes of a tree are consecutive, parents first."""

    content: pa.Table
    """The known columns of `NODES` in one chunk, with rows in any order."""
    rows: Indices
    """[node]: the row of the node in `content`."""
    edges: Indices
    """[edge, 2]: (child, parent), sorted by child."""
    annotated: Mask
    """[node]: whether its parents are annotated."""
    state: NDArray[np.int8]
    """[node]: INTACT, EMPTIED or ADDED."""
    lengths: Indices
    """[tree]: the number of nodes."""
    hashes: NDArray[np.uint64]
    tree_ids: pa.Array
    metas: pa.Array

    @classmethod
    def of(
        cls,
        content: pa.Table,
        rows: Indices,
        lengths: Indices,
        hashes: NDArray[np.uint64],
        tree_ids: pa.Array,
        metas: pa.Array,
        state: NDArray[np.int8],
    ) -> "Chunk":
        """Make a chunk from content with a column `parents` (positions within the tree, null = not annotated)."""
        parents = content["parents"].chunk(0).take(pa.array(rows))
        counts = pc.fill_null(pc.list_value_length(parents), 0).to_numpy()
        child = np.repeat(np.arange(len(rows)), counts)
        start = np.repeat(np.cumsum(lengths) - lengths, lengths)
        parent = parents.flatten().to_numpy() + start[child]
        annotated = parents.is_valid().to_numpy(zero_copy_only=False)
        return cls(content, rows, np.stack([child, parent], axis=1), annotated, state, lengths, hashes, tree_ids, metas)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def tree(self) -> Indices:
        """[node]: the tree of the node."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def first_parent(self) -> Indices:
        return first_parents(len(self), self.edges)

    @cached_property
    def is_container(self) -> Mask:
        """[node]: whether the node is a part of a document that holds other parts, such as a chapter or a paragraph."""
        roots = np.cumsum(self.lengths) - self.lengths
        kinds = decoded(self.content["kind"].chunk(0).take(pa.array(self.rows[roots])))
        in_document = pc.fill_null(pc.equal(kinds, DOCUMENT), False).to_numpy(zero_copy_only=False)
        holds = np.zeros(len(self), dtype=bool)
        holds[self.edges[:, 1]] = True
        return holds & in_document[self.tree]

    def column(self, name: str) -> pa.Array:
        """[node]: the values of a column of the content."""
        return decoded(self.content[name].chunk(0).take(pa.array(self.rows)))

    def in_subtrees(self, mask: Mask) -> Mask:
        """[node]: whether the node or one of its ancestors (along first parents) is in the mask."""
        inside = np.append(mask, False)
        for ancestor in jumps(self.first_parent):
            inside |= inside[ancestor]
        return inside[:-1]

    def whole(self, mask: Mask) -> Mask:
        """[node]: whether any node of its tree is in the mask."""
        return np.isin(self.tree, self.tree[mask])

    def without(self, reasons: Mapping[str, Mask], counts: ReadCounts) -> "Chunk":
        """Remove the nodes in the masks, and count each under the first reason that applies.

        Children are attached to their nearest remaining ancestor (along first parents). A root with remaining descendants
        becomes EMPTIED. A blank root without descendants is removed.
        """
        rejected = self.state != INTACT
        for mask in reasons.values():
            rejected |= mask
        if not rejected.any():
            return self
        root = roots_of(self.first_parent)
        needed = np.zeros(len(self), dtype=bool)
        needed[root[~rejected]] = True
        removed = rejected & ~needed
        state = np.where((self.state == INTACT) & rejected & needed, np.int8(EMPTIED), self.state)
        self._count({**reasons, "childless_root": self.state == EMPTIED}, removed, counts)
        if not removed.any():
            return replace(self, state=state)
        remaining = ~removed
        edges, moved = _reattach(self.edges, self.first_parent, removed)
        counts.repair("reattached", count=len(moved))
        for node in moved[:EXAMPLES].tolist():
            counts.example("reattached", self.name(node))
        number = np.cumsum(remaining) - 1
        lengths = np.bincount(self.tree[remaining], minlength=len(self.lengths))
        has_nodes = lengths > 0
        return Chunk(
            content=self.content,
            rows=self.rows[remaining],
            edges=number[edges],
            annotated=self.annotated[remaining],
            state=state[remaining],
            lengths=lengths[has_nodes],
            hashes=self.hashes[has_nodes],
            tree_ids=self.tree_ids.filter(pa.array(has_nodes)),
            metas=self.metas.filter(pa.array(has_nodes)),
        )

    def _count(self, reasons: Mapping[str, Mask], removed: Mask, counts: ReadCounts) -> None:
        # Added roots were never read, so their removal is not counted.
        uncounted = removed & (self.state != ADDED)
        for reason, mask in reasons.items():
            counted = uncounted & mask
            uncounted &= ~mask
            counts.skip(reason, count=int(counted.sum()))
            for node in np.flatnonzero(counted)[:EXAMPLES].tolist():
                counts.example(reason, self.name(node))

    def name(self, node: int) -> str:
        """The name of a node in messages."""
        return f"tree {self.tree_ids[self.tree[node]]}, post {self.content['id'][int(self.rows[node])]}"

    def node_table(self) -> pa.Table:
        """The nodes as a table with the schema `NODES`, in one chunk."""
        blank = pa.array(self.state != INTACT)
        available = [name for name in NODES.names if name in self.content.column_names]
        columns = {"self_link": np.zeros(len(self), dtype=bool), "label": pa.nulls(len(self), pa.string())}
        columns |= {name: self.column(name) for name in available}
        if pc.any(blank).as_py():
            kinds = pa.array([None, *BLANK_KINDS.values()]).take(pa.array(self.state))
            columns["kind"] = pc.coalesce(kinds, columns["kind"])
            columns["text"] = pc.if_else(blank, "", columns["text"])
        columns["kind"] = pc.fill_null(columns["kind"], "")
        columns["parents"] = self._local_parents()
        columns["depth"] = depths(self.first_parent)
        for name in ("author", "kind"):
            columns[name] = columns[name].dictionary_encode()
        return pa.table({field.name: columns[field.name] for field in NODES}).cast(NODES)

    def _local_parents(self) -> pa.Array:
        child, parent = self.edges.T
        start = np.cumsum(self.lengths) - self.lengths
        offsets = np.concatenate([[0], np.cumsum(np.bincount(child, minlength=len(self)))]).astype(np.int32)
        local = (parent - start[self.tree[child]]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(local), mask=pa.array(~self.annotated))


# --- functions of parent arrays ---------------------------------------------------------------------------------------


def first_parents(nodes: int, edges: Indices) -> Indices:
    """[node]: the first parent, or -1. Edges must be sorted by child."""
    first = np.full(nodes, NO_PARENT, dtype=np.int64)
    child, parent = edges[::-1].T
    first[child] = parent
    return first


def _reattach(edges: Indices, first_parent: Indices, removed: Mask) -> tuple[Indices, Indices]:
    """The edges of the remaining nodes to their nearest remaining ancestors, and the nodes whose edges changed.

    The first parent of a removed node takes over its children. Duplicate edges, and edges without a remaining ancestor, are
    dropped.
    """
    nearest_remaining = roots_of(np.where(removed, first_parent, NO_PARENT))
    child, parent = edges[~removed[edges[:, 0]]].T
    new_parent = nearest_remaining[parent]
    moved = np.unique(child[new_parent != parent])
    new_edges = np.stack([child, new_parent], axis=1)[~removed[new_parent]]
    if len(moved):
        _, first = np.unique(new_edges[:, 0] * len(removed) + new_edges[:, 1], return_index=True)
        new_edges = new_edges[np.sort(first)]
    return new_edges, moved


def jumps(parent: Indices) -> Iterator[Indices]:
    """Yield every node's 1st, 2nd, 4th, 8th … ancestor. `len(parent)`, which has an entry itself, stands for no ancestor.

    Ends when no node has such an ancestor, or, if there are cycles, after enough steps to go around all of them.
    """
    none = len(parent)
    ancestor = np.append(np.where(parent < 0, none, parent), none)
    for _ in range(none.bit_length() + 1):
        if (ancestor == none).all():
            return
        yield ancestor
        ancestor = ancestor[ancestor]
