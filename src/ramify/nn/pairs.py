"""Pairs of rows, such as a message and one that it may answer: laid out by length, read part by part, softly aligned."""

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
    """Pairs of rows, the tokens of their left rows laid flat, and those of their right rows. Both have the same groups."""

    left: Rows
    right: Rows
    left_tokens: Int[Tensor, " left"]
    """Which token of the axis that the rows stand on each is."""
    right_tokens: Int[Tensor, " right"]


def pair_up(
    rows: Rows, left: NDArray[np.int64], right: NDArray[np.int64], limit: int
) -> tuple[list[Pairs], Int[Tensor, " pair"]]:
    """Row `left[i]` with row `right[i]`, for every i, in parts of at most `limit` tokens, those of similar lengths together;
    and where pair i stands when the parts come one after the other."""
    lengths, device = rows.host_lengths, rows.lengths.device
    keys = length_key(lengths)
    # Two keys in one.
    both = keys[left] * (keys.max(initial=0) + 1) + keys[right]
    order = np.argsort(both, kind="stable")
    parts = []
    for start, stop in runs((lengths[left] + lengths[right])[order], limit):
        own = order[start:stop]
        sides = [
            (Rows.build(lengths[side[own]], keys=both[own]), torch.from_numpy(places(lengths, side[own])))
            for side in (left, right)
        ]
        (left_rows, left_tokens), (right_rows, right_tokens) = (
            (each.to(device), tokens.to(device, non_blocking=True)) for each, tokens in sides
        )
        parts.append(Pairs(left_rows, right_rows, left_tokens, right_tokens))
    return parts, torch.from_numpy(inverse(order)).to(device)


def part_by_part(read: Callable[[Part], Tensor], parts: Sequence[Part]) -> Float[Tensor, "pair state"]:
    """What `read` makes of the parts, one after the other. Where there are several and a gradient is wanted, each is read once
    more on the way back, with the same dropout, so that there is never more than one part's graph."""
    if len(parts) == 1 or not torch.is_grad_enabled():
        return torch.cat([read(part) for part in parts])
    twice: Callable[..., Tensor] = checkpoint
    return torch.cat([twice(read, part, use_reentrant=False) for part in parts])


@eager
def align(
    keys: Float[Tensor, "total key"], values: Float[Tensor, "total value"], pairs: Pairs
) -> tuple[Float[Tensor, "left value"], Float[Tensor, "right value"]]:
    """What each token finds in the other row of its pair: the values of that row's tokens, weighed by a softmax of the
    products of keys (Parikh et al. 2016, section 3.1). Every row has a token."""
    sides = [(pairs.left, pairs.left_tokens), (pairs.right, pairs.right_tokens)]
    # Straight from where the rows stand to their blocks, padding and all.
    slots = [tokens.index_select(0, rows.padded) for rows, tokens in sides]
    left_keys, right_keys = (by_group(keys.index_select(0, at), rows) for at, (rows, _) in zip(slots, sides))
    left_values, right_values = (by_group(values.index_select(0, at), rows) for at, (rows, _) in zip(slots, sides))
    found_left, found_right = [], []
    for number, (left, right) in enumerate(zip(pairs.left.groups, pairs.right.groups, strict=True)):
        scores = left_keys[number] @ right_keys[number].transpose(1, 2)
        to_right = mask_padding(scores, pairs.right, right).softmax(2)
        to_left = mask_padding(scores.transpose(1, 2), pairs.left, left).softmax(2)
        found_left.append((to_right @ right_values[number]).flatten(0, 1))
        found_right.append((to_left @ left_values[number]).flatten(0, 1))
    return unpad(torch.cat(found_left), pairs.left), unpad(torch.cat(found_right), pairs.right)


def mask_padding(scores: Float[Tensor, "row query key"], rows: Rows, group: Group) -> Float[Tensor, "row query key"]:
    """Scores of which a softmax over the keys leaves nothing to padding."""
    mask = rows.key_mask(group)
    return scores if mask is None else scores.masked_fill(~mask[:, 0], -torch.inf)
