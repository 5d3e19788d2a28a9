"""Layers of a frozen model as features of another one (Peters et al. 2018, section 3.3)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ramify.batching.encoder_input import EncoderInput
from ramify.models.base import Encodes
from ramify.nn.mix import LayerMixes, mixable
from ramify.nn.modes import evaluating


class FrozenFeatures(nn.Module):
    """Mixes of the layers of a body whose weights stay as they are. γ and s of each mix are learned with the task.

    A task's model concatenates them to its inputs, token by token. They are computed without dropout in the body, and each text
    without a state. A layer that is not as wide as the last one is left out: the embedding of some bodies.
    """

    backbone: Any
    """An `Encodes`."""
    mixes: LayerMixes

    def __init__(
        self, backbone: Encodes, *, outputs: int = 1, layer_norm: bool = False, dropout: float = 0.5, l2: float = 0.0
    ) -> None:
        """`outputs` is the number of mixes."""
        super().__init__()
        self.backbone = backbone
        self.backbone.requires_grad_(False)
        self.layers = mixable(backbone.layer_dims())
        """The numbers of the layers that are mixed."""
        self.mixes = LayerMixes(len(self.layers), outputs=outputs, layer_norm=layer_norm, dropout=dropout, l2=l2)

    @property
    def dim(self) -> int:
        """The length of a feature vector."""
        return self.backbone.layer_dims()[-1]

    def forward(self, rows: EncoderInput) -> tuple[Float[Tensor, "total dim"], ...]:
        """One vector per token from each mix."""
        with torch.no_grad(), evaluating(self.backbone):
            layers = self.backbone.encode_rows(rows, layers=True).layers
        return self.mixes([layers[number] for number in self.layers])

    def penalty(self) -> Float[Tensor, ""]:
        """The term that the task adds to its loss (`LayerMixes.penalty`)."""
        return self.mixes.penalty()
