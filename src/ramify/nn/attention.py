"""Attention on the flat axis: among the tokens of a row, and from a row's tokens to vectors of other nodes.

On CUDA, half precision uses the variable-length kernel if the kernel supports the head size and there is no dropout, mask or
bias. Every other case runs over groups of rows of near-equal length. A query without visible keys returns exact zeros.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from ramify.nn.dropout import dropout as drop
from ramify.nn.ragged import Rows, by_group, eager, pad, unpad

HALF = (torch.float16, torch.bfloat16)

Allowed = Sequence[Bool[Tensor, "_row _query _key"]]
"""One block per group of rows: whether a query sees a key. No token may see padding."""

Bias = Callable[[int], Float[Tensor, "#row #head query key"]]
"""A function from a group's number to its bias. The axes of rows and heads may be 1. All values are finite, even in padding.

A group's bias is as large as its scores. So `attend` computes one group's bias at a time and frees it before the next. The
function must not draw random numbers, because `record` calls it a second time."""

Weights = list[Float[Tensor, "_head _query _key"]]
"""The attention weights of each row, before dropout, without a gradient."""

LayerWeights = dict[str, Weights]
"""The weights of a layer by kind of attention: self, cross (to other nodes), content or query (the streams of XLNet)."""

AttentionRecord = dict[str, list[LayerWeights]]
"""The weights of a model: those of each layer, by the name of the stack of layers."""


class Ties(Enum):
    """Whether a query sees the keys with its own number."""

    VISIBLE = "visible"
    HIDDEN = "hidden"


@dataclass(frozen=True)
class Order:
    """A number per token. A query sees the keys of its row with a lower number, and with an equal number if ties are visible.

    Positions as numbers make attention causal. XLNet's factorization order makes its content stream if ties are visible, and
    its query stream if they are hidden. Memory gets a number below all others, so every query sees it.
    """

    queries: Int[Tensor, " query"]
    keys: Int[Tensor, " key"]
    ties: Ties = Ties.VISIBLE

    def allowed(self, q_rows: Rows, k_rows: Rows) -> list[Bool[Tensor, "_row _query _key"]]:
        """Compute one block per group. `attend` does so at every call, unless layers with the same order pass shared blocks."""
        assert len(self.queries) == q_rows.total, "an order needs one number per query"
        assert len(self.keys) == k_rows.total, "an order needs one number per key"
        queries = by_group(self.queries.index_select(0, q_rows.padded), q_rows)
        keys = by_group(self.keys.index_select(0, k_rows.padded), k_rows)
        precedes = torch.le if self.ties is Ties.VISIBLE else torch.lt
        blocks = []
        for group, query, key in zip(k_rows.groups, queries, keys, strict=True):
            block = precedes(key[:, None], query[:, :, None])
            real = k_rows.key_mask(group)
            blocks.append(block if real is None else block & real[:, 0])
        return blocks


@eager
def attend(
    q: Float[Tensor, "query head size"],
    kv: Float[Tensor, "key 2 head size"],
    q_rows: Rows,
    k_rows: Rows,
    *,
    dropout: float = 0.0,
    allowed: Allowed | None = None,
    order: Order | None = None,
    bias: Bias | None = None,
    scale: float | None = None,
    record: Weights | None = None,
) -> Float[Tensor, "query head size"]:
    """Attend from each token of row i of `q` to the tokens of row i of `kv` (keys and values).

    A token attends to all keys of its row, or to those that both `allowed` and `order` make visible. Both axes have the same
    group borders. Scores are `scale · q·k + bias`; `scale` is 1/√size by default. A query without visible keys returns zeros
    and receives no gradient. The weights of every row are appended to `record`, which does not change the result.
    """
    if order is not None:
        ordered = order.allowed(q_rows, k_rows)
        allowed = ordered if allowed is None else [a & b for a, b in zip(allowed, ordered, strict=True)]
    mixed = _attend(q, kv, q_rows, k_rows, allowed, bias, scale, dropout)
    if record is not None:
        record.extend(_weights_by_row(q, kv, q_rows, k_rows, allowed, bias, scale))
    return mixed


def _attend(
    q: Float[Tensor, "query head size"],
    kv: Float[Tensor, "key 2 head size"],
    q_rows: Rows,
    k_rows: Rows,
    allowed: Allowed | None,
    bias: Bias | None,
    scale: float | None,
    dropout: float,
) -> Float[Tensor, "query head size"]:
    if q_rows.total == 0 or k_rows.total == 0:
        return torch.zeros_like(q)
    if q.is_cuda and dropout == 0.0 and q.dtype in HALF and allowed is None and bias is None and _in_kernel(q):
        from torch.nn.attention.varlen import varlen_attn

        k, v = kv.unbind(1)
        out = varlen_attn(q, k, v, q_rows.offsets, k_rows.offsets, q_rows.max_length, k_rows.max_length, scale=scale)
        assert isinstance(out, Tensor)
        return out
    parts = []
    for number, block in enumerate(_blocks(q, kv, q_rows, k_rows, allowed)):
        if block.query.shape[2] == 0:
            continue
        if block.key.shape[2] == 0:
            mixed = torch.zeros_like(block.query)
        else:
            # The bias gets no name, so it is freed before the next one is computed.
            mixed = mix(block, None if bias is None else bias(number), scale, dropout)
        parts.append(mixed.transpose(1, 2).flatten(0, 1))
    return unpad(torch.cat(parts), q_rows)


def _in_kernel(q: Float[Tensor, "query head size"]) -> bool:
    """Whether the variable-length kernel supports this head size on this device."""
    size = q.shape[-1]
    return size % 8 == 0 and size <= 256 and torch.cuda.get_device_capability(q.device) >= (8, 0)


@dataclass(frozen=True)
class Block:
    """The queries, keys and values of rows of equal length, and their mask."""

    query: Float[Tensor, "row head query size"]
    key: Float[Tensor, "row head key size"]
    value: Float[Tensor, "row head key out"]
    mask: Bool[Tensor, "row 1 #query key"] | None
    """Whether a query sees a key; None: every query sees every key."""
    may_be_blind: bool
    """Whether there may be queries without visible keys."""

    def in_single_precision(self) -> "Block":
        return replace(self, query=self.query.float(), key=self.key.float(), value=self.value.float())

    def sighted(self) -> tuple["Block", Bool[Tensor, "_row 1 _query 1"] | None]:
        """Make all keys visible to queries without visible keys, because a softmax over no keys is 0/0.

        Also return which queries these are, so that the caller sets their results to zero; None: there are none.
        """
        if self.mask is None or not self.may_be_blind or self.mask.shape[-1] == 0:
            return self, None
        # The greatest byte is 1 if any key is visible. `any` takes up to twenty times as long on CPU.
        blind = self.mask.view(torch.uint8).amax(-1, keepdim=True) == 0
        # Only a CPU answers whether there are any without a synchronization.
        if blind.device.type == "cpu" and not blind.any():
            return self, None
        return replace(self, mask=self.mask | blind), blind


def _blocks(
    q: Float[Tensor, "query head size"],
    kv: Float[Tensor, "key 2 head size"],
    q_rows: Rows,
    k_rows: Rows,
    allowed: Allowed | None,
) -> Iterator[Block]:
    for number, (group, query, keys) in enumerate(
        zip(k_rows.groups, by_group(pad(q, q_rows), q_rows), by_group(pad(kv, k_rows), k_rows), strict=True)
    ):
        key, value = keys.transpose(1, 3).unbind(2)
        mask = k_rows.key_mask(group) if allowed is None else allowed[number][:, None]
        may_be_blind = allowed is not None or bool(k_rows.host_lengths[group.start : group.stop].min() == 0)
        yield Block(query.transpose(1, 2), key, value, mask, may_be_blind)


def mix(
    block: Block, bias: Float[Tensor, "#row #head query key"] | None, scale: float | None, dropout: float
) -> Float[Tensor, "row head query out"]:
    """Mix the values of a block by attention weights. Scores are `scale · q·k + bias`."""
    dtype, on_cpu = block.query.dtype, block.query.device.type == "cpu"
    if on_cpu and dtype in HALF:
        # On CPU, the backward pass of torch's half-precision kernel takes several times as long as in single precision.
        with torch.autocast("cpu", enabled=False):
            return mix(block.in_single_precision(), bias, scale, dropout).to(dtype)
    # On CPU, torch has no fused kernel with dropout, and draws its mask entry by entry. Few kernels compute a bias's gradient.
    fused = not (on_cpu and dropout > 0.0) and not (bias is not None and bias.requires_grad)
    blind = None
    if not (fused and on_cpu):
        # Only torch's CPU kernels are known to return zeros without a gradient for queries without visible keys.
        block, blind = block.sighted()
    if fused:
        mask = block.mask
        if bias is not None:
            bias = bias.to(dtype)
            mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
        mixed = F.scaled_dot_product_attention(
            block.query, block.key, block.value, attn_mask=mask, dropout_p=dropout, scale=scale
        )
    else:
        mixed = drop(_weights(block, bias, scale), dropout, training=True) @ block.value
    return mixed if blind is None else mixed.masked_fill(blind, 0.0)


@torch.no_grad()
def weights(
    block: Block, bias: Float[Tensor, "#row #head query key"] | None, scale: float | None
) -> Float[Tensor, "row head query key"]:
    """The attention weights of a block, before dropout, without a gradient. Queries without visible keys have zeros."""
    block, blind = block.sighted()
    with torch.autocast(block.query.device.type, enabled=False):
        probabilities = _weights(block.in_single_precision() if block.query.dtype in HALF else block, bias, scale)
    return probabilities if blind is None else probabilities.masked_fill(blind, 0.0)


def _weights(
    block: Block, bias: Float[Tensor, "#row #head query key"] | None, scale: float | None
) -> Float[Tensor, "row head query key"]:
    scores = (block.query * (block.query.shape[-1] ** -0.5 if scale is None else scale)) @ block.key.transpose(-1, -2)
    if bias is not None:
        scores = scores.add_(bias)
    if block.mask is not None:
        scores = scores.masked_fill_(~block.mask, -torch.inf)
    return scores.softmax(-1)


@torch.no_grad()
def _weights_by_row(
    q: Float[Tensor, "query head size"],
    kv: Float[Tensor, "key 2 head size"],
    q_rows: Rows,
    k_rows: Rows,
    allowed: Allowed | None,
    bias: Bias | None,
    scale: float | None,
) -> Weights:
    rows = []
    for number, block in enumerate(_blocks(q, kv, q_rows, k_rows, allowed)):
        added = None if bias is None or 0 in (block.query.shape[2], block.key.shape[2]) else bias(number)
        group = q_rows.groups[number]
        lengths = (layout.host_lengths[group.start : group.stop].tolist() for layout in (q_rows, k_rows))
        padded_weights = weights(block, added, scale)
        rows += [row[:, :queries, :keys] for row, queries, keys in zip(padded_weights, *lengths, strict=True)]
    return rows
