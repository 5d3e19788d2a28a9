"""The feed-forward model of Kummerfeld et al. (2019), section 4: features of a pair of messages and the words of both."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.config import check_fields
from ramify.disentangle.batch import LinkBatch, count_pair_features
from ramify.disentangle.config import ChatInput
from ramify.disentangle.features.pairs import CHILD_FEATURES, PARENT_FEATURES
from ramify.disentangle.models.base import LinkBackbone, WordModelConfig
from ramify.disentangle.models.candidate_attention import CandidateAttention
from ramify.errors import RamifyError
from ramify.nn.dropout import dropout
from ramify.nn.linear import linear, on_pairs
from ramify.nn.pooling import Pool

Activation = Literal["softsign", "relu", "gelu", "tanh"]


def softsign(x: Float[Tensor, "*size"]) -> Float[Tensor, "*size"]:
    """torch's softsign with one temporary tensor less."""
    return x / x.abs().add_(1)


ACTIVATIONS = {"softsign": softsign, "relu": F.relu, "gelu": F.gelu, "tanh": torch.tanh}


@dataclass(frozen=True)
class FeatureModelConfig(WordModelConfig):
    """Defaults are the paper's. Without layers and words, and with `task.score=linear`, it is the paper's linear model."""

    vocab_size: int = 0
    dim: int = 100
    """Size of the word vectors; 0: read no words."""
    hidden: int = 512
    num_layers: int = 2
    activation: Activation = "softsign"
    dropout: float = 0.0
    years: bool = True
    """Read the year of a message. Useless for years after those of the training logs."""
    context_features: bool = False
    """Read features of the messages around a pair, too (`disentangle.features.context`). Not in the paper."""
    attention_layers: int = 0
    """Transformer layers in which the candidates of a message attend to each other before they are scored. Not in the paper."""
    attention_dim: int = 128
    attention_heads: int = 4
    attention_candidates: int = 0
    """Number of candidates that attend to each other: those with the best scores before attention. Others keep their score
    (0: all)."""

    def __post_init__(self) -> None:
        check_fields(self, "model.")
        for name, least in {"vocab_size": 0, "dim": 0, "num_layers": 0, "hidden": 1}.items():
            if getattr(self, name) < least:
                raise RamifyError(f"model.{name} must be at least {least}, but is {getattr(self, name)}.")
        for name, least in {"layers": 0, "dim": 1, "heads": 1, "candidates": 0}.items():
            if getattr(self, f"attention_{name}") < least:
                value = getattr(self, f"attention_{name}")
                raise RamifyError(f"model.attention_{name} must be at least {least}, but is {value}.")
        if self.attention_dim % self.attention_heads:
            raise RamifyError(
                f"model.attention_dim={self.attention_dim} must be a multiple of model.attention_heads={self.attention_heads}."
            )
        if not 0 <= self.dropout < 1:
            raise RamifyError(f"model.dropout must be at least 0 and below 1, but is {self.dropout}.")

    def build(self) -> "FeatureModel":
        return FeatureModel(self)


class FeatureModel(LinkBackbone):
    """The last hidden layer for every pair of a message and a candidate."""

    config: FeatureModelConfig
    embedding: nn.Embedding | None
    layers: nn.ModuleList

    def __init__(self, config: FeatureModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim) if config.dim else None
        self.max_pool, self.mean_pool = Pool("max", config.dim), Pool("mean", config.dim)
        sizes = [self.in_dim, *[config.hidden] * config.num_layers]
        self.layers = nn.ModuleList(nn.Linear(size, following) for size, following in pairwise(sizes))
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.candidate_attention = self._build_attention() if config.attention_layers else None

    def _build_attention(self) -> CandidateAttention:
        config = self.config
        return CandidateAttention(
            self.out_dim,
            num_layers=config.attention_layers,
            dim=config.attention_dim,
            num_heads=config.attention_heads,
            dropout=config.dropout,
            limit=config.attention_candidates,
        )

    @property
    def in_dim(self) -> int:
        """Size of the first layer's input: features, and the maximum and the mean of both messages' word vectors."""
        pair = count_pair_features(self.config.context_features)
        return len(CHILD_FEATURES) + len(PARENT_FEATURES) + pair + 4 * self.config.dim

    @property
    def reads_structure(self) -> bool:
        return False

    @property
    def reads_history(self) -> bool:
        return False

    @property
    def reads_features(self) -> bool:
        return True

    @property
    def reads_context_features(self) -> bool:
        return self.config.context_features

    @property
    def word_embedding(self) -> nn.Embedding | None:
        return self.embedding

    @property
    def message_encoder(self) -> None:
        return None

    def check_input(self, input: ChatInput) -> None:
        return None

    @property
    def out_dim(self) -> int:
        return self.config.hidden if self.config.num_layers else self.in_dim

    def forward(self, batch: LinkBatch) -> Float[Tensor, "key out"]:
        batch = batch if self.config.years else batch.hide_years()
        texts = self._pool_words(batch)
        of_target = texts.index_select(0, batch.target)
        child = torch.cat([of_target, batch.child_features], dim=1)
        parent = torch.cat([torch.cat([texts, of_target]), batch.all_parent_features], dim=1)
        if not len(self.layers):
            rows = (child.index_select(0, batch.target_index), parent.index_select(0, batch.parent_index))
            return torch.cat([*rows, batch.pair_features], dim=1)
        first, *others = self.layers
        assert isinstance(first, nn.Linear)
        x = on_pairs(first, child, batch.target_index, parent, batch.parent_index, batch.pair_features)
        activate = ACTIVATIONS[self.config.activation]
        x = dropout(activate(x), self.config.dropout, self.training)
        for layer in others:
            assert isinstance(layer, nn.Linear)
            x = dropout(activate(linear(x, layer.weight, layer.bias)), self.config.dropout, self.training)
        return x

    def _pool_words(self, batch: LinkBatch) -> Float[Tensor, "message text"]:
        if self.embedding is None:
            return batch.parent_features.new_zeros(len(batch.messages), 0)
        words = self.embedding(batch.input_ids)
        return torch.cat([self.max_pool(words, batch.messages), self.mean_pool(words, batch.messages)], dim=1)
