"""A convolutional network for classifying texts (Kim 2014).

Where the paper is silent, the published code (CNN_sentence) decides: initial weights, and zeros around a text. The head on the
vector, and the bound of its weights' norms, belong to the task.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ramify.batching.batch import Batch
from ramify.batching.encoder_input import EncoderInput
from ramify.errors import RamifyError
from ramify.models.base import (
    NO_DECODER,
    RATES,
    Checkpoint,
    Encoded,
    Hidden,
    PublishedForm,
    Read,
    RowBackbone,
    State,
    TakesFeatures,
    TakesVectors,
    check_config,
    kept_positions,
)
from ramify.nn.attention import AttentionRecord
from ramify.nn.blocks import ACTIVATIONS, Activation, LayerPrefixes
from ramify.nn.convolution import FeatureMaps
from ramify.nn.dropout import dropout
from ramify.nn.embeddings import table_with
from ramify.nn.pooling import Pool
from ramify.nn.ragged import Rows

Channels = Literal["rand", "static", "non-static", "multichannel"]

EMBEDDING_BOUND = 0.25
"""Bound of the uniform distribution of initial token vectors in the published code."""


@dataclass(frozen=True)
class CnnConfig(TakesFeatures):
    """Sizes default to a small model. The published model has dim 300."""

    published: ClassVar[PublishedForm] = PublishedForm(frozen_head="vector")
    vocab_size: int = 0
    """0 = the tokenizer's."""
    dim: int = 128
    """Size of the token vectors of one channel."""
    widths: tuple[int, ...] = (3, 4, 5)
    """Numbers of tokens that the filters read."""
    maps: int = 100
    """Number of filters of each width."""
    channels: Channels = "rand"
    """rand: token vectors are random, and learn. static: they are those of `vectors`, and stay as they are. non-static: they
    are those of `vectors`, and learn. multichannel: both a static and a learning table, each with filters of its own, whose
    outputs are added."""
    vectors: str = ""
    """A text file of word vectors (a word and its numbers per line), or a saved model with a token embedding. It is read when
    training starts, and is not needed later."""
    dropout: float = 0.5
    """Rate on the vector of a text."""
    max_tokens: int = 128
    """Longest row that the model is used with. The filters have no limit of their own."""
    activation: Activation = "relu"
    """Activation of the feature maps, and of a head that has a dense layer."""
    eps: float = 1e-12

    def __post_init__(self) -> None:
        check_config(self)
        if not self.widths or min(self.widths) < 1:
            raise RamifyError(
                f"model.widths={list(self.widths)} must hold at least one width, and none below 1. Set such widths as [3,4,5]."
            )
        if self.channels == "rand" and self.vectors:
            raise RamifyError(
                f"model.vectors={self.vectors} needs a table that starts with them, but model.channels=rand has none. Set "
                "model.channels to static, non-static or multichannel."
            )
        if self.channels != "rand" and not self.vectors:
            raise RamifyError(
                f"model.channels={self.channels} starts with known vectors, but model.vectors is empty. Set model.vectors to a "
                "file of word vectors or a saved model, or model.channels=rand."
            )

    def build(self, features: int = 0) -> "Cnn":
        return Cnn(self, features)

    def adapted_to(self, checkpoint: Checkpoint) -> "CnnConfig":
        return checkpoint.saved_as(self)

    def initialize(self, backbone: "Cnn", checkpoint: Checkpoint, *, decoder: bool = True) -> None:
        if not decoder:
            raise RamifyError(NO_DECODER)
        checkpoint.fill(backbone, self, (*RATES, "vectors"))


class Cnn(RowBackbone, TakesVectors):
    """Feature maps of several widths, and their maxima over the windows of a text, which may begin before it and end behind it
    (`FeatureMaps`)."""

    config: CnnConfig
    embedding: nn.Embedding | None
    """The vectors that learn; None: `channels` is static."""
    static: Float[Tensor, "vocab dim"] | None
    """The vectors that stay as they are."""

    def __init__(self, config: CnnConfig, features: int = 0) -> None:
        super().__init__()
        self.config = config
        self.word_dim = config.dim * (2 if config.channels == "multichannel" else 1) + features
        """The length of a token's vectors in all channels, and of its features."""
        self.embedding, table = None, None
        if config.channels != "static":
            self.embedding = nn.Embedding(config.vocab_size, config.dim)
            nn.init.uniform_(self.embedding.weight, -EMBEDDING_BOUND, EMBEDDING_BOUND)
        if config.channels in ("static", "multichannel"):
            table = torch.empty(config.vocab_size, config.dim).uniform_(-EMBEDDING_BOUND, EMBEDDING_BOUND)
        # A buffer, which no setting of training can let learn.
        self.register_buffer("static", table)
        self.filters = FeatureMaps(self.word_dim, config.maps, config.widths)
        self.pool = Pool("max", self.out_dim)

    @property
    def vectors_source(self) -> str:
        return self.config.vectors

    @torch.no_grad()
    def take_vectors(self, ids: Int[Tensor, " known"], vectors: Float[Tensor, "known dim"]) -> None:
        table = self.static if self.embedding is None else self.embedding.weight
        assert table is not None
        table.copy_(table_with(table, ids, vectors))
        if self.static is not None:
            self.static.copy_(table)

    @property
    def out_dim(self) -> int:
        return self.config.maps * len(self.config.widths)

    @property
    def tied_embedding(self) -> nn.Embedding:
        if self.embedding is None:
            raise RamifyError(
                "task.tie_weights=true needs a table of token vectors that learns, but model.channels=static has none. Set "
                "task.tie_weights=false."
            )
        return self.embedding

    @property
    def vector_read(self) -> Read:
        return "all"

    def layer_dims(self, *, context: bool = False) -> tuple[int, ...]:
        return (self.word_dim, self.out_dim)

    def layer_prefixes(self, *, context: bool = False) -> LayerPrefixes:
        return (() if self.embedding is None else ("embedding.",), ("filters.",))

    def encode_rows(
        self, rows: EncoderInput, *, layers: bool = False, read: Read = "all", record: AttentionRecord | None = None
    ) -> Encoded:
        kept = kept_positions(rows.rows, rows.rows, layers=layers, read=read)
        words = rows.with_features(self._words(rows.ids))
        features = self._features(words, rows.rows)
        if kept is None:
            return Encoded(rows.rows, (words, features) if layers else (features,))
        return Encoded(kept.rows, (features.index_select(0, kept.index),))

    def vector(self, encoded: Encoded) -> Float[Tensor, "row vector_dim"]:
        """The maximum of each feature map over the tokens, with dropout."""
        return dropout(self.pool(encoded.last, encoded.rows), self.config.dropout, self.training)

    def forward(self, batch: Batch, state: State | None = None, vectors: Float[Tensor, "node dim"] | None = None) -> Hidden:
        features = self._features(self._words(batch.target_ids), batch.targets)
        if batch.output_positions is None:
            return Hidden(features)
        index = batch.output_positions.index
        return Hidden(features.index_select(0, index), index)

    def _words(self, ids: Int[Tensor, " total"]) -> Float[Tensor, "total word"]:
        channels = [] if self.embedding is None else [self.embedding(ids)]
        if self.static is not None:
            channels.append(self.static.index_select(0, ids))
        return torch.cat(channels, 1)

    def _features(self, words: Float[Tensor, "total word"], rows: Rows) -> Float[Tensor, "total out"]:
        return self.filters(words, rows, ACTIVATIONS[self.config.activation])
