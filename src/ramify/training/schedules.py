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
    """The factor during a linear warm-up."""
    return min(1.0, max(share, 1e-4) / config.warmup)


def _rest(config: ScheduleSettings, share: float) -> float:
    """The share that is done of the part after the warm-up."""
    return (share - config.warmup) / max(1e-9, 1 - config.warmup)


def _linear(config: ScheduleSettings, share: float, epoch: int) -> float:
    return _rise(config, share) if share < config.warmup else 1 - _rest(config, share)


def _cosine(config: ScheduleSettings, share: float, epoch: int) -> float:
    return _rise(config, share) if share < config.warmup else 0.5 * (1 + math.cos(math.pi * _rest(config, share)))


def _constant(config: ScheduleSettings, share: float, epoch: int) -> float:
    return _rise(config, share) if share < config.warmup else 1.0


def _epochs(config: ScheduleSettings, share: float, epoch: int) -> float:
    return _rise(config, share) if share < config.warmup else 1 / (1 + config.epoch_decay * epoch)


def _noam(config: ScheduleSettings, share: float, epoch: int) -> float:
    """Vaswani et al. 2017, equation 3, divided by its highest value."""
    return _rise(config, share) if share < config.warmup else math.sqrt(config.warmup / share)


def _slanted_triangle(config: ScheduleSettings, share: float, epoch: int) -> float:
    """Howard and Ruder 2018, equation 3."""
    height = share / config.warmup if share < config.warmup else 1 - _rest(config, share)
    return (1 + height * (config.slant_ratio - 1)) / config.slant_ratio


SCHEDULES: dict[str, Callable[[ScheduleSettings, float, int], float]] = {
    "linear": _linear,
    "cosine": _cosine,
    "constant": _constant,
    "epochs": _epochs,
    "noam": _noam,
    "slanted_triangle": _slanted_triangle,
}
"""The factor of the learning rate, given the settings, the share of the stage that is done, and the number of epochs done."""


def schedule(config: ScheduleSettings, share: float, epoch: int = 0) -> float:
    """The factor of the learning rate after this share of the stage and this many epochs."""
    return SCHEDULES[config.schedule](config, share, epoch)
