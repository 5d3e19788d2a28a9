"""The right one of several choices (Radford et al. 2018, section 3.3; Devlin et al. 2019, section 4.4): a score for each, and a
softmax over those of a question."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.batching.choice_batch import ChoiceRows
from ramify.batching.labelled_batch import LabelledBatch
from ramify.batching.views.choices import ChoiceInput
from ramify.errors import RamifyError
from ramify.metrics.metric import DEV_LOSS, Metric
from ramify.models.base import RowHead, State
from ramify.nn.ragged import as_table
from ramify.tasks.base import Losses, Readings
from ramify.tasks.constants import Known
from ramify.tasks.downstream import DownstreamConfig, DownstreamTask
from ramify.tokenizer import Tokenizer

CHOICE = "choice"
"""The name of the loss."""

ACCURACY = Metric("accuracy", greater_is_better=True)


@dataclass(frozen=True)
class MultipleChoiceConfig(DownstreamConfig):
    """One right choice per question."""

    head: RowHead | Literal["default"] = "default"
    """The vector of a row from which it is scored. default: that of the model's published form."""
    reads: Literal["rows", "nothing"] = "rows"
    """nothing: the score of a choice is how often its place is right in training, whatever the model says."""
    choices: int = 0
    """The largest number of choices of a training question, which the training data determine."""

    def check(self) -> None:
        if self.choices < 0:
            raise RamifyError(f"task.choices={self.choices} must not be negative. Leave it out: the data determine it.")


class MultipleChoice(DownstreamTask):
    """The score of each choice from the vector of its row."""

    main_loss = CHOICE
    metrics = (ACCURACY, DEV_LOSS)
    fresh = ("places",)
    optional = ("head", "mix")
    config: MultipleChoiceConfig
    input: ChoiceInput
    places: Tensor
    """The number of times that each place is right in the training data."""

    def __init__(self, backbone: Any, tokenizer: Tokenizer, input: ChoiceInput, config: MultipleChoiceConfig) -> None:
        super().__init__(backbone, tokenizer, input, config, config.head)
        self.output = nn.Linear(self.dim, 1)
        nn.init.trunc_normal_(self.output.weight, std=0.02, a=-0.04, b=0.04)
        nn.init.zeros_(self.output.bias)
        self.register_buffer("places", torch.zeros(config.choices, dtype=torch.int64))

    def fit(self, right: Int[NDArray, " question"]) -> None:
        """Count the places of the right choices of the training questions."""
        self.places.copy_(torch.from_numpy(np.bincount(right, minlength=self.config.choices)))

    # --- the objective -----------------------------------------------------------------------------------------------

    def corrupt(self, batch: LabelledBatch, generator: torch.Generator) -> LabelledBatch:
        return batch

    def counts(self, batch: LabelledBatch, phase: str) -> dict[str, float]:
        return {CHOICE: float(len(rows_of(batch).choices))}

    def scores(self, batch: LabelledBatch) -> Float[Tensor, "question choice"]:
        """The scores of the choices of each question; −∞ where it has fewer than others."""
        return self.table(self.row_vectors(batch), batch)

    def table(self, vectors: Float[Tensor, "row dim"], batch: LabelledBatch) -> Float[Tensor, "question choice"]:
        """As `scores`, from the vectors of the rows."""
        scores = self.output(vectors)[:, 0]
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        rows = rows_of(batch)
        table = as_table(torch.zeros_like(scores).index_copy(0, rows.place, scores), rows.choices, -math.inf)[0]
        if self.config.reads == "rows":
            return table
        # Logarithms of shares, as if each place had been right once more. No training question has the further places.
        counts = F.pad(self.places, (0, max(0, table.shape[1] - len(self.places))))[: table.shape[1]]
        return torch.where(table > -math.inf, (counts + 1).to(table.dtype).log(), table)

    def losses(
        self, batch: LabelledBatch, divisors: Mapping[str, float], phase: str, state: State | None, shared: Any
    ) -> Losses:
        loss = self.loss(self.scores(batch), batch) / divisors[CHOICE]
        yield self.regularized({CHOICE: loss}, batch, divisors, phase), None

    def loss(self, scores: Float[Tensor, "question choice"], batch: LabelledBatch) -> Float[Tensor, ""]:
        """The sum of the cross-entropies of the right choices."""
        assert batch.targets is not None
        return F.cross_entropy(scores, batch.targets, reduction="sum")

    def readings(self, batch: LabelledBatch, phase: str, state: State | None, shared: Any) -> Readings:
        vectors = self.row_vectors(batch)
        return self.target_readings(batch, vectors, self.table(vectors, batch))

    def target_readings(
        self, batch: LabelledBatch, vectors: Float[Tensor, "row dim"], scores: Float[Tensor, "question choice"]
    ) -> Readings:
        """The readings of a batch whose scores are known."""
        guess = Known(float(rows_of(batch).choices.lengths.double().log().sum()))
        return Readings({CHOICE: self.loss(scores, batch)}, {CHOICE: guess}, {"text": vectors})

    # --- predictions that read nothing -------------------------------------------------------------------------------

    def majority(self, counts: Int[NDArray, " question"]) -> Int[NDArray, " question"]:
        """The place that is right most often in training, of questions with so many choices."""
        places = self.places.cpu().numpy()
        return np.array([places[:count].argmax() for count in counts], dtype=np.int64)


def rows_of(batch: LabelledBatch) -> ChoiceRows:
    """The choices of the questions of a batch."""
    assert isinstance(batch.part, ChoiceRows)
    return batch.part
