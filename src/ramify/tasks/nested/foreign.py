"""Foreign children: which of the children that may be replaced were, one by one. The paper judges rows as wholes."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.batching.document_batch import LevelBatch, LevelDraws
from ramify.nn.linear import Linear
from ramify.tasks.nested.base import LevelLoss, LevelPass
from ramify.tasks.nested.settings import LossWeights, check_not_negative


@dataclass(frozen=True)
class ForeignSettings(LossWeights):
    """The settings of foreign children."""

    foreign: float = 0.0
    """Weight of the loss of each child, above the tokens, that carries the second segment vector: was it replaced? 0: there is
    no such loss."""

    def check_foreign(self) -> None:
        check_not_negative(self, "foreign")


class ForeignHead(nn.Module):
    """The score of a child that was replaced, from its contextual state: the logarithm of its odds."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dense = Linear(dim, dim)
        self.out = Linear(dim, 1)
        # Half of the marked children are replaced, so the odds start at 1.
        nn.init.zeros_(self.out.bias)

    def forward(self, states: Float[Tensor, "child dim"]) -> Float[Tensor, " child"]:
        return self.out(F.gelu(self.dense(states)))[:, 0]


@dataclass(frozen=True)
class ForeignChildren(LevelLoss):
    """The cross-entropy of each marked child: was it replaced? It reads the same pass as the checker.

    Tokens have no such loss: it is for levels whose children are nodes.
    """

    kind = "foreign"
    title = "Foreign children: was a marked child replaced?"
    unit = "nats per child"
    of_children = True
    above_tokens = True

    config: ForeignSettings
    heads: nn.ModuleList
    """`ForeignHead` of each level above the tokens."""

    def count(self, rows: LevelBatch, draws: LevelDraws) -> float:
        return float(len(draws.marked))

    def value(self, level: LevelPass, scale: float) -> Float[Tensor, ""] | None:
        encoded, draws = level.encoded, level.draws
        if not len(draws.marked):
            return None
        logits = self.heads[encoded.level - 1](level.replaced_states.index_select(0, draws.marked))
        shown, own = (slots.index_select(0, draws.marked) for slots in (draws.replaced_slots, encoded.rows.slots))
        loss = F.binary_cross_entropy_with_logits(logits, torch.ne(shown, own).to(logits.dtype), reduction="sum")
        return loss * (self.config.foreign * scale)
