"""Answers to questions about a passage, as spans of its text (Devlin et al. 2019, sections 4.2 and 4.3)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import nn

from ramify.batching.forest import Ints
from ramify.batching.labelled_batch import LabelledBatch
from ramify.batching.question_windows import Windows, row_parts
from ramify.batching.views.questions import QuestionInput, QuestionView
from ramify.dataset.questions import Questions
from ramify.errors import RamifyError, counted
from ramify.inference.answers import AnswerSpan, SpanAnswer
from ramify.inference.base import TOKENS, Pipeline, verb
from ramify.inference.label_pipeline import label_batches
from ramify.metrics.answers import NO_ANSWER
from ramify.tasks.base import Readings
from ramify.tasks.span_qa import SpanQA

N_BEST = 20
"""The number of spans among which a score is a share (Devlin et al. 2019, the published code)."""


@dataclass(frozen=True)
class FoundSpans:
    """The best spans of a question's passage, best first, in characters, and the score that it holds no answer."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    scores: tuple[float, ...]
    null: float | None
    """The score of no answer, which the threshold is compared with; None: every question has an answer."""


class Answerer(Pipeline):
    """Answers to questions about passages."""

    verbs: ClassVar[tuple[str, ...]] = ("answer",)
    usage: ClassVar[tuple[str, ...]] = ('model.answer("Where?", "Rome is in Italy.").best.text',)
    task: SpanQA
    input: QuestionInput

    def __init__(self, task: SpanQA) -> None:
        self.task = task
        self.backbone = task.backbone
        self.tokenizer = task.tokenizer
        self.input = task.input

    @property
    def module(self) -> nn.Module:
        return self.task

    def parts(self) -> dict[str, Any]:
        return {"task": self.task.config, "input": self.input}

    @verb
    def answer(self, question: str | Sequence[str], passage: str, *, n_best: int = 1) -> SpanAnswer | list[SpanAnswer]:
        """Answer a question, or each of a list of questions, by spans of the passage.

        The first of the `n_best` spans is the answer. A model of SQuAD 2.0 may find that the passage holds none; this is then
        the first of them, with an empty text. Raises `RamifyError` for an empty question or passage.
        """
        texts = [question] if isinstance(question, str) else list(question)
        for text in texts:
            if not text.strip():
                raise RamifyError(f"question={text!r} holds no words. Ask a question.")
        if not passage.strip():
            raise RamifyError(
                f"passage={passage[:20]!r} holds no words, so it has no answer. Pass the text that holds the answer."
            )
        if n_best < 1:
            raise RamifyError(f"n_best={n_best} asks for no answer. Set it to at least 1.")
        view = self.view(Questions.about(texts, [passage] * len(texts)))
        found = find_spans(self.task, view, max(n_best, N_BEST))
        answers = [
            self._answer(text, passage, spans, n_best, self._notes(view, place))
            for place, (text, spans) in enumerate(zip(texts, found, strict=True))
        ]
        return answers[0] if isinstance(question, str) else answers

    def view(self, questions: Questions) -> QuestionView:
        """The questions as the model reads them."""
        return QuestionView(questions, self.tokenizer, self.task.collator.layout, self.input)

    def _notes(self, view: QuestionView, place: int) -> tuple[str, ...]:
        if place not in view.long_questions:
            return ()
        return (
            f"the question has {counted(view.long_questions[place], 'token')}, of which the first "
            f"{self.input.question_tokens} are read (input.question_tokens).",
        )

    def _answer(self, question: str, passage: str, found: FoundSpans, n_best: int, notes: tuple[str, ...]) -> SpanAnswer:
        if not found.scores:
            return SpanAnswer(question, (AnswerSpan(NO_ANSWER, 0, 0, 1.0, True),), notes=notes)
        spans = [(passage[start:end], start, end, False) for start, end in zip(found.starts, found.ends, strict=True)]
        scores = list(found.scores)
        if found.null is not None:
            # So it comes first if and only if the null score exceeds the threshold.
            spans.append((NO_ANSWER, 0, 0, True))
            scores.append(scores[0] + found.null - float(self.task.threshold))
        shares = np.exp(np.array(scores) - max(scores))
        shares /= shares.sum()
        best = np.argsort(-shares, kind="stable")[:n_best].tolist()
        return SpanAnswer(
            question,
            tuple(
                AnswerSpan(text, start, end, float(shares[place]), none)
                for place in best
                for text, start, end, none in [spans[place]]
            ),
            notes=notes,
        )


