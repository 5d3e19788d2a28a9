"""Held-out loss of masked language models: the same masks for every model, sums by tree and depth."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ramify.batching.batch import Collator
from ramify.batching.forest import Forest, Ints, node_seeds
from ramify.batching.samplers import TokenBudget
from ramify.batching.views.comment_trees import Discussions
from ramify.errors import RamifyError
from ramify.files import make_folder, replacing
from ramify.metrics import DEPTH_BINS, Interval, bootstrap_ratio, depth_bin
from ramify.models.base import decode_parts, encode_nodes
from ramify.nn import counter_rng
from ramify.tasks.masked_lm import MaskedLM

BINS = len(DEPTH_BINS)

COLLAPSED = 0.02
"""Value of `context_spread` below which a model cannot distinguish contexts."""


@dataclass(frozen=True)
class Scores:
    """Sums over masked tokens, by tree and depth bin (`DEPTH_BINS`)."""

    trees: list[str]
    loss: NDArray[np.float64]
    """[tree, bin], nats."""
    correct: NDArray[np.int64]
    count: NDArray[np.int64]

    def summary(self) -> dict[str, Any]:
        """Loss in nats per masked token, perplexity, accuracy and count, also for each depth bin that is not empty."""
        by_depth = {
            name: _row(self.loss[:, place], self.correct[:, place], self.count[:, place])
            for place, name in enumerate(DEPTH_BINS)
            if self.count[:, place].any()
        }
        whole = _row(self.loss, self.correct, self.count)
        return {**whole, "perplexity": float(np.exp(whole["loss"])), "by_depth": by_depth}

    def save(self, path: Path) -> None:
        make_folder(path.parent)
        # Given a file name, numpy would add a suffix.
        with replacing(path) as scratch, open(scratch, "wb") as file:
            np.savez_compressed(file, trees=np.array(self.trees), loss=self.loss, correct=self.correct, count=self.count)

    @classmethod
    def load(cls, path: Path) -> "Scores":
        with np.load(path, allow_pickle=False) as file:
            return cls(file["trees"].tolist(), file["loss"], file["correct"], file["count"])


def _row(loss: NDArray[np.float64], correct: NDArray[np.int64], count: NDArray[np.int64]) -> dict[str, Any]:
    total = int(count.sum())
    return {"loss": float(loss.sum()) / max(1, total), "accuracy": int(correct.sum()) / max(1, total), "count": total}


def gain(better: Scores, worse: Scores, *, accuracy: bool = False, seed: int = 0) -> dict[str, Interval]:
    """Gain of `better` over `worse` in nats per masked token (or in accuracy), with paired bootstrap intervals over trees:
    `all`, and every depth bin."""
    if better.trees != worse.trees or not np.array_equal(better.count, worse.count):
        raise RamifyError(
            "the evaluations have different trees or masks, so they cannot be paired. Repeat them with the same data, split, "
            "draws and mask rate."
        )
    difference = (better.correct - worse.correct).astype(np.float64) if accuracy else worse.loss - better.loss
    gains = {"all": bootstrap_ratio(difference.sum(1), better.count.sum(1), seed=seed)}
    for place, name in enumerate(DEPTH_BINS):
        if better.count[:, place].any():
            gains[name] = bootstrap_ratio(difference[:, place], better.count[:, place], seed=seed)
    return gains


def batches(view: Discussions, collator: Collator, tokens: int) -> Iterator[Any]:
    """All examples of a view once, in order, in batches of about `tokens` tokens."""
    for numbers in TokenBudget(view.costs, tokens, seed=0, shuffle=False).steps(0):
        yield collator([view.example(int(number)) for number in numbers])


@torch.no_grad()
def evaluate(
    task: MaskedLM,
    view: Discussions,
    collator: Collator,
    trees: Sequence[int] | Ints,
    *,
    draws: int = 8,
    mask_rate: float | None = None,
    tokens: int = 16_384,
    progress: Callable[[int], None] | None = None,
) -> Scores:
    """Mask every target `draws` times, seeded by the hash of its id, and score the predictions.

    Nodes are encoded once for all draws. `mask_rate` is the share of masked tokens; None: as in training.
    """
    if mask_rate is not None and not 0 < mask_rate <= 1:
        raise RamifyError(f"mask_rate must be above 0 and at most 1, but is {mask_rate}.")
    forest: Forest = view.forest
    device = next(task.parameters()).device
    trees = np.asarray(trees, dtype=np.int64)
    place = {int(tree): number for number, tree in enumerate(trees)}
    shape = (len(trees), BINS)
    loss, correct, count = np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    depth = np.asarray(forest.store.depth, dtype=np.int64)
    with task.evaluating():
        for batch in batches(view, collator, tokens):
            moved = batch.to(device)
            backbone = task.backbone
            vectors = None
            if backbone.reads_context and not batch.null_context:
                vectors = encode_nodes(backbone, moved, tokens)
            nodes = forest.node[batch.source]
            # Each part of a chained text has its own draws.
            part = torch.from_numpy(batch.source - np.searchsorted(forest.node, nodes))
            seeds = torch.from_numpy(node_seeds(forest.store, nodes)) + part
            row = np.array([place[int(tree)] for tree in forest.tree_of(batch.source)])
            column = depth_bin(depth[nodes])
            for draw in range(draws):
                masked = task.mask(moved, counter_rng.random_bits(seeds, draw).to(device), mask_rate)
                start = 0
                for piece, hidden in decode_parts(backbone, masked, tokens, vectors):
                    losses, best = task.head.measure(hidden.tokens, piece.labels)
                    assert piece.output_positions is not None
                    targets = np.arange(start, start + len(piece.targets))
                    owner = np.repeat(targets, piece.output_positions.rows.host_lengths)
                    start += len(targets)
                    where = (row[owner], column[owner])
                    np.add.at(loss, where, losses.double().cpu().numpy())
                    np.add.at(correct, where, (best == piece.labels).long().cpu().numpy())
                    np.add.at(count, where, 1)
            if progress is not None:
                progress(len(batch.targets))
    return Scores(forest.store.tree_ids(trees), loss, correct, count)


@torch.no_grad()
def context_spread(task: MaskedLM, view: Discussions, collator: Collator, *, tokens: int = 16_384) -> float | None:
    """Share of the context vectors' energy that varies between texts, 1 − |mean|² / mean |v|², on the view's first targets.

    Near zero, the encoder gives all texts the same vector, so no ancestor can help. None if the model encodes no nodes, or if
    these targets read fewer than two.
    """
    backbone = task.backbone
    batch = next(batches(view, collator, tokens), None)
    if batch is None or batch.null_context or not backbone.reads_context or len(batch.nodes) < 2:
        return None
    with task.evaluating():
        vectors = encode_nodes(backbone, batch.to(next(task.parameters()).device), tokens).double()
    return 1.0 - float(vectors.mean(0).square().sum() / vectors.square().sum(1).mean())


def describe(intervals: Mapping[str, Interval]) -> dict[str, dict[str, float]]:
    """Intervals as JSON."""
    return {name: {"value": i.value, "low": i.low, "high": i.high, "p": i.p} for name, i in intervals.items()}
