"""Whole trees on their way into a store: their structure as arrays, while what the nodes say stays where it was read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ramify.dataset.store import NODES, decoded
from ramify.readers.base import EXAMPLES, Report, pc
from ramify.tree import NO_PARENT, PLACEHOLDER, Indices, depths, roots_of

Mask = NDArray[np.bool_]

SPEAKS, EMPTIED, MADE_UP = 0, 1, 2
"""A node's `state`: as it was read; a root that was to be left out, kept without its text for what hangs below it; a root that
was in no input."""

BLANK_KINDS = {EMPTIED: "emptied", MADE_UP: PLACEHOLDER}
"""The kind of a node that says nothing, in the store."""


@dataclass(frozen=True)
class Chunk:
    """Nodes of a tree are consecutive, parents first; trees are in the order of their hashes."""

    content: pa.Table
    """Columns of `NODES`, as far as they are known, rows in any order, in one chunk."""
    rows: Indices
    """[node]: its row in `content`."""
    edges: Indices
    """[edge, 2]: (child, parent), sorted by child."""
    annotated: Mask
    """[node]: did somebody say what it answers?"""
    state: NDArray[np.int8]
    """[node]: SPEAKS, EMPTIED or MADE_UP."""
    lengths: Indices
    """[tree]: number of nodes."""
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
        """From content with a column `parents`: places within the tree, null = not annotated."""
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
        """[node]: the tree that it belongs to."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def first_parent(self) -> Indices:
        return first_parents(len(self), self.edges)

    def column(self, name: str) -> pa.Array:
        """[node]: a column of the content, as it was read."""
        return decoded(self.content[name].chunk(0).take(pa.array(self.rows)))

    def below(self, mask: Mask) -> Mask:
        """[node]: is it, or one of its ancestors (along first parents), in the mask?"""
        inside = np.append(mask, False)
        for up in jumps(self.first_parent):
            inside |= inside[up]
        return inside[:-1]

    def whole(self, mask: Mask) -> Mask:
        """[node]: is any node of its tree in the mask?"""
        return np.isin(self.tree, self.tree[mask])

    def without(self, reasons: Mapping[str, Mask], report: Report) -> "Chunk":
        """Leave nodes out and count each under the first reason that holds for it.

        Children hang on their nearest living ancestor (along first parents); a root with living nodes below it stays, emptied.
        """
        silent = self.state != SPEAKS
        unwanted = silent.copy()
        for mask in reasons.values():
            unwanted |= mask
        if not unwanted.any():
            return self
        root = roots_of(self.first_parent)
        needed = np.zeros(len(self), dtype=bool)
        needed[root[~unwanted]] = True
        dead = unwanted & ~needed
        state = np.where((self.state == SPEAKS) & unwanted & needed, np.int8(EMPTIED), self.state)
        self._count({**reasons, "childless_root": self.state == EMPTIED}, dead, report)
        if not dead.any():
            return replace(self, state=state)
        living = ~dead
        edges, moved = _reattach(self.edges, self.first_parent, dead)
        report.mend("reattached", count=len(moved))
        for node in moved[:EXAMPLES].tolist():
            report.example("reattached", self.name(node))
        number = np.cumsum(living) - 1
        lengths = np.bincount(self.tree[living], minlength=len(self.lengths))
        stays = lengths > 0
        return Chunk(
            content=self.content,
            rows=self.rows[living],
            edges=number[edges],
            annotated=self.annotated[living],
            state=state[living],
            lengths=lengths[stays],
            hashes=self.hashes[stays],
            tree_ids=self.tree_ids.filter(pa.array(stays)),
            metas=self.metas.filter(pa.array(stays)),
        )

    def _count(self, reasons: Mapping[str, Mask], dead: Mask, report: Report) -> None:
        # Made-up nodes were never read, so they leave without being counted.
        uncounted = dead & (self.state != MADE_UP)
        for reason, mask in reasons.items():
            counted = uncounted & mask
            uncounted &= ~mask
            report.skip(reason, count=int(counted.sum()))
            for node in np.flatnonzero(counted)[:EXAMPLES].tolist():
                report.example(reason, self.name(node))

    def name(self, node: int) -> str:
        """How messages speak of a node."""
        return f"tree {self.tree_ids[self.tree[node]]}, post {self.content['id'][int(self.rows[node])]}"

    def node_table(self) -> pa.Table:
        """The columns of `NODES`, in one chunk."""
        blank = pa.array(self.state != SPEAKS)
        known = [name for name in NODES.names if name in self.content.column_names]
        columns = {"self_link": np.zeros(len(self), dtype=bool), "label": pa.nulls(len(self), pa.string())}
        columns |= {name: self.column(name) for name in known}
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


# --- structure as arrays of parents -----------------------------------------------------------------------------------


def first_parents(nodes: int, edges: Indices) -> Indices:
    """[node]: its first parent, or -1. Edges are sorted by child."""
    first = np.full(nodes, NO_PARENT, dtype=np.int64)
    child, parent = edges[::-1].T
    first[child] = parent
    return first


def _reattach(edges: Indices, first_parent: Indices, dead: Mask) -> tuple[Indices, Indices]:
    """The edges of the living, each to its nearest living ancestor, and the nodes that this moved.

    A dead node passes what hangs on it to its first parent; edges that become equal, or end nowhere, vanish.
    """
    living = roots_of(np.where(dead, first_parent, NO_PARENT))
    child, parent = edges[~dead[edges[:, 0]]].T
    above = living[parent]
    moved = np.unique(child[above != parent])
    kept = np.stack([child, above], axis=1)[~dead[above]]
    if len(moved):
        _, first = np.unique(kept[:, 0] * len(dead) + kept[:, 1], return_index=True)
        kept = kept[np.sort(first)]
    return kept, moved


def jumps(parent: Indices) -> Iterator[Indices]:
    """Everybody's 1st, 2nd, 4th, 8th … ancestor; `len(parent)`, which has an entry of its own, stands for none.

    Ends when nobody has one, or, where there are rings, when all have been walked around.
    """
    none = len(parent)
    up = np.append(np.where(parent < 0, none, parent), none)
    for _ in range(none.bit_length() + 1):
        if (up == none).all():
            return
        yield up
        up = up[up]
