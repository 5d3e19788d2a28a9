"""The Transformer (Vaswani et al. 2017): an encoder and a decoder that reads it, or a decoder alone (Radford et al. 2018);
and the Hugging Face form of GPT-2."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

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
    kept_positions,
)
from ramify.models.hf_adapter import ForeignFiles, HFAdapter, PortableModel
from ramify.nn.attention import AttentionRecord
from ramify.nn.blocks import Activation, ContextVectors, LayerPrefixes, Norm, NormKind, Stack, States, causal_mask, under
from ramify.nn.cache import Cache, KeyValueCache
from ramify.nn.embeddings import Embeddings, PositionTable
from ramify.nn.pooling import Pool
from ramify.nn.ragged import right_aligned
from ramify.nn.relative import DistanceScores
from ramify.tensors import load_strictly

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
    """Whether the decoder's states are divided by the root of `dim`, as in T5."""

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
        return checkpoint.saved_as(self, "a GPT-2 checkpoint in Hugging Face's form")

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
        return self._scaled(x.view(*ids.shape, self.config.dim)[:, -1]), cache


# --- Hugging Face: GPT-2 (Radford et al. 2019) ------------------------------------------------------------------------

MODEL_TYPE = "gpt2"

SIZES = {
    "vocab_size": "vocab_size",
    "n_embd": "dim",
    "n_head": "num_heads",
    "n_layer": "decoder_layers",
    "n_positions": "max_tokens",
}

NEEDED = {
    "scale_attn_weights": (True, "leaves scores as they are"),
    "scale_attn_by_inverse_layer_idx": (False, "divides the scores of each layer by its number"),
    "add_cross_attention": (False, "adds a source, which no GPT-2 is trained with"),
}
"""The only supported values of some settings, and the effect of any other."""

FORM = {
    "encoder_layers": 0,
    "norm": "pre",
    "final_norm": False,
    "position": "learned",
    "scale_embedding": False,
    "attention_scale": "root",
}
"""The settings that make a Transformer a GPT-2. A pre-norm stack ends with a LayerNorm anyway."""

LAYER_KEYS = {
    "attention_norm": "ln_1",
    "attention.out": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_in": "mlp.c_fc",
    "ffn_out": "mlp.c_proj",
}
ATTENTION_KEY = "attn.c_attn"
"""Queries, keys and values in one map."""


class GPT2Adapter(HFAdapter[TransformerConfig]):
    """Reads and writes `GPT2LMHeadModel`."""

    @property
    def model(self) -> type[TransformerConfig]:
        return TransformerConfig

    def read_config(self, directory: Path) -> TransformerConfig:
        theirs, path = hf.read_config(directory), directory / hf.CONFIG
        if theirs.get("model_type") != MODEL_TYPE:
            raise RamifyError(f"{path}: model_type={theirs.get('model_type')!r} is not gpt2. Choose another checkpoint.")
        if missing := [name for name in SIZES if type(theirs.get(name)) is not int]:
            raise RamifyError(
                f"{path}: {', '.join(missing)} must be whole numbers, so the checkpoint is not complete. Download it again."
            )
        hf.check_settings(path, theirs, NEEDED, "GPT-2")
        return TransformerConfig(
            **{ours: theirs[name] for name, ours in SIZES.items()},
            **FORM,
            ffn_dim=theirs.get("n_inner") or 4 * theirs["n_embd"],
            dropout=theirs.get("resid_pdrop", 0.1),
            attention_dropout=theirs.get("attn_pdrop", 0.1),
            activation=hf.activation(theirs.get("activation_function", "gelu_new")),
            eps=theirs.get("layer_norm_epsilon", 1e-5),
        )

    def read(self, checkpoint: Checkpoint, config: TransformerConfig) -> PortableModel[TransformerConfig]:
        backbone, output = _from_gpt2(checkpoint.tensors, config, checkpoint.source)
        tied = torch.equal(output, backbone["embedding.weight"])
        # GPT-2's output map has no bias.
        heads = {"head.bias": output.new_zeros(len(output))} | ({} if tied else {"head.weight": output})
        return PortableModel(config, backbone, heads, {"tie_weights": tied}, {"max_tokens": config.max_tokens})

    def write(self, model: PortableModel[TransformerConfig]) -> ForeignFiles:
        config = model.config
        if other := [name for name, needed in FORM.items() if getattr(config, name) != needed]:
            given, needed = (
                " and ".join(f"model.{name}={json.dumps(value[name]).strip(chr(34))}" for name in other)
                for value in (vars(config), FORM)
            )
            raise RamifyError(f"{given} has no Hugging Face form, which is that of GPT-2. Train a model with {needed}.")
        if not model.task["tie_weights"]:
            raise RamifyError(
                "task.tie_weights=false has no Hugging Face form, whose output map is the token embedding. Train a model with "
                "task.tie_weights=true."
            )
        if model.heads["head.bias"].any():
            raise RamifyError(
                "the output map has a bias, but GPT-2's has none, so this model has no Hugging Face form. Save it in Ramify's."
            )
        settings = {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": MODEL_TYPE,
            **{name: getattr(config, ours) for name, ours in SIZES.items()},
            "n_inner": config.ffn_dim,
            "activation_function": hf.activation_to_hf(config.activation),
            "resid_pdrop": config.dropout,
            "embd_pdrop": config.dropout,
            "attn_pdrop": config.attention_dropout,
            "layer_norm_epsilon": config.eps,
        }
        tensors = _to_gpt2(model.backbone, config)
        return ForeignFiles(settings, tensors, "plain", {"model_max_length": config.max_tokens})


