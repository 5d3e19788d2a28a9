"""AGENT (Rozental et al. 2019): a vector for every sentence, paragraph, chapter and document, and its children back from it.

Level 0 holds tokens, level 1 sentences, and so on. `LevelEncoder` l turns rows of level l into vectors of level l + 1;
`LevelDecoder` l turns such a vector back into a row. The encoder alone is the backbone; decoder, heads and checkers belong to
the objective.
"""

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.batching.document_batch import NUM_MARKS, PAD, DocumentBatch, LevelBatch
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.levels import USUAL
from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.models.base import (
    RATES,
    AnyBackbone,
    Checkpoint,
    Encoded,
    Encodes,
    ModelConfig,
    PublishedForm,
    Read,
    kept_positions,
)
from ramify.models.name_memory import NameMemoryConfig
from ramify.nn.attention import AttentionRecord, LayerWeights
from ramify.nn.blocks import (
    LayerPrefixes,
    RowDecoder,
    RowEncoder,
    States,
    TransformerDecoder,
    TransformerEncoder,
    under,
)
from ramify.nn.dropout import dropout
from ramify.nn.embeddings import Position, PositionTable
from ramify.nn.evolved import EvolvedDecoder, EvolvedEncoder, first_heads
from ramify.nn.linear import Linear
from ramify.nn.pooling import on_tokens, row_means, row_sums
from ramify.nn.ragged import Rows
from ramify.nn.recurrent import BiLSTM, final_states

Cells = Literal["evolved", "transformer"]
Skip = Literal["none", "linear", "gelu"]

PER_LEVEL = ("dims", "max_children", "encoder_cells", "decoder_cells")
"""Settings with a size for each level."""

OPTIONS = (
    "token_skip",
    "compressor_skip",
    "decompressor_skip",
    "children_norm",
    "mark_scale",
    "position_scale",
    "decoder_position_scale",
    "sibling_product",
)
"""Settings of additions to the paper, which their defaults leave out."""

BESIDE = ("names",)
"""Settings of parts without an effect on the vectors, which their defaults leave out."""


