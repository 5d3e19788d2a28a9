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
"""Settings that may differ between a model and the checkpoint that it starts from."""


class LinkBackbone(AnyBackbone):
    """A body that computes a state for every pair of a message and a candidate parent."""

    candidate_attention: CandidateAttention | None
    """Attention among the states of a message's candidates; None: each candidate is scored alone."""

    @property
    @abstractmethod
    def reads_structure(self) -> bool:
        """Whether the model reads the parents of earlier messages, so it decides message by message."""

    @property
    @abstractmethod
    def reads_history(self) -> bool:
        """Whether the model reads all candidates of a message as a history, so none can be pruned."""

    @property
    @abstractmethod
    def reads_features(self) -> bool:
        """Whether the model reads features of a pair (`disentangle.features.pairs`)."""

    @property
    @abstractmethod
    def reads_context_features(self) -> bool:
        """Whether the model reads features of the messages around a pair (`disentangle.features.context`)."""

    @property
    @abstractmethod
    def word_embedding(self) -> nn.Embedding | None:
        """The embedding of whole words, which may start from vectors learned from the logs; None: the model has none."""

    @property
    @abstractmethod
    def message_encoder(self) -> Backbone | None:
        """The encoder of single messages, whose vectors can be cached (`LinkBatch.vectors`); None: the model has none."""

    @abstractmethod
    def check_input(self, input: ChatInput) -> None:
        """Raise `RamifyError` if the model cannot read chats with these settings."""

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
    """The settings of a model with a vocabulary of whole words, which starts only from models of its own kind."""

    def adapted_to(self, checkpoint: Checkpoint) -> Self:
        return checkpoint.saved_as(self)

    def for_vocabulary(self, size: int) -> Self:
        settings: Any = self
        return replace(settings, vocab_size=size)

    def initialize(self, backbone: LinkBackbone, checkpoint: Checkpoint) -> None:
        checkpoint.fill(backbone, self, FREE)
