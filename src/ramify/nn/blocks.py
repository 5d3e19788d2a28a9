"""The Transformer layer and stack (Vaswani et al. 2017, section 3.1) that several models share.

`RowEncoder` and `RowDecoder` are the interfaces behind which a model can exchange Transformer layers for other cells.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.errors import RamifyError
from ramify.nn.attention import Allowed, Bias, Block, LayerWeights, Order, Weights, attend, mix
from ramify.nn.cache import KeyValueCache, SourceKeys
from ramify.nn.dropout import add_dropout, dropout
from ramify.nn.linear import Linear, linear
from ramify.nn.ragged import Rows, with_equal_groups
from ramify.nn.relative import DistanceScores, RelativeAttention, distance_codes

Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "tanh"]
Norm = Literal["post", "pre"]
NormKind = Literal["layer", "rms"]
States = list[Float[Tensor, "_token dim"]]
LayerPrefixes = tuple[tuple[str, ...], ...]
"""The beginnings of the names of parameters, layer by layer."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
}


NORMS: dict[str, Callable[[int, float], nn.Module]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}
"""Norms by name: LayerNorm (Ba et al. 2016), and without its mean and bias (Zhang and Sennrich 2019)."""


@dataclass(frozen=True)
class OutputPositions:
    """The positions whose final states are needed. The last layer computes only these; all positions remain keys."""

    index: Int[Tensor, " position"]
    rows: Rows
    """Layout of the selected positions: how many each row has."""
    cross_rows: Rows
    """The same layout, with the groups of the context."""

    def to(self, device: torch.device | str) -> "OutputPositions":
        return OutputPositions(self.index.to(device), self.rows.to(device), self.cross_rows.to(device))


@dataclass(frozen=True)
class ContextVectors:
    """Vectors of other nodes, or of the tokens of other rows, that the tokens of a row can attend to."""

    vectors: Float[Tensor, "node dim"]
    index: Int[Tensor, " key"] | None
    """The vectors that each row attends to, row after row; None: every vector once, in order."""
    q_rows: Rows
    """The querying rows, grouped so that rows with similar numbers of vectors are together."""
    k_rows: Rows
    """Layout of `index`: how many vectors each row attends to."""
    pair_vectors: Float[Tensor, "kind dim"] | None = None
    """One vector per kind of pair, such as their distance; row `pair_index[key]` is added to a gathered vector."""
    pair_index: Int[Tensor, " key"] | None = None
    node_positions: Float[Tensor, "node dim"] | None = None
    """Position vectors of the nodes, to be added to `vectors`."""

    @classmethod
    def of_rows(cls, vectors: Float[Tensor, "key dim"], rows: Rows, readers: Rows) -> "ContextVectors":
        """Row i of `readers` attends to the vectors of row i of `rows`."""
        return cls(vectors, None, *with_equal_groups(readers, rows))

    def by_key(self, x: Float[Tensor, "node *feature"]) -> Float[Tensor, "key *feature"]:
        """A result per vector, repeated for every row that attends to the vector."""
        return x if self.index is None else x.index_select(0, self.index)


