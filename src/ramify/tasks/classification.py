"""Classes and numbers of texts: one class per text, several, or a number (Devlin et al. 2019, section 4.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.batching.labelled_batch import LabelledBatch
from ramify.batching.views.labelled import LabelInput
from ramify.dataset.labels import LabelKind, label_name
from ramify.errors import RamifyError, counted
from ramify.metrics.classification import (
    ClassPredictions,
    NumberPredictions,
    Predictions,
    SeveralPredictions,
    temperature,
)
from ramify.metrics.metric import DEV_LOSS, Metric
from ramify.models.base import RowHead, State
from ramify.readers.labelled_sets import Grouping
from ramify.tasks.base import Losses, Readings
from ramify.tasks.constants import Bernoulli, Constant, Frequencies, Several, SquaredError
from ramify.tasks.downstream import DownstreamConfig, DownstreamTask
from ramify.tokenizer import Tokenizer

LABEL = "label"
"""The name of the loss."""

DEV_METRICS: dict[LabelKind, tuple[Metric, ...]] = {
    "classes": tuple(Metric(name, True) for name in ("accuracy", "macro_f1", "macro_recall", "matthews", "f1")),
    "several": tuple(Metric(name, True) for name in ("micro_f1", "macro_f1", "subset_accuracy")),
    "numbers": (Metric("pearson", True), Metric("spearman", True), Metric("mean_squared_error", False)),
}
"""The metrics of each kind of labels; the first one is the default."""


@dataclass(frozen=True)
class ClassificationConfig(DownstreamConfig):
    """Labels of whole texts, or of pairs of texts."""

    labels: LabelKind = "classes"
    """classes: one of `classes`, with a softmax. several: any of them, with a sigmoid each. numbers: squared error. The
    training data decide."""
    classes: tuple[str, ...] = ()
    """The names of the classes, which the training data determine."""
    head: Literal[RowHead, "default"] = "default"
    """The vector of a row that the output layer reads. default: that of the model's published form."""
    metrics: tuple[str, ...] = ()
    """The metrics of the data set, of which the first chooses among weights; the others of its kind of labels follow."""
    positive: str = ""
    """The class that F1 is about. Empty: the second of two classes."""
    groups: Grouping = "none"
    """The texts that a metric takes together."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: each class has the same weight in the training loss, however frequent it is."""
    output_bias: bool = True
    """Whether the output layer has a bias. That of `GPT2ForSequenceClassification` has none."""

    def check(self) -> None:
        if self.class_weights != "none" and self.labels != "classes":
            raise RamifyError(
                f"task.class_weights={self.class_weights} needs one class per text, but the labels are {self.labels}. Set "
                "task.class_weights=none."
            )


def positive_class(config: ClassificationConfig) -> int | None:
    """The number of the class that F1 is about; None: there is none."""
    if config.positive in config.classes:
        return config.classes.index(config.positive)
    return 1 if len(config.classes) == 2 else None


def metrics_of(config: ClassificationConfig) -> tuple[Metric, ...]:
    """The metrics that are defined for the labels, first those of `metrics`. Raises `RamifyError` for others."""
    defined = {metric.name: metric for metric in DEV_METRICS[config.labels]}
    if config.labels == "classes" and config.groups != "none":
        defined |= {name: Metric(name, True) for name in ("exact_match", "parity")}
    if positive_class(config) is None:
        defined.pop("f1", None)
    for name in config.metrics:
        if name not in defined:
            raise RamifyError(f"task.metrics={name} is not a metric of these labels. Choose {', '.join(defined)}.")
    return tuple(defined[name] for name in dict.fromkeys((*config.metrics, *defined)))


