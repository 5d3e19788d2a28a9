"""The contract between an objective and the training loop."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from ramify.batching.batch import AnyBatch
from ramify.metrics.metric import DEV_LOSS, Metric
from ramify.models.base import State
from ramify.nn.modes import evaluating
from ramify.tokenizer import Tokenizer

BatchT = TypeVar("BatchT", bound=AnyBatch)

MAIN = "main"
"""The one phase of most objectives."""

Losses = Iterator[tuple[dict[str, Tensor], State | None]]


class Task(nn.Module, ABC, Generic[BatchT]):
    """An objective of a backbone: it corrupts a batch, counts it, and yields losses one backward pass at a time."""

    backbone: Any
    """An `AnyBackbone`; each kind of task says which."""
    tokenizer: Tokenizer
    config: Any
    input: Any
    """The way its inputs are read. It is saved with the model, so that use matches training."""
    phases: tuple[str, ...] = (MAIN,)
    """The parts of an update, in order. Each updates parameters of its own with an optimizer of its own; `TrainConfig.phases`
    says which and how."""
    metrics: tuple[Metric, ...] = (DEV_LOSS,)
    """The metrics that may choose the best weights."""

    @abstractmethod
    def corrupt(self, batch: BatchT, generator: torch.Generator) -> BatchT:
        """Draw what the objective draws (masks, orders), on the batch's device."""

    @abstractmethod
    def counts(self, batch: BatchT, phase: str) -> dict[str, float]:
        """The divisor of each named loss of a phase, summed over a step; known before any forward pass. The names
        are the same for every batch."""

    @abstractmethod
    def losses(self, batch: BatchT, divisors: Mapping[str, float], phase: str, state: State | None) -> Losses:
        """Named losses of a phase, already divided, with the next state: one pair per backward pass.

        Each is to be back-propagated before the next is asked for: a two-phase gradient reads what the pass before has left.
        `state` is what the batch before this one left of the same rows, or None at the start of a stage. A task that carries
        a state yields the next one, detached, with its last pass; all other passes, and all other tasks, yield None. Every
        phase of an update starts from the same state; what the first phase yields goes on to the next update. The loop reads
        no batch without targets, so these leave the state as it is.
        """

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def evaluating(self) -> AbstractContextManager[None]:
        """Without dropout; afterwards as it was."""
        return evaluating(self)
