"""Scores of answers to questions about a passage, as the official scripts of SQuAD 1.1 and 2.0 define them.

Rajpurkar et al. 2016, section 6.1, and Rajpurkar et al. 2018, section 2. All scores are from 0 to 1.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from ramify.metrics.classification import MostFrequent, Predictions

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

Rules = Literal["1.1", "2.0"]
"""1.1: every question has an answer in the passage. 2.0: some have none, and an empty text says so."""

NO_ANSWER = ""
"""The answer that the passage holds no answer."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
"""ASCII alone: both scripts keep quotation marks and dashes of other scripts."""
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalized(text: str) -> str:
    """The text in lower case, without ASCII punctuation and articles, and with single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, gold: Sequence[str], rules: Rules) -> float:
    """1 if the answer equals one of the gold answers after normalization. No gold answer: the passage holds none."""
    own = normalized(answer)
    return float(any(own == normalized(text) for text in _counted(gold, rules)))


def f1(answer: str, gold: Sequence[str], rules: Rules) -> float:
    """The harmonic mean of precision and recall of the answer's words, for the most similar gold answer.

    In the rules of 2.0, two empty texts agree; in those of 1.1, they have no word in common.
    """
    return max(_overlap(normalized(answer).split(), normalized(text).split(), rules) for text in _counted(gold, rules))


def _counted(gold: Sequence[str], rules: Rules) -> Sequence[str]:
    """The gold answers that an answer is compared with. The rules of 2.0 leave out those without a word."""
    if rules == "2.0":
        gold = [text for text in gold if normalized(text)]
    return gold or [NO_ANSWER]


def _overlap(own: list[str], other: list[str], rules: Rules) -> float:
    if rules == "2.0" and not (own and other):
        return float(own == other)
    common = (Counter(own) & Counter(other)).total()
    return 2 * common / (len(own) + len(other)) if common else 0.0


@dataclass(frozen=True, eq=False)
class AnswerScores(Predictions):
    """The scores of answers, one per question."""

    exact: Floats
    f1: Floats
    has_answer: Flags
    """Whether the passage holds an answer."""
    rules: Rules
    texts: NDArray[Any]
    """The answers; `NO_ANSWER` for none."""

    def __len__(self) -> int:
        return len(self.exact)

    @property
    def truth(self) -> NDArray[Any]:
        return self.has_answer

    def take(self, rows: Int[NDArray, " kept"]) -> Self:
        parts = {name: getattr(self, name)[rows] for name in ("exact", "f1", "has_answer", "texts")}
        return replace(self, **parts)

    @property
    def most_frequent(self) -> MostFrequent:
        return MostFrequent.of(self.texts.tolist())

    def named(self, value: str, labels: Sequence[str]) -> str:
        return value or "no answer"

    @property
    def metrics(self) -> Mapping[str, Callable[[], float]]:
        """The means over all questions. In the rules of 2.0, also over those with an answer and those without one; a part
        without a question has no mean."""
        parts = {"": np.ones_like(self.has_answer)}
        if self.rules == "2.0":
            parts |= {"has_answer_": self.has_answer, "no_answer_": ~self.has_answer}
        return {
            f"{part}{name}": lambda values=values[chosen]: float(values.mean())
            for part, chosen in parts.items()
            if chosen.any()
            for name, values in (("exact_match", self.exact), ("f1", self.f1))
        }


def score_answers(answers: Sequence[str], gold: Sequence[Sequence[str]], rules: Rules) -> AnswerScores:
    """Score the answer to each question. A question without gold answers has none in its passage."""
    pairs = list(zip(answers, gold, strict=True))
    return AnswerScores(
        np.array([exact_match(answer, texts, rules) for answer, texts in pairs], dtype=np.float64),
        np.array([f1(answer, texts, rules) for answer, texts in pairs], dtype=np.float64),
        np.array([bool(texts) for texts in gold], dtype=bool),
        rules,
        np.array(answers, dtype=object),
    )


@dataclass(frozen=True)
class Thresholds:
    """The mean score for every threshold of the null score that makes a difference, in ascending order.

    A question whose null score exceeds the threshold has no answer.
    """

    values: Floats
    scores: Floats
    answered: Floats
    """The share of questions that are answered."""

    @property
    def best(self) -> int:
        """The place of the best threshold; of equally good ones, the lowest, as in the official script."""
        return int(np.argmax(self.scores))


def null_thresholds(null_scores: Floats, scores: Floats, has_answer: Flags) -> Thresholds:
    """Compute the mean score at every threshold (Rajpurkar et al. 2018, `find_best_thresh` of the official script).

    `scores` are those of the best spans. The first threshold lies below all null scores, and the others are null scores. So
    questions with one null score are answered together, which the official script overlooks.
    """
    order = np.argsort(null_scores, kind="stable")
    values = null_scores[order]
    without = (~has_answer).astype(np.float64)
    gains = np.concatenate([[0.0], np.cumsum((scores - without)[order])])
    last = np.flatnonzero(np.append(values[1:] != values[:-1], True)) + 1
    ends = np.concatenate([[0], last])
    lowest = np.nextafter(values[0], -np.inf)
    return Thresholds(
        np.concatenate([[lowest], values[last - 1]]),
        (without.sum() + gains[ends]) / len(values),
        ends / len(values),
    )
