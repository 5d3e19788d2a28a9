"""The contract of models that score reply links."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any, Self

from jaxtyping import Float
from torch import Tensor, nn

from ramify.disentangle.batch import LinkBatch
from ramify.disentangle.config import ChatInput
from ramify.disentangle.models.candidate_attention import CandidateAttention
from ramify.models.base import RATES, AnyBackbone, Backbone, Checkpoint, ModelConfig

FREE = (*RATES, "chunk_tokens")
"""The settings in which a model may differ from the one that it starts from."""


class LinkBackbone(AnyBackbone):
    """A body that gives a state of every pair of a message and a candidate parent."""

    candidate_attention: CandidateAttention | None
    """Through which the candidates of a message attend to each other, once each has its state; None: each is scored alone."""

    @property
    @abstractmethod
    def reads_structure(self) -> bool:
        """Whether it reads the parents of earlier messages, so that it decides message by message."""

    @property
    @abstractmethod
    def reads_history(self) -> bool:
        """Whether it reads all candidates of a message as a history, so that none can be left out."""

    @property
    @abstractmethod
    def reads_features(self) -> bool:
        """Whether it reads features of a pair (`disentangle.features.pairs`)."""

    @property
    @abstractmethod
    def reads_context_features(self) -> bool:
        """Whether it reads features of the messages around a pair (`disentangle.features.context`)."""

    @property
    @abstractmethod
    def word_embedding(self) -> nn.Embedding | None:
        """The embedding of whole words, which may start from vectors learned from the logs; None: it has none."""

    @property
    @abstractmethod
    def message_encoder(self) -> Backbone | None:
        """The encoder of single messages, whose vectors can be kept (`LinkBatch.vectors`); None: it encodes none singly."""

    @abstractmethod
    def check_input(self, input: ChatInput) -> None:
        """Raise where it cannot read a chat by these settings."""

    @property
    @abstractmethod
    def out_dim(self) -> int: ...

    @abstractmethod
    def forward(self, batch: LinkBatch) -> Float[Tensor, "key out"]: ...


class LinkModelConfig(ModelConfig):
    """The settings of a model that scores reply links."""

    @abstractmethod
    def build(self) -> LinkBackbone:
        """A model of these sizes, with fresh weights."""


class WordModelConfig(LinkModelConfig):
    """The settings of a model whose vocabulary is whole words, so that it starts from models of its own kind alone."""

    def adapted_to(self, checkpoint: Checkpoint) -> Self:
        return checkpoint.saved_as(self)

    def for_vocabulary(self, size: int) -> Self:
        settings: Any = self
        return replace(settings, vocab_size=size)

    def initialize(self, backbone: LinkBackbone, checkpoint: Checkpoint) -> None:
        checkpoint.fill(backbone, self, FREE)
