"""The common part of the objectives of running text: they predict tokens of rows that continue each other."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ramify.batching.forest import Ints
from ramify.batching.stream_batch import StreamBatch, StreamTargets
from ramify.batching.views.streams import StreamInput
from ramify.config import check_fields
from ramify.models.base import State, StreamBackbone
from ramify.nn.heads import VocabularyHead
from ramify.tasks.base import Losses, Readings, Task
from ramify.tasks.constants import Constant, Frequencies
from ramify.tokenizer import Tokenizer


@dataclass(frozen=True)
class StreamTaskConfig(ABC):
    """The settings that all objectives of running text have."""

    tie_weights: bool = True
    """Whether the output map is the token embedding."""

    def __post_init__(self) -> None:
        check_fields(self, "task.")

    @property
    @abstractmethod
    def predicts_all_in_orders(self) -> bool:
        """Whether all tokens of a part of a row are predicted, in random orders."""

    @abstractmethod
    def build(self, backbone: StreamBackbone, tokenizer: Tokenizer, input: StreamInput) -> "StreamTask":
        """A task with these settings, with fresh weights of its own."""


@dataclass(frozen=True)
class Predicted:
    """The states from which the targets of a batch are predicted."""

    states: Float[Tensor, "target dim"]
    """Row after row."""
    targets: StreamTargets
    tokens: Float[Tensor, "row token dim"] | None
    """The states of all tokens, if they were computed."""
    state: State | None
    """The state after the batch."""


class StreamTask(Task[StreamBatch], ABC):
    """An objective of a model that reads running text: a loss of the tokens that are predicted, and perhaps others."""

    name: ClassVar[str]
    """The name of the loss of the tokens that are predicted."""
    perplexity: ClassVar[bool] = False
    """Whether every token is predicted from those before it, so that the exponential of the loss is the perplexity of the
    text."""
    optional = ("next_segment",)
    """Objectives of running text start from each other, but only permutation language modelling may predict segments."""
    matching = ("tie_weights",)
    backbone: StreamBackbone
    input: StreamInput
    config: Any
    """A `StreamTaskConfig`; each task narrows the type."""
    head: VocabularyHead

    def __init__(
        self,
        backbone: StreamBackbone,
        tokenizer: Tokenizer,
        input: StreamInput,
        config: StreamTaskConfig,
        *,
        sampled: int | None = None,
    ) -> None:
        """`sampled` is the number of tokens against which a target is scored in training; None: all of the vocabulary."""
        super().__init__()
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.input = input
        self.config = config
        self.head = VocabularyHead(
            backbone.out_dim,
            backbone.config.vocab_size,
            embedding=backbone.tied_embedding if config.tie_weights else None,
            sampled=sampled,
        )

    def corrupt(self, batch: StreamBatch, generator: torch.Generator) -> StreamBatch:
        seeds = torch.randint(2**63 - 1, (len(batch.input_ids),), generator=generator, device=generator.device)
        return self.draw(batch, seeds.cpu().numpy())

    @abstractmethod
    def draw(self, batch: StreamBatch, seeds: Ints) -> StreamBatch:
        """The batch with targets, which one seed per row determines."""

    @abstractmethod
    def predict(self, batch: StreamBatch, state: State | None) -> Predicted:
        """Compute the states of a drawn batch's targets. `state` is that after the batch before."""

    def losses(self, batch: StreamBatch, divisors: Mapping[str, float], phase: str, state: State | None, shared: Any) -> Losses:
        predicted = self.predict(batch, state)
        yield self._losses(predicted, batch, divisors), predicted.state

    def _losses(self, predicted: Predicted, batch: StreamBatch, divisors: Mapping[str, float]) -> dict[str, Tensor]:
        weights = predicted.targets.weight.flatten() / divisors[self.name]
        loss = self.head.loss(predicted.states, predicted.targets.labels.flatten(), weights)
        return {self.name: loss} | self.further_losses(predicted, batch, divisors)

    def further_losses(self, predicted: Predicted, batch: StreamBatch, divisors: Mapping[str, float]) -> dict[str, Tensor]:
        """The divided losses beside that of the tokens that are predicted. Most objectives have none."""
        return {}

    def readings(self, batch: StreamBatch, phase: str, state: State | None, shared: Any) -> Readings:
        predicted = self.predict(batch, state)
        nats, _ = self.head.measure(predicted.states, predicted.targets.labels.flatten())
        return self.target_readings(predicted, batch, nats)

    def target_readings(self, predicted: Predicted, batch: StreamBatch, nats: Float[Tensor, " target"]) -> Readings:
        """The readings of predictions with these losses."""
        labels, weights = predicted.targets.labels.flatten(), predicted.targets.weight.flatten()
        further = self.further_constants(batch)
        losses = {self.name: (nats * weights).sum()} | self.further_losses(predicted, batch, dict.fromkeys(further, 1.0))
        constants = {self.name: Frequencies.of(labels, weights, self.backbone.config.vocab_size)}
        vectors = {"predicted token": predicted.states[weights > 0]}
        return Readings(losses, constants | further, vectors, predicted.state)

    def further_constants(self, batch: StreamBatch) -> dict[str, Constant]:
        """The best constant predictions of the further losses."""
        return {}
