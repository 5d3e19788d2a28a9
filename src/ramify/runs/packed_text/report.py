"""Reports on masked language models of running text: curves, held-out scores, filled masks."""

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
from ramify.runs.curves import TITLE, Metrics, dev_line, loss_charts, no_curves, smoothing
from ramify.runs.running_text_report import held_out, report_parts
from ramify.runs.sections import Chart, Charts, FilledMask, FilledMasks, Section, Spans
from ramify.tasks.masked_lm import NEXT_SENTENCE, MaskedLM

DEV_NEXT_SENTENCE = f"dev_{NEXT_SENTENCE}"
"""The share of next sentences that are found on dev."""

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
            sections += [table, *([filled(model, footing)] if len(footing.positions) else [])]
        except RamifyError as error:
            missing = str(error)
    return report_parts("fills masked words in running text", request.record, sections, headline, missing)


def curves(metrics: Metrics) -> Section:
    """Loss against updates and tokens; and the accuracy of next-sentence prediction, if it was measured."""
    if not metrics:
        return no_curves()
    charts = [*loss_charts(metrics, MaskedLM.main_loss, "nats per masked token", tokens="tokens seen")]
    legend = [
        ("train", f"train: masked tokens{smoothing(metrics)}"),
        ("dev", "dev: masked tokens; on the right, next sentences"),
    ]
    if any(DEV_NEXT_SENTENCE in record for record in metrics):
        line = dev_line(metrics, "target_tokens", DEV_NEXT_SENTENCE)
        charts.append(Chart((line,), "tokens seen", "next sentences found, share"))
    else:
        legend[1] = ("dev", "dev: masked tokens")
    return Section(TITLE, (Charts(tuple(charts), tuple(legend)),))


def scores(
    request: ReportRequest, model: MaskFiller, view: TextRows, collator: RowCollator, footing: CommonFooting
) -> tuple[Section, Spans]:
    """The held-out scores as a table, and the main one as a sentence."""
    rows = spread_rows(view, request.comments)
    masked = evaluate_rows(model.task, view, collator, rows, draws=request.draws, progress=request.progress).summary()
    predicted = {"masked tokens": masked} | ({"next sentences": masked[NEXT_SENTENCE]} if NEXT_SENTENCE in masked else {})
    lead = f"On {counted(len(rows), 'row')} of the {request.split} split, {counted(request.draws, 'draw')} of masks each."
    shared = on_common_footing(model.task, footing)
    return held_out(request.split, "a masked token", predicted, "one masked token given all others", shared, lead)


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
