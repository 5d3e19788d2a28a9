"""Reports on masked language models on comment trees: curves, loss by depth and word class, filled masks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramify.batching.forest import share_over
from ramify.batching.text_input import BLIND, Context
from ramify.errors import counted
from ramify.inference.evaluation import Scores, by_tree, parts_of
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.held_out import NAMES, RULE, Filling, Measured, fillings, measure
from ramify.inference.word_classes import COMMON
from ramify.metrics import DEPTH_BINS, Interval, bootstrap_ratio
from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.curves import TITLE, Metrics, dev_line, no_curves, smoothing, train_line
from ramify.runs.sections import (
    Block,
    Cell,
    Chart,
    Charts,
    DotChart,
    Dots,
    FilledMask,
    FilledMasks,
    Line,
    Notice,
    Section,
    Spans,
    Strong,
    Table,
    chosen_on_dev,
    number,
)
from ramify.tasks.masked_lm import MaskedLM

CHART_KINDS: dict[Context, str] = {"none": "none", "mismatched": "spread", "sibling-branch": "gain"}
"""The colours of contexts in charts of what the context of training saves over them, as classes of the style sheet."""


def parts(context: Context, request: ReportRequest) -> ReportParts:
    """The parts of a report on a run with the context `seen`."""
    sections, headline, missing = [curves(request.metrics, context)], (), ""
    pipeline, store, split = request.pipeline, request.store, request.split
    if isinstance(pipeline, MaskFiller) and store is not None:
        task = pipeline.task
        if store.has_targets(split):
            measured = measure(
                task,
                store,
                split,
                draws=request.draws,
                comments=request.comments,
                controls=("mismatched", "sibling-branch"),
                progress=request.progress,
            )
            sections += [gains(measured), filled(fillings(task, store, split))]
            headline = gain_sentence(measured)
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


def gain_sentence(measured: Measured) -> Spans:
    """The loss that the context saves, as a sentence; empty if the model reads no context."""
    if measured.training_context in BLIND:
        return ()
    saved = measured.saved["none"]["all"]
    interval = (
        f"95 % interval {number(saved.low, '+.4f')} to {number(saved.high, '+.4f')}" if measured.trees > 1 else "one tree only"
    )
    return (
        f"On {trees_of(measured.split)}, reading comments {NAMES[measured.training_context]} instead of without context saves "
        "the model ",
        Strong(f"{number(saved.value, '+.4f')} nats per masked token"),
        f" ({interval}).",
        *chosen_on_dev(measured.split),
        " Both losses are of the same model; a model trained without context is another run.",
    )


# --- curves -----------------------------------------------------------------------------------------------------------


def curves(metrics: Metrics, context: Context, title: str = TITLE) -> Section:
    """Loss against updates and tokens; and the gain and the encoder's spread, if they were measured."""
    if not metrics:
        return no_curves(title)
    with_gain, with_spread, with_dev = (
        any(field in record for record in metrics) for field in ("dev_loss_none", "context_spread", "dev_loss")
    )
    charts = [
        Chart(_losses(metrics, key, context), label, "nats")
        for key, label in (("step", "updates"), ("target_tokens", "tokens of predicted comments seen"))
    ]
    if with_gain:
        charts.append(_against_tokens(metrics, "gain", "gain, nats per masked token", "dev_loss_none", "dev_loss"))
    if with_spread:
        charts.append(_against_tokens(metrics, "spread", "spread of the context vectors, share", "context_spread"))
    legend = [("train", f"train (the training objective, per comment){smoothing(metrics)}")]
    if with_dev:
        legend.append(("dev", f"dev, {NAMES[context]} (per masked token)"))
    if with_gain:
        legend += [("none", "dev, the same model without context"), ("gain", "gain: the difference of the two dev losses")]
    if with_spread:
        legend.append(("spread", "spread of the encoder's vectors over texts (near zero, no ancestor can help)"))
    return Section(title, (Charts(tuple(charts), tuple(legend)),))


def _losses(metrics: Metrics, key: str, context: Context) -> tuple[Line, ...]:
    return (
        train_line(metrics, key, MaskedLM.main_loss),
        dev_line(metrics, key, "dev_loss", f"dev, {NAMES[context]}"),
        dev_line(metrics, key, "dev_loss_none", "dev, without context", "none"),
    )


def _against_tokens(metrics: Metrics, kind: str, label: str, field: str, subtracted: str | None = None) -> Chart:
    measured = [record for record in metrics if field in record]
    tokens = np.array([float(record["target_tokens"]) for record in measured])
    values = np.array([record[field] - (record[subtracted] if subtracted else 0.0) for record in measured])
    return Chart((Line(kind, kind, tokens, values, marks=True),), "tokens of predicted comments seen", label, zero=True)


# --- tables and charts by depth and by word class ---------------------------------------------------------------------


