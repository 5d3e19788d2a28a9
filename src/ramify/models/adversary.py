"""Generators of AGENT's vectors, and the discriminators that teach them (Rozental et al. 2019, section 4)."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ramify.nn.convolution import FeatureMaps
from ramify.nn.dropout import dropout
from ramify.nn.linear import Linear
from ramify.nn.pooling import Pool
from ramify.nn.ragged import Rows


def normal(like: Tensor, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    """Noise N(0, I) on the device of a tensor. With a generator, it is drawn on the host, so it is the same on every device."""
    if generator is None:
        return torch.randn(shape, device=like.device, dtype=like.dtype)
    return torch.randn(shape, generator=generator).to(like)


MOMENT_ROWS = 16_384
"""Noise from which the moments of a generator's states are estimated."""


def _principal(rows: Float[Tensor, "row dim"]) -> tuple[Float[Tensor, " dim"], Float[Tensor, "dim dim"], Float[Tensor, " dim"]]:
    """The mean of rows, their principal components as columns, and the standard deviation along each, the greatest first."""
    mean = rows.mean(0)
    values, components = torch.linalg.eigh((rows - mean).T.cov())
    return mean, components.flip(1), values.clamp(min=0).sqrt().flip(0)


class Generator(nn.Module):
    """A vector from noise: dense layers, with tanh after all but the last."""

    def __init__(self, dim: int, layers: int, width: int, in_dim: int | None = None) -> None:
        """`layers`: the number of dense layers; one alone is a linear map. `in_dim`: the length of the input; None: `dim`."""
        super().__init__()
        self.in_dim = dim if in_dim is None else in_dim
        sizes = [self.in_dim, *[width] * (layers - 1), dim]
        self.layers = nn.ModuleList(Linear(one, other) for one, other in pairwise(sizes))

    def forward(self, z: Float[Tensor, "row in"]) -> Float[Tensor, "row dim"]:
        return self.last(self._states(z))

    @property
    def last(self) -> Linear:
        last = self.layers[-1]
        assert isinstance(last, Linear)
        return last

    def _states(self, z: Float[Tensor, "row in"]) -> Float[Tensor, "row width"]:
        """The input of the last layer."""
        x = z
        for layer in list(self.layers)[:-1]:
            x = torch.tanh(layer(x))
        return x

    @torch.no_grad()
    def start_at_moments(self, real: Float[Tensor, "row dim"], generator: torch.Generator) -> None:
        """Set the last layer so that generated vectors have the mean and the covariance of real ones.

        Principal components of the layer's input become those of the real vectors, in their order. If it is narrower than a
        vector, the last components stay at their mean.
        """
        states = self._states(self.noise(MOMENT_ROWS, generator))
        # Some devices lack double precision.
        (mean, components, deviations), (target, wanted, sizes) = (_principal(rows.cpu().double()) for rows in (states, real))
        number = min(len(deviations), len(sizes))
        known = deviations[:number] > deviations[0] * 1e-6
        scale = torch.where(known, sizes[:number] / deviations[:number].clamp(min=1e-12), 0.0)
        weight = (wanted[:, :number] * scale) @ components[:, :number].T
        self.last.weight.copy_(weight)
        self.last.bias.copy_(target - weight @ mean)

    def noise(self, rows: int, generator: torch.Generator | None = None) -> Float[Tensor, "row in"]:
        """Noise for this many rows."""
        return normal(next(self.parameters()), (rows, self.in_dim), generator)


class NamesGenerator(nn.Module):
    """The answers of a name memory, from noise and the vector of a document: a_k = G(h_k, z) with h_k = Dense(q_k, document),
    for each learned question q_k."""

    def __init__(self, dim: int, document_dim: int, layers: int, width: int) -> None:
        """`dim`: the length of a question and of an answer."""
        super().__init__()
        self.of_document = Linear(dim + document_dim, dim)
        self.generator = Generator(dim, layers, width, in_dim=2 * dim)
        self.dim = dim

    def noise(
        self, documents: int, answers: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "document answer dim"]:
        """Noise for this many documents: as many rows as answers, or one for all answers of a document."""
        return normal(next(self.parameters()), (documents, answers, self.dim), generator)

    def forward(
        self,
        questions: Float[Tensor, "question dim"],
        documents: Float[Tensor, "document vector"],
        z: Float[Tensor, "document _question dim"],
    ) -> Float[Tensor, "document question dim"]:
        """`z` holds noise for each answer, or one row for all answers of a document."""
        shape = (len(documents), len(questions))
        pairs = torch.cat([questions.expand(*shape, -1), documents[:, None].expand(*shape, -1)], -1)
        states = torch.cat([self.of_document(pairs), z.expand(*shape, -1)], -1)
        return self.generator(states.flatten(0, 1)).unflatten(0, shape)


class Discriminator(nn.Module):
    """The log-odds that a node is real, from its decoded children: the network of Kim 2014.

    It starts at the prior: every node has log-odds of 0.
    """

    def __init__(
        self,
        child_dim: int,
        places: int,
        *,
        maps: int = 100,
        widths: Sequence[int] = (3, 4, 5),
        dropout: float = 0.5,
    ) -> None:
        """`places`: the number of children of a node. Filters that are wider than that are left out; if all are, one as wide
        as a node remains."""
        super().__init__()
        fitting = [width for width in widths if width <= places] or [places]
        self.places = places
        self.dropout = dropout
        self.filters = FeatureMaps(child_dim, maps, fitting)
        self.pool = Pool("max", maps * len(fitting))
        self.out = Linear(maps * len(fitting), 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, children: Float[Tensor, "row place child"]) -> Float[Tensor, " row"]:
        rows = Rows.build([self.places] * len(children)).to(children.device)
        pooled = self.pool(self.filters(children.flatten(0, 1), rows, torch.relu), rows)
        return self.out(dropout(pooled, self.dropout, self.training))[:, 0]

    @torch.no_grad()
    def bound(self, norm: float) -> None:
        """Shorten the weights of the last layer to this norm, if they are longer (Kim 2014, section 2.1)."""
        self.out.weight.copy_(torch.renorm(self.out.weight, 2, 0, norm))
