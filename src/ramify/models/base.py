"""The contract of models: a config builds a backbone, which turns a batch into hidden states."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ramify.batching.batch import Batch
from ramify.batching.views.comment_trees import Context, TextInput
from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.models import hf
from ramify.nn.blocks import Activation
from ramify.nn.ragged import Rows, keep_eager, runs
from ramify.tensors import load_strictly

State = Mapping[str, Tensor]
"""The detached tensors that the next batch of the same rows continues from (memories, caches)."""

RATES = ("dropout", "attention_dropout")
"""Settings in which a model may differ from the checkpoint that it starts from."""

BERT_FAMILY = "a BERT-family checkpoint in Hugging Face's form"

NO_DECODER = "init_decoder=false is for tree-mlm runs that start from a BERT-family checkpoint (--init)."

BACKBONE = "backbone."
"""The prefix of a backbone's tensors in a saved task."""


def check_config(config: Any, **minimums: int) -> None:
    """Raise `RamifyError` if a model's config holds a size, a rate or a constant with which no model can be built.

    Whole numbers must be at least 1, or at least their `minimums`; `vocab_size` may be 0 until the tokenizer is known.
    """
    check_fields(config, "model.")
    settings = vars(config)
    minimums = {"vocab_size": 0} | minimums
    for name, value in settings.items():
        if type(value) is int and value < minimums.get(name, 1):
            raise RamifyError(f"model.{name} must be at least {minimums.get(name, 1)}, but is {value}.")
        if name in RATES and not 0 <= value < 1:
            raise RamifyError(f"model.{name} must be at least 0 and below 1, but is {value}.")
        if name == "eps" and value <= 0:
            raise RamifyError(f"model.eps must be positive, but is {value}.")
    if "num_heads" in settings and config.dim % config.num_heads:
        raise RamifyError(f"model.dim={config.dim} must be a multiple of model.num_heads={config.num_heads}.")


@dataclass(frozen=True)
class Hidden:
    """States of the targets' tokens; `positions` says which (None = all)."""

    tokens: Float[Tensor, "position dim"]
    positions: Int[Tensor, " position"] | None = None
    state: State | None = None


class AnyBackbone(nn.Module, ABC):
    """A body without a head."""

    config: Any
    """A `ModelConfig`; each model says which."""
    passes: tuple[str, ...] = ("forward",)
    """The methods through which training computes."""

    @property
    @abstractmethod
    def out_dim(self) -> int:
        """The length of a state."""

    def compile_passes(self) -> None:
        """`torch.compile` what training calls, once."""
        keep_eager()
        for name in self.passes:
            if name not in vars(self):
                setattr(self, name, torch.compile(getattr(self, name), dynamic=True))


class Backbone(AnyBackbone):
    """A body that gives states of tokens. Properties say what it can do."""

    @property
    @abstractmethod
    def reads_context(self) -> bool:
        """Whether a target reads other nodes' vectors, so that a whole tree's gradient can be computed chunk by chunk: nodes
        are encoded first (`encode`), and `forward` takes their vectors."""

    @property
    @abstractmethod
    def carries_state(self) -> bool:
        """Whether the next batch of the same rows continues from `Hidden.state`."""

    @property
    @abstractmethod
    def tied_embedding(self) -> nn.Embedding:
        """The token embedding that a head may share its weights with."""

    @abstractmethod
    def encode(self, ids: Int[Tensor, " total"], rows: Rows) -> Float[Tensor, "row dim"]:
        """A vector for every row of clean text, read alone."""

    @abstractmethod
    def forward(self, batch: Batch, state: State | None = None, vectors: Float[Tensor, "node dim"] | None = None) -> Hidden:
        """The final states of the targets' tokens, or of those that `batch.output_positions` names. A backbone that reads
        context encodes the batch's nodes, unless it is given their `vectors`."""

    @abstractmethod
    def pooled(self, hidden: Hidden, batch: Batch) -> Float[Tensor, "target dim"]:
        """One vector for every target, from all its tokens' states."""

    def in_context(self, input: TextInput, context: Context | None) -> TextInput:
        """A way of reading with another context (None: its own). Raises where this model cannot read that."""
        if context is None or context == input.context:
            return input
        if context == "null":
            raise RamifyError("only a model that was trained on its null row can read it: choose the context none.")
        if context != "none" and not (self.reads_context or input.concatenate):
            raise RamifyError(f"this {type(self).__name__} reads no context: choose the context none, not {context}.")
        return replace(input, context=context)


