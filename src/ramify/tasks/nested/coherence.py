"""Coherence: the share of a node's children that were replaced (AGENT, section 3.3)."""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.batching.document_batch import LevelBatch, LevelDraws
from ramify.errors import RamifyError
from ramify.tasks.nested.base import LevelLoss, LevelPass
from ramify.tasks.nested.corruption import Source
from ramify.tasks.nested.settings import LossWeights


@dataclass(frozen=True)
class CoherenceSettings(LossWeights):
    """The settings of replaced children and of the checkers."""

    marks: Literal["seed", "none"] = "seed"
    """Whether children that may be replaced carry the second segment vector (seed: they do, as in the paper). It tells which
    rows hold no replaced child, so coherence is scored child by child; none needs one pass."""
    replacement: Source = "any"
    """Replaced sentences and longer nodes come from any place in the batch, another parent, or another document."""
    replacement_tokens: Literal["batch", "vocabulary"] = "batch"
    """Replaced tokens are drawn from the tokens of the batch, or uniformly from the vocabulary."""
    checker_layers: int = 2
    checker_width: float = 2.0
    """The width of the checker's layers, as a multiple of the vector's length."""

    def check_checkers(self) -> None:
        if self.checker_layers < 0 or self.checker_width <= 0:
            raise RamifyError(
                f"task.checker_layers={self.checker_layers} must be at least 0, and task.checker_width={self.checker_width:g} "
                "above 0."
            )


@dataclass(frozen=True)
class Coherence(LevelLoss):
    """The squared error of the checker's share of replaced children. Rows without children are left out."""

    kind = "coherence"
    title = "Coherence: the share of replaced children"
    unit = "squared error"

    config: LossWeights
    checkers: nn.ModuleList
    """`CoherenceChecker` of each level."""

    def count(self, rows: LevelBatch, draws: LevelDraws) -> float:
        return float(len(draws.checked))

    def value(self, level: LevelPass, scale: float) -> Float[Tensor, ""] | None:
        encoded, draws = level.encoded, level.draws
        if not len(draws.checked):
            return None
        vectors = encoded.encoder.row_vectors(level.replaced_states, draws.replaced_slots, encoded.rows.rows)
        shares = self.checkers[encoded.level](vectors).index_select(0, draws.checked)
        right = draws.share.index_select(0, draws.checked).to(shares.dtype)
        return F.mse_loss(shares, right, reduction="sum") * (self.config.coherence * scale)
