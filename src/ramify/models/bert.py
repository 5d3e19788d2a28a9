"""BERT's encoder (Devlin et al. 2019, section 3), on the flat axis, and its Hugging Face form.

RoBERTa, DistilBERT and ALBERT (Lan et al. 2020) are the same encoder with other settings. Their checkpoints are read and
written, too.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor, nn

from ramify.batching.batch import Batch
from ramify.batching.encoder_input import EncoderInput
from ramify.errors import RamifyError
from ramify.models import bert_family, hf
from ramify.models.base import (
    BERT_FAMILY,
    NO_DECODER,
    RATES,
    Checkpoint,
    Encoded,
    Hidden,
    Read,
    RowBackbone,
    State,
    TextModelConfig,
    check_config,
    kept_positions,
)
from ramify.models.bert_family import FamilyTensors
from ramify.models.hf_adapter import ForeignFiles, HFAdapter, PortableModel
from ramify.models.hf_heads import form_of, head_settings, head_tensors
from ramify.nn.attention import AttentionRecord
from ramify.nn.blocks import Activation, LayerPrefixes, Norm, Stack, States, under
from ramify.nn.embeddings import Embeddings, init_weights
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
    position: Literal["learned", "sinusoidal", "relative"] = "learned"
    """learned, sinusoidal: a vector of each position is added to the embeddings. relative: attention scores the distances of
    tokens, as in Transformer-XL and XLNet."""
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
            return replace(ADAPTER.read_config(checkpoint.directory), **free)
        return checkpoint.saved_as(self, BERT_FAMILY)

    def initialize(self, backbone: "Bert", checkpoint: Checkpoint, *, decoder: bool = True) -> None:
        if not decoder:
            raise RamifyError(NO_DECODER)
        if checkpoint.model is None:
            hf.require(self, vars(self.adapted_to(checkpoint)), checkpoint.source)
            load_pretrained(backbone, checkpoint)
            return
        checkpoint.fill(backbone, self)


class Bert(RowBackbone):
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
        self.has_pooler = config.pooling == "pooler"
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_dim or config.dim)
        self.embeddings = Embeddings(
            self.embedding,
            config.max_tokens,
            position=None if config.position == "relative" else config.position,
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
            relative=config.position == "relative",
        )
        self.pool = Pool(config.pooling, config.dim)
        init_weights(self)
        if config.scale_embedding:
            nn.init.normal_(self.embedding.weight, std=self.embedding.embedding_dim**-0.5)

    @property
    def out_dim(self) -> int:
        return self.config.dim

    @property
    def tied_embedding(self) -> nn.Embedding:
        return self.embedding

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

LONGEST = 512
"""The longest row that a checkpoint's pipeline reads, whatever the length of its position table."""


