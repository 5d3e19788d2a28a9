"""A bag of embeddings: the vector of a text is the mean of the vectors of its tokens, whatever their order."""

from dataclasses import dataclass

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
    Read,
    RowBackbone,
    State,
    TakesVectors,
    TextModelConfig,
    check_config,
    kept_positions,
)
from ramify.nn.attention import AttentionRecord
from ramify.nn.blocks import Activation, LayerPrefixes
from ramify.nn.embeddings import table_with
from ramify.nn.pooling import Pool


@dataclass(frozen=True)
class BagConfig(TextModelConfig):
    """A table of token vectors is all that the model has."""

    vocab_size: int = 0
    """0 = the tokenizer's."""
    dim: int = 128
    """Size of the token vectors."""
    vectors: str = ""
    """A text file of word vectors (a word and its numbers per line), or a saved model with a token embedding, with which the
    table starts. Empty: it starts at random."""
    max_tokens: int = 128
    """Longest row that the model is used with. A mean has no limit of its own."""
    activation: Activation = "gelu"
    """Activation of a head that has a dense layer."""
    eps: float = 1e-12

    def __post_init__(self) -> None:
        check_config(self)

    def build(self) -> "Bag":
        return Bag(self)

    def adapted_to(self, checkpoint: Checkpoint) -> "BagConfig":
        return checkpoint.saved_as(self)

    def initialize(self, backbone: "Bag", checkpoint: Checkpoint, *, decoder: bool = True) -> None:
        if not decoder:
            raise RamifyError(NO_DECODER)
        checkpoint.fill(backbone, self, (*RATES, "vectors"))


class Bag(RowBackbone, TakesVectors):
    """A token's state is its vector. Special tokens belong to the bag, so an empty text has a vector."""

    config: BagConfig
    embedding: nn.Embedding

    def __init__(self, config: BagConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        # A head may score tokens by products with these vectors.
        nn.init.normal_(self.embedding.weight, std=config.dim**-0.5)
        self.pool = Pool("mean", config.dim)

    @property
    def vectors_source(self) -> str:
        return self.config.vectors

    @torch.no_grad()
    def take_vectors(self, ids: Int[Tensor, " known"], vectors: Float[Tensor, "known dim"]) -> None:
        self.embedding.weight.copy_(table_with(self.embedding.weight, ids, vectors))

    @property
    def out_dim(self) -> int:
        return self.config.dim

    @property
    def tied_embedding(self) -> nn.Embedding:
        return self.embedding

    @property
    def vector_read(self) -> Read:
        return "all"

    def layer_dims(self, *, context: bool = False) -> tuple[int, ...]:
        return (self.config.dim,)

    def layer_prefixes(self, *, context: bool = False) -> LayerPrefixes:
        return (("embedding.",),)

    def encode_rows(
        self, rows: EncoderInput, *, layers: bool = False, read: Read = "all", record: AttentionRecord | None = None
    ) -> Encoded:
        kept = kept_positions(rows.rows, rows.rows, layers=layers, read=read)
        if kept is None:
            return Encoded(rows.rows, (self.embedding(rows.ids),))
        return Encoded(kept.rows, (self.embedding(rows.ids.index_select(0, kept.index)),))

    def vector(self, encoded: Encoded) -> Float[Tensor, "row vector_dim"]:
        return self.pool(encoded.last, encoded.rows)

    def forward(self, batch: Batch, state: State | None = None, vectors: Float[Tensor, "node dim"] | None = None) -> Hidden:
        if batch.output_positions is None:
            return Hidden(self.embedding(batch.target_ids))
        index = batch.output_positions.index
        return Hidden(self.embedding(batch.target_ids.index_select(0, index)), index)
