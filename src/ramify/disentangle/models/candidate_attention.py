"""Attention among the candidates of one message. Not in the papers."""

from jaxtyping import Float
from torch import Tensor, nn

from ramify.nn.blocks import Stack
from ramify.nn.embeddings import init_weights
from ramify.nn.linear import Linear
from ramify.nn.ragged import Rows


class CandidateAttention(nn.Module):
    """Candidates of a message attend to each other; the result is added to their states, and is zero before training."""

    def __init__(self, size: int, *, num_layers: int, dim: int, num_heads: int, dropout: float, limit: int) -> None:
        super().__init__()
        self.limit = limit
        """Number of a message's candidates that attend to each other: those whose states score highest (0: all)."""
        self.reduce = Linear(size, dim)
        self.stack = Stack(num_layers, dim, num_heads, 2 * dim, dropout=dropout)
        self.expand = Linear(dim, size)
        init_weights(self)
        nn.init.zeros_(self.expand.weight)

    def forward(self, x: Float[Tensor, "key out"], candidates: Rows) -> Float[Tensor, "key out"]:
        return x + self.expand(self.stack(self.reduce(x), candidates))