class BertAdapter(HFAdapter[BertConfig]):
    """Reads and writes checkpoints of the whole BERT family, with a masked-LM head or without."""

    @property
    def model(self) -> type[BertConfig]:
        return BertConfig

    def read_config(self, directory: Path) -> BertConfig:
        theirs = bert_family.read_config(directory, bert_family.ENCODERS)
        albert = theirs["model_type"] == "albert"
        return BertConfig(
            vocab_size=theirs["vocab_size"],
            dim=theirs["hidden_size"],
            num_layers=theirs["num_hidden_layers"],
            num_heads=theirs["num_attention_heads"],
            ffn_dim=theirs["intermediate_size"],
            dropout=theirs.get("hidden_dropout_prob", 0.1),
            attention_dropout=theirs.get("attention_probs_dropout_prob", 0.1),
            activation=hf.activation(theirs, "hidden_act", "gelu"),
            max_tokens=theirs["max_position_embeddings"],
            type_vocab_size=theirs.get("type_vocab_size", 2),
            eps=theirs.get("layer_norm_eps", 1e-12),
            embedding_dim=theirs["embedding_size"] if albert else None,
            shared_layers=albert,
        )

    def read(self, checkpoint: Checkpoint, config: BertConfig) -> PortableModel[BertConfig]:
        theirs = bert_family.read_tensors(checkpoint.directory, checkpoint.tensors)
        head = theirs.head()
        return PortableModel(
            config,
            _backbone_from_hf(theirs, config),
            heads={f"head.{name}": tensor for name, tensor in head.items()},
            task={"head": "bert", "tie_weights": "weight" not in head},
            input={"max_tokens": min(LONGEST, config.max_tokens), "layout": theirs.layout},
            label_head=theirs.label_head,
            options={"pooling": "pooler"} if all(name in theirs for name in bert_family.POOLER_KEYS.values()) else {},
        )

    def write(self, model: PortableModel[BertConfig]) -> ForeignFiles:
        """`…ForMaskedLM`, `…ForPreTraining` if the model also predicts the second segment, `…ForSequenceClassification` and
        others with a head on labelled texts, or `…Model` without a head."""
        kind = _kind(model)
        config, tensors = config_to_hf(model.config, kind), _backbone_to_hf(model)
        pooler = {theirs: model.backbone[f"pool.{ours}"] for ours, theirs in bert_family.POOLER_KEYS.items() if _pools(model)}
        architecture = bert_family.ENCODER
        if model.label_head is not None:
            form = form_of(bert_family.FAMILIES[kind].heads, model.label_head.kind, bert_family.FAMILIES[kind].name)
            own = [model.backbone[f"pool.hidden.{part}"] for part in ("weight", "bias")] if _pools(model) else None
            architecture = form.ending
            tensors |= head_tensors(form, model.label_head, None if own is None else (own[0], own[1]))
            config |= head_settings(model.label_head)
        elif not model.heads:
            tensors |= pooler
        elif model.task["head"] != "bert":
            raise RamifyError(
                f"task.head={model.task['head']} has no Hugging Face form, whose head has a dense layer. Train a model with "
                "task.head=bert."
            )
        else:
            architecture = "ForMaskedLM"
            tensors |= {theirs: model.heads[f"head.{ours}"] for ours, theirs in bert_family.HEAD_KEYS.items()}
            if not model.task["tie_weights"]:
                config["tie_word_embeddings"] = False
                bias = model.heads["head.bias"].clone()
                tensors |= {bert_family.OUTPUT_WEIGHT: model.heads["head.weight"], bert_family.OUTPUT_BIAS: bias}
            if model.task["next_sentence"]:
                architecture = "ForPreTraining"
                tensors |= pooler
                tensors |= {f"cls.seq_relationship.{part}": model.heads[f"next_head.{part}"] for part in ("weight", "bias")}
        config, tensors = bert_family.write(kind, architecture, config, tensors, model.pad_id)
        settings: dict[str, Any] = {"model_max_length": model.config.max_tokens}
        if not model.config.type_vocab_size:
            settings["model_input_names"] = ["input_ids", "attention_mask"]
        return ForeignFiles(config, tensors, model.input["layout"], settings)


ADAPTER = BertAdapter()


WRITTEN = {"norm": "post", "position": "learned", "scale_embedding": False, "embedding_norm": True}
"""The only values of some settings that the family has."""

PRE_TRAINED = ("bert", "albert")
"""The architectures with a head for second segments."""


def _pools(model: PortableModel[BertConfig]) -> bool:
    return model.config.pooling == "pooler"


def _kind(model: PortableModel[BertConfig]) -> str:
    """The architecture that has all settings of a model. ALBERT shares layers; RoBERTa has rows of its own; DistilBERT has no
    token types, and no pooler."""
    config = model.config
    pair_head = bool(model.heads) and model.task["next_sentence"] > 0
    if config.shared_layers or config.embedding_dim is not None:
        kind = "albert"
    elif config.type_vocab_size and (pair_head or model.input["layout"] != "roberta" or config.activation != "gelu"):
        kind = "bert"
    else:
        other_eps = config.eps != bert_family.FAMILIES["distilbert"].fixed["layer_norm_eps"]
        head = model.label_head
        tanh = _pools(model) and not model.heads if head is None else head.read not in (None, "rectifier")
        kind = "roberta" if model.input["layout"] == "roberta" or other_eps or tanh else "distilbert"
    if pair_head and kind not in PRE_TRAINED:
        raise RamifyError(
            f"task.next_sentence={model.task['next_sentence']:g} with model.type_vocab_size=0 has no Hugging Face form, whose "
            "models with a head for second segments have token types. Train a model with model.type_vocab_size=2."
        )
    return kind


