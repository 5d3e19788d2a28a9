"""Receptive fields: how much the state of each token depends on the embedding of every token of its row."""

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch.autograd.graph import GradientEdge, get_gradient_edge

from ramify.batching.encoder_input import EncoderInput
from ramify.errors import RamifyError, counted
from ramify.models.base import Encoded, Encodes
from ramify.nn.ragged import Rows

TOKENS = 2048
"""Number of tokens computed at once."""


def receptive_field(backbone: Encodes, row: EncoderInput, *, parts: int = 1) -> Float[NDArray, "layer part token input"]:
    """The Frobenius norm of ∂h_i/∂x_j, for the state h_i of every token after each layer and the embedding x_j of every token.

    States are divided into `parts` of equal width, such as the two directions of an ELMo. The model is in evaluation mode, and
    its parameters require gradients. Raises `RamifyError` unless there is one row with tokens, which is read without a context.
    """
    length = row.rows.total
    if len(row.rows) != 1 or length == 0 or row.context is not None:
        context = ", and a context" if row.context is not None else ""
        raise RamifyError(
            f"row holds {counted(len(row.rows), 'row')} with {counted(length, 'token')}{context}, but a receptive field is "
            "that of one row that is read alone. Pass one row with tokens and without a context."
        )
    widths = backbone.layer_dims()[1:]
    sums = np.zeros((len(widths), parts, length, length))
    # Each copy of the row stands for one component of its states, so one backward pass has the gradients of many components.
    for components in torch.arange(max(widths)).split(max(1, TOKENS // length)):
        encoded = backbone.encode_rows(_copies(row, len(components)), layers=True)
        embedding = _origin(encoded)
        for of_layer, width, states in zip(sums, widths, encoded.layers[1:], strict=True):
            present = components[components < width]
            for token in range(length if len(present) else 0):
                chosen = states.view(len(components), length, width)[torch.arange(len(present)), token, present]
                (gradient,) = torch.autograd.grad(chosen.sum(), embedding, retain_graph=True)
                squares = gradient.view(len(components), length, -1)[: len(present)].double().square().sum(-1).cpu().numpy()
                np.add.at(of_layer[:, token], (present * parts // width).numpy(), squares)
    return np.sqrt(sums)


def _copies(row: EncoderInput, count: int) -> EncoderInput:
    types = None if row.token_types is None else row.token_types.repeat(count)
    rows = Rows.build(row.rows.host_lengths.repeat(count)).to(row.ids.device)
    return EncoderInput.of_rows(row.ids.repeat(count), rows, types)


def _origin(encoded: Encoded) -> GradientEdge:
    """The place in the graph from which the layers read the embedding. The embedding in `encoded` may be made of copies of it,
    as an ELMo's is of one per direction."""
    edge = get_gradient_edge(encoded.layers[0])
    while torch.autograd.grad(encoded.last.sum(), edge, retain_graph=True, allow_unused=True)[0] is None:
        (edge,) = {GradientEdge(node, place) for node, place in edge.node.next_functions if node is not None}
    return edge
