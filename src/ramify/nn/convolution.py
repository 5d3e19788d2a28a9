"""Convolutions along rows on the flat axis. Beyond the ends of a row, they read zeros."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ramify.nn.linear import Linear
from ramify.nn.ragged import Rows, collect, eager, spaced, spread


class Convolution(nn.Module):
    """A convolution along each row. A token reads as many tokens before it as after it or, if `causal`, none after it."""

    def __init__(
        self, dim: int, out_dim: int, kernel_size: int, *, causal: bool = False, groups: int = 1, bias: bool = True
    ) -> None:
        super().__init__()
        self.before = kernel_size - 1 if causal else (kernel_size - 1) // 2
        self.after = kernel_size - 1 - self.before
        # Tokens lie on the height: along the width, oneDNN takes seven times as long for the weights' gradient (measured).
        self.conv = nn.Conv2d(dim, out_dim, (kernel_size, 1), groups=groups, bias=bias)

    @eager
    def forward(self, x: Float[Tensor, "total dim"], rows: Rows) -> Float[Tensor, "total out"]:
        if rows.total == 0:
            return x.new_zeros(0, self.conv.out_channels)
        # All rows lie on one long axis. Between two rows, both read the same zeros.
        gap = max(self.before, self.after)
        slots = spaced(rows, gap)
        size = self.before + rows.total + gap * len(rows)
        apart = spread(x, slots + self.before, size)
        # Channels last in memory, as torch's kernels for images like it: nothing is copied.
        out = self.conv(apart.view(1, size, 1, -1).permute(0, 3, 1, 2))
        return collect(out.permute(0, 2, 3, 1).flatten(0, 2), slots)


FILTER_BOUND = 0.01
"""Bound of the uniform distribution of initial weights in the published code of Kim 2014."""


class FeatureMaps(nn.ModuleList):
    """Convolutions of several widths along rows, each with as many feature maps (Kim 2014, section 2).

    As in the published code, each row has as many zeros before and behind it as the widest filter reads beside one token, so a
    filter also reads windows that begin before the row or end behind it, and a row shorter than a filter has features. A token
    has the features of the window around it. The ends of a row also have those of the windows around the zeros, so the maximum
    over tokens is that over all windows.
    """

    def __init__(self, dim: int, maps: int, widths: Sequence[int]) -> None:
        filters = [Convolution(dim, maps, width) for width in widths]
        super().__init__(filters)
        self.reach = max(widths) - 1
        self.out_dim = maps * len(filters)
        for one in filters:
            nn.init.uniform_(one.conv.weight, -FILTER_BOUND, FILTER_BOUND)
            assert one.conv.bias is not None
            nn.init.zeros_(one.conv.bias)

    @eager
    def forward(
        self, x: Float[Tensor, "total dim"], rows: Rows, activation: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "total out"]:
        if rows.total == 0:
            return x.new_zeros(0, self.out_dim)
        # As in `Convolution`, two rows read the same zeros between them.
        slots = spaced(rows, self.reach) + self.reach
        size = rows.total + self.reach * (len(rows) + 1)
        apart = spread(x, slots, size).view(1, size, 1, -1).permute(0, 3, 1, 2)
        full = torch.from_numpy(np.flatnonzero(rows.host_lengths)).to(x.device)
        first, last = rows.offsets.index_select(0, full).long(), rows.offsets.index_select(0, full + 1).long() - 1
        features = []
        for filters in self:
            assert isinstance(filters, Convolution)
            # The place of a window is that of its first token.
            windows = activation(filters.conv(apart)).permute(0, 2, 3, 1).flatten(0, 2)
            own = collect(windows, slots - filters.before)
            # Windows of nothing but zeros are equal, and are read before a row alone: segment_reduce doubles the gradient of
            # tokens whose maxima are equal, if it is negative (torch 2.13).
            for ends, begin, count in (
                (first, slots.index_select(0, first) - self.reach, self.reach - filters.before),
                (last, slots.index_select(0, last) - filters.before + 1, filters.before),
            ):
                if count:
                    places = begin[:, None] + torch.arange(count, device=x.device)
                    beyond = windows.index_select(0, places.flatten()).unflatten(0, (-1, count)).amax(1)
                    own = own.index_copy(0, ends, torch.maximum(own.index_select(0, ends), beyond))
            features.append(own)
        return torch.cat(features, 1)


class SeparableConvolution(nn.Module):
    """A convolution of each channel alone, and then a linear map of the channels (Kaiser et al. 2018)."""

    def __init__(self, dim: int, out_dim: int, kernel_size: int, *, causal: bool = False) -> None:
        super().__init__()
        self.depthwise = Convolution(dim, dim, kernel_size, causal=causal, groups=dim, bias=False)
        self.pointwise = Linear(dim, out_dim)

    def forward(self, x: Float[Tensor, "total dim"], rows: Rows) -> Float[Tensor, "total out"]:
        return self.pointwise(self.depthwise(x, rows))
