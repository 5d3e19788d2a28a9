"""The Transformer (Vaswani et al. 2017): an encoder and a decoder that reads it, or a decoder alone (Radford et al. 2018)."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ramify.batching.encoder_input import EncoderInput
from ramify.batching.pair_batch import PairBatch
from ramify.errors import RamifyError, counted
from ramify.models.base import (
    RATES,
    Checkpoint,
    Encoded,
    GenerativeBackbone,
    GenerativeModelConfig,
    Read,
    check_config,
    kept_positions,
)
from ramify.nn.attention import AttentionRecord
from ramify.nn.blocks import Activation, ContextVectors, LayerPrefixes, Norm, Stack, States, causal_mask, under
from ramify.nn.cache import Cache, KeyValueCache
from ramify.nn.embeddings import Embeddings, Position, PositionTable
from ramify.nn.pooling import Pool
from ramify.nn.ragged import right_aligned

AttentionScale = Literal["root", "none"]


@dataclass(frozen=True)
class TransformerConfig(GenerativeModelConfig):
    """Sizes default to a small model; the base model of Vaswani et al. is dim 512, 8 heads, ffn_dim 2048 and 6 layers each."""

    vocab_size: int = 0
    """0 = the tokenizer's."""
    dim: int = 256
    num_heads: int = 4
    ffn_dim: int = 1024
    encoder_layers: int = 3
    """0: there is no encoder, and a text is predicted from its own beginning alone."""
    decoder_layers: int = 3
    dropout: float = 0.1
    attention_dropout: float = 0.0
    """The paper's value is 0.1, which slows attention 1.6 to 4 times on CPU."""
    activation: Activation = "relu"
    norm: Norm = "post"
    """The place of each LayerNorm: behind the residual, as in the paper, or before the sublayer, as in GPT-2."""
    final_norm: bool = False
    """Whether both stacks end with a LayerNorm, as in `torch.nn.Transformer`. Those of norm=pre always do."""
    position: Position = "sinusoidal"
    scale_embedding: bool = True
    """Whether token vectors are multiplied by the root of `dim` (section 3.4)."""
    share_embeddings: bool = True
    """Whether sources and targets share one token embedding."""
    attention_scale: AttentionScale = "root"
    """root: scores are divided by the root of a head's size. none: they are not."""
    max_tokens: int = 512
    """Maximum length of a source, and of a target, in tokens."""
    eps: float = 1e-5

    def __post_init__(self) -> None:
        check_config(self, encoder_layers=0)

    def build(self) -> "Transformer":
        return Transformer(self)

    def for_vocabulary(self, size: int) -> "TransformerConfig":
        return replace(self, vocab_size=size)

    def adapted_to(self, checkpoint: Checkpoint) -> "TransformerConfig":
        return checkpoint.saved_as(self)

    def initialize(self, backbone: "Transformer", checkpoint: Checkpoint) -> None:
        checkpoint.fill(backbone, self, RATES)


