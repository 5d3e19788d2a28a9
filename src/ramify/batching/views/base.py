"""A view turns a corpus into numbered examples."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ramify.batching.forest import Ints


@dataclass(frozen=True)
class Example:
    """A unit of training: targets, their weights, and the context of each, oldest node first, one target after the other."""

    targets: Ints
    weight: NDArray[np.float64]
    context: Ints
    context_lengths: Ints
    sampling_probability: NDArray[np.float64] | None = None
    """The probability with which each context node was drawn, if others were left out at random."""
    context_weight: NDArray[np.float64] | None = None
    """The weight of the losses of each context node's own vector, the same wherever the node occurs in `context`."""


ExampleT = TypeVar("ExampleT", covariant=True)


class View(ABC, Generic[ExampleT]):
    """Examples of a corpus, by number."""

    @property
    @abstractmethod
    def costs(self) -> Ints:
        """Tokens that each example adds to a batch, before examples share nodes. Randomly drawn context nodes count as
        long as those that they replace."""

    @property
    @abstractmethod
    def weights(self) -> NDArray[np.float64]:
        """Sum of the target weights of each example."""

    @property
    @abstractmethod
    def sizes(self) -> Ints:
        """Number of targets of each example."""

    @property
    @abstractmethod
    def target_tokens(self) -> Ints:
        """Tokens of each example's targets alone. They are equal for views that differ only in the context."""

    @abstractmethod
    def example(self, number: int, epoch: int = 0) -> ExampleT:
        """One example. A view's random draws depend on `epoch`."""

    def __len__(self) -> int:
        return len(self.costs)


class UnitView(View[ExampleT], ABC):
    """Examples of documents, most of which are units, such as chapters."""

    @property
    @abstractmethod
    def trees(self) -> Ints:
        """The document of each example."""

    @property
    @abstractmethod
    def apart(self) -> NDArray[np.bool_]:
        """Whether each example is no unit, but needs a batch of its own."""
