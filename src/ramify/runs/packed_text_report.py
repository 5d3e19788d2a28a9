"""Reports on masked language models of running text: curves, held-out scores, filled masks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ramify.batching.row_batch import RowCollator
from ramify.batching.views.packed import TextRows
from ramify.errors import RamifyError, counted
from ramify.inference.common_footing import CommonFooting
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.row_evaluation import (
    evaluate_rows,
    masked_scores,
    on_common_footing,
    readable_window,
    spread_rows,
)
from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.comment_tree_report import chosen_on_dev, of_masked_words
from ramify.runs.sections import (
    Cell,
    Chart,
    Charts,
    FilledMask,
    FilledMasks,
    Line,
    Notice,
    Section,
    Spans,
    Strong,
    Table,
    smooth,
)

FILLINGS, GUESSES, AROUND = 10, 3, 24
"""Masked words in a report, guesses for each, and tokens of text shown on each side."""


def parts(request: ReportRequest, view: tuple[TextRows, RowCollator] | None, missing: str = "") -> ReportParts:
    """The parts of a report. `view` holds the held-out rows and their collator; None leaves the evaluation out."""
    sections, headline = [curves(request.metrics)], ()
    model = request.pipeline
    if isinstance(model, MaskFiller) and view is not None:
        try:
            footing = CommonFooting.of(view[0].text, model.tokenizer, window=readable_window(model.task))
            table, headline = scores(request, model, *view, footing)
            sections += [table, filled(model, footing)]
        except RamifyError as error:
            missing = str(error)
    facts = request.record["text"]
    return ReportParts(
        purpose="fills masked words in running text",
        examples="rows",
        sections=tuple(sections),
        headline=headline,
        missing=missing,
        data=tuple((name.replace("_", " "), f"{value:,}") for name, value in facts.items()),
    )


def curves(metrics: Sequence[Mapping[str, Any]]) -> Section:
    """Loss against updates and tokens; and the accuracy of next-sentence prediction, if it was measured."""
    if not metrics:
        return Section("Learning curves", (Notice(("No steps have been logged yet.",)),))
    window = max(1, len(metrics) // 15)
    charts = [
        Chart((_train(metrics, key, window), _dev(metrics, key, "dev_loss")), label, "nats per masked token")
        for key, label in (("step", "updates"), ("target_tokens", "tokens seen"))
    ]
    every = f", mean of {window} logged steps" if window > 1 else ""
    legend = [("train", f"train: masked tokens{every}"), ("dev", "dev: masked tokens; on the right, next sentences")]
    if any("dev_next_sentence" in record for record in metrics):
        charts.append(
            Chart((_dev(metrics, "target_tokens", "dev_next_sentence"),), "tokens seen", "next sentences found, share")
        )
    else:
        legend[1] = ("dev", "dev: masked tokens")
    return Section("Learning curves", (Charts(tuple(charts), tuple(legend)),))


def _train(metrics: Sequence[Mapping[str, Any]], key: str, window: int) -> Line:
    loss = np.array([float(of_masked_words(record)) for record in metrics])
    return Line("train", "train", np.array([float(record[key]) for record in metrics]), smooth(loss, window))


def _dev(metrics: Sequence[Mapping[str, Any]], key: str, name: str) -> Line:
    measured = [record for record in metrics if name in record]
    x, y = (np.array([float(record[each]) for record in measured]) for each in (key, name))
    return Line("dev", "dev", x, y, marks=True)


def scores(
    request: ReportRequest, model: MaskFiller, view: TextRows, collator: RowCollator, footing: CommonFooting
) -> tuple[Section, Spans]:
    """The held-out scores as a table, and the main one as a sentence."""
    rows = spread_rows(view, request.comments)
    found = evaluate_rows(model.task, view, collator, rows, draws=request.draws, progress=request.progress).summary()
    shared = on_common_footing(model.task, footing)
    columns = ("predictions", "loss, nats", "accuracy", "count")
    predicted = {"masked tokens": found} | ({"next sentences": found["next_sentence"]} if "next_sentence" in found else {})
    table = [
        (Cell(name), Cell(f"{own['loss']:.3f}"), Cell(f"{own['accuracy']:.1%}"), Cell(f"{own['count']:,}"))
        for name, own in predicted.items()
    ]
    table.append(
        (
            Cell("one masked token given all others", f"{shared.per_byte:.3f} nats per byte"),
            Cell(f"{shared.per_token:.3f}"),
            Cell("–"),
            Cell(f"{len(shared.nats):,}"),
        )
    )
    lead = f"On {counted(len(rows), 'row')} of the {request.split} split, {counted(request.draws, 'draw')} of masks each."
    headline = (
        f"On the {request.split} split, it predicts a masked token at ",
        Strong(f"{found['loss']:.3f} nats"),
        f", and one masked token given all others at {shared.per_byte:.3f} nats per byte.",
        *chosen_on_dev(request.split),
    )
    return Section("Held-out scores", (Table(columns, tuple(table)),), (lead,)), headline


def filled(model: MaskFiller, footing: CommonFooting) -> Section:
    """Single masked tokens of the common footing, evenly spaced, with the likeliest pieces."""
    tokenizer = model.tokenizer
    chosen = np.unique(np.arange(FILLINGS) * len(footing.positions) // FILLINGS)
    logits = masked_scores(model.task, footing.rows[chosen], footing.positions[chosen])
    shares = logits.softmax(-1)
    masks = []
    for row, place, share in zip(footing.rows[chosen], footing.positions[chosen].tolist(), shares):
        best = torch.topk(share, min(GUESSES, len(share)))
        tokens = tuple((tokenizer.token(token), float(value)) for token, value in zip(best.indices.tolist(), best.values))
        masks.append(
            FilledMask(
                title="",
                ancestors=(),
                before=tokenizer.decode(row[max(0, place - AROUND) : place].tolist()) + " ",
                word=tokenizer.token(int(row[place])),
                after=" " + tokenizer.decode(row[place + 1 : place + 1 + AROUND].tolist()),
                guesses=(("dev", "given all other tokens", float(share[int(row[place])]), tokens),),
            )
        )
    lead = (
        f"{len(masks)} tokens of the common footing, evenly spaced over the split. The model reads a window of "
        f"{footing.rows.shape[1]} tokens; the text shown is its middle part."
    )
    return Section("Masks filled", (FilledMasks(tuple(masks)),), (lead,))
