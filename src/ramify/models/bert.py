"""BERT's encoder (Devlin et al. 2019, section 3), on the flat axis, and its Hugging Face form.

RoBERTa, DistilBERT and ALBERT (Lan et al. 2020) are the same encoder with other settings; their checkpoints are read, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ramify.batching.batch import Batch
from ramify.batching.encoder_input import EncoderInput
from ramify.errors import RamifyError
from ramify.models import hf
from ramify.models.base import (
    BERT_FAMILY,
    NO_DECODER,
    RATES,
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
from ramify.nn.attention import AttentionRecord
from ramify.nn.blocks import Activation, LayerPrefixes, Norm, Stack, States, under
from ramify.nn.embeddings import Embeddings, Position, init_weights
from ramify.nn.pooling import Pool, Pooling
from ramify.tensors import load_strictly

FREE = (*RATES, "pooling", "max_tokens")
"""Settings that may differ between a Bert and the BERT-family checkpoint that it starts from."""


@dataclass(frozen=True)
class BertConfig(TextModelConfig):
    """Sizes default to a small model; BERT-base is dim 768, 12 layers, 12 heads, ffn_dim 3072, max_tokens 512."""

    vocab_size: int = 0
    """0 = the tokenizer's."""
    dim: int = 256
    num_layers: int = 4
    num_heads: int = 4
    ffn_dim: int = 1024
    dropout: float = 0.1
    attention_dropout: float = 0.0
    """BERT's value is 0.1, which slows attention 1.6 to 4 times on CPU."""
    activation: Activation = "gelu"
    norm: Norm = "post"
    max_tokens: int = 128
    position: Position = "learned"
    type_vocab_size: int = 2
    pooling: Pooling = "mean"
    scale_embedding: bool = False
    """Multiply token vectors by the root of `dim` (Vaswani et al. 2017, section 3.4). BERT does not."""
    embedding_norm: bool = True
    """Apply a LayerNorm to embeddings, as BERT does."""
    embedding_dim: int | None = None
    """Width of the embeddings, which a linear map brings to `dim`, as in ALBERT; null: `dim`, without a map."""
    shared_layers: bool = False
    """Whether all layers share one layer's weights, as in ALBERT."""
    eps: float = 1e-12

    def __post_init__(self) -> None:
        check_config(self, max_tokens=3, type_vocab_size=0)

    def build(self) -> "Bert":
        return Bert(self)

    def adapted_to(self, checkpoint: Checkpoint) -> "BertConfig":
        if checkpoint.model is None:
            free = {name: getattr(self, name) for name in FREE}
            return replace(config_from_hf(hf.read_config(checkpoint.directory, hf.ENCODERS)), **free)
        return checkpoint.saved_as(self, BERT_FAMILY)

    def initialize(self, backbone: "Bert", checkpoint: Checkpoint, *, decoder: bool = True) -> None:
        if not decoder:
            raise RamifyError(NO_DECODER)
        if checkpoint.model is None:
            hf.require(self, vars(self.adapted_to(checkpoint)), checkpoint.source)
            load_pretrained(backbone, checkpoint.directory)
            return
        checkpoint.fill(backbone, self)


