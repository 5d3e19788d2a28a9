"""The Transformer (Vaswani et al. 2017): an encoder and a decoder that reads it, or a decoder alone (Radford et al. 2018);
and the Hugging Face forms of GPT-2 and T5."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ramify.batching.encoder_input import EncoderInput
from ramify.batching.pair_batch import PairBatch
from ramify.errors import RamifyError, counted
from ramify.models import hf
from ramify.models.base import (
    RATES,
    Checkpoint,
    Encoded,
    GenerativeBackbone,
    GenerativeModelConfig,
    Read,
    check_config,
    checked_source,
    kept_positions,
)
from ramify.models.hf_adapter import ForeignFiles, HFAdapter, PortableModel
from ramify.models.hf_heads import Forms, HeadForm, form_of, head_settings, head_tensors, read_head
from ramify.nn.attention import AttentionRecord
from ramify.nn.blocks import Activation, ContextVectors, LayerPrefixes, Norm, NormKind, Stack, States, causal_mask, under
from ramify.nn.cache import Cache, KeyValueCache
from ramify.nn.embeddings import Embeddings, PositionTable
from ramify.nn.pooling import Pool
from ramify.nn.ragged import right_aligned
from ramify.nn.recurrent import final_states
from ramify.nn.relative import DistanceScores
from ramify.tensors import load_strictly
from ramify.tokenizer import Role, TextLayout

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
    position: Literal["learned", "sinusoidal", "relative"] = "sinusoidal"
    """learned, sinusoidal: a vector of each position is added to the embeddings. relative: a learned score of each distance is
    added to those of self-attention, as in T5."""
    distance_buckets: int = 32
    """Number of scores of distances per head. Great distances share them. Only position=relative has them."""
    max_distance: int = 128
    """Distances from this one on share a score."""
    scale_embedding: bool = True
    """Whether token vectors are multiplied by the root of `dim` (section 3.4)."""
    share_embeddings: bool = True
    """Whether sources and targets share one token embedding."""
    attention_scale: AttentionScale = "root"
    """root: scores are divided by the root of a head's size. none: they are not."""
    max_tokens: int = 512
    """Maximum length of a source, and of a target, in tokens."""
    eps: float = 1e-5
    norm_kind: NormKind = "layer"
    """rms: every LayerNorm is a root mean square norm, as in T5."""
    bias: bool = True
    """Whether linear maps have a bias. Those of T5 have none."""
    scale_states: bool = False
    """Whether the decoder's states are divided by the root of `dim`, as in T5 1.0."""
    gated: bool = False
    """Whether feed-forward layers multiply the activation by another linear map of their input, as in T5 1.1."""
    head_dim: int | None = None
    """Size of a head; null: `dim` / `num_heads`. All heads together may be wider than `dim`, as in T5 1.1's small model."""

    def __post_init__(self) -> None:
        check_config(self, encoder_layers=0, distance_buckets=4)
        if self.max_distance <= self.distance_buckets // 2:
            raise RamifyError(
                f"model.max_distance={self.max_distance} must be greater than half of model.distance_buckets="
                f"{self.distance_buckets}, because the smallest distances have a bucket each. Raise model.max_distance."
            )

    def build(self) -> "Transformer":
        return Transformer(self)

    def for_vocabulary(self, size: int) -> "TransformerConfig":
        return replace(self, vocab_size=size)

    def adapted_to(self, checkpoint: Checkpoint) -> "TransformerConfig":
        if checkpoint.model is None:
            return replace(ADAPTER.read_config(checkpoint.directory), **{name: getattr(self, name) for name in RATES})
        return checkpoint.saved_as(self, "a GPT-2 or T5 checkpoint in Hugging Face's form")

    def initialize(self, backbone: "Transformer", checkpoint: Checkpoint) -> None:
        if checkpoint.model is None:
            hf.require(self, vars(self.adapted_to(checkpoint)), checkpoint.source)
            load_strictly(backbone.state_dict(), ADAPTER.read(checkpoint, self).backbone, checkpoint.source)
            return
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
            self.encoder = self._stack(config.encoder_layers, causal=False)
        self.target_embeddings = self._embeddings(self.embedding)
        self.decoder = self._stack(config.decoder_layers, causal=True)
        self.pool = Pool("mean", config.dim)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
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
            position=None if config.position == "relative" else config.position,
            scale=config.scale_embedding,
            norm=False,
            dropout=config.dropout,
        )

    def _stack(self, num_layers: int, *, causal: bool) -> Stack:
        config = self.config
        distances = None
        if config.position == "relative":
            distances = DistanceScores(config.num_heads, config.distance_buckets, config.max_distance, causal=causal)
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
            cross=causal and config.encoder_layers > 0,
            scale=None if config.attention_scale == "root" else 1.0,
            norm_kind=config.norm_kind,
            bias=config.bias,
            gated=config.gated,
            head_dim=config.head_dim,
            distances=distances,
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
        return final_states(encoded.last, encoded.rows, "forward")

    def forward(self, batch: PairBatch, record: AttentionRecord | None = None) -> Float[Tensor, "total dim"]:
        rows = batch.target.rows
        context = None
        if batch.source is not None or self.reads_source:
            source = self._read_source(batch.source, len(rows), record)
            context = ContextVectors.of_rows(source.last, source.rows, rows)
        weights = None if record is None else record.setdefault("decoder", [])
        x = self._embed(batch.target, self.target_embeddings, "text")
        return self._scaled(self.decoder(x, rows, context, allowed=causal_mask(rows), record=weights))

    def _scaled(self, states: Float[Tensor, "token dim"]) -> Float[Tensor, "token dim"]:
        return states * self.config.dim**-0.5 if self.config.scale_states else states

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
        source = checked_source(source, count, encoder_layers=self.config.encoder_layers)
        if empty := int((source.rows.host_lengths == 0).sum()):
            raise RamifyError(
                f"source holds {counted(empty, 'text')} without tokens, from which nothing can be predicted. Leave such "
                "texts out."
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
        cache = KeyValueCache(self.config.decoder_layers, begins, ids.device, sources=sources)
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
        return self._scaled(x.view(*ids.shape, self.config.dim)[:, -1]), cache


# --- Hugging Face: GPT-2 (Radford et al. 2019) and T5 (Raffel et al. 2020) --------------------------------------------

Names = tuple[str, ...]

WEIGHT, BOTH = ("weight",), ("weight", "bias")

LABEL_ROLES: dict[str, Role] = {"pad_token_id": "pad"}
"""A classifier finds the last token of a row before its padding."""

OUTPUT = "lm_head.weight"
"""The output map. It is left out, or a copy of the token embedding, if the two are tied."""


class Form(ABC):
    """A Hugging Face form of a Transformer with a head that predicts words."""

    model_type: str
    classes: str
    """The beginning of the names of its classes."""
    ending: str
    """The end of the name of the class with a head that predicts words."""
    sizes: ClassVar[Mapping[str, str]]
    """Hugging Face's names of whole numbers that a config must state, and Ramify's."""
    needed: ClassVar[Mapping[str, tuple[Any, str]]]
    """The only supported values of some settings of Hugging Face, and the effect of any other."""
    form: ClassVar[Mapping[str, Any]]
    """The settings of all Transformers of this form."""
    prefix: str
    """That of all names of tensors but the output map's; checkpoints may leave it out."""
    unread: Names
    """The ends of names of tensors that checkpoints hold in vain."""
    turned: bool
    """Whether linear maps are stored the other way round."""
    always_tied: bool
    """Whether the output map is the token embedding if a checkpoint has none, whatever its config says."""
    layout: TextLayout
    """The special tokens around a text."""
    begins_prompts: bool
    """Whether a token stands before every text that is predicted."""
    roles: ClassVar[Mapping[str, Role]]
    """The special tokens that config.json states, by the names of their ids."""
    label_heads: ClassVar[Forms]
    """Its heads on labelled texts."""

    @abstractmethod
    def settings_from(self, theirs: Mapping[str, Any]) -> dict[str, Any]:
        """Ramify's settings beside the sizes and those of the form."""

    @abstractmethod
    def settings_to(self, config: TransformerConfig) -> dict[str, Any]:
        """Hugging Face's settings beside the sizes."""

    @abstractmethod
    def untied(self, config: TransformerConfig) -> dict[str, Any]:
        """Hugging Face's settings of a model whose output map is not the token embedding. Raises `RamifyError` if it has no
        such model."""

    def input_from(self, config: TransformerConfig) -> dict[str, Any]:
        """The settings of the input."""
        return {
            "max_tokens": config.max_tokens,
            "max_source_tokens": config.max_tokens,
            "layout": self.layout,
            "begin": self.begins_prompts,
        }

    @abstractmethod
    def names(self, config: TransformerConfig) -> list[tuple[Names, Names]]:
        """Ramify's names of tensors and Hugging Face's. Those on both sides are parts of the same matrix or vector."""

    def read_config(self, directory: Path) -> TransformerConfig:
        theirs, path = hf.read_config(directory), directory / hf.CONFIG
        if missing := [name for name in self.sizes if type(theirs.get(name)) is not int]:
            raise RamifyError(
                f"{path}: {', '.join(missing)} must be whole numbers, so the checkpoint is not complete. Download it again."
            )
        hf.check_settings(path, theirs, self.needed, self.model_type)
        sizes = {ours: theirs[name] for name, ours in self.sizes.items()}
        return TransformerConfig(**{**self.form, **sizes, **self.settings_from(theirs)})

    def read(self, checkpoint: Checkpoint, config: TransformerConfig) -> PortableModel[TransformerConfig]:
        path = checkpoint.directory / hf.CONFIG
        label_head = read_head(hf.read_config(checkpoint.directory), path, self.label_heads, checkpoint.tensor)
        if label_head is not None:
            backbone, _ = self._from_theirs(checkpoint, config, self.label_heads[label_head.kind].names)
            input = {"max_tokens": config.max_tokens, "layout": self.layout}
            return PortableModel(config, backbone, input=input, label_head=label_head)
        if not self.always_tied:
            hf.require_output(path, checkpoint.tensors, OUTPUT)
        backbone, output = self._from_theirs(checkpoint, config)
        tied = torch.equal(output, backbone["embedding.weight"])
        # The output maps of these forms have no bias.
        heads = {"head.bias": output.new_zeros(len(output))} | ({} if tied else {"head.weight": output})
        return PortableModel(config, backbone, heads, {"tie_weights": tied, "output_bias": False}, self.input_from(config))

    def write(self, model: PortableModel[TransformerConfig]) -> ForeignFiles:
        config = model.config
        if other := [name for name, needed in self.form.items() if getattr(config, name) != needed]:
            given, needed = (
                " and ".join(f"model.{name}={json.dumps(value[name]).strip(chr(34))}" for name in other)
                for value in (vars(config), self.form)
            )
            raise RamifyError(
                f"{given} has no Hugging Face form, which is that of {self.model_type}. Train a model with {needed}."
            )
        settings: dict[str, Any] = {
            "model_type": self.model_type,
            **{name: getattr(config, ours) for name, ours in self.sizes.items()},
            **self.settings_to(config),
        }
        tensors = {f"{self.prefix}{name}": tensor for name, tensor in self._to_theirs(model.backbone, config).items()}
        # A tokenizer may begin texts that have no special tokens otherwise.
        layouts = (self.layout, "begin") if self.layout == "plain" else (self.layout,)
        layout = model.input["layout"]
        if model.label_head is not None:
            if layout not in layouts:
                raise RamifyError(
                    f"input.layout={layout} has no Hugging Face form, whose {self.model_type} reads the layout {self.layout}. "
                    f"Train a model with input.layout={self.layout}."
                )
            form = form_of(self.label_heads, model.label_head.kind, self.model_type)
            settings |= {"architectures": [f"{self.classes}{form.ending}"], **head_settings(model.label_head)}
            tensors |= head_tensors(form, model.label_head)
            longest = {"model_max_length": model.input["max_tokens"]}
            return ForeignFiles(settings, tensors, layout, longest, {**self.roles, **LABEL_ROLES})
        if model.task["output_bias"]:
            raise RamifyError(
                f"task.output_bias=true adds a bias to the output map, but that of {self.model_type} has none. Train a model "
                "with task.output_bias=false, or save this one in Ramify's form."
            )
        settings["architectures"] = [f"{self.classes}{self.ending}"]
        if not model.task["tie_weights"]:
            settings |= self.untied(config)
            tensors[OUTPUT] = model.heads["head.weight"]
        layout = layout if layout in layouts else self.layout
        return ForeignFiles(settings, tensors, layout, {"model_max_length": config.max_tokens}, self.roles)

    def _turn(self, tensor: Tensor, ours: str) -> Tensor:
        """A tensor in the other form."""
        linear = ".layers." in ours and tensor.dim() == 2
        return tensor.t() if self.turned and linear else tensor

    def _from_theirs(
        self, checkpoint: Checkpoint, config: TransformerConfig, head: Names = ()
    ) -> tuple[dict[str, Tensor], Float[Tensor, "vocab dim"]]:
        """The backbone's tensors under Ramify's names, and the output map. `head` are the names of other tensors.

        Raises `RamifyError` for missing and surplus tensors.
        """
        read = (name for name in checkpoint.tensors if name not in head and not name.endswith(self.unread))
        stored = {name.removeprefix(self.prefix): name for name in read}
        names = self.names(config)
        expected = {name for _, theirs in names for name in theirs}
        surplus = {stored[name] for name in stored.keys() - expected - {OUTPUT}}
        problems = [
            f"{problem} {hf.listed(sorted(listed))}"
            for problem, listed in (("holds no tensor", expected - stored.keys()), ("also holds", surplus))
            if listed
        ]
        if problems:
            raise RamifyError(
                f"the checkpoint {checkpoint.source} {' and '.join(problems)}, so it is not the {self.model_type} that its "
                "config.json describes. Download it again, or choose another one."
            )
        tensors = {name: checkpoint.tensors[there] for name, there in stored.items()}
        ours: dict[str, Tensor] = {}
        for here, there in names:
            parts = [self._turn(tensors[name], here[0]) for name in there]
            joined = parts[0] if len(parts) == 1 else torch.cat(parts)
            # Of three equal parts, keys and values have two.
            split = [joined] if len(here) == 1 else joined.split([len(joined) // 3, 2 * len(joined) // 3])
            ours |= {name: part.contiguous() for name, part in zip(here, split, strict=True)}
        for kind in ("source", "target") if config.encoder_layers else ("target",):
            ours[f"{kind}_embeddings.tokens.weight"] = ours["embedding.weight"]
        return ours, tensors.get(OUTPUT, ours["embedding.weight"])

    def _to_theirs(self, ours: Mapping[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
        theirs: dict[str, Tensor] = {}
        for here, there in self.names(config):
            joined = ours[here[0]] if len(here) == 1 else torch.cat([ours[name] for name in here])
            parts = zip(there, joined.chunk(len(there)), strict=True)
            theirs |= {name: self._turn(part, here[0]).contiguous() for name, part in parts}
        return theirs


def _kinds(here: str, there: str, kinds: Names) -> list[tuple[Names, Names]]:
    return [((f"{here}.{kind}",), (f"{there}.{kind}",)) for kind in kinds]


class GPT2Form(Form):
    """Reads and writes `GPT2LMHeadModel`."""

    model_type = "gpt2"
    classes, ending = "GPT2", "LMHeadModel"
    sizes: ClassVar[Mapping[str, str]] = {
        "vocab_size": "vocab_size",
        "n_embd": "dim",
        "n_head": "num_heads",
        "n_layer": "decoder_layers",
        "n_positions": "max_tokens",
    }
    needed: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "scale_attn_weights": (True, "leaves scores as they are"),
        "scale_attn_by_inverse_layer_idx": (False, "divides the scores of each layer by its number"),
        "add_cross_attention": (False, "adds a source, which no GPT-2 is trained with"),
    }
    form: ClassVar[Mapping[str, Any]] = {
        "encoder_layers": 0,
        "norm": "pre",
        "norm_kind": "layer",
        "bias": True,
        "gated": False,
        "head_dim": None,
        "position": "learned",
        "scale_embedding": False,
        "scale_states": False,
        "attention_scale": "root",
    }
    prefix = "transformer."
    # The causal mask of every layer.
    unread = (".attn.bias", ".attn.masked_bias")
    turned = True
    always_tied = False
    layout = "plain"
    begins_prompts = False
    roles: ClassVar[Mapping[str, Role]] = {"bos_token_id": "begin", "eos_token_id": "stop"}
    label_heads: ClassVar[Forms] = {
        "rows": HeadForm("ForSequenceClassification", "score", ("last", "vector"), bias=False),
        "tokens": HeadForm("ForTokenClassification", "classifier"),
        "answers": HeadForm("ForQuestionAnswering", "qa_outputs"),
    }

    def settings_from(self, theirs: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "ffn_dim": theirs.get("n_inner") or 4 * theirs["n_embd"],
            "dropout": theirs.get("resid_pdrop", 0.1),
            "attention_dropout": theirs.get("attn_pdrop", 0.1),
            "activation": hf.activation(theirs, "activation_function", "gelu_new"),
            "eps": theirs.get("layer_norm_epsilon", 1e-5),
        }

    def settings_to(self, config: TransformerConfig) -> dict[str, Any]:
        return {
            "n_inner": config.ffn_dim,
            "activation_function": hf.activation_to_hf(config.activation),
            "resid_pdrop": config.dropout,
            "embd_pdrop": config.dropout,
            "attn_pdrop": config.attention_dropout,
            "layer_norm_epsilon": config.eps,
        }

    def untied(self, config: TransformerConfig) -> dict[str, Any]:
        return {"tie_word_embeddings": False}

    def names(self, config: TransformerConfig) -> list[tuple[Names, Names]]:
        names = [
            *_kinds("embedding", "wte", WEIGHT),
            *_kinds("target_embeddings.positions", "wpe", WEIGHT),
            *_kinds("decoder.final_norm", "ln_f", BOTH),
        ]
        for number in range(config.decoder_layers):
            here, there = f"decoder.layers.{number}.", f"h.{number}."
            for kind in BOTH:
                projections = tuple(f"{here}attention.{name}.{kind}" for name in ("query", "key_value"))
                names.append((projections, (f"{there}attn.c_attn.{kind}",)))
            names += _kinds(f"{here}attention_norm", f"{there}ln_1", BOTH)
            names += _kinds(f"{here}attention.out", f"{there}attn.c_proj", BOTH)
            names += _kinds(f"{here}ffn_norm", f"{there}ln_2", BOTH)
            names += _kinds(f"{here}ffn_in", f"{there}mlp.c_fc", BOTH)
            names += _kinds(f"{here}ffn_out", f"{there}mlp.c_proj", BOTH)
        return names


GATED = "gated-"
"""The beginning of T5's names of feed-forward layers with a gate. The name of the activation follows."""


class T5Form(Form):
    """Reads and writes `T5ForConditionalGeneration`, of versions 1.0 and 1.1."""

    model_type = "t5"
    classes, ending = "T5", "ForConditionalGeneration"
    sizes: ClassVar[Mapping[str, str]] = {
        "vocab_size": "vocab_size",
        "d_model": "dim",
        "num_heads": "num_heads",
        "d_ff": "ffn_dim",
        "num_layers": "encoder_layers",
    }
    needed: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "is_encoder_decoder": (True, "has no decoder"),
    }
    form: ClassVar[Mapping[str, Any]] = {
        "norm": "pre",
        "norm_kind": "rms",
        "bias": False,
        "position": "relative",
        "scale_embedding": False,
        "share_embeddings": True,
        "attention_scale": "none",
    }
    prefix = ""
    # Copies of the token embedding, and a table of distances to the source that nothing reads.
    unread = ("embed_tokens.weight", "EncDecAttention.relative_attention_bias.weight")
    turned = False
    always_tied = True
    layout = "t5"
    begins_prompts = True
    roles: ClassVar[Mapping[str, Role]] = {
        "pad_token_id": "pad",
        "decoder_start_token_id": "begin",
        "eos_token_id": "stop",
    }
    label_heads: ClassVar[Forms] = {}

    def settings_from(self, theirs: Mapping[str, Any]) -> dict[str, Any]:
        size, projection = theirs.get("d_kv", 64), theirs.get("feed_forward_proj", "relu")
        gated = projection.startswith(GATED)
        # As in transformers: gated-gelu is the approximation, and the newer setting is the one that counts.
        named = {"feed_forward_proj": "gelu_new" if projection == "gated-gelu" else projection.removeprefix(GATED)}
        setting = "dense_act_fn" if "dense_act_fn" in theirs else "feed_forward_proj"
        return {
            "activation": hf.activation({**theirs, **named}, setting, "relu"),
            "gated": theirs.get("is_gated_act", gated),
            "head_dim": None if size * theirs["num_heads"] == theirs["d_model"] else size,
            "decoder_layers": theirs.get("num_decoder_layers") or theirs["num_layers"],
            "dropout": theirs.get("dropout_rate", 0.1),
            "attention_dropout": theirs.get("dropout_rate", 0.1),
            "distance_buckets": theirs.get("relative_attention_num_buckets", 32),
            "max_distance": theirs.get("relative_attention_max_distance", 128),
            "max_tokens": theirs.get("n_positions", 512),
            "eps": theirs.get("layer_norm_epsilon", 1e-6),
            "scale_states": theirs.get("scale_decoder_outputs", theirs.get("tie_word_embeddings", True)),
        }

    def settings_to(self, config: TransformerConfig) -> dict[str, Any]:
        name = hf.activation_to_hf(config.activation)
        if config.gated:
            # The plain name is that of the approximation.
            name = {"gelu_tanh": f"{GATED}gelu", "gelu": f"{GATED}gelu_python"}.get(config.activation, GATED + name)
        return {
            "d_kv": config.head_dim or config.dim // config.num_heads,
            "num_decoder_layers": config.decoder_layers,
            "dropout_rate": config.dropout,
            "relative_attention_num_buckets": config.distance_buckets,
            "relative_attention_max_distance": config.max_distance,
            "n_positions": config.max_tokens,
            "layer_norm_epsilon": config.eps,
            "feed_forward_proj": name,
            "tie_word_embeddings": config.scale_states,
        }

    def untied(self, config: TransformerConfig) -> dict[str, Any]:
        if config.scale_states:
            raise RamifyError(
                "task.tie_weights=false with model.scale_states=true has no Hugging Face form, whose t5 scales its states only "
                "if the output map is the token embedding. Train a model with model.scale_states=false."
            )
        return {}

    def names(self, config: TransformerConfig) -> list[tuple[Names, Names]]:
        names = _kinds("embedding", "shared", WEIGHT)
        for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
            distances = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"
            names += _kinds(f"{stack}.distances.table", distances, WEIGHT)
            names += _kinds(f"{stack}.final_norm", f"{stack}.final_layer_norm", WEIGHT)
            attentions = [("attention", "SelfAttention"), *([("cross", "EncDecAttention")] if stack == "decoder" else [])]
            for number in range(layers):
                here, there = f"{stack}.layers.{number}.", f"{stack}.block.{number}.layer."
                for place, (ours, theirs) in enumerate(attentions):
                    inside = f"{there}{place}.{theirs}."
                    names += _kinds(f"{here}{ours}.query", f"{inside}q", WEIGHT)
                    names.append(((f"{here}{ours}.key_value.weight",), (f"{inside}k.weight", f"{inside}v.weight")))
                    names += _kinds(f"{here}{ours}.out", f"{inside}o", WEIGHT)
                    names += _kinds(f"{here}{ours}_norm", f"{there}{place}.layer_norm", WEIGHT)
                last = f"{there}{len(attentions)}."
                if config.gated:
                    names += _kinds(f"{here}ffn_in", f"{last}DenseReluDense.wi_0", WEIGHT)
                    names += _kinds(f"{here}ffn_gate", f"{last}DenseReluDense.wi_1", WEIGHT)
                else:
                    names += _kinds(f"{here}ffn_in", f"{last}DenseReluDense.wi", WEIGHT)
                names += _kinds(f"{here}ffn_out", f"{last}DenseReluDense.wo", WEIGHT)
                names += _kinds(f"{here}ffn_norm", f"{last}layer_norm", WEIGHT)
        return names


GPT2, T5 = GPT2Form(), T5Form()

FORMS: dict[str, Form] = {form.model_type: form for form in (GPT2, T5)}
"""The forms by their `model_type`."""


class TransformerAdapter(HFAdapter[TransformerConfig]):
    """Reads and writes `GPT2LMHeadModel` and `T5ForConditionalGeneration`. A model with an encoder is written as T5."""

    @property
    def model(self) -> type[TransformerConfig]:
        return TransformerConfig

    def read_config(self, directory: Path) -> TransformerConfig:
        return self._form(directory).read_config(directory)

    def read(self, checkpoint: Checkpoint, config: TransformerConfig) -> PortableModel[TransformerConfig]:
        return self._form(checkpoint.directory).read(checkpoint, config)

    def write(self, model: PortableModel[TransformerConfig]) -> ForeignFiles:
        return (T5 if model.config.encoder_layers else GPT2).write(model)

    def _form(self, directory: Path) -> Form:
        name = hf.read_config(directory).get("model_type")
        if name not in [*FORMS]:
            raise RamifyError(
                f"{directory / hf.CONFIG}: model_type={name!r} is not one of {', '.join(FORMS)}. Choose another checkpoint."
            )
        return FORMS[name]


ADAPTER = TransformerAdapter()
