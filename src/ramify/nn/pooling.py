"""Pool the vectors of a row's tokens into one vector. (`unsafe` skips a length check that waits for the device.)"""

from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ramify.nn.ragged import Rows

Pooling = Literal["mean", "max", "cls", "attn", "pooler"]


class Pool(nn.Module):
    """Pools by mean, maximum, first token (cls), a softmax over learned scores `wᵀ tanh(W h)` (attn), or BERT's pooler (tanh of
    a linear map of the first token).

    Special tokens are pooled too, so an empty text has a vector. A row without tokens has the zero vector.
    """

    def __init__(self, kind: Pooling, dim: int) -> None:
        super().__init__()
        self.kind = kind
        self.hidden = nn.Linear(dim, dim) if kind in ("attn", "pooler") else None
        self.score = nn.Linear(dim, 1, bias=False) if kind == "attn" else None

    def forward(self, x: Float[Tensor, "total dim"], rows: Rows) -> Float[Tensor, "row dim"]:
        full = np.flatnonzero(rows.host_lengths)
        if len(full) == 0:
            return x.new_zeros(len(rows), x.shape[1])
        if len(full) < len(rows):
            # Rows without tokens take no place on the flat axis.
            pooled = self(x, Rows.build(rows.host_lengths[full]).to(x.device))
            return pooled.new_zeros(len(rows), pooled.shape[1]).index_copy(0, torch.from_numpy(full).to(x.device), pooled)
        if self.kind in ("cls", "pooler"):
            first = x.index_select(0, rows.offsets[:-1].to(torch.int64))
            return first if self.hidden is None else torch.tanh(self.hidden(first))
        if self.hidden is not None and self.score is not None:
            scores = self.score(torch.tanh(self.hidden(x)))
            highest = torch.segment_reduce(scores.detach(), "max", lengths=rows.lengths, axis=0, unsafe=True)
            weights = torch.exp(scores - on_tokens(highest, rows))
            total = torch.segment_reduce(weights, "sum", lengths=rows.lengths, axis=0, unsafe=True)
            return torch.segment_reduce(x * weights, "sum", lengths=rows.lengths, axis=0, unsafe=True) / total
        return torch.segment_reduce(x, self.kind, lengths=rows.lengths, axis=0, unsafe=True)


def on_tokens(x: Float[Tensor, "row dim"], rows: Rows) -> Float[Tensor, "total dim"]:
    """The vector of each token's row."""
    return torch.repeat_interleave(x, rows.lengths, dim=0, output_size=rows.total)


def row_sums(x: Float[Tensor, "total dim"], rows: Rows) -> Float[Tensor, "row dim"]:
    """The sum over the tokens of each row; zeros for a row without tokens."""
    if rows.total == 0:
        return x.new_zeros(len(rows), x.shape[1])
    return torch.segment_reduce(x, "sum", lengths=rows.lengths, axis=0, unsafe=True)


def row_means(x: Float[Tensor, "total dim"], chosen: Bool[Tensor, " total"], rows: Rows) -> Float[Tensor, "row dim"]:
    """The mean over the chosen tokens of each row; zeros for a row without any."""
    weight = chosen[:, None].to(x.dtype)
    return row_sums(x * weight, rows) / row_sums(weight, rows).clamp(min=1)