def decided(found: Sequence[FoundSpans], view: QuestionView, threshold: float) -> list[str]:
    """The answer to each question: the text of the best span, or no text if the null score exceeds the threshold."""
    return [
        NO_ANSWER if not spans.starts or (spans.null is not None and spans.null > threshold) else text
        for spans, text in zip(found, best_texts(found, view), strict=True)
    ]


def best_texts(found: Sequence[FoundSpans], view: QuestionView) -> list[str]:
    """The text of the best span of each question; empty where there is none."""
    passages = (view.questions.passages[place] for place in view.questions.passage.tolist())
    return [
        passage[spans.starts[0] : spans.ends[0]] if spans.starts else NO_ANSWER
        for spans, passage in zip(found, passages, strict=True)
    ]


@torch.no_grad()
def find_spans(
    task: SpanQA,
    view: QuestionView,
    n_best: int = N_BEST,
    *,
    progress: Callable[[int], None] | None = None,
    read: Callable[[LabelledBatch, Readings], None] | None = None,
    tokens: int = TOKENS,
) -> list[FoundSpans]:
    """The best spans of each question of a view, over all windows of its passage. Of spans with one text, the best is kept.

    `read` is given each batch with its readings, for which the view needs answers.
    """
    numbers: list[Ints] = []
    parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]] = []
    with task.evaluating():
        for questions, whole in label_batches(view, task.collator, progress, tokens):
            done = 0
            for batch in row_parts(whole, tokens):
                moved = batch.to(task.device)
                spans = task.spans(moved, n_best)
                shift = Windows.of(batch).shift[:, None]
                null = torch.zeros_like(spans.scores[:, 0]) if spans.null is None else spans.null
                first, last = (places.cpu().numpy() + shift for places in (spans.starts, spans.ends))
                parts.append((first, last, spans.scores.double().cpu().numpy(), null.double().cpu().numpy()))
                numbers.append(questions[done : done + len(batch.order)])
                done += len(batch.order)
                if read is not None:
                    read(moved, task.readings(moved, "main", None, None))
    return _merged(task, view, numbers, parts, n_best)


def _merged(
    task: SpanQA,
    view: QuestionView,
    numbers: Sequence[Ints],
    parts: Sequence[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]],
    n_best: int,
) -> list[FoundSpans]:
    """The spans of all windows of each question, in the order of the questions."""
    question = np.concatenate([np.repeat(rows, first.shape[1]) for rows, (first, *_) in zip(numbers, parts, strict=True)])
    first, last, scores = (np.concatenate([part[place].ravel() for part in parts]) for place in range(3))
    possible = scores > -np.inf
    question, first, last, scores = question[possible], first[possible], last[possible], scores[possible]
    null = np.full(len(view), np.inf)
    np.minimum.at(null, np.concatenate(numbers), np.concatenate([part[3] for part in parts]))
    start, end = view.tokens.characters(view.questions.passage[question], first, last)
    order = np.lexsort((-scores, question))
    borders = np.searchsorted(question[order], np.arange(len(view) + 1))
    return [
        _best(task, view, number, order[borders[number] : borders[number + 1]], start, end, scores, float(null[number]), n_best)
        for number in range(len(view))
    ]


def _best(
    task: SpanQA,
    view: QuestionView,
    number: int,
    places: Ints,
    start: Ints,
    end: Ints,
    scores: Float[NDArray, " span"],
    null: float,
    n_best: int,
) -> FoundSpans:
    passage = view.questions.passages[view.questions.passage[number]]
    kept: dict[str, int] = {}
    for place in places.tolist():
        text = passage[start[place] : end[place]]
        if text and len(kept) < n_best:
            kept.setdefault(text, place)
    chosen = list(kept.values())
    values = scores[chosen]
    return FoundSpans(
        tuple(start[chosen].tolist()),
        tuple(end[chosen].tolist()),
        tuple(values.tolist()),
        task.null_score(null, float(values[0]) if chosen else 0.0),
    )
