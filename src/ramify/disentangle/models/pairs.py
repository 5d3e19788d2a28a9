"""Shared parts of encoders of message pairs, and the fusion of a pair's state with its features."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.disentangle.batch import LinkBatch, count_pair_features
from ramify.disentangle.config import ChatInput
from ramify.disentangle.features.pairs import CHILD_FEATURES, PARENT_FEATURES
from ramify.disentangle.models.base import LinkBackbone, LinkModelConfig
from ramify.errors import RamifyError
from ramify.nn.dropout import dropout
from ramify.nn.linear import Linear, on_pairs


@dataclass(frozen=True)
class FeatureConfig(LinkModelConfig):
    """Settings of models that may read features of a pair beside its words (`features`)."""

    feature_hidden: int = 512
    """Size of the hidden layers that fuse features with a pair's state (features = head)."""
    feature_layers: int = 2
    """Number of these layers."""
    years: bool = True
    """Read the year of a message."""
    context_features: bool = False
    """Read features of the messages around a pair, too (`disentangle.features.context`). Not in the paper."""


def check_features(config: Any) -> None:
    """Raise if a model reads context features but no features of the pair."""
    if config.context_features and config.features == "none":
        raise RamifyError(
            "model.context_features=true needs model.features=head or input, not none. Train with --features head."
        )


def build_feature_layer(config: FeatureConfig, dim: int, out: int) -> nn.Linear:
    """A layer for `apply_feature_layer`, on the features of a pair and `dim` further numbers per pair."""
    pair = count_pair_features(config.context_features)
    return nn.Linear(len(CHILD_FEATURES) + len(PARENT_FEATURES) + pair + dim, out)


def apply_feature_layer(layer: nn.Linear, batch: LinkBatch, pairs: Float[Tensor, "key own"]) -> Float[Tensor, "key out"]:
    """Apply a layer to the features of both messages of each pair and to `pairs`, numbers of the pair itself such as
    `batch.pair_features`."""
    return on_pairs(layer, batch.child_features, batch.target_index, batch.all_parent_features, batch.parent_index, pairs)


class FeatureFusion(nn.Module):
    """Hidden layers on the pairs' states and features (the + F of Zhu et al. 2020).

    The initial weights are the feature model's. With the smaller ones of a Transformer, the model would hardly use features of
    0 and 1 in its first thousand updates.
    """

    layers: nn.ModuleList

    def __init__(self, config: Any, dim: int) -> None:
        super().__init__()
        self.rate = config.dropout
        hidden = config.feature_hidden
        further = [Linear(hidden, hidden) for _ in range(config.feature_layers - 1)]
        self.layers = nn.ModuleList([build_feature_layer(config, dim, hidden), *further])
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, states: Float[Tensor, "key state"], batch: LinkBatch) -> Float[Tensor, "key out"]:
        first, *others = self.layers
        assert isinstance(first, nn.Linear)
        pairs = torch.cat([batch.pair_features, states.to(batch.pair_features.dtype)], dim=1)
        x = dropout(F.gelu(apply_feature_layer(first, batch, pairs)), self.rate, self.training)
        for layer in others:
            x = dropout(F.gelu(layer(x)), self.rate, self.training)
        return x


def build_fusion(config: Any, dim: int) -> FeatureFusion | None:
    """The fusion of features with states of this size; None unless features = head."""
    return FeatureFusion(config, dim) if config.features == "head" else None


def check_pieces(input: ChatInput) -> None:
    """Raise unless messages are read as word pieces."""
    if input.texts != "pieces":
        raise RamifyError(
            f"input.texts={input.texts} does not fit this model, whose encoder reads word pieces. Set input.texts=pieces."
        )


@dataclass(frozen=True)
class PairConfig(FeatureConfig):
    features: Literal["none", "head"] = "none"
    """head: fuse features of the pair with its state, through hidden layers."""
    dropout: float = 0.1
    chunk_tokens: int = 8192
    """Number of tokens of pairs that are encoded at once. Training encodes a larger batch twice, which bounds memory."""


class FusionBackbone(LinkBackbone):
    """Computes states of pairs, which may be fused with features."""

    fusion: FeatureFusion | None
    candidate_attention = None

    @property
    def reads_features(self) -> bool:
        return self.config.features != "none"

    @property
    def reads_context_features(self) -> bool:
        return self.config.context_features

    @property
    @abstractmethod
    def state_dim(self) -> int: ...

    @abstractmethod
    def compute_states(self, batch: LinkBatch) -> Float[Tensor, "key state"]:
        """The state of each pair before fusion."""

    @property
    def out_dim(self) -> int:
        return self.state_dim if self.fusion is None else self.config.feature_hidden

    def forward(self, batch: LinkBatch) -> Float[Tensor, "key out"]:
        batch = batch if self.config.years else batch.hide_years()
        states = self.compute_states(batch)
        return states if self.fusion is None else self.fusion(states, batch)


class PairEncoder(FusionBackbone):
    """Encodes a message together with one candidate, and reads no third message."""

    @property
    def reads_structure(self) -> bool:
        return False

    @property
    def reads_history(self) -> bool:
        return False

    @property
    def message_encoder(self) -> None:
        return None
