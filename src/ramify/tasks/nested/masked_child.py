"""Masked children, predicted from their siblings (AGENT, section 3.2)."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.batching.document_batch import LevelBatch, LevelDraws
from ramify.nn.heads import VocabularyHead
from ramify.nn.linear import Linear
from ramify.tasks.constants import Constant, Frequencies
from ramify.tasks.nested.base import EncodedLevel, LevelLoss, LevelPass
from ramify.tasks.nested.candidates import precise
from ramify.tasks.nested.settings import LossWeights, check_shares
from ramify.tasks.spans import check_split


@dataclass(frozen=True)
class MaskSettings(LossWeights):
    """The settings of masked children."""

    mask_rate: float = 0.15
    mask_split: tuple[float, float, float] = (0.8, 0.1, 0.1)
    """The shares of chosen children that show the mask, a random child, and themselves."""
    mask_draw: Literal["count", "bernoulli"] = "count"
    """count: max(1, round(rate · n)) of n children. bernoulli: each with the probability of the rate, so perhaps none."""

    def check_masks(self) -> None:
        check_shares(self, "mask_rate")
        check_split(self.mask_split)


class MaskedChildHead(nn.Module):
    """A dense layer with GELU, before the dot product with the level's vectors."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dense = Linear(dim, dim)

    def forward(self, x: Float[Tensor, "position dim"]) -> Float[Tensor, "position dim"]:
        return F.gelu(self.dense(x))


@dataclass(frozen=True)
class MaskedChildren(LevelLoss):
    """The cross-entropy of every masked child, given the other children of its row."""

    kind = "mlm"
    title = "Masked children from their siblings"
    unit = "nats per child"
    of_children = True

    config: LossWeights
    heads: nn.ModuleList
    """`MaskedChildHead` of each level."""
    head: VocabularyHead

    def count(self, rows: LevelBatch, draws: LevelDraws) -> float:
        return float(len(draws.masked))

    def value(self, level: LevelPass, scale: float) -> Float[Tensor, ""] | None:
        encoded, draws = level.encoded, level.draws
        if not len(draws.masked):
            return None
        states = self.states(encoded, draws)
        labels = encoded.rows.slots.index_select(0, draws.masked)
        if encoded.classes is None:
            weights = torch.ones(labels.shape, device=labels.device, dtype=precise(states.dtype))
            loss = self.head.loss(states, labels, weights)
        else:
            loss = encoded.classes.loss(states, labels).sum()
        return loss * (self.config.mlm * scale)

    def constant(self, level: LevelPass) -> Constant:
        encoded, weight = level.encoded, self.config.mlm
        labels = encoded.rows.slots.index_select(0, level.draws.masked)
        if encoded.classes is None:
            return Frequencies.of(labels, torch.full(labels.shape, weight), len(self.head.bias))
        return encoded.classes.constant(labels, weight=weight)

    def states(self, encoded: EncodedLevel, draws: LevelDraws) -> Float[Tensor, "masked dim"]:
        """The outputs of the level's head, which are compared with the level's items."""
        states = encoded.encoder.states(encoded.items, draws.masked_slots, encoded.rows.rows)
        return self.heads[encoded.level](states.index_select(0, draws.masked))
