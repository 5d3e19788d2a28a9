"""A view turns a corpus into numbered examples."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ramify.batching.forest import Ints


@dataclass(frozen=True)
class Example:
    """A unit of training: targets, their weights, and the nodes that each reads, oldest first, one target after the other."""

    targets: Ints
    weight: NDArray[np.float64]
    context: Ints
    context_lengths: Ints
    sampling_probability: NDArray[np.float64] | None = None
    """For each node that is read: the probability with which it was drawn, where others were left out at random."""


class View(ABC):
    """Examples of a forest, by number."""

    @property
    @abstractmethod
    def costs(self) -> Ints:
        """Tokens that each example adds to a batch, before its context is shared with others; at most, where `max_context`
        cuts the context short."""

    @property
    @abstractmethod
    def weights(self) -> NDArray[np.float64]:
        """Sum of the targets' weights of each example."""

    @property
    @abstractmethod
    def sizes(self) -> Ints:
        """Number of targets of each example."""

    @property
    @abstractmethod
    def target_tokens(self) -> Ints:
        """Tokens of each example's targets alone: equal for views that differ only in what a target reads."""

    @abstractmethod
    def example(self, number: int, epoch: int = 0) -> Example:
        """One example; `epoch` redraws what a view draws at random."""

    def __len__(self) -> int:
        return len(self.costs)
