"""The scores of CoNLL-2000's shared task for spans of tokens (Tjong Kim Sang & Buchholz 2000)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ramify.dataset.bio import spans_of


@dataclass(frozen=True)
class SpanCounts:
    """Spans of one type, or of all."""

    right: int
    """Predicted spans that are annotated, too: same first and last token, same type."""
    predicted: int
    annotated: int

    def __add__(self, other: "SpanCounts") -> "SpanCounts":
        return SpanCounts(self.right + other.right, self.predicted + other.predicted, self.annotated + other.annotated)

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


@dataclass(frozen=True)
class SpanScores:
    """The comparison of predicted with annotated tags."""

    types: Mapping[str, SpanCounts]
    """The counts of each type that is annotated or predicted, in alphabetical order."""
    right_tokens: int
    """Tokens whose predicted tag is the annotated one."""
    tokens: int

    @property
    def all(self) -> SpanCounts:
        """The counts over all types, of which conlleval computes its main scores."""
        return sum(self.types.values(), SpanCounts(0, 0, 0))

    @property
    def accuracy(self) -> float:
        """The share of tokens with the annotated tag; 0 without tokens."""
        return self.right_tokens / self.tokens if self.tokens else 0.0


def score_spans(annotated: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> SpanScores:
    """Compare sequences of tags, such as those of sentences. Spans do not cross their borders.

    Raises `ValueError` if the numbers of sequences or of their tokens differ, and for a tag that has no known prefix.
    """
    right, found, given = Counter[str](), Counter[str](), Counter[str]()
    right_tokens = tokens = 0
    for truth, guess in zip(annotated, predicted, strict=True):
        right_tokens += sum(one == other for one, other in zip(truth, guess, strict=True))
        tokens += len(truth)
        true_spans, guessed_spans = set(spans_of(truth)), set(spans_of(guess))
        given.update(span.type for span in true_spans)
        found.update(span.type for span in guessed_spans)
        right.update(span.type for span in true_spans & guessed_spans)
    types = {kind: SpanCounts(right[kind], found[kind], given[kind]) for kind in sorted(given.keys() | found.keys())}
    return SpanScores(types, right_tokens, tokens)
