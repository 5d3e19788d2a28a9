"""Attention with relative positions (Dai et al. 2019, section 3.3) and relative segments (Yang et al. 2019, section 2.5).

The score of a query and a key is the sum of three dot products, over the root of the head size: content (q + u)·k, position
(q + v)·r of their distance, and segment (q + w)·s of whether their segments are equal.

`forward` reads rows of equal length. The keys of a row are its memory and then its own tokens, so token i is key `memory + i`.
`among` reads rows on the flat axis, without memory and segments.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ramify.nn.attention import Allowed, Bias, Block, Weights, attend, mix, weights
from ramify.nn.linear import Linear
from ramify.nn.ragged import Rows, by_group, eager, pad


def sinusoids(distances: Float[Tensor, " distance"], dim: int) -> Float[Tensor, "distance dim"]:
    """Sines and then cosines of each distance, at the frequencies 10000^(−2k/dim)."""
    frequencies = 10_000.0 ** (-torch.arange(0, dim, 2, dtype=distances.dtype, device=distances.device) / dim)
    angles = distances[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], 1)


def distance_codes(
    greatest: int, least: int, dim: int, like: Tensor, *, signs: Sequence[int] = (1,), limit: int | None = None
) -> Float[Tensor, "direction distance {dim}"]:
    """The codes of the distances from `greatest` down to `least`, multiplied by each of `signs`. Distances beyond `limit` count
    as this one."""
    distances = torch.arange(greatest, least - 1, -1, dtype=torch.float64, device=like.device)
    if limit is not None:
        distances = distances.clamp(-limit, limit)
    return torch.stack([sinusoids(sign * distances, dim) for sign in signs]).to(like.dtype)


@dataclass(frozen=True)
class Queries:
    """Queries that see the same first `num_keys` keys of their row: consecutive tokens, or chosen ones."""

    rows: slice
    """The places of these queries among all queries of a row."""
    num_keys: int
    start: int
    stop: int
    """All positions are in `[start, stop)`."""
    mask: Bool[Tensor, "row 1 query key"] | None
    """Whether a query sees a key; None: every query sees every key."""
    positions: Int[Tensor, "row query"] | None = None
    """The position of each query in its row; None: `start`, `start + 1`, …, `stop − 1`."""
    segments: Int[Tensor, "row query segment"] | None = None
    """The segment of each query, one-hot; None: all tokens belong to one segment."""

    def moved(self, by: int) -> "Queries":
        """The same queries, `by` places later among all queries of a row."""
        return replace(self, rows=slice(self.rows.start + by, self.rows.stop + by))


@dataclass(frozen=True)
class Keys:
    """The keys and values of all rows, memory first."""

    key: Float[Tensor, "row head key size"]
    value: Float[Tensor, "row head key size"]
    num_tokens: int
    """Number of keys that are the row's own tokens."""
    codes: Float[Tensor, "#row head distance size"] | None
    """The keys of all distances, from that of the last token to the first key downwards; None: no relative positions."""
    segments: Float[Tensor, "row key segment"] | None = None


