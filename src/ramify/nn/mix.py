"""Mixtures of the layers of a model (Peters et al. 2018, equation 1)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ramify.nn.dropout import dropout

VARIANCE_FLOOR = 1e-12


def mixable(widths: Sequence[int]) -> tuple[int, ...]:
    """The numbers of the layers that a mix reads: those as wide as the last one. An embedding of another width is left out."""
    return tuple(number for number, width in enumerate(widths) if width == widths[-1])


class ScalarMix(nn.Module):
    """γ Σ s_l h_l, where s is the softmax of learned logits. It starts with the mean of the layers.

    With `layer_norm`, each layer is standardized first, by the mean and the variance of all values of all given tokens. None of
    them is padding.
    """

    logits: nn.Parameter
    gamma: nn.Parameter

    def __init__(self, num_layers: int, *, layer_norm: bool = False) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(num_layers))
        self.gamma = nn.Parameter(torch.ones(()))
        self.layer_norm = layer_norm

    @property
    def weights(self) -> Float[Tensor, " layer"]:
        """s: the share of each layer."""
        return self.logits.softmax(0)

    def forward(self, layers: Sequence[Float[Tensor, "token dim"]]) -> Float[Tensor, "token dim"]:
        """Raises `ValueError` for another number of layers, or for layers of different widths."""
        if len(layers) != len(self.logits) or len({layer.shape[1] for layer in layers}) != 1:
            widths = [layer.shape[1] for layer in layers]
            raise ValueError(f"a mix of {len(self.logits)} layers of one width cannot mix layers of widths {widths}")
        if self.layer_norm and len(layers[0]):
            layers = [_standardized(layer) for layer in layers]
        mixed = torch.stack([share * layer for share, layer in zip(self.weights, layers, strict=True)]).sum(0)
        return self.gamma * mixed


def _standardized(layer: Float[Tensor, "token dim"]) -> Float[Tensor, "token dim"]:
    centred = layer - layer.mean()
    return centred / torch.sqrt(centred.square().mean() + VARIANCE_FLOOR)


class LayerMixes(nn.Module):
    """Several mixes of the same layers, for several places of a task's model, each with dropout."""

    mixes: nn.ModuleList

    def __init__(
        self, num_layers: int, *, outputs: int = 1, layer_norm: bool = False, dropout: float = 0.5, l2: float = 0.0
    ) -> None:
        """`l2` is the factor of `penalty`."""
        super().__init__()
        self.mixes = nn.ModuleList(ScalarMix(num_layers, layer_norm=layer_norm) for _ in range(outputs))
        self.dropout = dropout
        self.l2 = l2

    def forward(self, layers: Sequence[Float[Tensor, "token dim"]]) -> tuple[Float[Tensor, "token dim"], ...]:
        return tuple(dropout(mix(layers), self.dropout, self.training) for mix in self.mixes)

    def penalty(self) -> Float[Tensor, ""]:
        """The term of a loss that keeps the shares s of each mix near each other: `l2` times the sum of the squared logits."""
        logits = torch.cat([parameter for name, parameter in self.mixes.named_parameters() if name.endswith("logits")])
        return self.l2 * logits.square().sum()
