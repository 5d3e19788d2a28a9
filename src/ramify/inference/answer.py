"""Answers to questions about a passage, as spans of its text (Devlin et al. 2019, sections 4.2 and 4.3)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import pairwise
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
from ramify.tasks.span_qa import SpanQA, Spans

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
        the first of them, with an empty text. Raises `RamifyError` for a question or passage without
        words.
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
        if not texts:
            return []
        view = self.view(Questions.about(texts, [passage] * len(texts)))
        if not view.tokens.lettered.any():
            raise RamifyError(
                f"passage={passage[:20]!r} holds no letter that the tokenizer keeps, so it has no answer. Pass the text that "
                "holds the answer."
            )
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
        shares = answer_shares(found, float(self.task.threshold))
        spans = [(passage[start:end], start, end, False) for start, end in zip(found.starts, found.ends, strict=True)]
        if found.null is not None:
            spans.append((NO_ANSWER, 0, 0, True))
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


def answer_shares(found: FoundSpans, threshold: float) -> Float[NDArray, " answer"]:
    """The probabilities of the spans and, behind them, of no answer if there may be none. Without any span, that of no answer
    is 1."""
    if not found.scores:
        return np.ones(1)
    scores = list(found.scores)
    if found.null is not None:
        # So it comes first if and only if the null score exceeds the threshold.
        scores.append(scores[0] + found.null - threshold)
    shares = np.exp(np.array(scores) - max(scores))
    return shares / shares.sum()


def decided(found: Sequence[FoundSpans], view: QuestionView, threshold: float) -> list[str]:
    """The answer to each question: the text of the best span, or no text if the null score exceeds the threshold."""
    return [
        NO_ANSWER if not spans.starts or (spans.null is not None and spans.null > threshold) else text
        for spans, text in zip(found, best_texts(found, view), strict=True)
    ]


def best_texts(found: Sequence[FoundSpans], view: QuestionView) -> list[str]:
    """The text of the best span of each question; empty where there is none."""
    return [
        view.passage(number)[spans.starts[0] : spans.ends[0]] if spans.starts else NO_ANSWER
        for number, spans in enumerate(found)
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
    parts: list[_WindowSpans] = []
    with task.evaluating():
        for questions, whole in label_batches(view, task.collator, progress, tokens):
            done = 0
            for batch in row_parts(whole, tokens):
                moved = batch.to(task.device)
                states = task.states(moved)
                own, done = questions[done : done + len(batch.order)], done + len(batch.order)
                parts.append(_WindowSpans.of(own, batch, task.spans(moved, states, n_best), n_best))
                if read is not None:
                    read(moved, task.state_readings(moved, states))
    spans = _WindowSpans(*(np.concatenate(column) for column in zip(*(astuple(part) for part in parts), strict=True)))
    null = np.full(len(view), np.inf)
    np.minimum.at(null, spans.question, spans.null)
    return [
        replace(found, null=task.null_score(float(least), found.scores[0] if found.scores else 0.0))
        for found, least in zip(_merged(view, spans, n_best), null, strict=True)
    ]


@dataclass(frozen=True)
class _WindowSpans:
    """The best spans of windows, as tokens of their passages."""

    question: Ints
    """[window]"""
    null: Float[NDArray, " window"]
    first: Ints
    """[window, span]"""
    last: Ints
    scores: Float[NDArray, "window span"]

    @classmethod
    def of(cls, question: Ints, batch: LabelledBatch, spans: Spans, n_best: int) -> "_WindowSpans":
        # Short rows have fewer spans.
        wider = ((0, 0), (0, n_best - spans.scores.shape[1]))
        shift = Windows.of(batch).shift[:, None]
        null = np.zeros(len(question)) if spans.null is None else spans.null.double().cpu().numpy()
        first, last = (np.pad(places.cpu().numpy() + shift, wider) for places in (spans.starts, spans.ends))
        scores = np.pad(spans.scores.double().cpu().numpy(), wider, constant_values=-np.inf)
        return cls(question, null, first, last, scores)


def _merged(view: QuestionView, spans: _WindowSpans, n_best: int) -> Iterator[FoundSpans]:
    """The spans of all windows of each question, in the order of the questions, without null scores."""
    window, place = np.nonzero(spans.scores > -np.inf)
    order = np.lexsort((-spans.scores[window, place], spans.question[window]))
    window, place = window[order], place[order]
    question, scores = spans.question[window], spans.scores[window, place].tolist()
    passage = view.questions.passage[question]
    starts, ends = view.tokens.characters(passage, spans.first[window, place], spans.last[window, place])
    borders = np.searchsorted(question, np.arange(len(view) + 1)).tolist()
    for number, (begin, stop) in enumerate(pairwise(borders)):
        text = view.passage(number)
        best: dict[str, tuple[int, int, float]] = {}
        for start, end, score in zip(starts[begin:stop].tolist(), ends[begin:stop].tolist(), scores[begin:stop], strict=True):
            if len(best) < n_best:
                best.setdefault(text[start:end], (start, end, score))
        columns = list(zip(*best.values(), strict=True)) or [(), (), ()]
        yield FoundSpans(*columns, null=None)
