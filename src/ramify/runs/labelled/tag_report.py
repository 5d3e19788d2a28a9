"""Reports on models that tag words: curves, scores beside a floor, scores of each type, slices,
calibration, and wrong examples."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from ramify.dataset.bio import TokenSpan, spans_of
from ramify.dataset.store import Store
from ramify.inference.tag import Tagger
from ramify.metrics.classification import reliability_of
from ramify.metrics.metric import Metric
from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.labelled import report
from ramify.runs.labelled.tag_scores import ScoredTags, score_texts
from ramify.runs.sections import Cell, Section, Table
from ramify.tasks.tagging import TAG

LENGTHS = (1, 9, 17, 33, 65, 129, 257)
"""The first lengths of the bins of texts, in words."""


def parts(request: ReportRequest, metric: Metric | None) -> ReportParts:
    """The parts of a report. `metric` is that of the run; None: the first one of the task."""
    return report.assembled(
        request,
        report.training(request, metric, TAG, "word"),
        metric,
        Tagger,
        partial(score_texts, with_shares=True),
        _details,
        purpose="predicts tags of words",
        examples="texts",
    )


def _details(model: Tagger, store: Store, scored: ScoredTags, metric: Metric) -> Iterator[Section]:
    yield _per_type(scored)
    words = report.bins_of(scored.predictions.words, LENGTHS)
    yield report.slices("Scores by length", scored, metric, "words of the text", words)
    yield from report.depth_slices(store, scored, metric)
    if scored.shares is not None:
        pairs = zip(scored.tagged.tags, scored.found, strict=True)
        right = np.array([one == other for truth, guess in pairs for one, other in zip(truth, guess, strict=True)], dtype=bool)
        if len(right):
            lead = "The probability of a word's tag is given all of its text."
            measured = {"words": reliability_of(np.concatenate(scored.shares), right)}
            yield report.calibration(measured, lead, "word", legend={"words": "tags of words"})
    yield from _most_wrong(store, scored)


def _per_type(scored: ScoredTags) -> Section:
    unit = scored.predictions.unit
    rows = tuple(
        (
            Cell(kind or "–"),
            *(Cell(f"{value:.3f}") for value in (counts.precision, counts.recall, counts.f1)),
            *(Cell(f"{value:,}") for value in (counts.annotated, counts.predicted)),
        )
        for kind, counts in scored.predictions.per_type.items()
    )
    names = ("type" if unit == "span" else "tag", "precision", "recall", "F1", f"annotated {unit}s", f"predicted {unit}s")
    return Section("Scores by type", (Table(names, rows, "scores"),))


def _most_wrong(store: Store, scored: ScoredTags) -> Iterator[Section]:
    """The texts with the most spans, or words, that are missed or wrongly found."""
    predicted = scored.predictions
    faults = (predicted.annotated + predicted.predicted - 2 * predicted.right).sum(1)
    order = [place for place in np.argsort(-faults, kind="stable")[: report.EXAMPLES].tolist() if faults[place]]
    rows = []
    for place in order:
        (text,) = store.texts(scored.tagged.nodes[[place]])
        words = [text[start:end] for start, end in scored.tagged.words[place].tolist()]
        truth, guess = scored.tagged.tags[place], scored.found[place]
        given, found = (spans_of(truth), spans_of(guess)) if predicted.unit == "span" else (_single(truth), _single(guess))
        missed, wrong = ([span for span in one if span not in {*other}] for one, other in ((given, found), (found, given)))
        rows.append((Cell(report.shortened(text)), *(Cell(_listed(words, spans)) for spans in (missed, wrong))))
    yield from report.most_wrong(scored, ("text", "missed", "wrongly found"), rows, "those with the most faults first")


def _single(tags: Sequence[str]) -> list[TokenSpan]:
    return [TokenSpan(place, place + 1, tag) for place, tag in enumerate(tags)]


def _listed(words: Sequence[str], spans: Sequence[TokenSpan]) -> str:
    shown = [f"{span.type}: {report.shortened(' '.join(words[span.start : span.stop]))}" for span in spans[:5]]
    return "; ".join(shown) + (f"; {len(spans) - 5} more" if len(spans) > 5 else "") or "–"
