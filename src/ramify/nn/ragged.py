"""Rows on the flat axis. Only this module knows about lengths, groups and padding.

All tokens of a batch lie on one axis `[total]`. Only attention, convolution and recurrence need rows. For attention, `Rows`
groups consecutive rows of similar length, and `pad` and `unpad` convert between the flat axis and these groups. For
convolution, `spread` puts zeros between rows.
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
"""Rows whose lengths round up to the same multiple of this share a group: fewer, larger calls beat exact lengths (measured)."""

MIN_KEYS = 16
"""Contexts of at most this many vectors share a group."""

Function = TypeVar("Function", bound=Callable[..., Any])

_pending: list[Callable[[], None]] = []


def eager(function: Function) -> Function:
    """Exclude a function from compiled graphs, once `keep_eager` is called.

    Groups differ from batch to batch, and each new shape would be compiled again. The exclusion waits for `keep_eager` because
    importing torch's compiler takes seconds, and most runs compile nothing."""
    target: Callable[..., Any] = function

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    def disable() -> None:
        nonlocal target
        target = torch.compiler.disable(function)

    _pending.append(disable)
    wrapped: Any = call
    return wrapped


def keep_eager() -> None:
    """Exclude all `eager` functions from compilation. Call this before compiling anything."""
    while _pending:
        _pending.pop()()


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive rows `[start, stop)` that form one block of `length` columns for attention.

    The block begins at `offset` on the padded axis. `full` means that the block has no padding.
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
    """The layout of rows on the flat axis. Sizes and groups are host values, so no code waits for a device to learn them."""

    lengths: Int[Tensor, " row"]
    offsets: Int[Tensor, " row+1"]
    positions: Int[Tensor, " total"]
    """Position of each token within its row."""
    padded: Int[Tensor, " padded"]
    """Flat index of the token in every slot of the padded axis. Padding repeats the first token of its row, or any token."""
    unpadded: Int[Tensor, " total"]
    """Slot of every flat token on the padded axis."""
    filled: Shaped[Tensor, " padded"]
    """Whether a slot holds a token (bool)."""
    groups: tuple[Group, ...]
    host_lengths: NDArray[np.int64]
    total: int
    max_length: int

    @classmethod
    def build(cls, lengths: Sequence[int] | NDArray[np.int64], keys: NDArray[np.int64] | None = None) -> "Rows":
        """Lay out rows of these lengths. Consecutive rows with equal keys (default: `length_key`) form a group: sort by key."""
        host = np.asarray(lengths, dtype=np.int64)
        edges = _edges(length_key(host) if keys is None else keys)
        offsets = np.zeros(len(host) + 1, dtype=np.int64)
        np.cumsum(host, out=offsets[1:])
        groups, padded, filled = [], [], []
        offset = 0
        for start, stop in edges:
            group_lengths = host[start:stop]
            length = int(group_lengths.max()) if len(group_lengths) else 0
            columns = np.arange(length)
            inside = columns < group_lengths[:, None]
            padded.append((offsets[start:stop, None] + np.where(inside, columns, 0)).ravel())
            filled.append(inside.ravel())
            groups.append(Group(start, stop, length, offset, bool(inside.all())))
            offset += (stop - start) * length
        slots = np.concatenate(filled) if filled else np.zeros(0, dtype=bool)
        tokens = np.concatenate(padded) if padded else np.zeros(0, dtype=np.int64)
        total = int(offsets[-1])
        # The padding slots of an empty row at the very end would point past the axis.
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
        """One number per row, equal within a group. `build(…, keys=rows.keys)` makes a layout with the same groups."""
        return np.repeat(np.arange(len(self.groups)), [group.size for group in self.groups])

    def runs(self, limit: int) -> Iterator[tuple[int, int]]:
        """Ranges of consecutive rows with at most `limit` tokens together. A longer row is a range of its own."""
        return runs(self.host_lengths, limit)

    def key_mask(self, group: Group) -> Tensor | None:
        """`[row 1 1 key]`, true where a key is a token; None if the group has no padding."""
        if group.full:
            return None
        return self.filled[group.offset : group.end].view(group.size, 1, 1, group.length)


