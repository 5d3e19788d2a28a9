"""Building a channel: each message updates the columns that features are computed from."""

import math
from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from ramify.dataset.filters import is_bot
from ramify.disentangle.data.channel import NO_AUTHOR, NO_MESSAGE, Channel, Ints, build_incidence, subtract_minutes
from ramify.disentangle.data.names import KnownNames, join_words, select_spoken_words
from ramify.disentangle.data.splitting import split_words
from ramify.errors import RamifyError
from ramify.readers.chat import SYSTEM, TOKENS
from ramify.tree import Node

_MAX_WORDS = 50_000
_NOON = 720
_PUBLISHED_BOTS = ("ubottu", "ubotu")


def build_channel(
    messages: Sequence[Node], *, causal: bool = False, reproduce_published: bool = False, dataset_tokens: bool = False
) -> Channel:
    """The channel of a whole log; options as of `ChannelBuilder`."""
    builder = ChannelBuilder(causal=causal, reproduce_published=reproduce_published, dataset_tokens=dataset_tokens)
    if not causal:
        builder.register_names(messages)
    for message in messages:
        builder.update(message)
    return builder.build()


@dataclass(slots=True)
class _Message:
    """One row of the columns; messages, names and words are numbers of the builder."""

    number: int
    author: int
    name: int
    exact_name: int
    is_system: bool
    is_bot: bool
    minute: float
    year: int
    previous: int
    rate: float
    mentions: list[int]
    words: list[int]
    tokens: tuple[str, ...]
    next: int = -1


class ChannelBuilder:
    """A channel that grows by one message at a time.

    `causal`: no message changes the features of an earlier one, as a live channel needs it. `reproduce_published`: repeat the
    quirks of the code that Kummerfeld et al. (2019) published: actions ("* ann waves") have no author, the names in mention
    events are case-sensitive, and times are hours and minutes without a date. `dataset_tokens`: the words of a message are
    those in its label; raises `RamifyError` where there are none.
    """

    def __init__(self, *, causal: bool, reproduce_published: bool = False, dataset_tokens: bool = False) -> None:
        self.causal = causal
        self.reproduce_published = reproduce_published
        self.dataset_tokens = dataset_tokens
        self.count = 0
        self._known_names = KnownNames()
        self._authors: dict[str, int] = {}
        self._names: dict[str, int] = {}
        self._words: dict[str, int] = {}
        self._messages: dict[int, _Message] = {}
        self._latest: dict[int, int] = {}
        self._without_next: dict[int, list[int]] = defaultdict(list)
        self._mention_numbers: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._first_minute = math.nan
        self._last_minute = math.nan

    def register_names(self, messages: Sequence[Node]) -> None:
        """Know the names of all authors of these messages in advance."""
        for author in dict.fromkeys(_find_author(message, self.reproduce_published) for message in messages):
            if author:
                self._known_names.add(author)

    def update(self, message: Node) -> None:
        """Add the channel's next message."""
        author, is_system = _find_author(message, self.reproduce_published), message.kind == SYSTEM
        if self.causal and author:
            self._known_names.add(author)
        joined, text = message.author and join_words(message.author), self._known_names.join_names(message.text)
        if joined != message.author or text is not message.text:
            message = replace(message, author=joined, text=text)
        written_name = author and joined
        number, minute = self.count, _find_minute(message, self.reproduce_published)
        self.count += 1
        author_number, name, exact_name, previous = self._update_author(number, author, written_name, is_system)
        if not is_system and not math.isnan(minute):
            self._first_minute = minute if math.isnan(self._first_minute) else self._first_minute
            self._last_minute = minute
        line = _split_line(message, minute)
        spoken = line[2:] if _is_action_quirk(message, self.reproduce_published) else select_spoken_words(message)
        mentions = [self._names.setdefault(mentioned, len(self._names)) for mentioned in self._known_names.find_all(spoken)]
        for mention in mentions if author_number != NO_AUTHOR else ():
            self._mention_numbers[author_number][mention].append(number)
        self._messages[number] = _Message(
            number=number,
            author=author_number,
            name=name,
            exact_name=exact_name,
            is_system=is_system,
            is_bot=_is_bot(written_name, self.reproduce_published),
            minute=minute,
            year=_find_year(message),
            previous=previous,
            rate=self._compute_rate(minute),
            mentions=mentions,
            words=[self._words.setdefault(word, len(self._words)) for word in dict.fromkeys(line)],
            tokens=tuple(
                _find_dataset_tokens(message) if self.dataset_tokens else split_words(message.text, self._known_names)
            ),
        )

    def _update_author(
        self, number: int, author: str | None, written_name: str | None, is_system: bool
    ) -> tuple[int, int, int, int]:
        """Author, name, exact name and previous message of a message."""
        if author is None or written_name is None:
            return NO_AUTHOR, NO_AUTHOR, NO_AUTHOR, NO_MESSAGE
        lowered = written_name.lower()
        # "Ann Lee" and "ann_lee" are two authors, but both are mentioned as "ann_lee".
        identity = author if self.reproduce_published else " ".join(author.lower().split())
        author_number = self._authors.setdefault(identity, len(self._authors))
        name = self._names.setdefault(lowered, len(self._names))
        exact_name = NO_AUTHOR if self.reproduce_published and written_name != lowered else name
        previous = self._latest.get(author_number, NO_MESSAGE)
        if not is_system:
            for earlier in self._without_next.pop(author_number, ()):
                self._messages[earlier].next = number
            self._latest[author_number] = number
        self._without_next[author_number].append(number)
        return author_number, name, exact_name, previous

    def forget(self, before: int) -> None:
        """Drop what only messages before this number need. The rest grows with the number of authors and of their mentions of
        each other, not with the number of messages."""
        messages = self._messages
        kept = {*self._latest.values(), *(message.previous for number, message in messages.items() if number >= before)}
        for number in [number for number in messages if number < before and number not in kept]:
            gone = messages.pop(number)
            waiting = self._without_next.get(gone.author)
            if waiting is not None and number in waiting:
                waiting.remove(number)
            for name in gone.mentions if gone.author != NO_AUTHOR else ():
                numbers = self._mention_numbers[gone.author][name]
                if len(numbers) > 1 and numbers[1] == number:
                    # The first mention is needed for good, later ones only between two messages.
                    del numbers[1]
        if len(self._words) > _MAX_WORDS:
            renumbered: dict[int, int] = {}
            for message in messages.values():
                message.words = [renumbered.setdefault(word, len(renumbered)) for word in message.words]
            self._words = {word: renumbered[number] for word, number in self._words.items() if number in renumbered}

    @property
    def held(self) -> Set[int]:
        """Numbers of the messages that were not dropped."""
        return self._messages.keys()

    def build(self, since: int = 0) -> Channel:
        """The channel of the held messages from a number on, with their authors' previous messages."""
        numbers = {number for number in range(max(since, 0), self.count) if number in self._messages}
        numbers |= {self._messages[number].previous for number in numbers} & self._messages.keys()
        messages = [self._messages[number] for number in sorted(numbers)]
        rows = {message.number: row for row, message in enumerate(messages)}
        # Even a channel without authors has a column.
        num_names = max(1, len(self._names))

        def column(name: str, kind: type) -> np.ndarray:
            return np.array([getattr(message, name) for message in messages], dtype=kind)

        return Channel(
            number=column("number", np.int64),
            author=column("author", np.int64),
            name=column("name", np.int64),
            exact_name=column("exact_name", np.int64),
            is_system=column("is_system", bool),
            is_bot=column("is_bot", bool),
            minute=column("minute", np.float64),
            year=column("year", np.int64),
            previous=np.array([rows.get(message.previous, NO_MESSAGE) for message in messages], dtype=np.int64),
            next=np.array([rows.get(message.next, len(messages)) for message in messages], dtype=np.int64),
            rate=self._compute_rates(column("rate", np.float64)),
            num_names=num_names,
            mentions=build_incidence([message.mentions for message in messages], num_names),
            mention_events=self._list_mention_events(messages, num_names),
            end=self.count,
            words=build_incidence([message.words for message in messages], max(1, len(self._words))),
            tokens=tuple(message.tokens for message in messages),
            causal=self.causal,
            reproduce_published=self.reproduce_published,
        )

    def _list_mention_events(self, messages: Sequence[_Message], num_names: int) -> Ints:
        """Mentions of the messages' authors by each other, as `Channel.mention_events`."""
        names = {message.exact_name for message in messages}
        events = [
            (author * num_names + name) * self.count + number
            for author in {message.author for message in messages}
            if (mentioned := self._mention_numbers.get(author))
            for name in names & mentioned.keys()
            for number in mentioned[name]
        ]
        return np.sort(np.array(events, dtype=np.int64))

    def _compute_rate(self, minute: float) -> float:
        """Messages per minute so far; NaN before the log has a time."""
        if math.isnan(self._first_minute):
            return math.nan
        minutes = subtract_minutes(self._first_minute, minute, self.reproduce_published)
        return self.count / (1.0 if math.isnan(minutes) else max(1.0, minutes))

    def _compute_rates(self, so_far: np.ndarray) -> np.ndarray:
        """The rates of a causal channel; of any other, the rate of the whole channel for every message."""
        if self.causal or not len(so_far):
            return so_far
        if math.isnan(self._first_minute):
            return np.full(len(so_far), np.nan)
        minutes = subtract_minutes(self._first_minute, self._last_minute, self.reproduce_published)
        return np.full(len(so_far), self.count / max(1.0, minutes))


