"""The common part of the objectives of running text: they predict tokens of rows that continue each other."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ramify.batching.forest import Ints
from ramify.batching.stream_batch import StreamBatch, StreamTargets
from ramify.batching.views.streams import StreamInput
from ramify.config import check_fields
from ramify.models.base import State, StreamBackbone
from ramify.nn.heads import VocabularyHead
from ramify.tasks.base import Task
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
    """An objective of a model that reads running text."""

    optional = ("next_segment",)
    """Objectives of running text start from each other, but only permutation language modelling may predict segments."""
    matching = ("tie_weights",)
    backbone: StreamBackbone
    input: StreamInput
    config: Any
    """A `StreamTaskConfig`; each task narrows the type."""
    head: VocabularyHead

    def __init__(self, backbone: StreamBackbone, tokenizer: Tokenizer, input: StreamInput, config: StreamTaskConfig) -> None:
        super().__init__()
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.input = input
        self.config = config
        self.head = VocabularyHead(
            backbone.out_dim,
            backbone.config.vocab_size,
            embedding=backbone.tied_embedding if config.tie_weights else None,
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
