"""Reports on models that answer questions: curves, scores by kinds of questions, the threshold of no answer, and examples."""

from collections.abc import Iterator

import numpy as np

from ramify.dataset.store import Store
from ramify.errors import counted
from ramify.inference.answer import Answerer, answer_shares
from ramify.metrics.answers import AnswerScores
from ramify.metrics.classification import reliability_of
from ramify.metrics.metric import Metric
from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.labelled import report
from ramify.runs.labelled.answer_scores import ScoredAnswers, SplitAnswers, score_questions
from ramify.runs.sections import (
    Cell,
    Chart,
    Charts,
    Floats,
    Line,
    MarkedText,
    MarkedTexts,
    Section,
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
    return report.assembled(
        request,
        report.training(request, metric, TOTAL, "window"),
        metric,
        Answerer,
        score_questions,
        _details,
        purpose="answers questions by spans of a passage",
        examples="windows",
    )


def _details(model: Answerer, store: Store, scored: ScoredAnswers, metric: Metric) -> Iterator[Section]:
    answers, scores, threshold = scored.answers, scored.predictions, float(model.task.threshold)
    yield slices(answers, scores)
    lengths = report.bins_of(answers.view.passage_tokens, PASSAGES)
    yield report.slices("Scores by length", scored, metric, "tokens of the passage", lengths)
    yield from report.depth_slices(store, scored, metric)
    certainty = np.array([answer_shares(found, threshold).max() for found in answers.found])
    lead = "The probability of an answer is its share among the best spans, and no answer where there may be none."
    measured = reliability_of(certainty, scores.exact == 1)
    yield report.calibration({"answers": measured}, lead, "question", legend={"answers": "answers that match exactly"})
    yield from thresholds(answers, threshold)
    yield from examples(answers, scores, certainty, threshold)


PASSAGES = (1, 65, 129, 257, 513)
"""The first lengths of the bins of passages, in tokens."""


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


def examples(answers: SplitAnswers, scores: AnswerScores, certainty: Floats, threshold: float) -> Iterator[Section]:
    """Right answers, evenly spaced over the split, and the most wrong ones: those that share the fewest words with a gold
    answer, the most certain first. All are marked in their passages."""
    texts = answers.texts(threshold)
    right, wrong = np.flatnonzero(scores.exact == 1), np.flatnonzero(scores.exact < 1)
    order = np.lexsort((-certainty[wrong], scores.f1[wrong]))
    for title, places in (("Right answers", right[:: max(1, len(right) // EXAMPLES)]), ("Most wrong answers", wrong[order])):
        if len(places):
            cards = tuple(_card(answers, texts, place, float(certainty[place])) for place in places[:EXAMPLES].tolist())
            yield Section(title, (MarkedTexts(cards),))


def _card(answers: SplitAnswers, texts: list[str], place: int, certainty: float) -> MarkedText:
    """A question with its answer in the passage, and the gold answers."""
    questions, spans, passage = answers.view.questions, answers.found[place], answers.view.passage(place)
    gold = ", ".join(dict.fromkeys(questions.gold[place])) or "no answer"
    notes = (f"gold: {gold}", f"probability: {certainty:.0%}")
    if not texts[place]:
        return MarkedText(questions.texts[place], "", "", passage, ("answer: no answer", *notes))
    start, end = spans.starts[0], spans.ends[0]
    return MarkedText(
        questions.texts[place],
        passage[:start],
        passage[start:end],
        passage[end:],
        notes,
    )
