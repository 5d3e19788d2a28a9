"""The feed-forward model of Kummerfeld et al. (2019), section 4: features of a pair of messages and the words of both."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.config import check_fields
from ramify.disentangle.batch import LinkBatch, pair_width
from ramify.disentangle.features.pairs import ANSWERED, ANSWERING
from ramify.disentangle.models.base import LinkBackbone
from ramify.errors import RamifyError
from ramify.nn.blocks import Stack
from ramify.nn.dropout import dropout
from ramify.nn.embeddings import init_weights
from ramify.nn.linear import Linear, linear, on_pairs
from ramify.nn.pooling import Pool
from ramify.nn.ragged import Rows

Activation = Literal["softsign", "relu", "gelu", "tanh"]


def softsign(x: Float[Tensor, "*size"]) -> Float[Tensor, "*size"]:
    """torch's, which makes one tensor more."""
    return x / x.abs().add_(1)


ACTIVATIONS = {"softsign": softsign, "relu": F.relu, "gelu": F.gelu, "tanh": torch.tanh}


@dataclass(frozen=True)
class FeatureModelConfig:
    """Defaults are the paper's. Without layers and words, and with `task.score=linear`, it is its linear model."""

    vocab_size: int = 0
    dim: int = 100
    """Of the words' vectors; 0 = read no words."""
    hidden: int = 512
    num_layers: int = 2
    activation: Activation = "softsign"
    dropout: float = 0.0
    years: bool = True
    """Whether it may know the year, which says nothing of years after those that it was trained on."""
    surroundings: bool = False
    """Read what is said around the messages of a pair, too (`disentangle.features.context`): not in the paper."""
    context_layers: int = 0
    """Layers of a Transformer in which all candidates of one message read each other, before they are scored: not in the
    paper."""
    context_dim: int = 128
    context_heads: int = 4
    context_among: int = 0
    """How many candidates read each other: those that are likeliest by themselves; the others keep their score (0: all)."""

    def __post_init__(self) -> None:
        check_fields(self, "model.")
        if min(self.vocab_size, self.dim, self.num_layers, self.context_layers, self.context_among) < 0 or self.hidden < 1:
            raise RamifyError(
                "model.dim, num_layers, context_layers and context_among must not be negative, model.hidden must be positive."
            )
        if min(self.context_dim, self.context_heads) < 1 or self.context_dim % self.context_heads:
            raise RamifyError(
                f"model.context_dim ({self.context_dim}) must be a multiple of model.context_heads ({self.context_heads})."
            )
        if not 0 <= self.dropout < 1:
            raise RamifyError(f"model.dropout must be at least 0 and below 1, not {self.dropout}.")


class Among(nn.Module):
    """What each candidate of a message gets to know of the others, added to its state: nothing, as training begins."""

    def __init__(self, config: FeatureModelConfig, size: int) -> None:
        super().__init__()
        self.reduce = Linear(size, config.context_dim)
        self.stack = Stack(
            config.context_layers, config.context_dim, config.context_heads, 2 * config.context_dim, dropout=config.dropout
        )
        self.expand = Linear(config.context_dim, size)
        init_weights(self)
        nn.init.zeros_(self.expand.weight)

    def forward(self, x: Float[Tensor, "key out"], candidates: Rows) -> Float[Tensor, "key out"]:
        return x + self.expand(self.stack(self.reduce(x), candidates))


class FeatureModel(LinkBackbone):
    """The last hidden layer for every pair of a message and a candidate."""

    config: FeatureModelConfig
    embedding: nn.Embedding | None
    layers: nn.ModuleList

    def __init__(self, config: FeatureModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim) if config.dim else None
        self.highest, self.mean = Pool("max", config.dim), Pool("mean", config.dim)
        sizes = [self.inputs, *[config.hidden] * config.num_layers]
        self.layers = nn.ModuleList(nn.Linear(size, following) for size, following in pairwise(sizes))
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.context = Among(config, self.out_dim) if config.context_layers else None

    @property
    def inputs(self) -> int:
        """Size of what the first layer reads: features, and of both messages their words' maximum and mean."""
        return len(ANSWERING) + len(ANSWERED) + pair_width(self.config.surroundings) + 4 * self.config.dim

    @property
    def reads_surroundings(self) -> bool:
        return self.config.surroundings

    @property
    def out_dim(self) -> int:
        return self.config.hidden if self.config.num_layers else self.inputs

    def forward(self, batch: LinkBatch) -> Float[Tensor, "key out"]:
        batch = batch if self.config.years else batch.without_years()
        texts = self._texts(batch)
        of_target = texts.index_select(0, batch.target)
        target = torch.cat([of_target, batch.answering], dim=1)
        candidate = torch.cat([torch.cat([texts, of_target]), batch.all_answered], dim=1)
        if not len(self.layers):
            parts = (target.index_select(0, batch.target_of), candidate.index_select(0, batch.answered_as), batch.pairs)
            return torch.cat(parts, dim=1)
        first, *others = self.layers
        assert isinstance(first, nn.Linear)
        x = on_pairs(first, target, batch.target_of, candidate, batch.answered_as, batch.pairs)
        activate = ACTIVATIONS[self.config.activation]
        x = dropout(activate(x), self.config.dropout, self.training)
        for layer in others:
            assert isinstance(layer, nn.Linear)
            x = dropout(activate(linear(x, layer.weight, layer.bias)), self.config.dropout, self.training)
        return x

    @property
    def reads_together(self) -> bool:
        return self.context is not None

    @property
    def shortlist(self) -> int:
        return self.config.context_among

    def read_together(self, x: Float[Tensor, "key out"], candidates: Rows) -> Float[Tensor, "key out"]:
        assert self.context is not None
        return self.context(x, candidates)

    def _texts(self, batch: LinkBatch) -> Float[Tensor, "message text"]:
        if self.embedding is None:
            return batch.answered.new_zeros(len(batch.messages), 0)
        words = self.embedding(batch.input_ids)
        return torch.cat([self.highest(words, batch.messages), self.mean(words, batch.messages)], dim=1)
