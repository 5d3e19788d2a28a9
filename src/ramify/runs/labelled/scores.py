"""Held-out scores of models that predict labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.batching.views.labelled import LabelledView
from ramify.dataset.store import Split, Store
from ramify.errors import counted, printable
from ramify.inference.classify import Classifier, held_out, label_scores
from ramify.metrics.classification import Predictions
from ramify.metrics.metric import Metric
from ramify.models.base import reads_characters
from ramify.nn.precision import autocast
from ramify.runs.base import Evaluation, check_options, no_progress

OPTIONS = ("precision", "progress")

WITHOUT_READING = "without reading"
"""The name of a floor."""


@dataclass(frozen=True, eq=False)
class ScoredTexts:
    """The labelled texts of a split with a model's scores."""

    view: LabelledView
    scores: Float[NDArray, "row output"]
    """Before the temperature."""
    predictions: Predictions
    majority: Predictions
    """Those that read no text: the most frequent class of the training data, or the mean of its numbers."""

    @property
    def targets(self) -> NDArray[Any]:
        assert self.view.targets is not None
        return self.view.targets


@dataclass(frozen=True)
class LabelEvaluation(Evaluation):
    """The metrics of a label task, and the main one beside that of predictions which read no text."""

    metric: Metric
    metrics: Mapping[str, float]
    majority: float | None
    """The main metric of predictions that read no text, such as the most frequent class of the training data; None: the model
    of another library, whose training data are not known."""
    count: int
    """Labelled texts."""
    unit: str = "text"
    """The name of a labelled text."""
    floor_name: str = WITHOUT_READING

    @property
    def value(self) -> float:
        return self.metrics[self.metric.name]

    def to_json(self) -> dict[str, Any]:
        return {
            "metric": self.metric.name,
            "value": self.value,
            "metrics": dict(self.metrics),
            "majority": self.majority,
            "count": self.count,
        }

    def lines(self) -> list[str]:
        others = ", ".join(
            f"{name.replace('_', ' ')} {value:.4f}" for name, value in self.metrics.items() if name != self.metric.name
        )
        floor = "" if self.majority is None else f"; {self.floor_name}, {self.majority:.4f}"
        return [
            f"{self.metric.label} {self.value:.4f}{floor}; {counted(self.count, self.unit)}",
            # The types of spans are those of the data.
            *([printable(others)] if others else []),
        ]


def score_texts(model: Classifier, store: Store, split: Split, options: Mapping[str, Any]) -> ScoredTexts:
    """Compute the scores of a split."""
    task = model.task
    view, _ = held_out(task, store, split)
    bar, precision = options.get("progress", no_progress), options.get("precision", "fp32")
    with bar(len(view)) as advance, autocast(model.device, precision):
        found = label_scores(task, view, progress=advance)
    targets = np.asarray(view.targets)
    return ScoredTexts(view, found, task.predictions(found, targets, view.group), task.majority(targets, view.group))


def evaluate(
    model: Classifier, source: str, store: Store, split: Split, options: Mapping[str, Any], metric: Metric
) -> LabelEvaluation:
    """Score a model on a split. Options: `OPTIONS`."""
    check_options(options, OPTIONS, source, "a model that predicts labels")
    task, scored = model.task, score_texts(model, store, split, options)
    forest = scored.view.rows.forest
    return LabelEvaluation(
        metric,
        scored.predictions.scores(),
        scored.majority.scores()[metric.name] if task.is_fitted else None,
        len(scored.view),
        unknown_pieces=None if reads_characters(task.backbone) else forest.unknown(store.split(split), task.tokenizer),
        left_out=scored.view.rows.notes(),
    )
