"""The contract of caches, and the keys and values of attention: what a decoder has computed of the tokens that it has read."""

from abc import ABC, abstractmethod
from typing import Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Cache(ABC):
    """The keys and values, recurrent states or memory of sequences. It owns positions, and a length per sequence."""

    @property
    @abstractmethod
    def lengths(self) -> Int[Tensor, " sequence"]:
        """The number of tokens that each sequence has read."""

    @abstractmethod
    def reorder(self, index: Int[Tensor, " kept"]) -> Self:
        """The cache of other sequences: `index` may repeat sequences (beams) and leave some out (ended ones)."""


class KeyValueCache(Cache):
    """The keys and values of every layer, in columns.

    The newest tokens of all sequences share a column. So the distance between two tokens is that between their columns, and a
    shorter sequence begins in a later column; nobody reads the columns before it.
    """

    def __init__(self, num_layers: int, begins: Int[Tensor, " sequence"], *, padded: bool) -> None:
        """`begins` is the column in which each sequence begins, and `padded` whether any of them is not the first."""
        self.begins = begins
        self.padded = padded
        self._layers = [_Growing() for _ in range(num_layers)]

    @property
    def columns(self) -> int:
        """The number of columns that all layers have."""
        return self._layers[-1].length

    @property
    def lengths(self) -> Int[Tensor, " sequence"]:
        return self.columns - self.begins

    def append(
        self, layer: int, new: Float[Tensor, "2 sequence head token size"]
    ) -> Float[Tensor, "2 sequence head column size"]:
        """Add the keys and values of the next tokens to a layer, and return all keys and values of the layer."""
        return self._layers[layer].append(new)

    def positions(self, count: int) -> Int[Tensor, "sequence {count}"]:
        """The positions of the next `count` tokens of each sequence. Those before its first token are 0."""
        columns = torch.arange(self.columns, self.columns + count, device=self.begins.device)
        return (columns - self.begins[:, None]).clamp(min=0)

    def visible(self, queries: int, keys: int) -> Bool[Tensor, "sequence 1 {queries} {keys}"] | None:
        """Whether each of the next `queries` tokens reads each of the first `keys` columns.

        It reads those of its own sequence up to its own column. None: every query reads every key.
        """
        if not self.padded and keys <= self.columns + 1:
            return None
        columns = torch.arange(keys, device=self.begins.device)
        last = torch.arange(self.columns, self.columns + queries, device=self.begins.device)
        mask = (columns <= last[:, None]) & (columns >= self.begins[:, None, None])
        return mask[:, None]

    def reorder(self, index: Int[Tensor, " kept"]) -> "KeyValueCache":
        begins = self.begins.index_select(0, index)
        first, latest = (int(begin) for begin in begins.aminmax()) if len(begins) else (0, 0)
        # Columns in which no sequence has begun are left out.
        kept = KeyValueCache(0, begins - first, padded=latest > first)
        kept._layers = [layer.of(index, first) for layer in self._layers]
        return kept


class _Growing:
    """The keys and values of a layer, in a table with room for later columns."""

    def __init__(self) -> None:
        self.length = 0
        self._table: Tensor | None = None

    def append(self, new: Float[Tensor, "2 sequence head token size"]) -> Float[Tensor, "2 sequence head column size"]:
        length = self.length + new.shape[3]
        if self._table is None or length > self._table.shape[3]:
            table = new.new_empty((*new.shape[:3], with_room(length), new.shape[4]))
            if self._table is not None:
                table[:, :, :, : self.length] = self._table[:, :, :, : self.length]
            self._table = table
        self._table[:, :, :, self.length : length] = new
        self.length = length
        return self._table[:, :, :, :length]

    def of(self, index: Int[Tensor, " kept"], first: int) -> "_Growing":
        """The columns of other sequences from `first` on."""
        kept = _Growing()
        if self._table is not None:
            kept.length = self.length - first
            kept._table = self._table[:, :, :, first:].index_select(1, index)
        return kept


def with_room(length: int) -> int:
    """The size of a table that holds `length` entries and has room for more, so that growing costs a constant per entry."""
    return length + length // 2 + 16
