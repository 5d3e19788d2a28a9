"""The contract of caches, and the keys and values of attention: what a decoder has computed of the tokens that it has read."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from ramify.nn.ragged import Rows, on_device, pad


class Cache(ABC):
    """The keys and values, recurrent states or memory of sequences. It owns positions, and a length per sequence."""

    @property
    @abstractmethod
    def lengths(self) -> Int[Tensor, " sequence"]:
        """The number of tokens that each sequence has read."""

    @abstractmethod
    def reorder(self, index: NDArray[np.int64]) -> Self:
        """The cache of other sequences: `index` may repeat sequences (beams) and leave some out (ended ones).

        It is on the host, where searches decide, so no device is asked for sizes. The given cache is used up.
        """


class KeyValueCache(Cache):
    """The keys and values of every layer, in columns.

    The newest tokens of all sequences share a column. So the distance between two tokens is that between their columns, and a
    shorter sequence begins in a later column; nobody reads the columns before it.
    """

    def __init__(
        self, num_layers: int, begins: NDArray[np.int64], device: torch.device, *, sources: "SourceKeys | None" = None
    ) -> None:
        """`begins` is the column in which each sequence begins. `sources` are the texts that the sequences read by
        cross-attention."""
        self.sources = sources
        self._begins = begins
        self._first_columns = on_device(begins, device)
        self._layers = [_Growing() for _ in range(num_layers)]

    def __len__(self) -> int:
        """The number of sequences."""
        return len(self._begins)

    @property
    def columns(self) -> int:
        """The number of columns that all layers have."""
        return self._layers[-1].length

    @property
    def lengths(self) -> Int[Tensor, " sequence"]:
        return self.columns - self._first_columns

    def append(
        self, layer: int, new: Float[Tensor, "2 sequence head token size"]
    ) -> Float[Tensor, "2 sequence head column size"]:
        """Add the keys and values of the next tokens to a layer, and return all keys and values of the layer."""
        return self._layers[layer].append(new)

    def positions(self, count: int) -> Int[Tensor, "sequence {count}"]:
        """The positions of the next `count` tokens of each sequence. Those before its first token are 0."""
        columns = torch.arange(self.columns, self.columns + count, device=self._first_columns.device)
        return (columns - self._first_columns[:, None]).clamp(min=0)

    def visible(self, queries: int, keys: int) -> Bool[Tensor, "sequence 1 {queries} {keys}"] | None:
        """Whether each of the next `queries` tokens reads each of the first `keys` columns.

        It reads those of its own sequence up to its own column. None: every query reads every key.
        """
        if not self._begins.any() and keys <= self.columns + 1:
            return None
        device = self._first_columns.device
        columns = torch.arange(keys, device=device)
        last = torch.arange(self.columns, self.columns + queries, device=device)
        mask = (columns <= last[:, None]) & (columns >= self._first_columns[:, None, None])
        return mask[:, None]

    def reorder(self, index: NDArray[np.int64]) -> "KeyValueCache":
        begins, device = self._begins[index], self._first_columns.device
        # Columns in which no sequence has begun are left out.
        first = int(begins.min()) if len(begins) else 0
        sources = None if self.sources is None else self.sources.reorder(index)
        kept = KeyValueCache(0, begins - first, device, sources=sources)
        places = on_device(index, device)
        kept._layers = [layer.of(places, first) for layer in self._layers]
        return kept


class _Growing:
    """The keys and values of a layer, in a table with room for later columns. Columns come first, so those that are filled lie
    together in memory."""

    def __init__(self) -> None:
        self.length = 0
        self._table: Float[Tensor, "column 2 sequence head size"] | None = None
        self._spare: Tensor | None = None
        """A table that is no longer read. New memory for every order of the sequences would take longer than the copy."""

    def append(self, new: Float[Tensor, "2 sequence head token size"]) -> Float[Tensor, "2 sequence head column size"]:
        length = self.length + new.shape[3]
        if self._table is None or length > len(self._table):
            table = new.new_empty(with_room(length), *new.shape[:3], new.shape[4])
            if self._table is not None:
                table[: self.length] = self._table[: self.length]
            self._table = table
        self._table[self.length : length] = new.permute(3, 0, 1, 2, 4)
        self.length = length
        return self._table[:length].permute(1, 2, 3, 0, 4)

    def of(self, index: Int[Tensor, " kept"], first: int) -> "_Growing":
        """The columns of other sequences from `first` on."""
        kept = _Growing()
        if self._table is not None:
            kept.length = self.length - first
            _, two, _, heads, size = self._table.shape
            spare = self._spare
            if spare is None or spare.shape[2] != len(index) or len(spare) <= kept.length:
                spare = self._table.new_empty(with_room(kept.length), two, len(index), heads, size)
            kept._table, kept._spare = spare, self._table
            torch.index_select(self._table[first : self.length], 2, index, out=spare[: kept.length])
        return kept


@dataclass(frozen=True)
class SourceKeys:
    """The keys and values of the texts that sequences read by cross-attention, in every layer.

    Each text is there once, however many sequences read it. Those that do are its queries.
    """

    layers: tuple[Float[Tensor, "2 source head key size"], ...]
    visible: Bool[Tensor, "source 1 1 key"] | None
    """Whether a key is no padding; None: none is."""
    readers: NDArray[np.int64]
    """The text that each sequence reads."""
    width: int
    """The greatest number of sequences that read the same text."""
    slots: Int[Tensor, " sequence"] | None
    """The place of each sequence in a table [source, width]; None: they fill it in their order."""

    @classmethod
    def of_rows(cls, layers: Iterable[Float[Tensor, "total 2 head size"]], rows: Rows) -> "SourceKeys":
        """Row i is read by sequence i. `layers` holds the keys and values of each layer. No row may be empty."""
        block = Rows.build(rows.host_lengths, keys=np.zeros(len(rows), dtype=np.int64)).to(rows.lengths.device)
        tables = [
            pad(layer, block).view(len(rows), rows.max_length, *layer.shape[1:]).permute(2, 0, 3, 1, 4).contiguous()
            for layer in layers
        ]
        visible = block.key_mask(block.groups[0]) if block.groups else None
        return cls(tuple(tables), visible, np.arange(len(rows)), 1, None)

    def reorder(self, index: NDArray[np.int64]) -> "SourceKeys":
        readers = self.readers[index]
        if np.array_equal(readers, self.readers):
            return self
        layers, visible, device = self.layers, self.visible, self.layers[0].device
        read, readers, counts = np.unique(readers, return_inverse=True, return_counts=True)
        if len(read) < layers[0].shape[1]:
            kept = on_device(read, device)
            layers = tuple(layer.index_select(1, kept) for layer in layers)
            visible = None if visible is None else visible.index_select(0, kept)
        width = int(counts.max(initial=1))
        order, places = np.argsort(readers, kind="stable"), np.arange(len(readers))
        slots = np.empty_like(readers)
        slots[order] = readers[order] * width + places - (np.cumsum(counts) - counts)[readers[order]]
        filled = len(readers) == len(read) * width and np.array_equal(slots, places)
        return SourceKeys(layers, visible, readers, width, None if filled else on_device(slots, device))

    def queries(self, x: Float[Tensor, "sequence token head size"]) -> Float[Tensor, "source head query size"]:
        """The queries of each text: all tokens of the sequences that read it."""
        if self.slots is not None:
            table = x.new_zeros(self.layers[0].shape[1] * self.width, *x.shape[1:])
            x = table.index_copy_(0, self.slots, x)
        return x.reshape(self.layers[0].shape[1], self.width * x.shape[1], *x.shape[2:]).transpose(1, 2)

    def results(self, mixed: Float[Tensor, "source head query size"]) -> Float[Tensor, "sequence token head size"]:
        """The results of the queries, for each token of each sequence."""
        sources, heads, queries, size = mixed.shape
        x = mixed.transpose(1, 2).reshape(sources * self.width, queries // self.width, heads, size)
        return x if self.slots is None else x.index_select(0, self.slots)


def with_room(length: int) -> int:
    """The size of a table that holds `length` entries and has room for more, so that growing costs a constant per entry."""
    return length + length // 2 + 16
