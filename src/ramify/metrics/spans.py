"""Scores of tags: those of CoNLL-2000's shared task for spans (Tjong Kim Sang & Buchholz 2000), and those of single words."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from ramify.dataset.bio import spans_of
from ramify.metrics.classification import MostFrequent, Predictions


@dataclass(frozen=True)
class SpanCounts:
    """Spans, or words, of one type or of all."""

    right: int
    """Predicted spans that are annotated, too: same first and last token, same type."""
    predicted: int
    annotated: int

    @property
    def precision(self) -> float:
        """The share of predicted spans that are right; as conlleval, 0 if there are none."""
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of annotated spans that are found; as conlleval, 0 if there are none."""
        return self.right / self.annotated if self.annotated else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall; as conlleval, 0 if no span is right."""
        return 2 * self.right / (self.predicted + self.annotated) if self.right else 0.0


@dataclass(frozen=True, eq=False)
class TagPredictions(Predictions):
    """Predicted tags of texts beside the annotated ones, as counts."""

    unit: Literal["span", "word"]
    """The unit of the counts: spans, or the words of each tag."""
    types: tuple[str, ...]
    """The types of spans, or the tags, in alphabetical order."""
    right: Int[NDArray, "text type"]
    predicted: Int[NDArray, "text type"]
    annotated: Int[NDArray, "text type"]
    right_words: Int[NDArray, " text"]
    words: Int[NDArray, " text"]

    def __len__(self) -> int:
        return len(self.words)

    @property
    def truth(self) -> NDArray[Any]:
        return np.column_stack([self.annotated, self.words])

    def take(self, rows: Int[NDArray, " kept"]) -> Self:
        names = ("right", "predicted", "annotated", "right_words", "words")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    @property
    def most_frequent(self) -> MostFrequent:
        """The most frequent tag of a word. Of spans, how many texts have none: no other prediction is one for all texts."""
        if self.unit == "span":
            return MostFrequent("no span", int((self.predicted.sum(1) == 0).sum()), len(self))
        counts = dict(zip(self.types, self.predicted.sum(0).tolist(), strict=True))
        return MostFrequent.of(Counter(counts).elements(), "word")

    def named(self, value: str, labels: Sequence[str]) -> str:
        return value

    @property
    def per_type(self) -> dict[str, SpanCounts]:
        sums = (counts.sum(0).tolist() for counts in (self.right, self.predicted, self.annotated))
        return {kind: SpanCounts(*counts) for kind, *counts in zip(self.types, *sums, strict=True)}

    @property
    def whole(self) -> SpanCounts:
        """The counts over all types, of which conlleval computes its main scores."""
        return SpanCounts(*(int(counts.sum()) for counts in (self.right, self.predicted, self.annotated)))

    @property
    def accuracy(self) -> float:
        """The share of words with the annotated tag; 0 without words."""
        return float(self.right_words.sum()) / max(1, int(self.words.sum()))

    @property
    def metrics(self) -> Mapping[str, Callable[[], float]]:
        main: dict[str, Callable[[], float]] = {"accuracy": lambda: self.accuracy}
        if self.unit == "span":
            spans: dict[str, Callable[[], float]] = {
                "span_f1": lambda: self.whole.f1,
                "precision": lambda: self.whole.precision,
                "recall": lambda: self.whole.recall,
            }
            main = spans | main
        else:
            main["macro_f1"] = lambda: sum(counts.f1 for counts in self.per_type.values()) / max(1, len(self.types))
        return main | {f"f1_{kind}": partial(self._f1, kind) for kind in self.types if kind}

    def _f1(self, kind: str) -> float:
        return self.per_type[kind].f1


def score_spans(
    annotated: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], types: Sequence[str] = ()
) -> TagPredictions:
    """Compare the spans of texts, which do not cross their borders. `types` are scored even if no span has them.

    Raises `ValueError` if the numbers of texts or of their words differ, and for a tag that has no known prefix.
    """
    spans = [[[(span.type, span) for span in spans_of(tags)] for tags in texts] for texts in (annotated, predicted)]
    return _compared("span", annotated, predicted, spans[0], spans[1], types)


def score_tags(
    annotated: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], types: Sequence[str] = ()
) -> TagPredictions:
    """Compare tags that stand alone, word by word. `types` are tags that are scored even if no word has them.

    Raises `ValueError` if the numbers of texts or of their words differ."""
    words = [[[(tag, place) for place, tag in enumerate(tags)] for tags in texts] for texts in (annotated, predicted)]
    return _compared("word", annotated, predicted, words[0], words[1], types)


def _compared(
    unit: Literal["span", "word"],
    annotated: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    true_units: Sequence[Sequence[tuple[str, Any]]],
    found_units: Sequence[Sequence[tuple[str, Any]]],
    always: Sequence[str],
) -> TagPredictions:
    """Count units, each of which is a type and a place."""
    types = sorted({*always} | {kind for row in (*true_units, *found_units) for kind, _ in row})
    number = {kind: place for place, kind in enumerate(types)}
    counts = np.zeros((3, len(annotated), len(number)), dtype=np.int64)
    right_words = np.zeros(len(annotated), dtype=np.int64)
    for text, (truth, guess) in enumerate(zip(annotated, predicted, strict=True)):
        right_words[text] = sum(one == other for one, other in zip(truth, guess, strict=True))
        given, found = set(true_units[text]), set(found_units[text])
        for row, units in enumerate((given & found, found, given)):
            for kind, _ in units:
                counts[row, text, number[kind]] += 1
    words = np.array([len(tags) for tags in annotated], dtype=np.int64)
    right, predicted_units, annotated_units = counts
    return TagPredictions(unit, tuple(types), right, predicted_units, annotated_units, right_words, words)
