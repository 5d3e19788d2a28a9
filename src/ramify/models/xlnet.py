"""XLNet (Yang et al. 2019): two-stream attention over factorization orders, with Transformer-XL's memory, and its Hugging Face
form."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.batching.encoder_input import EncoderInput
from ramify.batching.stream_batch import StreamBatch
from ramify.batching.views.streams import Directions, StreamConfig, StreamInput
from ramify.errors import RamifyError, counted
from ramify.models import hf
from ramify.models.base import (
    RATES,
    Checkpoint,
    Encoded,
    PublishedForm,
    Read,
    State,
    StreamBackbone,
    StreamHidden,
    StreamModelConfig,
    check_config,
    kept_positions,
)
from ramify.models.hf_adapter import ForeignFiles, HFAdapter, PortableModel
from ramify.models.hf_heads import Forms, HeadForm, head_settings, head_tensors, read_head
from ramify.nn.attention import AttentionRecord, LayerWeights
from ramify.nn.blocks import ACTIVATIONS, Activation, LayerPrefixes
from ramify.nn.cache import Cache, KeyValueCache, with_room
from ramify.nn.dropout import add_dropout, dropout
from ramify.nn.linear import Linear
from ramify.nn.pooling import Pool
from ramify.nn.ragged import right_aligned, unpad
from ramify.nn.relative import Keys, Queries, RelativeAttention, distance_codes, sinusoids
from ramify.tensors import load_strictly

SEGMENTS = 3
"""Kinds of segments: text and first segment, second segment, CLS."""
NEVER = 2**40
"""A number that no token reaches in a factorization order."""
INIT_STD = 0.02
FREE = (*RATES, "memory", "memory_start", "max_distance")
"""Settings without weights, which may differ between a model and the checkpoint that it starts from."""


@dataclass(frozen=True)
class XLNetConfig(StreamModelConfig):
    """Sizes default to a small model; XLNet-Base is dim 768, 12 layers, 12 heads, ffn_dim 3072, and XLNet-Large 1024, 24, 16,
    4096."""

    published: ClassVar[PublishedForm] = PublishedForm(
        head="summary", layout="xlnet", order="passage_first", answer_end="conditional", answer_candidates="passage"
    )
    vocab_size: int = 0
    """0 = the tokenizer's."""
    dim: int = 256
    num_layers: int = 4
    num_heads: int = 4
    ffn_dim: int = 1024
    dropout: float = 0.1
    attention_dropout: float = 0.0
    """The paper's value is 0.1, which slows attention on CPU."""
    activation: Activation = "gelu"
    position: Literal["relative", "absolute"] = "relative"
    """absolute: sinusoids are added to the embeddings instead, so that a state in memory has the position of a newer token, too
    (section 2.4 explains why this fails)."""
    memory: int = 96
    """Number of states per layer that a row can read from before its start (the paper's 384)."""
    memory_start: Literal["empty", "zeros"] = "empty"
    """zeros: before the first batch, memory holds visible zeros, as in the published code."""
    max_distance: int | None = None
    """Greater distances count as this one (`clamp_len` in the published code); None: distances have no limit."""
    untie_biases: bool = True
    """Whether every layer has its own u, v and w (`untie_r` in the published code)."""
    eps: float = 1e-12

    def __post_init__(self) -> None:
        check_config(self, memory=0)

    def build(self) -> "XLNet":
        return XLNet(self)

    def for_vocabulary(self, size: int) -> "XLNetConfig":
        return replace(self, vocab_size=size)

    def adapted_to(self, checkpoint: Checkpoint) -> "XLNetConfig":
        if checkpoint.model is None:
            return replace(ADAPTER.read_config(checkpoint.directory), **{name: getattr(self, name) for name in FREE})
        return checkpoint.saved_as(self, "an XLNet checkpoint in Hugging Face's form")

    def initialize(self, backbone: "XLNet", checkpoint: Checkpoint) -> None:
        if checkpoint.model is None:
            hf.require(self, vars(self.adapted_to(checkpoint)), checkpoint.source)
            load_strictly(dict(backbone.named_parameters()), ADAPTER.read(checkpoint, self).backbone, checkpoint.source)
            return
        checkpoint.fill(backbone, self, FREE)

    def check_streams(self, input: StreamInput, streams: StreamConfig, length: int) -> None:
        if self.memory > length:
            raise RamifyError(
                f"model.memory={self.memory} is longer than a stream of the data, which has {counted(length, 'token')}. "
                "Lower model.memory or view.streams, or take more text."
            )


