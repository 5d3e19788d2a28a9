"""Span corruption (Raffel et al. 2020, section 3.1.4): sentinels stand for spans of a text, and the target spells the spans."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ramify.batching.forest import Ints


@dataclass(frozen=True)
class SpanCounts:
    """The numbers of corrupted tokens and spans of texts, which follow from their lengths alone."""

    length: Ints
    noise: Ints
    spans: Ints

    @classmethod
    def of(cls, length: Ints, rate: float, mean_span: float) -> "SpanCounts":
        """The counts of the published code, for texts of at least two tokens: at least one is corrupted, and at least one of
        them stays before each span."""
        noise = np.clip(np.round(length * rate).astype(np.int64), 1, length - 1)
        spans = np.clip(np.round(noise / mean_span).astype(np.int64), 1, np.minimum(noise, length - noise))
        return cls(length, noise, spans)

    @property
    def source(self) -> Ints:
        """The lengths of the sources, without their ends."""
        return self.length - self.noise + self.spans

    @property
    def target(self) -> Ints:
        """The lengths of the targets with the last sentinel, without their ends."""
        return self.noise + self.spans + 1


def longest_text(rate: float, mean_span: float, source: int, target: int) -> int:
    """The number of tokens of the longest text whose corrupted form has at most so many, ends included; 1: there is none."""
    length = 1
    while True:
        counts = SpanCounts.of(np.array([length + 1]), rate, mean_span)
        if counts.source[0] >= source or counts.target[0] >= target:
            return length
        length += 1


def divided(total: int, parts: int, random: np.random.Generator) -> Ints:
    """The lengths of the parts of a random division into parts that are not empty. All divisions are equally likely."""
    borders = 1 + np.sort(random.choice(total - 1, parts - 1, replace=False))
    return np.diff(borders, prepend=0, append=total)


def corrupted(ids: Ints, kept: Ints, noise: Ints, sentinels: Sequence[int]) -> tuple[Ints, Ints]:
    """The source and the target of a text that consists of kept and of corrupted spans in turn, which have these lengths.

    A sentinel stands for each corrupted span in the source, and before it in the target. Another sentinel ends the target, as
    in Figure 2 of the paper; the published code leaves it out.
    """
    spans = np.split(ids, np.cumsum(np.stack([kept, noise], axis=1))[:-1])
    marks = [np.array([sentinel]) for sentinel in sentinels[: len(noise) + 1]]
    source = [part for pair in zip(spans[::2], marks) for part in pair]
    target = [part for pair in zip(marks, spans[1::2]) for part in pair]
    return np.concatenate(source), np.concatenate([*target, marks[-1]])
