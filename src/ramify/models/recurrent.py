"""Recurrent models: an encoder, and sequence-to-sequence learning (Sutskever et al. 2014), with attention (Luong et al. 2015)
or without."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from ramify.batching.batch import Batch
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.pair_batch import PairBatch
from ramify.errors import RamifyError
from ramify.models.base import (
    NO_DECODER,
    Checkpoint,
    Encoded,
    GenerativeBackbone,
    GenerativeModelConfig,
    Hidden,
    Read,
    RowBackbone,
    State,
    TakesFeatures,
    check_config,
    checked_source,
    kept_positions,
)
from ramify.nn.attention import AttentionRecord, Weights, attend
from ramify.nn.blocks import Activation, LayerPrefixes
from ramify.nn.cache import Cache
from ramify.nn.dropout import dropout
from ramify.nn.linear import Linear
from ramify.nn.ragged import Rows, inverse, on_device, with_equal_groups
from ramify.nn.recurrent import Cell, Direction, Recurrent, RecurrentState, final_states

READS: dict[Direction, Read] = {"forward": "last", "backward": "first", "both": "all"}
"""The tokens of a row in which its chains of states end."""


def _embedding(vocab_size: int, dim: int) -> nn.Embedding:
    embedding = nn.Embedding(vocab_size, dim)
    # A head may score tokens by products with these vectors.
    nn.init.normal_(embedding.weight, std=dim**-0.5)
    return embedding


def _encode(embedding: nn.Embedding, recurrent: Recurrent, rows: EncoderInput, *, layers: bool, read: Read) -> Encoded:
    kept = kept_positions(rows.rows, rows.rows, layers=layers, read=read)
    words = rows.with_features(embedding(rows.ids))
    states = recurrent(words, rows.rows).layers
    if kept is None:
        return Encoded(rows.rows, (words, *states) if layers else states[-1:])
    return Encoded(kept.rows, (states[-1].index_select(0, kept.index),))


def _layers(name: str, recurrent: Recurrent) -> LayerPrefixes:
    return tuple((f"{name}.layers.{number}.",) for number in range(len(recurrent.layers)))


# --- the encoder --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecurrentConfig(TakesFeatures):
    """Sizes default to a small bidirectional LSTM."""

    vocab_size: int = 0
    """0 = the tokenizer's."""
    dim: int = 256
    """Size of the token vectors."""
    cell: Cell = "lstm"
    num_layers: int = 1
    hidden: int = 256
    """Size of each cell in one direction."""
    direction: Direction = "both"
    projection: int | None = None
    """Size to which an LSTM's output is projected (Sak et al. 2014); null: it is not."""
    residual: bool = False
    """Whether every layer but the first adds its input to its output."""
    cell_clip: float | None = None
    """Bound of an LSTM's memory cells; null: they have none."""
    projection_clip: float | None = None
    """Bound of an LSTM's projected outputs; null: they have none."""
    dropout: float = 0.1
    """Rate on the input of each layer."""
    max_tokens: int = 128
    """Longest row that the model is used with. The layers have no limit of their own."""
    activation: Activation = "gelu"
    """Activation of a head that has a dense layer."""
    eps: float = 1e-12

    def __post_init__(self) -> None:
        check_config(self)
        for name in ("projection", "cell_clip", "projection_clip"):
            value = getattr(self, name)
            if value is not None and self.cell != "lstm":
                raise RamifyError(
                    f"model.{name}={value:g} needs an LSTM, but model.cell is {self.cell}. Set model.cell=lstm, or "
                    f"model.{name}=null."
                )
            if value is not None and not 0 < value < math.inf:
                raise RamifyError(f"model.{name}={value:g} must be finite and above 0. Choose such a number, or null.")
        if self.projection is None and self.projection_clip is not None:
            raise RamifyError(
                f"model.projection_clip={self.projection_clip:g} needs a projection, but model.projection is null. Set "
                "model.projection, or model.projection_clip=null."
            )
        if self.projection is not None and self.projection >= self.hidden:
            raise RamifyError(
                f"model.projection={self.projection} must be below model.hidden={self.hidden}, the size that it makes smaller. "
                "Lower model.projection, or set it to null."
            )

    def build(self, features: int = 0) -> "RecurrentEncoder":
        return RecurrentEncoder(self, features)

    def adapted_to(self, checkpoint: Checkpoint) -> "RecurrentConfig":
        return checkpoint.saved_as(self)

    def initialize(self, backbone: "RecurrentEncoder", checkpoint: Checkpoint, *, decoder: bool = True) -> None:
        if not decoder:
            raise RamifyError(NO_DECODER)
        checkpoint.fill(backbone, self)