class XLNetLayer(nn.Module):
    """Relative attention and feed-forward, each with a residual and LayerNorm. Both streams share all weights."""

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        self.attention = RelativeAttention(
            config.dim, config.num_heads, config.attention_dropout, relative=config.position == "relative"
        )
        self.attention_norm = nn.LayerNorm(config.dim, config.eps)
        self.ffn_in = Linear(config.dim, config.ffn_dim)
        self.ffn_out = Linear(config.ffn_dim, config.dim)
        self.ffn_norm = nn.LayerNorm(config.dim, config.eps)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = config.dropout

    def forward(
        self, x: Float[Tensor, "row query dim"], mixed: Float[Tensor, "row query dim"]
    ) -> Float[Tensor, "row query dim"]:
        """The layer's output for the states `x`, given what they read by attention."""
        x = self.attention_norm(add_dropout(x, mixed, self.dropout, self.training)).flatten(0, 1)
        hidden = dropout(self.activation(self.ffn_in(x)), self.dropout, self.training)
        x = self.ffn_norm(add_dropout(x, self.ffn_out(hidden), self.dropout, self.training))
        return x.view_as(mixed)


@dataclass(frozen=True)
class Memory:
    """The inputs of every layer that a batch can read from before its rows, oldest first."""

    states: Float[Tensor, "layer row key dim"]
    valid: Int[Tensor, " row"]
    """Number of states that each row may read, counted from the newest."""

    @property
    def size(self) -> int:
        return self.states.shape[2]

    @property
    def visible(self) -> Bool[Tensor, "row key"]:
        return torch.arange(self.size, device=self.valid.device) >= self.size - self.valid[:, None]


@dataclass(frozen=True)
class XLNetCache(Cache):
    """The keys and values of the content stream, and the keys of the distances that were needed so far."""

    keys: KeyValueCache
    codes: tuple[Float[Tensor, "1 head distance size"], ...]
    """The codes of each layer, from the greatest distance down to 0. All sequences share them."""

    @property
    def lengths(self) -> Int[Tensor, " sequence"]:
        return self.keys.lengths

    def reorder(self, index: NDArray[np.int64]) -> "XLNetCache":
        return replace(self, keys=self.keys.reorder(index))


