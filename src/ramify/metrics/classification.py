"""Scores of predicted labels (one class per text, several classes, or a number), and the calibration of probabilities.

Scores are shares of 1. Classes are numbered from 0.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from scipy.optimize import root_scalar
from scipy.stats import rankdata

from ramify.metrics.intervals import Interval, interval

RESAMPLES = 2_000
BINS = 15
"""The number of bins of the reliability diagram (Guo et al. 2017)."""
TEMPERATURES = (0.01, 100.0)
"""The range in which the temperature is searched."""


@dataclass(frozen=True)
class MostFrequent:
    """The prediction that a model makes most often."""

    value: Any
    count: int
    total: int
    """The number of predictions."""
    unit: str = ""
    """The name of what each is about; empty: of an example."""

    @classmethod
    def of(cls, predicted: Iterable[Any], unit: str = "") -> Self:
        """The most frequent prediction; the first one, if several are equally frequent."""
        counts = Counter(predicted)
        value, count = next(iter(counts.most_common(1)), (None, 0))
        return cls(value, count, counts.total(), unit)

    @property
    def share(self) -> float:
        return self.count / max(1, self.total)

    @property
    def is_only(self) -> bool:
        """Whether there is no other prediction, among several."""
        return self.total > 1 and self.count == self.total


class Predictions(ABC):
    """Gold labels of some texts, and the labels that a model predicts."""

    @property
    @abstractmethod
    def metrics(self) -> Mapping[str, Callable[[], float]]:
        """Name -> score, of all metrics that are defined for these labels."""

    @abstractmethod
    def take(self, rows: Int[NDArray, " kept"]) -> Self:
        """The predictions of some texts, in the order of `rows`, which may repeat."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def truth(self) -> NDArray[Any]:
        """The gold labels, or what the score of a text depends on beside the prediction."""

    @property
    @abstractmethod
    def most_frequent(self) -> MostFrequent:
        """The most frequent prediction, whose value `named` spells."""

    @abstractmethod
    def named(self, value: Any, labels: Sequence[str]) -> str:
        """A prediction in words. `labels` are the names of numbered ones."""

    def scores(self) -> dict[str, float]:
        return {name: score() for name, score in self.metrics.items()}

    def interval(
        self, metric: str, *, units: Int[NDArray, " row"] | None = None, resamples: int = RESAMPLES, seed: int = 0
    ) -> Interval:
        """The bootstrap interval of a metric over texts or, with the number of each text's unit, over units."""
        return bootstrap(lambda rows: self.take(rows).metrics[metric](), _units(self, units), resamples=resamples, seed=seed)

    def difference(
        self,
        other: Self,
        metric: str,
        *,
        units: Int[NDArray, " row"] | None = None,
        resamples: int = RESAMPLES,
        seed: int = 0,
    ) -> Interval:
        """The score of these predictions less that of others of the same texts, with its interval (paired bootstrap).

        Raises `ValueError` if the others have other gold labels.
        """
        if not np.array_equal(self.truth, other.truth):
            raise ValueError("the predictions are not about the same labels")

        def score(rows: Int[NDArray, " kept"]) -> float:
            return self.take(rows).metrics[metric]() - other.take(rows).metrics[metric]()

        return bootstrap(score, _units(self, units), resamples=resamples, seed=seed)


