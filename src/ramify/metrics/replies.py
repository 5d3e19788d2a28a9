"""Whom comments answer, scored: comment by comment, and conversation by conversation (Zhu et al. 2020)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from ramify.metrics.intervals import Interval, bootstrap_ratio

Counts = Int[NDArray, " conversation"]


@dataclass(frozen=True)
class Replies:
    """Of each conversation that has any comments: how many, and of how many the parent was found."""

    comments: Counts
    right: Counts
    first_right: Counts
    """1 where the parent of the first comment was found, which can answer nothing but the post."""

    @classmethod
    def counted(cls, answered: Int[NDArray, " comment"], parent: Int[NDArray, " comment"], lengths: Counts) -> "Replies":
        """From what comments are said to answer and what they do answer, `lengths` of them to a conversation."""
        lengths = lengths[lengths > 0]
        starts = np.cumsum(lengths) - lengths
        right = (answered == parent).astype(np.int64)
        return cls(lengths, np.add.reduceat(right, starts) if len(starts) else lengths, right[starts])

    def scores(self) -> dict[str, float | None]:
        """Percentages; None where there is nothing to score.

        `graph_accuracy`: of comments whose parent was found; `…_without_first`: without the first of each conversation;
        `conv_accuracy`: of conversations in which every parent was found.
        """
        return {
            name: 100 * float(right.sum() / counts.sum()) if counts.any() else None
            for name, (right, counts) in self.sums().items()
        }

    def intervals(self, *, level: float = 0.95, resamples: int = 1000) -> dict[str, Interval]:
        """Bootstrap intervals of those of `scores` that there are, conversations drawn with replacement."""
        return {
            name: bootstrap_ratio(100.0 * right, counts, level=level, resamples=resamples)
            for name, (right, counts) in self.sums().items()
            if counts.any()
        }

    def sums(self) -> dict[str, tuple[Counts, Counts]]:
        """Of each score: what is right of how much, by conversation."""
        whole = (self.right == self.comments).astype(np.int64)
        return {
            "graph_accuracy": (self.right, self.comments),
            "graph_accuracy_without_first": (self.right - self.first_right, self.comments - 1),
            "conv_accuracy": (whole, np.ones_like(whole)),
        }
