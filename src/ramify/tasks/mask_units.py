"""Choice of masked tokens in units of whole words, or of spans of whole words (Joshi et al. 2020, section 3.1)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
MaskUnit = Literal["piece", "word", "span"]

STOP, LONGEST = 0.2, 10
"""Span lengths in words follow a geometric distribution with probability `STOP`, cut off after `LONGEST`."""


@dataclass(frozen=True)
class Words:
    """The words of many rows, as ranges of the flat axis in ascending order. Special tokens belong to no word."""

    begin: Ints
    end: Ints
    row: Ints

    @classmethod
    def of(cls, starts: NDArray[np.bool_], maskable: NDArray[np.bool_], row_starts: Ints) -> "Words":
        """Divide rows into words. `starts` says for each token whether its piece begins a word; a word also begins after a
        special token."""
        after_word = np.append(False, maskable[:-1])
        after_word[row_starts[row_starts < len(maskable)]] = False
        begins = maskable & (starts | ~after_word)
        begin = np.flatnonzero(begins)
        borders = begins | ~maskable
        borders[row_starts[row_starts < len(maskable)]] = True
        edges = np.append(np.flatnonzero(borders), len(maskable))
        end = edges[np.searchsorted(edges, begin, side="right")]
        return cls(begin, end, np.searchsorted(row_starts, begin, side="right") - 1)


def span_lengths(uniform: NDArray[np.float64]) -> Ints:
    """Span lengths in words from uniform numbers on [0, 1)."""
    shares = STOP * (1 - STOP) ** np.arange(LONGEST)
    return np.searchsorted(np.cumsum(shares / shares.sum())[:-1], uniform, side="right") + 1


@dataclass(frozen=True)
class Chosen:
    """Chosen tokens in ascending order, and the token whose draw decides about each one's replacement."""

    index: Ints
    leader: Ints
    counts: Ints
    """Number of chosen tokens of each row."""


def choose(words: Words, budget: Ints, random: Ints, lengths: Ints | None) -> Chosen:
    """Choose whole words of each row in random order, up to `budget` tokens. A word that does not fit is left out.

    `random` orders the words. `lengths` gives the length of the span that begins at each word; None: single words, whose tokens
    are replaced one by one. A span ends at a special token, and is replaced as one. Words that are already chosen count towards
    its length.
    """
    order = np.lexsort((random, words.row)).tolist()
    begin, end, row = words.begin.tolist(), words.end.tolist(), words.row.tolist()
    left = budget.tolist()
    leader = np.full(int(words.end[-1]) if len(words.end) else 0, -1, dtype=np.int64)
    taken = [False] * len(begin)
    for first in order:
        current_row = row[first]
        if not left[current_row] or taken[first]:
            continue
        stop = first + (1 if lengths is None else int(lengths[first]))
        for word in range(first, min(stop, len(begin))):
            if row[word] != current_row or (word > first and begin[word] != end[word - 1]):
                break
            if taken[word]:
                continue
            if end[word] - begin[word] > left[current_row]:
                break
            left[current_row] -= end[word] - begin[word]
            taken[word] = True
            leader[begin[word] : end[word]] = begin[first]
    index = np.flatnonzero(leader >= 0)
    led = leader[index] if lengths is not None else index
    return Chosen(index, led, budget - np.array(left, dtype=np.int64))
