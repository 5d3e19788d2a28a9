"""Scores of choices: the share of questions whose likeliest choice is right, beside chance."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from ramify.metrics.classification import MostFrequent, Predictions


@dataclass(frozen=True, eq=False)
class ChoicePredictions(Predictions):
    """The right and the likeliest choice of each question, as places among its choices."""

    right: Int[NDArray, " question"]
    predicted: Int[NDArray, " question"]
    counts: Int[NDArray, " question"]
    """The number of choices."""

    def __len__(self) -> int:
        return len(self.right)

    @property
    def truth(self) -> NDArray[np.int64]:
        return self.right

    def take(self, rows: Int[NDArray, " kept"]) -> Self:
        return replace(self, right=self.right[rows], predicted=self.predicted[rows], counts=self.counts[rows])

    @property
    def most_frequent(self) -> MostFrequent:
        return MostFrequent.of(self.predicted.tolist())

    def named(self, value: int, labels: Sequence[str]) -> str:
        return f"choice {value + 1}"

    @property
    def metrics(self) -> Mapping[str, Callable[[], float]]:
        return {
            "accuracy": lambda: float(np.mean(self.right == self.predicted)),
            "chance": lambda: float(np.mean(1 / self.counts)),
        }
