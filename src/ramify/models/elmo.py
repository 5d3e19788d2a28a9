"""ELMo (Peters et al. 2018): words read by their characters, and a language model of recurrent layers in each direction.

Where the paper is silent, the published code (bilm-tf) decides: initial weights, clips, and the places of dropout.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.batching.characters import LENGTH, PAD, TEXT_END, TEXT_START, WORD_END, WORD_START, Characters, Spellings
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.stream_batch import StreamBatch
from ramify.batching.views.streams import Directions, StreamConfig, StreamInput
from ramify.errors import RamifyError
from ramify.models.base import (
    Checkpoint,
    Encoded,
    Read,
    ReadsCharacters,
    State,
    StreamBackbone,
    StreamHidden,
    StreamModelConfig,
    check_config,
    kept_positions,
)
from ramify.nn.attention import AttentionRecord
from ramify.nn.blocks import LayerPrefixes
from ramify.nn.cache import Cache
from ramify.nn.dropout import dropout
from ramify.nn.linear import Linear
from ramify.nn.pooling import Pool
from ramify.nn.ragged import Rows, on_device
from ramify.nn.recurrent import Recurrent, RecurrentState, final_states

NUM_CHARACTERS = 262
"""Rows of the table of characters: one of padded tokens, 256 of bytes, and five of marks."""

MARKS = {TEXT_START: 257, TEXT_END: 258, WORD_START: 259, WORD_END: 260, PAD: 261}
"""The rows of the marks, in the order of the published weights. A byte b has row b + 1."""

WORDS = 1024
"""Number of words whose characters are read at once without a gradient."""


@dataclass(frozen=True)
class ElmoConfig(StreamModelConfig):
    """Sizes default to a small model. The published model has dim 512, hidden 4096, and the filters (1, 32) (2, 32) (3, 64)
    (4, 128) (5, 256) (6, 512) (7, 1024)."""

    vocab_size: int = 0
    """0 = the tokenizer's."""
    input: Literal["characters", "words"] = "characters"
    """characters: a token's vector is computed from the bytes of its spelling. words: a table has a vector of each token."""
    directions: Literal["both", "forward"] = "both"
    """forward: there is only the language model that reads from left to right."""
    dim: int = 128
    """Size of the token vectors, and of each direction's states."""
    hidden: int = 512
    """Number of memory cells of a layer in one direction. Their outputs are projected to `dim`, unless both are equal."""
    num_layers: int = 2
    char_dim: int = 16
    filters: tuple[tuple[int, int], ...] = ((1, 32), (2, 32), (3, 64), (4, 128))
    """Width and number of the filters of characters."""
    num_highways: int = 2
    """Number of highway layers behind the filters."""
    clip: float | None = 3.0
    """Bound of the memory cells and of the projected states; null: they have none."""
    dropout: float = 0.1
    """Rate on the input of each layer, and on the states from which tokens are predicted."""
    stateful: bool = True
    """Whether a row of a stream continues from the states that the row before it left; texts that are read alone never do."""
    restart: float = 0.0
    """Share of the rows of a training batch that begin without the states of those before. With 0, as published, training sees
    beginnings of texts only in its first update, and their states can then leave all that was learned."""

    def __post_init__(self) -> None:
        check_config(self)
        if self.hidden < self.dim:
            raise RamifyError(
                f"model.hidden={self.hidden} is below model.dim={self.dim}, to which the cells' outputs are projected. Raise "
                "model.hidden, or lower model.dim."
            )
        if self.clip is not None and self.clip <= 0:
            raise RamifyError(f"model.clip must be above 0, but is {self.clip}. Set it to null for no bound.")
        if not 0 <= self.restart <= 1:
            raise RamifyError(f"model.restart={self.restart:g} is no share. Set it to a number from 0 to 1.")
        if not self.filters or any(not 1 <= width <= LENGTH or number < 1 for width, number in self.filters):
            raise RamifyError(
                f"model.filters={[list(pair) for pair in self.filters]} must hold pairs of a width from 1 to {LENGTH} and a "
                "number of at least 1. Change them."
            )

    def build(self) -> "Elmo":
        return Elmo(self)

    def for_vocabulary(self, size: int) -> "ElmoConfig":
        return replace(self, vocab_size=size)

    def adapted_to(self, checkpoint: Checkpoint) -> "ElmoConfig":
        return checkpoint.saved_as(self)

    def initialize(self, backbone: "Elmo", checkpoint: Checkpoint) -> None:
        checkpoint.fill(backbone, self, ("dropout", "stateful", "restart"))

    def check_streams(self, input: StreamInput, streams: StreamConfig, length: int) -> None:
        if self.directions != streams.directions:
            raise RamifyError(
                f"view.directions={streams.directions} reads rows in other directions than a model with "
                f"model.directions={self.directions}. Set view.directions={self.directions}."
            )
        if self.stateful and input.memory_reset == "document":
            raise RamifyError(
                "input.memory_reset=document forgets a part of a row, but an Elmo carries its states across documents. Set "
                "input.memory_reset=never, or model.stateful=false for rows that start without a state."
            )