class Attention(nn.Module):
    """Multi-head attention with one projection for keys and values. Scores are `scale · q·k`; None: 1/√size, with the size of a
    head, `head_dim`; None: an equal part of `dim`."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        dropout: float,
        *,
        bias: bool = True,
        scale: float | None = None,
        head_dim: int | None = None,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.scale = scale
        inner = dim if head_dim is None else num_heads * head_dim
        self.query = Linear(dim, inner, bias=bias)
        self.key_value = Linear(dim, 2 * inner, bias=bias)
        self.out = Linear(inner, dim, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "query dim"],
        keys: Float[Tensor, "key dim"],
        q_rows: Rows,
        k_rows: Rows,
        allowed: Allowed | None = None,
        record: Weights | None = None,
        bias: Bias | None = None,
    ) -> Float[Tensor, "query dim"]:
        return self._attend(x, self.key_value(keys), q_rows, k_rows, allowed, record, bias)

    def read(
        self, x: Float[Tensor, "query dim"], context: "ContextVectors", q_rows: Rows, record: Weights | None = None
    ) -> Float[Tensor, "query dim"]:
        """Attend to vectors of other nodes. A row without any gets zeros.

        Each node vector is projected once and then gathered for every row that attends to it. Because the projection is linear,
        pair vectors are projected separately and added."""
        vectors = context.vectors if context.node_positions is None else context.vectors + context.node_positions
        kv = context.by_key(self.key_value(vectors))
        if context.pair_vectors is not None and context.pair_index is not None:
            kv = kv + linear(context.pair_vectors, self.key_value.weight).index_select(0, context.pair_index)
        mixed = self._attend(x, kv, q_rows, context.k_rows, record=record)
        if context.k_rows.host_lengths.min(initial=1) > 0:
            return mixed
        # Rows without context must not get the bias of the output projection.
        has_context = torch.repeat_interleave(context.k_rows.lengths > 0, q_rows.lengths, output_size=q_rows.total)
        return mixed.masked_fill(~has_context[:, None], 0.0)

    def _attend(
        self,
        x: Tensor,
        kv: Tensor,
        q_rows: Rows,
        k_rows: Rows,
        allowed: Allowed | None = None,
        record: Weights | None = None,
        bias: Bias | None = None,
    ) -> Tensor:
        q = self.query(x).unflatten(-1, (self.num_heads, -1))
        kv = kv.unflatten(-1, (2, self.num_heads, -1))
        mixed = attend(q, kv, q_rows, k_rows, dropout=self._rate, allowed=allowed, bias=bias, scale=self.scale, record=record)
        return self.out(mixed.flatten(-2))

    @property
    def _rate(self) -> float:
        return self.dropout if self.training else 0.0

    # --- token by token: every sequence has equally many new tokens, which lie row after row on the flat axis ----------

    def projected(self, keys: Float[Tensor, "key dim"]) -> Float[Tensor, "key 2 head size"]:
        """Keys and values, which a cache keeps."""
        return self.key_value(keys).unflatten(-1, (2, self.num_heads, -1))

    def read_next(
        self,
        x: Float[Tensor, "query dim"],
        cache: KeyValueCache,
        layer: int,
        mask: Bool[Tensor, "sequence 1 token column"] | None,
        bias: Float[Tensor, "1 head token column"] | None = None,
    ) -> Float[Tensor, "query dim"]:
        """Attend from the next tokens of each sequence to those in a layer of the cache, to which they are added."""
        query = self._by_sequence(self.query(x), len(cache))
        new = self._by_sequence(self.key_value(x), len(cache)).unflatten(2, (2, self.num_heads))
        key, value = cache.append(layer, new.permute(2, 0, 3, 1, 4))
        block = Block(query.transpose(1, 2), key, value, mask, may_be_blind=mask is not None)
        return self.out(mix(block, bias, self.scale, self._rate).transpose(1, 2).flatten(2).flatten(0, 1))

    def read_sources(self, x: Float[Tensor, "query dim"], sources: SourceKeys, layer: int) -> Float[Tensor, "query dim"]:
        """Attend from the next tokens of each sequence to the source that it reads."""
        queries = sources.queries(self._by_sequence(self.query(x), len(sources.readers)))
        key, value = sources.layers[layer]
        block = Block(queries, key, value, sources.visible, may_be_blind=False)
        return self.out(sources.results(mix(block, None, self.scale, self._rate)).flatten(2).flatten(0, 1))

    def _by_sequence(self, x: Float[Tensor, "query dims"], sequences: int) -> Float[Tensor, "{sequences} token heads size"]:
        size = self.query.weight.shape[0] // self.num_heads
        return x.view(sequences, len(x) // max(1, sequences), x.shape[1] // size, size)


class Layer(nn.Module):
    """Self-attention, cross-attention to node vectors if `cross`, and feed-forward, each with a residual and LayerNorm."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        ffn_dim: int,
        *,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        activation: Activation = "gelu",
        norm: Norm = "post",
        eps: float = 1e-12,
        cross: bool = False,
        relative: bool = False,
        scale: float | None = None,
        norm_kind: NormKind = "layer",
        bias: bool = True,
        gated: bool = False,
        head_dim: int | None = None,
    ) -> None:
        """`relative`: self-attention reads the distances of tokens (Dai et al. 2019, section 3.3). It is scaled by the root,
        whatever the `scale` of other attention. `gated`: another linear map of the input is multiplied by the activation
        (Shazeer 2020)."""
        super().__init__()
        self.norm = norm
        self.dropout = dropout
        self.activation = ACTIVATIONS[activation]
        attention: dict[str, Any] = {"bias": bias, "scale": scale, "head_dim": head_dim}
        self.attention = (
            RelativeAttention(dim, num_heads, attention_dropout, segmented=False)
            if relative
            else Attention(dim, num_heads, attention_dropout, **attention)
        )
        self.attention_norm = NORMS[norm_kind](dim, eps)
        self.cross = Attention(dim, num_heads, attention_dropout, **attention) if cross else None
        self.cross_norm = NORMS[norm_kind](dim, eps) if cross else None
        self.ffn_in = Linear(dim, ffn_dim, bias=bias)
        self.ffn_out = Linear(ffn_dim, dim, bias=bias)
        self.ffn_norm = NORMS[norm_kind](dim, eps)
        self.ffn_gate = Linear(dim, ffn_dim, bias=bias) if gated else None

    def forward(
        self,
        x: Float[Tensor, "total dim"],
        rows: Rows,
        context: ContextVectors | None = None,
        output_positions: OutputPositions | None = None,
        allowed: Allowed | None = None,
        record: LayerWeights | None = None,
        codes: Float[Tensor, "distance dim"] | None = None,
        bias: Bias | None = None,
    ) -> Float[Tensor, "position dim"]:
        """`record` receives the weights of self-attention (`self`), and of cross-attention if there is a context (`cross`).
        `codes` are those of the distances, if self-attention reads them. `bias` is added to the scores of self-attention."""
        keys = self.attention_norm(x) if self.norm == "pre" else x
        queries, q_rows = keys, rows
        if output_positions is not None:
            x, queries = x.index_select(0, output_positions.index), keys.index_select(0, output_positions.index)
            q_rows = output_positions.rows
        weights = None if record is None else record.setdefault("self", [])
        if isinstance(self.attention, Attention):
            mixed = self.attention(queries, keys, q_rows, rows, allowed, weights, bias)
        else:
            assert codes is not None, "relative attention needs the codes of distances"
            positions = rows.positions
            if output_positions is not None:
                positions = positions.index_select(0, output_positions.index)
            mixed = self.attention.among(queries, keys, q_rows, rows, codes, positions, allowed, weights)
        x = self._join(x, mixed, self.attention_norm)
        if self.cross is not None and self.cross_norm is not None and context is not None:
            cross_rows = context.q_rows if output_positions is None else output_positions.cross_rows
            queries = self.cross_norm(x) if self.norm == "pre" else x
            weights = None if record is None else record.setdefault("cross", [])
            x = self._join(x, self.cross.read(queries, context, cross_rows, weights), self.cross_norm)
        return self._feed_forward(x)

    def read_next(
        self,
        x: Float[Tensor, "token dim"],
        cache: KeyValueCache,
        layer: int,
        mask: Bool[Tensor, "sequence 1 _token column"] | None,
        bias: Float[Tensor, "1 head _token column"] | None,
    ) -> Float[Tensor, "token dim"]:
        """The states of the next tokens of each sequence of a cache, row after row."""
        assert isinstance(self.attention, Attention), "relative attention has caches of its own"
        queries = self.attention_norm(x) if self.norm == "pre" else x
        x = self._join(x, self.attention.read_next(queries, cache, layer, mask, bias), self.attention_norm)
        if self.cross is not None and self.cross_norm is not None and cache.sources is not None:
            queries = self.cross_norm(x) if self.norm == "pre" else x
            x = self._join(x, self.cross.read_sources(queries, cache.sources, layer), self.cross_norm)
        return self._feed_forward(x)

    def _feed_forward(self, x: Float[Tensor, "token dim"]) -> Float[Tensor, "token dim"]:
        read = self.ffn_norm(x) if self.norm == "pre" else x
        hidden = self.activation(self.ffn_in(read))
        if self.ffn_gate is not None:
            hidden = hidden * self.ffn_gate(read)
        return self._join(x, self.ffn_out(hidden), self.ffn_norm)

    def _join(self, residual: Tensor, x: Tensor, norm: nn.Module) -> Tensor:
        joined = add_dropout(residual, x, self.dropout, self.training)
        return norm(joined) if self.norm == "post" else joined


