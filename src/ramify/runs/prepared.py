"""What executing a run asks of a kind of run."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from ramify.dataset.store import Store
from ramify.runs.config import Run
from ramify.tasks.base import Task
from ramify.training.trainer import Stage


@dataclass(frozen=True)
class Prepared(ABC):
    """A run with its data opened and its model built."""

    run: Run
    store: Store
    task: Task[Any]

    @abstractmethod
    def stage(self, number: int) -> Stage:
        """What a stage of the run trains on, and how the dev set measures it."""

    @abstractmethod
    def divisors(self) -> dict[str, float] | None:
        """What divides each loss of a step: nothing to say for the mean weight of a step, 0 for the step's own weight."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What run.json says of the data as this run reads it."""