class XLNet(StreamBackbone):
    """Section 2.3: the content stream h encodes tokens, and the query stream g encodes targets without their words."""

    config: XLNetConfig
    records_attention = True
    embedding: nn.Embedding
    layers: Any
    """A list of `XLNetLayer`."""
    mask_embedding: nn.Parameter
    """The query stream's state of every target before the first layer."""

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.mask_embedding = nn.Parameter(torch.empty(config.dim))
        self.layers = nn.ModuleList(XLNetLayer(config) for _ in range(config.num_layers))
        self.pool = Pool("mean", config.dim)
        if not config.untie_biases:
            for layer in self.layers:
                layer.attention.biases = self.layers[0].attention.biases
        for name, parameter in self.named_parameters():
            if "norm" in name:
                continue
            if name.endswith(".bias"):
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=INIT_STD)

    @property
    def out_dim(self) -> int:
        return self.config.dim

    @property
    def directions(self) -> Directions:
        return "both"

    @property
    def tied_embedding(self) -> nn.Embedding:
        return self.embedding

    @property
    def reads_context(self) -> bool:
        return False

    @property
    def max_tokens(self) -> None:
        return None

    @property
    def vector_dim(self) -> int:
        return self.config.dim

    @property
    def vector_read(self) -> Read:
        return "all"

    def layer_dims(self, *, context: bool = False) -> tuple[int, ...]:
        return (self.config.dim,) * (self.config.num_layers + 1)

    def layer_prefixes(self, *, context: bool = False) -> LayerPrefixes:
        return (("embedding.",), *((f"layers.{number}.",) for number in range(self.config.num_layers)))

    def encode_rows(
        self, rows: EncoderInput, *, layers: bool = False, read: Read = "all", record: AttentionRecord | None = None
    ) -> Encoded:
        """The content stream of texts without memory or a factorization order: every token reads all tokens of its row."""
        kept = kept_positions(rows.rows, rows.rows, layers=layers, read=read)
        lengths, filled, nothing = rows.rows.lengths, rows.rows.filled, self.embedding.weight.new_zeros(0, self.config.dim)
        streams: list[LayerWeights] = [{"content": []} for _ in self.layers]
        by_group = [[nothing] * (len(self.layers) + 1 if layers else 1)]
        for group in rows.rows.groups:
            if group.length == 0:
                for layer in streams:
                    layer["content"] += [nothing.new_zeros(self.config.num_heads, 0, 0)] * group.size
                continue
            places, host_lengths = slice(group.offset, group.end), rows.rows.host_lengths[group.start : group.stop]
            index = rows.rows.padded[places]
            ids = rows.ids.index_select(0, index).view(group.size, group.length)
            segments = None if rows.token_types is None else rows.token_types.index_select(0, index).view_as(ids)
            asked = None
            if read != "all":
                ends = lengths[group.start : group.stop, None]
                asked = torch.zeros_like(ends) if read == "first" else (ends - 1).clamp(min=0)
            states, weights = self._read_alone(ids, filled[places].view_as(ids), segments, asked, recorded=record is not None)
            states = [state.flatten(0, 1) for state in (states if layers else states[-1:])]
            if asked is not None and not host_lengths.all():
                full = torch.from_numpy(np.flatnonzero(host_lengths)).to(ids.device)
                states = [state.index_select(0, full) for state in states]
            by_group.append(states)
            for layer, blocks in zip(streams, weights, strict=True) if record is not None else ():
                layer["content"] += [block[:, :size, :size] for block, size in zip(blocks, host_lengths.tolist(), strict=True)]
        if record is not None:
            record["streams"] = streams
        joined = [torch.cat(states[1:] or states) for states in zip(*by_group, strict=True)]
        if kept is None:
            return Encoded(rows.rows, tuple(unpad(states, rows.rows) for states in joined))
        return Encoded(kept.rows, tuple(joined))

    def vector(self, encoded: Encoded) -> Float[Tensor, "row vector_dim"]:
        return self.pool(encoded.last.to(torch.promote_types(encoded.last.dtype, torch.float32)), encoded.rows)

    def _read_alone(
        self,
        ids: Int[Tensor, "row token"],
        real: Bool[Tensor, "row token"],
        segments: Int[Tensor, "row token"] | None,
        asked: Int[Tensor, "row 1"] | None,
        *,
        recorded: bool,
    ) -> tuple[list[Float[Tensor, "row _token dim"]], list[Float[Tensor, "row head _query token"]]]:
        """The embedding and the states after every layer of padded texts, and the attention weights of each layer if they are
        `recorded`. The last layer computes the states of the tokens `asked` alone; None: of all."""
        num_tokens = ids.shape[1]
        x = self.embedding(ids)
        if self.config.position == "absolute":
            x = x + self._positions(torch.arange(num_tokens, device=x.device), x)
        x = dropout(x, self.config.dropout, self.training)
        codes = self._code_table(num_tokens - 1, 1 - num_tokens, (1,), x)
        kinds = None if segments is None else F.one_hot(segments, SEGMENTS)
        mask = real[:, None, None].expand(-1, -1, num_tokens, -1)
        queries = Queries(slice(0, num_tokens), num_tokens, 0, num_tokens, mask, None, kinds)
        states, weights = [x], []
        for number, layer in enumerate(self.layers):
            keys = layer.attention.keys(
                x, num_tokens, codes, torch.zeros_like(ids[:, 0]), None if kinds is None else kinds.to(x.dtype)
            )
            if asked is not None and number == len(self.layers) - 1:
                x = x.gather(1, asked[:, :, None].expand(-1, -1, x.shape[2]))
                kinds = None if segments is None else F.one_hot(segments.gather(1, asked), SEGMENTS)
                queries = Queries(slice(0, 1), num_tokens, 0, num_tokens, mask[:, :, :1], asked, kinds)
            record: list[Tensor] | None = [] if recorded else None
            x = layer(x, layer.attention(x, keys, [queries], record))
            states.append(x)
            weights += record or []
        states[-1] = dropout(x, self.config.dropout, self.training)
        return states, weights

    def forward(
        self,
        batch: StreamBatch,
        state: State | None = None,
        *,
        targets_only: bool = False,
        record: AttentionRecord | None = None,
    ) -> StreamHidden:
        num_rows, num_tokens = batch.input_ids.shape
        memory = self._memory(batch, state)
        parts = [*content_parts(batch, memory)]
        x = self.embedding(batch.input_ids)
        if batch.targets is not None:
            parts += query_parts(batch, memory)
            masks = self.mask_embedding.expand(num_rows, batch.targets.positions.shape[1], -1)
            x = torch.cat([x, masks], 1)
        if self.config.position == "absolute":
            x = x + self._absolute(batch, x)
        x = dropout(x, self.config.dropout, self.training)
        codes, direction = self._codes(batch, memory, x)
        segments = _segments(batch, memory, x.dtype)
        inputs = []
        for number, layer in enumerate(self.layers):
            content = x[:, :num_tokens]
            inputs.append(content[:, : batch.reused].detach())
            read = content if memory is None else torch.cat([memory.states[number], content], 1)
            keys = layer.attention.keys(read, num_tokens, codes, direction, segments)
            if targets_only and number == len(self.layers) - 1:
                # Nobody reads the last layer's content stream.
                x, parts = x[:, num_tokens:], [part.moved(-num_tokens) for part in parts if part.positions is not None]
            recorded = None if record is None else []
            x = layer(x, layer.attention(x, keys, parts, recorded))
            if record is not None and recorded is not None:
                record.setdefault("streams", []).append(_by_stream(parts, recorded, keys.key.shape[2]))
        x = dropout(x, self.config.dropout, self.training)
        state = self._next(batch, memory, inputs)
        if targets_only:
            return StreamHidden(None, x, state)
        return StreamHidden(x[:, :num_tokens], None if batch.targets is None else x[:, num_tokens:], state)

    # --- memory (section 2.4) ----------------------------------------------------------------------------------------

    def _memory(self, batch: StreamBatch, state: State | None) -> Memory | None:
        zeros = self.config.memory_start == "zeros"
        if state is not None:
            states, begins = state["memory"], batch.begins
            if zeros:
                # A row that begins a text reads zeros again, and nothing of the text before it.
                return Memory(
                    states.masked_fill(begins[:, None, None], 0.0), state["valid"].masked_fill(begins, states.shape[2])
                )
            return Memory(states, state["valid"].masked_fill(begins, 0))
        if not (zeros and batch.reused and self.config.memory and batch.remembered is None):
            return None
        rows = len(batch.input_ids)
        states = self.mask_embedding.new_zeros(self.config.num_layers, rows, self.config.memory, self.config.dim)
        return Memory(states, batch.kept.new_full((rows,), self.config.memory))

    def _next(self, batch: StreamBatch, memory: Memory | None, inputs: Sequence[Tensor]) -> State | None:
        """The reused part of this batch behind the memory before it, as far as it fits."""
        size = self.config.memory if batch.remembered is None else batch.remembered
        if not batch.reused or not size:
            return None
        states, valid = torch.stack(list(inputs)), batch.kept
        if memory is not None:
            states = torch.cat([memory.states, states], 2)
            valid = torch.where(batch.continues, memory.valid + batch.reused, valid)
        return {"memory": states[:, :, -size:].detach(), "valid": valid.clamp(max=size)}

    # --- generation: the forward order, without memory or segments -----------------------------------------------------

    def read_prompts(
        self, prompts: EncoderInput, source: EncoderInput | None = None
    ) -> tuple[Float[Tensor, "sequence dim"], XLNetCache]:
        if source is not None:
            raise RamifyError("source needs an encoder-decoder; XLNet reads prompts alone. Leave it out.")
        # Of empty prompts alone, one column remains, which nobody reads.
        ids, begins = right_aligned(prompts.ids, prompts.rows)
        return self._read(ids, XLNetCache(KeyValueCache(len(self.layers), begins, ids.device), ()))

    def read_tokens(self, ids: Int[Tensor, " sequence"], cache: Cache) -> tuple[Float[Tensor, "sequence dim"], XLNetCache]:
        assert isinstance(cache, XLNetCache)
        return self._read(ids[:, None], cache)

    def _read(self, ids: Int[Tensor, "sequence token"], cache: XLNetCache) -> tuple[Float[Tensor, "sequence dim"], XLNetCache]:
        """Read the next tokens of each sequence, with one query behind them."""
        num_tokens, keys = ids.shape[1], cache.keys
        num_keys = keys.columns + num_tokens
        x = torch.cat([self.embedding(ids), self.mask_embedding.expand(len(ids), 1, -1)], 1)
        if self.config.position == "absolute":
            x = x + self._positions(keys.positions(num_tokens + 1), x)
        x = dropout(x, self.config.dropout, self.training)
        cache = self._reaching(cache, num_keys, x)
        mask = keys.visible(num_tokens + 1, num_keys)
        part = Queries(slice(0, num_tokens + 1), num_keys, 0, num_tokens + 1, mask)
        for number, layer in enumerate(self.layers):
            key, value = keys.append(number, layer.attention.key_values(x[:, :num_tokens]))
            codes = None
            if cache.codes:
                codes = cache.codes[number][:, :, -num_keys - 1 :]
                if num_tokens > 1:
                    # No token reads a later one, so the codes of negative distances may be anything.
                    codes = F.pad(codes, (0, 0, 0, num_tokens - 1))
            if number == len(self.layers) - 1:
                # Nobody reads the last layer's content stream.
                x = x[:, -1:]
                part = Queries(slice(0, 1), num_keys, num_tokens, num_tokens + 1, None if mask is None else mask[:, :, -1:])
            x = layer(x, layer.attention(x, Keys(key, value, num_tokens + 1, codes), [part]))
        return dropout(x[:, 0], self.config.dropout, self.training), cache

    def _reaching(self, cache: XLNetCache, greatest: int, like: Tensor) -> XLNetCache:
        """The cache with the keys of all distances up to `greatest`. Each is computed once."""
        size = cache.codes[0].shape[2] if cache.codes else 0
        if self.config.position == "absolute" or greatest < size:
            return cache
        new = self._code_table(with_room(greatest), size, (1,), like)
        tables = [layer.attention.coded(new) for layer in self.layers]
        if cache.codes:
            tables = [torch.cat(pair, 2) for pair in zip(tables, cache.codes, strict=True)]
        return replace(cache, codes=tuple(tables))

    # --- positions and segments --------------------------------------------------------------------------------------

    def _codes(
        self, batch: StreamBatch, memory: Memory | None, like: Tensor
    ) -> tuple[Float[Tensor, "direction distance dim"], Int[Tensor, " row"]]:
        """The codes of all distances, from that of the last token to the first key downwards, and the codes of each row."""
        num_tokens = batch.input_ids.shape[1]
        greatest = num_tokens - 1 + (0 if memory is None else memory.size)
        # Backward rows have the text after them in memory. Negated distances keep the true offsets of the text.
        signs = sorted(set(batch.direction.tolist()), reverse=True)
        index = torch.from_numpy(np.searchsorted(-np.array(signs), -batch.direction)).to(like.device)
        return self._code_table(greatest, 1 - num_tokens, signs, like), index

    def _code_table(
        self, greatest: int, least: int, signs: Sequence[int], like: Tensor
    ) -> Float[Tensor, "direction distance dim"]:
        """The codes of the distances from `greatest` down to `least`."""
        codes = distance_codes(greatest, least, self.config.dim, like, signs=signs, limit=self.config.max_distance)
        return dropout(codes, self.config.dropout, self.training)

    def _absolute(self, batch: StreamBatch, like: Tensor) -> Float[Tensor, "row query dim"]:
        """Sinusoids for tokens and targets."""
        table = self._positions(torch.arange(batch.input_ids.shape[1], device=like.device), like)
        every = table.expand(len(like), -1, -1)
        if batch.targets is None:
            return every
        return torch.cat([every, F.embedding(batch.targets.positions, table)], 1)

    def _positions(self, positions: Int[Tensor, "*axes place"], like: Tensor) -> Float[Tensor, "*axes place dim"]:
        """Sinusoids of the size of the embeddings."""
        codes = sinusoids(positions.flatten().double(), self.config.dim) * INIT_STD * 2**0.5
        return codes.to(like.dtype).view(*positions.shape, -1)