class RelativeAttention(nn.Module):
    """Multi-head attention with relative positions and segments. Its linear maps have no bias."""

    def __init__(self, dim: int, num_heads: int, dropout: float, *, relative: bool = True, segmented: bool = True) -> None:
        """Without `relative`, the score is that of the content alone. Without `segmented`, it has no part for segments."""
        super().__init__()
        self.num_heads = num_heads
        self.size = dim // num_heads
        self.dropout = dropout
        self.query = Linear(dim, dim, bias=False)
        self.key_value = Linear(dim, 2 * dim, bias=False)
        self.out = Linear(dim, dim, bias=False)
        self.distance = Linear(dim, dim, bias=False) if relative else None
        self.biases = nn.Parameter(torch.zeros(2 + segmented, num_heads, self.size)) if relative else None
        """u, v and w, which are added to the queries of content, position and segment."""
        self.segments = nn.Parameter(torch.zeros(2, num_heads, self.size)) if relative and segmented else None
        """The keys of the same and of another segment."""

    def keys(
        self,
        x: Float[Tensor, "row key dim"],
        num_tokens: int,
        codes: Float[Tensor, "direction distance dim"],
        direction: Int[Tensor, " row"],
        segments: Float[Tensor, "row key segment"] | None,
    ) -> Keys:
        """The keys of states. Row r reads the codes of distances `codes[direction[r]]`."""
        key, value = self.key_values(x)
        if self.distance is None:
            return Keys(key, value, num_tokens, None)
        table = self.coded(codes)
        return Keys(key, value, num_tokens, table if len(table) == 1 else table.index_select(0, direction), segments)

    def key_values(self, x: Float[Tensor, "row key dim"]) -> Float[Tensor, "2 row head key size"]:
        """The keys and values of states."""
        num_rows, num_keys, dim = x.shape
        key_value = self.key_value(x.reshape(-1, dim)).view(num_rows, num_keys, 2, self.num_heads, self.size)
        return key_value.permute(2, 0, 3, 1, 4)

    def coded(self, codes: Float[Tensor, "direction distance dim"]) -> Float[Tensor, "direction head distance size"]:
        """The keys of distances. Without relative positions there are none."""
        assert self.distance is not None
        keys = self.distance(codes.flatten(0, 1))
        return keys.view(*codes.shape[:2], self.num_heads, self.size).transpose(1, 2)

    def forward(
        self,
        x: Float[Tensor, "row query dim"],
        keys: Keys,
        parts: Sequence[Queries],
        record: list[Float[Tensor, "row head _query _key"]] | None = None,
    ) -> Float[Tensor, "row query dim"]:
        """Attend from all queries, which `parts` divide. The weights of each part are appended to `record`."""
        num_rows, num_queries, dim = x.shape
        query = self.query(x.reshape(-1, dim)).view(num_rows, num_queries, self.num_heads, self.size).transpose(1, 2)
        mixed = []
        for part in parts:
            block, bias = self._scored(query[:, :, part.rows], keys, part)
            mixed.append(mix(block, bias, self.size**-0.5, self.dropout if self.training else 0.0))
            if record is not None:
                record.append(weights(block, bias, self.size**-0.5))
        joined = mixed[0] if len(mixed) == 1 else torch.cat(mixed, 2)
        return self.out(joined.transpose(1, 2).reshape(-1, dim)).view(num_rows, num_queries, dim)

    def among(
        self,
        x: Float[Tensor, "query dim"],
        keys: Float[Tensor, "key dim"],
        q_rows: Rows,
        k_rows: Rows,
        codes: Float[Tensor, "distance dim"],
        positions: Int[Tensor, " query"],
        allowed: Allowed | None = None,
        record: Weights | None = None,
    ) -> Float[Tensor, "query dim"]:
        """Attend from each token of row i of `x` to the tokens of row i of `keys` (see `attend`).

        `codes` are those of all distances in the longest row, downwards. `positions` are the queries' places in their rows.
        """
        assert self.biases is not None, "positions are not relative"
        assert self.segments is None, "segments need rows of equal length"
        query = self.query(x).unflatten(-1, (self.num_heads, -1))
        key_value = self.key_value(keys).unflatten(-1, (2, self.num_heads, -1))
        (table,) = self.coded(codes[None])
        dropout = self.dropout if self.training else 0.0
        content, position = (query + bias.to(query.dtype) for bias in self.biases)
        mixed = _attend_with_distances(
            content, position, key_value, q_rows, k_rows, table, positions, dropout=dropout, allowed=allowed, record=record
        )
        return self.out(mixed.flatten(-2))

    def _scored(
        self, query: Float[Tensor, "row head query size"], keys: Keys, part: Queries
    ) -> tuple[Block, Float[Tensor, "row head query key"] | None]:
        """The block of a part's queries, and the scores of their positions."""
        key, value = keys.key[:, :, : part.num_keys], keys.value[:, :, : part.num_keys]
        if keys.codes is None or self.biases is None:
            return Block(query, key, value, part.mask, may_be_blind=True), None
        content, position, *segment = self.biases[:, :, None]
        # The distance of the last query to the first key is the greatest, and comes first.
        first = keys.num_tokens - part.stop
        codes = keys.codes[:, :, first : first + part.stop - part.start + part.num_keys - 1]
        scores = ((query + position) * self.size**-0.5) @ codes.transpose(-1, -2)
        if part.positions is None:
            bias = shifted(scores, part.num_keys)
        else:
            bias = _taken(scores, part.num_keys, part.stop - 1 - part.positions)
        if part.segments is None or keys.segments is None or self.segments is None:
            return Block(query + content, key, value, part.mask, may_be_blind=True), bias
        # The segment is part of the dot product: a key shows its segment, and a query what its own segment is worth. A softmax
        # does not change if all keys' scores change alike, so only the difference of the two segment keys counts.
        worth = ((query + segment[0]) * (self.segments[0] - self.segments[1])[:, None]).sum(-1, keepdim=True)
        query = torch.cat([query + content, worth * part.segments[:, None]], -1)
        shown = keys.segments[:, None, : part.num_keys].expand(-1, self.num_heads, -1, -1)
        return Block(query, torch.cat([key, shown], -1), value, part.mask, may_be_blind=True), bias


