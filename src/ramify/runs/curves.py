"""Learning curves of reports, from the logged steps of a run."""

from collections.abc import Mapping, Sequence, Sized
from typing import Any

import numpy as np

from ramify.runs.sections import Chart, Line, Notice, Section, smooth
from ramify.tasks.base import TOTAL

Metrics = Sequence[Mapping[str, Any]]
"""The logged steps. Some hold dev scores, too."""

TITLE = "Learning curves"


def no_curves(title: str = TITLE) -> Section:
    """The section of a run without a logged step."""
    return Section(title, (Notice(("No steps have been logged yet.",)),))


def train_line(metrics: Metrics, key: str, main_loss: str) -> Line:
    """The main training loss against `key`, smoothed."""
    loss = np.array([float(train_loss(record, main_loss)) for record in metrics])
    return Line("train", "train", np.array([float(record[key]) for record in metrics]), smooth(loss, window(metrics)))


def dev_line(metrics: Metrics, key: str, field: str, name: str = "dev", kind: str = "dev") -> Line:
    """A dev score against `key`, at the steps that measured it."""
    measured = [record for record in metrics if field in record]
    x, y = (np.array([float(record[column]) for record in measured]) for column in (key, field))
    return Line(name, kind, x, y, marks=True)


def loss_charts(metrics: Metrics, main_loss: str, unit: str, *, tokens: str) -> tuple[Chart, ...]:
    """The main loss in training and on dev, against updates and against tokens. `tokens` says which are counted."""
    return tuple(
        Chart((train_line(metrics, key, main_loss), dev_line(metrics, key, "dev_loss")), label, unit)
        for key, label in (("step", "updates"), ("target_tokens", tokens))
    )


def smoothing(metrics: Metrics) -> str:
    """The smoothing of the training loss, for legends; empty if there is none."""
    count = window(metrics)
    return f", mean of {count} logged steps" if count > 1 else ""


def train_loss(record: Mapping[str, Any], main_loss: str) -> float:
    """The main loss of a logged step (`Task.main_loss`). A task with a single loss logs it as the sum of all."""
    return record.get(main_loss, record[TOTAL])


def window(values: Sized) -> int:
    """The number of logged values whose mean is a point of a smoothed curve."""
    return max(1, len(values) // 15)
