"""Scores of candidates above the tokens: how states are compared with the vectors of a level."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.nn.linear import linear

TEMPERATURE = 0.1
"""The divisor of cosines at the start of training."""

MOMENTUM = 0.95
"""The share of the running mean of a level's vectors that an update keeps."""

SHORTEST = 1e-4
"""A shorter vector is divided by this length. The gradient of its direction would exceed all others."""


class Similarity(ABC):
    """The scores of candidates: dot products of queries and keys, into which states and candidates are mapped.

    The factor of the scores is above 0. It counts in a loss, and changes no order of candidates.
    """

    @property
    @abstractmethod
    def factor(self) -> float | Float[Tensor, ""]: ...

    @abstractmethod
    def queries(self, states: Float[Tensor, "position dim"]) -> Float[Tensor, "position dim"]: ...

    @abstractmethod
    def keys(self, vectors: Float[Tensor, "class dim"]) -> Float[Tensor, "class dim"]: ...

    def scores(
        self, states: Float[Tensor, "position dim"], vectors: Float[Tensor, "class dim"]
    ) -> Float[Tensor, "position class"]:
        return linear(self.queries(states) * self.factor, self.keys(vectors))


@dataclass(frozen=True)
class DotProducts(Similarity):
    """States and candidates as they are."""

    scale: float = 1.0

    @property
    def factor(self) -> float:
        return self.scale

    def queries(self, states: Float[Tensor, "position dim"]) -> Float[Tensor, "position dim"]:
        return states

    def keys(self, vectors: Float[Tensor, "class dim"]) -> Float[Tensor, "class dim"]:
        return vectors


class NearIdentity(nn.Module):
    """A square map that starts as the identity: x + W x, and + b with a bias, where W and b start at 0. Weight decay draws it
    towards the identity, and not towards 0."""

    def __init__(self, dim: int, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim, dim))
        self.bias = nn.Parameter(torch.zeros(dim)) if bias else None

    def forward(self, x: Float[Tensor, "row dim"]) -> Float[Tensor, "row dim"]:
        return x + linear(x, self.weight, self.bias)


class CosineSpace(nn.Module):
    """The space in which the states of one loss are compared with the vectors of a level by their cosine, and the way back.

    A state of that space is no vector of the level: the class map and the centre lie between them, and a cosine leaves its
    length open. `restore` maps it to one. Reconstruction and masked children have a class map each, and so their states lie
    in two spaces; each has a way back of its own.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.classes = NearIdentity(dim)
        self.log_temperature = nn.Parameter(torch.tensor(math.log(TEMPERATURE)))
        # The vectors of a level have a mean other than 0, so the way back has a bias.
        self.restore = NearIdentity(dim, bias=True)


def space_of(spaces: nn.ModuleList | None, level: int) -> CosineSpace | None:
    """The space of a level above the tokens, if scores are cosines."""
    if spaces is None or level == 0:
        return None
    space = spaces[level - 1]
    assert isinstance(space, CosineSpace)
    return space


@dataclass(frozen=True)
class Cosines(Similarity):
    """Cosines of states with the class map of centred candidates, divided by a temperature."""

    space: CosineSpace
    centre: Float[Tensor, " dim"]

    @property
    def factor(self) -> Float[Tensor, ""]:
        return torch.exp(-self.space.log_temperature)

    def queries(self, states: Float[Tensor, "position dim"]) -> Float[Tensor, "position dim"]:
        return F.normalize(states, dim=1, eps=SHORTEST)

    def keys(self, vectors: Float[Tensor, "class dim"]) -> Float[Tensor, "class dim"]:
        return F.normalize(self.space.classes(vectors - self.centre), dim=1, eps=SHORTEST)


class Centre(nn.Module):
    """The mean of a level's vectors: that of the batch in training, and a running mean in evaluation."""

    mean: Tensor
    batches: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        """The number of batches in the running mean."""

    def forward(self, vectors: Float[Tensor, "child dim"]) -> Float[Tensor, " dim"]:
        """The centre of these vectors. A single vector would be its own centre, so it has the running mean."""
        return vectors.mean(0) if self.training and len(vectors) > 1 else self.mean.to(vectors.dtype)

    @torch.no_grad()
    def observe(self, vectors: Float[Tensor, "child dim"]) -> None:
        """Take a batch into the running mean, which the first batch starts."""
        if len(vectors):
            kept = MOMENTUM * self.batches.clamp(max=1).to(self.mean.dtype)
            self.mean.copy_(kept * self.mean + (1 - kept) * vectors.mean(0).to(self.mean.dtype))
            self.batches.add_(1)
