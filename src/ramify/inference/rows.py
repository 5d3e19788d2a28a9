"""Vectors and recorded attention of rows of texts, for every model that encodes."""

import torch
from jaxtyping import Float
from torch import Tensor

from ramify.batching.encoder_input import EncoderInput
from ramify.models.base import Encodes
from ramify.nn.attention import AttentionRecord


@torch.no_grad()
def row_vectors(backbone: Encodes, rows: EncoderInput) -> Float[Tensor, "row vector_dim"]:
    """The vector of every row, in at least single precision."""
    vectors = backbone.vectors(rows)
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))


@torch.no_grad()
def recorded(backbone: Encodes, rows: EncoderInput) -> AttentionRecord:
    """The attention weights of all layers."""
    record: AttentionRecord = {}
    backbone.encode_rows(rows, record=record)
    return record
