"""Scores of predicted parents of comments: per comment, and per conversation (Zhu et al. 2020)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from ramify.metrics.intervals import Interval, bootstrap_ratio

Counts = Int[NDArray, " conversation"]


@dataclass(frozen=True)
class ReplyCounts:
    """Counts by conversation, of all conversations with comments."""

    comments: Counts
    correct: Counts
    """Comments whose parent was found."""
    first_correct: Counts
    """1 where the parent of the first comment was found, whose only candidate is the post."""

    @classmethod
    def count(cls, predicted: Int[NDArray, " comment"], gold: Int[NDArray, " comment"], lengths: Counts) -> "ReplyCounts":
        """From predicted and gold parents, with the number of comments of each conversation."""
        lengths = lengths[lengths > 0]
        starts = np.cumsum(lengths) - lengths
        correct = (predicted == gold).astype(np.int64)
        return cls(lengths, np.add.reduceat(correct, starts) if len(starts) else lengths, correct[starts])

    def scores(self) -> dict[str, float | None]:
        """Percentages; None where there is nothing to score.

        `graph_accuracy`: comments whose parent was found. `graph_accuracy_without_first`: the same, without the first comment
        of each conversation. `conv_accuracy`: conversations in which every parent was found.
        """
        return {
            name: 100 * float(correct.sum() / counts.sum()) if counts.any() else None
            for name, (correct, counts) in self.sums().items()
        }

    def intervals(self, *, level: float = 0.95, resamples: int = 1000) -> dict[str, Interval]:
        """Bootstrap intervals of the scores that are not None, over conversations drawn with replacement."""
        return {
            name: bootstrap_ratio(100.0 * correct, counts, level=level, resamples=resamples)
            for name, (correct, counts) in self.sums().items()
            if counts.any()
        }

    def sums(self) -> dict[str, tuple[Counts, Counts]]:
        """Numerator and denominator of each score, by conversation."""
        whole = (self.correct == self.comments).astype(np.int64)
        return {
            "graph_accuracy": (self.correct, self.comments),
            "graph_accuracy_without_first": (self.correct - self.first_correct, self.comments - 1),
            "conv_accuracy": (whole, np.ones_like(whole)),
        }
