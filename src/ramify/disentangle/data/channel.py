"""A channel's messages as columns, from which features of messages and of message pairs are computed."""

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

NO_AUTHOR = -1
NO_MESSAGE = -1


@dataclass(frozen=True)
class Channel:
    """Columns over messages of one log, in its order: all of them, or those that a live channel still holds."""

    number: Ints
    """Place in the log."""
    author: Ints
    """NO_AUTHOR where there is none."""
    name: Ints
    """The author's name in mentions, as a number among the channel's names."""
    exact_name: Ints
    """The same for `mention_events`. It differs from `name` only with `reproduce_published`."""
    is_system: Flags
    is_bot: Flags
    minute: NDArray[np.float64]
    """Whole minutes since 1970; NaN where the log has no times."""
    year: Ints
    """0 where the log has no years."""
    previous: Ints
    """The row of the author's previous message, or NO_MESSAGE. Messages of the channel itself do not count."""
    next: Ints
    """The row of the author's next message; the number of rows where there is none."""
    rate: NDArray[np.float64]
    """Messages per minute: in the whole log, or up to each message of a causal channel."""
    num_names: int
    mentions: csr_array
    """[message name]: the names that each message mentions."""
    mention_events: Ints
    """All mentions as sorted keys: (author × names + name) × `end` + number of the message."""
    end: int
    """One more than the last number."""
    words: csr_array
    """[message word]: the different words of each line, with its time and author."""
    tokens: tuple[tuple[str, ...], ...]
    """Words of each message's text, for models that read words (`disentangle.data.splitting`)."""
    causal: bool
    reproduce_published: bool

    def __len__(self) -> int:
        return len(self.author)

    @cached_property
    def has_mention(self) -> Flags:
        return np.diff(self.mentions.indptr) > 0

    @cached_property
    def word_counts(self) -> Ints:
        return np.diff(self.words.indptr).astype(np.int64)

    @cached_property
    def _mention_keys(self) -> Ints:
        message, name = self.mentions.nonzero()
        return np.sort(message.astype(np.int64) * self.num_names + name)

    def mentions_author_of(self, message: Ints, other: Ints) -> Flags:
        """Pair by pair: the message mentions the author of the other."""
        name = self.name[other]
        return (name != NO_AUTHOR) & is_member(self._mention_keys, message * self.num_names + name)

    def count_minutes(self, earlier: Ints, later: Ints) -> NDArray[np.float64]:
        """Minutes between messages: -1 where the log has no times, and at least -1 where a clock was set back. With
        `reproduce_published`, as the published code counts them, which may be below -1."""
        minutes = subtract_minutes(self.minute[earlier], self.minute[later], self.reproduce_published)
        return np.where(np.isnan(minutes), -1.0, minutes if self.reproduce_published else np.maximum(minutes, -1.0))


def is_member(sorted_keys: Ints, keys: Ints) -> Flags:
    """Which keys are among the sorted ones."""
    if not len(sorted_keys):
        return np.zeros(len(keys), dtype=bool)
    return sorted_keys[np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)] == keys


def subtract_minutes(start: Minutes, end: Minutes, reproduce_published: bool) -> Minutes:
    """Minutes from start to end. With `reproduce_published` less than a day, because the published logs have no dates."""
    if not reproduce_published:
        return end - start
    return (end // 60 - start // 60) % 24 * 60 + end % 60 - start % 60


def build_incidence(rows: Sequence[Sequence[int]], columns: int) -> csr_array:
    """A sparse matrix with ones in the given columns of each row."""
    ends = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
    flat = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(ends[-1]))
    return csr_array((np.ones(len(flat), dtype=np.int32), flat, ends), shape=(len(rows), columns))
