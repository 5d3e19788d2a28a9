"""Trees of vectors: the rows of all levels of some documents, as a model reads or writes them, and the documents that they
stand for."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from ramify.batching.document_batch import CONT, EOS, JOIN, NUM_MARKS, Banks, DocumentCollator
from ramify.batching.forest import Ints, ranges
from ramify.inference.documents.decoding import RAW, PassRule, decode_children
from ramify.inference.documents.measures import slots_of
from ramify.inference.documents.node_reconstruction import MOST_ROWS
from ramify.inference.documents.vectors import EncodedDocuments, Vectors
from ramify.tasks.nested.task import NestedAutoencoder
from ramify.tokenizer import Tokenizer
from ramify.tree import DOCUMENT, Node, Tree

NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class VectorLevel:
    """The rows of a level of some documents, in reading order."""

    vectors: Vectors
    """The vector of each row."""
    slots: Ints
    """The content of all places, row after row: a mark, or NUM_MARKS plus the number of a child (a row of the level below, or
    a token id)."""
    lengths: Ints
    """The number of places of each row."""

    @cached_property
    def starts(self) -> Ints:
        """The place where each row begins."""
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def child_place(self) -> Ints:
        """The place of each child."""
        return np.flatnonzero(self.slots >= NUM_MARKS)

    @cached_property
    def child(self) -> Ints:
        """The number of each child, in the order of places."""
        return self.slots[self.child_place] - NUM_MARKS

    @cached_property
    def child_row(self) -> Ints:
        """The row that holds each child."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)[self.child_place]

    @cached_property
    def counts(self) -> Ints:
        """The number of children of each row."""
        return np.bincount(self.child_row, minlength=len(self.lengths))

    def row(self, number: int) -> Ints:
        """The places of one row."""
        return self.slots[self.starts[number] : self.starts[number] + self.lengths[number]]


@dataclass(frozen=True)
class VectorTree:
    """The rows of all levels of some documents, from the lowest. A row of the highest level is a whole document, or a piece of
    one."""

    levels: tuple[VectorLevel, ...]
    document: Ints
    """The number of the document of each of the highest rows."""
    cut: frozenset[int] = frozenset()
    """The numbers of the documents of which only the beginning was decoded."""

    @cached_property
    def document_of(self) -> tuple[Ints, ...]:
        """The number of the document of each row of each level; -1 for a row that truncation leaves out."""
        found = [self.document]
        for level, below in zip(self.levels[:0:-1], self.levels[-2::-1], strict=True):
            numbers = np.full(len(below.lengths), -1)
            numbers[level.child] = found[-1][level.child_row]
            found.append(numbers)
        return tuple(found[::-1])


def encoded_tree(collator: DocumentCollator, encoded: EncodedDocuments) -> VectorTree:
    """The rows of documents that a model has encoded. Documents are numbered as their trees."""
    levels = []
    for number, (rows, vectors) in enumerate(zip(encoded.rows.levels, encoded.vectors, strict=True)):
        below = np.arange(rows.num_below if number else 0)
        slots = slots_of(collator.level(number, np.arange(len(rows)), below, below))
        levels.append(
            VectorLevel(vectors, np.concatenate([NONE, *slots]), np.array([len(row) for row in slots], dtype=np.int64))
        )
    return VectorTree(tuple(levels), encoded.rows.levels[-1].tree)


@dataclass(frozen=True)
class Decoded:
    """The rows of a level, decoded from their vectors."""

    level: VectorLevel
    below: Vectors
    """The vectors of their children, which are numbered in their order. Tokens have none."""
    document: Ints
    """The document of each child."""
    cut: Ints
    """The documents that have further children, which are left out."""


def decoded_level(
    task: NestedAutoencoder,
    level: int,
    vectors: Vectors,
    document: Ints,
    candidates: Vectors | None,
    rule: PassRule = RAW,
    names: Banks | None = None,
) -> Decoded:
    """Decode vectors of level `level + 1`. Above the tokens, a document has at most MOST_ROWS children.

    `document` is that of each vector; -1: none. `candidates` are known vectors of the children's level, from which an end mark
    must differ.
    """
    # Rows that truncation leaves out belong to no document, and no text shows them: they read any bank.
    banks = None if names is None or level else names.at(torch.from_numpy(np.maximum(document, 0)))
    rows = decode_children(task, level, vectors, candidates, banks, rule)
    slots, kept = [row.slots for row in rows], NONE
    below = np.zeros((0, task.backbone.config.dims[level]), dtype=np.float32)
    cut, room = NONE, dict.fromkeys(np.unique(document).tolist(), MOST_ROWS)
    if level:
        vectors_of_children: list[Vectors] = []
        for place, (row, own) in enumerate(zip(rows, document.tolist(), strict=True)):
            child = np.flatnonzero(row.slots >= NUM_MARKS)
            if len(child) > room[own]:
                cut = np.union1d(cut, [own])
                slots[place] = np.delete(row.slots, child[room[own] :])
                child = child[: room[own]]
            room[own] -= len(child)
            vectors_of_children.append(row.states[child])
        kept = np.array([len(own) for own in vectors_of_children], dtype=np.int64)
        below = np.concatenate([below, *vectors_of_children])
    ends = [np.full(int(row.ended), CONT if row.continues else EOS) for row in rows]
    flat = np.concatenate([NONE, *(part for pair in zip(slots, ends, strict=True) for part in pair)])
    lengths = np.array([len(own) + len(end) for own, end in zip(slots, ends, strict=True)], dtype=np.int64)
    if level:
        flat[flat >= NUM_MARKS] = NUM_MARKS + np.arange(len(below))
    return Decoded(VectorLevel(vectors, flat, lengths), below, np.repeat(document, kept) if level else NONE, cut)