class ModelConfig(ABC):
    """The settings of a model: a frozen dataclass that builds it, and starts it from a checkpoint."""

    vocab_size: int
    """Rows of the token embedding; 0 before the tokenizer is known."""

    @abstractmethod
    def build(self) -> AnyBackbone:
        """A model of these sizes, with fresh weights."""

    @abstractmethod
    def adapted_to(self, checkpoint: "Checkpoint") -> Self:
        """These settings, with the sizes and conventions of the checkpoint. Raises where it holds no model of this kind."""

    @abstractmethod
    def for_vocabulary(self, size: int) -> Self:
        """These settings with this many rows of the token embedding."""

    @abstractmethod
    def initialize(self, backbone: Any, checkpoint: "Checkpoint") -> None:
        """Give a model that was built from these settings the weights of the checkpoint. Raises where the settings do not
        suit them."""


class TextModelConfig(ModelConfig):
    """The settings of a model that reads texts."""

    max_tokens: int
    """Longest row, in tokens."""
    activation: Activation
    """Activation of feed-forward layers, and of a head with a layer of its own."""
    eps: float
    """Constant of every LayerNorm, that of such a head included."""

    @abstractmethod
    def build(self) -> Backbone:
        """A model of these sizes, with fresh weights."""

    def for_vocabulary(self, size: int) -> Self:
        settings: Any = self
        return replace(settings, vocab_size=size)

    @abstractmethod
    def initialize(self, backbone: Any, checkpoint: "Checkpoint", *, decoder: bool = True) -> None:
        """As every model's. Without `decoder`, a decoder beside the encoder keeps its fresh weights; a model with one stack has
        none."""


@dataclass(frozen=True)
class Checkpoint:
    """A directory with weights that a model may start from."""

    source: str
    """The user's name for it: a directory or a hub id."""
    directory: Path
    model: Any
    """The config of the model that Ramify saved there; None where another library wrote the checkpoint."""

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        return hf.read_tensors(self.directory)

    def saved_as(self, config: ModelConfig, otherwise: str = "") -> Any:
        """The config of the model that Ramify saved there; raises unless it is of the same kind as `config`. `otherwise`: what
        else a model of that kind may start from, for the message."""
        if type(self.model) is not type(config):
            own, theirs = (type(each).__name__.removesuffix("Config") for each in (config, self.model))
            found = "holds no model" if self.model is None else f"holds a {theirs}"
            other = f", or from {otherwise}" if otherwise else ""
            raise RamifyError(
                f"init={self.source} {found} that Ramify saved; a {own} starts from a {own} that Ramify saved{other}. Name one."
            )
        return self.model

    def fill(self, backbone: AnyBackbone, config: ModelConfig, free: Sequence[str] = RATES) -> None:
        """Give a model the weights of the one that Ramify saved; raises where their settings differ in more than the `free`
        ones."""
        own_settings = {name: value for name, value in vars(config).items() if name in free}
        hf.require(config, vars(self.saved_as(config)) | own_settings, self.source)
        own = {name.removeprefix(BACKBONE): each for name, each in self.tensors.items() if name.startswith(BACKBONE)}
        load_strictly(dict(backbone.named_parameters()), own, self.source)


def encode_nodes(backbone: Backbone, batch: Batch, limit: int) -> Float[Tensor, "node dim"]:
    """All clean nodes' vectors, at most `limit` tokens at a time."""
    vectors = [backbone.encode(*batch.node_part(start, stop)) for start, stop in batch.nodes.runs(limit)]
    return torch.cat(vectors) if vectors else no_vectors(backbone)


def no_vectors(backbone: Backbone) -> Float[Tensor, "node dim"]:
    """The vectors of no nodes."""
    return next(backbone.parameters()).new_zeros(0, backbone.out_dim)


def decode_parts(
    backbone: Backbone, batch: Batch, limit: int, vectors: Float[Tensor, "node dim"] | None = None
) -> Iterator[tuple[Batch, Hidden]]:
    """The batch's targets in parts of at most `limit` (see `Batch.costs`), with their states; nodes are encoded once (or not at
    all, where their `vectors` are given)."""
    if backbone.reads_context and not batch.null_context:
        vectors = encode_nodes(backbone, batch, limit) if vectors is None else vectors
        for start, stop in runs(batch.costs, limit):
            part, read = batch.select(start, stop).reading_its_own()
            yield part, backbone(part, vectors=vectors.index_select(0, read))
    else:
        for start, stop in runs(batch.costs, limit):
            part = batch.select(start, stop)
            yield part, backbone(part)
