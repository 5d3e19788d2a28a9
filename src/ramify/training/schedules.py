"""Schedules: the learning rate over a stage of training, as a factor of its highest value."""

import math
from abc import ABC
from collections.abc import Callable


class ScheduleSettings(ABC):
    """The settings that schedules read."""

    schedule: str
    warmup: float
    epoch_decay: float
    slant_ratio: float


def _rise(config: ScheduleSettings, share: float) -> float:
    """The factor during a linear warm-up, whose first update is number 1."""
    return min(1.0, share / config.warmup)


def _rest(config: ScheduleSettings, share: float) -> float:
    """The share that is done of the part after the warm-up."""
    return (share - config.warmup) / max(1e-9, 1 - config.warmup)


def _linear(config: ScheduleSettings, before: float, share: float, epoch: int) -> float:
    return _rise(config, share) if before < config.warmup else 1 - _rest(config, before)


def _cosine(config: ScheduleSettings, before: float, share: float, epoch: int) -> float:
    return _rise(config, share) if before < config.warmup else 0.5 * (1 + math.cos(math.pi * _rest(config, before)))


def _constant(config: ScheduleSettings, before: float, share: float, epoch: int) -> float:
    return _rise(config, share) if before < config.warmup else 1.0


def _epochs(config: ScheduleSettings, before: float, share: float, epoch: int) -> float:
    return _rise(config, share) if before < config.warmup else 1 / (1 + config.epoch_decay * epoch)


def _noam(config: ScheduleSettings, before: float, share: float, epoch: int) -> float:
    """Vaswani et al. 2017, equation 3, divided by its highest value."""
    return _rise(config, share) if share < config.warmup else math.sqrt(config.warmup / share)


def _slanted_triangle(config: ScheduleSettings, before: float, share: float, epoch: int) -> float:
    """Howard and Ruder 2018, equation 3."""
    height = before / config.warmup if before < config.warmup else 1 - _rest(config, before)
    return (1 + height * (config.slant_ratio - 1)) / config.slant_ratio


SCHEDULES: dict[str, Callable[[ScheduleSettings, float, float, int], float]] = {
    "linear": _linear,
    "cosine": _cosine,
    "constant": _constant,
    "epochs": _epochs,
    "noam": _noam,
    "slanted_triangle": _slanted_triangle,
}
"""The factor of the learning rate of an update, given the settings, the share of the stage that is done before the update and
with it, and the number of epochs done. A decay reads the first, so that the last update still learns; a warm-up the second, so
that the first one does."""


def schedule(config: ScheduleSettings, before: float, share: float, epoch: int = 0) -> float:
    """The factor of the learning rate of the update that takes a stage from one share to the next, after so many epochs."""
    return SCHEDULES[config.schedule](config, before, share, epoch)
