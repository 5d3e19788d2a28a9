"""Texts and pairs of texts as flat rows: the input of every backbone that encodes (`models.base.Encodes`)."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ramify.batching.characters import Characters, Lexicon
from ramify.batching.forest import Ints, ranges
from ramify.batching.movable import Movable, moved
from ramify.errors import RamifyError, counted
from ramify.nn.ragged import Rows, length_key
from ramify.tokenizer import RowLayout

Texts = tuple[Ints, Ints]
"""The token ids of texts, one after the other, and the length of each (see `Tokenizer.encode_batch`)."""

Long = Literal["refuse", "truncate", "split"]
"""A text that is longer than its row. refuse: an error. truncate: its last tokens are left out. split: it has several rows."""


@dataclass(frozen=True)
class NodeContext(Movable):
    """The nodes that rows read: the clean text of each node once, and the nodes of each row."""

    ids: Int[Tensor, " _token"]
    nodes: Rows
    depth: Int[Tensor, " node"]
    index: Int[Tensor, " key"]
    """The nodes that each row reads, row after row, oldest first."""
    contexts: Rows
    """The number of entries of `index` per row."""
    readers: Rows
    """The rows, grouped so that rows with similar numbers of nodes are adjacent."""
    row_depth: Int[Tensor, " row"]
    vectors: Float[Tensor, "node dim"] | None = None
    """The vectors of the nodes, if they are known; None: `ids` are encoded."""

    @property
    def texts(self) -> "EncoderInput":
        """The texts of the nodes as rows without a context."""
        return EncoderInput.of_rows(self.ids, self.nodes)

    def to(self, device: torch.device | str) -> "NodeContext":
        return moved(self, device)


@dataclass(frozen=True)
class EncoderInput(Movable):
    """Rows of one or two texts with their special tokens, sorted by rounded length."""

    ids: Int[Tensor, " total"]
    rows: Rows
    token_types: Int[Tensor, " total"] | None
    """None: the layout of the rows has no types."""
    context: NodeContext | None
    """The nodes that rows read; None: every row is read alone."""
    source: Ints
    """The text, or pair of texts, of each row. It undoes the sorting; a long text may have several rows."""
    spans: Ints
    """[row, text, 2]: the places in its row where each text begins and ends."""
    offsets: Ints
    """[row, text]: the number of tokens of each text that precede its part in the row."""
    characters: Characters | None = None
    """The characters of each token, for a model that reads them; None: those of the vocabulary's spelling."""
    features: Float[Tensor, "total feature"] | None = None
    """Vectors of the tokens beside those of the model itself; None: there are none (`models.base.TakesFeatures`)."""

    @classmethod
    def of_rows(
        cls, ids: Int[Tensor, " total"], rows: Rows, token_types: Int[Tensor, " total"] | None = None
    ) -> "EncoderInput":
        """Complete rows, each of which counts as one text."""
        lengths = rows.host_lengths
        spans = np.stack([np.zeros_like(lengths), lengths], 1)[:, None]
        return cls(ids, rows, token_types, None, np.arange(len(rows)), spans, np.zeros((len(rows), 1), dtype=np.int64))

    @classmethod
    def of_texts(
        cls, texts: Texts, layout: RowLayout, longest: int | None, *, long: Long = "refuse", overlap: int = 0
    ) -> "EncoderInput":
        """Rows of single texts of at most `longest` tokens, special tokens included; None: of any length.

        With `long="split"`, consecutive rows of a text share `overlap` tokens. Raises `RamifyError` for a text that is too
        long to be read in one row, if `long="refuse"`.
        """
        ids, lengths = texts
        room = _room(longest, layout.num_special, lengths)
        source, begin, kept = _divided(lengths, np.full_like(lengths, room), long, overlap)
        order = np.argsort(length_key(kept + layout.num_special), kind="stable")
        source, begin, kept = source[order], begin[order], kept[order]
        sizes = kept + layout.num_special
        starts = (np.cumsum(lengths) - lengths)[source] + begin
        types = None
        if layout.types is not None:
            types = np.full(int(sizes.sum()), layout.types[0], dtype=np.int64)
            if layout.end_type is not None:
                types[np.cumsum(sizes) - 1] = layout.end_type
        first = np.full_like(kept, len(layout.before))
        return cls(
            torch.from_numpy(layout.wrap_batch(ids[ranges(starts, starts + kept)].astype(np.int64), kept)),
            Rows.build(sizes),
            None if types is None else torch.from_numpy(types),
            None,
            source,
            np.stack([first, first + kept], 1)[:, None],
            begin[:, None],
        )

    @classmethod
    def of_pairs(
        cls,
        one: Texts,
        other: Texts,
        layout: RowLayout,
        longest: int | None,
        *,
        long: Long = "refuse",
        overlap: int | Ints = 0,
        divided: Literal["first", "second"] = "second",
    ) -> "EncoderInput":
        """Rows of two texts each, of at most `longest` tokens, special tokens included; None: of any length.

        With `long="truncate"`, a text longer than half the room is cut first. With `long="split"`, the `divided` text has
        several rows: each holds all of the other text, and consecutive rows share `overlap` tokens (one number, or one per
        pair). Raises `RamifyError` for a pair that is too long to be read in one row, if `long="refuse"`, and for a tokenizer
        that cannot separate two texts.
        """
        (first_ids, first), (second_ids, second) = one, other
        special = layout.num_special + len(layout.separator)
        room = _room(longest, special, first + second)
        skipped = np.zeros((2, len(first)), dtype=np.int64)
        if long == "truncate":
            source = np.arange(len(first))
            first_kept, second_kept = fit_texts(first, second, room)
        elif divided == "second":
            source, begin, second_kept = _divided(second, room - first, long, overlap)
            first_kept, skipped = first[source], np.stack([np.zeros_like(begin), begin])
        else:
            source, begin, first_kept = _divided(first, room - second, long, overlap)
            second_kept, skipped = second[source], np.stack([begin, np.zeros_like(begin)])
        order = np.argsort(length_key(first_kept + second_kept + special), kind="stable")
        source, skipped, first_kept, second_kept = source[order], skipped[:, order], first_kept[order], second_kept[order]
        ids, types = [], []
        starts = (np.cumsum(first) - first)[source] + skipped[0]
        seconds = (np.cumsum(second) - second)[source] + skipped[1]
        for start, size, second_start, more in zip(starts, first_kept, seconds, second_kept, strict=True):
            left = first_ids[start : start + size]
            right = second_ids[second_start : second_start + more]
            ids.append(layout.wrap_pair(left, right))
            types.append(layout.types_of(int(size), int(more)))
        before, between = len(layout.before), len(layout.separator)
        middle = before + first_kept + between
        spans = np.stack([np.full_like(middle, before), before + first_kept, middle, middle + second_kept], 1)
        return cls(
            torch.from_numpy(np.concatenate([np.zeros(0, dtype=np.int64), *ids])),
            Rows.build(first_kept + second_kept + special),
            None if layout.types is None else torch.from_numpy(np.concatenate([np.zeros(0, dtype=np.int64), *types])),
            None,
            source,
            spans.reshape(-1, 2, 2),
            skipped.T,
        )

    def to(self, device: torch.device | str) -> "EncoderInput":
        return moved(self, device)

    def with_features(self, words: Float[Tensor, "total dim"]) -> Float[Tensor, "total _more"]:
        """A model's own vectors of the tokens, and the features beside them."""
        return words if self.features is None else torch.cat([words, self.features], 1)

    def spelled(self, lexicon: Lexicon) -> "EncoderInput":
        """Rows of words that the vocabulary may lack, with the characters of all words."""
        ids = self.ids.cpu().numpy()
        return replace(self, ids=torch.from_numpy(lexicon.in_vocabulary(ids)), characters=Characters.of(lexicon.spellings[ids]))


