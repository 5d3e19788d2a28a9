"""Rows of running text in order, as in XLNet's published pipeline: each row continues where the row before it ended."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ramify.batching.characters import Spellings
from ramify.batching.forest import Ints
from ramify.batching.running_text import RunningText
from ramify.batching.views.base import View
from ramify.config import check_fields
from ramify.errors import RamifyError, counted
from ramify.tokenizer import TextLayout, Tokenizer

Directions = Literal["both", "forward", "backward"]

SIGNS: dict[Directions, tuple[int, ...]] = {"both": (1, -1), "forward": (1,), "backward": (-1,)}
"""The directions of rows: 1 for forwards, −1 for backwards."""

SEPARATORS = 3
"""Special tokens of a row with two segments: a SEP after each, and a CLS."""


@dataclass(frozen=True)
class StreamInput:
    """The layout of rows. Defaults are those of a small model; the paper has rows of 512 tokens of which 256 are reused."""

    row_tokens: int = 128
    """Length of a row, with its separators."""
    reused_tokens: int = 64
    """Number of tokens from the start of a row to the start of the next one. Only their states enter memory."""
    segments: Literal["pair", "none"] = "pair"
    """pair: two further segments A and B follow the reused tokens, as `[reused, A, SEP, B, SEP, CLS]`; half of the time, B is
    text from another place of the same stream. none: the row is running text."""
    avoid_overlap: bool = False
    """Whether a random B keeps clear of the row's other text. In the published code it may repeat it, which shows the words of
    targets."""
    memory_reset: Literal["document", "never"] = "document"
    """document: memory forgets states from before the last end of a document. never: memory runs across documents and from the
    end of the data to its start, as in the published code."""
    layout: TextLayout = "plain"
    """The special tokens around a text whose vector or attention is asked for. Rows of training have those of `segments`, and
    scores and generation read texts without any."""
    max_tokens: int | None = None
    """Maximum length of a text that is read alone, with its special tokens, for a model that also reads texts longer than its
    rows; null: that of a row, less the SEP and the CLS that stand behind a text in training."""

    def room(self, tokenizer: Tokenizer) -> int:
        """Maximum length of a text that is read alone, without special tokens."""
        if self.max_tokens is not None:
            return self.max_tokens - tokenizer.layout(self.layout).num_special
        return self.row_tokens - tokenizer.layout("xlnet").num_special

    @property
    def longest(self) -> int:
        """Maximum length of a text that is read alone, with special tokens."""
        return self.row_tokens if self.max_tokens is None else self.max_tokens

    def __post_init__(self) -> None:
        check_fields(self, "input.")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise RamifyError(f"input.max_tokens must be at least 1, but is {self.max_tokens}. Raise it, or set it to null.")
        least = self.reused_tokens + (SEPARATORS + 2 if self.segments == "pair" else 0)
        if self.reused_tokens < 1 or self.row_tokens < least:
            raise RamifyError(
                f"input.row_tokens={self.row_tokens} cannot hold input.reused_tokens={self.reused_tokens}"
                + (" and two segments with their separators. " if self.segments == "pair" else ". ")
                + f"Set input.row_tokens to at least {max(least, 1)}, or lower input.reused_tokens (at least 1)."
            )

    @property
    def overlap(self) -> bool:
        """Whether a row repeats text of the row before it. Then it is read in two parts: the reused tokens, and the rest."""
        return self.reused_tokens < self.row_tokens


@dataclass(frozen=True)
class StreamConfig:
    """The streams that are read side by side."""

    streams: int = 8
    """Number of streams that the text is cut into. Every batch holds one row of each, per direction."""
    directions: Directions = "both"
    """both: every stream is read forwards and backwards (`bi_data` in the published code)."""

    def __post_init__(self) -> None:
        check_fields(self, "view.")
        if self.streams < 1:
            raise RamifyError(f"view.streams must be at least 1, but is {self.streams}.")

    @property
    def num_rows(self) -> int:
        """The number of rows in a batch."""
        return self.streams * len(self.signs)

    @property
    def signs(self) -> tuple[int, ...]:
        """The directions: 1 for forwards, −1 for backwards."""
        return SIGNS[self.directions]


@dataclass(frozen=True)
class StreamRow:
    """One row of a batch."""

    ids: Ints
    segments: Ints
    """0: reused text, A and its SEP; 1: B and its SEP; 2: CLS."""
    functional: NDArray[np.bool_]
    """Whether a token is a separator."""
    is_next: bool
    """Whether B follows A."""
    direction: int
    """1: forwards; −1: backwards."""
    begins: bool
    """Whether the row is the first of its stream."""
    kept: int
    """Number of the reused tokens, counted from the last, that the next row may read in memory."""
    continues: bool
    """Whether the next row may also read what came before this row."""
    characters: Spellings | None = None
    """The characters of each token, if the text tells words apart that the vocabulary lacks."""


class Streams(View[StreamRow]):
    """Rows of a text that is cut into equally long streams. Row k of stream s has the number s · (rows per stream) + k.

    Streams that read backwards come last. The random choices of segments depend on the seed, the row and the epoch alone.
    """

    def __init__(self, text: RunningText, tokenizer: Tokenizer, input: StreamInput, config: StreamConfig, *, seed: int) -> None:
        tokenizer.require(("cls", "sep"), "rows with two segments") if input.segments == "pair" else None
        self.text = text
        self.tokenizer = tokenizer
        self.input = input
        self.config = config
        self.seed = seed
        self.length = text.num_tokens // config.streams
        """Number of tokens of a stream. The tokens after the last stream are left out."""
        self.per_stream = (self.length - input.row_tokens) // input.reused_tokens + 1
        if self.per_stream < 1:
            raise RamifyError(
                f"the text has {counted(text.num_tokens, 'token')}, too few for view.streams={config.streams} with rows of "
                f"input.row_tokens={input.row_tokens}. Lower view.streams or input.row_tokens, or take more text."
            )

    @property
    def costs(self) -> Ints:
        return np.full(self.config.num_rows * self.per_stream, self.input.row_tokens)

    @property
    def weights(self) -> NDArray[np.float64]:
        return np.ones(self.config.num_rows * self.per_stream)

    @property
    def sizes(self) -> Ints:
        return np.ones(self.config.num_rows * self.per_stream, dtype=np.int64)

    @property
    def target_tokens(self) -> Ints:
        return self.costs

    @property
    def left_out(self) -> int:
        """Number of tokens at the ends of streams that no row reuses or begins with."""
        return self.text.num_tokens - self.config.streams * (self.per_stream * self.input.reused_tokens)

    def example(self, number: int, epoch: int = 0) -> StreamRow:
        stream, place = divmod(number, self.per_stream)
        direction = self.config.signs[stream // self.config.streams]
        input, start = self.input, place * self.input.reused_tokens
        source = _Stream(self.text, stream % self.config.streams * self.length, self.length, direction)
        end = start + input.reused_tokens
        if input.segments == "none":
            ids = source.ids(start, start + input.row_tokens)
            segments = np.zeros(len(ids), dtype=np.int64)
            functional, is_next = np.zeros(len(ids), dtype=bool), True
        else:
            random = np.random.Generator(np.random.Philox(key=[self.seed, epoch], counter=[0, 0, 0, number]))
            room = input.row_tokens - input.reused_tokens - SEPARATORS
            one, other, is_next = draw_segments(source, start, end, room, random, avoid_overlap=input.avoid_overlap)
            sep, cls = [self.tokenizer.sep_id], [self.tokenizer.cls_id]
            parts = [source.ids(start, end), source.ids(*one), sep, source.ids(*other), sep, cls]
            ids = np.concatenate(parts)
            lengths = list(map(len, parts))
            segments = np.repeat([0, 0, 0, 1, 1, 2], lengths)
            functional = np.repeat([False, False, True, False, True, True], lengths)
        kept, continues = input.reused_tokens, True
        if input.memory_reset == "document" and (border := source.last_border(start, end)) is not None:
            kept, continues = end - border, False
        begins = place == 0 and input.memory_reset == "document"
        characters, lexicon = None, self.text.lexicon
        if lexicon is not None:
            characters, ids = lexicon.spellings[ids], lexicon.in_vocabulary(ids)
        return StreamRow(ids, segments, functional, is_next, direction, begins, kept, continues, characters)


@dataclass(frozen=True)
class _Stream:
    """A stretch of a text, read in one direction. Positions count in this direction."""

    text: RunningText
    offset: int
    length: int
    direction: int

    def ids(self, start: int, stop: int) -> Ints:
        if self.direction == 1:
            return self.text.ids[self.offset + start : self.offset + stop].astype(np.int64)
        last = self.offset + self.length
        return self.text.ids[last - stop : last - start][::-1].astype(np.int64)

    def _borders(self, of: Ints, start: int, stop: int) -> Ints:
        """The borders `start < border < stop`, in ascending order."""
        if self.direction == 1:
            first, last = np.searchsorted(of, [self.offset + start + 1, self.offset + stop])
            return of[first:last] - self.offset
        end = self.offset + self.length
        first, last = np.searchsorted(of, [end - stop + 1, end - start])
        return end - of[first:last][::-1]

    def _neighbour(self, position: int, *, after: bool) -> int:
        """The nearest sentence border at or after a position, or at or before it, within the stream."""
        of = self.text.sentences
        if after == (self.direction == 1):
            place = of[np.searchsorted(of, self._absolute(position))]
        else:
            place = of[np.searchsorted(of, self._absolute(position), side="right") - 1]
        relative = int(place) - self.offset if self.direction == 1 else self.offset + self.length - int(place)
        return min(max(relative, 0), self.length)

    def _absolute(self, position: int) -> int:
        return self.offset + position if self.direction == 1 else self.offset + self.length - position

    def cuts(self, start: int, stop: int) -> Ints:
        """The places where a sentence begins, between two positions."""
        return self._borders(self.text.sentences, start, stop)

    def cut_before(self, position: int) -> int:
        """The last place at or before a position where a sentence begins, or the start of the stream."""
        return self._neighbour(position, after=False)

    def cut_after(self, position: int) -> int:
        """The first place at or after a position where a sentence begins, or the end of the stream."""
        return self._neighbour(position, after=True)

    def last_border(self, start: int, stop: int) -> int | None:
        """The last place in `(start, stop]` where another document begins; None: there is none."""
        borders = self._borders(self.text.document_ends, start, stop + 1)
        return int(borders[-1]) if len(borders) else None


def draw_segments(
    source: _Stream, reused: int, start: int, room: int, random: np.random.Generator, *, avoid_overlap: bool = False
) -> tuple[tuple[int, int], tuple[int, int], bool]:
    """The ranges of segments A and B, `room` tokens together, and whether B follows A.

    A begins at `start`. Candidates for its end are the sentence borders after it, up to the first one that is at least
    `room` tokens away, which ends B instead. Half of the time, and always without a candidate, B is another place of the
    stream, widened to whole sentences unless it must not overlap the row's other text. The longer segment loses its last
    tokens until both fit.
    """
    end = source.cut_after(start + room)
    cuts = source.cuts(start, min(start + room, end))
    follows = bool(len(cuts)) and random.random() >= 0.5
    first_end = int(random.choice(cuts)) if len(cuts) else end
    if follows:
        other = (first_end, end)
    else:
        length = max(1, room - (first_end - start))
        if avoid_overlap:
            begin = _free_place(source, reused, start + room - length, length, random)
            other = (begin, begin + length)
        else:
            begin = int(random.integers(source.length - length + 1))
            other = (source.cut_before(begin), source.cut_after(begin + length))
    one = (start, first_end)
    return *_trimmed(one, other, room), follows


def _free_place(source: _Stream, start: int, stop: int, length: int, random: np.random.Generator) -> int:
    """Where `length` tokens may begin that neither touch `[start, stop)` nor follow it directly.

    There is always room: a row and its separators fit into the stream after `start`.
    """
    before = max(0, start - length + 1)
    place = int(random.integers(before + source.length - length - stop))
    return place if place < before else stop + 1 + place - before


def _trimmed(one: tuple[int, int], other: tuple[int, int], room: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Both ranges without the last tokens of the longer one (in a tie, of the second), so that they hold `room` tokens."""
    lengths = [one[1] - one[0], other[1] - other[0]]
    surplus = sum(lengths) - room
    longer = 0 if lengths[0] > lengths[1] else 1
    taken = min(surplus, abs(lengths[0] - lengths[1]))
    lengths[longer] -= taken
    surplus -= taken
    # Equally long now: the second loses the first token, then each in turn.
    lengths[1] -= -(-surplus // 2)
    lengths[0] -= surplus // 2
    return (one[0], one[0] + lengths[0]), (other[0], other[0] + lengths[1])
