"""The contract of models: a config builds a backbone, which turns a batch into hidden states."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ramify.batching.batch import Batch, select_positions
from ramify.batching.characters import Spellings
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.pair_batch import PairBatch
from ramify.batching.stream_batch import StreamBatch
from ramify.batching.text_input import Context, TextInput
from ramify.batching.views.streams import Directions, StreamConfig, StreamInput
from ramify.config import check_fields
from ramify.errors import RamifyError, counted, with_article
from ramify.models import hf
from ramify.nn.attention import AttentionRecord
from ramify.nn.blocks import Activation, LayerPrefixes, OutputPositions
from ramify.nn.cache import Cache
from ramify.nn.ragged import Rows, keep_eager, runs
from ramify.tensors import load_strictly, owned
from ramify.tokenizer import Layout

State = Mapping[str, Tensor]
"""The detached tensors that the next batch of the same rows continues from (memories, caches)."""

RATES = ("dropout", "attention_dropout")
"""Settings that may differ between a model and the checkpoint that it starts from."""

BERT_FAMILY = "a BERT-family checkpoint in Hugging Face's form"

NO_DECODER = "init_decoder=false needs a tree-mlm run from a BERT-family checkpoint (--init). Set init_decoder=true."

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
    if "num_heads" in settings and settings.get("head_dim") is None and config.dim % config.num_heads:
        raise RamifyError(f"model.dim={config.dim} must be a multiple of model.num_heads={config.num_heads}.")


@dataclass(frozen=True)
class Hidden:
    """States of the targets' tokens, at `positions` on the flat axis (None = all)."""

    tokens: Float[Tensor, "position dim"]
    positions: Int[Tensor, " position"] | None = None
    state: State | None = None
    decoded: Float[Tensor, "position dim"] | None = None
    """The states before output attention, if a model has it."""

    def encoded(self, batch: Batch) -> "Encoded":
        """The targets' states as rows, from which `Encodes.vector` takes one vector per target.

        Output attention is left out: it adds the ancestors' words, which would make the vectors of siblings alike.
        """
        rows = batch.targets if batch.output_positions is None else batch.output_positions.rows
        return Encoded(rows, (self.tokens if self.decoded is None else self.decoded,))


@dataclass(frozen=True)
class StreamHidden:
    """States of rows of running text."""

    tokens: Float[Tensor, "row token dim"] | None
    """The states of all tokens; None if only those of the targets were asked for."""
    queries: Float[Tensor, "row target dim"] | None
    """The states from which the targets are predicted, which do not know the targets' words; None without targets."""
    state: State | None
    """The tensors from which the next batch of the same rows continues, without a gradient."""


Read = Literal["all", "first", "last"]
"""The tokens of a row whose states are asked for. A last layer computes no others."""


@dataclass(frozen=True)
class Encoded:
    """States of the tokens of rows."""

    rows: Rows
    """The layout of the kept tokens."""
    layers: tuple[Float[Tensor, "_kept _dim"], ...]
    """The states after the last layer alone, or the embedding and the states after every layer. Widths may differ."""
    ids: Int[Tensor, " _kept"] | None = None
    """The kept tokens, if `Encodes.vector` reads more of them than their states."""

    @property
    def last(self) -> Float[Tensor, "_kept _dim"]:
        """The states after the last layer."""
        return self.layers[-1]


RowHead = Literal["vector", "pooler", "rectifier", "summary", "mean", "first", "last"]
"""The vector of a row that a classifier reads. vector: `Encodes.vector`. pooler, summary: tanh of a new linear map of the first
or the last token's state; rectifier: its positive part, of the first token's. mean, first, last: the mean state, or that of one
token."""


@dataclass(frozen=True)
class PublishedForm:
    """The published use of a model on labelled texts. A value is that of the model's paper or code, if they have it."""

    head: RowHead = "vector"
    """The vector that a classifier reads when all weights are fine-tuned."""
    frozen_head: RowHead = "mean"
    """The vector that a classifier reads of a frozen model."""
    layout: Layout | None = None
    """The special tokens around labelled texts; None: those of pretraining."""
    order: Literal["question_first", "passage_first"] = "question_first"
    """The order of a question and its passage in a row."""
    answer_end: Literal["independent", "conditional"] = "independent"
    """Whether the end of an answer is scored given its start."""
    answer_candidates: Literal["row", "passage"] = "row"
    """The tokens among which the start and the end of an answer are chosen."""