class Bert(Backbone):
    """A bidirectional encoder. It reads targets alone, or with the context that the batch wrote into their rows."""

    config: BertConfig
    records_attention = True
    embedding: nn.Embedding
    embeddings: Embeddings
    stack: Stack
    pool: Pool

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_dim or config.dim)
        self.embeddings = Embeddings(
            self.embedding,
            config.max_tokens,
            position=config.position,
            type_vocab_size=config.type_vocab_size,
            scale=config.scale_embedding,
            norm=config.embedding_norm,
            dropout=config.dropout,
            eps=config.eps,
            dim=None if config.embedding_dim is None else config.dim,
        )
        self.stack = Stack(
            config.num_layers,
            config.dim,
            config.num_heads,
            config.ffn_dim,
            norm=config.norm,
            eps=config.eps,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            activation=config.activation,
            shared=config.shared_layers,
        )
        self.pool = Pool(config.pooling, config.dim)
        init_weights(self)
        if config.scale_embedding:
            nn.init.normal_(self.embedding.weight, std=self.embedding.embedding_dim**-0.5)

    @property
    def out_dim(self) -> int:
        return self.config.dim

    @property
    def reads_context(self) -> bool:
        return False

    @property
    def carries_state(self) -> bool:
        return False

    @property
    def tied_embedding(self) -> nn.Embedding:
        return self.embedding

    @property
    def context_projection(self) -> None:
        return None

    @property
    def max_tokens(self) -> int:
        return self.config.max_tokens

    @property
    def vector_dim(self) -> int:
        return self.config.dim

    @property
    def vector_read(self) -> Read:
        return "first" if self.pool.kind in ("cls", "pooler") else "all"

    def layer_dims(self, *, context: bool = False) -> tuple[int, ...]:
        return (self.config.dim,) * (self.config.num_layers + 1)

    def layer_prefixes(self, *, context: bool = False) -> LayerPrefixes:
        layers = under("stack.", self.stack.layer_prefixes())
        return (("embedding.", "embeddings."), *layers[:-1], (*layers[-1], "pool."))

    def encode_rows(
        self, rows: EncoderInput, *, layers: bool = False, read: Read = "all", record: AttentionRecord | None = None
    ) -> Encoded:
        kept = kept_positions(rows.rows, rows.rows, layers=layers, read=read)
        weights = None if record is None else record.setdefault("encoder", [])
        states: States = []
        x = self.embeddings(rows.ids, rows.rows.positions, rows.token_types)
        x = self.stack(x, rows.rows, output_positions=kept, record=weights, states=states if layers else None)
        return Encoded(rows.rows if kept is None else kept.rows, (*states, x))

    def vector(self, encoded: Encoded) -> Float[Tensor, "row vector_dim"]:
        return self.pool(encoded.last, encoded.rows)

    def forward(
        self,
        batch: Batch,
        state: State | None = None,
        vectors: Float[Tensor, "node dim"] | None = None,
        *,
        record: AttentionRecord | None = None,
    ) -> Hidden:
        x = self.embeddings(batch.target_ids, batch.targets.positions, batch.token_type_ids)
        weights = None if record is None else record.setdefault("encoder", [])
        x = self.stack(x, batch.targets, output_positions=batch.output_positions, record=weights)
        return Hidden(x, None if batch.output_positions is None else batch.output_positions.index)


# --- Hugging Face ---------------------------------------------------------------------------------------------------


def config_from_hf(theirs: Mapping[str, Any]) -> BertConfig:
    return BertConfig(
        vocab_size=theirs["vocab_size"],
        dim=theirs["hidden_size"],
        num_layers=theirs["num_hidden_layers"],
        num_heads=theirs["num_attention_heads"],
        ffn_dim=theirs["intermediate_size"],
        dropout=theirs.get("hidden_dropout_prob", 0.1),
        attention_dropout=theirs.get("attention_probs_dropout_prob", 0.1),
        activation=hf.activation(theirs),
        max_tokens=theirs["max_position_embeddings"],
        type_vocab_size=theirs.get("type_vocab_size", 2),
        eps=theirs.get("layer_norm_eps", 1e-12),
        embedding_dim=theirs.get("embedding_size"),
        shared_layers=theirs["model_type"] == "albert",
    )


def config_to_hf(config: BertConfig) -> dict[str, Any]:
    if config.norm != "post" or config.position != "learned" or config.scale_embedding or not config.embedding_norm:
        raise RamifyError(
            f"model.norm={config.norm}, model.position={config.position}, model.scale_embedding="
            f"{str(config.scale_embedding).lower()} and model.embedding_norm={str(config.embedding_norm).lower()} have no "
            "Hugging Face form, whose BERT has post-norm layers, learned positions, and embeddings that are normalized but not "
            "scaled. Train a model with norm=post, position=learned, scale_embedding=false and embedding_norm=true."
        )
    if config.shared_layers or config.embedding_dim is not None:
        raise RamifyError(
            f"model.shared_layers={str(config.shared_layers).lower()} and model.embedding_dim={config.embedding_dim} have no "
            "form as a BERT of Hugging Face. Train a model with shared_layers=false and embedding_dim=null."
        )
    if not config.type_vocab_size:
        raise RamifyError(
            "model.type_vocab_size=0 has no Hugging Face form, whose BERT has token types. Train a model with "
            "model.type_vocab_size=2."
        )
    return {
        "architectures": ["BertForMaskedLM"],
        "model_type": "bert",
        "vocab_size": config.vocab_size,
        "hidden_size": config.dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.ffn_dim,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "hidden_act": {"gelu_tanh": "gelu_new"}.get(config.activation, config.activation),
        "max_position_embeddings": config.max_tokens,
        "type_vocab_size": config.type_vocab_size,
        "layer_norm_eps": config.eps,
        "pad_token_id": 0,
    }


