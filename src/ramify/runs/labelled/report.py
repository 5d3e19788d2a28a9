"""Reports on models that predict labels: curves and held-out scores beside those of predictions that read no text."""

from collections.abc import Iterator, Mapping
from typing import Any

from ramify.errors import RamifyError
from ramify.inference.classify import Classifier
from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.curves import TITLE, Metrics, loss_charts, no_curves, smoothing
from ramify.runs.labelled.scores import LabelEvaluation, evaluate
from ramify.runs.sections import Cell, Charts, Section, Spans, Strong, Table, chosen_on_dev
from ramify.tasks.classification import LABEL


def parts(request: ReportRequest) -> ReportParts:
    """The parts of a report."""
    sections: list[Section] = [curves(request.metrics)]
    headline: Spans = ()
    missing = ""
    model, store = request.pipeline, request.store
    if isinstance(model, Classifier) and store is not None:
        try:
            evaluation = evaluate(model, str(store.path), store, request.split, {}, model.task.metrics[0])
            section, headline = table(request.split, evaluation)
            sections.append(section)
        except RamifyError as error:
            missing = str(error)
    return ReportParts(
        purpose="predicts labels of texts",
        examples="texts",
        sections=tuple(sections),
        headline=headline,
        missing=missing,
        data=tuple(facts(request.record["text"])),
    )


def facts(text: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The facts about the training texts from run.json."""
    for name, value in text.items():
        if isinstance(value, Mapping):
            yield name, ", ".join(f"{key} {count:,}" for key, count in value.items())
        else:
            yield name.replace("_", " "), f"{value:,}"


def curves(metrics: Metrics) -> Section:
    """Loss against updates and tokens."""
    if not metrics:
        return no_curves()
    charts = loss_charts(metrics, LABEL, "loss per label", tokens="tokens")
    return Section(TITLE, (Charts(charts, (("train", f"train{smoothing(metrics)}"), ("dev", "dev"))),))


def table(split: str, evaluation: LabelEvaluation) -> tuple[Section, Spans]:
    rows = tuple((Cell(name.replace("_", " ")), Cell(f"{value:.3f}")) for name, value in evaluation.metrics.items())
    headline: Spans = (
        f"On the {split} split, its {evaluation.metric.label} is ",
        Strong(f"{evaluation.value:.3f}"),
        "." if evaluation.majority is None else f"; without reading, {evaluation.majority:.3f}.",
    )
    return Section("Held-out scores", (Table(("score", "value"), rows),)), (*headline, *chosen_on_dev(split))
