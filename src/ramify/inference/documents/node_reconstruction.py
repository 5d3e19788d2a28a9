"""Text from the vectors of documents' nodes, down through all levels to tokens, and its comparison with the true text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ramify.batching.document_batch import JOIN, NUM_MARKS, Banks
from ramify.batching.forest import Ints
from ramify.batching.levels import Level, Levels
from ramify.dataset.store import Store
from ramify.inference.documents.decoding import ROWS, decode_children
from ramify.inference.documents.document_banks import banks_of, units_of_nodes
from ramify.inference.documents.text import separator, token_bounds
from ramify.inference.documents.vectors import (
    Vectors,
    encode_documents,
    encode_level,
    lay_out,
    unpacked,
)
from ramify.nn.ragged import runs
from ramify.tasks.nested.task import NestedAutoencoder
from ramify.tokenizer import Tokenizer

MOST_ROWS = 20_000
"""The most vectors of one level into which a node is decoded. An untrained decoder writes as many as rows have places."""


@dataclass(frozen=True)
class DecodedText:
    """The tokens into which a node was decoded."""

    ids: Ints
    begins: Ints
    """The highest level of which a node begins with each token: 0 for a token inside a sentence."""
    is_whole: bool
    """Whether all vectors were decoded; a node has a greatest number on each level."""


@dataclass(frozen=True)
class Reconstructions:
    """The nodes of a level, and the text into which each was decoded."""

    nodes: Level
    decoded: list[DecodedText]
    true_ids: list[Ints]
    left_out: int
    """The number of children that no row holds."""
    num_tokens: int
    num_unknown: int
    """The number of tokens that stand for text that the tokenizer cannot spell."""


def reconstruct(
    task: NestedAutoencoder,
    store: Store,
    trees: Ints,
    level: int,
    progress: Callable[[int], None] | None = None,
) -> Reconstructions:
    """Encode the nodes of a level of some documents, which are held together, and decode their vectors.

    Each piece of a node that was cut is decoded. With a memory of names, tokens read the names of the document's other nodes.
    Above the tokens, the decoder's vectors are passed on as they are; known
    vectors only decide where a row ends. `progress` receives the number of nodes that were decoded.
    """
    agent = task.backbone
    levels = Levels.open(store, task.tokenizer, agent.config.levels, trees)
    view, packed = lay_out(agent, task.input, levels)
    vectors = encode_documents(agent, view, packed, num_levels=level).vectors
    collator = unpacked(agent, task.input, view, level)
    encoded = encode_level(agent, collator, level, vectors[-1] if vectors else None)
    rows = collator.rows.levels[level]
    banks = [None, *(bank(task, number, level_vectors) for number, level_vectors in enumerate(vectors, 1))]
    decoded: list[DecodedText] = []
    names, units = banks_of(task, collator), units_of_nodes(collator.rows, level)
    # Nodes are decoded in groups of about as many rows as a decoder takes at once.
    for start, stop in runs(rows.num_rows, ROWS):
        node = np.repeat(np.arange(stop - start), rows.num_rows[start:stop])
        first = int(rows.first_row[start])
        read = None if names is None else names.of_units(units, np.arange(start, stop), rows.level.tree[start:stop])
        decoded += _decode(task, level, encoded[first : first + len(node)], node, stop - start, banks, read, MOST_ROWS)
        if progress is not None:
            progress(stop - start)
    bounds = token_bounds(levels, level)
    true_ids = [levels.ids[a:b].astype(np.int64) for a, b in pairwise(bounds)]
    left_out = sum(level_rows.left_out for level_rows in collator.rows.levels[: level + 1])
    unknown = task.tokenizer.unknown(levels.ids).count
    return Reconstructions(rows.level, decoded, true_ids, left_out, len(levels.ids), unknown)


def bank(task: NestedAutoencoder, level: int, given: Vectors) -> Vectors:
    """Known vectors of a level above the tokens, from which an end mark must differ: those of training that the model keeps,
    or else the given ones."""
    queue = task.queue(level)
    return queue.vectors[: len(queue)].cpu().numpy() if len(queue) else given


def decode_vectors(
    task: NestedAutoencoder,
    level: int,
    vectors: Vectors,
    banks: Sequence[Vectors | None],
    names: Banks | None,
    most: int,
) -> list[DecodedText]:
    """Decode vectors of level `level + 1`, each a node, into at most `most` vectors of each level below. `banks` holds known
    vectors of each level of children (`bank`); None for tokens. `names`: the bank of each node, if the model has a memory of
    names."""
    return _decode(task, level, vectors, np.arange(len(vectors)), len(vectors), banks, names, most)


def _decode(
    task: NestedAutoencoder,
    level: int,
    vectors: Vectors,
    node: Ints,
    num_nodes: int,
    banks: Sequence[Vectors | None],
    names: Banks | None,
    most: int,
) -> list[DecodedText]:
    """Decode the pieces of some nodes. `node` is the number of each piece's node. `names`: the bank of each node, which its
    tokens read if the model has a memory of names."""
    # The highest level of which a node begins with each vector; levels count from 0 for tokens.
    begins = np.full(len(node), level)
    begins[np.append(True, node[1:] != node[:-1])[: len(node)]] = level + 1
    is_whole = np.ones(num_nodes, dtype=bool)
    for number in range(level, -1, -1):
        place = np.arange(len(node)) - np.searchsorted(node, node)
        is_whole[node[place >= most]] = False
        kept = place < most
        node, begins, vectors = _children(
            task, number, vectors[kept], node[kept], begins[kept], banks[number], names if number == 0 else None
        )
    ids = vectors[:, 0].astype(np.int64)
    ends = np.searchsorted(node, np.arange(num_nodes + 1))
    return [DecodedText(ids[a:b], begins[a:b], bool(whole)) for a, b, whole in zip(ends[:-1], ends[1:], is_whole, strict=True)]


def _children(
    task: NestedAutoencoder,
    level: int,
    vectors: Vectors,
    node: Ints,
    begins: Ints,
    candidates: Vectors | None,
    names: Banks | None,
) -> tuple[Ints, Ints, NDArray[Any]]:
    """The children of vectors of level `level + 1`: the node of each, what begins with it, and its vector (or token id)."""
    child_node: list[Ints] = [np.zeros(0, dtype=np.int64)]
    child_begins: list[int] = []
    width = 1 if level == 0 else task.backbone.config.dims[level]
    children: list[NDArray[Any]] = [np.zeros((0, width), dtype=np.int64 if level == 0 else np.float32)]
    waiting, last_node, continues = level + 1, None, False
    read = None if names is None else names.at(torch.from_numpy(node))
    for row, owner, begun in zip(
        decode_children(task, level, vectors, candidates, read), node.tolist(), begins.tolist(), strict=True
    ):
        if owner != last_node:
            waiting, continues = level + 1, False
        # A piece continues the one before it, unless a longer node begins here.
        begun = level if continues and begun == level + 1 else begun
        # Marks and empty rows pass on what begins.
        waiting = max(waiting, begun)
        for slot in row.slots.tolist():
            if slot == JOIN:
                waiting = max(waiting, level + 1)
            elif slot >= NUM_MARKS:
                child_begins.append(waiting)
                waiting = level
        is_child = row.slots >= NUM_MARKS
        children.append(row.slots[is_child, None] - NUM_MARKS if level == 0 else row.states[: len(row.slots)][is_child])
        child_node.append(np.full(int(is_child.sum()), owner))
        last_node, continues = owner, row.continues
    return np.concatenate(child_node), np.array(child_begins, dtype=np.int64), np.concatenate(children)


def as_text(tokenizer: Tokenizer, names: Sequence[str], decoded: DecodedText) -> str:
    """The text of decoded tokens. `names` are the levels above the tokens, from the lowest."""
    starts = [0, *(np.flatnonzero(decoded.begins[1:] > 0) + 1).tolist(), len(decoded.ids)]
    text = ""
    for start, stop in pairwise(starts):
        if stop > start:
            before = separator(names, int(decoded.begins[start]) - 1) if text else ""
            text += before + tokenizer.decode(decoded.ids[start:stop].tolist())
    return text


def token_accuracy(true_ids: Ints, ids: Ints) -> float | None:
    """The share of tokens that stand at their place: matches at the first min(n, m) places, divided by max(n, m), for n true
    and m predicted tokens. None if there is neither."""
    shared = min(len(true_ids), len(ids))
    longest = max(len(true_ids), len(ids))
    return float((true_ids[:shared] == ids[:shared]).sum() / longest) if longest else None
