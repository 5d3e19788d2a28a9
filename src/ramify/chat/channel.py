"""A channel's messages as columns: what features of messages and of pairs of messages are made from."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ramify.chat.names import Names, spoken_words
from ramify.chat.spelling import spelled
from ramify.dataset.filters import is_bot
from ramify.readers.chat import SYSTEM
from ramify.tree import Node

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

NOBODY = -1
NEVER = -1

_NOON = 720
_OFFICIAL_BOTS = ("ubottu", "ubotu")


@dataclass(frozen=True)
class Channel:
    """Columns over the messages of one log, in its order."""

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
    """The speaker's message before this one, NEVER if there is none; messages of the channel itself do not count."""
    following: Ints
    """The speaker's next message, the number of messages if there is none."""
    rate: NDArray[np.float64]
    """Messages a minute: in the whole log, or up to each message of a causal channel."""
    num_names: int
    addressed: csr_array
    """[message name]: whom it names."""
    calls: Ints
    """Who named whom when, sorted: (speaker × names + name) × messages + message."""
    words: csr_array
    """[message word]: the different words of its line, time and nick included."""
    spelled: tuple[tuple[str, ...], ...]
    """Of each message, for models that read words (`chat.words`)."""
    causal: bool
    faithful: bool

    def __len__(self) -> int:
        return len(self.speaker)

    @classmethod
    def of(cls, messages: Sequence[Node], *, causal: bool = False, faithful: bool = False) -> "Channel":
        """`causal`: nothing that is said later changes anything, as a live channel needs it. `faithful`: with the quirks of
        the code that Kummerfeld et al. (2019) published: actions ("* ann waves") have no author, names are told apart by
        upper and lower case where it is asked who spoke to whom, and hours between 0 and 24 are all that is known of time."""
        size = len(messages)
        authors = [_author(message, faithful) for message in messages]
        names = Names()
        for author in () if causal else dict.fromkeys(authors):
            if author:
                names.add(author)
        speaker_ids: dict[str, int] = {}
        name_ids: dict[str, int] = {}
        word_ids: dict[str, int] = {}
        speaker, name, called = (np.full(size, NOBODY, dtype=np.int64) for _ in range(3))
        previous, following = np.full(size, NEVER, dtype=np.int64), np.full(size, size, dtype=np.int64)
        latest: dict[int, int] = {}
        waiting: dict[int, list[int]] = defaultdict(list)
        whom: list[list[int]] = []
        words: list[list[int]] = []
        said: list[tuple[str, ...]] = []
        minutes = _minutes(messages, faithful)
        for number, (message, author) in enumerate(zip(messages, authors)):
            system = message.kind == SYSTEM
            if causal and author:
                names.add(author)
            if author is not None:
                folded = author.lower()
                who = speaker[number] = speaker_ids.setdefault(author if faithful else folded, len(speaker_ids))
                name[number] = name_ids.setdefault(folded, len(name_ids))
                called[number] = NOBODY if faithful and author != folded else name[number]
                previous[number] = latest.get(who, NEVER)
                if not system:
                    for earlier in waiting.pop(who, []):
                        following[earlier] = number
                    latest[who] = number
                waiting[who].append(number)
            line = _line(message, minutes[number])
            spoken = line[2:] if _is_quirk(message, faithful) else spoken_words(message)
            whom.append([name_ids.setdefault(each, len(name_ids)) for each in names.among(spoken)])
            said.append(tuple(spelled(message.text, names)))
            words.append([word_ids.setdefault(word, len(word_ids)) for word in dict.fromkeys(line)])
        # Even a channel of nobody has a column.
        num_names = max(1, len(name_ids))
        addressed = _incidence(whom, num_names)
        at, who_is_named = addressed.nonzero()
        keys = (speaker[at] * num_names + who_is_named) * size + at
        system = np.array([message.kind == SYSTEM for message in messages], dtype=bool)
        return cls(
            speaker=speaker,
            name=name,
            called=called,
            system=system,
            bot=np.array([_is_bot(author, faithful) for author in authors], dtype=bool),
            minute=minutes,
            year=np.array([_year(message) for message in messages], dtype=np.int64),
            previous=previous,
            following=following,
            rate=_rates(minutes, system, causal, faithful),
            num_names=num_names,
            addressed=addressed,
            calls=np.sort(keys[speaker[at] != NOBODY]),
            words=_incidence(words, max(1, len(word_ids))),
            spelled=tuple(said),
            causal=causal,
            faithful=faithful,
        )

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
        """Minutes from one message to another, -1 where the log has no times; may be below zero where clocks go back."""
        apart = _apart(self.minute[earlier], self.minute[later], self.faithful)
        return np.where(np.isnan(apart), -1.0, apart)


def is_among(known: Ints, keys: Ints) -> Flags:
    """Which keys are among those that are known, in ascending order."""
    if not len(known):
        return np.zeros(len(keys), dtype=bool)
    return known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] == keys


def _author(message: Node, faithful: bool) -> str | None:
    return "" if _is_quirk(message, faithful) else message.author


def _is_quirk(message: Node, faithful: bool) -> bool:
    """The published code splits "[12:00]  * ann waves" at its spaces: nobody says "ann waves"."""
    return faithful and message.kind == "action"


def _line(message: Node, minute: float) -> list[str]:
    """The words of the line as the Ubuntu channels' archive would have it."""
    words = message.text.split()
    if message.kind == SYSTEM:
        return words
    stamp = [] if math.isnan(minute) else [f"[{int(minute) // 60 % 24:02}:{int(minute) % 60:02}]"]
    who = ["*", message.author or ""] if message.kind == "action" else [f"<{message.author}>"]
    return [*stamp, *who, *words]


def _minutes(messages: Sequence[Node], faithful: bool) -> NDArray[np.float64]:
    times = np.array([np.nan if message.time is None else message.time for message in messages], dtype=np.float64)
    minutes = np.floor(times / 60)
    return np.where(np.isnan(minutes), _NOON, minutes) if faithful else minutes


def _apart(start: NDArray[np.float64], end: NDArray[np.float64], faithful: bool) -> NDArray[np.float64]:
    if not faithful:
        return end - start
    return (end // 60 - start // 60) % 24 * 60 + end % 60 - start % 60


def _year(message: Node) -> int:
    return 0 if message.time is None else 1970 + int(np.datetime64(int(message.time), "s").astype("datetime64[Y]").astype(int))


def _rates(minutes: NDArray[np.float64], system: Flags, causal: bool, faithful: bool) -> NDArray[np.float64]:
    """Messages a minute; not a number where the log has no times."""
    timed = np.flatnonzero(~np.isnan(minutes) & ~system)
    size = len(minutes)
    if not len(timed):
        return np.full(size, np.nan)
    first = minutes[timed[:1]]
    if causal:
        return np.arange(1, size + 1) / np.fmax(1, _apart(first, minutes, faithful))
    return np.repeat(size / np.fmax(1, _apart(first, minutes[timed[-1:]], faithful)), size)


def _incidence(rows: Sequence[Sequence[int]], columns: int) -> csr_array:
    """A sparse matrix of ones."""
    ends = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
    flat = np.fromiter((column for row in rows for column in row), dtype=np.int64, count=int(ends[-1]))
    return csr_array((np.ones(len(flat), dtype=np.int32), flat, ends), shape=(len(rows), columns))


def _is_bot(author: str | None, faithful: bool) -> bool:
    return bool(author) and (author in _OFFICIAL_BOTS if faithful else is_bot(author))
