"""Reports on masked language models on comment trees: curves, loss by depth, filled masks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ramify.batching.forest import share_over
from ramify.batching.views.comment_trees import BLIND, Context
from ramify.inference.evaluation import Scores, by_tree, gain, parts_of
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.held_out import NAMES, RULE, Filling, Measured, fillings, measure
from ramify.metrics import DEPTH_BINS, Interval, bootstrap_ratio
from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.sections import (
    Cell,
    Chart,
    Charts,
    Code,
    Column,
    FilledMask,
    FilledMasks,
    Line,
    Notice,
    Section,
    Spans,
    Strong,
    Table,
    counted,
    number,
    smooth,
)


def parts(context: Context, request: ReportRequest) -> ReportParts:
    """The parts of a report on a run with the context `seen`."""
    sections, headline, missing = [curves(request.metrics, context)], (), ""
    pipeline, store, split = request.pipeline, request.store, request.split
    if isinstance(pipeline, MaskFiller) and store is not None:
        task = pipeline.task
        if store.has_comments(split):
            found = measure(task, store, split, draws=request.draws, comments=request.comments, progress=request.progress)
            sections += [by_depth(found), filled(fillings(task, store, split))]
            headline = gain_sentence(found)
        else:
            missing = f"The data set has no trees in the split {split!r} that hold a comment."
    record = request.record
    return ReportParts(
        purpose=f"fills masked words in comments, each read {NAMES[context]}",
        examples="predicted comments",
        sections=tuple(sections),
        headline=headline,
        missing=missing,
        data=unread(record["cut"], record["without_tokens"]),
    )


def trees_of(split: str) -> str:
    return "all trees" if split == "all" else f"the {split} trees"


def chosen_on_dev(split: str) -> Spans:
    """A caution for scores on the split on which the weights were chosen."""
    return (
        (" The weights were chosen on this split; for unbiased scores, use ", Code("--split test"), ".")
        if split == "dev"
        else ()
    )


def gain_sentence(found: Measured) -> Spans:
    """The loss that the context saves, as a sentence; empty if the model reads no context."""
    if found.own in BLIND:
        return ()
    saved = gain(found.scores[found.own], found.scores["none"])["all"]
    interval = (
        f"95 % interval {number(saved.low, '+.4f')} to {number(saved.high, '+.4f')}" if found.trees > 1 else "one tree only"
    )
    return (
        f"On {trees_of(found.split)}, reading comments {NAMES[found.own]} instead of without context saves the model ",
        Strong(f"{number(saved.value, '+.4f')} nats per masked token"),
        f" ({interval}).",
        *chosen_on_dev(found.split),
        " Both losses are of the same model; a model trained without context is another run.",
    )


# --- curves -----------------------------------------------------------------------------------------------------------


def curves(metrics: Sequence[Mapping[str, float]], context: Context, title: str = "Learning curves") -> Section:
    """Loss against updates and tokens; and the gain and the encoder's spread, if they were measured."""
    if not metrics:
        return Section(title, (Notice(("No steps have been logged yet.",)),))
    window = max(1, len(metrics) // 15)
    with_gain, with_spread, with_dev = (
        any(field in record for record in metrics) for field in ("dev_loss_none", "context_spread", "dev_loss")
    )
    charts = [
        Chart(_losses(metrics, key, window, context), label, "nats")
        for key, label in (("step", "updates"), ("target_tokens", "tokens of predicted comments seen"))
    ]
    if with_gain:
        charts.append(_against_tokens(metrics, "gain", "gain, nats per masked token", "dev_loss_none", "dev_loss"))
    if with_spread:
        charts.append(_against_tokens(metrics, "spread", "spread of the context vectors, share", "context_spread"))
    every = f", mean of {window} logged steps" if window > 1 else ""
    legend = [("train", f"train (the training objective, per comment){every}")]
    if with_dev:
        legend.append(("dev", f"dev, {NAMES[context]} (per masked token)"))
    if with_gain:
        legend += [("none", "dev, the same model without context"), ("gain", "gain: the difference of the two dev losses")]
    if with_spread:
        legend.append(("spread", "spread of the encoder's vectors over texts (near zero, no ancestor can help)"))
    return Section(title, (Charts(tuple(charts), tuple(legend)),))


def of_masked_words(record: Mapping[str, Any]) -> float:
    """The loss of masked words of a logged step, without the losses that teach vectors."""
    return record.get("masked_lm", record["loss"])


def _losses(metrics: Sequence[Mapping[str, float]], key: str, window: int, context: Context) -> tuple[Line, ...]:
    loss = np.array([of_masked_words(record) for record in metrics])
    lines = [Line("train", "train", np.array([float(record[key]) for record in metrics]), smooth(loss, window))]
    for name, field, kind in ((f"dev, {NAMES[context]}", "dev_loss", "dev"), ("dev, without context", "dev_loss_none", "none")):
        measured = [record for record in metrics if field in record]
        x, y = (np.array([float(record[each]) for record in measured]) for each in (key, field))
        lines.append(Line(name, kind, x, y, marks=True))
    return tuple(lines)


def _against_tokens(
    metrics: Sequence[Mapping[str, float]], kind: str, label: str, field: str, subtracted: str | None = None
) -> Chart:
    measured = [record for record in metrics if field in record]
    tokens = np.array([float(record["target_tokens"]) for record in measured])
    values = np.array([record[field] - (record[subtracted] if subtracted else 0.0) for record in measured])
    return Chart((Line(kind, kind, tokens, values, marks=True),), "tokens of predicted comments seen", label, zero=True)


# --- the table by depth -----------------------------------------------------------------------------------------------


def by_depth(measured: Measured, title: str = "Gain from context, by depth") -> Section:
    """Loss of one model with each context, and the differences, with bootstrap intervals over trees."""
    own = measured.scores[measured.own]
    others: list[Context] = [context for context in measured.scores if context != measured.own]
    gains = [gain(own, measured.scores[context]) for context in others]
    columns = [Column("depth"), Column("masked tokens"), *(Column(NAMES[context]) for context in measured.scores)]
    columns += [Column(f"saved, against the same model {NAMES[context]}", drawn=True) for context in others]
    parts = parts_of(own)
    rows = [_row(name, parts[name], measured.scores, gains) for name in ("all", *DEPTH_BINS) if name in parts]
    lead = (
        f"Loss in nats per masked token on {trees_of(measured.split)}: {measured.trees:,} trees, {measured.comments:,} "
        f"comments, {counted(measured.draws, 'draw')} of masks per comment, the same masks in every column. "
        "Small print: 95 % intervals (bootstrap over trees, 10,000 resamples; paired for differences)."
    )
    return Section(title, (Table(tuple(columns), tuple(rows)),), (lead,))


def _row(name: str, part: Any, scores: Mapping[Context, Scores], gains: Sequence[Mapping[str, Interval]]) -> tuple[Cell, ...]:
    count = by_tree(next(iter(scores.values())).count, part)
    several = int((count > 0).sum()) > 1
    cells = [Cell(name), Cell(f"{count.sum():,}")]
    for each in scores.values():
        cells.append(_estimate(bootstrap_ratio(by_tree(each.loss, part), count), ".3f", several))
    for each in gains:
        cells.append(_estimate(each[name], "+.3f", several, drawn=several))
    return tuple(cells)


def _estimate(interval: Interval, form: str, several: bool, drawn: bool = False) -> Cell:
    """A value with its interval, which a single tree does not have."""
    value, low, high = (number(each, form) for each in (interval.value, interval.low, interval.high))
    mark = (interval.value, interval.low, interval.high) if drawn else None
    return Cell(value, f"{low} to {high}" if several else "one tree only", mark)


# --- filled masks, and the texts --------------------------------------------------------------------------------------


def filled(examples: Sequence[Filling], title: str = "Masks filled") -> Section:
    """Masked words with the likeliest pieces, for each context."""
    if not examples:
        return Section(title, (Notice(("No comment in these trees is at depth 2 or deeper.",)),))
    masks = tuple(
        FilledMask(
            title=each.title,
            ancestors=() if all(context in BLIND for context in each.guesses) else each.ancestors,
            before=each.before,
            word=each.word,
            after=each.after,
            guesses=tuple(
                ("none" if context in BLIND else "dev", NAMES[context], guess.probability, guess.tokens)
                for context, guess in each.guesses.items()
            ),
        )
        for each in examples
    )
    lead = f"{RULE} Each row gives the probability of the masked word; higher is better."
    return Section(title, (FilledMasks(masks),), (lead,))


def unread(cut: Mapping[str, Any], without_tokens: int) -> tuple[tuple[str, str], ...]:
    """Facts about the tokens that the model does not read."""
    lost = f"{cut['tokens_over']:,} ({share_over(cut):.2%}), in {cut['texts_over']:,} texts"
    chained = (("texts cut into a chain of nodes", f"{cut['texts_chained']:,}"),) if "texts_chained" in cut else ()
    return (
        ("tokens", f"{cut['tokens']:,} in {cut['texts']:,} texts"),
        ("tokens past the model's longest text", lost),
        *chained,
        ("texts without a token", f"{without_tokens:,}"),
    )
