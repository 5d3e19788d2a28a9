"""Recurrence on the flat axis."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ramify.nn.ragged import Rows, eager, inverse, reorder


class BiLSTM(nn.Module):
    """A bidirectional LSTM (Hochreiter & Schmidhuber 1997): the states of both directions for every token."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(dim, hidden, bidirectional=True)

    @property
    def out_dim(self) -> int:
        return 2 * self.lstm.hidden_size

    @eager
    def forward(self, x: Float[Tensor, "total dim"], rows: Rows) -> Float[Tensor, "total out"]:
        if rows.total == 0:
            return x.new_zeros(0, self.out_dim)
        # Torch's packed form has no padding: all first tokens, then all second tokens …, sorted by row length, longest first.
        lengths = rows.host_lengths
        row = np.repeat(np.arange(len(lengths)), lengths)
        position = np.arange(rows.total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        order = np.lexsort((row, -lengths[row], position))
        to_packed, to_flat = (torch.from_numpy(index).to(x.device, non_blocking=True) for index in (order, inverse(order)))
        packed = PackedSequence(reorder(x, to_packed, to_flat), torch.from_numpy(np.bincount(position)))
        return reorder(self.lstm(packed)[0].data, to_flat, to_packed)


def final_states(states: Float[Tensor, "total out"], rows: Rows) -> Float[Tensor, "row out"]:
    """The state of each direction of a `BiLSTM` after its whole row: forward at the last token, backward at the first one.

    An empty row has zeros, the state before any token."""
    if rows.total == 0:
        return states.new_zeros(len(rows), states.shape[1])
    offsets = rows.offsets.to(torch.int64)
    # Those of an empty row may lie outside the axis.
    first, last = offsets[:-1].clamp(max=rows.total - 1), (offsets[1:] - 1).clamp(min=0)
    forward, backward = states.chunk(2, dim=1)
    final = torch.cat([forward.index_select(0, last), backward.index_select(0, first)], 1)
    if rows.host_lengths.min() > 0:
        return final
    return final.masked_fill((rows.lengths == 0)[:, None], 0.0)
