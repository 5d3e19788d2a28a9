"""Tree-conditioned masked language model (Juneja 2021, section 2 and Figure 1).

An encoder turns every clean ancestor of a comment into one pooled vector; a decoder reads the masked comment, and in every
layer attends to those vectors. One addition to the paper is an option: output attention, a short path from the vectors to the
predicted words.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.batching.batch import Batch
from ramify.batching.encoder_input import EncoderInput, NodeContext
from ramify.errors import RamifyError
from ramify.models import bert_family, hf
from ramify.models.base import (
    BERT_FAMILY,
    NO_DECODER,
    Backbone,
    Checkpoint,
    Encoded,
    Hidden,
    Read,
    State,
    TextModelConfig,
    check_config,
    kept_positions,
)
from ramify.nn.attention import AttentionRecord, Weights, attend
from ramify.nn.blocks import Activation, ContextVectors, Layer, LayerPrefixes, Norm, OutputPositions, Stack, States, under
from ramify.nn.embeddings import Embeddings, Position, PositionTable, init_weights
from ramify.nn.heads import start_projection
from ramify.nn.linear import Linear
from ramify.nn.pooling import Pool, Pooling
from ramify.nn.ragged import Rows
from ramify.tensors import load_strictly

ContextPosition = Literal["none", "depth", "distance"]


@dataclass(frozen=True)
class TreeMLMConfig(TextModelConfig):
    """Defaults follow the paper. If the paper is silent, the docstring of a field explains its default."""

    vocab_size: int = 0
    """0 = the tokenizer's."""
    dim: int = 256
    encoder_layers: int = 4
    decoder_layers: int = 4
    num_heads: int = 4
    ffn_dim: int = 1024
    dropout: float = 0.1
    attention_dropout: float = 0.0
    """The default is 0 because dropout slows attention on CPU (see `BertConfig`)."""
    activation: Activation = "relu"
    norm: Norm = "post"
    max_tokens: int = 128
    """Maximum length of a text with CLS and SEP, in tokens (L_max)."""
    context_position: ContextPosition = "none"
    """The position encoding of ancestors. The paper adds none, so its decoder reads ancestors as a set."""
    context_position_kind: Position = "learned"
    context_positions: int = 128
    """Number of rows of the table of context positions. Greater depths or distances share the last row."""
    pooling: Pooling = "mean"
    position: Position = "sinusoidal"
    scale_embedding: bool = True
    embedding_norm: bool = False
    share_embeddings: bool = True
    """Whether encoder and decoder share one token embedding (reconstructed; the paper does not say)."""
    cross_init: Literal["normal", "zero"] = "normal"
    """`zero` starts the output projection of cross-attention at zero, so the untrained model ignores its context."""
    output_attention: bool = False
    """Whether each state attends to the ancestors' vectors once more, after the decoder, and adds what it reads in the space of
    the token embedding. The paper has no such path."""
    eps: float = 1e-5

    def __post_init__(self) -> None:
        check_config(self, max_tokens=3)

    def build(self) -> "TreeMLM":
        return TreeMLM(self)

    def adapted_to(self, checkpoint: Checkpoint) -> "TreeMLMConfig":
        if checkpoint.model is None:
            return replace(self, **config_from_bert(bert_family.read_config(checkpoint.directory)))
        return checkpoint.saved_as(self, BERT_FAMILY)

    def initialize(self, backbone: "TreeMLM", checkpoint: Checkpoint, *, decoder: bool = True) -> None:
        if checkpoint.model is None:
            init_from_bert(backbone, checkpoint.directory, decoder=decoder)
            return
        if not decoder:
            raise RamifyError(NO_DECODER)
        checkpoint.fill(backbone, self)


