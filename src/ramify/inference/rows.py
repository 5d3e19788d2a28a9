"""Vectors and recorded attention of rows of texts, for every model that encodes."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ramify.batching.encoder_input import EncoderInput
from ramify.batching.forest import ranges
from ramify.models.base import Encoded, Encodes
from ramify.nn.attention import AttentionRecord
from ramify.nn.ragged import Rows


@torch.no_grad()
def row_vectors(backbone: Encodes, rows: EncoderInput, unpooled: int = 0) -> Float[Tensor, "row vector_dim"]:
    """The vector of every row, in at least single precision. It pools all tokens of the row but the first `unpooled`."""
    vectors = backbone.vector(_without_first(backbone.encode_rows(rows), unpooled)) if unpooled else backbone.vectors(rows)
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))


def _without_first(encoded: Encoded, count: int) -> Encoded:
    lengths = encoded.rows.host_lengths
    stops = np.cumsum(lengths)
    kept = np.maximum(lengths - count, 0)
    index = torch.from_numpy(ranges(stops - kept, stops)).to(encoded.last.device)
    return Encoded(Rows.build(kept, keys=encoded.rows.keys).to(index.device), (encoded.last.index_select(0, index),))


@torch.no_grad()
def recorded(backbone: Encodes, rows: EncoderInput) -> AttentionRecord:
    """The attention weights of all layers."""
    record: AttentionRecord = {}
    backbone.encode_rows(rows, record=record)
    return record