class Highway(nn.Module):
    """g · relu(W x + b) + (1 − g) · x, where g = σ(C x + c) (Srivastava et al. 2015)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.transform = Linear(dim, dim)
        self.gate = Linear(dim, dim)
        for map, bias in ((self.transform, 0.0), (self.gate, -2.0)):
            nn.init.normal_(map.weight, std=dim**-0.5)
            nn.init.constant_(map.bias, bias)

    def forward(self, x: Float[Tensor, "word dim"]) -> Float[Tensor, "word dim"]:
        gate = torch.sigmoid(self.gate(x))
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x


class CharacterEncoder(nn.Module):
    """Vectors of words from their characters: filters of several widths, their maxima over the word, highway layers, and a
    projection (Kim et al. 2016)."""

    rows: Int[Tensor, " byte"]

    def __init__(self, char_dim: int, filters: Sequence[tuple[int, int]], num_highways: int, dim: int) -> None:
        super().__init__()
        rows = torch.arange(1, 257)
        rows[list(MARKS)] = torch.tensor(list(MARKS.values()))
        self.register_buffer("rows", rows, persistent=False)
        self.embedding = nn.Embedding(NUM_CHARACTERS, char_dim)
        self.filters = nn.ModuleList(nn.Conv1d(char_dim, number, width) for width, number in filters)
        size = sum(number for _, number in filters)
        self.highways = nn.ModuleList(Highway(size) for _ in range(num_highways))
        self.project = Linear(size, dim)
        nn.init.uniform_(self.embedding.weight, -1.0, 1.0)
        for convolution in self.filters:
            assert isinstance(convolution, nn.Conv1d)
            nn.init.uniform_(convolution.weight, -0.05, 0.05)
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)
        nn.init.normal_(self.project.weight, std=size**-0.5)
        nn.init.zeros_(self.project.bias)

    def forward(self, characters: UInt8[Tensor, "word character"]) -> Float[Tensor, "word dim"]:
        if torch.is_grad_enabled():
            return self._read(characters)
        # The filters' outputs at every place of many words would take gigabytes.
        return torch.cat([self._read(part) for part in characters.split(WORDS)])

    def _read(self, characters: UInt8[Tensor, "word character"]) -> Float[Tensor, "word dim"]:
        letters = self.embedding(F.embedding(characters.long(), self.rows[:, None])[:, :, 0]).transpose(1, 2)
        x = torch.relu(torch.cat([convolution(letters).amax(2) for convolution in self.filters], 1))
        for highway in self.highways:
            x = highway(x)
        return self.project(x)


@dataclass(frozen=True)
class ElmoCache(Cache):
    """The states of the forward layers behind each sequence."""

    state: RecurrentState
    read: Int[Tensor, " sequence"]

    @property
    def lengths(self) -> Int[Tensor, " sequence"]:
        return self.read

    def reorder(self, index: NDArray[np.int64]) -> "ElmoCache":
        places = on_device(index, self.read.device)
        return ElmoCache(self.state.reorder(places), self.read.index_select(0, places))


class Elmo(StreamBackbone, ReadsCharacters):
    """Both directions read the same token vectors, and have recurrent layers of their own.

    Token t of layer l has the state [→h; ←h], whose first half has read the tokens up to t and whose second half those from t
    on, in every layer. Layer 0 is the token's vector, once per direction.
    """

    config: ElmoConfig
    embedding: nn.Embedding | None
    characters: CharacterEncoder | None
    spellings: UInt8[Tensor, "vocab character"] | None
    """The characters of every token of the vocabulary; None: the model reads words."""
    forward_layers: Recurrent
    backward_layers: Recurrent | None

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = self.characters = None
        if config.input == "characters":
            self.characters = CharacterEncoder(config.char_dim, config.filters, config.num_highways, config.dim)
            # A buffer that is saved, so that no body is without the characters of its tokens.
            self.register_buffer("spellings", torch.full((config.vocab_size, LENGTH), PAD, dtype=torch.uint8))
            self._is_spelled = False
        else:
            self.embedding = nn.Embedding(config.vocab_size, config.dim)
            nn.init.normal_(self.embedding.weight, std=config.dim**-0.5)
            self.spellings = None
        self.forward_layers = _layers(config, backward=False)
        self.backward_layers = _layers(config, backward=True) if config.directions == "both" else None
        self.pool = Pool("mean", self.vector_dim)

    @property
    def reads_characters(self) -> bool:
        return self.characters is not None

    def spell(self, spellings: Spellings) -> None:
        if self.spellings is not None:
            self.spellings[: len(spellings)] = torch.from_numpy(spellings).to(self.spellings.device)

    @property
    def directions(self) -> Directions:
        return self.config.directions

    @property
    def stacks(self) -> tuple[Recurrent, ...]:
        """The layers of each direction, forward first."""
        return (self.forward_layers, *(() if self.backward_layers is None else (self.backward_layers,)))

    @property
    def out_dim(self) -> int:
        """The length of a state from which a token is predicted, which is that of one direction."""
        return self.config.dim

    @property
    def tied_embedding(self) -> nn.Embedding:
        if self.embedding is None:
            raise RamifyError(
                "task.tie_weights=true needs a table of token vectors, but model.input=characters has none. Set "
                "task.tie_weights=false, or model.input=words."
            )
        return self.embedding

    # Encodes

    @property
    def max_tokens(self) -> None:
        return None

    @property
    def reads_context(self) -> bool:
        return False

    @property
    def vector_dim(self) -> int:
        return self.config.dim * len(self.stacks)

    @property
    def vector_read(self) -> Read:
        return "all"

    def layer_dims(self, *, context: bool = False) -> tuple[int, ...]:
        return (self.vector_dim,) * (self.config.num_layers + 1)

    def layer_prefixes(self, *, context: bool = False) -> LayerPrefixes:
        names = ("forward_layers", "backward_layers")[: len(self.stacks)]
        lowest = "embedding." if self.characters is None else "characters."
        numbers = range(self.config.num_layers)
        return ((lowest,), *(tuple(f"{name}.layers.{number}." for name in names) for number in numbers))

    def encode_rows(
        self, rows: EncoderInput, *, layers: bool = False, read: Read = "all", record: AttentionRecord | None = None
    ) -> Encoded:
        """The layers of texts, each of which starts without a state."""
        kept = kept_positions(rows.rows, rows.rows, layers=layers, read=read)
        words = self._words(rows.ids, rows.characters)
        written = [stack(words, rows.rows).layers for stack in self.stacks]
        if layers:
            lowest = torch.cat([words] * len(written), 1)
            return Encoded(rows.rows, (lowest, *(torch.cat(states, 1) for states in zip(*written, strict=True))))
        last = torch.cat([states[-1] for states in written], 1)
        return Encoded(rows.rows, (last,)) if kept is None else Encoded(kept.rows, (last.index_select(0, kept.index),))

    def vector(self, encoded: Encoded) -> Float[Tensor, "row vector_dim"]:
        """The mean state of the tokens."""
        return self.pool(encoded.last.to(torch.promote_types(encoded.last.dtype, torch.float32)), encoded.rows)

    def _words(self, ids: Int[Tensor, " total"], characters: Characters | None) -> Float[Tensor, "total dim"]:
        """The vectors of tokens, which know nothing of each other. `characters`: those of each token; None: those of its
        spelling in the vocabulary."""
        if self.embedding is not None:
            return self.embedding(ids)
        assert self.characters is not None
        assert self.spellings is not None
        # Asked once, because the answer waits for the device.
        self._is_spelled = self._is_spelled or bool(self.spellings[:, 0].any())
        if not self._is_spelled:
            raise RamifyError(
                "model.input=characters reads the spellings of a vocabulary, but this Elmo knows none. Call its method spell, "
                "or load a saved model."
            )
        if characters is None:
            return self.characters(self.spellings.index_select(0, ids))
        if not self.training:
            return self.characters(characters.of_tokens)
        return F.embedding(characters.index.flatten(), self.characters(characters.spellings))

    # Streams

    def forward(self, batch: StreamBatch, state: State | None = None, *, targets_only: bool = False) -> StreamHidden:
        """`StreamHidden.queries` are the states of the tokens before the targets, after dropout; `tokens` those of all
        tokens."""
        if batch.remembered:
            raise RamifyError(
                f"memory={batch.remembered} counts states of earlier tokens, but an Elmo carries those of the last one alone. "
                "Set memory=0 for none (--memory 0), or leave it out."
            )
        num_rows, num_tokens = batch.input_ids.shape
        words = self._words(batch.input_ids.flatten(), batch.characters).view(num_rows, num_tokens, -1)
        # Nobody is predicted from the last token.
        stop = num_tokens - 1 if targets_only else num_tokens
        begins = batch.begins
        if self.training and self.config.restart and state is not None:
            begins = begins | (torch.rand(num_rows, device=begins.device) < self.config.restart)
        before = None if state is None else _Carried(state["hidden"], state["cell"]).without(begins)
        states, after = self._read_stream(words[:, : batch.reused or stop], batch.direction, before)
        if 0 < batch.reused < stop:
            rest, _ = self._read_stream(words[:, batch.reused : stop], batch.direction, after)
            states = torch.cat([states, rest], 1)
        queries = None
        if batch.targets is not None:
            places = (batch.targets.positions - 1)[:, :, None].expand(-1, -1, states.shape[2])
            queries = dropout(states.gather(1, places), self.config.dropout, self.training)
        carries = self.config.stateful and batch.reused and batch.remembered is None
        return StreamHidden(None if targets_only else states, queries, after.detached() if carries else None)

    def _read_stream(
        self, words: Float[Tensor, "row token dim"], direction: NDArray[np.int64], before: "_Carried | None"
    ) -> tuple[Float[Tensor, "row token dim"], "_Carried"]:
        """The states of rows, each of one direction, and what they leave. Tokens stand in the order in which they are read."""
        num_tokens, read, outputs, ends = words.shape[1], [], [], []
        for stack, sign in zip(self.stacks, (1, -1)):
            index = np.flatnonzero(direction == sign)
            if not len(index):
                continue
            places = on_device(index, words.device)
            rows = Rows.build(np.full(len(index), num_tokens)).to(words.device)
            # A stack that reads backwards takes rows in the order of the text.
            x = words.index_select(0, places)
            x = (x if sign > 0 else x.flip(1)).flatten(0, 1)
            recurrence = stack(x, rows, None if before is None else before.of(places))
            x = recurrence.layers[-1].view(len(index), num_tokens, -1)
            read.append(places)
            outputs.append(x if sign > 0 else x.flip(1))
            ends.append(recurrence.state)
        order = torch.argsort(torch.cat(read))
        hidden, cell = (torch.cat(parts, 1) for parts in zip(*((end.hidden[:, 0], end.cell[:, 0]) for end in ends)))
        return torch.cat(outputs).index_select(0, order), _Carried(hidden.index_select(1, order), cell.index_select(1, order))

    # Generation, by the forward layers

    def read_prompts(
        self, prompts: EncoderInput, source: EncoderInput | None = None
    ) -> tuple[Float[Tensor, "sequence dim"], ElmoCache]:
        if source is not None:
            raise RamifyError("source needs an encoder-decoder; an Elmo reads prompts alone. Leave it out.")
        recurrence = self.forward_layers(self._words(prompts.ids, prompts.characters), prompts.rows)
        states = final_states(recurrence.layers[-1], prompts.rows, "forward")
        return states, ElmoCache(recurrence.state, prompts.rows.lengths)

    def read_tokens(self, ids: Int[Tensor, " sequence"], cache: Cache) -> tuple[Float[Tensor, "sequence dim"], ElmoCache]:
        assert isinstance(cache, ElmoCache)
        rows = Rows.build([1] * len(ids)).to(ids.device)
        recurrence = self.forward_layers(self._words(ids, None), rows, cache.state)
        return recurrence.layers[-1], ElmoCache(recurrence.state, cache.read + 1)


@dataclass(frozen=True)
class _Carried:
    """The states from which the next tokens of rows continue, whatever the direction of each row."""

    hidden: Float[Tensor, "layer row out"]
    cell: Float[Tensor, "layer row hidden"]

    def of(self, rows: Int[Tensor, " kept"]) -> RecurrentState:
        return RecurrentState(self.hidden.index_select(1, rows)[:, None], self.cell.index_select(1, rows)[:, None])

    def without(self, rows: Bool[Tensor, " row"]) -> "_Carried":
        """Some rows begin anew."""
        return _Carried(*(part.masked_fill(rows[:, None], 0.0) for part in (self.hidden, self.cell)))

    def detached(self) -> State:
        return {"hidden": self.hidden.detach(), "cell": self.cell.detach()}


def _layers(config: ElmoConfig, *, backward: bool) -> Recurrent:
    projected = config.dim < config.hidden
    recurrent = Recurrent(
        "lstm",
        config.dim,
        config.hidden,
        num_layers=config.num_layers,
        direction="backward" if backward else "forward",
        projection=config.dim if projected else None,
        residual=True,
        dropout=config.dropout,
        cell_clip=config.clip,
        projection_clip=config.clip if projected else None,
        single_bias=True,
    )
    for name, parameter in recurrent.named_parameters():
        if "bias" in name:
            nn.init.zeros_(parameter)
            # The gates stand in the order input, forget, cell, output.
            nn.init.ones_(parameter.detach().chunk(4)[1])
        elif "weight_hr" in name:
            nn.init.xavier_uniform_(parameter)
        else:
            # One matrix in the published code, of the input and the state before.
            bound = math.sqrt(6 / (2 * config.dim + 4 * config.hidden))
            nn.init.uniform_(parameter, -bound, bound)
    return recurrent