class Stack(nn.Module):
    """A sequence of layers, or one layer applied `num_layers` times if `shared` (Lan et al. 2020). A pre-norm stack ends with a
    LayerNorm, and another one if `final_norm`. `distances` adds the scores of distances to those of self-attention."""

    def __init__(
        self,
        num_layers: int,
        dim: int,
        num_heads: int,
        ffn_dim: int,
        *,
        norm: Norm = "post",
        eps: float = 1e-12,
        dropout: float = 0.1,
        shared: bool = False,
        relative: bool = False,
        final_norm: bool = False,
        norm_kind: NormKind = "layer",
        distances: DistanceScores | None = None,
        **layer,
    ) -> None:
        super().__init__()
        self.relative = relative
        self.dropout = dropout
        self.repeats = num_layers if shared else 1
        self.layers = nn.ModuleList(
            Layer(dim, num_heads, ffn_dim, norm=norm, eps=eps, dropout=dropout, relative=relative, norm_kind=norm_kind, **layer)
            for _ in range(num_layers // self.repeats)
        )
        self.final_norm = NORMS[norm_kind](dim, eps) if norm == "pre" or final_norm else None
        self.distances = distances

    def forward(
        self,
        x: Float[Tensor, "total dim"],
        rows: Rows,
        context: ContextVectors | None = None,
        output_positions: OutputPositions | None = None,
        allowed: Allowed | None = None,
        record: list[LayerWeights] | None = None,
        states: States | None = None,
    ) -> Float[Tensor, "position dim"]:
        """`allowed` limits which tokens of a row attend to which. It cannot be combined with `output_positions`. The weights of
        every layer are appended to `record`, and the input of every layer to `states`. Neither changes the result."""
        layers = self._applied
        codes = self._codes(rows, x) if self.relative else None
        bias = None if self.distances is None else self.distances.of_rows(rows, rows, rows.positions)
        last = len(layers) - 1
        for number, layer in enumerate(layers):
            if states is not None:
                states.append(x)
            recorded: LayerWeights | None = None if record is None else {}
            kept = output_positions if number == last else None
            if kept is not None and self.distances is not None:
                bias = self.distances.of_rows(kept.rows, rows, rows.positions.index_select(0, kept.index))
            x = layer(x, rows, context, kept, allowed, recorded, codes, bias)
            if record is not None and recorded is not None:
                record.append(recorded)
        return x if self.final_norm is None else self.final_norm(x)

    @property
    def _applied(self) -> list[Any]:
        """The layers in the order of their places."""
        return [layer for layer in self.layers for _ in range(self.repeats)]

    def source_keys(self, vectors: Float[Tensor, "key dim"], rows: Rows) -> SourceKeys:
        """The keys and values of rows for the cross-attention of every layer. Sequence i of a cache reads row i."""
        return SourceKeys.of_rows([layer.cross.projected(vectors) for layer in self._applied], rows)

    def read_next(self, x: Float[Tensor, "token dim"], cache: KeyValueCache) -> Float[Tensor, "token dim"]:
        """The states of the next tokens of each sequence of a cache, row after row. They are added to the cache."""
        count = len(x) // max(1, len(cache))
        columns = torch.arange(cache.columns + count, device=x.device)
        mask = cache.visible(count, len(columns))
        bias = None if self.distances is None else self.distances(columns - columns[cache.columns :, None])[None]
        for number, layer in enumerate(self._applied):
            x = layer.read_next(x, cache, number, mask, bias)
        return x if self.final_norm is None else self.final_norm(x)

    def _codes(self, rows: Rows, like: Float[Tensor, "total dim"]) -> Float[Tensor, "distance dim"]:
        """The codes of all distances in the longest row, downwards, with the dropout of the layers."""
        farthest = max(rows.max_length, 1) - 1
        (codes,) = distance_codes(farthest, -farthest, like.shape[1], like)
        return dropout(codes, self.dropout, self.training)

    def layer_prefixes(self) -> LayerPrefixes:
        """The beginnings of the names of each layer's parameters. A shared layer belongs to the first of its places."""
        places = [(number, place) for number in range(len(self.layers)) for place in range(self.repeats)]
        layers: list[tuple[str, ...]] = [() if place else (f"layers.{number}.",) for number, place in places]
        if self.distances is not None:
            layers[0] = (*layers[0], "distances.")
        return (*layers[:-1], layers[-1] if self.final_norm is None else (*layers[-1], "final_norm."))


LAYERS_PER_CELL = 2
"""One cell of the Evolved Transformer counts as two Transformer layers (So et al. 2019, section 4)."""

EPS = 1e-6
"""The constant of the LayerNorms of row encoders and decoders, as in the Evolved Transformer's code."""


class RowEncoder(nn.Module, ABC):
    """Contextual states of the tokens of every row."""

    @abstractmethod
    def forward(
        self,
        x: Float[Tensor, "total dim"],
        rows: Rows,
        record: list[LayerWeights] | None = None,
        states: States | None = None,
    ) -> Float[Tensor, "total dim"]:
        """The weights of every layer are appended to `record`, and the input of every layer to `states`. Neither changes the
        result."""

    @abstractmethod
    def layer_prefixes(self) -> LayerPrefixes:
        """The beginnings of the names of each layer's parameters."""


class RowDecoder(nn.Module, ABC):
    """Contextual states of the tokens of every row, which also attend to an encoder's output. Row i attends to row i of it."""

    @abstractmethod
    def forward(
        self,
        x: Float[Tensor, "total dim"],
        rows: Rows,
        encoder_output: Float[Tensor, "key dim"],
        encoder_rows: Rows,
        record: list[LayerWeights] | None = None,
    ) -> Float[Tensor, "total dim"]:
        """The weights of every layer are appended to `record`, which does not change the result."""


def under(name: str, prefixes: LayerPrefixes) -> LayerPrefixes:
    """The prefixes of a part of a module, as names of the module's own parameters."""
    return tuple(tuple(name + prefix for prefix in layer) for layer in prefixes)


def causal_mask(rows: Rows) -> list[Bool[Tensor, "_row _query _key"]]:
    """Every token sees itself and those before it in its row."""
    return Order(rows.positions, rows.positions).allowed(rows, rows)


class TransformerEncoder(RowEncoder):
    """A pre-norm Transformer with two layers per cell."""

    def __init__(
        self, dim: int, num_heads: int, num_cells: int, *, dropout: float = 0.1, attention_dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.stack = _pre_norm(dim, num_heads, num_cells, dropout, attention_dropout, cross=False)

    def forward(
        self,
        x: Float[Tensor, "total dim"],
        rows: Rows,
        record: list[LayerWeights] | None = None,
        states: States | None = None,
    ) -> Float[Tensor, "total dim"]:
        return self.stack(x, rows, record=record, states=states)

    def layer_prefixes(self) -> LayerPrefixes:
        return under("stack.", self.stack.layer_prefixes())


class TransformerDecoder(RowDecoder):
    """A pre-norm Transformer with two layers per cell. If it is `causal`, a token does not see those after it."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        num_cells: int,
        *,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        causal: bool,
    ) -> None:
        super().__init__()
        self.causal = causal
        self.stack = _pre_norm(dim, num_heads, num_cells, dropout, attention_dropout, cross=True)

    def forward(
        self,
        x: Float[Tensor, "total dim"],
        rows: Rows,
        encoder_output: Float[Tensor, "key dim"],
        encoder_rows: Rows,
        record: list[LayerWeights] | None = None,
    ) -> Float[Tensor, "total dim"]:
        context = ContextVectors.of_rows(encoder_output, encoder_rows, rows)
        return self.stack(x, rows, context, allowed=causal_mask(rows) if self.causal else None, record=record)


def _pre_norm(dim: int, num_heads: int, num_cells: int, dropout: float, attention_dropout: float, *, cross: bool) -> Stack:
    check_heads(dim, num_heads)
    return Stack(
        LAYERS_PER_CELL * num_cells,
        dim,
        num_heads,
        4 * dim,
        norm="pre",
        eps=EPS,
        dropout=dropout,
        attention_dropout=attention_dropout,
        activation="relu",
        cross=cross,
    )


def check_heads(dim: int, num_heads: int) -> None:
    if dim % num_heads:
        raise RamifyError(f"dim={dim} must be a multiple of num_heads={num_heads}, because each head takes an equal part.")
