"""Where rows end on the flat axis: the one place that knows about lengths, groups and padding.

All tokens of a batch lie on one axis `[total]`. Only attention (and recurrence) must see rows; for them `Rows` names runs of
consecutive rows of near-equal length, and `pad`/`unpad` move between the flat axis and those groups.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor

ROUND_TO = 8
"""Rows are padded inside a group to a multiple of this: fewer, larger calls beat exact lengths (measured)."""

LEAST_KEYS = 16
"""Contexts up to this size share a group."""


Function = TypeVar("Function", bound=Callable[..., Any])


_kept_eager: list[Callable[[], None]] = []


def eager(function: Function) -> Function:
    """Left out of compiled graphs: groups differ from batch to batch, and each would be compiled anew. It is so once
    `keep_eager` was called: to import torch's compiler takes seconds, which those who compile nothing need not wait."""
    called: Callable[..., Any] = function

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return called(*args, **kwargs)

    def keep() -> None:
        nonlocal called
        called = torch.compiler.disable(function)

    _kept_eager.append(keep)
    wrapped: Any = call
    return wrapped


def keep_eager() -> None:
    """To be called before anything is compiled."""
    while _kept_eager:
        _kept_eager.pop()()


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive rows `[start, stop)` that attention sees as one block of `length` columns.

    `offset` is where the block begins on the padded axis; `full` means that no column is padding.
    """

    start: int
    stop: int
    length: int
    offset: int
    full: bool

    @property
    def size(self) -> int:
        return self.stop - self.start

    @property
    def end(self) -> int:
        return self.offset + self.size * self.length


@dataclass(frozen=True)
class Rows:
    """Rows on the flat axis. Sizes and groups are Python values, made on the host: no device is ever asked for them."""

    lengths: Int[Tensor, " row"]
    offsets: Int[Tensor, " row+1"]
    positions: Int[Tensor, " total"]
    """Position of each token within its row."""
    padded: Int[Tensor, " padded"]
    """The flat token behind every slot of the padded axis; padding slots repeat the first of their row, or any."""
    unpadded: Int[Tensor, " total"]
    """The slot of every flat token."""
    filled: Shaped[Tensor, " padded"]
    """Whether a slot holds a token (bool)."""
    groups: tuple[Group, ...]
    host_lengths: NDArray[np.int64]
    total: int
    max_length: int

    @classmethod
    def build(cls, lengths: Sequence[int] | NDArray[np.int64], keys: NDArray[np.int64] | None = None) -> "Rows":
        """Lay out rows of these lengths. Consecutive rows of one key (default: `length_key`) make a group, so sort by it."""
        host = np.asarray(lengths, dtype=np.int64)
        edges = _edges(length_key(host) if keys is None else keys)
        offsets = np.zeros(len(host) + 1, dtype=np.int64)
        np.cumsum(host, out=offsets[1:])
        groups, padded, filled = [], [], []
        offset = 0
        for start, stop in edges:
            own = host[start:stop]
            length = int(own.max()) if len(own) else 0
            columns = np.arange(length)
            inside = columns < own[:, None]
            padded.append((offsets[start:stop, None] + np.where(inside, columns, 0)).ravel())
            filled.append(inside.ravel())
            groups.append(Group(start, stop, length, offset, bool(inside.all())))
            offset += (stop - start) * length
        slots = np.concatenate(filled) if filled else np.zeros(0, dtype=bool)
        tokens = np.concatenate(padded) if padded else np.zeros(0, dtype=np.int64)
        total = int(offsets[-1])
        # A row without tokens may stand at the very end, where its padding slots would point past the axis.
        tokens = np.minimum(tokens, max(total - 1, 0))
        return cls(
            lengths=torch.from_numpy(host),
            offsets=torch.from_numpy(offsets).to(torch.int32),
            positions=torch.from_numpy(np.arange(total) - np.repeat(offsets[:-1], host)),
            padded=torch.from_numpy(tokens),
            unpadded=torch.from_numpy(np.flatnonzero(slots)),
            filled=torch.from_numpy(slots),
            groups=tuple(groups),
            host_lengths=host,
            total=total,
            max_length=int(host.max()) if len(host) else 0,
        )

    def __len__(self) -> int:
        return len(self.host_lengths)

    def to(self, device: torch.device | str) -> "Rows":
        moved = {
            name: getattr(self, name).to(device, non_blocking=True)
            for name in ("lengths", "offsets", "positions", "padded", "unpadded", "filled")
        }
        return replace(self, **moved)

    @property
    def keys(self) -> NDArray[np.int64]:
        """A number a row, the same for all rows of a group: `build(…, keys=rows.keys)` takes over the borders."""
        return np.repeat(np.arange(len(self.groups)), [group.size for group in self.groups])

    def runs(self, limit: int) -> Iterator[tuple[int, int]]:
        """Runs of rows with at most `limit` tokens; a longer row is a run of its own."""
        return runs(self.host_lengths, limit)

    def key_mask(self, group: Group) -> Tensor | None:
        """`[row 1 1 key]`, true where a key may be seen; None where all may."""
        if group.full:
            return None
        return self.filled[group.offset : group.end].view(group.size, 1, 1, group.length)


def runs(costs: NDArray[np.int64], limit: int) -> Iterator[tuple[int, int]]:
    """Consecutive rows that together cost at most `limit`; one that costs more is alone."""
    start = filled = 0
    for row, cost in enumerate(costs.tolist()):
        if filled and filled + cost > limit:
            yield start, row
            start, filled = row, 0
        filled += cost
    if start < len(costs):
        yield start, len(costs)


def places(lengths: NDArray[np.int64], chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where on the flat axis the tokens of the chosen rows stand, one row after the other; a row may be chosen again."""
    starts = np.cumsum(lengths) - lengths
    picked = lengths[chosen]
    ends = np.cumsum(picked)
    return np.repeat(starts[chosen] - (ends - picked), picked) + np.arange(picked.sum())