@dataclass(frozen=True)
class AgentConfig(ModelConfig):
    """Sizes per level, from the lowest. Defaults are a small model; the paper gives no sizes."""

    published: ClassVar[PublishedForm] = PublishedForm(frozen_head="vector")
    vocab_size: int = 0
    levels: tuple[str, ...] = USUAL
    """The names of the levels above the tokens."""
    dims: tuple[int, ...] = (128, 256, 384, 512, 512)
    """The length of the vectors of tokens and of each level. They grow with the level in the paper."""
    max_children: tuple[int, ...] = (64, 16, 128, 64)
    """The places of a row of each level, one of which is the end mark."""
    encoder_cells: tuple[int, ...] = (2, 1, 1, 1)
    decoder_cells: tuple[int, ...] = (1, 1, 1, 1)
    num_heads: int = 4
    cells: Cells = "evolved"
    """evolved: those of So et al. 2019, as in the paper. transformer: two pre-norm Transformer layers per cell."""
    positions: Position = "sinusoidal"
    padding: Literal["packed", "full"] = "packed"
    """packed: rows end with their end mark. full: learned padding fills them up to `max_children`, and all layers read it."""
    decoder: Literal["parallel", "autoregressive"] = "parallel"
    """parallel: the decompressed rows are the decoder's input, and all children are written at once. autoregressive: the input
    of a place is the child before it."""
    causal_cells: bool = False
    """Whether a place of a parallel decoder reads only those before it."""
    decoder_length: Literal["full", "predicted"] = "full"
    """full: every row is decoded at `max_children` places, and its first end mark ends it. predicted: a head predicts the
    number of places; training uses the true one."""
    decompressor: Literal["projected", "literal"] = "projected"
    """projected: an LSTM as wide as the vector, and a linear map. literal: an LSTM as wide as a child, without a map."""
    token_skip: bool = False
    """Whether the vector of a row of tokens is standardized, and vectors of its tokens from a table of their own are added."""
    compressor_skip: Skip = "none"
    """An addition to the Compressor's final states, from the mean over a row's children. linear: a map of the mean of their
    states. gelu: a map of the mean of hidden units."""
    decompressor_skip: bool = False
    """Whether a linear map of the vector is added to the Decompressor's output at every place."""
    children_norm: bool = False
    """Whether the vectors of children above the tokens pass a LayerNorm before the Encoder reads them."""
    mark_scale: Literal["unit", "root_dim"] = "unit"
    """Length of fresh mark and segment vectors above the tokens, as the Encoder reads them: about 1, or the square root of
    their dimension, which is the length of normalized children."""
    position_scale: float = 1.0
    """Factor of the Encoder's position vectors above the tokens. Sinusoidal ones have the length sqrt(dim / 2)."""
    decoder_position_scale: float = 1.0
    """Factor of the Decoder's position vectors above the tokens."""
    sibling_product: bool = False
    """Whether a child with the second segment vector is read together with its product with the mean of its siblings."""
    names: NameMemoryConfig | None = None
    """A memory of the names of a document, which reconstruction and masked tokens read (null: none)."""
    dropout: float = 0.1
    attention_dropout: float = 0.1

    def __post_init__(self) -> None:
        check_fields(self, "model.")
        depth = len(self.levels)
        if depth < 1 or len(set(self.levels)) < depth:
            raise RamifyError(f"model.levels={self.levels} must name at least one level, and none twice.")
        for name, number in (("dims", depth + 1), ("max_children", depth), ("encoder_cells", depth), ("decoder_cells", depth)):
            values = getattr(self, name)
            if len(values) != number:
                raise RamifyError(
                    f"model.{name}={list(values)} must hold {number} numbers, because model.levels has {depth} names. "
                    "Set the sizes of all levels with their names."
                )
        least = {"dims": 2, "max_children": 2, "encoder_cells": 1, "decoder_cells": 1}
        for name, smallest in least.items():
            if min(getattr(self, name)) < smallest:
                raise RamifyError(f"model.{name}={list(getattr(self, name))} must hold numbers of at least {smallest}.")
        for name, smallest in (("num_heads", 1), ("vocab_size", 0)):
            if getattr(self, name) < smallest:
                raise RamifyError(f"model.{name} must be at least {smallest}, but is {getattr(self, name)}.")
        self._check_heads()
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise RamifyError(f"model.{name} must be at least 0 and below 1, but is {getattr(self, name)}.")
        for name in ("position_scale", "decoder_position_scale"):
            if getattr(self, name) < 0:
                raise RamifyError(f"model.{name} must not be negative, but is {getattr(self, name)}.")
        if self.causal_cells and self.decoder == "autoregressive":
            raise RamifyError(
                "model.causal_cells=true is for model.decoder=parallel. Leave it out: autoregressive cells are causal."
            )

    def _check_heads(self) -> None:
        """Raise `RamifyError` for vectors that cannot be divided among heads. Those of the highest level are never children."""
        heads, why = self.num_heads, f"because model.num_heads={self.num_heads}"
        if self.cells == "evolved":
            heads = math.lcm(first_heads(self.num_heads), 2)
            why += " and the first attention of an evolved decoder cell has twice as many heads (up to 16)"
        if any(dim % heads for dim in self.dims[:-1]):
            raise RamifyError(f"model.dims={list(self.dims)} must hold multiples of {heads}, but for the last, {why}.")

    def build(self) -> "Agent":
        return Agent(self)

    def with_levels(self, levels: Sequence[str]) -> Self:
        """Return these settings with other levels, and the sizes of as many levels from the lowest. Further levels have the
        sizes of the highest."""
        depth = len(levels)

        def sizes(name: str, number: int) -> tuple[int, ...]:
            known = getattr(self, name)
            return (*known, *known[-1:] * number)[:number]

        return replace(
            self,
            levels=tuple(levels),
            dims=sizes("dims", depth + 1),
            max_children=sizes("max_children", depth),
            encoder_cells=sizes("encoder_cells", depth),
            decoder_cells=sizes("decoder_cells", depth),
        )

    def adapted_to(self, checkpoint: Checkpoint) -> Self:
        """These settings with those of a checkpoint. An option that the checkpoint leaves out may be on here, and levels above
        its own are fresh."""
        saved = checkpoint.saved_as(self)
        defaults = {field.name: field.default for field in fields(self)}
        left_out = [name for name in (*OPTIONS, *BESIDE) if getattr(saved, name) == defaults[name]]
        known, number = saved.levels, len(saved.levels)
        if len(self.levels) > number and self.levels[:number] == known:
            sizes = {name: (*getattr(saved, name), *getattr(self, name)[len(getattr(saved, name)) :]) for name in PER_LEVEL}
            saved = replace(saved, levels=self.levels, decoder_length=self.decoder_length, **sizes)
        elif known[: len(self.levels)] != self.levels and not set(known) <= set(self.levels):
            raise RamifyError(
                f"init={checkpoint.source} has the levels {', '.join(known)}, but the model has {', '.join(self.levels)}. "
                "Start from a model whose levels are the lowest of these."
            )
        return replace(saved, **{name: getattr(self, name) for name in (*RATES, *left_out)})

    def check_options(self, checkpoint: Checkpoint) -> None:
        """Raise `RamifyError` if an option differs from the checkpoint's, and so changes levels that were trained. An option
        that the checkpoint leaves out has no effect on the vectors of its lowest level."""
        saved = checkpoint.saved_as(self)
        for name in OPTIONS:
            value, trained = getattr(self, name), getattr(saved, name)
            if value != trained and (len(saved.levels) > 1 or trained != getattr(type(self), name)):
                needed = f"model.{name}={str(trained).lower()}"
                raise RamifyError(
                    f"model.{name}={str(value).lower()} changes the levels {', '.join(saved.levels)}, which --init "
                    f"{checkpoint.source} has trained with {needed}. Set {needed}, or start from a model of the lowest level "
                    "alone that leaves the option out."
                )
        if saved.names is not None and self.names != saved.names:
            raise RamifyError(
                f"model.names={as_json(self.names)} is another memory of names than that of --init {checkpoint.source}, whose "
                f"losses have learned to read it. Set model.names={as_json(saved.names)}, or start from a model without one."
            )

    def for_vocabulary(self, size: int) -> Self:
        return replace(self, vocab_size=size)

    def initialize(self, backbone: Any, checkpoint: Checkpoint) -> None:
        checkpoint.fill(backbone, self)


