"""The choice of the tokens that a model predicts. In running text, these are spans of words as in XLNet's pipeline."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ramify.batching.forest import Ints
from ramify.batching.stream_batch import StreamBatch
from ramify.errors import RamifyError
from ramify.tokenizer import Tokenizer

SpanUnit = Literal["word", "piece", "token"]
Parts = tuple[tuple[int, int], ...]
"""Ranges that divide every row."""


@dataclass(frozen=True)
class SpanChoice:
    """Spans of 1 to `longest` units, of which n units have a probability proportional to 1/n.

    word: whole words. piece: as many pieces from the start of a word, as in the published code. token: tokens anywhere, one by
    one. Around a span of m tokens stay `spacing` · m tokens that are not predicted.
    """

    unit: SpanUnit
    longest: int
    spacing: float

    def draw(self, starts: NDArray[np.bool_], allowed: NDArray[np.bool_], count: int, random: np.random.Generator) -> Ints:
        """Choose `count` of the allowed tokens, or all if there are fewer, in ascending order.

        `starts` marks the tokens that begin a word. Spans are drawn from left to right. If the end is reached, single tokens
        at random places complete the number.
        """
        count = min(count, int(allowed.sum()))
        chosen = np.zeros(len(allowed), dtype=bool)
        if self.unit != "token":
            self._draw_spans(starts, allowed, count, random, chosen)
        left = count - int(chosen.sum())
        if left:
            chosen[random.choice(np.flatnonzero(allowed & ~chosen), size=left, replace=False)] = True
        return np.flatnonzero(chosen)

    def _draw_spans(
        self,
        starts: NDArray[np.bool_],
        allowed: NDArray[np.bool_],
        count: int,
        random: np.random.Generator,
        chosen: NDArray[np.bool_],
    ) -> None:
        probabilities = 1 / np.arange(1, self.longest + 1)
        lengths = 1 + random.choice(self.longest, size=count, p=probabilities / probabilities.sum())
        shares = random.random(count)
        words = np.append(np.flatnonzero(starts | ~allowed), len(starts)).tolist()
        free = allowed.tolist()
        place = done = word = 0
        for length, share in zip(lengths.tolist(), shares.tolist()):
            if done == count:
                return
            length = min(length, count - done)
            size = length
            if self.unit == "word":
                # The span ahead stands for the one that will be taken, which begins after the left part of the spacing.
                while words[word] < place:
                    word += 1
                size = max(1, words[min(word + length, len(words) - 1)] - words[word])
            around = int(size * self.spacing)
            before = int(share * around)
            begin = place + before
            while word < len(words) and words[word] < begin:
                word += 1
            begin = words[word] if word < len(words) else len(free)
            if begin >= len(free):
                return
            if self.unit == "word":
                size = words[min(word + length, len(words) - 1)] - begin
            end = begin
            while end < len(free) and end - begin < min(size, count - done) and free[end]:
                end += 1
            chosen[begin:end] = True
            done += end - begin
            place = max(end, begin + 1) + around - before
            if place >= len(free):
                return


@dataclass(frozen=True)
class SpanConfig:
    """The choice of the predicted tokens. Defaults are the paper's."""

    k: float = 6.0
    """One in K tokens is predicted (K of the paper). 1: all tokens."""
    span_unit: SpanUnit = "word"
    """word: spans of whole words. piece: spans of as many pieces, as in the published code. token: single tokens."""
    longest_span: int = 5
    """The greatest number of units in a span."""

    def check_spans(self) -> None:
        """Raise `RamifyError` for numbers with which no token can be chosen."""
        if self.k < 1:
            raise RamifyError(f"task.k={self.k:g} must be at least 1: one in K tokens is predicted.")
        if self.longest_span < 1:
            raise RamifyError(f"task.longest_span must be at least 1, but is {self.longest_span}.")

    @property
    def spans(self) -> SpanChoice:
        return SpanChoice(self.span_unit, self.longest_span, self.k)


def check_split(shares: tuple[float, ...]) -> None:
    """Raise `RamifyError` if these are not the shares of masked, random and unchanged tokens."""
    if len(shares) != 3 or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
        raise RamifyError(
            f"task.mask_split={list(shares)} is not three shares that add up to 1. Set the shares of masked, random and "
            "unchanged tokens, such as [0.8, 0.1, 0.1]."
        )


def random_pieces(tokenizer: Tokenizer, vocab_size: int, *, special: bool) -> Ints:
    """The pieces among which random replacements are drawn: all, or those that are not `special`."""
    pieces = np.arange(vocab_size)
    return pieces if special else np.setdiff1d(pieces, tokenizer.special_ids)


def halves(batch: StreamBatch) -> Parts:
    """The reused part of every row and the rest, between which nothing is read backwards. A row that is reused as a whole, or
    that nothing continues, is one part.

    The next row predicts the rest again, with the states of the reused part in memory: they must not have read it.
    """
    tokens = batch.host_ids.shape[1]
    return ((0, batch.reused), (batch.reused, tokens)) if 0 < batch.reused < tokens else ((0, tokens),)


def quotas(batch: StreamBatch, parts: Parts, share: float) -> tuple[int, ...]:
    """The number of predicted tokens of each part of every row: a share of the row's tokens, or all that can be predicted.

    Later parts round down, as in the published code: 512 tokens in two halves have 43 and 42 (of 85).
    """
    tokens = batch.host_ids.shape[1]
    total = max(1, round(tokens * share))
    later = [total * (stop - start) // tokens for start, stop in parts[1:]]
    room = [int((~batch.functional[:, start:stop]).sum(1).min()) for start, stop in parts]
    return tuple(map(min, (total - sum(later), *later), room))


def choose_targets(
    batch: StreamBatch,
    row: int,
    spans: SpanChoice,
    word_starts: NDArray[np.bool_],
    parts: Parts,
    counts: Sequence[int],
    random: np.random.Generator,
) -> Ints:
    """The targets of a row, part by part. Spans follow the text, so the parts of a backward row are drawn from their ends."""
    starts, allowed = word_starts[batch.host_ids[row]], ~batch.functional[row]
    chosen = []
    for (start, stop), count in zip(parts, counts, strict=True):
        if batch.direction[row] > 0:
            drawn = spans.draw(starts[start:stop], allowed[start:stop], count, random)
        else:
            drawn = spans.draw(starts[start:stop][::-1], allowed[start:stop][::-1], count, random)
            drawn = (stop - start - 1 - drawn)[::-1]
        chosen.append(start + drawn)
    return np.concatenate(chosen)