class DistanceScores(nn.Module):
    """A learned score of each distance, per head, which is added to the scores of self-attention (Raffel et al. 2020, section
    2.1).

    Small distances have half of the buckets, one each. Greater ones share buckets, whose sizes grow with the logarithm of the
    distance, and all from `max_distance` on share the last. Keys after a query have half of all buckets, unless attention is
    `causal`.
    """

    def __init__(self, num_heads: int, buckets: int, max_distance: int, *, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.max_distance = max_distance
        self.table = nn.Embedding(buckets, num_heads)

    def forward(self, offsets: Int[Tensor, "*row query key"]) -> Float[Tensor, "*row head query key"]:
        """The scores of keys, given the position of each minus that of the query."""
        return self.table(self.buckets(offsets)).movedim(-1, -3)

    def buckets(self, offsets: Int[Tensor, "*axes"]) -> Int[Tensor, "*axes"]:
        count = self.table.num_embeddings if self.causal else self.table.num_embeddings // 2
        distances = (-offsets).clamp(min=0) if self.causal else offsets.abs()
        exact = count // 2
        growth = torch.log(distances.clamp(min=exact).float() / exact) / math.log(self.max_distance / exact)
        # A distance that begins a bucket stays in it, though the logarithms of other processors round it down.
        shared = (exact + (growth * (count - exact) + 1e-5).long()).clamp(max=count - 1)
        buckets = torch.where(distances < exact, distances, shared)
        return buckets if self.causal else buckets + (offsets > 0) * count

    def of_rows(self, q_rows: Rows, k_rows: Rows, positions: Int[Tensor, " query"]) -> Bias:
        """The bias of queries with these positions in their rows. Keys have their own positions."""
        keys = torch.arange(k_rows.max_length, device=positions.device)
        if q_rows is k_rows:
            lengths = {group.length for group in k_rows.groups}
            scores = {length: self(keys[:length] - keys[:length, None])[None] for length in lengths}
            return lambda number: scores[k_rows.groups[number].length]
        places = by_group(positions.index_select(0, q_rows.padded), q_rows)
        return lambda number: self(keys[: k_rows.groups[number].length] - places[number][:, :, None])


@eager
def _attend_with_distances(
    content: Float[Tensor, "query head size"],
    position: Float[Tensor, "query head size"],
    kv: Float[Tensor, "key 2 head size"],
    q_rows: Rows,
    k_rows: Rows,
    codes: Float[Tensor, "head distance size"],
    positions: Int[Tensor, " query"],
    *,
    dropout: float,
    allowed: Allowed | None,
    record: Weights | None,
) -> Float[Tensor, "query head size"]:
    """Attend with the queries `content`. The queries `position` score the distances."""
    queries = by_group(pad(position, q_rows), q_rows)
    places = by_group(positions.index_select(0, q_rows.padded), q_rows)
    middle, scale = codes.shape[1] // 2, position.shape[-1] ** -0.5

    def bias(number: int) -> Float[Tensor, "row head query key"]:
        length = k_rows.groups[number].length
        within = codes[:, middle - length + 1 : middle + length]
        scores = (queries[number].transpose(1, 2) * scale) @ within.transpose(-1, -2)
        if q_rows is k_rows:
            return shifted(scores, length)
        # Padding may have the position of a token in a longer row.
        return _taken(scores, length, (length - 1 - places[number]).clamp(min=0))

    return attend(content, kv, q_rows, k_rows, dropout=dropout, allowed=allowed, bias=bias, record=record)


def _taken(
    scores: Float[Tensor, "row head query distance"], num_keys: int, first: Int[Tensor, "row query"]
) -> Float[Tensor, "row head query {num_keys}"]:
    """The scores of keys from the scores of distances, which begin in column `first` of each query."""
    index = first[:, None, :, None] + torch.arange(num_keys, device=scores.device)
    return scores.gather(3, index.expand(-1, scores.shape[1], -1, -1))


def shifted(scores: Float[Tensor, "row head query distance"], num_keys: int) -> Float[Tensor, "row head query {num_keys}"]:
    """The scores of keys from the scores of distances: query i of n has key j at the distance of column n − 1 − i + j."""
    apply: Callable[..., Tensor] = _Shift.apply
    return apply(scores, num_keys)


class _Shift(torch.autograd.Function):
    """A view: from one row to the next, the columns move by one."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, num_keys: int) -> Tensor:
        ctx.shape = scores.shape
        return _diagonal(scores.contiguous(), num_keys)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        scores = gradient.new_zeros(ctx.shape)
        _diagonal(scores, gradient.shape[-1]).copy_(gradient)
        return scores, None


def _diagonal(scores: Tensor, num_keys: int) -> Tensor:
    rows, heads, queries, distances = scores.shape
    strides = (heads * queries * distances, queries * distances, distances - 1, 1)
    return scores.as_strided((rows, heads, queries, num_keys), strides, scores.storage_offset() + queries - 1)