class RecurrentEncoder(RowBackbone):
    """A recurrent encoder of texts. Its vector of a text is the final state of each direction: [→h_T; ←h_1]."""

    config: RecurrentConfig
    embedding: nn.Embedding
    recurrent: Recurrent

    def __init__(self, config: RecurrentConfig, features: int = 0) -> None:
        super().__init__()
        self.config = config
        self.in_dim = config.dim + features
        self.embedding = _embedding(config.vocab_size, config.dim)
        self.recurrent = Recurrent(
            config.cell,
            self.in_dim,
            config.hidden,
            num_layers=config.num_layers,
            direction=config.direction,
            projection=config.projection,
            residual=config.residual,
            dropout=config.dropout,
            cell_clip=config.cell_clip,
            projection_clip=config.projection_clip,
        )

    @property
    def out_dim(self) -> int:
        return self.recurrent.out_dim

    @property
    def tied_embedding(self) -> nn.Embedding:
        return self.embedding

    @property
    def vector_read(self) -> Read:
        return READS[self.config.direction]

    def layer_dims(self, *, context: bool = False) -> tuple[int, ...]:
        return (self.in_dim, *[self.recurrent.out_dim] * self.config.num_layers)

    def layer_prefixes(self, *, context: bool = False) -> LayerPrefixes:
        return (("embedding.",), *_layers("recurrent", self.recurrent))

    def encode_rows(
        self, rows: EncoderInput, *, layers: bool = False, read: Read = "all", record: AttentionRecord | None = None
    ) -> Encoded:
        return _encode(self.embedding, self.recurrent, rows, layers=layers, read=read)

    def vector(self, encoded: Encoded) -> Float[Tensor, "row vector_dim"]:
        return final_states(encoded.last, encoded.rows, self.config.direction)

    def forward(self, batch: Batch, state: State | None = None, vectors: Float[Tensor, "node dim"] | None = None) -> Hidden:
        states = self.recurrent(self.embedding(batch.target_ids), batch.targets).layers[-1]
        if batch.output_positions is None:
            return Hidden(states)
        index = batch.output_positions.index
        return Hidden(states.index_select(0, index), index)


# --- sequence to sequence -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seq2SeqConfig(GenerativeModelConfig):
    """Sizes default to a small model with LSTMs."""

    vocab_size: int = 0
    """0 = the tokenizer's."""
    dim: int = 256
    """Size of the token vectors, and of the states from which tokens are predicted."""
    cell: Cell = "lstm"
    encoder_layers: int = 1
    """0: there is no encoder, and a text is predicted from its own beginning alone."""
    decoder_layers: int = 1
    hidden: int = 512
    """Size of the decoder's states. Each direction of the encoder has half of it."""
    attention: Literal["dot", "none"] = "dot"
    """dot: the decoder attends to the source's states. none: it knows of the source what it starts with."""
    dropout: float = 0.2
    """Rate on the input of each layer, and on the states from which tokens are predicted."""
    share_embeddings: bool = True
    """Whether sources and targets share one token embedding."""

    def __post_init__(self) -> None:
        check_config(self, encoder_layers=0)
        if self.encoder_layers == 0 and self.attention != "none":
            raise RamifyError(
                f"model.attention={self.attention} attends to a source, but model.encoder_layers=0 reads none. Set "
                "model.attention=none, or model.encoder_layers to 1 or more."
            )
        if self.encoder_layers and self.hidden % 2:
            raise RamifyError(
                f"model.hidden={self.hidden} is odd, but each direction of the encoder has half of it. Set an even number."
            )

    def build(self) -> "Seq2Seq":
        return Seq2Seq(self)

    def for_vocabulary(self, size: int) -> "Seq2SeqConfig":
        return replace(self, vocab_size=size)

    def adapted_to(self, checkpoint: Checkpoint) -> "Seq2SeqConfig":
        return checkpoint.saved_as(self)

    def initialize(self, backbone: "Seq2Seq", checkpoint: Checkpoint) -> None:
        checkpoint.fill(backbone, self)