@dataclass(frozen=True, eq=False)
class ClassPredictions(Predictions):
    """One class per text. `positive` is the class that F1 is about, and `group` the number of each text's group."""

    gold: Int[NDArray, " row"]
    predicted: Int[NDArray, " row"]
    num_classes: int
    positive: int | None = None
    group: Int[NDArray, " row"] | None = None

    def __len__(self) -> int:
        return len(self.gold)

    @property
    def truth(self) -> NDArray[Any]:
        return self.gold

    def take(self, rows: Int[NDArray, " kept"]) -> Self:
        group = None if self.group is None else self.group[rows]
        return replace(self, gold=self.gold[rows], predicted=self.predicted[rows], group=group)

    @property
    def most_frequent(self) -> MostFrequent:
        return MostFrequent.of(self.predicted.tolist())

    def named(self, value: int, labels: Sequence[str]) -> str:
        return labels[value]

    @cached_property
    def confusion(self) -> Int[NDArray, "gold predicted"]:
        """The number of texts of each gold class with each predicted class."""
        pairs = self.gold * self.num_classes + self.predicted
        return np.bincount(pairs, minlength=self.num_classes**2).reshape(self.num_classes, self.num_classes)

    @property
    def per_class(self) -> "ClassScores":
        return ClassScores.of_counts(np.diag(self.confusion), self.confusion.sum(0), self.confusion.sum(1))

    @property
    def metrics(self) -> Mapping[str, Callable[[], float]]:
        found = {
            "accuracy": partial(accuracy, self.gold, self.predicted),
            "macro_f1": lambda: self.per_class.macro_f1,
            "macro_recall": lambda: self.per_class.macro_recall,
            "matthews": partial(matthews, self.confusion),
        }
        if (positive := self.positive) is not None:
            found["f1"] = lambda: float(self.per_class.f1[positive])
        if (group := self.group) is not None:
            found["exact_match"] = partial(share_of_groups, self.gold == self.predicted, group)
            found["parity"] = partial(parity, self.predicted, group)
        return found


@dataclass(frozen=True, eq=False)
class SeveralPredictions(Predictions):
    """Any number of classes per text."""

    gold: Bool[NDArray, "row label"]
    predicted: Bool[NDArray, "row label"]

    def __len__(self) -> int:
        return len(self.gold)

    @property
    def truth(self) -> NDArray[Any]:
        return self.gold

    def take(self, rows: Int[NDArray, " kept"]) -> Self:
        return replace(self, gold=self.gold[rows], predicted=self.predicted[rows])

    @property
    def most_frequent(self) -> MostFrequent:
        return MostFrequent.of(map(tuple, self.predicted.tolist()))

    def named(self, value: tuple[bool, ...], labels: Sequence[str]) -> str:
        return ", ".join(label for label, has in zip(labels, value, strict=True) if has) or "no label"

    @property
    def per_class(self) -> "ClassScores":
        return ClassScores.of_counts((self.gold & self.predicted).sum(0), self.predicted.sum(0), self.gold.sum(0))

    @property
    def metrics(self) -> Mapping[str, Callable[[], float]]:
        return {
            "micro_f1": partial(micro_f1, self.gold, self.predicted),
            "macro_f1": lambda: self.per_class.macro_f1,
            "subset_accuracy": lambda: float((self.gold == self.predicted).all(1).mean()),
        }


@dataclass(frozen=True, eq=False)
class NumberPredictions(Predictions):
    """One number per text."""

    gold: Float[NDArray, " row"]
    predicted: Float[NDArray, " row"]

    def __len__(self) -> int:
        return len(self.gold)

    @property
    def truth(self) -> NDArray[Any]:
        return self.gold

    def take(self, rows: Int[NDArray, " kept"]) -> Self:
        return replace(self, gold=self.gold[rows], predicted=self.predicted[rows])

    @property
    def most_frequent(self) -> MostFrequent:
        return MostFrequent.of(self.predicted.tolist())

    def named(self, value: float, labels: Sequence[str]) -> str:
        return f"{value:.4g}"

    @property
    def metrics(self) -> Mapping[str, Callable[[], float]]:
        return {
            "pearson": partial(pearson, self.gold, self.predicted),
            "spearman": partial(spearman, self.gold, self.predicted),
            "mean_squared_error": lambda: float(((self.gold - self.predicted) ** 2).mean()),
        }