def content_parts(batch: StreamBatch, memory: Memory | None) -> Iterator[Queries]:
    """The queries of the content stream: every token reads itself and the tokens before it in the factorization order."""
    num_tokens, before = batch.input_ids.shape[1], 0 if memory is None else memory.size
    order, keys = _orders(batch, memory)
    for start, stop in batch.parts or ((0, num_tokens),):
        mask = keys[:, None, : before + stop] <= order[:, start:stop, None]
        segments = None if batch.segments is None else F.one_hot(batch.segments[:, start:stop], SEGMENTS)
        yield Queries(slice(start, stop), before + stop, start, stop, mask[:, None], None, segments)


def query_parts(batch: StreamBatch, memory: Memory | None) -> Iterator[Queries]:
    """The queries of the query stream: every target reads the tokens before it in the factorization order."""
    assert batch.targets is not None
    num_tokens, before = batch.input_ids.shape[1], 0 if memory is None else memory.size
    order, keys = _orders(batch, memory)
    done = 0
    for (start, stop), count in zip(batch.parts or ((0, num_tokens),), batch.targets.counts, strict=True):
        positions = batch.targets.positions[:, done : done + count]
        mask = keys[:, None, : before + stop] < order.gather(1, positions)[:, :, None]
        segments = None if batch.segments is None else F.one_hot(batch.segments.gather(1, positions), SEGMENTS)
        rows = slice(num_tokens + done, num_tokens + done + count)
        if count:
            yield Queries(rows, before + stop, start, stop, mask[:, None], positions, segments)
        done += count


