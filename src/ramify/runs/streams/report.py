"""Reports on models of running text: learning curves and held-out scores."""

from ramify.batching.views.streams import StreamConfig
from ramify.errors import RamifyError, counted
from ramify.inference.common_footing import GIVEN
from ramify.inference.streams import StreamPipeline
from ramify.runs.base import ReportParts, ReportRequest, no_progress
from ramify.runs.curves import TITLE, Metrics, loss_charts, no_curves, smoothing
from ramify.runs.running_text_report import held_out, report_parts
from ramify.runs.sections import Charts, Section, Spans
from ramify.runs.streams.scores import StreamEvaluation, evaluate
from ramify.tasks.stream_task import StreamTask


def parts(config: StreamConfig, request: ReportRequest) -> ReportParts:
    """The parts of a report. `config` says how the held-out text is cut into streams."""
    sections: list[Section] = [curves(request.metrics)]
    headline: Spans = ()
    missing = ""
    model, store = request.pipeline, request.store
    if isinstance(model, StreamPipeline) and store is not None:
        try:
            options = {"draws": request.draws, "rows": request.comments or None, "progress": no_progress}
            evaluation = evaluate(model, str(store.path), store, request.split, config, options)
        except RamifyError as error:
            missing = str(error)
        else:
            section, headline = scores(request.split, evaluation)
            sections.append(section)
    purpose = "predicts words of running text from other words of it and from the text before"
    return report_parts(purpose, request.record, sections, headline, missing)


def curves(metrics: Metrics) -> Section:
    """Loss against updates and tokens."""
    if not metrics:
        return no_curves()
    charts = loss_charts(metrics, StreamTask.main_loss, "nats per target", tokens="tokens read")
    return Section(TITLE, (Charts(charts, (("train", f"train{smoothing(metrics)}"), ("dev", "dev"))),))


def scores(split: str, evaluation: StreamEvaluation) -> tuple[Section, Spans]:
    """The held-out scores as a table, and the main one as a sentence."""
    predicted = {"targets, as in training": evaluation.scores.summary()}
    lead = f"On {counted(evaluation.rows, 'row')} of the {split} split, {counted(evaluation.draws, 'draw')} each."
    if evaluation.has_perplexity:
        lead += f" The perplexity is {evaluation.perplexity:.2f}."
        for direction, scores in evaluation.scores.directions.items():
            predicted[f"targets of rows that read {direction}s"] = scores.summary()
    footing = evaluation.footing
    asked = GIVEN["all others" if footing is None else footing.given]
    return held_out(split, "its targets", predicted, asked, footing, lead)