def gains(measured: Measured, title: str = "Gain from context, by depth and word class") -> Section:
    """Loss of one model with each context, and the differences, with bootstrap intervals over trees."""
    scores = measured.scores[measured.training_context]
    parts = parts_of(scores)
    by_depth = [name for name in ("all", *DEPTH_BINS) if name in parts]
    by_class = [name for name in scores.classes if name in parts]
    lead = (
        f"Loss in nats per masked token on {trees_of(measured.split)}: {counted(measured.trees, 'tree')}, "
        f"{counted(measured.comments, 'comment')}, {counted(measured.draws, 'draw')} of masks per comment, the same masks in "
        "every column. "
        "Small print: 95 % intervals (bootstrap over trees, 10,000 resamples; paired for differences). Recoverable words are "
        "content words that stand in an ancestor and not in the visible part of the comment. Function words are the "
        f"{COMMON} most frequent pieces of the data set."
    )
    charts: tuple[Block, ...] = ()
    if measured.saved and measured.trees > 1:
        legend = tuple((CHART_KINDS[context], f"saved, against the same model {NAMES[context]}") for context in measured.saved)
        charts = (Charts((_chart(measured, "depth", by_depth), _chart(measured, "words", by_class)), legend),)
    return Section(title, (*charts, _table(measured, (*by_depth, *by_class))), (lead, *_limits(measured)))


def _limits(measured: Measured) -> Spans:
    """The comments with which a context is compared, if not all can read it."""
    whole = measured.scores[measured.training_context].count.sum()
    return [
        f" The comparison with the same model {NAMES[context]} covers the comments that can read it, with "
        f"{scores.count.sum() / whole:.0%} of the masked tokens."
        for context, scores in measured.limited.items()
    ]


def _chart(measured: Measured, heading: str, names: Sequence[str]) -> DotChart:
    series = tuple(
        Dots(NAMES[context], CHART_KINDS[context], tuple(_drawn(measured, context, name) for name in names))
        for context in measured.saved
    )
    return DotChart(tuple(names), series, heading, "saved, nats per masked token")


def _table(measured: Measured, names: Sequence[str]) -> Table:
    """Losses and differences. A loss of other comments than the rest is left out."""
    shown: dict[Context, Scores] = {name: scores for name, scores in measured.scores.items() if name not in measured.limited}
    columns = ["depth or words", "masked tokens", *(NAMES[context] for context in shown)]
    columns += [f"saved, against the same model {NAMES[context]}" for context in measured.saved]
    return Table(tuple(columns), tuple(_row(name, shown, measured) for name in names))


def _drawn(measured: Measured, context: Context, name: str) -> tuple[float, float, float] | None:
    """The gain in a depth bin or word class, with its interval; None for a single tree, which has no interval."""
    interval, scores = measured.saved[context].get(name), measured.scores_beside(context)
    if interval is None or not _several(by_tree(scores.count, parts_of(scores)[name])):
        return None
    return interval.value, interval.low, interval.high


def _several(count: NDArray[np.int64]) -> bool:
    return int((count > 0).sum()) > 1


def _row(name: str, shown: Mapping[Context, Scores], measured: Measured) -> tuple[Cell, ...]:
    usual = measured.scores[measured.training_context]
    part = parts_of(usual)[name]
    count = by_tree(usual.count, part)
    several = _several(count)
    cells = [Cell(name), Cell(f"{count.sum():,}", f"{count.sum() / usual.count.sum():.0%}")]
    for scores in shown.values():
        cells.append(_estimate(bootstrap_ratio(by_tree(scores.loss, part), count), ".3f", several))
    for context, intervals in measured.saved.items():
        if name in intervals:
            compared = _several(by_tree(measured.scores_beside(context).count, part))
            cells.append(_estimate(intervals[name], "+.3f", compared))
        else:
            cells.append(Cell("–", "no such comment"))
    return tuple(cells)


def _estimate(interval: Interval, form: str, several: bool) -> Cell:
    """A value with its interval, which a single tree does not have."""
    value, low, high = (number(bound, form) for bound in (interval.value, interval.low, interval.high))
    return Cell(value, f"{low} to {high}" if several else "one tree only")


# --- filled masks, and the texts --------------------------------------------------------------------------------------


def filled(examples: Sequence[Filling], title: str = "Masks filled") -> Section:
    """Masked words with the likeliest pieces, for each context."""
    if not examples:
        return Section(title, (Notice(("No comment in these trees is at depth 2 or deeper.",)),))
    masks = tuple(
        FilledMask(
            title=filling.title,
            ancestors=() if all(context in BLIND for context in filling.guesses) else filling.ancestors,
            before=filling.before,
            word=filling.word,
            after=filling.after,
            guesses=tuple(
                ("none" if context in BLIND else "dev", NAMES[context], guess.probability, guess.tokens)
                for context, guess in filling.guesses.items()
            ),
        )
        for filling in examples
    )
    lead = f"{RULE} Each row gives the probability of the masked word; higher is better."
    return Section(title, (FilledMasks(masks),), (lead,))


def unread(cut: Mapping[str, Any], without_tokens: int) -> tuple[tuple[str, str], ...]:
    """Facts about the tokens that the model does not read."""
    lost = f"{cut['tokens_over']:,} ({share_over(cut):.2%}), in {counted(cut['texts_over'], 'text')}"
    chained = (("texts cut into a chain of nodes", f"{cut['texts_chained']:,}"),) if "texts_chained" in cut else ()
    return (
        ("tokens", f"{cut['tokens']:,} in {counted(cut['texts'], 'text')}"),
        ("tokens past the model's longest text", lost),
        *chained,
        ("texts without a token", f"{without_tokens:,}"),
    )
