"""Recurrence on the flat axis."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ramify.nn.ragged import Rows, eager, inverse, reorder


class BiLSTM(nn.Module):
    """Every token's states after a reading from the left and one from the right (Hochreiter & Schmidhuber 1997)."""

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
        # All first tokens, then all second tokens …, of the longest rows first: torch's packed form, which has no padding.
        lengths = rows.host_lengths
        row = np.repeat(np.arange(len(lengths)), lengths)
        position = np.arange(rows.total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        order = np.lexsort((row, -lengths[row], position))
        here, there = (torch.from_numpy(each).to(x.device, non_blocking=True) for each in (order, inverse(order)))
        packed = PackedSequence(reorder(x, here, there), torch.from_numpy(np.bincount(position)))
        return reorder(self.lstm(packed)[0].data, there, here)