def _by_stream(
    parts: Sequence[Queries], recorded: Sequence[Float[Tensor, "row head _query _key"]], num_keys: int
) -> LayerWeights:
    """The weights of both streams, each of all parts, among all keys."""
    streams: dict[str, list[Tensor]] = {}
    for part, weights in zip(parts, recorded, strict=True):
        stream = "content" if part.positions is None else "query"
        streams.setdefault(stream, []).append(F.pad(weights, (0, num_keys - weights.shape[-1])))
    return {stream: [*torch.cat(weights, 2)] for stream, weights in streams.items()}


def _orders(batch: StreamBatch, memory: Memory | None) -> tuple[Int[Tensor, "row token"], Int[Tensor, "row key"]]:
    """The factorization order of tokens and of keys. Memory precedes everything, or is never reached."""
    order = torch.zeros_like(batch.input_ids) if batch.order is None else batch.order
    if memory is None:
        return order, order
    return order, torch.cat([torch.where(memory.visible, -1, NEVER).to(order.dtype), order], 1)


def _segments(batch: StreamBatch, memory: Memory | None, dtype: torch.dtype) -> Float[Tensor, "row key segment"] | None:
    """The segments of all keys. Memory belongs to the first segment."""
    if batch.segments is None:
        return None
    before = 0 if memory is None else memory.size
    return F.one_hot(F.pad(batch.segments, (before, 0)), SEGMENTS).to(dtype)