class TreeMLM(Backbone):
    """Figure 1: clean nodes → encoder → average pooling → K and V; masked comment → N × {self, cross, feed-forward}."""

    config: TreeMLMConfig
    passes = ("encode_rows", "decode")
    records_attention = True
    embedding: nn.Embedding
    encoder_embeddings: Embeddings
    decoder_embeddings: Embeddings
    encoder: Stack
    decoder: Stack
    pool: Pool
    null: nn.Parameter
    """The only context vector of a model trained with context=null. Other models do not read it."""

    def __init__(self, config: TreeMLMConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        encoder_embedding = self.embedding if config.share_embeddings else nn.Embedding(config.vocab_size, config.dim)
        self.encoder_embeddings = self._embeddings(encoder_embedding)
        self.decoder_embeddings = self._embeddings(self.embedding)
        self.encoder = self._stack(config.encoder_layers, cross=False)
        self.decoder = self._stack(config.decoder_layers, cross=True)
        self.pool = Pool(config.pooling, config.dim)
        self.null = nn.Parameter(torch.empty(config.dim))
        self.context_table = None
        if config.context_position != "none":
            self.context_table = PositionTable(config.context_positions, config.dim, config.context_position_kind)
        self.output_attention = OutputAttention(config.dim, config.eps) if config.output_attention else None
        # Scaled embeddings (Vaswani et al., section 3.4) start at 1/sqrt(dim), so scaling gives them unit variance.
        init_weights(self)
        if config.scale_embedding:
            for table in dict.fromkeys((self.embedding, encoder_embedding)):
                nn.init.normal_(table.weight, std=config.dim**-0.5)
        nn.init.normal_(self.null)
        if config.cross_init == "zero":
            for layer in self.decoder.layers:
                assert isinstance(layer, Layer)
                assert layer.cross is not None
                nn.init.zeros_(layer.cross.out.weight)
        if self.output_attention is not None:
            start_projection(self.output_attention.value)

    def _embeddings(self, tokens: nn.Embedding) -> Embeddings:
        return Embeddings(
            tokens,
            self.config.max_tokens,
            position=self.config.position,
            scale=self.config.scale_embedding,
            norm=self.config.embedding_norm,
            dropout=self.config.dropout,
            eps=self.config.eps,
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
            attention_dropout=config.attention_dropout,
            activation=config.activation,
            cross=cross,
        )

    @property
    def out_dim(self) -> int:
        return self.config.dim

    @property
    def reads_context(self) -> bool:
        return True

    @property
    def carries_state(self) -> bool:
        return False

    @property
    def tied_embedding(self) -> nn.Embedding:
        return self.embedding

    @property
    def context_projection(self) -> nn.Linear | None:
        return None if self.output_attention is None else self.output_attention.value

    @property
    def max_tokens(self) -> int:
        return self.config.max_tokens

    @property
    def vector_dim(self) -> int:
        return self.config.dim

    @property
    def vector_read(self) -> Read:
        # All tokens pass the last layer, whatever the pooling, so that dropout draws the same numbers.
        return "all"

    def layer_dims(self, *, context: bool = False) -> tuple[int, ...]:
        return (self.config.dim,) * (1 + (self.config.decoder_layers if context else self.config.encoder_layers))

    def layer_prefixes(self, *, context: bool = False) -> LayerPrefixes:
        encoder = under("encoder.", self.encoder.layer_prefixes())
        if not context:
            return (("encoder_embeddings.", *self._shared_table), *encoder[:-1], (*encoder[-1], "pool."))
        decoder = under("decoder.", self.decoder.layer_prefixes())
        embedding = ("embedding.", "decoder_embeddings.", "encoder_embeddings.", "encoder.", "context_table.")
        return (embedding, *decoder[:-1], (*decoder[-1], "pool."))

    @property
    def _shared_table(self) -> tuple[str, ...]:
        """The name of the encoder's token embedding, if it is that of the decoder."""
        return ("embedding.",) if self.config.share_embeddings else ()

    def encode_rows(
        self, rows: EncoderInput, *, layers: bool = False, read: Read = "all", record: AttentionRecord | None = None
    ) -> Encoded:
        """Read rows with a context with the decoder, and rows without one with the encoder (section 2.1 of the paper)."""
        states: States = []
        collected = states if layers else None
        if rows.context is None:
            kept = kept_positions(rows.rows, rows.rows, layers=layers, read=read)
            weights = None if record is None else record.setdefault("encoder", [])
            x = self.encoder_embeddings(rows.ids, rows.rows.positions)
            x = self.encoder(x, rows.rows, output_positions=kept, record=weights, states=collected)
        else:
            kept = kept_positions(rows.rows, rows.context.readers, layers=layers, read=read)
            context = self.contextualize(rows.context, record)
            x = self._read(rows.ids, rows.rows, context, kept, record, collected)
            if record is not None and self.output_attention is not None:
                self._attend_to_words(x, context, kept, record)
        return Encoded(rows.rows if kept is None else kept.rows, (*states, x))

    def vector(self, encoded: Encoded) -> Float[Tensor, "row vector_dim"]:
        return self.pool(encoded.last, encoded.rows)

    def contextualize(self, context: NodeContext, record: AttentionRecord | None = None) -> ContextVectors:
        """Assign each row the vectors of its context, with their positions if the model has a table of context positions."""
        vectors = self.vectors(context.texts, record) if context.vectors is None else context.vectors
        table = self.context_table
        node_positions = pair_vectors = pair_index = None
        if table is not None and self.config.context_position == "depth":
            node_positions = table(context.depth)
        elif table is not None:
            reader = torch.repeat_interleave(context.row_depth, context.contexts.lengths, output_size=context.contexts.total)
            distance = reader - context.depth.index_select(0, context.index)
            pair_vectors, pair_index = table.weight, distance.clamp(0, table.weight.shape[0] - 1)
        return ContextVectors(
            vectors, context.index, context.readers, context.contexts, pair_vectors, pair_index, node_positions
        )

    def nothing(self, batch: Batch) -> ContextVectors:
        """Give every target the learned null vector as its only context."""
        count = len(batch.targets)
        rows = Rows.build([1] * count, keys=batch.readers.keys).to(self.null.device)
        index = torch.zeros(count, dtype=torch.int64, device=self.null.device)
        return ContextVectors(self.null[None], index, batch.readers, rows)

    def decode(self, batch: Batch, context: ContextVectors, record: AttentionRecord | None = None) -> Hidden:
        """Compute the targets' states, given their context."""
        asked = batch.output_positions
        x = self._read(batch.target_ids, batch.targets, context, asked, record)
        positions = None if asked is None else asked.index
        if self.output_attention is None:
            return Hidden(x, positions)
        return Hidden(self._attend_to_words(x, context, asked, record), positions, decoded=x)

    def _read(
        self,
        ids: Int[Tensor, " total"],
        rows: Rows,
        context: ContextVectors,
        asked: OutputPositions | None,
        record: AttentionRecord | None,
        states: States | None = None,
    ) -> Float[Tensor, "position dim"]:
        """The states after the decoder."""
        weights = None if record is None else record.setdefault("decoder", [])
        x = self.decoder_embeddings(ids, rows.positions)
        return self.decoder(x, rows, context, asked, record=weights, states=states)

    def _attend_to_words(
        self,
        x: Float[Tensor, "position dim"],
        context: ContextVectors,
        asked: OutputPositions | None,
        record: AttentionRecord | None,
    ) -> Float[Tensor, "position dim"]:
        """The states after output attention."""
        assert self.output_attention is not None
        weights: Weights | None = None
        if record is not None:
            weights = []
            record["output"] = [{"cross": weights}]
        return self.output_attention(x, context, context.q_rows if asked is None else asked.cross_rows, weights)

    def forward(
        self,
        batch: Batch,
        state: State | None = None,
        vectors: Float[Tensor, "node dim"] | None = None,
        *,
        record: AttentionRecord | None = None,
    ) -> Hidden:
        if batch.null_context:
            return self.decode(batch, self.nothing(batch), record)
        return self.decode(batch, self.contextualize(batch.node_context(vectors), record), record)


class OutputAttention(nn.Module):
    """x + σ(g·x + b) · Σ_a softmax_a(W_q x · W_k LN(v_a) / √d) · P LN(v_a), over the ancestors' vectors v_a.

    One head; LN has no parameters of its own. Positions of ancestors are added to the keys alone. Without an ancestor, x stays
    unchanged.
    """

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.query = Linear(dim, dim, bias=False)
        self.key = Linear(dim, dim, bias=False)
        self.value = Linear(dim, dim, bias=False)
        """P: maps a node's vector into the space of the token embedding."""
        self.gate = nn.Linear(dim, 1)

    def forward(
        self, x: Float[Tensor, "position dim"], context: ContextVectors, q_rows: Rows, record: Weights | None = None
    ) -> Float[Tensor, "position dim"]:
        normed = F.layer_norm(context.vectors, context.vectors.shape[-1:], eps=self.eps)
        key = self.key(normed)
        if context.node_positions is not None:
            key = key + self.key(context.node_positions)
        kv = context.by_key(torch.stack([key, self.value(normed)], dim=1))
        if context.pair_vectors is not None and context.pair_index is not None:
            pairs = self.key(context.pair_vectors)
            kv = kv + torch.stack([pairs, torch.zeros_like(pairs)], dim=1).index_select(0, context.pair_index)
        mixed = attend(self.query(x)[:, None], kv[:, :, None], q_rows, context.k_rows, record=record)
        return x + torch.sigmoid(self.gate(x)) * mixed[:, 0]


def init_from_bert(model: TreeMLM, source: str | Path, *, decoder: bool = True) -> None:
    """Initialize a model from a BERT-family checkpoint: the encoder, and the decoder except for cross-attention.

    The embedding of token type 0 is added to the positions, because BERT adds it to every single text. `decoder=False` leaves
    the decoder unchanged, except for a shared token embedding. Raises if sizes or conventions (post-norm, learned positions,
    embedding LayerNorm) differ from those of `config_from_bert`.
    """
    directory = hf.locate(source)
    tensors = bert_family.read_tensors(directory)
    required = config_from_bert(bert_family.read_config(directory))
    layers = required.pop("decoder_layers")
    hf.require(model.config, required, directory)
    if decoder and model.config.decoder_layers > layers:
        raise RamifyError(
            f"model.decoder_layers={model.config.decoder_layers} is above the {layers} layers of {directory}. Lower it, or "
            "start the encoder alone (init_decoder=false)."
        )
    state = model.state_dict()
    positions = bert_family.first_positions(tensors[bert_family.POSITIONS], model.config.max_tokens)
    if bert_family.TYPES in tensors:
        positions = positions + tensors[bert_family.TYPES][0]
    sides = ["encoder", "decoder"] if decoder else ["encoder"]
    if decoder or model.config.share_embeddings:
        state["embedding.weight"] = tensors["embeddings.word_embeddings.weight"]
    for side in sides:
        state[f"{side}_embeddings.tokens.weight"] = tensors["embeddings.word_embeddings.weight"]
        state[f"{side}_embeddings.positions.weight"] = positions
        for kind in ("weight", "bias"):
            state[f"{side}_embeddings.norm.{kind}"] = tensors[f"embeddings.LayerNorm.{kind}"]
        for number in range(getattr(model.config, f"{side}_layers")):
            for key, value in tensors.layer(number).items():
                state[f"{side}.layers.{number}.{key}"] = value
    if model.config.share_embeddings and not decoder:
        state["decoder_embeddings.tokens.weight"] = state["embedding.weight"]
    load_strictly(model.state_dict(), state, directory)


def config_from_bert(theirs: dict[str, Any]) -> dict[str, Any]:
    """Return the config fields that a BERT-family checkpoint determines."""
    return {
        "vocab_size": theirs["vocab_size"],
        "dim": theirs["hidden_size"],
        "encoder_layers": theirs["num_hidden_layers"],
        "decoder_layers": theirs["num_hidden_layers"],
        "num_heads": theirs["num_attention_heads"],
        "ffn_dim": theirs["intermediate_size"],
        "activation": hf.activation(theirs, "hidden_act", "gelu"),
        "norm": "post",
        "position": "learned",
        "scale_embedding": False,
        "embedding_norm": True,
        "eps": theirs.get("layer_norm_eps", 1e-12),
    }