def _find_dataset_tokens(message: Node) -> list[str]:
    if not isinstance(message.label, dict) or not isinstance(message.label.get(TOKENS), str):
        raise RamifyError(
            f"input.dataset_tokens=true needs the words of each message in its label, and message {message.id!r} has none. "
            "Build the data, or read the log, with --option tokens=beside."
        )
    return message.label[TOKENS].split()


def _find_author(message: Node, reproduce_published: bool) -> str | None:
    return "" if _is_action_quirk(message, reproduce_published) else message.author


def _is_action_quirk(message: Node, reproduce_published: bool) -> bool:
    """The published code splits "[12:00]  * ann waves" at its spaces, and finds no author."""
    return reproduce_published and message.kind == "action"


def _split_line(message: Node, minute: float) -> list[str]:
    """The words of the line as the archive of the Ubuntu channels would show it."""
    words = message.text.split()
    if message.kind == SYSTEM:
        return words
    stamp = [] if math.isnan(minute) else [f"[{int(minute) // 60 % 24:02}:{int(minute) % 60:02}]"]
    author = ["*", message.author or ""] if message.kind == "action" else [f"<{message.author}>"]
    return [*stamp, *author, *words]


def _find_minute(message: Node, reproduce_published: bool) -> float:
    if message.time is None:
        return float(_NOON) if reproduce_published else math.nan
    return float(message.time // 60)


def _find_year(message: Node) -> int:
    return 0 if message.time is None else 1970 + int(np.datetime64(int(message.time), "s").astype("datetime64[Y]").astype(int))


def _is_bot(author: str | None, reproduce_published: bool) -> bool:
    return bool(author) and (author in _PUBLISHED_BOTS if reproduce_published else is_bot(author))
