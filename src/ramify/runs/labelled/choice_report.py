"""Reports on models that choose: curves, scores beside a floor, slices, calibration, and the most wrong questions."""

from collections.abc import Iterator

import numpy as np

from ramify.dataset.store import Store
from ramify.inference.choose import Chooser
from ramify.metrics.classification import reliability_of
from ramify.metrics.metric import Metric
from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.labelled import report
from ramify.runs.labelled.choice_scores import ScoredChoices, score_questions
from ramify.runs.sections import Cell, Section
from ramify.tasks.multiple_choice import CHOICE


def parts(request: ReportRequest, metric: Metric | None) -> ReportParts:
    """The parts of a report. `metric` is that of the run; None: the first one of the task."""
    return report.assembled(
        request,
        report.training(request, metric, CHOICE, "question"),
        metric,
        Chooser,
        score_questions,
        _details,
        purpose="finds the right one of several choices",
        examples="choices",
    )


def _details(model: Chooser, store: Store, scored: ScoredChoices, metric: Metric) -> Iterator[Section]:
    predicted, shares = scored.predictions, scored.shares
    counts = predicted.counts
    if len(different := np.unique(counts)) > 1:
        bins = [(str(count), counts == count) for count in different.tolist()]
        yield report.slices("Scores by number of choices", scored, metric, "choices", bins)
    lengths = report.bins_of(scored.view.prompt_tokens, report.LENGTHS)
    yield report.slices("Scores by length", scored, metric, "tokens of the first text", lengths)
    yield from report.depth_slices(store, scored, metric)
    measured = reliability_of(np.array([row.max() for row in shares]), predicted.right == predicted.predicted)
    yield report.calibration({"choices": measured}, "", "question", legend={"choices": "likeliest choices"})
    yield from _most_wrong(store, scored)


def _most_wrong(store: Store, scored: ScoredChoices) -> Iterator[Section]:
    """The questions whose right choice is the least likely."""
    predicted = scored.predictions
    right = np.array([row[place] for row, place in zip(scored.shares, predicted.right, strict=True)])
    order = np.argsort(right, kind="stable")
    wrong = [place for place in order.tolist() if predicted.predicted[place] != predicted.right[place]][: report.EXAMPLES]
    rows = []
    for place in wrong:
        (question,), choices = store.texts(scored.view.sets.questions[[place]]), scored.view.sets.choices[place]
        truth, guess = store.texts(choices[[predicted.right[place], predicted.predicted[place]]])
        texts = (Cell(report.shortened(text)) for text in (question, truth, guess))
        rows.append((*texts, Cell(f"{right[place]:.0%}")))
    columns = ("question", "right", "predicted", "probability of the right one")
    yield from report.most_wrong(scored, columns, rows, "those with the least likely right choice first")
