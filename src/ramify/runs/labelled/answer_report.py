"""Reports on models that answer questions: curves, scores by kinds of questions, the threshold of no answer, and examples."""

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from ramify.errors import RamifyError, counted
from ramify.inference.answer import Answerer
from ramify.metrics.answers import AnswerScores
from ramify.metrics.metric import Metric
from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.labelled.answer_scores import SplitAnswers, score_questions
from ramify.runs.labelled.report import curves, facts, held_out_scores, variants
from ramify.runs.sections import (
    Cell,
    Chart,
    Charts,
    Line,
    MarkedText,
    MarkedTexts,
    Section,
    Spans,
    Table,
)
from ramify.tasks.base import TOTAL

EXAMPLES = 6
"""Right answers that a report shows, and as many wrong ones."""

QUESTION_WORDS = ("what", "who", "when", "where", "which", "why", "how")

LENGTHS = ((1, 1), (2, 2), (3, 4), (5, 8), (9, None))
"""Words of the shortest gold answer: the least and the greatest number of each row; None: any."""


def parts(request: ReportRequest, metric: Metric | None) -> ReportParts:
    """The parts of a report. `metric` is that of the run; None: the first one of the task."""
    sections: list[Section] = [curves(request.metrics, metric, loss=TOTAL, unit="window")]
    sections += variants(request.record)
    headline: Spans = ()
    missing = ""
    model, store = request.pipeline, request.store
    if isinstance(model, Answerer) and store is not None:
        try:
            scored = score_questions(model, store, request.split, {})
            answers, scores, threshold = scored.answers, scored.predictions, float(model.task.threshold)
            section, headline = held_out_scores(request.split, scored, model.task.metrics[0] if metric is None else metric)
            sections += [
                section,
                slices(answers, scores),
                *thresholds(answers, threshold),
                *examples(answers, scores, threshold),
            ]
        except RamifyError as error:
            missing = str(error)
    return ReportParts(
        purpose="answers questions by spans of a passage",
        examples="windows",
        sections=tuple(sections),
        headline=headline,
        missing=missing,
        data=tuple(facts(request.record["text"])),
    )


def slices(answers: SplitAnswers, scores: AnswerScores) -> Section:
    """The scores by the question word and by the length of the answer."""
    questions = answers.view.questions
    words = np.array([question_word(text) for text in questions.texts])
    lengths = np.array([min((len(text.split()) for text in gold), default=0) for gold in questions.gold])
    by_word = ((name, words == name) for name in (*QUESTION_WORDS, "other"))
    by_length = [
        (counted(low, "word") if low == high else f"{low} to {high} words" if high else f"{low} words or more", low, high)
        for low, high in LENGTHS
    ]
    chosen = [(name, (lengths >= low) & (lengths <= (high or np.inf))) for name, low, high in by_length]
    tables = (
        Table(("question word", "questions", "exact match", "F1"), tuple(_rows(by_word, scores)), "scores"),
        Table(("shortest gold answer", "questions", "exact match", "F1"), tuple(_rows(iter(chosen), scores)), "scores"),
    )
    return Section("Kinds of questions", tables)


def _rows(groups: Iterator[tuple[str, np.ndarray]], scores: AnswerScores) -> Iterator[tuple[Cell, ...]]:
    for name, chosen in groups:
        if chosen.any():
            means = (f"{values[chosen].mean():.1%}" for values in (scores.exact, scores.f1))
            yield (Cell(name), Cell(f"{int(chosen.sum()):,}"), *map(Cell, means))


def question_word(text: str) -> str:
    """The first question word of a text; other if it has none."""
    words = (word.strip("'’?,.").casefold().removesuffix("'s").removesuffix("’s") for word in text.split())
    return next((word for word in words if word in QUESTION_WORDS), "other")


def thresholds(answers: SplitAnswers, threshold: float) -> list[Section]:
    """F1 against the threshold of the null score, if the model has one."""
    found = answers.thresholds()
    if found is None:
        return []
    chart = Chart((Line("F1", "dev", 100 * found.answered, 100 * found.scores),), "answered questions, %", "F1, %")
    best = found.best
    lead = (
        f"A question has no answer if its null score exceeds {threshold:.2f}, which was chosen on dev. On this split, the best "
        f"threshold is {found.values[best]:.2f}: F1 {found.scores[best]:.1%} with {found.answered[best]:.1%} of the questions "
        "answered."
    )
    return [Section("No answer", (Charts((chart,)),), (lead,))]


def examples(answers: SplitAnswers, scores: AnswerScores, threshold: float) -> Iterator[Section]:
    """Right and wrong answers, marked in their passages, evenly spaced over the split."""
    kinds: tuple[tuple[str, Callable[[float], bool]], ...] = (
        ("Right answers", lambda exact: exact == 1),
        ("Wrong answers", lambda exact: exact < 1),
    )
    texts = answers.texts(threshold)
    for title, fits in kinds:
        places = [place for place, exact in enumerate(scores.exact.tolist()) if fits(exact)]
        step = max(1, len(places) // EXAMPLES)
        cards = tuple(_card(answers, texts, place) for place in islice(places, 0, None, step))[:EXAMPLES]
        if cards:
            yield Section(title, (MarkedTexts(cards),))


def _card(answers: SplitAnswers, texts: list[str], place: int) -> MarkedText:
    """A question with its answer in the passage, and the gold answers."""
    questions, spans, passage = answers.view.questions, answers.found[place], answers.view.passage(place)
    gold = ", ".join(dict.fromkeys(questions.gold[place])) or "no answer"
    if not texts[place]:
        return MarkedText(questions.texts[place], "", "", passage, ("answer: no answer", f"gold: {gold}"))
    start, end = spans.starts[0], spans.ends[0]
    return MarkedText(questions.texts[place], passage[:start], passage[start:end], passage[end:], (f"gold: {gold}",))
