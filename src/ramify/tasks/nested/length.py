"""The number of a node's children from its vector, for decoders that predict it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from ramify.batching.document_batch import LevelBatch, LevelDraws
from ramify.tasks.nested.base import LevelLoss, LevelPass
from ramify.tasks.nested.settings import LossWeights


@dataclass(frozen=True)
class PredictedLength(LevelLoss):
    """The cross-entropy of a row's number of places. It has the weight of the reconstruction."""

    kind = "length"
    title = "Number of children from a vector"
    unit = "nats per node"
    of_decoder = True

    config: LossWeights

    def count(self, rows: LevelBatch, draws: LevelDraws) -> float:
        return float(len(rows.lengths))

    def value(self, level: LevelPass, scale: float) -> Float[Tensor, ""]:
        scores = level.decoded.length_scores
        assert scores is not None
        lengths = torch.from_numpy(level.encoded.rows.lengths - 1).to(scores.device)
        return F.cross_entropy(scores, lengths, reduction="sum") * (self.config.reconstruction * scale)