# --- Hugging Face ---------------------------------------------------------------------------------------------------

MODEL_TYPE = "xlnet"

ATTENTION_KEYS = {"query": "q", "out": "o", "distance": "r"}
"""Linear maps of attention. Hugging Face's o maps back to the model's size, so it is stored the other way round."""

LAYER_KEYS = {
    "attention_norm": "rel_attn.layer_norm",
    "ffn_in": "ff.layer_1",
    "ffn_out": "ff.layer_2",
    "ffn_norm": "ff.layer_norm",
}
BIAS_KEYS = ("r_w_bias", "r_r_bias", "r_s_bias")
"""The rows of `RelativeAttention.biases`: content, position, segment."""

SIZES = {"d_model": "dim", "n_layer": "num_layers", "n_head": "num_heads", "d_inner": "ffn_dim", "vocab_size": "vocab_size"}


NEEDED = {
    "attn_type": ("bi", "lets a token read only those before it, but Ramify's content stream reads both sides"),
    "same_length": (False, "limits how far back a token reads, but Ramify's tokens read the whole row"),
    "bi_data": (False, "reads half of each batch backwards; Ramify's batches say it themselves"),
}
"""The only supported values of some settings, and the effect of any other."""

LONGEST = 512
"""The length of rows that a checkpoint's pipeline reads, as in the paper. No checkpoint states it."""


SUMMARY = HeadForm("ForSequenceClassification", "logits_proj", ("summary",), "sequence_summary.summary")

LABEL_HEADS: Forms = {
    "rows": SUMMARY,
    "tokens": HeadForm("ForTokenClassification", "classifier"),
    "answers": HeadForm("ForQuestionAnsweringSimple", "qa_outputs"),
    "choices": replace(SUMMARY, ending="ForMultipleChoice"),
}

SUMMARIZED = {
    "summary_type": ("last", "reads other tokens than the last, whose summary Ramify has"),
    "summary_use_proj": (True, "leaves out the linear map of the summary"),
    "summary_activation": ("tanh", "has another function than the published summary"),
}
"""The only supported values of settings of a summary, and the effect of any other."""