def inverse(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each stands after all were put into this order."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place


def length_key(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The length rounded up, in units of `ROUND_TO`."""
    return -(-lengths // ROUND_TO)


def doubling_key(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """0-16, 17-32, 33-64 …: attention to so few vectors costs less, padding included, than one more call for a group."""
    return np.ceil(np.log2(np.maximum(counts, LEAST_KEYS) / LEAST_KEYS)).astype(np.int64)


def _edges(keys: NDArray[np.int64]) -> list[tuple[int, int]]:
    if len(keys) == 0:
        return []
    starts = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist()]
    return list(zip(starts, [*starts[1:], len(keys)]))


def pad(x: Float[Tensor, "total *feature"], rows: Rows) -> Float[Tensor, "padded *feature"]:
    """Flat to padded. Padding slots hold some token: mask them."""
    apply: Callable[..., Tensor] = _Pad.apply
    return apply(x, rows.padded, rows.unpadded)


def unpad(x: Float[Tensor, "padded *feature"], rows: Rows) -> Float[Tensor, "total *feature"]:
    """Padded to flat; what stood in padding slots is dropped and gets no gradient."""
    apply: Callable[..., Tensor] = _Unpad.apply
    return apply(x, rows.unpadded)


def by_group(x: Shaped[Tensor, "padded *feature"], rows: Rows) -> list[Shaped[Tensor, "_row _column *feature"]]:
    """One block per group of rows."""
    # One split, whose gradient is one concatenation: a slice a group would add up as many gradients of the whole.
    parts = x.split([group.size * group.length for group in rows.groups])
    return [part.view(group.size, group.length, *x.shape[1:]) for part, group in zip(parts, rows.groups, strict=True)]


def as_table(
    values: Float[Tensor, " total"], rows: Rows, empty: float
) -> tuple[Float[Tensor, "row column"], Int[Tensor, " total"]]:
    """Values as a table of rows, and the cell of each in it, counted along the rows; `empty` where a row has ended."""
    table = values.new_full((len(rows), rows.max_length), empty)
    numbers = torch.arange(len(rows), device=values.device)
    cells = torch.repeat_interleave(numbers, rows.lengths, output_size=rows.total) * rows.max_length + rows.positions
    return table.flatten().index_copy(0, cells, values).view_as(table), cells


def highest(values: Float[Tensor, " total"], rows: Rows, count: int) -> tuple[Int[Tensor, " chosen"], Rows]:
    """Where the `count` highest values of each row are, in the order in which they stand, and the rows that they make."""
    table, _ = as_table(values, rows, -math.inf)
    # What stands behind the end of a short row comes last: its columns are the greatest.
    columns = table.topk(min(count, rows.max_length), dim=1).indices.sort(dim=1).values
    lengths = np.minimum(rows.host_lengths, columns.shape[1])
    kept = np.flatnonzero(np.arange(columns.shape[1]) < lengths[:, None])
    tokens = (rows.offsets[:-1, None] + columns).flatten()
    chosen = tokens.index_select(0, torch.from_numpy(kept).to(values.device))
    return chosen, Rows.build(lengths, keys=lengths).to(values.device)


def reorder(
    x: Float[Tensor, "total *feature"], order: Int[Tensor, " total"], back: Int[Tensor, " total"]
) -> Float[Tensor, "total *feature"]:
    """x[order], where x[order][back] is x."""
    apply: Callable[..., Tensor] = _Pad.apply
    return apply(x, order, back)


class _Pad(torch.autograd.Function):
    """Padding slots are masked by whoever reads them, so their gradient is zero and the backward pass is a plain gather."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, padded: Tensor, unpadded: Tensor) -> Tensor:
        ctx.save_for_backward(unpadded)
        return x.index_select(0, padded)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (unpadded,) = ctx.saved_tensors
        return gradients[0].index_select(0, unpadded), None, None


class _Unpad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, unpadded: Tensor) -> Tensor:
        ctx.save_for_backward(unpadded)
        ctx.size = x.shape[0]
        return x.index_select(0, unpadded)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (unpadded,) = ctx.saved_tensors
        gradient = gradients[0]
        out = gradient.new_zeros((ctx.size, *gradient.shape[1:]))
        return out.index_copy_(0, unpadded, gradient), None
