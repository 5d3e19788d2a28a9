"""Held-out loss of masked language models on comment trees: one context against another, or one model against another."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ramify import hub
from ramify.batching.batch import Collator
from ramify.batching.forest import Forest, Ints
from ramify.batching.text_input import Context
from ramify.batching.views.comment_trees import Discussions, units
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted
from ramify.inference.evaluation import Scores, Tally, by_tree, describe, gain, parts_of, tally
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.held_out import ancestor_words, cache_losses, chosen_trees, discussions, readable
from ramify.metrics import Interval
from ramify.metrics.intervals import SMALLEST_P
from ramify.runs.base import Evaluation, check_options, scoring

DRAWS = 8
"""Masks drawn per comment in an evaluation."""

OPTIONS = ("context", "draws", "mask_rate", "comments", "save", "against", "cache", "precision", "progress")


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
class Cached:
    """The scores of a model in its own context (`plain`), mixed with a cache of the ancestors' words (`scores`)."""

    weight: float
    """The cache's share of the probability, chosen on the dev split."""
    context: Context
    plain: Scores
    scores: Scores
    saved: dict[str, Interval]
    """Nats per masked token that the cache saves on top."""
    seen: bool
    """Whether the evaluated split holds the trees on which the weight was chosen."""

    def to_json(self) -> dict[str, Any]:
        loss = self.scores.summary()["loss"]
        return {"weight": self.weight, "chosen_on": "dev", "context": self.context, "loss": loss, "saved": describe(self.saved)}

    def lines(self) -> list[str]:
        weight, model = self.weight, f"p(model, context {self.context})"
        biased = ", which this split holds, so the saving is slightly too high" if self.seen else ""
        return [
            "",
            f"cache: p = {1 - weight:g} · {model} + {weight:g} · share of the piece in the ancestors",
            f"weight chosen on the dev trees{biased}",
            *_table(self.plain, self.scores, self.saved, ("alone", "cached")),
        ]


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
    cached: Cached | None

    def to_json(self) -> dict[str, Any]:
        cache = {"cache": self.cached.to_json()} if self.cached else {}
        return self.scores.summary() | (self.compared.to_json() if self.compared else {}) | cache | self.unknown_tokens()

    def lines(self) -> list[str]:
        summary = self.scores.summary()
        closing = (
            f"perplexity {summary['perplexity']:.2f}; {self.mask_rate:.0%} of the tokens masked, {counted(self.draws, 'draw')}"
        )
        scored, every = self.targets
        if scored < every:
            closing += f"; {scored:,} of {counted(every, 'comment')}, those with another branch of equal depth"
        cached = self.cached.lines() if self.cached else []
        if self.compared is None:
            rows = _rows(summary)
            return [
                f"{'depth or words':<14} {'loss':>8} {'accuracy':>9} {'masked tokens':>14}",
                *(f"{name:<14} {row['loss']:>8.4f} {row['accuracy']:>9.2%} {row['count']:>14,}" for name, row in rows.items()),
                closing,
                *cached,
            ]
        names = ("loss", "own loss") if self.compared.kind == "own" else ("loss", "against")
        table = _table(self.scores, self.compared.scores, self.compared.saved, names)
        return [*table, closing, self._difference(self.compared), *cached]

    def _difference(self, other: Compared) -> str:
        if other.kind == "own":
            return f"saved: what context {other.context}, as in training, saves the same model over context {self.context}"
        return f"saved: what {self.source} (context {self.context}) saves over {other.source} (context {other.context})"


