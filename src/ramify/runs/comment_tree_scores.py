"""Held-out loss of masked language models on comment trees: one context against another, or one model against another."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ramify import hub
from ramify.batching.views.comment_trees import Context, units
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError
from ramify.inference.evaluation import Scores, describe, evaluate, gain
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.held_out import ancestor_words, chosen_trees, discussions, readable
from ramify.metrics import Interval
from ramify.nn.precision import autocast
from ramify.runs.base import Evaluation, check_options, no_progress

DRAWS = 8
"""Masks drawn per comment in an evaluation."""

OPTIONS = ("context", "draws", "mask_rate", "comments", "save", "against", "precision", "progress")


@dataclass(frozen=True)
class Compared:
    """The scores of the same model with its own context (`own`), or of another model (`against`), on the same masks."""

    kind: Literal["own", "against"]
    source: str
    context: Context
    scores: Scores
    saved: dict[str, Interval]
    """Nats per masked token: what the model's own context saves over the evaluated one, or what it saves over the other
    model."""

    def to_json(self) -> dict[str, Any]:
        model = {"model": self.source} if self.kind == "against" else {}
        return {self.kind: {**model, "context": self.context, **self.scores.summary()}, "saved": describe(self.saved)}


@dataclass(frozen=True)
class HeldOutLoss(Evaluation):
    """Loss in nats per masked token, perplexity and accuracy, also by depth and word class."""

    scores: Scores
    source: str
    context: Context
    mask_rate: float
    draws: int
    targets: tuple[int, int]
    """Number of comments that were scored, and of all comments of the split."""
    compared: Compared | None

    def to_json(self) -> dict[str, Any]:
        return self.scores.summary() | (self.compared.to_json() if self.compared else {})

    def lines(self) -> list[str]:
        summary = self.scores.summary()
        closing = f"perplexity {summary['perplexity']:.2f}; {self.mask_rate:.0%} of the tokens masked, {self.draws} draw(s)"
        scored, every = self.targets
        if scored < every:
            closing += f"; {scored:,} of {every:,} comments, those with another branch of equal depth"
        if self.compared is None:
            rows = _rows(summary)
            return [
                f"{'depth or words':<14} {'loss':>8} {'accuracy':>9} {'masked tokens':>14}",
                *(f"{name:<14} {row['loss']:>8.4f} {row['accuracy']:>9.2%} {row['count']:>14,}" for name, row in rows.items()),
                closing,
            ]
        return [*_table(self.scores, self.compared), closing, self._difference(self.compared)]

    def _difference(self, other: Compared) -> str:
        if other.kind == "own":
            return f"saved: what context {other.context}, as in training, saves the same model over context {self.context}"
        return f"saved: what {self.source} (context {self.context}) saves over {other.source} (context {other.context})"


def _rows(summary: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {"all": summary, **summary["by_depth"], **summary["by_class"]}


def _table(scores: Scores, other: Compared) -> list[str]:
    rows, others = _rows(scores.summary()), _rows(other.scores.summary())
    one, two = ("loss", "own loss") if other.kind == "own" else ("loss", "against")
    several = int((scores.count.sum((1, 2)) > 0).sum()) > 1
    lines = [f"{'depth or words':<14} {one:>8} {two:>8} {'saved':>8}  {'95 % interval':<18} {'p':>6} {'masked tokens':>14}"]
    for name, row in rows.items():
        saved = other.saved[name]
        interval = f"{saved.low:+.4f} to {saved.high:+.4f}" if several else "one tree only"
        p = f"{saved.p:.4f}" if several else ""
        losses = f"{row['loss']:>8.4f} {others[name]['loss']:>8.4f} {saved.value:>+8.4f}"
        lines.append(f"{name:<14} {losses}  {interval:<18} {p:>6} {row['count']:>14,}")
    return lines


def score(pipeline: MaskFiller, source: str, store: Store, split: Split, options: Mapping[str, Any]) -> HeldOutLoss:
    """Score a model on a split, and compare it with its own context or with another model. Options: `OPTIONS`."""
    check_options(options, OPTIONS, source, "a masked language model")
    task, asked = pipeline.task, options.get("context")
    draws, rate = options.get("draws", DRAWS), options.get("mask_rate")
    own = task.input.context
    readings: list[tuple[MaskFiller, Context]] = [(pipeline, asked or own)]
    if "against" in options:
        other = _opponent(pipeline, source, options["against"])
        readings.append((other, asked or other.task.input.context))
    elif asked and asked != own:
        readings.append((pipeline, own))
    for model, context in readings:
        # Before anything is computed.
        model.backbone.in_context(model.input, context)
    forest = pipeline.forest(store)
    trees = chosen_trees(forest, store, split, options.get("comments", 0))
    limits = [each for _, context in readings if (each := readable(forest, trees, context)) is not None]
    only = np.logical_and.reduce(limits) if limits else None
    views = [discussions(model.task, forest, trees, context=context, only=only) for model, context in readings]
    words = ancestor_words(task, forest)
    bar, precision = options.get("progress", no_progress), options.get("precision", "fp32")
    found = []
    with bar(sum(int(view.sizes.sum()) for view, _ in views)) as advance, autocast(pipeline.device, precision):
        for (model, _), view in zip(readings, views, strict=True):
            found.append(
                evaluate(model.task, *view, trees, draws=draws, mask_rate=rate, words=words, masker=task, progress=advance)
            )
    scores = found[0]
    if "save" in options:
        scores.save(options["save"])
    if not scores.count.any():
        raise RamifyError(f"No comment in the split {split} of {store.path} has a token that can be masked.")
    compared = None
    if "against" in options:
        compared = Compared("against", str(options["against"]), readings[1][1], found[1], gain(scores, found[1]))
    elif len(found) > 1:
        compared = Compared("own", source, own, found[1], gain(found[1], scores))
    scored, every = views[0][0].sizes.sum(), units(forest, trees).targets
    targets = int(scored), len(every)
    return HeldOutLoss(scores, source, asked or own, rate or task.config.mask_rate, draws, targets, compared)


def _opponent(pipeline: MaskFiller, source: str, against: str | Path) -> MaskFiller:
    """The model of `--against`. Raises if it cannot have the masks and classes of the evaluated one."""
    other = hub.load(against, device=pipeline.device)
    if not isinstance(other, MaskFiller):
        raise RamifyError(
            f"--against {against} holds a {type(other).__name__}, not a masked language model. Choose another model."
        )
    if other.tokenizer.hash != pipeline.tokenizer.hash:
        raise RamifyError(
            f"--against {against} has another tokenizer than {source}, so its masks would differ. Compare models with the same "
            "tokenizer."
        )
    for name in ("max_tokens", "overflow"):
        one, two = getattr(pipeline.input, name), getattr(other.input, name)
        if one != two:
            raise RamifyError(
                f"--against {against} has input.{name}={two}, but {source} has {one}, so their masks would differ. Compare "
                f"models with the same input.{name}."
            )
    one, two = pipeline.backbone.config.vocab_size, other.backbone.config.vocab_size
    if two < one:
        raise RamifyError(
            f"--against {against} has model.vocab_size={two}, but {source} has {one}, so a random piece could be unknown to "
            "it. Exchange the two models."
        )
    return other
