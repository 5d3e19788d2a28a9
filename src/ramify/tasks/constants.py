"""The losses of the best predictions that read nothing, beside which meters show what a model has learned.

A constant is kept as sums, so the constants of several batches add up to that of all their predictions. It has the weights of
its loss, and so the same unit.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from operator import add
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor


class Constant(ABC):
    """The least loss of a prediction that is the same for all inputs."""

    @property
    @abstractmethod
    def total(self) -> float | None:
        """The sum of the loss over all predictions; None: the loss has no such prediction."""

    @abstractmethod
    def __add__(self, other: Any) -> Self:
        """The constant of the predictions of both, which are of one class."""


@dataclass(frozen=True)
class NoConstant(Constant):
    """A loss without labels, such as a regularizer, for which no constant prediction is a measure."""

    @property
    def total(self) -> None:
        return None

    def __add__(self, other: Self) -> Self:
        return self


@dataclass(frozen=True)
class Frequencies(Constant):
    """Cross-entropies of labels, predicted by their frequencies alone.

    Few labels make the entropy of their own frequencies too small, so it is corrected (Miller and Madow 1955).
    """

    weights: Float[Tensor, " class"]
    """The sum of the weights of each class's labels."""
    squares: float
    """The sum of the squares of all weights."""
    smoothing: float = 0.0
    """Label smoothing: the share of each label that is spread over all classes."""

    @classmethod
    def of(
        cls,
        labels: Int[Tensor, " label"],
        weights: Float[Tensor, " label"],
        classes: int,
        smoothing: float = 0.0,
    ) -> "Frequencies":
        weights = weights.detach().double().cpu()
        sums = torch.zeros(classes, dtype=torch.float64).index_add(0, labels.cpu(), weights)
        return cls(sums, float(weights.square().sum()), smoothing)

    @property
    def total(self) -> float:
        whole = float(self.weights.sum())
        if not whole:
            return 0.0
        share = self.weights / whole
        smooth = (1 - self.smoothing) * share + self.smoothing / len(share)
        entropy = -float(torch.xlogy(smooth, smooth).sum())
        seen = int((self.weights > 0).sum())
        return whole * entropy + (seen - 1) / 2 * self.squares / whole

    def __add__(self, other: Self) -> Self:
        return replace(self, weights=self.weights + other.weights, squares=self.squares + other.squares)


@dataclass(frozen=True)
class Known(Constant):
    """A sum that each batch knows: of ln N for choices among N candidates, which differ from batch to batch."""

    value: float

    @property
    def total(self) -> float:
        return self.value

    def __add__(self, other: Self) -> Self:
        return replace(self, value=self.value + other.value)


@dataclass(frozen=True)
class SquaredError(Constant):
    """Squared errors of numbers, predicted by their mean."""

    count: float
    sum: float
    squares: float
    scale: float
    """The weight of the loss."""

    @classmethod
    def of(cls, numbers: Float[Tensor, " number"], scale: float) -> "SquaredError":
        numbers = numbers.detach().double()
        return cls(float(len(numbers)), float(numbers.sum()), float(numbers.square().sum()), scale)

    @property
    def total(self) -> float:
        return self.scale * max(0.0, self.squares - self.sum**2 / self.count) if self.count else 0.0

    def __add__(self, other: Self) -> Self:
        return replace(self, count=self.count + other.count, sum=self.sum + other.sum, squares=self.squares + other.squares)


@dataclass(frozen=True)
class Bernoulli(Constant):
    """Binary cross-entropies, predicted by one probability for all."""

    positive: float
    """The sum of the weights of all labels 1."""
    negative: float

    @property
    def total(self) -> float:
        whole = self.positive + self.negative
        return sum(part * math.log(whole / part) for part in (self.positive, self.negative) if part)

    def __add__(self, other: Self) -> Self:
        return replace(self, positive=self.positive + other.positive, negative=self.negative + other.negative)


@dataclass(frozen=True)
class Several(Constant):
    """The constant of a loss that is a sum of several."""

    parts: tuple[Constant, ...]

    @property
    def total(self) -> float | None:
        totals = [total for part in self.parts if (total := part.total) is not None]
        return sum(totals) if len(totals) == len(self.parts) else None

    def __add__(self, other: Self) -> Self:
        return replace(self, parts=tuple(map(add, self.parts, other.parts)))