@dataclass(frozen=True)
class SourceStates:
    """The encoder's states of source texts, each text once, however many sequences read it."""

    states: Float[Tensor, "total hidden"]
    rows: Rows
    readers: NDArray[np.int64]
    """The text that each sequence reads."""

    def reorder(self, index: NDArray[np.int64]) -> "SourceStates":
        return replace(self, readers=self.readers[index])

    @cached_property
    def _by_text(self) -> tuple[Rows, Int[Tensor, " sequence"], Int[Tensor, " sequence"]]:
        """The sequences as rows, one per text, their order in these rows, and its inverse."""
        order = np.argsort(self.readers, kind="stable")
        rows = Rows.build(np.bincount(self.readers, minlength=len(self.rows)), keys=self.rows.keys)
        device = self.states.device
        return rows.to(device), on_device(order, device), on_device(inverse(order), device)

    def attend(self, y: Float[Tensor, "sequence hidden"]) -> Float[Tensor, "sequence hidden"]:
        """One query per sequence."""
        rows, to_rows, back = self._by_text
        return _attend(y.index_select(0, to_rows), rows, self.states, self.rows).index_select(0, back)


def _attend(
    y: Float[Tensor, "query hidden"],
    y_rows: Rows,
    x: Float[Tensor, "key hidden"],
    x_rows: Rows,
    record: Weights | None = None,
) -> Float[Tensor, "query hidden"]:
    """Attention(Y, X, X): the products are not scaled."""
    keys_values = torch.stack([x, x], 1)[:, :, None]
    return attend(y[:, None], keys_values, *with_equal_groups(y_rows, x_rows), scale=1.0, record=record)[:, 0]


@dataclass(frozen=True)
class Seq2SeqCache(Cache):
    """The decoder's states, and the source texts."""

    state: RecurrentState
    read: Int[Tensor, " sequence"]
    source: SourceStates | None
    """None: nobody attends to a source."""

    @property
    def lengths(self) -> Int[Tensor, " sequence"]:
        return self.read

    def reorder(self, index: NDArray[np.int64]) -> "Seq2SeqCache":
        source = None if self.source is None else self.source.reorder(index)
        places = on_device(index, self.read.device)
        return Seq2SeqCache(self.state.reorder(places), self.read.index_select(0, places), source)