class Encodes(ABC):
    """The ability to turn rows of texts into states and vectors. A head reads `Encoded`, whatever the model."""

    @property
    @abstractmethod
    def max_tokens(self) -> int | None:
        """The length of the longest row, with its special tokens; None: rows have no limit."""

    @property
    @abstractmethod
    def reads_context(self) -> bool:
        """Whether `encode_rows` reads `EncoderInput.context`."""

    @property
    @abstractmethod
    def vector_dim(self) -> int:
        """The length of a row's vector."""

    @property
    @abstractmethod
    def vector_read(self) -> Read:
        """The tokens that `vector` reads."""

    @abstractmethod
    def layer_dims(self, *, context: bool = False) -> tuple[int, ...]:
        """The widths of the embedding and of each layer's states. `context`: of rows that read a context."""

    @abstractmethod
    def layer_prefixes(self, *, context: bool = False) -> LayerPrefixes:
        """The beginnings of the names of the embedding's and of each layer's parameters, as many as `layer_dims`.

        A parameter that several layers share belongs to the lowest, those that nodes are encoded with to the embedding, and
        those of `vector` to the last layer.
        """

    @abstractmethod
    def encode_rows(
        self, rows: EncoderInput, *, layers: bool = False, read: Read = "all", record: AttentionRecord | None = None
    ) -> Encoded:
        """Compute the states of rows: of the last layer alone, or of all `layers`, in which all tokens are kept.

        The attention weights are added to `record`, which does not change the result. Raises `RamifyError` for `layers` with
        another `read` than `all`.
        """

    @abstractmethod
    def vector(self, encoded: Encoded) -> Float[Tensor, "row vector_dim"]:
        """One vector per row, from its tokens `vector_read` after the last layer. A row without tokens has the zero vector."""

    def vectors(self, rows: EncoderInput, record: AttentionRecord | None = None) -> Float[Tensor, "row vector_dim"]:
        """Encode every row as one vector."""
        return self.vector(self.encode_rows(rows, read=self.vector_read, record=record))


def kept_positions(rows: Rows, readers: Rows, *, layers: bool, read: Read) -> OutputPositions | None:
    """The places of the tokens whose states are asked for; None: all tokens. `readers`: the rows, grouped as their contexts.

    Raises `RamifyError` for all `layers` of some tokens.
    """
    if read == "all":
        return None
    if layers:
        raise RamifyError(f'layers=True keeps all tokens, so read="{read}" cannot apply. Set read="all".')
    counts = np.minimum(rows.host_lengths, 1)
    index = rows.offsets[:-1] if read == "first" else rows.offsets[1:] - 1
    if not counts.all():
        index = index.index_select(0, torch.from_numpy(np.flatnonzero(counts)).to(index.device))
    return select_positions(index.to(torch.int64), counts, rows, readers)


class AnyBackbone(nn.Module, ABC):
    """A body without a head."""

    config: Any
    """The model's `ModelConfig`. Each model declares its class."""
    passes: tuple[str, ...] = ("forward",)
    """Names of the methods that training calls."""
    records_attention: bool = False
    """Whether `forward` takes an `AttentionRecord` as `record`, to which it adds its weights."""
    optional: tuple[str, ...] = ()
    """Names of modules that settings add. A saved model without them may start one that has them (see `Task.optional`)."""
    frozen: tuple[str, ...] = ()
    """Names of modules that no task trains."""

    @property
    def title(self) -> str:
        """The name of the model, for people."""
        return type(self).__name__

    @property
    @abstractmethod
    def out_dim(self) -> int:
        """The length of a state."""

    def compile_passes(self) -> None:
        """Compile the methods that training calls. A second call changes nothing."""
        keep_eager()
        for name in self.passes:
            if name not in vars(self):
                setattr(self, name, torch.compile(getattr(self, name), dynamic=True))


