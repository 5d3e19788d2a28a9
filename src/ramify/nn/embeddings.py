"""Token and position embeddings on the flat axis."""

import math
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ramify.nn.dropout import dropout
from ramify.nn.linear import Linear

Position = Literal["learned", "sinusoidal"]


def sinusoids(count: int, dim: int) -> Float[Tensor, "count dim"]:
    """Sinusoidal position vectors (Vaswani et al. 2017, section 3.5): even columns are sines, odd columns cosines."""
    angles = torch.arange(count)[:, None] * torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    table = torch.empty(count, dim)
    table[:, 0::2] = torch.sin(angles)
    table[:, 1::2] = torch.cos(angles[:, : dim // 2])
    return table


def table_with(
    table: Float[Tensor, "token dim"], ids: Int[Tensor, " known"], vectors: Float[Tensor, "known dim"]
) -> Float[Tensor, "token dim"]:
    """A table of the same size with known vectors. The others are uniform, with the variance of the known ones (Kim 2014,
    section 3.1)."""
    bound = math.sqrt(3 * float(vectors.var(correction=0))) if vectors.numel() else 0.25
    return torch.empty_like(table).uniform_(-bound, bound).index_copy_(0, ids, vectors.to(table.dtype))


class PositionTable(nn.Module):
    """One vector per position, learned or sinusoidal. Positions past the end share the last vector."""

    weight: Tensor

    def __init__(self, count: int, dim: int, kind: Position = "learned") -> None:
        super().__init__()
        if kind == "learned":
            self.weight = nn.Parameter(torch.empty(count, dim))
        else:
            self.register_buffer("weight", sinusoids(count, dim), persistent=False)

    def forward(self, positions: Int[Tensor, " total"]) -> Float[Tensor, "total dim"]:
        return nn.functional.embedding(positions.clamp(max=self.weight.shape[0] - 1), self.weight)


class Embeddings(nn.Module):
    """Token plus position (plus segment) vectors, optional LayerNorm, and dropout. `tokens` may be shared with a head.

    `position=None` adds no position vectors. With `dim`, a linear map brings the vectors to this width (Lan et al. 2020,
    section 3.1).
    """

    def __init__(
        self,
        tokens: nn.Embedding,
        max_tokens: int,
        *,
        position: Position | None = "learned",
        type_vocab_size: int = 0,
        scale: bool = False,
        norm: bool = True,
        dropout: float = 0.1,
        eps: float = 1e-12,
        dim: int | None = None,
    ) -> None:
        super().__init__()
        width = tokens.embedding_dim
        self.tokens = tokens
        self.positions = None if position is None else PositionTable(max_tokens, width, position)
        self.types = nn.Embedding(type_vocab_size, width) if type_vocab_size else None
        self.norm = nn.LayerNorm(width, eps) if norm else None
        self.projection = None if dim is None else Linear(width, dim)
        self.scale = math.sqrt(width) if scale else 1.0
        self.dropout = dropout

    def forward(
        self,
        ids: Int[Tensor, " total"],
        positions: Int[Tensor, " total"],
        type_ids: Int[Tensor, " total"] | None = None,
    ) -> Float[Tensor, "total dim"]:
        x = self.tokens(ids)
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            x = x + self.positions(positions)
        if self.types is not None:
            x = x + (self.types(type_ids) if type_ids is not None else self.types.weight[0])
        if self.norm is not None:
            x = self.norm(x)
        x = dropout(x, self.dropout, self.training)
        return x if self.projection is None else self.projection(x)


def init_weights(module: nn.Module, std: float = 0.02) -> None:
    """BERT's initialization: normal weights with standard deviation `std` and zero biases."""
    for child in module.modules():
        if isinstance(child, nn.Linear):
            nn.init.normal_(child.weight, std=std)
            if child.bias is not None:
                nn.init.zeros_(child.bias)
        elif isinstance(child, nn.Embedding) or (isinstance(child, PositionTable) and isinstance(child.weight, nn.Parameter)):
            nn.init.normal_(child.weight, std=std)