def fit_texts(one: Ints, other: Ints, room: int) -> tuple[Ints, Ints]:
    """Tokens to keep of two texts, pair by pair, so that both fit: a text longer than half the room is cut first."""
    kept = np.minimum(one, np.maximum(room - room // 2, room - other))
    return kept, np.minimum(other, room - kept)


def _room(longest: int | None, special: int, lengths: Ints) -> int:
    """The number of tokens of texts that a row holds."""
    if longest is None:
        return int(lengths.max(initial=1))
    if longest <= special:
        raise RamifyError(
            f"rows of {counted(longest, 'token')} hold no text, because {special} of them are special tokens. Allow longer "
            "rows."
        )
    return longest - special


def _divided(lengths: Ints, room: Ints, long: Long, overlap: int | Ints) -> tuple[Ints, Ints, Ints]:
    """The text of each row, and the beginning and length of its part of the text. `room` is that of each text."""
    overlaps = np.broadcast_to(overlap, lengths.shape)
    if len(overlaps) and (least := int(overlaps.min())) < 0:
        raise RamifyError(f"overlap={least} would leave out tokens between rows. Choose a number of at least 0.")
    everything, nothing = np.arange(len(lengths)), np.zeros_like(lengths)
    over = np.flatnonzero(lengths > room)
    if long == "truncate":
        return everything, nothing, np.minimum(lengths, room)
    if long == "refuse":
        if len(over):
            text = int(over[0])
            raise RamifyError(
                f"text {text} has {counted(int(lengths[text]), 'token')}, but its row has room for {max(int(room[text]), 0)}. "
                'Shorten the text, or pass long="truncate" or long="split".'
            )
        return everything, nothing, lengths
    if (narrow := over[room[over] <= overlaps[over]]).size:
        text = int(narrow[0])
        raise RamifyError(
            f"overlap={overlaps[text]} leaves no room for new tokens in rows that hold {max(int(room[text]), 0)} tokens of a "
            "text. Lower overlap, or allow longer rows."
        )
    count = num_rows(lengths, room, overlaps)
    source = np.repeat(everything, count)
    step = np.maximum(room - overlaps, 1)
    begin = (np.arange(len(source)) - np.repeat(np.cumsum(count) - count, count)) * step[source]
    return source, begin, np.minimum(lengths[source] - begin, room[source])


def num_rows(lengths: Ints, room: Ints | int, overlap: Ints | int) -> Ints:
    """The number of rows of each text, of which a row holds `room` tokens, and shares `overlap` with the row before."""
    count = np.maximum(-(-(lengths - overlap) // np.maximum(room - overlap, 1)), 1)
    return np.where(lengths <= room, 1, count)