class XLNetAdapter(HFAdapter[XLNetConfig]):
    """Reads and writes `XLNetLMHeadModel`, and the classes with a head on labelled texts."""

    @property
    def model(self) -> type[XLNetConfig]:
        return XLNetConfig

    def read_config(self, directory: Path) -> XLNetConfig:
        theirs, path = hf.read_config(directory), directory / hf.CONFIG
        if theirs.get("model_type") != MODEL_TYPE:
            raise RamifyError(f"{path}: model_type={theirs.get('model_type')!r} is not xlnet. Choose another checkpoint.")
        if missing := [name for name in SIZES if type(theirs.get(name)) is not int]:
            raise RamifyError(
                f"{path}: {', '.join(missing)} must be whole numbers, so the checkpoint is not complete. Download it again."
            )
        hf.check_settings(path, theirs, NEEDED, "XLNet")
        clamp = theirs.get("clamp_len", -1)
        return XLNetConfig(
            **{ours: theirs[name] for name, ours in SIZES.items()},
            dropout=theirs.get("dropout", 0.1),
            attention_dropout=theirs.get("dropout", 0.1),
            activation=hf.activation(theirs, "ff_activation", "gelu"),
            memory=theirs.get("mem_len") or 0,
            max_distance=clamp if clamp > 0 else None,
            eps=theirs.get("layer_norm_eps", 1e-12),
        )

    def read(self, checkpoint: Checkpoint, config: XLNetConfig) -> PortableModel[XLNetConfig]:
        theirs, path = hf.read_config(checkpoint.directory), checkpoint.directory / hf.CONFIG
        label_head = read_head(theirs, path, LABEL_HEADS, checkpoint.tensor)
        if label_head is not None:
            if label_head.read is not None:
                hf.check_settings(path, theirs, SUMMARIZED, "XLNet")
            names = LABEL_HEADS[label_head.kind].names
            tensors = {name: tensor for name, tensor in checkpoint.tensors.items() if name not in names}
            backbone, _ = tensors_from_hf(tensors, config, checkpoint.source)
            input: dict[str, Any] = {"max_tokens": LONGEST, "layout": config.published.layout}
            if label_head.kind == "answers":
                input["order"] = config.published.order
            return PortableModel(config, backbone, input=input, label_head=label_head)
        hf.require_output(path, checkpoint.tensors, "lm_loss.weight")
        backbone, head = tensors_from_hf(checkpoint.tensors, config, checkpoint.source)
        reused = theirs.get("reuse_len") or 0
        return PortableModel(
            config,
            backbone,
            heads={f"head.{name}": tensor for name, tensor in head.items()},
            task={"tie_weights": "weight" not in head},
            # No number stands for all states.
            input={"row_tokens": max(LONGEST, 2 * reused), "reused_tokens": reused} if reused > 0 else {},
        )

    def write(self, model: PortableModel[XLNetConfig]) -> ForeignFiles:
        if model.label_head is not None:
            form = LABEL_HEADS[model.label_head.kind]
            summary = {name: value for name, (value, _) in SUMMARIZED.items()}
            config = {"architectures": [f"XLNet{form.ending}"], **config_to_hf(model.config), **summary}
            tensors = backbone_to_hf(model.backbone, model.config) | head_tensors(form, model.label_head)
            settings = {"padding_side": "left", "model_max_length": model.input["max_tokens"]}
            return ForeignFiles(config | head_settings(model.label_head), tensors, model.input["layout"], settings)
        if not model.task["tie_weights"]:
            raise RamifyError(
                "task.tie_weights=false has no Hugging Face form, whose output map is the token embedding. Train a model with "
                "task.tie_weights=true."
            )
        if model.task["next_segment"]:
            raise RamifyError(
                f"task.next_segment={model.task['next_segment']:g} has no Hugging Face form, whose XLNet has no head for "
                "whether a segment follows another. Train a model with task.next_segment=0."
            )
        config = {
            "architectures": ["XLNetLMHeadModel"],
            **config_to_hf(model.config),
            "reuse_len": model.input["reused_tokens"],
        }
        tensors = tensors_to_hf(model.backbone, model.config, model.heads["head.bias"])
        # Rows end with CLS, so padding stands before them.
        return ForeignFiles(config, tensors, "xlnet", {"padding_side": "left"})


ADAPTER = XLNetAdapter()


def config_to_hf(config: XLNetConfig) -> dict[str, Any]:
    if config.position != "relative":
        raise RamifyError(
            f"model.position={config.position} has no Hugging Face form. Train a model with model.position=relative."
        )
    return {
        "model_type": MODEL_TYPE,
        **{name: getattr(config, ours) for name, ours in SIZES.items()},
        "d_head": config.dim // config.num_heads,
        "dropout": config.dropout,
        "ff_activation": hf.activation_to_hf(config.activation),
        "untie_r": config.untie_biases,
        "attn_type": "bi",
        "mem_len": config.memory or None,
        "clamp_len": -1 if config.max_distance is None else config.max_distance,
        "layer_norm_eps": config.eps,
    }


