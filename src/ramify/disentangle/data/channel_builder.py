"""Hearing a channel: what every message adds to what is known of it."""

import math
from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from ramify.dataset.filters import is_bot
from ramify.disentangle.data.channel import NEVER, NOBODY, Channel, incidence, minutes_apart
from ramify.disentangle.data.names import Names, as_one_word, spoken_words
from ramify.disentangle.data.spelling import spelled
from ramify.errors import RamifyError
from ramify.readers.chat import SYSTEM, TOKENS
from ramify.tree import Node

_MANY_WORDS = 50_000
_NOON = 720
_OFFICIAL_BOTS = ("ubottu", "ubotu")


def channel_of(messages: Sequence[Node], *, causal: bool = False, faithful: bool = False, official: bool = False) -> Channel:
    """A whole log. See `Hearing`."""
    hearing = Hearing(causal=causal, faithful=faithful, official=official)
    if not causal:
        hearing.meet(messages)
    for message in messages:
        hearing.hear(message)
    return hearing.channel()


@dataclass(slots=True)
class _Said:
    """A message as it was heard."""

    number: int
    speaker: int
    name: int
    called: int
    system: bool
    bot: bool
    minute: float
    year: int
    previous: int
    rate: float
    whom: list[int]
    words: list[int]
    spelled: tuple[str, ...]
    following: int = -1


