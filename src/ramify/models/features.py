"""Layers of a frozen model as features of another one (Peters et al. 2018, section 3.3)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ramify.batching.encoder_input import EncoderInput
from ramify.errors import RamifyError
from ramify.models.base import Encodes
from ramify.nn.mix import LayerMixes
from ramify.nn.modes import evaluating


class FrozenFeatures(nn.Module):
    """Mixes of the layers of a body whose weights stay as they are. γ and s of each mix are learned with the task.

    A task's model concatenates them to its inputs, token by token. They are computed without dropout in the body, and each text
    without a state.
    """

    backbone: Any
    """An `Encodes`."""
    mixes: LayerMixes

    def __init__(
        self, backbone: Encodes, *, outputs: int = 1, layer_norm: bool = False, dropout: float = 0.5, l2: float = 0.0
    ) -> None:
        """`outputs` is the number of mixes. Raises `RamifyError` if the body's layers differ in width."""
        super().__init__()
        widths = backbone.layer_dims()
        if len(set(widths)) != 1:
            raise RamifyError(
                f"the layers of this {type(backbone).__name__} have the widths {', '.join(map(str, widths))}, which cannot be "
                "mixed. Choose a model whose layers have one width."
            )
        self.backbone = backbone
        self.backbone.requires_grad_(False)
        self.mixes = LayerMixes(len(widths), outputs=outputs, layer_norm=layer_norm, dropout=dropout, l2=l2)

    @property
    def dim(self) -> int:
        """The length of a feature vector."""
        return self.backbone.layer_dims()[0]

    def forward(self, rows: EncoderInput) -> tuple[Float[Tensor, "total dim"], ...]:
        """One vector per token from each mix."""
        with torch.no_grad(), evaluating(self.backbone):
            layers = self.backbone.encode_rows(rows, layers=True).layers
        return self.mixes(layers)

    def penalty(self) -> Float[Tensor, ""]:
        """The term that the task adds to its loss (`LayerMixes.penalty`)."""
        return self.mixes.penalty()
