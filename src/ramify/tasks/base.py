"""What every trained model is, and what training asks of an objective."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from ramify.batching.batch import AnyBatch
from ramify.errors import CannotError
from ramify.tokenizer import Tokenizer

VERBS = {"disentangle", "embed", "fill_mask", "live", "score"}
"""What some model can be asked; which ones a given model knows is `verbs`."""

BatchT = TypeVar("BatchT", bound=AnyBatch)


class Model(nn.Module, ABC):
    """A backbone with the tokenizer that it was trained with. Takes trees and text, never tensors."""

    backbone: Any
    """An `AnyBackbone`; each kind of model says which."""
    tokenizer: Tokenizer

    @property
    def verbs(self) -> list[str]:
        return sorted(verb for verb in VERBS if hasattr(type(self), verb))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in VERBS:
                raise CannotError(f"this {type(self).__name__} cannot {name}; it can {', '.join(self.verbs)}.") from None
            raise

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Without dropout; afterwards as it was."""
        if not any(module.training for module in self.modules()):
            # To tell every module takes a tenth of the time that a live channel has for a message.
            yield
            return
        training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(training)


class Task(Model, ABC, Generic[BatchT]):
    """A model with an objective: it corrupts a batch, counts it, and yields losses one backward pass at a time."""

    config: Any
    reading: Any
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