# --- classes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ClassScores:
    """The scores of each class. Precision is 0 without a prediction, recall without a gold label, F1 without either."""

    precision: Float[NDArray, " label"]
    recall: Float[NDArray, " label"]
    f1: Float[NDArray, " label"]
    support: Int[NDArray, " label"]
    """The number of texts with the gold class."""
    occurs: Bool[NDArray, " label"]
    """Whether the class is among the gold or the predicted ones."""

    @classmethod
    def of_counts(
        cls, right: Int[NDArray, " label"], predicted: Int[NDArray, " label"], gold: Int[NDArray, " label"]
    ) -> "ClassScores":
        f1 = _ratio(2 * right, predicted + gold)
        return cls(_ratio(right, predicted), _ratio(right, gold), f1, gold, predicted + gold > 0)

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the classes that occur."""
        return float(self.f1[self.occurs].mean()) if self.occurs.any() else 0.0

    @property
    def macro_recall(self) -> float:
        """The mean recall of the classes that have a text (balanced accuracy)."""
        return float(self.recall[self.support > 0].mean())


def accuracy(gold: Int[NDArray, " row"], predicted: Int[NDArray, " row"]) -> float:
    return float((gold == predicted).mean())


def matthews(confusion: Int[NDArray, "gold predicted"]) -> float:
    """Matthews' correlation of gold and predicted classes, two or more (Gorodkin 2004): 0 if one side has one class only."""
    counts = confusion.astype(np.float64)
    total, gold, predicted = counts.sum(), counts.sum(1), counts.sum(0)
    scale = np.sqrt(total**2 - (gold**2).sum()) * np.sqrt(total**2 - (predicted**2).sum())
    return float((np.trace(counts) * total - gold @ predicted) / scale) if scale > 0 else 0.0


def share_of_groups(right: Bool[NDArray, " row"], group: Int[NDArray, " row"]) -> float:
    """The share of groups whose texts are all right."""
    _, place = np.unique(group, return_inverse=True)
    wrong = np.bincount(place, ~right)
    return float((wrong == 0).mean())


def parity(predicted: Int[NDArray, " row"], group: Int[NDArray, " row"]) -> float:
    """The share of groups whose texts have one predicted class (gender parity of AX-g)."""
    _, place = np.unique(group, return_inverse=True)
    pairs = np.unique(np.stack([place, predicted], 1), axis=0)
    return float((np.bincount(pairs[:, 0]) == 1).mean())


def micro_f1(gold: Bool[NDArray, "row label"], predicted: Bool[NDArray, "row label"]) -> float:
    """F1 over all pairs of a text and a class."""
    return float(_ratio(np.array(2 * (gold & predicted).sum()), np.array(gold.sum() + predicted.sum())))


def _ratio(parts: NDArray[np.integer[Any]], wholes: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """Quotients; 0 where the divisor is 0."""
    return np.divide(parts, wholes, out=np.zeros(parts.shape), where=wholes > 0)


# --- numbers ----------------------------------------------------------------------------------------------------------


def pearson(gold: Float[NDArray, " row"], predicted: Float[NDArray, " row"]) -> float:
    """The correlation of two columns of numbers: 0 if one of them is constant."""
    x, y = (values - values.mean() for values in (gold.astype(np.float64), predicted.astype(np.float64)))
    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        return 0.0
    return float(np.clip(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)), -1, 1))


def spearman(gold: Float[NDArray, " row"], predicted: Float[NDArray, " row"]) -> float:
    """The correlation of ranks; equal numbers share the mean of their ranks."""
    return pearson(rankdata(gold), rankdata(predicted))


# --- significance -----------------------------------------------------------------------------------------------------


