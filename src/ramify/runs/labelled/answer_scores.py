"""Held-out scores of answers to questions about passages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify.batching.labelled_batch import LabelledBatch
from ramify.batching.views.questions import QuestionView
from ramify.dataset.questions import read_questions
from ramify.dataset.store import Split, Store
from ramify.inference.answer import Answerer, FoundSpans, best_texts, decided, find_spans
from ramify.metrics.answers import NO_ANSWER, AnswerScores, Rules, Thresholds, null_thresholds, score_answers
from ramify.runs.base import scoring
from ramify.runs.labelled.scores import Scored
from ramify.tasks.base import Readings
from ramify.tasks.span_qa import SpanQA

WITHOUT_QUESTION = "without the question"
"""The name of the floor."""

FLOOR_WORDS = (1, 2, 4, 8, 16)
"""The numbers of words that begin a passage and are tried as its answer."""


@dataclass(frozen=True)
class SplitAnswers:
    """The questions of a split with the spans that a model finds."""

    view: QuestionView
    found: Sequence[FoundSpans]
    rules: Rules

    def scores(self, threshold: float) -> AnswerScores:
        """The scores of the answers at a threshold of the null score."""
        return score_answers(self.texts(threshold), self.view.questions.gold, self.rules)

    def texts(self, threshold: float) -> list[str]:
        return decided(self.found, self.view, threshold)

    def thresholds(self) -> Thresholds | None:
        """F1 at every threshold of the null score; None: the model has none."""
        null = [spans.null for spans in self.found]
        if any(score is None for score in null):
            return None
        best = score_answers(best_texts(self.found, self.view), self.view.questions.gold, self.rules)
        return null_thresholds(np.array(null, dtype=np.float64), best.f1, best.has_answer)

    def floor(self) -> dict[str, float]:
        """The best scores of answers that do not read the question: no answer, or the first words of the passage."""
        gold = self.view.questions.gold
        passages = [self.view.passage(number) for number in range(len(self.view))]
        trials = [[NO_ANSWER] * len(gold)] + [[first_words(text, count) for text in passages] for count in FLOOR_WORDS]
        means = [score_answers(trial, gold, self.rules).scores() for trial in trials]
        return {name: max(mean[name] for mean in means) for name in means[0]}


def first_words(text: str, count: int) -> str:
    return " ".join(text.split(maxsplit=count)[:count])


def answers_of(
    task: SpanQA,
    view: QuestionView,
    *,
    progress: Callable[[int], None] | None = None,
    read: Callable[[LabelledBatch, Readings], None] | None = None,
) -> SplitAnswers:
    """Answer all questions of a view."""
    # The rules of 2.0 apply if the model or the data know questions without an answer.
    rules = "1.1" if task.config.null == "none" and not view.questions.counts.impossible else "2.0"
    return SplitAnswers(view, find_spans(task, view, progress=progress, read=read), rules)


def held_out(task: SpanQA, store: Store, split: Split) -> QuestionView:
    """The questions of a split that are scored: all that have a label."""
    return QuestionView(read_questions(store, split), task.tokenizer, task.collator.layout, task.input)


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoredAnswers(Scored):
    """The questions of a split with the scores of a model's answers."""

    answers: SplitAnswers
    predictions: AnswerScores
    constant: Mapping[str, float]
    """The metrics of the best answers that do not read the question."""

    example = "question"
    floor_name = WITHOUT_QUESTION
    floor_is = "the best answers that do not read the question: no answer, or the first words of the passage"

    @property
    def floor(self) -> Mapping[str, float]:
        return self.constant


def score_questions(model: Answerer, store: Store, split: Split, options: Mapping[str, Any]) -> ScoredAnswers:
    """Answer the questions of a split. Options: those of `Scored`."""
    task = model.task
    view = held_out(task, store, split)
    with scoring(model, len(view), options) as advance:
        answers = answers_of(task, view, progress=advance)
    nodes = view.questions.nodes
    return ScoredAnswers(
        answers=answers,
        predictions=answers.scores(float(task.threshold)),
        constant=answers.floor(),
        nodes=nodes,
        trees=store.tree_of(nodes),
        labels=(f"SQuAD {answers.rules}",),
        unknown_pieces=view.unknown(task.tokenizer),
    )
