"""What every system is made of: a backbone turns a batch into hidden states."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ramify.batching.batch import Batch
from ramify.batching.views.comment_trees import Reading, Seen
from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.nn.blocks import Context
from ramify.nn.ragged import Rows, keep_eager, runs

State = Mapping[str, Tensor]
"""What the next batch of the same rows continues from (memories, caches); detached."""


def check_config(config: Any) -> None:
    """Raise where a model's config holds a size, a rate or a constant that no model can be built with."""
    check_fields(config, "model.")
    least = {"vocab_size": 0, "type_vocab_size": 0, "max_tokens": 3, "depth": 0}
    for name, value in vars(config).items():
        if type(value) is int and value < least.get(name, 1):
            raise RamifyError(f"model.{name} must be at least {least.get(name, 1)}, not {value}.")
    for name in ("dropout", "attention_dropout"):
        if not 0 <= getattr(config, name, 0) < 1:
            raise RamifyError(f"model.{name} must be at least 0 and below 1, not {getattr(config, name)}.")
    if getattr(config, "eps", 1) <= 0:
        raise RamifyError(f"model.eps must be a positive number, not {config.eps}.")
    if hasattr(config, "num_heads") and config.dim % config.num_heads:
        raise RamifyError(f"model.dim ({config.dim}) must be a multiple of model.num_heads ({config.num_heads}).")


@dataclass(frozen=True)
class Hidden:
    """States of the targets' tokens; `positions` says which (None = all)."""

    tokens: Float[Tensor, "position dim"]
    positions: Int[Tensor, " position"] | None = None
    state: State | None = None


class AnyBackbone(nn.Module, ABC):
    """A body without a head."""

    config: Any
    passes: tuple[str, ...] = ("forward",)
    """The methods through which training computes."""

    def compile_passes(self) -> None:
        """`torch.compile` what training calls, once."""
        keep_eager()
        for name in self.passes:
            if name not in vars(self):
                setattr(self, name, torch.compile(getattr(self, name), dynamic=True))


class Backbone(AnyBackbone):
    """A body that gives states of tokens. `embedding` is the token embedding that heads may be tied to."""

    embedding: nn.Embedding

    @abstractmethod
    def forward(self, batch: Batch, state: State | None = None) -> Hidden:
        """The final states of the targets' tokens, or of those that `batch.wanted` names."""

    @abstractmethod
    def pooled(self, hidden: Hidden, batch: Batch) -> Float[Tensor, "target dim"]:
        """One vector a target, from all its tokens' states."""

    def in_context(self, reading: Reading, seen: Seen | None) -> Reading:
        """A way of reading with another context (None: its own). Raises where this model cannot read that."""
        if seen is None or seen == reading.seen:
            return reading
        if seen == "null":
            raise RamifyError("only a model that was trained on its null row can read it: choose the context none.")
        if seen != "none" and not (isinstance(self, TwoPhase) or reading.concatenate):
            raise RamifyError(f"this {type(self).__name__} reads no context: choose the context none, not {seen}.")
        return replace(reading, seen=seen)


class TwoPhase(Backbone):
    """A backbone that reads other nodes' vectors: encoding nodes and reading their vectors are two steps, so that a whole
    tree's gradient can be had chunk by chunk."""

    passes = ("encode", "decode")

    @abstractmethod
    def encode(self, ids: Int[Tensor, " total"], rows: Rows) -> Float[Tensor, "row dim"]:
        """A vector a row of clean text."""

    @abstractmethod
    def contextualize(self, vectors: Float[Tensor, "node dim"], batch: Batch) -> Context:
        """The vectors as the targets of the batch read them."""

    @abstractmethod
    def decode(self, batch: Batch, context: Context) -> Hidden:
        """The targets' states, given what they read."""


def encode_nodes(backbone: TwoPhase, batch: Batch, limit: int) -> Float[Tensor, "node dim"]:
    """All clean nodes' vectors, at most `limit` tokens at a time."""
    vectors = [backbone.encode(*batch.node_part(start, stop)) for start, stop in batch.nodes.runs(limit)]
    if vectors:
        return torch.cat(vectors)
    return backbone.embedding.weight.new_zeros(0, backbone.embedding.embedding_dim)


def decode_parts(
    backbone: Backbone, batch: Batch, limit: int, vectors: Float[Tensor, "node dim"] | None = None
) -> Iterator[tuple[Batch, Hidden]]:
    """The batch's targets in parts of at most `limit` (see `Batch.costs`), with their states; nodes are encoded once (or not at
    all, where their `vectors` are given)."""
    if isinstance(backbone, TwoPhase) and not batch.null_context:
        vectors = encode_nodes(backbone, batch, limit) if vectors is None else vectors
        for start, stop in runs(batch.costs, limit):
            part, read = batch.select(start, stop).reading_its_own()
            yield part, backbone.decode(part, backbone.contextualize(vectors.index_select(0, read), part))
    else:
        for start, stop in runs(batch.costs, limit):
            part = batch.select(start, stop)
            yield part, backbone(part)
