"""Vectors of the nodes of documents, level by level, without a graph."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ramify.batching.document_batch import DocumentCollator
from ramify.batching.forest import Ints
from ramify.batching.levels import DocumentRows, Levels
from ramify.batching.views.documents import Documents, LevelInput
from ramify.dataset.store import Store
from ramify.inference.base import TOKENS
from ramify.models.agent import Agent
from ramify.nn.modes import evaluating
from ramify.nn.ragged import runs
from ramify.tokenizer import Tokenizer

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class EncodedDocuments:
    """The rows of some documents, and the vector of each row of each level."""

    rows: DocumentRows
    unit: int
    """The level whose rows were encoded together."""
    vectors: tuple[Vectors, ...]

    def of_nodes(self, level: int) -> Vectors:
        """The vector of each node of a level: the mean of those of its rows."""
        found = self.rows.levels[level]
        starts = np.stack([found.first_row, found.first_row + found.num_rows], 1)
        row = np.concatenate([np.arange(start, stop) for start, stop in starts]) if len(starts) else starts[:, 0]
        node = np.repeat(np.arange(len(starts)), found.num_rows)
        total = np.zeros((len(starts), self.vectors[level].shape[1]), dtype=np.float32)
        np.add.at(total, node, self.vectors[level][row])
        return total / np.maximum(found.num_rows, 1)[:, None].astype(np.float32)


def read_documents(
    agent: Agent, tokenizer: Tokenizer, input: LevelInput, store: Store, trees: Ints
) -> tuple[Documents, DocumentCollator]:
    """The rows of some documents, as in training, and a collator for them."""
    levels = Levels.open(store, tokenizer, agent.config.levels, trees)
    view = Documents(levels, agent.config.max_children, input, budget=TOKENS)
    padded = agent.config.max_children if agent.config.padding == "full" else None
    return view, DocumentCollator(view.rows, view.unit, TOKENS, padded=padded)


@torch.no_grad()
def encode_documents(
    agent: Agent,
    view: Documents,
    collator: DocumentCollator,
    progress: Callable[[int], None] | None = None,
) -> EncodedDocuments:
    """Encode all rows of a view. `progress` receives the number of tokens that were encoded."""
    config, rows, unit = agent.config, view.rows, view.unit
    vectors = [np.zeros((len(level), dim), dtype=np.float32) for level, dim in zip(rows.levels, config.dims[1:], strict=True)]
    units = rows.levels[unit]
    none = np.zeros(0, dtype=np.int64)
    device = next(agent.parameters()).device
    with evaluating(agent):
        for start, stop in runs(units.tokens, TOKENS):
            batch = collator.batch(np.arange(start, stop), none).to(device)
            for level, found, made in zip(batch.levels, agent(batch).nodes, vectors, strict=False):
                made[level.source] = found.float().cpu().numpy()
            if progress is not None:
                progress(batch.num_tokens)
        for level in range(unit + 1, len(rows.levels)):
            every = np.arange(len(rows.levels[level - 1]))
            batch = collator.level(level, np.arange(len(rows.levels[level])), every, every).to(device)
            below = torch.from_numpy(vectors[level - 1]).to(device)
            vectors[level][batch.source] = agent.encode(level, below, batch).float().cpu().numpy()
    return EncodedDocuments(rows, unit, tuple(vectors))


def encode_by_tree(
    agent: Agent,
    tokenizer: Tokenizer,
    input: LevelInput,
    store: Store,
    trees: Sequence[int] | Ints,
    progress: Callable[[int], None] | None = None,
) -> Iterator[tuple[int, EncodedDocuments]]:
    """Yield each tree with its vectors. Memory holds one document at a time."""
    for tree in np.asarray(trees, dtype=np.int64).tolist():
        view, collator = read_documents(agent, tokenizer, input, store, np.array([tree]))
        yield tree, encode_documents(agent, view, collator, progress)
