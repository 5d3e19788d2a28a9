"""The coherence of documents' nodes, as the checkers judge it (AGENT, section 3.3)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.batching.document_batch import DocumentCollator, LevelBatch
from ramify.batching.forest import Ints
from ramify.batching.levels import Level, LevelRows, Levels
from ramify.batching.views.documents import Documents
from ramify.dataset.store import Store
from ramify.inference.base import TOKENS
from ramify.inference.documents.vectors import Vectors, encode_documents, lay_out, unpacked
from ramify.nn.modes import evaluating
from ramify.nn.ragged import runs
from ramify.tasks.nested.task import NestedAutoencoder

Scores = Float[NDArray, "_node"]


@dataclass(frozen=True)
class LevelCoherence:
    """The scores of the nodes of a level and of their children: 1 for what fits, 0 for what was replaced."""

    nodes: Level
    node_scores: Scores
    """The mean score of a node's children; NaN for a node without children."""
    child_scores: Scores | None
    """The score of each node (or token) of the level below; NaN for one that no row holds. None: the model judges nodes as
    wholes, because it was trained without marks."""


@dataclass(frozen=True)
class DocumentCoherence:
    """The levels of some documents, and the scores of some of them."""

    levels: Levels
    scores: dict[int, LevelCoherence]
    """The scores by the number of the level; 0 is the lowest above the tokens."""
    left_out: int
    """The number of children that no row holds."""
    num_tokens: int
    num_unknown: int
    """The number of tokens that stand for text that the tokenizer cannot spell."""


def judge(
    task: NestedAutoencoder,
    store: Store,
    trees: Ints,
    levels: Sequence[int],
    progress: Callable[[int], None] | None = None,
) -> DocumentCoherence:
    """Score the nodes of some levels of documents, which are held together.

    Each child is marked alone as one that may be replaced. The checker's share of replaced children r then gives the child's
    score 1 - min(1, n · r), where n is the number of children in the row. A node's score is the mean of its children's. A model
    that was trained without marks gives 1 - r in one pass. `progress` receives the number of tokens or vectors that were read.
    """
    agent = task.backbone
    opened = Levels.open(store, task.tokenizer, agent.config.levels, trees)
    view, collator = lay_out(agent, task.input, opened)
    scores: dict[int, LevelCoherence] = {}
    num_levels = max(levels, default=0)
    vectors = encode_documents(agent, view, collator, num_levels=num_levels).vectors
    for level in levels:
        below = vectors[level - 1] if level else None
        offsets = np.append(view.rows.levels[level - 1].first_row, len(view.rows.levels[level - 1])) if level else None
        level_collator = unpacked(agent, task.input, view, level)
        scores[level] = _judge_level(task, view, level_collator, level, below, offsets, progress)
    left_out = sum(rows.left_out for rows in view.rows.levels)
    return DocumentCoherence(opened, scores, left_out, len(opened.ids), task.tokenizer.unknown(opened.ids).count)


def _judge_level(
    task: NestedAutoencoder,
    view: Documents,
    collator: DocumentCollator,
    level: int,
    below: Vectors | None,
    offsets: Ints | None,
    progress: Callable[[int], None] | None,
) -> LevelCoherence:
    rows = collator.rows.levels[level]
    counts = rows.level.counts
    if task.config.marks == "none":
        shares = whole_shares(task, collator, level, below, progress)
        total = np.bincount(rows.row_node, weights=shares * rows.count, minlength=len(counts))
        held = np.bincount(rows.row_node, weights=rows.count, minlength=len(counts))
        return LevelCoherence(rows.level, _quotient(held - total, held), None)
    below_scores = np.full(rows.num_below, np.nan)
    for row, shares in probed_shares(task, collator, level, below, progress):
        first = rows.start[row]
        below_scores[first : first + len(shares)] = 1 - np.minimum(1.0, len(shares) * shares)
    children = below_scores if offsets is None else _of_nodes(view.rows.levels[level - 1], below_scores)
    known = np.isfinite(children)
    owner = np.repeat(np.arange(len(counts)), counts)
    total = np.bincount(owner[known], weights=children[known], minlength=len(counts))
    return LevelCoherence(rows.level, _quotient(total, np.bincount(owner[known], minlength=len(counts))), children)


