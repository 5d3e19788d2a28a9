"""Held-out scores of models that predict labels: what all label tasks share, and texts with labels."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.batching.forest import Ints
from ramify.batching.views.labelled import LabelledView
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted, printable
from ramify.inference.classify import Classifier, held_out, label_scores
from ramify.metrics.classification import Predictions
from ramify.metrics.intervals import Interval
from ramify.metrics.metric import Metric
from ramify.models.base import reads_characters
from ramify.runs.base import Evaluation, scoring
from ramify.tokenizer import UnknownTokens

OPTIONS = ("precision", "progress", "against")

WITHOUT_READING = "without reading"
"""The name of a floor."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Scored(ABC):
    """The labelled examples of a split with a model's predictions. Each label task has its own."""

    predictions: Any
    """The `Predictions` of the examples; each task narrows the type."""
    nodes: Ints
    """The node of the store that each example is about."""
    trees: Ints
    """The tree of each example. Those of one tree are resampled together."""
    labels: tuple[str, ...] = ()
    """The names of the labels, if predictions are numbers of them."""
    unknown_pieces: UnknownTokens | None = None
    left_out: tuple[str, ...] = ()
    """Notes for people about what is not read."""

    example: ClassVar[str] = "text"
    """The name of an example."""
    floor_name: ClassVar[str] = WITHOUT_READING
    floor_is: ClassVar[str]
    """The prediction of the floor, in words."""

    @property
    def only_prediction(self) -> str:
        """A clause that names the prediction of all examples; empty if there are several."""
        found = self.predictions.most_frequent
        if not found.is_only:
            return ""
        name = printable(self.predictions.named(found.value, self.labels))
        return f"all {counted(found.total, found.unit or self.example)} are predicted as “{name}”"

    @property
    @abstractmethod
    def floor(self) -> Mapping[str, float] | None:
        """The metrics of predictions that read too little; None: the model of another library, whose training data are not
        known."""

    @property
    def resampled(self) -> str:
        """The number of units that a bootstrap draws, with their name."""
        units = len(np.unique(self.trees))
        return counted(units, self.example if units == len(self.trees) else "tree")

    def difference(self, other: "Scored", metric: str, source: str, against: str) -> "Difference":
        """The metric less that of another model. Raises `RamifyError` if it was scored on other examples or labels."""
        if self.labels != other.labels:
            raise RamifyError(
                f"--against {against} knows the labels {_listed(other.labels)}, but {source} knows {_listed(self.labels)}. "
                "Compare models of the same labels."
            )
        if not np.array_equal(self.nodes, other.nodes):
            raise RamifyError(
                f"--against {against} reads {counted(len(other.nodes), other.example)} of the split, and {source} "
                f"{counted(len(self.nodes), self.example)}, which are not the same. Compare models with the same input.text "
                "and input.pair."
            )
        if not np.array_equal(self.predictions.truth, other.predictions.truth):
            raise RamifyError(
                f"--against {against} was trained on other labels of the same {self.example}s than {source}. Compare models "
                "with the same input.label."
            )
        interval = self.predictions.difference(other.predictions, metric, units=self.trees)
        return Difference(against, other.predictions.metrics[metric](), interval, len(self.nodes), self.resampled)


def _listed(labels: tuple[str, ...]) -> str:
    return ", ".join(map(printable, labels[:5])) + (f" … ({len(labels)})" if len(labels) > 5 else "")


@dataclass(frozen=True)
class Difference:
    """The main metric less that of another model on the same examples (paired bootstrap)."""

    model: str
    """The folder or name of the other model."""
    other: float
    """Its score."""
    interval: Interval
    count: int
    """Examples."""
    resampled: str

    def to_json(self) -> dict[str, Any]:
        found = self.interval
        return {
            "model": self.model,
            "value": self.other,
            "difference": found.value,
            "low": found.low,
            "high": found.high,
            "p": found.p,
            "count": self.count,
        }

    def line(self) -> str:
        found = self.interval
        return (
            f"{found.value:+.4f} against {self.model} ({self.other:.4f}), 95 % interval {found.low:+.4f} to {found.high:+.4f}, "
            f"p = {found.p:.2g}; paired bootstrap over {self.resampled}"
        )


@dataclass(frozen=True)
class LabelEvaluation(Evaluation):
    """The metrics of a label task, and the main one beside that of predictions which read too little."""

    metric: Metric
    scored: Scored
    difference: Difference | None
    """None: no other model was named."""

    @property
    def value(self) -> float:
        return self.scored.predictions.metrics[self.metric.name]()

    @property
    def majority(self) -> float | None:
        """The main metric of the floor."""
        return None if self.scored.floor is None else self.scored.floor[self.metric.name]

    def to_json(self) -> dict[str, Any]:
        frequent = self.scored.predictions.most_frequent
        return {
            "metric": self.metric.name,
            "value": self.value,
            "metrics": self.scored.predictions.scores(),
            "majority": self.majority,
            "count": len(self.scored.predictions),
            "most_frequent": {
                "prediction": self.scored.predictions.named(frequent.value, self.scored.labels) if frequent.total else None,
                "count": frequent.count,
                "total": frequent.total,
            },
        } | ({} if self.difference is None else {"against": self.difference.to_json()})

    def lines(self) -> list[str]:
        others = ", ".join(
            f"{name.replace('_', ' ')} {value:.4f}"
            for name, value in self.scored.predictions.scores().items()
            if name != self.metric.name
        )
        floor = "" if self.majority is None else f"; {self.scored.floor_name}, {self.majority:.4f}"
        examples = self.scored.only_prediction or counted(len(self.scored.predictions), self.scored.example)
        return [
            f"{self.metric.label} {self.value:.4f}{floor}; {examples}",
            *([] if self.difference is None else [printable(self.difference.line())]),
            # The types of spans are those of the data.
            *([printable(others)] if others else []),
        ]


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoredTexts(Scored):
    """The labelled texts of a split with a model's scores."""

    view: LabelledView
    scores: Float[NDArray, "row output"]
    """Before the temperature."""
    predictions: Predictions
    majority: Predictions | None
    """The predictions that read no text: the most frequent class of the training data, or the mean of its numbers."""

    floor_is = "the most frequent class of the training data, or the mean of its numbers"

    @property
    def floor(self) -> Mapping[str, float] | None:
        return None if self.majority is None else self.majority.scores()

    @property
    def targets(self) -> NDArray[Any]:
        assert self.view.targets is not None
        return self.view.targets


def score_texts(model: Classifier, store: Store, split: Split, options: Mapping[str, Any]) -> ScoredTexts:
    """Compute the scores of a split. Options: `OPTIONS`."""
    task = model.task
    view, labels = held_out(task, store, split)
    with scoring(model, len(view), options) as advance:
        found = label_scores(task, view, progress=advance)
    targets, nodes = np.asarray(view.targets), labels.nodes[view.rows.kept]
    forest = view.rows.forest
    return ScoredTexts(
        view=view,
        scores=found,
        predictions=task.predictions(found, targets, view.group),
        majority=task.majority(targets, view.group) if task.is_fitted else None,
        nodes=nodes,
        trees=store.tree_of(nodes),
        labels=task.config.classes,
        unknown_pieces=None if reads_characters(task.backbone) else forest.unknown(store.split(split), task.tokenizer),
        left_out=view.rows.notes(),
    )
