"""Pairs of rows, such as a message and a candidate parent: grouped by length, encoded in parts, and softly aligned."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ramify.nn.ragged import Group, Rows, by_group, eager, inverse, length_key, places, runs, unpad

Part = TypeVar("Part")


@dataclass(frozen=True)
class Pairs:
    """Pairs of rows. The tokens of the left rows lie on one flat axis, those of the right rows on another, in equal groups."""

    left: Rows
    right: Rows
    left_tokens: Int[Tensor, " left"]
    """Index of each token on the flat axis of the unpaired rows."""
    right_tokens: Int[Tensor, " right"]


def pair_up(
    rows: Rows, left: NDArray[np.int64], right: NDArray[np.int64], limit: int
) -> tuple[list[Pairs], Int[Tensor, " pair"]]:
    """Pair row `left[i]` with row `right[i]` for every i, in parts of at most `limit` tokens and of similar lengths.

    Also returns the index of every pair in the concatenation of the parts."""
    lengths, device = rows.host_lengths, rows.lengths.device
    keys = length_key(lengths)
    # Both keys combined into one number.
    both = keys[left] * (keys.max(initial=0) + 1) + keys[right]
    order = np.argsort(both, kind="stable")
    parts = []
    for start, stop in runs((lengths[left] + lengths[right])[order], limit):
        part = order[start:stop]
        sides = [
            (Rows.build(lengths[side[part]], keys=both[part]), torch.from_numpy(places(lengths, side[part])))
            for side in (left, right)
        ]
        (left_rows, left_tokens), (right_rows, right_tokens) = (
            (rows_of_side.to(device), tokens.to(device, non_blocking=True)) for rows_of_side, tokens in sides
        )
        parts.append(Pairs(left_rows, right_rows, left_tokens, right_tokens))
    return parts, torch.from_numpy(inverse(order)).to(device)


def part_by_part(read: Callable[[Part], Tensor], parts: Sequence[Part]) -> Float[Tensor, "pair state"]:
    """Concatenate `read(part)` over the parts. With several parts and gradients enabled, the backward pass recomputes each part
    with the same dropout, so that memory holds the graph of only one part at a time."""
    if len(parts) == 1 or not torch.is_grad_enabled():
        return torch.cat([read(part) for part in parts])
    checkpointed: Callable[..., Tensor] = checkpoint
    return torch.cat([checkpointed(read, part, use_reentrant=False) for part in parts])


@eager
def align(
    keys: Float[Tensor, "total key"], values: Float[Tensor, "total value"], pairs: Pairs
) -> tuple[Float[Tensor, "left value"], Float[Tensor, "right value"]]:
    """Align each token with the other row of its pair: the mean of that row's values, weighted by a softmax over the products
    of keys (Parikh et al. 2016, section 3.1). Every row must have a token."""
    sides = [(pairs.left, pairs.left_tokens), (pairs.right, pairs.right_tokens)]
    # One gather from the flat axis to the padded blocks, instead of one to the pairs and one to the blocks.
    slots = [tokens.index_select(0, rows.padded) for rows, tokens in sides]
    left_keys, right_keys = (by_group(keys.index_select(0, at), rows) for at, (rows, _) in zip(slots, sides))
    left_values, right_values = (by_group(values.index_select(0, at), rows) for at, (rows, _) in zip(slots, sides))
    from_right, from_left = [], []
    for number, (left, right) in enumerate(zip(pairs.left.groups, pairs.right.groups, strict=True)):
        scores = left_keys[number] @ right_keys[number].transpose(1, 2)
        to_right = mask_padding(scores, pairs.right, right).softmax(2)
        to_left = mask_padding(scores.transpose(1, 2), pairs.left, left).softmax(2)
        from_right.append((to_right @ right_values[number]).flatten(0, 1))
        from_left.append((to_left @ left_values[number]).flatten(0, 1))
    return unpad(torch.cat(from_right), pairs.left), unpad(torch.cat(from_left), pairs.right)


def mask_padding(scores: Float[Tensor, "row query key"], rows: Rows, group: Group) -> Float[Tensor, "row query key"]:
    """Set the scores of padding keys to -inf, so that a softmax over keys ignores them."""
    mask = rows.key_mask(group)
    return scores if mask is None else scores.masked_fill(~mask[:, 0], -torch.inf)
