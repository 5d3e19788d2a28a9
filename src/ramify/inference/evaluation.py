"""Held-out loss of masked language models: the same masks for every model, sums by tree, depth and word class."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from ramify.batching.batch import Batch, Collator
from ramify.batching.forest import Forest, Ints, node_seeds
from ramify.batching.samplers import TokenBudget
from ramify.batching.views.comment_trees import Discussions
from ramify.errors import RamifyError
from ramify.files import make_folder, replacing
from ramify.inference.word_classes import WORD_CLASSES, AncestorWords
from ramify.metrics import DEPTH_BINS, Interval, bootstrap_ratio, depth_bin
from ramify.models.base import decode_parts, encode_context
from ramify.nn import counter_rng
from ramify.tasks.masked_lm import MaskedLM

BINS = len(DEPTH_BINS)

COLLAPSED = 0.02
"""Value of `context_spread` below which a model cannot distinguish contexts."""


@dataclass(frozen=True)
class Scores:
    """Sums over masked tokens, by tree, depth bin (`DEPTH_BINS`) and word class."""

    trees: list[str]
    loss: NDArray[np.float64]
    """[tree, bin, class], nats."""
    correct: NDArray[np.int64]
    count: NDArray[np.int64]
    classes: tuple[str, ...]
    """Names of the word classes; only `all` if the tokens were not classified."""

    def summary(self) -> dict[str, Any]:
        """Loss in nats per masked token, perplexity, accuracy and count, also for each depth bin that is not empty; and for
        each word class that is not empty, with its share of the tokens, if there are several classes."""
        whole = self._row(slice(None))
        by_depth = {name: self._row(np.s_[:, place]) for place, name in enumerate(DEPTH_BINS) if self.count[:, place].any()}
        summary = {**whole, "perplexity": float(np.exp(whole["loss"])), "by_depth": by_depth}
        if len(self.classes) > 1:
            rows = {
                name: self._row(np.s_[..., place]) for place, name in enumerate(self.classes) if self.count[..., place].any()
            }
            summary["by_class"] = {name: row | {"share": row["count"] / whole["count"]} for name, row in rows.items()}
        return summary

    def _row(self, cells: Any) -> dict[str, Any]:
        total = int(self.count[cells].sum())
        loss, correct = float(self.loss[cells].sum()), int(self.correct[cells].sum())
        return {"loss": loss / max(1, total), "accuracy": correct / max(1, total), "count": total}

    def of_trees(self, trees: Iterable[str]) -> "Scores":
        """The sums of some trees alone, by their ids."""
        kept = np.isin(self.trees, list(trees))
        ids = np.array(self.trees)[kept].tolist()
        return replace(self, trees=ids, loss=self.loss[kept], correct=self.correct[kept], count=self.count[kept])

    def save(self, path: Path) -> None:
        make_folder(path.parent)
        # Given a file name, numpy would add a suffix.
        with replacing(path) as scratch, open(scratch, "wb") as file:
            np.savez_compressed(
                file,
                trees=np.array(self.trees),
                loss=self.loss,
                correct=self.correct,
                count=self.count,
                classes=np.array(self.classes),
            )

    @classmethod
    def load(cls, path: Path) -> "Scores":
        with np.load(path, allow_pickle=False) as file:
            return cls(file["trees"].tolist(), file["loss"], file["correct"], file["count"], tuple(file["classes"].tolist()))


def gain(better: Scores, worse: Scores, *, accuracy: bool = False, seed: int = 0) -> dict[str, Interval]:
    """Gain of `better` over `worse` in nats per masked token (or in accuracy), with paired bootstrap intervals over trees:
    `all`, every depth bin, and every word class if there are several."""
    if better.trees != worse.trees or better.classes != worse.classes or not np.array_equal(better.count, worse.count):
        raise RamifyError(
            "the evaluations have different trees, masks or word classes, so they cannot be paired. Repeat them with the same "
            "data, split, draws and mask rate."
        )
    difference = (better.correct - worse.correct).astype(np.float64) if accuracy else worse.loss - better.loss
    return {
        name: bootstrap_ratio(by_tree(difference, cells), by_tree(better.count, cells), seed=seed)
        for name, cells in parts_of(better).items()
    }


def parts_of(scores: Scores) -> dict[str, Any]:
    """The cells of `all`, of every depth bin and of every word class that hold a masked token, as indices of the arrays."""
    parts: dict[str, Any] = {"all": np.s_[:]}
    parts |= {name: np.s_[:, place] for place, name in enumerate(DEPTH_BINS)}
    if len(scores.classes) > 1:
        parts |= {name: np.s_[..., place] for place, name in enumerate(scores.classes)}
    return {name: cells for name, cells in parts.items() if name == "all" or scores.count[cells].any()}


def by_tree(sums: NDArray[Any], cells: Any) -> NDArray[Any]:
    """The sum of the cells of each tree."""
    return sums[cells].reshape(len(sums), -1).sum(1)


def batches(view: Discussions, collator: Collator, tokens: int) -> Iterator[Any]:
    """All examples of a view once, in order, in batches of about `tokens` tokens."""
    for numbers in TokenBudget(view.costs, tokens, seed=0, shuffle=False).steps(0):
        yield collator([view.example(int(number)) for number in numbers])


def masked_targets(
    task: MaskedLM, view: Discussions, collator: Collator, tokens: int = 16_384, *, mask_rate: float | None = None
) -> Iterator[Batch]:
    """Batches of all examples of a view with their first draw of masks. `mask_rate`: None for that of the task."""
    for batch in batches(view, collator, tokens):
        seeds = counter_rng.random_bits(_seeds(view.forest, batch), 0)
        yield task.mask(batch.to(task.device), seeds.to(task.device), mask_rate)


def _seeds(forest: Forest, batch: Batch) -> Int[Tensor, " target"]:
    """The seed of each target: the hash of its id."""
    nodes = forest.node[batch.source]
    # Each part of a chained text has its own draws.
    part = torch.from_numpy(batch.source - np.searchsorted(forest.node, nodes))
    return torch.from_numpy(node_seeds(forest.store, nodes)) + part


@dataclass(frozen=True)
class Tally:
    """One sum over the predictions of an evaluation: over all targets or some, for the model alone or mixed with a cache.

    The cache is a unigram model of the ancestors: p = (1 - cache) · p(model) + cache · share of the piece in the ancestors. A
    target whose ancestors hold no piece keeps the model's probability. The cache changes the loss alone, not the counts of
    correct tokens.
    """

    only: NDArray[np.bool_] | None = None
    """Whether each node of the forest counts; None: all targets do."""
    cache: float = 0.0


def evaluate(
    task: MaskedLM,
    view: Discussions,
    collator: Collator,
    trees: Sequence[int] | Ints,
    *,
    draws: int = 8,
    mask_rate: float | None = None,
    tokens: int = 16_384,
    words: AncestorWords | None = None,
    masker: MaskedLM | None = None,
    progress: Callable[[int], None] | None = None,
) -> Scores:
    """Mask every target `draws` times, seeded by the hash of its id, and score the predictions.

    Nodes are encoded once for all draws. `mask_rate` is the share of masked tokens; None: as in training. With `words`, sums
    are kept by word class. `masker` is the task whose masks are used; None: the task itself.
    """
    (scores,) = tally(
        task,
        view,
        collator,
        trees,
        (Tally(),),
        draws=draws,
        mask_rate=mask_rate,
        tokens=tokens,
        words=words,
        masker=masker,
        progress=progress,
    )
    return scores


@torch.no_grad()
def tally(
    task: MaskedLM,
    view: Discussions,
    collator: Collator,
    trees: Sequence[int] | Ints,
    tallies: Sequence[Tally],
    *,
    draws: int = 8,
    mask_rate: float | None = None,
    tokens: int = 16_384,
    words: AncestorWords | None = None,
    masker: MaskedLM | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Scores]:
    """Several sums over the predictions of one evaluation (see `evaluate`). A cache needs `words`."""
    if words is None and any(tally.cache for tally in tallies):
        raise RamifyError("a cache needs the ancestors' words. Pass words=AncestorWords.of(…).")
    forest: Forest = view.forest
    device = next(task.parameters()).device
    masker = masker or task
    trees = np.asarray(trees, dtype=np.int64)
    place = {int(tree): number for number, tree in enumerate(trees)}
    classes = WORD_CLASSES if words is not None else ("all",)
    sums = [_Sums((len(trees), BINS, len(classes))) for _ in tallies]
    depth = np.asarray(forest.store.depth, dtype=np.int64)
    with task.evaluating():
        for batch in batches(view, collator, tokens):
            moved = batch.to(device)
            backbone = task.backbone
            vectors = None
            if backbone.reads_context and not batch.null_context:
                vectors = encode_context(backbone, moved, tokens)
            nodes, seeds = forest.node[batch.source], _seeds(forest, batch)
            row = np.array([place[int(tree)] for tree in forest.tree_of(batch.source)])
            column = depth_bin(depth[nodes])
            target_words = None if words is None else words.read(batch.source)
            for draw in range(draws):
                bits = counter_rng.random_bits(seeds, draw).to(device)
                masked = masker.mask(moved, bits, mask_rate, boundaries=False)
                assert masked.output_positions is not None
                assert masked.labels is not None
                owner = np.repeat(np.arange(len(nodes)), masked.output_positions.rows.host_lengths)
                word_class, share = np.zeros(len(owner), np.int64), np.full(len(owner), np.nan)
                if target_words is not None:
                    labels = masked.labels.cpu().numpy()
                    shown = masked.target_ids.index_select(0, masked.output_positions.index).cpu().numpy()
                    word_class = target_words.classes(owner, labels, shown)
                    share = target_words.share_of(owner, labels)
                start = 0
                for piece, hidden in decode_parts(backbone, masked, tokens, vectors):
                    assert piece.labels is not None
                    losses, best = task.head.measure(hidden.tokens, piece.labels)
                    span = slice(start, start + len(piece.labels))
                    start = span.stop
                    cells = (row[owner[span]], column[owner[span]], word_class[span])
                    nats, hits = losses.double().cpu().numpy(), (best == piece.labels).long().cpu().numpy()
                    for tally, into in zip(tallies, sums, strict=True):
                        kept = slice(None) if tally.only is None else tally.only[batch.source[owner[span]]]
                        into.add(cells, kept, with_cache(nats, share[span], tally.cache) if tally.cache else nats, hits)
            if progress is not None:
                progress(len(batch.targets))
    names = forest.store.tree_ids(trees)
    return [Scores(names, total.loss, total.correct, total.count, classes) for total in sums]


class _Sums:
    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.loss, self.correct, self.count = np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.int64)

    def add(self, cells: tuple[Ints, ...], kept: Any, nats: NDArray[np.float64], hits: Ints) -> None:
        where = tuple(cell[kept] for cell in cells)
        np.add.at(self.loss, where, nats[kept])
        np.add.at(self.correct, where, hits[kept])
        np.add.at(self.count, where, 1)


def with_cache(nats: NDArray[np.float64], share: NDArray[np.float64], weight: float) -> NDArray[np.float64]:
    """The loss of the mixture of the model and the cache. The model's loss stays where the share is NaN."""
    mixed = -np.log((1 - weight) * np.exp(-nats) + weight * share)
    return np.where(np.isnan(share), nats, mixed)


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
        vectors = encode_context(backbone, batch.to(next(task.parameters()).device), tokens).double()
    return 1.0 - float(vectors.mean(0).square().sum() / vectors.square().sum(1).mean())


def pool(scores: Sequence[Scores]) -> Scores:
    """Sum over seeds. A tree remains one unit of the bootstrap."""
    sums = {name: np.sum([getattr(seed, name) for seed in scores], axis=0) for name in ("loss", "correct", "count")}
    return replace(scores[0], **sums)


def describe(intervals: Mapping[str, Interval]) -> dict[str, dict[str, float]]:
    """Intervals as JSON."""
    return {name: {"value": i.value, "low": i.low, "high": i.high, "p": i.p} for name, i in intervals.items()}
