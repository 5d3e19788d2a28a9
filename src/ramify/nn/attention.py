"""Attention on the flat axis: of a row's tokens to each other, and of a row's tokens to vectors of other nodes.

CUDA in half precision without attention dropout takes the variable-length kernel, where that can; every other case takes
`scaled_dot_product_attention` over groups of rows of near-equal length. A row that sees nothing comes out as exact zeros.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from ramify.nn.dropout import dropout as drop
from ramify.nn.ragged import Rows, by_group, eager, pad, unpad

HALF = (torch.float16, torch.bfloat16)

Allowed = Sequence[Bool[Tensor, "_row _query _key"]]
"""Of every group of rows, which token may attend to which. Padding must be no key, but every token, padding too, must have
one."""


@eager
def attend(
    q: Float[Tensor, "query head size"],
    kv: Float[Tensor, "key 2 head size"],
    q_rows: Rows,
    k_rows: Rows,
    *,
    dropout: float = 0.0,
    allowed: Allowed | None = None,
) -> Float[Tensor, "query head size"]:
    """Every token of row i of `q` attends to all tokens of row i of `kv` (keys, values), or to those that it is allowed to.
    Both have the same group borders."""
    if q_rows.total == 0 or k_rows.total == 0:
        return torch.zeros_like(q)
    if q.is_cuda and dropout == 0.0 and q.dtype in HALF and allowed is None and _in_kernel(q):
        from torch.nn.attention.varlen import varlen_attn

        k, v = kv.unbind(1)
        out = varlen_attn(q, k, v, q_rows.offsets, k_rows.offsets, q_rows.max_length, k_rows.max_length)
        assert isinstance(out, Tensor)
        return out
    blocks = []
    for number, (q_group, k_group, query, keys) in enumerate(
        zip(q_rows.groups, k_rows.groups, by_group(pad(q, q_rows), q_rows), by_group(pad(kv, k_rows), k_rows), strict=True)
    ):
        if q_group.length == 0:
            continue
        if k_group.length == 0:
            blocks.append(torch.zeros_like(query).flatten(0, 1))
            continue
        mask = k_rows.key_mask(k_group) if allowed is None else allowed[number][:, None]
        empty = None
        if k_rows.host_lengths[k_group.start : k_group.stop].min() == 0:
            # Softmax over nothing is 0/0: let such rows see their padding, then erase what they saw.
            assert mask is not None
            empty = ~mask.any(-1, keepdim=True)
            mask = mask | empty
        key, value = keys.transpose(1, 3).unbind(2)
        mixed = _mix(query.transpose(1, 2), key, value, mask, dropout)
        if empty is not None:
            mixed = mixed.masked_fill(empty, 0.0)
        blocks.append(mixed.transpose(1, 2).flatten(0, 1))
    return unpad(torch.cat(blocks), q_rows)


def _in_kernel(q: Float[Tensor, "query head size"]) -> bool:
    """Can the variable-length kernel take heads of this size, on this card?"""
    size = q.shape[-1]
    return size % 8 == 0 and size <= 256 and torch.cuda.get_device_capability(q.device) >= (8, 0)


def _mix(
    query: Float[Tensor, "row head query size"],
    key: Float[Tensor, "row head key size"],
    value: Float[Tensor, "row head key size"],
    mask: Bool[Tensor, "row 1 #query key"] | None,
    dropout: float,
) -> Float[Tensor, "row head query size"]:
    if query.device.type == "cpu" and query.dtype in HALF:
        # torch's half-precision kernel for CPUs takes several times as long on the way back as that in single precision.
        with torch.autocast("cpu", enabled=False):
            return _mix(query.float(), key.float(), value.float(), mask, dropout).to(query.dtype)
    if dropout == 0.0 or query.device.type != "cpu":
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
    # On CPU torch has no fused kernel with dropout, and draws its mask entry by entry.
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill_(~mask, -torch.inf)
    return drop(scores.softmax(-1), dropout, training=True) @ value