class Backbone(AnyBackbone, Encodes):
    """A body that computes states of tokens. Its properties declare its capabilities."""

    has_pooler: bool = False
    """Whether the vector of a text is a learned map of the first token's state, from which a head predicts labels of pairs."""

    @property
    @abstractmethod
    def reads_context(self) -> bool:
        """Whether a target reads other nodes' vectors.

        If so, `vectors` encodes the nodes first and `forward` takes their vectors, so the gradient of a whole tree can be
        computed chunk by chunk.
        """

    @property
    @abstractmethod
    def carries_state(self) -> bool:
        """Whether the next batch of the same rows continues from `Hidden.state`."""

    @property
    @abstractmethod
    def tied_embedding(self) -> nn.Embedding:
        """The token embedding that a head may share its weights with."""

    @property
    @abstractmethod
    def context_projection(self) -> nn.Linear | None:
        """The map of nodes' vectors into the space of the token embedding, if the model has one.

        A task that teaches vectors their words shares it.
        """

    @abstractmethod
    def forward(self, batch: Batch, state: State | None = None, vectors: Float[Tensor, "node dim"] | None = None) -> Hidden:
        """Compute the final states of the targets' tokens, or only those at `batch.output_positions`.

        A backbone that reads context encodes the batch's nodes first, unless `vectors` holds their vectors.
        """

    def in_context(self, input: TextInput, context: Context | None) -> TextInput:
        """Return input settings with another context; None keeps the context of `input`.

        Raises `RamifyError` if this model cannot read that context.
        """
        if context is None or context == input.context:
            return input
        if context == "null":
            raise RamifyError(
                'context="null" needs a model that was trained on its null row. Set context="none" (--context none).'
            )
        if context != "none" and not (self.reads_context or input.concatenate):
            raise RamifyError(
                f'context="{context}" needs a model that reads context; this {type(self).__name__} reads none. Set '
                'context="none" (--context none).'
            )
        return replace(input, context=context)


class RowBackbone(Backbone):
    """A body that reads each row alone: no vectors of other nodes, and no state from the batch before."""

    @property
    def reads_context(self) -> bool:
        return False

    @property
    def carries_state(self) -> bool:
        return False

    @property
    def context_projection(self) -> None:
        return None

    @property
    def max_tokens(self) -> int:
        return self.config.max_tokens

    @property
    def vector_dim(self) -> int:
        return self.out_dim


class Continues(ABC):
    """The ability of a body to read sequences token by token. A task turns its states into scores (`tasks.base.Decodes`)."""

    @abstractmethod
    def read_prompts(
        self, prompts: EncoderInput, source: EncoderInput | None = None
    ) -> tuple[Float[Tensor, "sequence dim"], Cache]:
        """Read prompts in one pass, and compute the state from which the token behind each is predicted.

        `source` holds the texts that an encoder-decoder reads, row i for row i of `prompts`. Raises `RamifyError` if the body
        needs a source and gets none, or the other way round.
        """

    @abstractmethod
    def read_tokens(self, ids: Int[Tensor, " sequence"], cache: Cache) -> tuple[Float[Tensor, "sequence dim"], Cache]:
        """Read one token of each sequence, and compute the state from which the next one is predicted."""


class ReadsCharacters(ABC):
    """The ability of a body to read tokens by their characters."""

    @property
    @abstractmethod
    def reads_characters(self) -> bool:
        """Whether it does; a body may have a table of token vectors instead."""

    @abstractmethod
    def spell(self, spellings: Spellings) -> None:
        """Tell the body the characters of all tokens of the vocabulary. They are saved with its weights."""


def reads_characters(backbone: AnyBackbone) -> bool:
    """Whether a body tells words apart that the vocabulary lacks."""
    return isinstance(backbone, ReadsCharacters) and backbone.reads_characters


class TakesVectors(ABC):
    """The ability of a body to start with known vectors of its tokens, such as published vectors of words."""

    @property
    @abstractmethod
    def vectors_source(self) -> str:
        """The file or the saved model that holds the vectors; empty: the body starts with random vectors."""

    @abstractmethod
    def take_vectors(self, ids: Int[Tensor, " known"], vectors: Float[Tensor, "known dim"]) -> None:
        """Start with these vectors of tokens. The others get random vectors of the same variance."""


class Regularized(ABC):
    """The ability of a body to add a term to the loss of its task."""

    @abstractmethod
    def penalty(self) -> Float[Tensor, ""]:
        """The term of an update. It does not depend on the batch."""