class Transformer(GenerativeBackbone):
    """Section 3. The token behind each token of a target is predicted from the decoder's state."""

    config: TransformerConfig
    records_attention = True
    embedding: nn.Embedding
    source_embeddings: Embeddings | None
    encoder: Stack | None
    target_embeddings: Embeddings
    decoder: Stack

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.source_embeddings = self.encoder = None
        if config.encoder_layers:
            tokens = self.embedding if config.share_embeddings else nn.Embedding(config.vocab_size, config.dim)
            self.source_embeddings = self._embeddings(tokens)
            self.encoder = self._stack(config.encoder_layers, cross=False)
        self.target_embeddings = self._embeddings(self.embedding)
        self.decoder = self._stack(config.decoder_layers, cross=config.encoder_layers > 0)
        self.pool = Pool("mean", config.dim)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding) or (
                isinstance(module, PositionTable) and isinstance(module.weight, nn.Parameter)
            ):
                nn.init.normal_(module.weight, std=config.dim**-0.5)

    def _embeddings(self, tokens: nn.Embedding) -> Embeddings:
        config = self.config
        return Embeddings(
            tokens,
            config.max_tokens,
            position=config.position,
            scale=config.scale_embedding,
            norm=False,
            dropout=config.dropout,
        )

    def _stack(self, num_layers: int, *, cross: bool) -> Stack:
        config = self.config
        return Stack(
            num_layers,
            config.dim,
            config.num_heads,
            config.ffn_dim,
            norm=config.norm,
            eps=config.eps,
            dropout=config.dropout,
            final_norm=config.final_norm,
            attention_dropout=config.attention_dropout,
            activation=config.activation,
            cross=cross,
            scale=None if config.attention_scale == "root" else 1.0,
        )

    @property
    def out_dim(self) -> int:
        return self.config.dim

    @property
    def tied_embedding(self) -> nn.Embedding:
        return self.embedding

    @property
    def reads_source(self) -> bool:
        return self.encoder is not None

    @property
    def reads_context(self) -> bool:
        return False

    @property
    def max_tokens(self) -> int:
        return self.config.max_tokens

    @property
    def vector_dim(self) -> int:
        return self.config.dim

    @property
    def vector_read(self) -> Read:
        return "all" if self.reads_source else "last"

    def layer_dims(self, *, context: bool = False) -> tuple[int, ...]:
        return (self.config.dim,) * ((self.config.encoder_layers or self.config.decoder_layers) + 1)

    def layer_prefixes(self, *, context: bool = False) -> LayerPrefixes:
        if self.encoder is None:
            return (("embedding.", "target_embeddings."), *under("decoder.", self.decoder.layer_prefixes()))
        tokens = ("embedding.",) if self.config.share_embeddings else ()
        return ((*tokens, "source_embeddings."), *under("encoder.", self.encoder.layer_prefixes()))

    def encode_rows(
        self, rows: EncoderInput, *, layers: bool = False, read: Read = "all", record: AttentionRecord | None = None
    ) -> Encoded:
        kept = kept_positions(rows.rows, rows.rows, layers=layers, read=read)
        states: States = []
        if self.encoder is not None and self.source_embeddings is not None:
            weights = None if record is None else record.setdefault("encoder", [])
            x = self._embed(rows, self.source_embeddings, "source")
            x = self.encoder(x, rows.rows, output_positions=kept, record=weights, states=states if layers else None)
        else:
            weights = None if record is None else record.setdefault("decoder", [])
            x = self._embed(rows, self.target_embeddings, "text")
            mask = causal_mask(rows.rows)
            x = self.decoder(x, rows.rows, allowed=mask, record=weights, states=states if layers else None)
            # A mask has no blocks of single positions, so the last layer computes all.
            x = x if kept is None else x.index_select(0, kept.index)
        return Encoded(rows.rows if kept is None else kept.rows, (*states, x))

    def vector(self, encoded: Encoded) -> Float[Tensor, "row vector_dim"]:
        """The mean of the encoder's states, or the decoder's state of the last token."""
        if self.reads_source:
            return self.pool(encoded.last, encoded.rows)
        rows = encoded.rows
        if rows.total == 0:
            return encoded.last.new_zeros(len(rows), self.config.dim)
        last = encoded.last.index_select(0, (rows.offsets[1:].to(torch.int64) - 1).clamp(min=0))
        return last.masked_fill((rows.lengths == 0)[:, None], 0.0)

    def forward(self, batch: PairBatch, record: AttentionRecord | None = None) -> Float[Tensor, "total dim"]:
        rows = batch.target.rows
        context = None
        if batch.source is not None or self.reads_source:
            source = self._read_source(batch.source, len(rows), record)
            context = ContextVectors.of_rows(source.last, source.rows, rows)
        weights = None if record is None else record.setdefault("decoder", [])
        x = self._embed(batch.target, self.target_embeddings, "text")
        return self.decoder(x, rows, context, allowed=causal_mask(rows), record=weights)

    def _embed(self, rows: EncoderInput, embeddings: Embeddings, kind: str) -> Float[Tensor, "total dim"]:
        self._check_length(rows.rows.max_length, kind)
        return embeddings(rows.ids, rows.rows.positions)

    def _check_length(self, length: int, kind: str) -> None:
        if length > self.config.max_tokens:
            raise RamifyError(
                f"a {kind} of {counted(length, 'token')} is longer than model.max_tokens={self.config.max_tokens}. Shorten it, "
                "or train a model with a greater model.max_tokens."
            )

    def _read_source(self, source: EncoderInput | None, count: int, record: AttentionRecord | None = None) -> Encoded:
        """The encoder's states. Raises `RamifyError` if there is no encoder, or no token to read for each of `count` texts."""
        if not self.reads_source:
            raise RamifyError("source needs an encoder, but model.encoder_layers=0. Leave it out, or train a model with one.")
        if source is None:
            raise RamifyError(
                f"source=None cannot be read: model.encoder_layers={self.config.encoder_layers} needs a source for each text. "
                "Pass one, or train a model with model.encoder_layers=0."
            )
        if len(source.rows) != count or not source.rows.host_lengths.all():
            raise RamifyError(
                f"source holds {counted(int((source.rows.host_lengths > 0).sum()), 'text')} with tokens for "
                f"{counted(count, 'text')} that are to be predicted. Pass one for each."
            )
        return self.encode_rows(source, record=record)

    # --- generation -----------------------------------------------------------------------------------------------------

    def read_prompts(
        self, prompts: EncoderInput, source: EncoderInput | None = None
    ) -> tuple[Float[Tensor, "sequence dim"], KeyValueCache]:
        """The state behind an empty prompt is zero."""
        lengths = prompts.rows.host_lengths
        sources = None
        if source is not None or self.reads_source:
            encoded = self._read_source(source, len(lengths))
            sources = self.decoder.source_keys(encoded.last, encoded.rows)
        ids, begins = right_aligned(prompts.ids, prompts.rows)
        padded = bool((lengths < ids.shape[1]).any())
        cache = KeyValueCache(self.config.decoder_layers, begins, padded=padded, sources=sources)
        states, cache = self._read(ids, cache)
        if not lengths.all():
            states = states.masked_fill((prompts.rows.lengths == 0)[:, None], 0.0)
        return states, cache

    def read_tokens(self, ids: Int[Tensor, " sequence"], cache: Cache) -> tuple[Float[Tensor, "sequence dim"], KeyValueCache]:
        assert isinstance(cache, KeyValueCache)
        return self._read(ids[:, None], cache)

    def _read(
        self, ids: Int[Tensor, "sequence token"], cache: KeyValueCache
    ) -> tuple[Float[Tensor, "sequence dim"], KeyValueCache]:
        """Read the next tokens of each sequence."""
        count = ids.shape[1]
        self._check_length(cache.columns + count, "text")
        x = self.target_embeddings(ids.flatten(), cache.positions(count).flatten())
        x = self.decoder.read_next(x, cache)
        return x.view(*ids.shape, self.config.dim)[:, -1], cache
