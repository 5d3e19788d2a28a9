"""What readers of chat exports share: messages that are named, edited and deleted, and that name what they answer."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

from ramify.errors import RamifyError
from ramify.readers import files
from ramify.readers.base import INTO_A_FILE, Report, bad_option, open_bytes, read_twice
from ramify.tree import Node, encodable, encodable_json

GONE = "[deleted]"
"""The text of a message that was deleted (one of `base.MUTE_TEXTS`)."""

HEAD_BYTES = 1 << 16

Names = Literal["name", "id"]
"""An author is called as readers of the channel see it, or as the export's records name the account."""


@dataclass(slots=True)
class Message:
    """A record of an export. `answers`: the id of the message that it answers; `starts`: it is known to answer none.

    An `event` is no message of its own, but says that the one with its id was edited, or deleted. `edited`: when.
    """

    id: str
    text: str = ""
    author: str | None = None
    time: float | None = None
    kind: str = ""
    label: Any = None
    answers: str | None = None
    starts: bool = False
    edited: float | None = None
    event: Literal["", "edit", "deletion"] = ""
    where: str = ""


class Accounts:
    """What accounts are called: each by the first of its names that no other account goes by, or by its id."""

    def __init__(self, names: Names) -> None:
        if names not in get_args(Names):
            raise bad_option("names", " or ".join(get_args(Names)), names)
        self.by_id = names == "id"
        self._names: dict[str, str] = {}
        self._takers: dict[str, str] = {}

    def add(self, account: str, *names: Any) -> None:
        """The first names given for an account hold."""
        for name in () if self.by_id or account in self._names else names:
            if isinstance(name, str) and name.strip() and self._takers.setdefault(name, account) == account:
                self._names[account] = name
                return

    def name(self, account: str) -> str:
        return self._names.get(account, account)


def json_files(paths: Sequence[Path]) -> list[Path]:
    """The files among the paths and, in the folders among them, those of JSON: exports hold pictures and the like beside it."""
    given = set(paths)
    return [path for path in files(paths) if path in given or _JSON.search(path.name)]


_JSON = re.compile(r"\.(?:json|jsonl|ndjson)(?:\.|\Z)")


def head_of(path: Path) -> bytes:
    """The first bytes of a file, as `refuses` gets them; none of one that cannot be read."""
    read_twice(path, INTO_A_FILE)
    try:
        with open_bytes(path) as stream:
            return stream.read(HEAD_BYTES)
    except RamifyError:
        return b""


def first_refusal(folder: Path, inside: Sequence[Path], refuses: Callable[[Path, bytes], str]) -> str:
    """For `refuses`, of a folder all of whose JSON files are to be in a format."""
    found = ((file, refuses(file, head_of(file))) for file in inside)
    reason = next((f"{file.relative_to(folder)}: {reason}" for file, reason in found if reason), "")
    return reason if inside else "a folder without JSON files"


class LogNames:
    """A name of its own for each log."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def give(self, *names: str | None) -> str:
        """The first name that is still free; else the last of them, with a number."""
        said = [encodable(name) for name in names if name] or ["log"]
        number = 1
        name = next((each for each in said if each not in self._given), said[-1])
        while name in self._given:
            number += 1
            name = f"{said[-1]} ({number})"
        self._given.add(name)
        return name


def said(**about: Any) -> dict[str, str]:
    """A log's metadata: what is said about it, where something is."""
    return {name: encodable(value) for name, value in about.items() if isinstance(value, str) and value.strip()}


def nodes(
    records: Iterable[Message],
    report: Report,
    *,
    called: Callable[[str], str] = str,
    by_time: bool = True,
    missing: str = "missing_parent",
) -> Iterator[Node]:
    """A log's messages, from all its records, in any order.

    `called`: an account's name. Without `by_time` the records' own order is the channel's, unless an answer stands before
    what it answers, and then it is counted as `sorted_by_time`. An answer to what is not in the log is counted in
    `report.kept` as `missing`.
    """
    messages = _distinct(records, report)
    out_of_order = not by_time and not _answers_come_last(messages)
    if out_of_order:
        report.mend("sorted_by_time", f"{messages[0].where} and those after it")
    if by_time or out_of_order:
        messages = _sorted(messages)
    places = {message.id: place for place, message in enumerate(messages)}
    yield from in_order(messages, report, places, called=called, missing=missing)