@dataclass(frozen=True)
class DocumentHidden:
    """The vectors of all rows of a batch."""

    nodes: tuple[Float[Tensor, "_row _dim"], ...]
    """One tensor per level of the batch."""


class RowStates(nn.Module):
    """The input vectors and the Encoder of the rows of one level (section 2)."""

    def __init__(self, config: AgentConfig, dim: int, num_cells: int, places: int, num_tokens: int) -> None:
        super().__init__()
        self.dropout = config.dropout
        # Tokens have unit variance, as in Vaswani et al. 2017. Vectors are LSTM states, and already have a scale.
        self.scale = math.sqrt(dim) if num_tokens else 1.0
        above = num_tokens == 0
        self.mark_scale = math.sqrt(dim) if above and config.mark_scale == "root_dim" else 1.0
        self.position_scale = config.position_scale if above else 1.0
        self.sibling_product = config.sibling_product
        self.table = nn.Embedding(NUM_MARKS + num_tokens, dim)
        """The marks and, on level 0, the tokens."""
        self.segments = nn.Parameter(torch.empty(2, dim))
        self.positions = _positions(config, places, dim)
        self.encoder = _encoder(config, dim, num_cells)
        nn.init.normal_(self.table.weight, std=dim**-0.5)
        nn.init.normal_(self.segments, std=dim**-0.5)
        self.norm = nn.LayerNorm(dim) if above and config.children_norm else None

    def items(self, vectors: Float[Tensor, "child dim"] | None) -> Float[Tensor, "item dim"]:
        """All that a slot of a row can hold: the marks, and the tokens or the vectors of the level's nodes."""
        return self.table.weight if vectors is None else torch.cat([self.table.weight, vectors])

    def forward(
        self,
        items: Float[Tensor, "item dim"],
        slots: Int[Tensor, " slot"],
        rows: Rows,
        segments: Int[Tensor, " slot"] | None = None,
        record: list[LayerWeights] | None = None,
        states: States | None = None,
    ) -> Float[Tensor, "slot dim"]:
        """The contextual states of the slots. `segments`: 1 for a child with the second segment vector; None: none has it. See
        `RowEncoder` for `record` and `states`."""
        x = F.embedding(slots, items) * self.scale
        is_child = holds_child(slots)
        if self.norm is not None or self.mark_scale != 1.0:
            x = torch.where(is_child[:, None], x if self.norm is None else self.norm(x), x * self.mark_scale)
        if self.sibling_product and segments is not None:
            product = x * siblings_mean(x, is_child, rows)
            x = torch.where(segments[:, None] == 1, x + product, x)
        x = x + self.positions(rows.positions) * self.position_scale
        table = self.segments * self.mark_scale
        x = x + (table[0] if segments is None else F.embedding(segments, table))
        return self.encoder(dropout(x, self.dropout, self.training), rows, record, states)


