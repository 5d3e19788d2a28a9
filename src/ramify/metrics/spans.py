"""Spans from token tags, and the scores of CoNLL-2000's shared task (Tjong Kim Sang & Buchholz 2000) for them.

A tag is `O`, or a prefix, a hyphen and a type. The prefixes are those of IOB1 and BIO (B, I) and of BIOES (E, S).
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

OUTSIDE = "O"
PREFIXES = ("B", "I", "E", "S")


class Span(NamedTuple):
    """The tokens from `start` up to, but without, `stop`."""

    start: int
    stop: int
    type: str


def tag_parts(tag: str) -> tuple[str, str]:
    """The prefix of a tag and its type, which is empty for `O` and for a prefix alone. Raises `ValueError` for any other tag.

    The type may hold hyphens.
    """
    prefix, _, kind = tag.partition("-")
    if tag != OUTSIDE and (prefix not in PREFIXES or tag.endswith("-")):
        raise ValueError(f"{tag!r} is neither O nor B, I, E or S with a type, such as B-LOC")
    return prefix, kind


def spans_of(tags: Sequence[str]) -> list[Span]:
    """The spans of a sequence of tags by the rules of conlleval, in order. They hold for IOB1, BIO and BIOES alike.

    A span begins at B and S, at a tag whose type is not that of the tag before, and behind O, E and S. So a sequence that
    breaks the rules of its scheme, such as O I-LOC, has spans, too. Raises `ValueError` for a tag that has no known prefix.
    """
    spans: list[Span] = []
    start, before, kind = 0, OUTSIDE, ""
    for place, tag in enumerate(tags):
        prefix, its_kind = tag_parts(tag)
        if prefix == OUTSIDE or prefix in "BS" or before in (OUTSIDE, "E", "S") or its_kind != kind:
            if before != OUTSIDE:
                spans.append(Span(start, place, kind))
            start = place
        before, kind = prefix, its_kind
    if before != OUTSIDE:
        spans.append(Span(start, len(tags), kind))
    return spans


def bio_tags(spans: Iterable[Span], length: int) -> list[str]:
    """The BIO tags of a sequence of this length. Raises `ValueError` for spans that overlap, are empty, or exceed it."""
    tags = [OUTSIDE] * length
    for start, stop, kind in spans:
        if not 0 <= start < stop <= length:
            raise ValueError(f"a span from {start} to {stop} does not fit into {length} tokens")
        if any(tag != OUTSIDE for tag in tags[start:stop]):
            raise ValueError(f"the span from {start} to {stop} overlaps another")
        tags[start:stop] = [f"B-{kind}", *[f"I-{kind}"] * (stop - start - 1)]
    return tags


def is_bio(tags: Sequence[str]) -> bool:
    """Whether I stands only behind B or I of its type, and no tag has another prefix."""
    parts = [("O", ""), *map(tag_parts, tags)]
    return all(
        after[0] in ("O", "B") or (after[0] == "I" and before[0] in ("B", "I") and before[1] == after[1])
        for before, after in itertools.pairwise(parts)
    )


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
