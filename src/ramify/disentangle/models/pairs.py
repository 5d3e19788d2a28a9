"""What encoders of pairs of messages share, and how features of a pair come to what such an encoder makes of it."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.disentangle.batch import LinkBatch, pair_width
from ramify.disentangle.config import History
from ramify.disentangle.features.pairs import ANSWERED, ANSWERING
from ramify.disentangle.models.base import LinkBackbone
from ramify.errors import RamifyError
from ramify.nn.dropout import dropout
from ramify.nn.linear import Linear, on_pairs


@dataclass(frozen=True)
class FeatureConfig:
    """Of models that read features of a pair beside its words, where their `features` say so."""

    feature_hidden: int = 512
    """Size of the hidden layers through which features come to a pair's state (features = head)."""
    feature_layers: int = 2
    """How many there are."""
    years: bool = True
    """Whether it may know the year."""
    surroundings: bool = False
    """Read what is said around the messages of a pair, too (`disentangle.features.context`): not in the paper."""


def check_features(config: Any) -> None:
    """Raise where a model reads some features, but not those that these come with."""
    if config.surroundings and config.features == "none":
        raise RamifyError("model.surroundings comes with features of a pair, which are not read: train with --features head.")


def feature_layer(config: FeatureConfig, dim: int, out: int) -> nn.Linear:
    """For `on_features`: of the features of a pair and so many numbers more that belong to it."""
    return nn.Linear(len(ANSWERING) + len(ANSWERED) + pair_width(config.surroundings) + dim, out)


def on_features(layer: nn.Linear, batch: LinkBatch, pairs: Float[Tensor, "key own"]) -> Float[Tensor, "key out"]:
    """A layer on the features of both messages of each pair, and on what belongs to the pair alone (`batch.pairs`, …)."""
    return on_pairs(layer, batch.answering, batch.target_of, batch.all_answered, batch.answered_as, pairs)


class Join(nn.Module):
    """Hidden layers on the pairs' states and features (the + F of Zhu et al. 2020), begun as the feature model's are: the small
    weights of a Transformer's layers would leave features of 0 and 1 all but unread for a thousand updates."""

    layers: nn.ModuleList

    def __init__(self, config: Any, dim: int) -> None:
        super().__init__()
        self.rate = config.dropout
        hidden = config.feature_hidden
        further = [Linear(hidden, hidden) for _ in range(config.feature_layers - 1)]
        self.layers = nn.ModuleList([feature_layer(config, dim, hidden), *further])
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, states: Float[Tensor, "key state"], batch: LinkBatch) -> Float[Tensor, "key out"]:
        first, *others = self.layers
        assert isinstance(first, nn.Linear)
        x = on_features(first, batch, torch.cat([batch.pairs, states.to(batch.pairs.dtype)], dim=1))
        x = dropout(F.gelu(x), self.rate, self.training)
        for layer in others:
            x = dropout(F.gelu(layer(x)), self.rate, self.training)
        return x


def join_of(config: Any, dim: int) -> Join | None:
    """What joins features to states of this size, where a model's config asks for it."""
    return Join(config, dim) if config.features == "head" else None


def check_pieces(input: History) -> None:
    """Raise unless messages are read as word pieces."""
    if input.texts != "pieces":
        raise RamifyError(f"this model's encoder reads word pieces: set input.texts=pieces, not {input.texts}.")


@dataclass(frozen=True)
class PairConfig(FeatureConfig):
    features: Literal["none", "head"] = "none"
    """`head`: features of the pair, joined to its state through hidden layers."""
    dropout: float = 0.1
    chunk_tokens: int = 8192
    """Tokens of pairs that are read at once. In training a batch that holds more is read twice, so that no more of it than
    this has to be kept."""


class Joined(LinkBackbone):
    """Makes states of pairs that features may join."""

    join: Join | None

    @property
    def reads_features(self) -> bool:
        return self.config.features != "none"

    @property
    def reads_surroundings(self) -> bool:
        return self.config.surroundings

    @property
    @abstractmethod
    def state_dim(self) -> int: ...

    @abstractmethod
    def states(self, batch: LinkBatch) -> Float[Tensor, "key state"]:
        """Of each pair, before features are joined to it."""

    @property
    def out_dim(self) -> int:
        return self.state_dim if self.join is None else self.config.feature_hidden

    def forward(self, batch: LinkBatch) -> Float[Tensor, "key out"]:
        batch = batch if self.config.years else batch.without_years()
        states = self.states(batch)
        return states if self.join is None else self.join(states, batch)


class PairEncoder(Joined):
    """Reads a message together with a candidate, and no third one."""