class CompressorSkip(nn.Module):
    """An addition to the Compressor's vector, from the mean over the children of a row: a way around the LSTM. A row without
    children has the zero vector."""

    def __init__(self, kind: Skip, dim: int, out: int) -> None:
        super().__init__()
        self.hidden = Linear(dim, out) if kind == "gelu" else None
        self.out = Linear(out if kind == "gelu" else dim, out, bias=False)

    def forward(
        self, states: Float[Tensor, "slot dim"], is_child: Bool[Tensor, " slot"], rows: Rows
    ) -> Float[Tensor, "row out"]:
        units = states if self.hidden is None else F.gelu(self.hidden(states))
        return self.out(row_means(units, is_child, rows))


class TokenSkip(nn.Module):
    """The words of a sentence beside its vector, which says little about its topic: the vector is standardized, and the sum of
    the tokens' vectors, divided by the root of their number, is added."""

    mean: Tensor
    std: Tensor

    def __init__(self, vocab_size: int, dim: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, dim)
        """Vectors of unit variance. Weight decay would shrink those of rare tokens (`TrainConfig.undecayed`)."""
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("std", torch.ones(dim))

    @torch.no_grad()
    def fit(self, vectors: Float[Tensor, "row dim"]) -> None:
        """Standardize vectors from now on by the means and standard deviations of these, which the Compressor made. A constant
        dimension keeps its scale."""
        parts = vectors.split(1 << 14)
        mean = torch.stack([part.double().sum(0) for part in parts]).sum(0) / len(vectors)
        squares = torch.stack([(part.double() - mean).square().sum(0) for part in parts])
        std = (squares.sum(0) / len(vectors)).sqrt()
        self.mean.copy_(mean)
        # The spread of a constant is a rounding error.
        self.std.copy_(torch.where(std > mean.abs() * 1e-6, std, 1.0))

    @property
    def is_fitted(self) -> bool:
        """Whether vectors are standardized."""
        return bool(self.mean.any()) or bool((self.std != 1).any())

    def forward(self, vectors: Float[Tensor, "row dim"], slots: Int[Tensor, " slot"], rows: Rows) -> Float[Tensor, "row dim"]:
        is_token = holds_child(slots)
        tokens = F.embedding((slots - NUM_MARKS).clamp(min=0), self.table.weight) * is_token[:, None]
        number = row_sums(is_token[:, None].to(tokens.dtype), rows)
        return (vectors - self.mean) / self.std + row_sums(tokens, rows) / number.clamp(min=1).sqrt()