class Seq2Seq(GenerativeBackbone):
    """A bidirectional encoder of the source, with states X, and a decoder of the target, with states Y.

    The decoder starts from maps of the encoder's final states. The token behind y is predicted from tanh(W [y; a]), where a =
    Attention(y, X, X) = X softmax(Xᵀy), or without attention from tanh(W y).
    """

    config: Seq2SeqConfig
    embedding: nn.Embedding
    source_embedding: nn.Embedding | None
    encoder: Recurrent | None
    start_hidden: Linear | None
    start_cell: Linear | None
    decoder: Recurrent
    out: Linear

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        self.records_attention = config.attention != "none"
        dim, hidden = config.dim, config.hidden
        self.embedding = _embedding(config.vocab_size, dim)
        self.source_embedding = self.encoder = self.start_hidden = self.start_cell = None
        if config.encoder_layers:
            self.source_embedding = self.embedding if config.share_embeddings else _embedding(config.vocab_size, dim)
            self.encoder = Recurrent(
                config.cell,
                dim,
                hidden // 2,
                num_layers=config.encoder_layers,
                direction="both",
                dropout=config.dropout,
            )
            self.start_hidden = Linear(hidden, config.decoder_layers * hidden)
            self.start_cell = Linear(hidden, config.decoder_layers * hidden) if config.cell == "lstm" else None
        self.decoder = Recurrent(config.cell, dim, hidden, num_layers=config.decoder_layers, dropout=config.dropout)
        self.out = Linear(hidden * (1 if config.attention == "none" else 2), dim)

    @property
    def out_dim(self) -> int:
        return self.config.dim

    @property
    def reads_source(self) -> bool:
        return self.encoder is not None

    @property
    def tied_embedding(self) -> nn.Embedding:
        return self.embedding

    # Encodes

    @property
    def max_tokens(self) -> None:
        return None

    @property
    def reads_context(self) -> bool:
        return False

    @property
    def _reader(self) -> tuple[nn.Embedding, Recurrent]:
        """The layers that encode: those of the source, or those of the decoder."""
        if self.encoder is None or self.source_embedding is None:
            return self.embedding, self.decoder
        return self.source_embedding, self.encoder

    @property
    def vector_dim(self) -> int:
        return self.config.hidden

    @property
    def vector_read(self) -> Read:
        return READS[self._reader[1].direction]

    def layer_dims(self, *, context: bool = False) -> tuple[int, ...]:
        return (self.config.dim, *[self.config.hidden] * len(self._reader[1].layers))

    def layer_prefixes(self, *, context: bool = False) -> LayerPrefixes:
        embedding, recurrent = self._reader
        # A shared module has the name under which it was registered first.
        name = "embedding." if embedding is self.embedding else "source_embedding."
        return ((name,), *_layers("decoder" if self.encoder is None else "encoder", recurrent))

    def encode_rows(
        self, rows: EncoderInput, *, layers: bool = False, read: Read = "all", record: AttentionRecord | None = None
    ) -> Encoded:
        return _encode(*self._reader, rows, layers=layers, read=read)

    def vector(self, encoded: Encoded) -> Float[Tensor, "row vector_dim"]:
        """The final states of the encoder, or those of the decoder if there is no encoder."""
        return final_states(encoded.last, encoded.rows, self._reader[1].direction)

    # Prediction

    def forward(self, batch: PairBatch, record: AttentionRecord | None = None) -> Float[Tensor, "total dim"]:
        rows = batch.target.rows
        source, state = self._read_source(batch.source, len(rows))
        y = self.decoder(self.embedding(batch.target.ids), rows, state).layers[-1]
        if source is None:
            return self._output(y)
        weights: Weights | None = None
        if record is not None:
            weights = []
            record.setdefault("decoder", []).append({"cross": weights})
        return self._output(torch.cat([y, _attend(y, rows, source.states, source.rows, weights)], 1))

    def read_prompts(
        self, prompts: EncoderInput, source: EncoderInput | None = None
    ) -> tuple[Float[Tensor, "sequence dim"], Seq2SeqCache]:
        source_states, state = self._read_source(source, len(prompts.rows))
        state = self.decoder(self.embedding(prompts.ids), prompts.rows, state).state
        return self._next(Seq2SeqCache(state, prompts.rows.lengths, source_states))

    def read_tokens(self, ids: Int[Tensor, " sequence"], cache: Cache) -> tuple[Float[Tensor, "sequence dim"], Seq2SeqCache]:
        assert isinstance(cache, Seq2SeqCache)
        rows = Rows.build([1] * len(ids)).to(ids.device)
        state = self.decoder(self.embedding(ids), rows, cache.state).state
        return self._next(Seq2SeqCache(state, cache.read + 1, cache.source))

    def _next(self, cache: Seq2SeqCache) -> tuple[Float[Tensor, "sequence dim"], Seq2SeqCache]:
        y = cache.state.hidden[-1, 0]
        x = y if cache.source is None else torch.cat([y, cache.source.attend(y)], 1)
        return self._output(x), cache

    def _output(self, x: Float[Tensor, "position read"]) -> Float[Tensor, "position dim"]:
        return dropout(torch.tanh(self.out(x)), self.config.dropout, self.training)

    def _read_source(self, source: EncoderInput | None, count: int) -> tuple[SourceStates | None, RecurrentState | None]:
        """The states to which the decoder attends, and the states from which it starts."""
        if source is None and not self.reads_source:
            return None, None
        source = checked_source(source, count, encoder_layers=self.config.encoder_layers)
        assert self.encoder is not None
        assert self.source_embedding is not None
        assert self.start_hidden is not None
        rows = source.rows
        read = self.encoder(self.source_embedding(source.ids), rows)
        hidden = torch.tanh(self._start(self.start_hidden, read.state.hidden))
        cell = None
        if self.start_cell is not None and read.state.cell is not None:
            cell = self._start(self.start_cell, read.state.cell)
        states = None if self.config.attention == "none" else SourceStates(read.layers[-1], rows, np.arange(len(rows)))
        return states, RecurrentState(hidden, cell)

    def _start(self, map: Linear, ends: Float[Tensor, "layer chain row half"]) -> Float[Tensor, "_layer 1 row hidden"]:
        """The states of the decoder's layers, from the final states of the encoder's last layer."""
        read = map(ends[-1].transpose(0, 1).flatten(1))
        return read.view(len(read), -1, 1, self.config.hidden).permute(1, 2, 0, 3)