def decoded_tree(
    task: NestedAutoencoder,
    level: int,
    vectors: Vectors,
    document: Ints,
    candidates: Sequence[Vectors | None],
    rule: PassRule = RAW,
    names: Banks | None = None,
) -> VectorTree:
    """Decode vectors of level `level + 1`, one per document or piece of one, down to tokens (AGENT, section 4.3).

    `candidates` are the known vectors of each level of children; tokens need none. `names`: the bank of each document, by its
    number, if the model has a memory of names.
    """
    levels: list[VectorLevel] = []
    owner, cut = document, NONE
    for number in range(level, -1, -1):
        decoded = decoded_level(task, number, vectors, owner, candidates[number], rule, names)
        vectors, owner, cut = decoded.below, decoded.document, np.union1d(cut, decoded.cut)
        levels.append(decoded.level)
    return VectorTree(tuple(levels[::-1]), document, frozenset(cut.tolist()))


# --- documents ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """The part of a row that belongs to one node."""

    children: Ints
    continues: bool


def _parts(level: VectorLevel, row: int) -> list[_Part]:
    """The parts of a row: packed neighbours have a mark between them."""
    slots = level.row(row)
    continues = bool(len(slots)) and int(slots[-1]) == CONT
    borders = np.flatnonzero(slots == JOIN)
    parts = [part[part >= NUM_MARKS] - NUM_MARKS for part in np.split(slots, borders)]
    return [_Part(part, continues and place == len(parts) - 1) for place, part in enumerate(parts)]


def _glued(level: VectorLevel, rows: Sequence[int]) -> list[Ints]:
    """The children of each node that some consecutive rows hold. A piece that continues is glued to the next one."""
    nodes: list[Ints] = []
    glue = False
    for row in rows:
        for part in _parts(level, row):
            if glue:
                nodes[-1] = np.concatenate([nodes[-1], part.children])
            else:
                nodes.append(part.children)
            glue = part.continues
    return nodes


def as_trees(tree: VectorTree, names: Sequence[str], tokenizer: Tokenizer) -> list[Tree]:
    """The documents of a tree, in ascending order of their numbers. `names` are the levels of the tree, from the lowest.

    Ids are places: `2.1` is the first node in the second one below the document, which is `0`. A document is added above nodes
    of another level.
    """
    trees: list[Tree] = []
    for number in np.unique(tree.document).tolist():
        nodes = [Node(kind=DOCUMENT, id="0")]
        tops = _glued(tree.levels[-1], np.flatnonzero(tree.document == number).tolist())
        is_document = names[-1] == DOCUMENT
        # (level, children, number of the parent among the nodes, id before the last number)
        stack: list[tuple[int, Ints, int, str]] = []
        if is_document:
            stack.append((len(names) - 1, np.concatenate([NONE, *tops]), -1, ""))
        else:
            stack += [(len(names) - 1, top, 0, str(place)) for place, top in reversed([*enumerate(tops, 1)])]
        while stack:
            level, children, parent, name = stack.pop()
            here = 0
            if parent >= 0:
                text = tokenizer.decode(children.tolist()).strip() if level == 0 else ""
                here = len(nodes)
                nodes.append(Node(text, (parent,), kind=names[level], id=name))
            elif level == 0:
                nodes[0] = Node(tokenizer.decode(children.tolist()).strip(), kind=DOCUMENT, id="0")
            if level:
                below = [*enumerate(_glued(tree.levels[level - 1], children.tolist()), 1)]
                stack += [(level - 1, own, here, f"{name}.{place}" if name else str(place)) for place, own in reversed(below)]
        trees.append(Tree(tuple(nodes), id=str(number)))
    return trees


def token_ids(level: VectorLevel, rows: Ints) -> Ints:
    """The tokens of some of the lowest rows, row after row."""
    slots = level.slots[ranges(level.starts[rows], level.starts[rows] + level.lengths[rows])]
    return slots[slots >= NUM_MARKS] - NUM_MARKS