class LevelEncoder(nn.Module):
    """The Encoder and the Compressor of one level: a row of children becomes one vector (section 2)."""

    def __init__(self, config: AgentConfig, level: int) -> None:
        super().__init__()
        dim, out = config.dims[level : level + 2]
        tokens = config.vocab_size if level == 0 else 0
        self.states = RowStates(config, dim, config.encoder_cells[level], config.max_children[level], tokens)
        self.compressor = BiLSTM(dim, max(1, out // 2))
        self.out = None if out % 2 == 0 else Linear(self.compressor.out_dim, out)
        skip = config.compressor_skip
        self.compressor_skip = None if skip == "none" else CompressorSkip(skip, dim, out)
        if level == 0 and self.compressor_skip is not None:
            # Sentences that were learned without it keep their vectors.
            nn.init.zeros_(self.compressor_skip.out.weight)
        self.token_skip = TokenSkip(tokens, out) if level == 0 and config.token_skip else None

    @property
    def table(self) -> nn.Embedding:
        return self.states.table

    @property
    def scale(self) -> float:
        """The factor of an item's vector in a slot."""
        return self.states.scale

    def items(self, vectors: Float[Tensor, "child dim"] | None) -> Float[Tensor, "item dim"]:
        """All that a slot of a row can hold: the marks, and the tokens or the vectors of the level's nodes."""
        return self.states.items(vectors)

    def row_vectors(
        self, states: Float[Tensor, "slot dim"], slots: Int[Tensor, " slot"], rows: Rows
    ) -> Float[Tensor, "row out"]:
        """The vectors of rows, as children of the level above, from the states of their slots."""
        return self.with_tokens(self.compress(states, slots, rows), slots, rows)

    def compress(self, states: Float[Tensor, "slot dim"], slots: Int[Tensor, " slot"], rows: Rows) -> Float[Tensor, "row out"]:
        """The Compressor's vectors of rows: the final states of both directions. A cache of a frozen level holds these."""
        final = final_states(self.compressor(states, rows), rows)
        vectors = final if self.out is None else self.out(final)
        return vectors if self.compressor_skip is None else vectors + self.compressor_skip(states, holds_child(slots), rows)

    def with_tokens(
        self, vectors: Float[Tensor, "row out"], slots: Int[Tensor, " slot"], rows: Rows
    ) -> Float[Tensor, "row out"]:
        """The vectors of rows, as children of the level above, from those of the Compressor."""
        return vectors if self.token_skip is None else self.token_skip(vectors, slots, rows)


class LevelDecoder(nn.Module):
    """The Decompressor and the Decoder of one level: a vector becomes the row of its children (section 3.1)."""

    def __init__(self, config: AgentConfig, level: int) -> None:
        super().__init__()
        dim, vector = config.dims[level : level + 2]
        self.places = config.max_children[level]
        self.autoregressive = config.decoder == "autoregressive"
        self.dropout = config.dropout
        projected = config.decompressor == "projected"
        hidden = max(1, (vector if projected else dim) // 2)
        self.decompressor = BiLSTM(vector, hidden)
        self.out = Linear(self.decompressor.out_dim, dim) if projected or self.decompressor.out_dim != dim else None
        self.positions = _positions(config, self.places, dim)
        self.position_scale = config.decoder_position_scale if level else 1.0
        causal = self.autoregressive or config.causal_cells
        self.decoder = _decoder(config, dim, config.decoder_cells[level], causal=causal)
        self.length = Linear(vector, self.places) if config.decoder_length == "predicted" else None
        """Scores of 1 to `places` places."""
        self.skip = Linear(vector, dim, bias=False) if config.decompressor_skip else None
        if level == 0 and self.skip is not None:
            # A decoder of sentences that was learned without it goes on as it is.
            nn.init.zeros_(self.skip.weight)

    def decompress(self, vectors: Float[Tensor, "row vector"], rows: Rows) -> Float[Tensor, "slot dim"]:
        """The Decompressor reads a row's vector at every place, and nothing else."""
        number = torch.arange(len(rows), device=vectors.device)
        repeated = torch.repeat_interleave(number, rows.lengths, output_size=rows.total)
        x = self.decompressor(F.embedding(repeated, vectors), rows)
        x = x if self.out is None else self.out(x)
        return x if self.skip is None else x + F.embedding(repeated, self.skip(vectors))

    def all_places(self, count: int, device: torch.device) -> Rows:
        """Rows of every place that a node can have."""
        return Rows.build([self.places] * count).to(device)

    def parallel(self, decompressed: Float[Tensor, "slot dim"], rows: Rows) -> Float[Tensor, "slot dim"]:
        """Write all children at once. The decompressed rows are the decoder's input, and stand for an encoder's output."""
        x = decompressed + self.positions(rows.positions) * self.position_scale
        return self.decoder(dropout(x, self.dropout, self.training), rows, decompressed, rows)

    def after(
        self,
        previous: Float[Tensor, "slot dim"],
        rows: Rows,
        decompressed: Float[Tensor, "key dim"],
        decompressed_rows: Rows,
    ) -> Float[Tensor, "slot dim"]:
        """Write each child after the one before it, `previous`. The decompressed rows stand for an encoder's output."""
        x = previous + self.positions(rows.positions) * self.position_scale
        return self.decoder(dropout(x, self.dropout, self.training), rows, decompressed, decompressed_rows)


class CollectionEncoder(nn.Module):
    """The Encoder of the highest level, whose rows are collections of documents. It has no Compressor."""

    def __init__(self, config: AgentConfig) -> None:
        super().__init__()
        self.states = RowStates(config, config.dims[-1], config.encoder_cells[-1], config.max_children[-1], 0)


EXPECTED_SHARE = 1 / 8
"""The expected share of replaced children (section 3.3): a random share of up to 1/2 is marked, and half of it replaced."""


class CoherenceChecker(nn.Module):
    """The share of a node's children that were replaced, from its vector: dense tanh layers and a sigmoid (section 3.3)."""

    def __init__(self, dim: int, num_layers: int, width: int) -> None:
        super().__init__()
        sizes = [dim, *[width] * num_layers]
        self.layers = nn.ModuleList(Linear(one, other) for one, other in pairwise(sizes))
        self.out = Linear(sizes[-1], 1)
        # A sigmoid that starts at 1/2 is pushed down so far by the first updates that its gradient vanishes.
        nn.init.constant_(self.out.bias, math.log(EXPECTED_SHARE / (1 - EXPECTED_SHARE)))

    def forward(self, vectors: Float[Tensor, "row dim"]) -> Float[Tensor, " row"]:
        return torch.sigmoid(self.log_odds(vectors))

    def log_odds(self, vectors: Float[Tensor, "row dim"]) -> Float[Tensor, " row"]:
        """The log-odds of the share."""
        for layer in self.layers:
            vectors = torch.tanh(layer(vectors))
        return self.out(vectors)[:, 0]


class Agent(AnyBackbone, Encodes):
    """The Hierarchical Encoder: one pass per level over all nodes of all documents.

    As an encoder of texts (`Encodes`), it is the lowest level alone: a text is one sentence. The marks of that level have the
    ids that follow the vocabulary, so that of the end is `vocab_size`.
    """

    config: AgentConfig

    def __init__(self, config: AgentConfig) -> None:
        super().__init__()
        self.config = config
        self.encoders = nn.ModuleList(LevelEncoder(config, level) for level in range(len(config.levels)))
        options = ("compressor_skip", "token_skip", "states.norm")
        self.optional = tuple(f"encoders.{level}.{name}" for level in range(self.depth) for name in options)

    @property
    def out_dim(self) -> int:
        """The length of a vector of the highest level. `config.dims` holds those of all levels."""
        return self.config.dims[-1]

    @property
    def depth(self) -> int:
        """The number of levels above the tokens."""
        return len(self.config.levels)

    def encoder(self, level: int) -> LevelEncoder:
        encoder = self.encoders[level]
        assert isinstance(encoder, LevelEncoder)
        return encoder

    @property
    def reads_context(self) -> bool:
        return False

    @property
    def max_tokens(self) -> int:
        return self.config.max_children[0]

    @property
    def vector_dim(self) -> int:
        return self.config.dims[1]

    @property
    def vector_read(self) -> Read:
        return "all"

    def layer_dims(self, *, context: bool = False) -> tuple[int, ...]:
        return (self.config.dims[0],) * len(self.layer_prefixes())

    def layer_prefixes(self, *, context: bool = False) -> LayerPrefixes:
        states = "encoders.0.states."
        layers = under(f"{states}encoder.", self.encoder(0).states.encoder.layer_prefixes())
        embedding = (f"{states}table.", f"{states}segments", f"{states}positions.")
        vector = [f"encoders.0.{name}." for name in ("compressor", "out", "compressor_skip", "token_skip")]
        return (embedding, *layers[:-1], (*layers[-1], *vector))

    def encode_rows(
        self, rows: EncoderInput, *, layers: bool = False, read: Read = "all", record: AttentionRecord | None = None
    ) -> Encoded:
        """With `model.padding=full`, rows are filled up to `max_tokens`, and their padding counts among their tokens."""
        encoder, ids, layout = self.encoder(0), rows.ids, rows.rows
        if self.config.padding == "full":
            ids, layout = self._filled(ids, layout)
        kept = kept_positions(layout, layout, layers=layers, read=read)
        weights = None if record is None else record.setdefault("encoder", [])
        states: States = []
        slots = self._slots(ids)
        x = encoder.states(encoder.items(None), slots, layout, record=weights, states=states if layers else None)
        if kept is None:
            return Encoded(layout, (*states, x), ids)
        return Encoded(kept.rows, (x.index_select(0, kept.index),), ids.index_select(0, kept.index))

    def vector(self, encoded: Encoded) -> Float[Tensor, "row vector_dim"]:
        assert encoded.ids is not None, "encode_rows keeps the ids"
        vectors = self.encoder(0).row_vectors(encoded.last, self._slots(encoded.ids), encoded.rows)
        if encoded.rows.host_lengths.min(initial=1) > 0:
            return vectors
        return vectors.masked_fill((encoded.rows.lengths == 0)[:, None], 0.0)

    def _slots(self, ids: Int[Tensor, " slot"]) -> Int[Tensor, " slot"]:
        """The slots of level 0 that hold these ids: marks come first there, and last among the ids."""
        vocab = self.config.vocab_size
        return torch.where(ids < vocab, ids + NUM_MARKS, ids - vocab)

    def _filled(self, ids: Int[Tensor, " slot"], rows: Rows) -> tuple[Int[Tensor, " place"], Rows]:
        """The ids of rows that padding fills up. A row without tokens stays empty."""
        lengths = np.where(rows.host_lengths > 0, np.maximum(rows.host_lengths, self.max_tokens), 0)
        if np.array_equal(lengths, rows.host_lengths):
            return ids, rows
        filled = Rows.build(lengths).to(ids.device)
        starts = torch.repeat_interleave(filled.offsets[:-1].long(), rows.lengths, output_size=rows.total)
        padding = ids.new_full((filled.total,), self.config.vocab_size + PAD)
        return padding.index_copy(0, starts + rows.positions, ids), filled

    def encode(self, level: int, vectors: Tensor | None, rows: LevelBatch) -> Float[Tensor, "row out"]:
        """The vectors of rows whose children are tokens, or have these vectors."""
        encoder = self.encoder(level)
        states = encoder.states(encoder.items(vectors), rows.slots, rows.rows)
        return encoder.row_vectors(states, rows.slots, rows.rows)

    @contextmanager
    def without_tokens(self) -> Iterator[None]:
        """Leave out the addition of tokens to the vectors of the lowest level inside this context."""
        encoder = self.encoder(0)
        skip, encoder.token_skip = encoder.token_skip, None
        try:
            yield
        finally:
            encoder.token_skip = skip

    def given(self, batch: DocumentBatch) -> Tensor | None:
        """The vectors of the highest rows that are not encoded, as children of the level above; None if all are encoded."""
        if batch.vectors is None:
            return None
        rows = batch.levels[batch.given - 1]
        return self.encoder(batch.lowest + batch.given - 1).with_tokens(batch.vectors, rows.slots, rows.rows)

    def forward(self, batch: DocumentBatch) -> DocumentHidden:
        """The vectors of all rows. A batch with parts has those of the parts' highest rows first, and a batch with given
        vectors those of the rows that are not encoded."""
        vectors = self.given(batch)
        nodes = [] if vectors is None else [vectors]
        if batch.parts:
            vectors = torch.cat([self(part).nodes[-1] for part in batch.parts])
            nodes.append(vectors)
        for level, rows in enumerate(batch.levels[batch.given :], batch.lowest + batch.given):
            vectors = self.encode(level, vectors, rows)
            nodes.append(vectors)
        return DocumentHidden(tuple(nodes))


class AgentDecoder(nn.Module):
    """The Hierarchical Decoder: a `LevelDecoder` per level."""

    def __init__(self, config: AgentConfig) -> None:
        super().__init__()
        self.decoders = nn.ModuleList(LevelDecoder(config, level) for level in range(len(config.levels)))

    def level(self, level: int) -> LevelDecoder:
        decoder = self.decoders[level]
        assert isinstance(decoder, LevelDecoder)
        return decoder


def as_json(names: NameMemoryConfig | None) -> str:
    """The settings of a memory of names as `--set` takes them."""
    return "null" if names is None else json.dumps(asdict(names), separators=(",", ":"))


def holds_child(slots: Int[Tensor, " slot"]) -> Bool[Tensor, " slot"]:
    """Whether a slot holds a child: marks come first among the items."""
    return slots >= NUM_MARKS


def siblings_mean(x: Float[Tensor, "slot dim"], is_child: Bool[Tensor, " slot"], rows: Rows) -> Float[Tensor, "slot dim"]:
    """The mean of the other children of a slot's row; zeros if there are none."""
    children = x * is_child[:, None]
    number = row_sums(is_child[:, None].to(x.dtype), rows)
    others = on_tokens(row_sums(children, rows), rows) - children
    return others / (on_tokens(number, rows) - 1).clamp(min=1)


def _positions(config: AgentConfig, places: int, dim: int) -> PositionTable:
    table = PositionTable(places, dim, config.positions)
    if config.positions == "learned":
        nn.init.normal_(table.weight, std=dim**-0.5)
    return table


def _encoder(config: AgentConfig, dim: int, num_cells: int) -> RowEncoder:
    kind = EvolvedEncoder if config.cells == "evolved" else TransformerEncoder
    return kind(dim, config.num_heads, num_cells, dropout=config.dropout, attention_dropout=config.attention_dropout)


def _decoder(config: AgentConfig, dim: int, num_cells: int, *, causal: bool) -> RowDecoder:
    kind = EvolvedDecoder if config.cells == "evolved" else TransformerDecoder
    return kind(
        dim, config.num_heads, num_cells, dropout=config.dropout, attention_dropout=config.attention_dropout, causal=causal
    )
