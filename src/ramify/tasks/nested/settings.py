"""The parts of the settings of the objective, and their checks."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from ramify.errors import RamifyError


class Settings(ABC):
    """A part of the settings. Its fields and checks stand beside the code that reads them."""

    @abstractmethod
    def __post_init__(self) -> None:
        """Check the settings of all parts."""


@dataclass(frozen=True)
class LossWeights(Settings):
    """The weights of the main losses. The paper adds all losses with weight 1."""

    reconstruction: float = 1.0
    """Weight of the loss of a node's children, given its vector."""
    mlm: float = 1.0
    """Weight of the loss of masked children."""
    coherence: float = 1.0
    """Weight of the loss of the share of replaced children."""
    without: tuple[str, ...] = ()
    """Losses that are left out, such as mlm_sentence or coherence_chapter."""

    def check_weights(self) -> None:
        check_not_negative(self, "reconstruction", "mlm", "coherence")


def check_not_negative(config: Any, *names: str) -> None:
    """Raise `RamifyError` if one of these settings is below 0."""
    for name in names:
        if getattr(config, name) < 0:
            raise RamifyError(f"task.{name} must be at least 0, but is {getattr(config, name)}.")


def check_shares(config: Any, *names: str) -> None:
    """Raise `RamifyError` if one of these settings is below 0 or above 1."""
    for name in names:
        if not 0 <= getattr(config, name) <= 1:
            raise RamifyError(f"task.{name} must be at least 0 and at most 1, but is {getattr(config, name)}.")