class StreamBackbone(AnyBackbone, Encodes, Continues):
    """A body that reads rows of running text, each of which may continue the same row of the batch before."""

    @property
    @abstractmethod
    def directions(self) -> Directions:
        """The directions in which it reads rows."""

    @property
    @abstractmethod
    def tied_embedding(self) -> nn.Embedding:
        """The token embedding that a head may share its weights with."""

    @abstractmethod
    def forward(self, batch: StreamBatch, state: State | None = None, *, targets_only: bool = False) -> StreamHidden:
        """Compute the states of the batch's tokens and targets, or those of the targets alone.

        `state` is that of the batch before.
        """


class GenerativeBackbone(AnyBackbone, Encodes, Continues):
    """A body that predicts texts token by token, from their own beginnings, and from a source if it reads one.

    As `Encodes`, it gives the states of its encoder, or those of its decoder if it has no encoder.
    """

    @property
    @abstractmethod
    def reads_source(self) -> bool:
        """Whether every text is predicted from a source."""

    @property
    @abstractmethod
    def tied_embedding(self) -> nn.Embedding:
        """The token embedding that a head may share its weights with."""

    @abstractmethod
    def forward(self, batch: PairBatch, record: AttentionRecord | None = None) -> Float[Tensor, "total dim"]:
        """Compute the state of each token of `batch.target`, from which the next one is predicted. It does not depend on later
        tokens.

        The weights of attention are added to `record`, if the body has any.
        """


def checked_source(source: EncoderInput | None, count: int, *, encoder_layers: int) -> EncoderInput:
    """The source texts of `count` texts that are predicted. Raises `RamifyError` if a model of so many layers cannot read them,
    or if it needs sources and gets none."""
    if not encoder_layers:
        raise RamifyError("source needs an encoder, but model.encoder_layers=0. Leave it out, or train a model with one.")
    if source is None:
        raise RamifyError(
            f"source=None cannot be read: model.encoder_layers={encoder_layers} needs a source for each text. Pass one, or "
            "train a model with model.encoder_layers=0."
        )
    if len(source.rows) != count:
        raise RamifyError(
            f"source holds {counted(len(source.rows), 'text')} for {counted(count, 'text')} that are to be predicted. Pass one "
            "for each."
        )
    return source


class ModelConfig(ABC):
    """The settings of a model, as a frozen dataclass. It builds the model and initializes it from a checkpoint."""

    vocab_size: int
    """Number of rows of the token embedding; 0 until the tokenizer is known."""
    published: ClassVar[PublishedForm] = PublishedForm()
    """The use of the model on labelled texts, if it encodes texts (`Encodes`)."""
    inner: ClassVar[tuple[str, ...]] = ()
    """Names of the settings that are models of any kind."""

    @abstractmethod
    def build(self) -> AnyBackbone:
        """A model of these sizes, with fresh weights."""

    @abstractmethod
    def adapted_to(self, checkpoint: "Checkpoint") -> Self:
        """Return these settings with the sizes and conventions of a checkpoint. Raises if it holds no model of this kind."""

    @abstractmethod
    def for_vocabulary(self, size: int) -> Self:
        """Return these settings with `size` rows of the token embedding."""

    @abstractmethod
    def initialize(self, backbone: Any, checkpoint: "Checkpoint") -> None:
        """Load a checkpoint's weights into a model built from these settings. Raises if the settings do not fit the weights."""


class TextModelConfig(ModelConfig):
    """The settings of a model that reads texts."""

    max_tokens: int
    """Maximum length of a row, in tokens."""
    activation: Activation
    """Activation of feed-forward layers, and of a head that has a dense layer."""
    eps: float
    """Epsilon of every LayerNorm, including that of the head."""

    @abstractmethod
    def build(self) -> Backbone:
        """A model of these sizes, with fresh weights."""

    def for_vocabulary(self, size: int) -> Self:
        settings: Any = self
        return replace(settings, vocab_size=size)

    @abstractmethod
    def initialize(self, backbone: Any, checkpoint: "Checkpoint", *, decoder: bool = True) -> None:
        """Load a checkpoint's weights into a model built from these settings. Raises if the settings do not fit the weights.

        `decoder=False` leaves the fresh weights of a decoder unchanged. Only a TreeMLM that starts from a BERT-family
        checkpoint accepts it.
        """


class TakesFeatures(TextModelConfig):
    """The settings of a model that reads vectors of tokens (`EncoderInput.features`) beside its own table."""

    @abstractmethod
    def build(self, features: int = 0) -> Backbone:
        """A model of these sizes, with fresh weights. `features`: the length of the vectors; 0: it reads none."""