class Hearing:
    """A channel while it goes on.

    `causal`: nothing that is said later changes anything, as a live channel needs it. `faithful`: with the quirks of the code
    that Kummerfeld et al. (2019) published: actions ("* ann waves") have no author, names are told apart by upper and lower
    case where it is asked who spoke to whom, and hours between 0 and 24 are all that is known of time. `official`: the words
    of messages are those in their labels; raises `RamifyError` where there are none.
    """

    def __init__(self, *, causal: bool, faithful: bool = False, official: bool = False) -> None:
        self.causal = causal
        self.faithful = faithful
        self.official = official
        self.count = 0
        self._names = Names()
        self._speakers: dict[str, int] = {}
        self._called: dict[str, int] = {}
        self._words: dict[str, int] = {}
        self._said: dict[int, _Said] = {}
        self._latest: dict[int, int] = {}
        self._waiting: dict[int, list[int]] = defaultdict(list)
        self._calls: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._first_minute = math.nan
        self._last_minute = math.nan

    def meet(self, messages: Sequence[Node]) -> None:
        """Know the names of all who will speak."""
        for author in dict.fromkeys(_author(message, self.faithful) for message in messages):
            if author:
                self._names.add(author)

    def hear(self, message: Node) -> None:
        """The channel's next message."""
        author, system = _author(message, self.faithful), message.kind == SYSTEM
        if self.causal and author:
            self._names.add(author)
        who, text = _one_word(message.author), self._names.joined(message.text)
        if who != message.author or text is not message.text:
            message = replace(message, author=who, text=text)
        called_as = author and who
        number, minute = self.count, _minute(message, self.faithful)
        self.count += 1
        speaker = name = called = NOBODY
        previous = NEVER
        if author is not None and called_as is not None:
            folded = called_as.lower()
            # Who "Ann Lee" and "ann_lee" are is told apart, but both are called "ann_lee".
            own = author if self.faithful else " ".join(author.lower().split())
            speaker = self._speakers.setdefault(own, len(self._speakers))
            name = self._called.setdefault(folded, len(self._called))
            called = NOBODY if self.faithful and called_as != folded else name
            previous = self._latest.get(speaker, NEVER)
            if not system:
                for earlier in self._waiting.pop(speaker, ()):
                    self._said[earlier].following = number
                self._latest[speaker] = number
            self._waiting[speaker].append(number)
        if not system and not math.isnan(minute):
            self._first_minute = minute if math.isnan(self._first_minute) else self._first_minute
            self._last_minute = minute
        line = _line(message, minute)
        spoken = line[2:] if _is_quirk(message, self.faithful) else spoken_words(message)
        whom = [self._called.setdefault(each, len(self._called)) for each in self._names.among(spoken)]
        for each in whom if speaker != NOBODY else ():
            self._calls[speaker][each].append(number)
        self._said[number] = _Said(
            number=number,
            speaker=speaker,
            name=name,
            called=called,
            system=system,
            bot=_is_bot(called_as, self.faithful),
            minute=minute,
            year=_year(message),
            previous=previous,
            rate=self._rate(minute),
            whom=whom,
            words=[self._words.setdefault(word, len(self._words)) for word in dict.fromkeys(line)],
            spelled=tuple(_told(message) if self.official else spelled(message.text, self._names)),
        )

    def forget(self, before: int) -> None:
        """Let go of what only messages that look back on messages before this number could ask for. What stays grows with the
        number of people, and with who has named whom, not with that of messages."""
        kept = {*self._latest.values(), *(each.previous for number, each in self._said.items() if number >= before)}
        for number in [each for each in self._said if each < before and each not in kept]:
            gone = self._said.pop(number)
            waiting = self._waiting.get(gone.speaker)
            if waiting is not None and number in waiting:
                waiting.remove(number)
            for each in gone.whom if gone.speaker != NOBODY else ():
                calls = self._calls[gone.speaker][each]
                if len(calls) > 1 and calls[1] == number:
                    # The first call is asked for ever after, others between two messages only.
                    del calls[1]
        if len(self._words) > _MANY_WORDS:
            renamed: dict[int, int] = {}
            for said in self._said.values():
                said.words = [renamed.setdefault(word, len(renamed)) for word in said.words]
            self._words = {word: renamed[number] for word, number in self._words.items() if number in renamed}

    @property
    def remembered(self) -> Set[int]:
        """The numbers of messages that were not let go of."""
        return self._said.keys()

    def channel(self, since: int = 0) -> Channel:
        """What is known of the messages from a number on, and of those that their speakers said right before; of such as were
        not let go of."""
        numbers = {number for number in range(max(since, 0), self.count) if number in self._said}
        numbers |= {self._said[number].previous for number in numbers} & self._said.keys()
        said = [self._said[number] for number in sorted(numbers)]
        rows = {each.number: row for row, each in enumerate(said)}
        # Even a channel of nobody has a column.
        num_names = max(1, len(self._called))
        names = {each.called for each in said}
        calls = [
            (who * num_names + whom) * self.count + number
            for who in {each.speaker for each in said}
            if (called := self._calls.get(who))
            for whom in names & called.keys()
            for number in called[whom]
        ]

        def column(name: str, kind: type) -> np.ndarray:
            return np.array([getattr(each, name) for each in said], dtype=kind)

        return Channel(
            number=column("number", np.int64),
            speaker=column("speaker", np.int64),
            name=column("name", np.int64),
            called=column("called", np.int64),
            system=column("system", bool),
            bot=column("bot", bool),
            minute=column("minute", np.float64),
            year=column("year", np.int64),
            previous=np.array([rows.get(each.previous, NEVER) for each in said], dtype=np.int64),
            following=np.array([rows.get(each.following, len(said)) for each in said], dtype=np.int64),
            rate=self._rates(column("rate", np.float64)),
            num_names=num_names,
            addressed=incidence([each.whom for each in said], num_names),
            calls=np.sort(np.array(calls, dtype=np.int64)),
            size=self.count,
            words=incidence([each.words for each in said], max(1, len(self._words))),
            spelled=tuple(each.spelled for each in said),
            causal=self.causal,
            faithful=self.faithful,
        )

    def _rate(self, minute: float) -> float:
        """Messages a minute so far; not a number before the log has a time."""
        if math.isnan(self._first_minute):
            return math.nan
        apart = minutes_apart(self._first_minute, minute, self.faithful)
        return self.count / (1.0 if math.isnan(apart) else max(1.0, apart))

    def _rates(self, so_far: np.ndarray) -> np.ndarray:
        """Of a channel that is not causal: messages a minute in the whole of it."""
        if self.causal or not len(so_far):
            return so_far
        if math.isnan(self._first_minute):
            return np.full(len(so_far), np.nan)
        apart = minutes_apart(self._first_minute, self._last_minute, self.faithful)
        return np.full(len(so_far), self.count / max(1.0, apart))


def _told(message: Node) -> list[str]:
    if not isinstance(message.label, dict) or not isinstance(message.label.get(TOKENS), str):
        raise RamifyError(
            f"message {message.id!r} says nothing of its words, which input.tokens=official asks for: build the data, or "
            "read the log, with --option tokens=beside."
        )
    return message.label[TOKENS].split()


def _author(message: Node, faithful: bool) -> str | None:
    return "" if _is_quirk(message, faithful) else message.author


def _one_word(author: str | None) -> str | None:
    return author and as_one_word(author)


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


def _minute(message: Node, faithful: bool) -> float:
    if message.time is None:
        return float(_NOON) if faithful else math.nan
    return float(message.time // 60)


def _year(message: Node) -> int:
    return 0 if message.time is None else 1970 + int(np.datetime64(int(message.time), "s").astype("datetime64[Y]").astype(int))


def _is_bot(author: str | None, faithful: bool) -> bool:
    return bool(author) and (author in _OFFICIAL_BOTS if faithful else is_bot(author))