def in_order(
    messages: Iterable[Message],
    report: Report,
    places: Mapping[str, int],
    *,
    called: Callable[[str], str] = str,
    missing: str = "missing_parent",
) -> Iterator[Node]:
    """Messages that differ in their ids, in the channel's order. `places`: of what any of them answers."""
    latest = -math.inf
    for place, message in enumerate(messages):
        parents = () if message.starts else None
        if message.answers is not None:
            above = places.get(encodable(message.answers))
            if above is None:
                report.mend(missing, message.where)
            elif above >= place:
                report.mend("late_parent", message.where)
            else:
                parents = (above,)
        if message.time is not None:
            if message.time < latest:
                report.mend("clock_back", message.where)
            latest = message.time
        yield Node(
            text=encodable(message.text),
            parents=parents,
            id=message.id,
            author=None if message.author is None else encodable(called(message.author)),
            time=message.time,
            kind=message.kind,
            label=None if message.label is None else encodable_json(message.label),
        )


def _distinct(records: Iterable[Message], report: Report) -> list[Message]:
    """One message of each id, as it was last; where an id was given to different messages, the later ones get others."""
    kept: dict[str, Message] = {}
    copies: Counter[str] = Counter()
    for record in records:
        name = record.id = encodable(record.id)
        known = kept.setdefault(name, record)
        if known is record:
            continue
        if _are_one(known, record):
            report.skip(record.event or known.event or "duplicate_id", record.where)
            kept[name] = _merged(known, record)
            continue
        while record.id in kept:
            copies[name] += 1
            record.id = f"{name}/{copies[name] + 1}"
        kept[record.id] = record
        report.mend("shared_id", record.where)
    messages = []
    for message in kept.values():
        if message.event == "deletion":
            # Of something that the export leaves out, or that is no message.
            report.skip("deletion", message.where)
        else:
            messages.append(message)
    return messages


def _are_one(one: Message, other: Message) -> bool:
    """Versions of one message, or copies of it in exports that overlap, one of which could not read it?"""
    if one.event or other.event or GONE in (one.text, other.text):
        return True
    if one.author != other.author and None not in (one.author, other.author):
        return False
    return one.text == other.text or "" in (one.text, other.text) or one.edited is not None or other.edited is not None


def _merged(known: Message, record: Message) -> Message:
    # The message itself says most, a deletion least.
    base = min((known, record), key=lambda each: ("", "edit", "deletion").index(each.event))
    other = record if base is known else known

    def lateness(each: Message) -> tuple[bool, float, bool]:
        return each.text == GONE, -math.inf if each.edited is None else each.edited, bool(each.text)

    latest = max((base, other), key=lateness)
    return replace(
        base,
        text=latest.text,
        kind=base.kind or other.kind,
        edited=latest.edited,
        author=other.author if base.author is None else base.author,
        answers=other.answers if base.answers is None else base.answers,
    )


def _answers_come_last(messages: list[Message]) -> bool:
    ids = {message.id for message in messages}
    seen = set()
    for message in messages:
        if message.answers in ids and message.answers not in seen:
            return False
        seen.add(message.id)
    return True


def newest_first(records: Sequence[Message]) -> bool:
    """As servers answer: no record is later than the one before it. Of two alone nothing can be said."""
    times = [record.time for record in records if record.time is not None]
    return len(times) > 2 and times[0] > times[-1] and all(one >= other for one, other in pairwise(times))


def _sorted(messages: list[Message]) -> list[Message]:
    """Stably; a message without a time stays behind the one before it."""
    times = []
    latest = -math.inf
    for message in messages:
        latest = latest if message.time is None else message.time
        times.append(latest)
    return [messages[place] for place in sorted(range(len(messages)), key=times.__getitem__)]