class Classification(DownstreamTask):
    """Labels of rows from one vector each."""

    main_loss = LABEL
    matching = ("labels", "classes")
    fresh = ("temperature",)
    optional = ("head", "mix")
    config: ClassificationConfig
    class_weights: Tensor
    prior: Tensor
    """The share of each class in the training data; of numbers, nothing."""
    center: Tensor
    spread: Tensor
    temperature: Tensor
    fitted: Tensor

    def __init__(self, backbone: Any, tokenizer: Tokenizer, input: LabelInput, config: ClassificationConfig) -> None:
        super().__init__(backbone, tokenizer, input, config, config.head)
        width = 1 if config.labels == "numbers" else len(config.classes)
        self.output = nn.Linear(self.dim, width, bias=config.output_bias)
        nn.init.trunc_normal_(self.output.weight, std=0.02, a=-0.04, b=0.04)
        if config.output_bias:
            nn.init.zeros_(self.output.bias)
        self.metrics = (*metrics_of(config), DEV_LOSS)
        self.register_buffer("class_weights", torch.ones(width))
        self.register_buffer("prior", torch.zeros(width))
        # Numbers are learned in units of their standard deviation, so that one learning rate suits all scales.
        self.register_buffer("center", torch.zeros((), dtype=torch.float64))
        self.register_buffer("spread", torch.ones((), dtype=torch.float64))
        self.register_buffer("temperature", torch.ones((), dtype=torch.float64))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))

    # --- targets -----------------------------------------------------------------------------------------------------

    def targets_of(self, values: Sequence[Any]) -> NDArray[Any]:
        """Labels as targets: the number of each class, a row of zeros and ones, or numbers.

        Raises `RamifyError` for a class that the task does not know.
        """
        if self.config.labels == "numbers":
            return np.array(values, dtype=np.float64)
        number = {name: place for place, name in enumerate(self.config.classes)}
        several = self.config.labels == "several"
        names = [[label_name(part) for part in value] if several else [label_name(value)] for value in values]
        unknown = sorted({name for row in names for name in row if name not in number})
        if unknown:
            shown = ", ".join(unknown[:5]) + (" …" if len(unknown) > 5 else "")
            are_numbers = not any(isinstance(value, str | bool | list) for value in values)
            remedy = " The labels are numbers, read as classes; --label-kind numbers trains on them as numbers." * are_numbers
            raise RamifyError(
                f"the labels hold {counted(len(unknown), 'class', 'es')} that the training data lack: {shown}. The model knows "
                f"{', '.join(self.config.classes[:10])}{' …' if len(self.config.classes) > 10 else ''}. Build the data so that "
                f"train holds every class, or correct the labels.{remedy}"
            )
        if not several:
            return np.array([number[row[0]] for row in names], dtype=np.int64)
        targets = np.zeros((len(names), len(number)), dtype=np.float32)
        for row, parts in enumerate(names):
            targets[row, [number[name] for name in parts]] = 1
        return targets

    def fit(self, targets: NDArray[Any]) -> None:
        """Set class weights, or the center and the spread of numbers, from the training targets."""
        self.fitted.fill_(True)
        if self.config.labels == "numbers":
            self.center.fill_(float(targets.mean()))
            self.spread.fill_(float(targets.std()) or 1.0)
            return
        if self.config.labels == "several":
            self.prior.copy_(torch.from_numpy(targets.mean(0)))
            return
        shares = np.bincount(targets, minlength=len(self.config.classes)) / len(targets)
        self.prior.copy_(torch.from_numpy(shares))
        if self.config.class_weights == "balanced":
            # A class without a text has no loss.
            self.class_weights.copy_(torch.from_numpy(1 / (len(shares) * np.maximum(shares, 1 / len(targets)))))

    # --- the objective -----------------------------------------------------------------------------------------------

    def corrupt(self, batch: LabelledBatch, generator: torch.Generator) -> LabelledBatch:
        return batch

    def counts(self, batch: LabelledBatch, phase: str) -> dict[str, float]:
        assert batch.targets is not None
        if self.config.labels == "classes":
            return {LABEL: float(self.class_weights[batch.targets].double().sum())}
        return {LABEL: float(batch.targets.numel())}

    def scores(self, batch: LabelledBatch) -> Float[Tensor, "row output"]:
        """The scores of the classes of each row, or its number in units of `spread`."""
        return self.output(self.row_vectors(batch))

    def losses(
        self, batch: LabelledBatch, divisors: Mapping[str, float], phase: str, state: State | None, shared: Any
    ) -> Losses:
        loss = self.loss(self.scores(batch), batch.targets) / divisors[LABEL]
        yield self.regularized({LABEL: loss}, batch, divisors, phase), None

    def loss(self, scores: Float[Tensor, "row output"], targets: Shaped[Tensor, "row ..."] | None) -> Float[Tensor, ""]:
        """The sum of the losses of all labels."""
        assert targets is not None
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if self.config.labels == "classes":
            return F.cross_entropy(scores, targets, self.class_weights.to(scores.dtype), reduction="sum")
        if self.config.labels == "several":
            return F.binary_cross_entropy_with_logits(scores, targets.to(scores.dtype), reduction="sum")
        return F.mse_loss(scores[:, 0], self._standardized(targets).to(scores.dtype), reduction="sum")

    def readings(self, batch: LabelledBatch, phase: str, state: State | None, shared: Any) -> Readings:
        vectors = self.row_vectors(batch)
        return self.target_readings(batch, vectors, self.output(vectors))

    def target_readings(
        self, batch: LabelledBatch, vectors: Float[Tensor, "row dim"], scores: Float[Tensor, "row output"]
    ) -> Readings:
        """The readings of a batch whose scores are known."""
        return Readings({LABEL: self.loss(scores, batch.targets)}, {LABEL: self.constant(batch.targets)}, {"text": vectors})

    def constant(self, targets: Shaped[Tensor, "row ..."] | None) -> Constant:
        """The least loss of a prediction that reads no text."""
        assert targets is not None
        if self.config.labels == "classes":
            return Frequencies.of(targets, self.class_weights[targets], len(self.config.classes))
        if self.config.labels == "several":
            positive = targets.double().sum(0).tolist()
            return Several(tuple(Bernoulli(count, len(targets) - count) for count in positive))
        return SquaredError.of(self._standardized(targets), 1.0)

    def _standardized(self, numbers: Float[Tensor, " row"]) -> Float[Tensor, " row"]:
        return (numbers.double() - self.center) / self.spread

    # --- answers -----------------------------------------------------------------------------------------------------

    def probabilities(self, scores: Float[Tensor, "row output"]) -> Float[Tensor, "row output"]:
        """The probability of each class at the fitted temperature; of numbers, the predicted values."""
        scores = scores.double()
        if self.config.labels == "numbers":
            return scores * self.spread + self.center
        scores = scores / self.temperature.double()
        return scores.softmax(-1) if self.config.labels == "classes" else scores.sigmoid()

    def fit_temperature(self, scores: Float[NDArray, "row output"], targets: Shaped[NDArray, "row ..."]) -> None:
        """Choose the temperature with the least loss on held-out rows (Guo et al. 2017, section 4.2). It changes no decision
        between classes."""
        if self.config.labels == "numbers":
            return
        if self.config.labels == "several":
            # The sigmoid of z is the softmax of (0, z).
            scores = np.stack([np.zeros(scores.size), scores.ravel()], 1)
            targets = targets.ravel().astype(np.int64)
        self.temperature.fill_(temperature(scores, targets))

    @property
    def is_fitted(self) -> bool:
        """Whether the shares of the classes in the training data are known, or the mean of its numbers."""
        return bool(self.fitted)

    def majority(self, targets: Shaped[NDArray, "row ..."], group: Int[NDArray, " row"] | None = None) -> Predictions:
        """The predictions that read no text: the most frequent class of the training data, all classes of at least half of its
        texts, or the mean of its numbers."""
        prior = self.prior.double().cpu().numpy()
        if self.config.labels == "several":
            prior = prior - 0.5
        return self.predictions(np.tile(prior, (len(targets), 1)), targets, group)

    def predictions(
        self,
        scores: Float[NDArray, "row output"],
        targets: Shaped[NDArray, "row ..."],
        group: Int[NDArray, " row"] | None = None,
    ) -> Predictions:
        """Predicted labels beside the right ones: the likeliest class, all classes of at least even odds, or a number. `group`
        numbers the texts that a metric takes together."""
        if self.config.labels == "classes":
            classes = self.config.classes
            return ClassPredictions(targets, scores.argmax(1), len(classes), positive_class(self.config), group)
        if self.config.labels == "several":
            return SeveralPredictions(targets > 0, scores >= 0)
        return NumberPredictions(targets, scores[:, 0] * float(self.spread) + float(self.center))
