"""The contract between an objective and the training loop."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from ramify.batching.batch import AnyBatch
from ramify.nn.modes import evaluating
from ramify.tokenizer import Tokenizer

BatchT = TypeVar("BatchT", bound=AnyBatch)


class Task(nn.Module, ABC, Generic[BatchT]):
    """An objective of a backbone: it corrupts a batch, counts it, and yields losses one backward pass at a time."""

    backbone: Any
    """An `AnyBackbone`; each kind of task says which."""
    tokenizer: Tokenizer
    config: Any
    input: Any
    """How what it is trained on is read: saved with the model, so that it is used as it was trained."""
    loss_names: tuple[str, ...]

    @abstractmethod
    def corrupt(self, batch: BatchT, generator: torch.Generator) -> BatchT:
        """Draw what the objective draws (masks, orders), on the batch's device."""

    @abstractmethod
    def counts(self, batch: BatchT) -> dict[str, float]:
        """What each named loss of a corrupted batch is to be divided by, summed over a step; known before any forward
        pass."""

    @abstractmethod
    def losses(self, batch: BatchT, divisors: Mapping[str, float]) -> Iterator[dict[str, Tensor]]:
        """Named losses, already divided, one dictionary a backward pass. Each is to be back-propagated before the next is
        asked for: a two-phase gradient reads what the pass before has left."""

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def evaluating(self) -> AbstractContextManager[None]:
        """Without dropout; afterwards as it was."""
        return evaluating(self)