def bootstrap(
    metric: Callable[[Int[NDArray, " kept"]], float],
    units: Int[NDArray, " row"],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """The interval of any metric of rows over units that are drawn with replacement. `units` holds the unit of each row."""
    rows = np.arange(len(units))
    _, unit = np.unique(units, return_inverse=True)
    count = int(unit.max()) + 1
    random = np.random.Generator(np.random.Philox(key=seed))
    drawn = (np.bincount(random.integers(count, size=count), minlength=count) for _ in range(resamples))
    values = np.array([metric(np.repeat(rows, weights[unit])) for weights in drawn])
    return interval(metric(rows), values)


def _units(predictions: Predictions, units: Int[NDArray, " row"] | None) -> Int[NDArray, " row"]:
    return np.arange(len(predictions)) if units is None else units


# --- calibration ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Reliability:
    """Texts by the probability of their predicted class, in bins of equal width; the upper edge belongs to a bin."""

    edges: Float[NDArray, " edge"]
    count: Int[NDArray, " bin"]
    confidence: Float[NDArray, " bin"]
    """The mean probability; 0 in empty bins."""
    accuracy: Float[NDArray, " bin"]
    """The share of right predictions; 0 in empty bins."""

    @property
    def error(self) -> float:
        """The expected calibration error: the mean distance of probability and accuracy over texts."""
        return float((self.count * np.abs(self.confidence - self.accuracy)).sum() / self.count.sum())


def reliability(probabilities: Float[NDArray, "row label"], gold: Int[NDArray, " row"], *, bins: int = BINS) -> Reliability:
    """The accuracy of predictions, by their probability (Guo et al. 2017)."""
    return reliability_of(probabilities.max(1), probabilities.argmax(1) == gold, bins=bins)


def reliability_of(share: Float[NDArray, " row"], right: Bool[NDArray, " row"], *, bins: int = BINS) -> Reliability:
    """As `reliability`, from the probability of each prediction, and whether it is right."""
    confidence = share.astype(np.float64)
    edges = np.linspace(0, 1, bins + 1)
    place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    sums = (np.bincount(place, values, minlength=bins) for values in (confidence, right.astype(np.float64)))
    mean_confidence, share = (np.divide(total, count, out=np.zeros(bins), where=count > 0) for total in sums)
    return Reliability(edges, count, mean_confidence, share)


def log_softmax(logits: Float[NDArray, "row label"]) -> Float[NDArray, "row label"]:
    shifted = logits.astype(np.float64)
    shifted = shifted - shifted.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def log_loss(logits: Float[NDArray, "row label"], gold: Int[NDArray, " row"]) -> float:
    """The mean of −log p(gold class), in nats."""
    return -float(log_softmax(logits)[np.arange(len(gold)), gold].mean())


def temperature(logits: Float[NDArray, "row label"], gold: Int[NDArray, " row"]) -> float:
    """The temperature by which to divide logits, so that the log-likelihood of the gold classes is greatest.

    The loss is convex in 1 / temperature. Predictions that are all right are best at temperature 0, so they determine none: it
    is 1. Predictions that say less than nothing have the highest one of `TEMPERATURES`. For several labels, give the logits
    (0, z) of each label as a row.
    """
    scores = logits.astype(np.float64)
    right = scores[np.arange(len(gold)), gold]

    def slope(inverse: float) -> float:
        """The derivative of the loss by 1 / temperature: the expected logit less that of the gold class."""
        return float(((np.exp(log_softmax(scores * inverse)) * scores).sum(1) - right).mean())

    low, high = 1 / TEMPERATURES[1], 1 / TEMPERATURES[0]
    if slope(low) >= 0:
        return TEMPERATURES[1]
    if slope(high) <= 0:
        return 1.0
    return 1 / root_scalar(slope, bracket=(low, high), xtol=1e-10).root


def benchmark_score(tasks: Mapping[str, Sequence[float]]) -> float:
    """The mean over tasks, each the mean of its figures, as GLUE and SuperGLUE define it. Raises `ValueError` without tasks."""
    if not tasks:
        raise ValueError("no tasks")
    return float(np.mean([np.mean(figures) for figures in tasks.values()]))
