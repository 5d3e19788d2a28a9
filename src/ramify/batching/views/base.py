"""A view turns a corpus into numbered examples."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
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


class FrozenView(View[ExampleT], ABC):
    """Examples of which a frozen model makes vectors: one per row, or one per token of all rows of an example."""

    features: NDArray[np.float32] | None = None
    """[vector, layer, dim]: the vectors of all examples, one example after the other; None: they are not known."""

    @property
    @abstractmethod
    def vectors(self) -> Ints:
        """The number of vectors of each example."""

    @property
    @abstractmethod
    def is_fixed(self) -> bool:
        """Whether an example has the same rows in every epoch, and so the same vectors."""

    @abstractmethod
    def content(self) -> Iterator[Ints]:
        """Yield all that the rows depend on beside the settings of the input and the texts of the data."""

    @cached_property
    def offsets(self) -> Ints:
        """Where the vectors of each example begin; and behind the last one, their number."""
        return np.concatenate([[0], np.cumsum(self.vectors)])

    def features_of(self, number: int) -> NDArray[np.float32] | None:
        """[vector, layer, dim]: the vectors of an example, if they are known."""
        return None if self.features is None else self.features[self.offsets[number] : self.offsets[number + 1]]


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