def _of_nodes(rows: LevelRows, scores: Scores) -> Scores:
    """The mean score of each node's rows."""
    row_scores, node = scores[rows.node_rows], rows.row_node
    known = np.isfinite(row_scores)
    total = np.bincount(node[known], weights=row_scores[known], minlength=len(rows.num_rows))
    return _quotient(total, np.bincount(node[known], minlength=len(rows.num_rows)))


def _quotient(total: NDArray[Any], count: NDArray[Any]) -> Scores:
    """NaN where there is nothing to divide by."""
    return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)


# --- passes through the checker -----------------------------------------------------------------------------------------


@torch.no_grad()
def whole_shares(
    task: NestedAutoencoder,
    collator: DocumentCollator,
    level: int,
    below: Vectors | None,
    progress: Callable[[int], None] | None = None,
) -> NDArray[np.float64]:
    """The checker's share of replaced children of each row of a level, in one pass without marks."""
    rows = collator.rows.levels[level]
    shares = np.zeros(len(rows))
    with evaluating(task):
        for start, stop in runs(collator.num_slots(level), TOKENS):
            batch, items = _batch(task, collator, level, below, np.arange(start, stop))
            shares[batch.source] = _shares(task, level, items, batch, None)
            if progress is not None:
                progress(int(rows.children[start:stop].sum()))
    return shares


@torch.no_grad()
def probed_shares(
    task: NestedAutoencoder,
    collator: DocumentCollator,
    level: int,
    below: Vectors | None,
    progress: Callable[[int], None] | None = None,
) -> list[tuple[int, NDArray[np.float64]]]:
    """For each row of a level that has children: the checker's share of replaced children when each child is marked alone."""
    rows = collator.rows.levels[level]
    counts = rows.children
    row = np.repeat(np.arange(len(rows)), counts)
    shares = np.zeros(len(row))
    starts = np.cumsum(counts) - counts
    with evaluating(task):
        for start, stop in runs(collator.num_slots(level)[row], TOKENS):
            batch, items = _batch(task, collator, level, below, row[start:stop])
            # Rows are sorted by length, and equal rows keep their order: the k-th copy of a row marks a child of its own.
            order = np.argsort(batch.source, kind="stable")
            probe = np.empty(len(order), dtype=np.int64)
            probe[order] = np.arange(start, stop)
            marked = np.cumsum(batch.counts) - batch.counts + probe - starts[batch.source]
            segments = torch.zeros_like(batch.slots)
            segments[batch.child_slot[torch.from_numpy(marked).to(batch.slots.device)]] = 1
            shares[probe] = _shares(task, level, items, batch, segments)
            if progress is not None:
                progress(stop - start)
    return [(number, shares[starts[number] : starts[number] + counts[number]]) for number in np.flatnonzero(counts).tolist()]


def _batch(
    task: NestedAutoencoder, collator: DocumentCollator, level: int, below: Vectors | None, rows: Ints
) -> tuple[LevelBatch, torch.Tensor]:
    """Some rows, which may be copies, and all that their slots can hold."""
    spans = collator.rows.levels[level].spans
    first, last = int(spans[rows[0]]), int(spans[rows[-1] + 1])
    numbers = np.arange(first, last)
    batch = collator.level(level, rows, numbers, numbers - first).to(task.device)
    children = None if below is None else torch.from_numpy(below[first:last]).to(task.device)
    return batch, task.backbone.encoder(level).items(children)


def _shares(
    task: NestedAutoencoder, level: int, items: torch.Tensor, batch: LevelBatch, segments: torch.Tensor | None
) -> NDArray[np.float64]:
    shares, _ = task.replaced_children(level, items, batch.slots, batch.rows, segments)
    return shares.double().cpu().numpy()
