"""Reports on models that tag words: curves, scores beside a floor, scores of each type, slices, and wrong examples."""

from collections.abc import Iterator, Sequence

import numpy as np

from ramify.dataset.bio import TokenSpan, spans_of
from ramify.dataset.store import Store
from ramify.errors import RamifyError, counted
from ramify.inference.tag import Tagger
from ramify.metrics.metric import Metric
from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.labelled import report
from ramify.runs.labelled.tag_scores import ScoredTags, score_texts
from ramify.runs.sections import Cell, Section, Spans, Table
from ramify.tasks.tagging import TAG

LENGTHS = (1, 9, 17, 33, 65, 129, 257)
"""The first lengths of the bins of texts, in words."""


def parts(request: ReportRequest, metric: Metric | None) -> ReportParts:
    """The parts of a report. `metric` is that of the run; None: the first one of the task."""
    model, store = request.pipeline, request.store
    sections: list[Section] = [report.curves(request.metrics, metric, loss=TAG, unit="word")]
    sections += report.variants(request.record)
    headline: Spans = ()
    missing = ""
    if isinstance(model, Tagger) and store is not None:
        try:
            scored = score_texts(model, store, request.split, {})
            chosen = model.task.metrics[0] if metric is None else metric
            section, headline = report.held_out_scores(request.split, scored, chosen)
            sections += [section, _per_type(scored), _by_length(scored, chosen), *_most_wrong(store, scored)]
        except RamifyError as error:
            missing = str(error)
    return ReportParts(
        purpose="predicts tags of words",
        examples="texts",
        sections=tuple(sections),
        headline=headline,
        missing=missing,
        data=tuple(report.facts(request.record["text"])),
    )


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


def _by_length(scored: ScoredTags, metric: Metric) -> Section:
    lengths, ends = scored.predictions.words, [*LENGTHS[1:], np.inf]
    bins = [
        (f"{first}–{stop - 1:.0f}" if stop < np.inf else f"{first} or more", (lengths >= first) & (lengths < stop))
        for first, stop in zip(LENGTHS, ends, strict=True)
    ]
    return report.slices("Scores by length", scored.predictions, metric, "words of the text", bins)


def _most_wrong(store: Store, scored: ScoredTags) -> Iterator[Section]:
    """The texts with the most spans, or words, that are missed or wrongly found."""
    predicted = scored.predictions
    faults = (predicted.annotated + predicted.predicted - 2 * predicted.right).sum(1)
    order = [place for place in np.argsort(-faults, kind="stable")[: report.EXAMPLES].tolist() if faults[place]]
    if not order:
        return
    rows = []
    for place in order:
        (text,) = store.texts(scored.tagged.nodes[[place]])
        words = [text[start:end] for start, end in scored.tagged.words[place].tolist()]
        truth, guess = scored.tagged.tags[place], scored.found[place]
        given, found = (spans_of(truth), spans_of(guess)) if predicted.unit == "span" else (_single(truth), _single(guess))
        missed, wrong = ([span for span in one if span not in {*other}] for one, other in ((given, found), (found, given)))
        rows.append((Cell(report.shortened(text)), *(Cell(_listed(words, spans)) for spans in (missed, wrong))))
    lead = f"{counted(len(rows), 'text')}, those with the most faults first."
    yield Section("Most wrong", (Table(("text", "missed", "wrongly found"), tuple(rows), "texts"),), (lead,))


def _single(tags: Sequence[str]) -> list[TokenSpan]:
    return [TokenSpan(place, place + 1, tag) for place, tag in enumerate(tags)]


def _listed(words: Sequence[str], spans: Sequence[TokenSpan]) -> str:
    shown = [f"{span.type}: {report.shortened(' '.join(words[span.start : span.stop]))}" for span in spans[:5]]
    return "; ".join(shown) + (f"; {len(spans) - 5} more" if len(spans) > 5 else "") or "–"