def runs(costs: NDArray[np.int64], limit: int) -> Iterator[tuple[int, int]]:
    """Ranges of consecutive rows that cost at most `limit` together. A row that costs more is a range of its own."""
    start = filled = 0
    for row, cost in enumerate(costs.tolist()):
        if filled and filled + cost > limit:
            yield start, row
            start, filled = row, 0
        filled += cost
    if start < len(costs):
        yield start, len(costs)


def places(lengths: NDArray[np.int64], chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Flat indices of the tokens of the chosen rows, row after row. A row may be chosen several times."""
    starts = np.cumsum(lengths) - lengths
    chosen_lengths = lengths[chosen]
    ends = np.cumsum(chosen_lengths)
    return np.repeat(starts[chosen] - (ends - chosen_lengths), chosen_lengths) + np.arange(chosen_lengths.sum())


def inverse(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """The inverse permutation: x[order][inverse(order)] is x."""
    result = np.empty_like(order)
    result[order] = np.arange(len(order))
    return result


def length_key(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lengths in units of `ROUND_TO`, rounded up."""
    return -(-lengths // ROUND_TO)


def doubling_key(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The range 0-16, 17-32, 33-64 … that each count falls into. Padding to double size costs less than more groups."""
    return np.ceil(np.log2(np.maximum(counts, MIN_KEYS) / MIN_KEYS)).astype(np.int64)


def _edges(keys: NDArray[np.int64]) -> list[tuple[int, int]]:
    if len(keys) == 0:
        return []
    starts = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist()]
    return list(zip(starts, [*starts[1:], len(keys)]))


def pad(x: Float[Tensor, "total *feature"], rows: Rows) -> Float[Tensor, "padded *feature"]:
    """Convert from the flat to the padded axis. Padding slots hold arbitrary tokens, so mask them."""
    apply: Callable[..., Tensor] = _Pad.apply
    return apply(x, rows.padded, rows.unpadded)


def unpad(x: Float[Tensor, "padded *feature"], rows: Rows) -> Float[Tensor, "total *feature"]:
    """Convert from the padded to the flat axis. Padding slots are dropped and get no gradient."""
    apply: Callable[..., Tensor] = _Unpad.apply
    return apply(x, rows.unpadded)


def spaced(rows: Rows, gap: int) -> Int[Tensor, " total"]:
    """The slot of every flat token on an axis with `gap` empty slots between rows. An empty row leaves its gap, too."""
    numbers = torch.arange(len(rows), device=rows.lengths.device)
    numbers = torch.repeat_interleave(numbers, rows.lengths, output_size=rows.total)
    return numbers * gap + torch.arange(rows.total, device=numbers.device)


def spread(x: Float[Tensor, "total *feature"], slots: Int[Tensor, " total"], size: int) -> Float[Tensor, "{size} *feature"]:
    """Put every token into its slot on an axis of this size. The other slots hold zeros."""
    apply: Callable[..., Tensor] = _Spread.apply
    return apply(x, slots, size)


def collect(x: Float[Tensor, "slot *feature"], slots: Int[Tensor, " total"]) -> Float[Tensor, "total *feature"]:
    """Take every token from its slot, which no other token has. The other slots get no gradient."""
    apply: Callable[..., Tensor] = _Unpad.apply
    return apply(x, slots)


def with_equal_groups(one: Rows, other: Rows) -> tuple[Rows, Rows]:
    """Lay out both with the group borders of either, so that tokens of one can attend to those of the other."""
    assert len(one) == len(other), f"{len(one)} rows cannot attend to {len(other)} rows: every row needs one row of keys"
    keys = one.keys, other.keys
    if np.array_equal(*keys):
        return one, other
    # Keys never fall from one row to the next, so their sum changes where either does.
    both = keys[0] + keys[1]
    regrouped = (Rows.build(rows.host_lengths, keys=both).to(rows.lengths.device) for rows in (one, other))
    return next(regrouped), next(regrouped)


def on_device(values: NDArray[Any], device: torch.device) -> Shaped[Tensor, "*axes"]:
    """Values of the host on a device, without waiting for its computations."""
    return torch.from_numpy(values).to(device, non_blocking=True)


def right_aligned(ids: Int[Tensor, " total"], rows: Rows) -> tuple[Int[Tensor, "row column"], NDArray[np.int64]]:
    """Rows as a table in which all end in the last column, and the column in which each begins. The places before hold 0.

    The table has at least one column.
    """
    columns = max(1, rows.max_length)
    numbers = torch.repeat_interleave(torch.arange(len(rows), device=ids.device), rows.lengths, output_size=rows.total)
    table = ids.new_zeros(len(rows), columns)
    table[numbers, (columns - rows.lengths).index_select(0, numbers) + rows.positions] = ids
    return table, columns - rows.host_lengths


def by_group(x: Shaped[Tensor, "padded *feature"], rows: Rows) -> list[Shaped[Tensor, "_row _column *feature"]]:
    """Split a padded axis into one block per group of rows."""
    # The gradient of one split is one concatenation. One slice per group would sum as many gradients of full size.
    parts = x.split([group.size * group.length for group in rows.groups])
    return [part.view(group.size, group.length, *x.shape[1:]) for part, group in zip(parts, rows.groups, strict=True)]


def as_table(
    values: Float[Tensor, " total"], rows: Rows, empty: float
) -> tuple[Float[Tensor, "row column"], Int[Tensor, " total"]]:
    """Values as a table, one line per row and filled up with `empty`, and the flat index of each value in it."""
    table = values.new_full((len(rows), rows.max_length), empty)
    numbers = torch.arange(len(rows), device=values.device)
    cells = torch.repeat_interleave(numbers, rows.lengths, output_size=rows.total) * rows.max_length + rows.positions
    return table.flatten().index_copy(0, cells, values).view_as(table), cells


def highest(values: Float[Tensor, " total"], rows: Rows, count: int) -> tuple[Int[Tensor, " chosen"], Rows]:
    """Flat indices of the `count` highest values of each row, in ascending order, and their layout as rows."""
    table, _ = as_table(values, rows, -math.inf)
    # The filling of a short row comes last, because its columns are the greatest.
    columns = table.topk(min(count, rows.max_length), dim=1).indices.sort(dim=1).values
    lengths = np.minimum(rows.host_lengths, columns.shape[1])
    inside = np.flatnonzero(np.arange(columns.shape[1]) < lengths[:, None])
    tokens = (rows.offsets[:-1, None] + columns).flatten()
    chosen = tokens.index_select(0, torch.from_numpy(inside).to(values.device))
    return chosen, Rows.build(lengths, keys=lengths).to(values.device)


def reorder(
    x: Float[Tensor, "total *feature"], order: Int[Tensor, " total"], back: Int[Tensor, " total"]
) -> Float[Tensor, "total *feature"]:
    """x[order]. `back` is the inverse permutation and serves the gradient."""
    apply: Callable[..., Tensor] = _Pad.apply
    return apply(x, order, back)


class _Pad(torch.autograd.Function):
    """Callers mask padding slots, so their gradient is zero and the backward pass is a plain gather."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, padded: Tensor, unpadded: Tensor) -> Tensor:
        ctx.save_for_backward(unpadded)
        return x.index_select(0, padded)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (unpadded,) = ctx.saved_tensors
        return gradients[0].index_select(0, unpadded), None, None


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slots: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(slots)
        return x.new_zeros((size, *x.shape[1:])).index_copy_(0, slots, x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (slots,) = ctx.saved_tensors
        return gradients[0].index_select(0, slots), None, None


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
