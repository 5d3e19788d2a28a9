"""The space of sentences: their states in the paragraphs that hold them, and in paragraphs of sentences that were dealt
anew."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.batching.document_batch import NUM_MARKS
from ramify.batching.forest import Ints, token_cache
from ramify.dataset.store import Store
from ramify.inference.documents.measures import generator, spread
from ramify.inference.documents.vectors import encode_level, read_documents
from ramify.nn.modes import evaluating
from ramify.nn.ragged import runs
from ramify.tasks.nested.task import NestedAutoencoder

MOST_TOKENS = 30_000
"""The first documents are read that hold about so many tokens."""

MOST_ROWS = 150
"""The most paragraphs that are drawn."""


@dataclass(frozen=True)
class Plane:
    """Points on the plane of their two principal components."""

    name: str
    coherent: Float[NDArray, "point 2"]
    shuffled: Float[NDArray, "point 2"]
    """The same places with other children."""
    explained: float
    """The share of the variance that lies in the plane."""


@torch.no_grad()
def planes(task: NestedAutoencoder, store: Store, trees: Ints, seed: int = 0) -> list[Plane]:
    """The states of the lowest nodes as the Encoder reads them with their siblings, and the vectors of the nodes above: as
    they are, and after the lowest nodes were dealt anew among these nodes. A node needs two children.

    The list is empty for a model of one level, and without such nodes.
    """
    agent = task.backbone
    if agent.depth < 2 or not len(trees):
        return []
    starts = token_cache(store, task.tokenizer).starts
    sizes = starts[store.offsets[trees + 1]] - starts[store.offsets[trees]]
    start, stop = next(runs(sizes, MOST_TOKENS))
    view, collator = read_documents(agent, task.tokenizer, task.input, store, trees[start:stop])
    rows = np.flatnonzero(view.rows.levels[1].children > 1)
    rows = rows[spread(len(rows), MOST_ROWS)]
    if not len(rows):
        return []
    below = np.arange(view.rows.levels[1].num_below)
    vectors = torch.from_numpy(encode_level(agent, collator, 0, None)).to(task.device)
    batch, encoder = collator.level(1, rows, below, below).to(task.device), agent.encoder(1)
    dealt = generator(seed).permutation(batch.children.cpu().numpy())
    shuffled = batch.slots.index_copy(0, batch.child_slot, torch.from_numpy(dealt).to(task.device) + NUM_MARKS)
    states, nodes = [], []
    with evaluating(agent):
        items = encoder.items(vectors)
        for slots in (batch.slots, shuffled):
            read = encoder.states(items, slots, batch.rows)
            states.append(read.index_select(0, batch.child_slot).double().cpu().numpy())
            nodes.append(encoder.row_vectors(read, slots, batch.rows).double().cpu().numpy())
    names = agent.config.levels
    return [plane(f"{names[0]}s in their {names[1]}s", *states), plane(f"{names[1]}s", *nodes)]


def plane(name: str, coherent: Float[NDArray, "point dim"], shuffled: Float[NDArray, "point dim"]) -> Plane:
    """Both sets of vectors on the plane of the two principal components of all."""
    every = np.concatenate([coherent, shuffled])
    centred = every - every.mean(0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    # A component has no sign: its largest entry is positive.
    axes = axes[:2] * np.sign(axes[:2][np.arange(len(axes[:2])), np.abs(axes[:2]).argmax(1)])[:, None]
    points = np.zeros((len(every), 2))
    points[:, : len(axes)] = centred @ axes.T
    total = float((sizes**2).sum())
    explained = float((sizes[:2] ** 2).sum()) / total if total else 1.0
    return Plane(name, points[: len(coherent)], points[len(coherent) :], explained)
