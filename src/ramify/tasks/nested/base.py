"""The contract of a loss of nested documents, and the level of a batch that it reads."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from ramify.batching.document_batch import BOS, LevelBatch, LevelDraws
from ramify.batching.forest import Ints, ranges
from ramify.models.agent import LevelDecoder, LevelEncoder
from ramify.models.name_memory import NamesOfRows
from ramify.nn.ragged import Rows
from ramify.tasks.constants import Constant, Known
from ramify.tasks.nested.candidates import Classes


@dataclass(frozen=True)
class DecodedLevel:
    """A decoder's output for the rows of one level."""

    states: Float[Tensor, "slot dim"]
    """One state per slot of the true rows, their end marks included."""
    decompressed: Float[Tensor, "slot dim"]
    """The Decompressor's output at the same slots, before it reads names."""
    length_scores: Float[Tensor, "row place"] | None
    """Scores of the number of places, if a head predicts it."""


@dataclass(frozen=True)
class EncodedLevel:
    """The rows of one level, encoded."""

    level: int
    """The level of the children."""
    encoder: LevelEncoder
    rows: LevelBatch
    items: Float[Tensor, "item dim"]
    """The marks, and the tokens or the children's vectors with those of the queue."""
    classes: Classes | None
    """The candidates above the tokens. Tokens have a vocabulary."""
    centre: Float[Tensor, " dim"] | None
    """The mean of the children's vectors, if scores are cosines or masked children are predicted along the sibling path."""
    states: Float[Tensor, "slot dim"]
    parents: Float[Tensor, "row parent"]
    names: NamesOfRows | None = None
    """The banks of names that rows of tokens read; None above the tokens, and without a memory."""

    def with_names(self, states: Float[Tensor, "slot dim"], rows: Rows) -> Float[Tensor, "slot dim"]:
        """The states of the same rows, laid out as `rows`, after they have read their banks."""
        return states if self.names is None else self.names.read(states, rows)

    def decode(self, decoder: LevelDecoder) -> DecodedLevel:
        """Decode the vectors at the places of their true children and marks, as in training."""
        rows, device = self.rows, self.parents.device
        true = Rows.build(rows.lengths).to(device)
        laid = true if decoder.length is not None else decoder.all_places(len(true), device)
        decompressed = decoder.decompress(self.parents, laid)
        read = self.with_names(decompressed, laid)
        at = torch.from_numpy(first_places(laid.host_lengths, rows.lengths)).to(device)
        if decoder.autoregressive:
            slots = rows.slots.index_select(0, rows.true_slots)
            before = torch.cat([slots.new_zeros(1), slots[:-1]])
            before = torch.where(true.positions == 0, BOS, before)
            previous = F.embedding(before, self.items) * self.encoder.scale
            states = decoder.after(previous, true, read, laid)
        else:
            states = decoder.parallel(read, laid).index_select(0, at)
        scores = None if decoder.length is None else decoder.length(self.parents)
        return DecodedLevel(states, decompressed.index_select(0, at), scores)


@dataclass(frozen=True)
class LevelPass:
    """One level of a batch in training: its rows, encoded and decoded, and its random draws."""

    encoded: EncodedLevel
    decoder: LevelDecoder
    draws: LevelDraws

    @cached_property
    def decoded(self) -> DecodedLevel:
        """One pass of the decoder for all losses that read it, and none if all of them are left out."""
        return self.encoded.decode(self.decoder)

    @cached_property
    def replaced_states(self) -> Float[Tensor, "slot dim"]:
        """The states of the slots where some children are replaced: one pass for all losses that read them."""
        encoded, draws = self.encoded, self.draws
        return encoded.encoder.states(encoded.items, draws.replaced_slots, encoded.rows.rows, draws.segments)


class LevelRecord:
    """The constants of losses and the vectors of levels, gathered while the losses of a batch are computed."""

    def __init__(self) -> None:
        self.constants: dict[str, Constant] = {}
        self.vectors: dict[str, list[Float[Tensor, "row dim"]]] = {}

    def add_level(self, name: str, level: LevelPass, losses: "Mapping[str, LevelLoss]") -> None:
        """Add a level whose vectors have this name, and its losses."""
        for loss_name, loss in losses.items():
            self.add_constant(loss_name, loss.constant(level))
        # A long document's rows are copies of each other.
        _, first = np.unique(level.encoded.rows.source, return_index=True)
        parents = level.encoded.parents
        self.vectors.setdefault(name, []).append(parents[torch.from_numpy(first).to(parents.device)])

    def add_constant(self, name: str, constant: Constant) -> None:
        self.constants[name] = self.constants[name] + constant if name in self.constants else constant


class LevelLoss(ABC):
    """A loss of one level of children. Its fields are the settings and modules that it reads."""

    kind: ClassVar[str]
    title: ClassVar[str]
    """The heading of its curves in a report."""
    unit: ClassVar[str]
    of_children: ClassVar[bool] = False
    """Whether the children's level completes its name, and not that of their parents."""
    of_decoder: ClassVar[bool] = False
    """Whether a decoder alone can learn from it, given vectors that stay as they are."""
    above_tokens: ClassVar[bool] = False
    """Whether tokens have no such loss."""

    @classmethod
    def name(cls, level: str) -> str:
        """The name of the loss on one level."""
        return f"{cls.kind}_{level}"

    @abstractmethod
    def count(self, rows: LevelBatch, draws: LevelDraws) -> float:
        """The number of terms in the sum over a batch. Training divides by it."""

    @abstractmethod
    def value(self, level: LevelPass, scale: float) -> Float[Tensor, ""] | None:
        """The weighted sum of all terms, times `scale`; None if the level has no term."""

    @abstractmethod
    def constant(self, level: LevelPass) -> Constant:
        """The loss of the best constant prediction, in the unit of `value`."""


def relative_distance(one: Float[Tensor, "row dim"], other: Float[Tensor, "row dim"]) -> Float[Tensor, ""]:
    """Twice the mean distance, divided by the sum of the mean lengths: 0 for equal vectors, whatever their scale."""
    distance = torch.linalg.vector_norm(one - other, dim=1).mean()
    lengths = torch.linalg.vector_norm(one, dim=1).mean() + torch.linalg.vector_norm(other, dim=1).mean()
    return 2 * distance / lengths.clamp(min=1e-12)


def mean_distance(vectors: Float[Tensor, "row dim"], weight: float) -> Known:
    """The constant of a relative distance of this weight: it is one of all vectors of a batch, predicted by their mean."""
    if not weight or not len(vectors):
        return Known(0.0)
    return Known(weight * float(relative_distance(vectors, vectors.mean(0, keepdim=True).expand_as(vectors))))


def first_places(lengths: Ints, wanted: Ints) -> Ints:
    """Flat indices of the first `wanted` places of each row."""
    starts = np.cumsum(lengths) - lengths
    return ranges(starts, starts + wanted)