class StreamModelConfig(ModelConfig):
    """The settings of a model that reads rows of running text."""

    @abstractmethod
    def build(self) -> StreamBackbone:
        """A model of these sizes, with fresh weights."""

    @abstractmethod
    def check_streams(self, input: StreamInput, streams: StreamConfig, length: int) -> None:
        """Raise `RamifyError` if the model cannot learn from such streams, each of `length` tokens."""


class GenerativeModelConfig(ModelConfig):
    """The settings of a model that predicts texts token by token."""

    @abstractmethod
    def build(self) -> GenerativeBackbone:
        """A model of these sizes, with fresh weights."""


@dataclass(frozen=True)
class Checkpoint:
    """A directory of weights from which a model may start."""

    source: str
    """The directory or hub id that the user named."""
    directory: Path
    model: Any
    """The config of the saved model; None if another library wrote the checkpoint."""

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        return hf.read_tensors(self.directory)

    def tensor(self, name: str) -> Tensor:
        """The tensor of this name. Raises `RamifyError` if the checkpoint holds none."""
        if name not in self.tensors:
            raise RamifyError(
                f"the checkpoint {self.source} holds no tensor {name!r}, which its config.json asks for. Download it again, or "
                "choose another one."
            )
        return self.tensors[name]

    def saved_as(self, config: ModelConfig, otherwise: str = "") -> Any:
        """Return the config of the saved model. Raises if it is of another kind than `config`.

        `otherwise` names the other checkpoints from which such a model may start, for the message.
        """
        if type(self.model) is not type(config):
            ours, theirs = (with_article(type(kind).__name__.removesuffix("Config")) for kind in (config, self.model))
            content = "holds no model" if self.model is None else f"holds {theirs}"
            other = f", or from {otherwise}" if otherwise else ""
            raise RamifyError(
                f"init={self.source} {content} that Ramify saved; {ours} starts from {ours} that Ramify saved{other}. Set "
                "init to such a checkpoint."
            )
        return self.model

    def fill(self, backbone: AnyBackbone, config: ModelConfig, free: Sequence[str] = RATES) -> None:
        """Load the saved model's weights into `backbone`. Raises if settings other than the `free` ones differ."""
        own_settings = {name: value for name, value in vars(config).items() if name in free}
        hf.require(config, vars(self.saved_as(config)) | own_settings, self.source)
        tensors = {name.removeprefix(BACKBONE): tensor for name, tensor in self.tensors.items() if name.startswith(BACKBONE)}
        load_strictly(owned(backbone), tensors, self.source)


def encode_context(backbone: Backbone, batch: Batch, limit: int) -> Float[Tensor, "node dim"]:
    """Encode all clean nodes of a batch, at most `limit` tokens at a time."""
    vectors = [backbone.vectors(batch.node_rows(start, stop)) for start, stop in batch.nodes.runs(limit)]
    return torch.cat(vectors) if vectors else no_vectors(backbone)


def no_vectors(backbone: Backbone) -> Float[Tensor, "node dim"]:
    """An empty tensor of node vectors."""
    return next(backbone.parameters()).new_zeros(0, backbone.vector_dim)


def parts_of(
    backbone: Backbone, batch: Batch, limit: int, vectors: Float[Tensor, "node dim"] | None = None
) -> Iterator[tuple[Batch, Float[Tensor, "node dim"] | None]]:
    """Yield the batch's targets in parts of at most `limit` (see `Batch.costs`), with the vectors of the nodes that they read;
    None if the backbone reads none.

    Nodes are encoded once, or not at all if `vectors` holds their vectors.
    """
    if backbone.reads_context and not batch.null_context:
        vectors = encode_context(backbone, batch, limit) if vectors is None else vectors
        for start, stop in runs(batch.costs, limit):
            part, read = batch.select(start, stop).reading_its_own()
            yield part, vectors.index_select(0, read)
    else:
        for start, stop in runs(batch.costs, limit):
            yield batch.select(start, stop), None


def decode_parts(
    backbone: Backbone, batch: Batch, limit: int, vectors: Float[Tensor, "node dim"] | None = None
) -> Iterator[tuple[Batch, Hidden]]:
    """Yield the batch's targets in parts (see `parts_of`), with their states."""
    for part, read in parts_of(backbone, batch, limit, vectors):
        yield part, backbone(part) if read is None else backbone(part, vectors=read)