def tensors_from_hf(
    theirs: Mapping[str, Tensor], config: XLNetConfig, source: str | Path
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The model's parameters under Ramify's names, and those of its head: none if the checkpoint has no head.

    Raises `RamifyError` for missing and surplus keys. `source` names the checkpoint in messages.
    """
    prefix = "transformer."
    prefixed = any(key.startswith(prefix) for key in theirs)
    left = {name.removeprefix(prefix): name for name in theirs}
    missing: list[str] = []

    def take(name: str) -> Tensor:
        if name not in left:
            missing.append(prefix * (prefixed and not name.startswith("lm_loss.")) + name)
            return torch.zeros(1, 1, 1)
        return theirs[left.pop(name)]

    ours = {"embedding.weight": take("word_embedding.weight"), "mask_embedding": take("mask_emb").flatten()}
    for number in range(config.num_layers):
        there, here = f"layer.{number}.", f"layers.{number}."
        attention = f"{there}rel_attn."
        for name, other in ATTENTION_KEYS.items():
            weight = take(attention + other).flatten(1)
            ours[f"{here}attention.{name}.weight"] = weight if name == "out" else weight.t()
        halves = [take(attention + kind).flatten(1).t() for kind in "kv"]
        biases = [take(attention + name) for name in BIAS_KEYS]
        ours[f"{here}attention.segments"] = take(f"{attention}seg_embed")
        for name, other in LAYER_KEYS.items():
            ours |= {f"{here}{name}.{kind}": take(f"{there}{other}.{kind}") for kind in ("weight", "bias")}
        if not missing:
            ours[f"{here}attention.key_value.weight"], ours[f"{here}attention.biases"] = torch.cat(halves), torch.stack(biases)
    head = {}
    if {"lm_loss.bias", "lm_loss.weight"} & left.keys():
        head["bias"] = take("lm_loss.bias")
        if "lm_loss.weight" in left and not torch.equal(weight := take("lm_loss.weight"), ours["embedding.weight"]):
            head["weight"] = weight
    if missing or left:
        problems = [
            f"{what} {hf.listed(sorted(names))}"
            for what, names in (("holds no tensor", missing), ("also holds", list(left.values())))
            if names
        ]
        raise RamifyError(
            f"the checkpoint {source} {' and '.join(problems)}, so it is not the XLNet that its config.json describes. "
            "Download it again, or choose another one."
        )
    return {name: tensor.contiguous() for name, tensor in ours.items()}, head


def tensors_to_hf(ours: Mapping[str, Tensor], config: XLNetConfig, head_bias: Tensor) -> dict[str, Tensor]:
    # The output map is stored beside the embedding that it shares its numbers with, as transformers does.
    return backbone_to_hf(ours, config) | {"lm_loss.weight": ours["embedding.weight"].clone(), "lm_loss.bias": head_bias}


def backbone_to_hf(ours: Mapping[str, Tensor], config: XLNetConfig) -> dict[str, Tensor]:
    shape = (config.dim, config.num_heads, -1)
    theirs = {"word_embedding.weight": ours["embedding.weight"], "mask_emb": ours["mask_embedding"][None, None]}
    for number in range(config.num_layers):
        there, here = f"layer.{number}.", f"layers.{number}."
        attention = f"{there}rel_attn."
        for name, other in ATTENTION_KEYS.items():
            weight = ours[f"{here}attention.{name}.weight"]
            theirs[attention + other] = (weight if name == "out" else weight.t()).reshape(shape)
        for kind, weight in zip("kv", ours[f"{here}attention.key_value.weight"].chunk(2), strict=True):
            theirs[attention + kind] = weight.t().reshape(shape)
        theirs |= {attention + name: bias for name, bias in zip(BIAS_KEYS, ours[f"{here}attention.biases"], strict=True)}
        theirs[f"{attention}seg_embed"] = ours[f"{here}attention.segments"]
        for name, other in LAYER_KEYS.items():
            theirs |= {f"{there}{other}.{kind}": ours[f"{here}{name}.{kind}"] for kind in ("weight", "bias")}
    return {f"transformer.{name}": tensor for name, tensor in theirs.items()}
