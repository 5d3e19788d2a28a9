"""The schedule of levels that begin to learn one after the other."""

import torch
from torch import Tensor, nn

WINDOW = 100
"""Number of updates over which losses are compared before a further level begins."""


class PlateauWatch(nn.Module):
    """The number of levels that learn, if each begins when the losses of the one below fall no further."""

    unlocked: Tensor
    began: Tensor
    sums: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("unlocked", torch.ones((), dtype=torch.int64))
        self.register_buffer("began", torch.zeros((), dtype=torch.int64))
        """The update after which the highest level began."""
        self.register_buffer("sums", torch.zeros(3, dtype=torch.float64))
        """The sum and number of the losses of this window, and the mean of the one before it (0: none)."""

    def before(self, updates: int) -> int:
        """The number of levels that learn in an update. A level that is unlocked in it begins with the next one, because the
        losses of all its micro-batches are counted beforehand."""
        unlocked = int(self.unlocked)
        return unlocked - 1 if unlocked > 1 and int(self.began) == updates else unlocked

    def observe(self, loss: float, updates: int, share: float, most: int) -> None:
        """Take the loss of the highest level that learns, and unlock the next one if it is due."""
        self.sums[0] += loss
        self.sums[1] += 1
        window = int(self.sums[1]) >= WINDOW
        mean, before = float(self.sums[0] / self.sums[1]), float(self.sums[2])
        if updates - int(self.began) >= max(1, most) or (window and before and before - mean < share * abs(before)):
            self.unlocked += 1
            self.began.fill_(updates)
            self.sums.zero_()
        elif window:
            self.sums.copy_(torch.tensor([0.0, 0.0, mean]))
