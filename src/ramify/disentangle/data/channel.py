"""A channel's messages as columns: what features of messages and of pairs of messages are made from."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

Minutes = TypeVar("Minutes", float, NDArray[np.float64])

NOBODY = -1
NEVER = -1


@dataclass(frozen=True)
class Channel:
    """Columns over messages of one log, in its order: all of them, or those that still matter of one that goes on."""

    number: Ints
    """Its place in the log."""
    speaker: Ints
    """Who says it, NOBODY where no one does."""
    name: Ints
    """What the speaker is called when spoken to: a number among the names of the channel."""
    called: Ints
    """The same for `calls`; differs from `name` in faithful channels alone."""
    system: Flags
    bot: Flags
    minute: NDArray[np.float64]
    """Since 1970, whole; not a number where the log has no times."""
    year: Ints
    """0 where the log does not say."""
    previous: Ints
    """The row of the speaker's message before this one, NEVER if there is none; messages of the channel itself do not count."""
    following: Ints
    """The row of the speaker's next message, the number of rows if there is none."""
    rate: NDArray[np.float64]
    """Messages a minute: in the whole log, or up to each message of a causal channel."""
    num_names: int
    addressed: csr_array
    """[message name]: whom it names."""
    calls: Ints
    """Who named whom when, sorted: (speaker × names + name) × `size` + number."""
    size: int
    """One more than the last number."""
    words: csr_array
    """[message word]: the different words of its line, time and nick included."""
    spelled: tuple[tuple[str, ...], ...]
    """Of each message, for models that read words (`disentangle.data.words`)."""
    causal: bool
    faithful: bool

    def __len__(self) -> int:
        return len(self.speaker)

    @cached_property
    def addresses(self) -> Flags:
        """[message]: does it name anybody?"""
        return np.diff(self.addressed.indptr) > 0

    @cached_property
    def word_counts(self) -> Ints:
        return np.diff(self.words.indptr).astype(np.int64)

    @cached_property
    def _named(self) -> Ints:
        message, name = self.addressed.nonzero()
        return np.sort(message.astype(np.int64) * self.num_names + name)

    def names_speaker_of(self, message: Ints, other: Ints) -> Flags:
        """Do messages name the speakers of others, pair by pair?"""
        name = self.name[other]
        return (name != NOBODY) & is_among(self._named, message * self.num_names + name)

    def minutes_between(self, earlier: Ints, later: Ints) -> NDArray[np.float64]:
        """Minutes from one message to another; -1 where the log has no times, and where a clock was set back (faithful: then as
        the published code reckons, below zero, too)."""
        apart = minutes_apart(self.minute[earlier], self.minute[later], self.faithful)
        return np.where(np.isnan(apart), -1.0, apart if self.faithful else np.maximum(apart, -1.0))


def is_among(known: Ints, keys: Ints) -> Flags:
    """Which keys are among those that are known, in ascending order."""
    if not len(known):
        return np.zeros(len(keys), dtype=bool)
    return known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] == keys


def minutes_apart(start: Minutes, end: Minutes, faithful: bool) -> Minutes:
    """As the clock has it; faithful: at most a day, for logs that say hours alone."""
    if not faithful:
        return end - start
    return (end // 60 - start // 60) % 24 * 60 + end % 60 - start % 60


def incidence(rows: Sequence[Sequence[int]], columns: int) -> csr_array:
    """A sparse matrix of ones."""
    ends = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
    flat = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(ends[-1]))
    return csr_array((np.ones(len(flat), dtype=np.int32), flat, ends), shape=(len(rows), columns))