def _settings(values: Mapping[str, Any], names: Sequence[str]) -> str:
    """Settings as the command line takes them."""
    given = ((name, values[name]) for name in names)
    return " and ".join(f"model.{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in given)


def config_to_hf(config: BertConfig, kind: str = "bert") -> dict[str, Any]:
    """The settings of an architecture of the family under BERT's names. Raises `RamifyError` for settings that it lacks."""
    family = bert_family.FAMILIES[kind]
    if other := [name for name, needed in WRITTEN.items() if getattr(config, name) != needed]:
        raise RamifyError(
            f"{_settings(vars(config), other)} {'have' if len(other) > 1 else 'has'} no Hugging Face form: its {family.name} "
            "has post-norm layers, learned positions, and embeddings that are normalized but not scaled. Train a model with "
            f"{_settings(WRITTEN, other)} (ramify train bert --published)."
        )
    if (config.shared_layers, config.embedding_dim is not None) != (kind == "albert",) * 2:
        raise RamifyError(
            f"{_settings(vars(config), ('shared_layers', 'embedding_dim'))} has no Hugging Face form: ALBERT shares its layers "
            "and has embeddings of a width of their own, and the others have neither. Train a model with both, such as "
            "model.shared_layers=true and model.embedding_dim=128, or with neither."
        )
    if kind == "albert" and not config.type_vocab_size:
        raise RamifyError(
            "model.type_vocab_size=0 has no Hugging Face form, whose ALBERT has token types. Train a model with "
            "model.type_vocab_size=2."
        )
    if kind == "roberta" and config.activation != "gelu":
        raise RamifyError(
            f"model.activation={config.activation} has no Hugging Face form: the head of RoBERTa has gelu. Train a model with "
            "model.activation=gelu, or with model.type_vocab_size=2, which is written as BERT."
        )
    width = {} if config.embedding_dim is None else {"embedding_size": config.embedding_dim}
    return {
        "vocab_size": config.vocab_size,
        **width,
        "hidden_size": config.dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.ffn_dim,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "hidden_act": hf.activation_to_hf(config.activation),
        "max_position_embeddings": config.max_tokens,
        "type_vocab_size": config.type_vocab_size,
        "layer_norm_eps": config.eps,
    }


def _embedding_keys(config: BertConfig) -> dict[str, str]:
    """The names of the embeddings' tensors, Ramify's and BERT's."""
    keys = dict(bert_family.EMBEDDING_KEYS)
    if not config.type_vocab_size:
        del keys["types.weight"]
    if config.embedding_dim is not None:
        keys |= {f"projection.{kind}": f"projection.{kind}" for kind in ("weight", "bias")}
    return keys


def _backbone_from_hf(theirs: FamilyTensors, config: BertConfig) -> dict[str, Tensor]:
    """The encoder's parameters under Ramify's names, with the pooler if the model has one."""
    ours = {f"embeddings.{name}": theirs[f"embeddings.{there}"] for name, there in _embedding_keys(config).items()}
    ours["embedding.weight"] = ours["embeddings.tokens.weight"]
    ours["embeddings.positions.weight"] = bert_family.first_positions(ours["embeddings.positions.weight"], config.max_tokens)
    for number in range(1 if config.shared_layers else config.num_layers):
        ours |= {f"stack.layers.{number}.{key}": value for key, value in theirs.layer(number).items()}
    if config.pooling == "pooler":
        theirs.require(
            [*bert_family.POOLER_KEYS.values()],
            ", which model.pooling=pooler needs. Set model.pooling=mean and task.next_sentence=0, or choose a checkpoint with "
            "a pooler.",
        )
        ours |= {f"pool.{name}": theirs[there] for name, there in bert_family.POOLER_KEYS.items()}
    return ours


def _backbone_to_hf(model: PortableModel[BertConfig]) -> dict[str, Tensor]:
    """The encoder's tensors under BERT's names, without the pooler."""
    ours = model.backbone
    theirs = {f"embeddings.{there}": ours[f"embeddings.{name}"] for name, there in _embedding_keys(model.config).items()}
    for number in range(1 if model.config.shared_layers else model.config.num_layers):
        prefix = f"stack.layers.{number}."
        layer = {key.removeprefix(prefix): tensor for key, tensor in ours.items() if key.startswith(prefix)}
        theirs |= bert_family.layer_to_bert(layer, number)
    return theirs


def from_pretrained(source: str | Path, **changes: Any) -> Bert:
    """Build a Bert from a Hugging Face directory or hub id. `changes` override fields of its config."""
    directory = hf.locate(source)
    model = replace(ADAPTER.read_config(directory), **changes).build()
    load_pretrained(model, Checkpoint(str(source), directory, None))
    return model


def load_pretrained(model: Bert, checkpoint: Checkpoint) -> None:
    """Load the weights of a checkpoint of the BERT family. Attention pooling, which none holds, stays unchanged."""
    pool = {f"pool.{key}": value for key, value in model.pool.state_dict().items()}
    load_strictly(model.state_dict(), pool | {**ADAPTER.read(checkpoint, model.config).backbone}, checkpoint.directory)
