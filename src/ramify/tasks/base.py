"""What training asks of an objective: it corrupts a batch, counts it, and yields losses one backward pass at a time."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from ramify.batch import Batch
from ramify.models.base import Backbone


class Task(nn.Module, ABC):
    """A backbone with its heads and one objective."""

    backbone: Backbone

    @abstractmethod
    def corrupt(self, batch: Batch, generator: torch.Generator) -> Batch:
        """Draw what the objective draws (masks, orders), on the batch's device."""

    @abstractmethod
    def counts(self, batch: Batch) -> dict[str, float]:
        """What every named loss of a corrupted batch is to be divided by, summed over a step; known before any forward pass."""

    @abstractmethod
    def losses(self, batch: Batch, divisors: Mapping[str, float]) -> Iterator[dict[str, Tensor]]:
        """Named losses, already divided, one dictionary a backward pass. Each is to be back-propagated before the next is
        asked for: a two-phase gradient reads what the pass before has left."""
