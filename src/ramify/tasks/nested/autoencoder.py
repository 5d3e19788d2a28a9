"""A regulariser of vectors: a Decompressor gives back what the Compressor of its level read."""

import math
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from ramify.batching.document_batch import LevelBatch, LevelDraws
from ramify.tasks.constants import NoConstant
from ramify.tasks.nested.base import LevelLoss, LevelPass, relative_distance
from ramify.tasks.nested.settings import LossWeights, check_not_negative, check_shares


@dataclass(frozen=True)
class AutoencoderSettings(LossWeights):
    """The settings of the regulariser."""

    autoencoder: float = 0.1
    """Weight at the start of the distance between a Compressor's input and its Decompressor's output."""
    autoencoder_until: float = 0.6
    """The share of training after which the weight of that distance has fallen to 0, along a cosine."""
    autoencoder_distance: Literal["squared", "relative"] = "squared"
    """squared: the mean square. relative: twice the mean distance, divided by the sum of the mean lengths."""
    autoencoder_detached: bool = False
    """Whether that distance teaches the Decompressor alone."""

    def check_autoencoder(self) -> None:
        check_not_negative(self, "autoencoder")
        check_shares(self, "autoencoder_until")


@dataclass(frozen=True)
class AutoencoderDistance(LevelLoss):
    """The distance between a Compressor's input and its Decompressor's output."""

    kind = "autoencoder"
    title = "Regulariser: the Decompressor's output and the Compressor's input"
    unit = "squared error"

    config: AutoencoderSettings
    share_done: float
    """The share of training that is done."""

    def count(self, rows: LevelBatch, draws: LevelDraws) -> float:
        return float(rows.lengths.sum())

    def value(self, level: LevelPass, scale: float) -> Float[Tensor, ""] | None:
        if not self.weight:
            return None
        return self._distance(level) * (self.weight * scale)

    def constant(self, level: LevelPass) -> NoConstant:
        return NoConstant()

    @property
    def weight(self) -> float:
        """The weight now: it falls to 0 along a cosine."""
        config = self.config
        if self.share_done >= config.autoencoder_until:
            return 0.0
        return config.autoencoder * 0.5 * (1 + math.cos(math.pi * self.share_done / config.autoencoder_until))

    def _distance(self, level: LevelPass) -> Float[Tensor, ""]:
        states = level.encoded.states.index_select(0, level.encoded.rows.true_slots)
        states = states.detach() if self.config.autoencoder_detached else states
        if self.config.autoencoder_distance == "relative":
            return relative_distance(states, level.decoded.decompressed) * len(states)
        return F.mse_loss(level.decoded.decompressed, states, reduction="sum") / states.shape[1]