ADAPTER = GPT2Adapter()


def _names(config: TransformerConfig) -> dict[str, str]:
    """Ramify's names of the parameters that both forms have, and GPT-2's."""
    names = {
        "embedding.weight": "wte.weight",
        "target_embeddings.positions.weight": "wpe.weight",
        **{f"decoder.final_norm.{kind}": f"ln_f.{kind}" for kind in ("weight", "bias")},
    }
    for number in range(config.decoder_layers):
        for ours, theirs in LAYER_KEYS.items():
            for kind in ("weight", "bias"):
                names[f"decoder.layers.{number}.{ours}.{kind}"] = f"h.{number}.{theirs}.{kind}"
    return names


def _turned(name: str, tensor: Tensor) -> Tensor:
    """A parameter in the other form: GPT-2's linear maps are stored the other way round."""
    return tensor.t() if name.startswith("h.") and tensor.dim() == 2 else tensor


def _from_gpt2(
    theirs: Mapping[str, Tensor], config: TransformerConfig, source: str | Path
) -> tuple[dict[str, Tensor], Float[Tensor, "vocab dim"]]:
    """The backbone's tensors under Ramify's names, and the output map. Raises `RamifyError` for missing and surplus tensors."""
    prefix = "transformer."
    # Published checkpoints hold the causal mask of every layer, and have no prefix.
    left = {name.removeprefix(prefix): name for name in theirs if not name.endswith((".attn.bias", ".attn.masked_bias"))}
    names = _names(config)
    joint = {number: f"h.{number}.{ATTENTION_KEY}" for number in range(config.decoder_layers)}
    expected = {*names.values(), *(f"{name}.{kind}" for name in joint.values() for kind in ("weight", "bias"))}
    problems = [
        f"{problem} {hf.listed(sorted(listed))}"
        for problem, listed in (
            ("holds no tensor", expected - left.keys()),
            ("also holds", {left[name] for name in left.keys() - expected - {"lm_head.weight"}}),
        )
        if listed
    ]
    if problems:
        raise RamifyError(
            f"the checkpoint {source} {' and '.join(problems)}, so it is not the GPT-2 that its config.json describes. "
            "Download it again, or choose another one."
        )
    tensors = {name: theirs[there] for name, there in left.items()}
    ours = {name: _turned(there, tensors[there]) for name, there in names.items()}
    ours["target_embeddings.tokens.weight"] = ours["embedding.weight"]
    for number, name in joint.items():
        for kind in ("weight", "bias"):
            query, *key_value = _turned(f"{name}.{kind}", tensors[f"{name}.{kind}"]).chunk(3)
            ours[f"decoder.layers.{number}.attention.query.{kind}"] = query
            ours[f"decoder.layers.{number}.attention.key_value.{kind}"] = torch.cat(key_value)
    output = tensors.get("lm_head.weight", ours["embedding.weight"])
    return {name: tensor.contiguous() for name, tensor in ours.items()}, output


def _to_gpt2(ours: Mapping[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
    theirs = {there: _turned(there, ours[name]) for name, there in _names(config).items()}
    for number in range(config.decoder_layers):
        for kind in ("weight", "bias"):
            parts = [ours[f"decoder.layers.{number}.attention.{name}.{kind}"] for name in ("query", "key_value")]
            name = f"h.{number}.{ATTENTION_KEY}.{kind}"
            theirs[name] = _turned(name, torch.cat(parts))
    return {f"transformer.{name}": tensor.contiguous() for name, tensor in theirs.items()}