def tensors_from_hf(tensors: Mapping[str, Tensor], config: BertConfig) -> dict[str, Tensor]:
    """The encoder's parameters under Ramify's names, with the pooler if the model has one, but without heads."""
    keys = dict(hf.EMBEDDING_KEYS)
    if not config.type_vocab_size:
        del keys["types.weight"]
    if config.embedding_dim is not None:
        keys |= {f"projection.{kind}": f"projection.{kind}" for kind in ("weight", "bias")}
    ours = {f"embeddings.{name}": tensors[f"embeddings.{theirs}"] for name, theirs in keys.items()}
    ours["embedding.weight"] = ours["embeddings.tokens.weight"]
    ours["embeddings.positions.weight"] = hf.first_positions(ours["embeddings.positions.weight"], config.max_tokens)
    for number in range(1 if config.shared_layers else config.num_layers):
        layer = hf.layer_from_bert(tensors, number)
        ours |= {f"stack.layers.{number}.{key}": value for key, value in layer.items()}
    if config.pooling == "pooler":
        if "pooler.dense.weight" not in tensors:
            raise RamifyError(
                "the checkpoint holds no tensor 'pooler.dense.weight', which model.pooling=pooler needs. Set "
                "model.pooling=mean and task.next_sentence=0, or choose a checkpoint with a pooler."
            )
        ours |= {f"pool.hidden.{kind}": tensors[f"pooler.dense.{kind}"] for kind in ("weight", "bias")}
    return ours


def tensors_to_hf(model: Bert) -> dict[str, Tensor]:
    own = model.state_dict()
    theirs = {f"bert.embeddings.{name}": own[f"embeddings.{ours}"] for ours, name in hf.EMBEDDING_KEYS.items()}
    for number in range(model.config.num_layers):
        prefix = f"stack.layers.{number}."
        layer = {key.removeprefix(prefix): value for key, value in own.items() if key.startswith(prefix)}
        theirs |= {f"bert.{key}": value for key, value in hf.layer_to_bert(layer, number).items()}
    if model.config.pooling == "pooler":
        theirs |= {f"bert.pooler.dense.{kind}": own[f"pool.hidden.{kind}"] for kind in ("weight", "bias")}
    return theirs


def from_pretrained(source: str | Path, **changes: Any) -> Bert:
    """Build a Bert from a Hugging Face directory or hub id. `changes` override fields of its config."""
    directory = hf.locate(source)
    theirs = hf.read_config(directory, hf.ENCODERS)
    fields = vars(config_from_hf(theirs)) | changes
    config = BertConfig(**fields)
    model = Bert(config)
    load_pretrained(model, directory)
    return model


def load_pretrained(model: Bert, directory: Path) -> None:
    """Load the weights of a Hugging Face directory. Attention pooling, which no checkpoint holds, stays unchanged."""
    tensors = _fresh(model) | tensors_from_hf(hf.bert_tensors(directory), model.config)
    load_strictly(model.state_dict(), tensors, directory)


def _fresh(model: Bert) -> dict[str, Tensor]:
    """The current parameters of the pool, for those that a checkpoint lacks."""
    return {f"pool.{key}": value for key, value in model.pool.state_dict().items()}


def head_from_hf(tensors: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """The masked-LM head under Ramify's names; None if the checkpoint has none. It has a `weight` only if that is not tied."""
    if "cls.predictions.bias" not in tensors:
        return None
    try:
        head = {name: tensors[theirs] for name, theirs in hf.HEAD_KEYS.items()}
    except KeyError as missing:
        raise RamifyError(
            f"the checkpoint holds no tensor {missing.args[0]!r}, so its head is not complete. Download it again."
        ) from None
    # A checkpoint may hold the bias twice. If the two differ, the linear map's own bias counts.
    head["bias"] = tensors.get("cls.predictions.decoder.bias", head["bias"])
    weight = tensors.get("cls.predictions.decoder.weight")
    if weight is not None and not torch.equal(weight, tensors["embeddings.word_embeddings.weight"]):
        head["weight"] = weight
    return head


def save_pretrained(
    model: Bert, directory: str | Path, head: nn.Module | None = None, next_head: nn.Linear | None = None
) -> None:
    """Write config.json and model.safetensors for `BertForMaskedLM`, for `BertForPreTraining` if the model also predicts the
    next sentence, or for `BertModel` if it has no head."""
    config = config_to_hf(model.config)
    tensors = tensors_to_hf(model)
    if head is None:
        config["architectures"] = ["BertModel"]
        tensors = {key.removeprefix("bert."): value for key, value in tensors.items()}
    else:
        own = head.state_dict()
        tensors |= {theirs: own[name] for name, theirs in hf.HEAD_KEYS.items()}
        if next_head is None:
            tensors = {key: value for key, value in tensors.items() if not key.startswith("bert.pooler.")}
        else:
            config["architectures"] = ["BertForPreTraining"]
            tensors |= {f"cls.seq_relationship.{key}": value for key, value in next_head.state_dict().items()}
    with torch.no_grad():
        hf.write(Path(directory), config, tensors)
