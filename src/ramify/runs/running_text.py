"""The parts that runs of models of running text share: their base, the settings of the dev loss, and held-out scores."""

from abc import ABC
from dataclasses import dataclass, replace
from typing import Any, Self

from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.inference.common_footing import FootingScores
from ramify.runs.base import Evaluation
from ramify.runs.language_models import LanguageModelRun


@dataclass(frozen=True)
class RowDevConfig:
    """The dev loss during training: on about `rows` dev rows, with `draws` draws of targets each. Rows that continue each other
    are those from the starts of the dev streams; other rows are evenly spaced over the text."""

    rows: int = 256
    draws: int = 1
    mask_rate: float | None = None
    """Share of masked tokens, so that models trained with different rates compare; null: `task.mask_rate`. Only masked language
    models have it."""

    def __post_init__(self) -> None:
        check_fields(self, "dev.")
        if self.rows < 1 or self.draws < 1:
            raise RamifyError(f"dev.rows={self.rows} and dev.draws={self.draws} must both be at least 1.")
        if self.mask_rate is not None and not 0 < self.mask_rate <= 1:
            raise RamifyError(f"dev.mask_rate must be above 0 and at most 1, but is {self.mask_rate}.")


@dataclass(frozen=True, kw_only=True)
class RunningTextRun(LanguageModelRun, ABC):
    """A run of a language model on rows of running text."""

    def normalized(self) -> Self:
        return replace(self, data="")


@dataclass(frozen=True)
class RunningTextEvaluation(Evaluation, ABC):
    """Loss in nats per target, and that of the common footing, in nats per byte."""

    scores: Any
    """Each kind of run declares the type, which has a `summary`."""
    footing: FootingScores | None
    """None: the model predicts no token from both sides."""
    rows: int
    draws: int

    def to_json(self) -> dict[str, Any]:
        footing = {} if self.footing is None else self.footing.to_json()
        return self.scores.summary() | {"rows": self.rows} | footing | self.unknown_tokens()