def _rows(summary: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {"all": summary, **summary["by_depth"], **summary["by_class"]}


def _table(scores: Scores, other: Scores, gains: Mapping[str, Interval], names: tuple[str, str]) -> list[str]:
    """Two losses under their names, and what one saves over the other."""
    rows, others = _rows(scores.summary()), _rows(other.summary())
    one, two = names
    parts = parts_of(scores)
    lines = [f"{'depth or words':<14} {one:>8} {two:>8} {'saved':>8}  {'95 % interval':<18} {'p':>6} {'masked tokens':>14}"]
    for name, row in rows.items():
        saved = gains[name]
        # Resamples of a single tree are all equal, so they say nothing about the spread.
        several = np.count_nonzero(by_tree(scores.count, parts[name])) > 1
        interval = f"{_signed(saved.low)} to {_signed(saved.high)}" if several else "one tree only"
        p = ("≤.0001" if saved.p <= SMALLEST_P else f"{saved.p:.4f}") if several else ""
        losses = f"{row['loss']:>8.4f} {others[name]['loss']:>8.4f} {_signed(saved.value):>8}"
        lines.append(f"{name:<14} {losses}  {interval:<18} {p:>6} {row['count']:>14,}")
    return lines


def _signed(nats: float) -> str:
    return f"{round(nats, 4) + 0.0:+.4f}"  # + 0.0 turns -0.0 into 0.0


def evaluate(pipeline: MaskFiller, source: str, store: Store, split: Split, options: Mapping[str, Any]) -> HeldOutLoss:
    """Score a model on a split, beside its own context or another model, on the same comments and masks. Options: `OPTIONS`."""
    check_options(options, OPTIONS, source, "a masked language model")
    task, trained = pipeline.task, pipeline.input.context
    asked: Context = options.get("context") or trained
    draws, rate, cache = options.get("draws", DRAWS), options.get("mask_rate"), options.get("cache", False)
    readings: dict[str, tuple[MaskFiller, Context]] = {"asked": (pipeline, asked)}
    if "against" in options:
        other = _opponent(pipeline, source, options["against"])
        readings["against"] = (other, options.get("context") or other.input.context)
    if asked != trained and (cache or "against" not in options):
        readings["own"] = (pipeline, trained)
    mixed = "own" if "own" in readings else "asked"
    if cache and not store.has_targets("dev"):
        raise RamifyError(
            f"--cache chooses its weight on the dev split, but {store.path} has no dev tree with a comment. Leave --cache out, "
            "or build the data again with a share for dev (ramify data build --split …)."
        )
    forest, comments = pipeline.forest(store), options.get("comments", 0)
    trees = chosen_trees(forest, store, split, comments)
    dev = chosen_trees(forest, store, "dev", comments) if cache else trees[:0]
    words = ancestor_words(task, forest)
    views = _views(readings, forest, trees)
    total = sum(int(view.sizes.sum()) for view, _ in views.values())
    if cache:
        total += int(discussions(task, forest, dev)[0].sizes.sum())
    weight = 0.0
    tallied: dict[str, list[Scores]] = {}
    with scoring(pipeline, total, options) as advance:
        if cache:
            losses = cache_losses(task, forest, dev, words=words, mask_rate=rate, progress=advance)
            weight = min(losses, key=losses.__getitem__)
        for name, (model, _) in readings.items():
            tallies = [Tally(), Tally(cache=weight)] if cache and name == mixed else [Tally()]
            tallied[name] = tally(
                model.task,
                *views[name],
                trees,
                tallies,
                draws=draws,
                mask_rate=rate,
                words=words,
                masker=task,
                progress=advance,
            )
    scores = tallied["asked"][0]
    if "save" in options:
        scores.save(options["save"])
    if not scores.count.any():
        raise RamifyError(f"No comment in the split {split} of {store.path} has a token that can be masked.")
    compared = cached = None
    if "against" in options:
        theirs = tallied["against"][0]
        compared = Compared("against", str(options["against"]), readings["against"][1], theirs, gain(scores, theirs))
    elif asked != trained:
        compared = Compared("own", source, trained, tallied["own"][0], gain(tallied["own"][0], scores))
    if cache:
        plain, with_cache = tallied[mixed]
        cached = Cached(weight, trained, plain, with_cache, gain(with_cache, plain), split in ("dev", "all"))
    targets = int(views["asked"][0].sizes.sum()), len(units(forest, trees).targets)
    rate = rate or task.config.mask_rate
    unknown = forest.unknown(trees, task.tokenizer)
    return HeldOutLoss(scores, source, asked, rate, draws, targets, compared, cached, unknown_pieces=unknown)


def _views(
    readings: Mapping[str, tuple[MaskFiller, Context]], forest: Forest, trees: Ints
) -> dict[str, tuple[Discussions, Collator]]:
    """The same comments of some trees for every model and context: those that can read all the contexts."""
    limits = [limit for _, context in readings.values() if (limit := readable(forest, trees, context)) is not None]
    only = np.logical_and.reduce(limits) if limits else None
    return {
        name: discussions(model.task, forest, trees, context=context, only=only) for name, (model, context) in readings.items()
    }


def _opponent(pipeline: MaskFiller, source: str, against: str | Path) -> MaskFiller:
    """The model of `--against`. Raises if it cannot have the masks and classes of the evaluated one."""
    other = hub.load(against, device=pipeline.device)
    if not isinstance(other, MaskFiller):
        raise RamifyError(
            f"--against {against} holds a {type(other).__name__}, not a masked language model. Choose another model."
        )
    if other.tokenizer.text_hash != pipeline.tokenizer.text_hash:
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
