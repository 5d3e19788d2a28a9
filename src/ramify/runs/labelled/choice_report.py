"""Reports on models that choose: curves, scores beside a floor, slices, and the most wrong questions."""

from collections.abc import Iterator

import numpy as np

from ramify.dataset.store import Store
from ramify.errors import RamifyError, counted
from ramify.inference.choose import Chooser
from ramify.metrics.metric import Metric
from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.labelled import report
from ramify.runs.labelled.choice_scores import ScoredChoices, score_questions
from ramify.runs.sections import Cell, Section, Spans, Table
from ramify.tasks.multiple_choice import CHOICE


def parts(request: ReportRequest, metric: Metric | None) -> ReportParts:
    """The parts of a report. `metric` is that of the run; None: the first one of the task."""
    model, store = request.pipeline, request.store
    sections: list[Section] = [report.curves(request.metrics, metric, CHOICE, "question")]
    sections += report.variants(request.record)
    headline: Spans = ()
    missing = ""
    if isinstance(model, Chooser) and store is not None:
        try:
            scored = score_questions(model, store, request.split, {})
            chosen = model.task.metrics[0] if metric is None else metric
            section, headline = report.held_out_scores(request.split, scored, chosen)
            sections += [section, *_by_count(scored, chosen), *_most_wrong(store, scored)]
        except RamifyError as error:
            missing = str(error)
    return ReportParts(
        purpose="finds the right one of several choices",
        examples="choices",
        sections=tuple(sections),
        headline=headline,
        missing=missing,
        data=tuple(report.facts(request.record["text"])),
    )


def _by_count(scored: ScoredChoices, metric: Metric) -> Iterator[Section]:
    """Scores by the number of choices, if it differs."""
    counts = scored.predictions.counts
    different = np.unique(counts)
    if len(different) > 1:
        bins = [(str(count), counts == count) for count in different.tolist()]
        yield report.slices("Scores by number of choices", scored.predictions, metric, "choices", bins)


def _most_wrong(store: Store, scored: ScoredChoices) -> Iterator[Section]:
    """The questions whose right choice is the least likely."""
    predicted = scored.predictions
    shares = [np.exp(row - row.max()) / np.exp(row - row.max()).sum() for row in scored.scores]
    right = np.array([row[place] for row, place in zip(shares, predicted.right, strict=True)])
    order = np.argsort(right, kind="stable")
    wrong = [place for place in order.tolist() if predicted.predicted[place] != predicted.right[place]][: report.EXAMPLES]
    if not wrong:
        return
    rows = []
    for place in wrong:
        (question,), choices = store.texts(scored.view.sets.questions[[place]]), scored.view.sets.choices[place]
        truth, guess = store.texts(choices[[predicted.right[place], predicted.predicted[place]]])
        texts = (Cell(report.shortened(text)) for text in (question, truth, guess))
        rows.append((*texts, Cell(f"{right[place]:.0%}")))
    lead = f"{counted(len(rows), 'question')}, those with the least likely right choice first."
    columns = ("question", "right", "predicted", "probability of the right one")
    yield Section("Most wrong", (Table(columns, tuple(rows), "texts"),), (lead,))
