"""Vectors of the nodes of documents, level by level, without a graph."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.batching.document_batch import DocumentCollator
from ramify.batching.forest import Ints
from ramify.batching.levels import DocumentRows, Level, LevelRows, Levels
from ramify.batching.views.documents import Documents, LevelInput
from ramify.dataset.store import Store
from ramify.inference.base import TOKENS
from ramify.inference.rows import row_vectors
from ramify.models.agent import Agent
from ramify.nn.modes import evaluating
from ramify.nn.ragged import runs
from ramify.tokenizer import Tokenizer

Vectors = Float[NDArray, "_row _dim"]

NODES = 1 << 14
"""Number of nodes of whole documents that are held at once. A longer document is held alone."""


@dataclass(frozen=True)
class EncodedDocuments:
    """The rows of some documents, and the vector of each row of each level."""

    rows: DocumentRows
    unit: int
    """The level below the document, or else the highest."""
    vectors: tuple[Vectors, ...]

    def of_nodes(self, level: int) -> Vectors:
        """The vector of each node of a level: the mean of those of its rows. Packed nodes have that of their row."""
        return mean_of_rows(self.rows.levels[level], self.vectors[level])


def mean_of_rows(rows: LevelRows, vectors: Vectors) -> Vectors:
    """The mean of the vectors of each node's rows."""
    if not len(rows.num_rows):
        return np.zeros((0, vectors.shape[1]), dtype=np.float32)
    total = np.add.reduceat(vectors[rows.node_rows], np.cumsum(rows.num_rows) - rows.num_rows, axis=0)
    return total / rows.num_rows[:, None].astype(np.float32)


def read_documents(
    agent: Agent, tokenizer: Tokenizer, input: LevelInput, store: Store, trees: Ints
) -> tuple[Documents, DocumentCollator]:
    """The rows of some documents, as in training, and a collator for them."""
    return lay_out(agent, input, Levels.open(store, tokenizer, agent.config.levels, trees))


def lay_out(agent: Agent, input: LevelInput, levels: Levels) -> tuple[Documents, DocumentCollator]:
    """The rows of documents, as in training, and a collator for them."""
    view = Documents(levels, agent.config.max_children, input, budget=TOKENS)
    return view, _collator(agent, view, view.rows)


def _collator(agent: Agent, view: Documents, rows: DocumentRows) -> DocumentCollator:
    padded = agent.config.max_children if agent.config.padding == "full" else None
    return DocumentCollator(rows, view.unit, TOKENS, padded=padded)


def unpacked(agent: Agent, input: LevelInput, view: Documents, level: int) -> DocumentCollator:
    """A collator for rows of a level that hold one node each, where neighbours would share a row (`input.overflow=pack`)."""
    if input.overflow != "pack":
        return _collator(agent, view, view.rows)
    is_unit = level == view.unit < len(view.rows.levels) - 1
    limit = input.unit_tokens if is_unit else None
    return _collator(agent, view, view.rows.unpacked(level, agent.config.max_children[level], limit))


def encode_documents(
    agent: Agent,
    view: Documents,
    collator: DocumentCollator,
    progress: Callable[[int], None] | None = None,
    *,
    num_levels: int | None = None,
) -> EncodedDocuments:
    """Encode all rows of the lowest levels of a view (None: of all levels). `progress` receives the number of tokens that were
    encoded."""
    vectors: list[Vectors] = []
    for level in range(len(view.rows.levels) if num_levels is None else num_levels):
        vectors.append(encode_level(agent, collator, level, vectors[-1] if vectors else None, progress))
    return EncodedDocuments(view.rows, view.unit, tuple(vectors))


@torch.no_grad()
def encode_level(
    agent: Agent,
    collator: DocumentCollator,
    level: int,
    below: Vectors | None,
    progress: Callable[[int], None] | None = None,
) -> Vectors:
    """The vector of each row of a level, given those of the rows of the level below (None: the children are tokens)."""
    rows = collator.rows.levels[level]
    vectors = np.zeros((len(rows), agent.config.dims[level + 1]), dtype=np.float32)
    device = next(agent.parameters()).device
    with evaluating(agent):
        for start, stop in runs(collator.num_slots(level), TOKENS):
            first, last = int(rows.spans[start]), int(rows.spans[stop])
            numbers = np.arange(first, last)
            batch = collator.level(level, np.arange(start, stop), numbers, numbers - first).to(device)
            if below is None:
                encoded = row_vectors(agent, batch.token_rows(agent.config.vocab_size))
            else:
                encoded = agent.encode(level, torch.from_numpy(below[first:last]).to(device), batch)
            vectors[batch.source] = encoded.float().cpu().numpy()
            if progress is not None and level == 0:
                progress(int(rows.tokens[start:stop].sum()))
    return vectors


# --- the nodes of one level ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeVectors:
    """The nodes of one level of some documents, each with a vector of its own, and counts of all that happened to them."""

    nodes: Level
    vectors: Vectors
    """The mean of a node's pieces. A node that shares a row with its neighbours is encoded without them."""
    pieces: Ints
    """The number of rows into which each node was cut."""
    left_out: int
    """The number of children that no row holds, on this level and those below."""
    num_tokens: int
    num_unknown: int
    """The number of tokens that stand for text that the tokenizer cannot spell."""
    flattened: dict[str, int]
    """The number of nodes of each kind that is no level of the model. Their text belongs to the nodes around them."""


def encode_nodes(
    agent: Agent,
    tokenizer: Tokenizer,
    input: LevelInput,
    store: Store,
    trees: Ints,
    level: int,
    progress: Callable[[int], None] | None = None,
) -> NodeVectors:
    """Encode the nodes of one level of some documents, which are held together. `level` 0 is the lowest above the tokens."""
    levels = Levels.open(store, tokenizer, agent.config.levels, trees)
    view, packed = lay_out(agent, input, levels)
    below = encode_documents(agent, view, packed, progress, num_levels=level).vectors[-1] if level else None
    collator = unpacked(agent, input, view, level)
    vectors = encode_level(agent, collator, level, below, progress)
    rows = collator.rows.levels[level]
    return NodeVectors(
        nodes=rows.level,
        vectors=mean_of_rows(rows, vectors),
        pieces=rows.num_rows,
        left_out=sum(level_rows.left_out for level_rows in collator.rows.levels[: level + 1]),
        num_tokens=len(levels.ids),
        num_unknown=tokenizer.unknown(levels.ids).count,
        flattened=levels.flattened,
    )


def in_groups(store: Store) -> Iterator[Ints]:
    """The trees of a store, in groups of whole documents that are held at once. A store in memory is one group, because its
    texts are tokenized again for each."""
    if store.path is None:
        yield from [np.arange(store.num_trees)] if store.num_trees else []
        return
    for start, stop in runs(np.diff(store.offsets), NODES):
        yield np.arange(start, stop)
