"""Shared parts of the readers of chat exports: messages with ids, edits, deletions and reply links."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar

from ramify.errors import RamifyError
from ramify.readers import chat
from ramify.readers.base import INTO_A_FILE, ReadCounts, open_bytes, read_twice, skip_record
from ramify.readers.listing import list_files
from ramify.tree import Node, encodable, encodable_json

GONE = "[deleted]"
"""The text of a message that was deleted (one of `base.MUTE_TEXTS`)."""

HEAD_BYTES = 1 << 16

Names = Literal["name", "id"]
"""Whether authors are named by their display names or by the ids of their accounts."""


@dataclass(slots=True)
class Message:
    """A record of an export. `answers`: the id of the parent; `starts`: whether the message is known to have no parent.

    A record with an `event` is not a message. It tells that the message with its id was edited (at the time `edited`) or
    deleted.
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


class Skip(Exception):
    """Raised for a record that is no message of the log, with the reason under which it is counted."""

    def __init__(self, reason: str, what: str = "") -> None:
        super().__init__(f": {what}" if what else "")
        self.reason = reason


Record = TypeVar("Record")


def tried(read: Callable[..., Record], where: str, counts: ReadCounts, item: Any, *arguments: Any) -> Iterator[Record]:
    """Yield the record that a function makes of an item and its place. Each item is counted as read.

    Whatever the function raises ends the record: `Skip` is counted under its reason, an error as `skip_record` does.
    """
    try:
        record = read(item, where, *arguments)
    except Skip as skipped:
        counts.leave_out(skipped.reason, f"{where}{skipped}")
    except Exception as error:
        skip_record(error, where, counts)
    else:
        counts.read += 1
        yield record


class Accounts:
    """Names of accounts: for each account the first of its names that no other account has, or its id."""

    def __init__(self, names: Names) -> None:
        self.by_id = names == "id"
        self._names: dict[str, str] = {}
        self._takers: dict[str, str] = {}

    def add(self, account: str, *names: Any) -> None:
        """Add an account and its names. Names given later for the same account are ignored."""
        for name in () if self.by_id or account in self._names else names:
            if isinstance(name, str) and name.strip() and self._takers.setdefault(name, account) == account:
                self._names[account] = name
                return

    def name(self, account: str) -> str:
        return self._names.get(account, account)


def json_files(paths: Sequence[Path]) -> list[Path]:
    """The given files, and the JSON files in the given folders. Exports also hold pictures and other files."""
    given = set(paths)
    return [path for path in list_files(paths) if path in given or _JSON.search(path.name)]


_JSON = re.compile(r"\.(?:json|jsonl|ndjson)(?:\.|\Z)")


def head_of(path: Path) -> bytes:
    """The first bytes of a file, as `refuses` receives them; b"" if the file cannot be read."""
    read_twice(path, INTO_A_FILE)
    try:
        with open_bytes(path) as stream:
            return stream.read(HEAD_BYTES)
    except RamifyError:
        return b""


def first_refusal(
    folder: Path, inside: Sequence[Path], refuses: Callable[[Path, bytes], str], without: str = "a folder without JSON files"
) -> str:
    """For `refuses`: the reason for a folder in which some files must be in the format; `without`, if there are none."""
    reasons = ((file, refuses(file, head_of(file))) for file in inside)
    reason = next((f"{file.relative_to(folder)}: {reason}" for file, reason in reasons if reason), "")
    return reason if inside else without


class LogNames:
    """Gives each log a unique name."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def give(self, *names: str | None) -> str:
        """The first of the names that is still free, or else the last name with a number."""
        candidates = [encodable(name) for name in names if name] or ["log"]
        numbered = (f"{candidates[-1]} ({number})" for number in count(2))
        name = next(name for name in chain(candidates, numbered) if name not in self._given)
        self._given.add(name)
        return name

    def log(self, names: Sequence[str | None], messages: Iterator[Node], path: Path, **about: Any) -> chat.Log:
        """A log with the first free name (see `give`). Its metadata are the values of `about` that are not blank."""
        said = {name: encodable(value) for name, value in about.items() if isinstance(value, str) and value.strip()}
        return chat.Log(self.give(*names), messages, said, f"{path}")


def nodes(
    records: Iterable[Message],
    counts: ReadCounts,
    *,
    called: Callable[[str], str] = str,
    by_time: bool = True,
    missing: str = "missing_parent",
) -> Iterator[Node]:
    """Yield a log's messages from its records, which may be in any order.

    `called` maps an account to its name. Without `by_time`, the messages keep the order of the records, unless a reply precedes
    its parent; they are then sorted by time and counted as `sorted_by_time`. A reply to a message outside the log is counted in
    `counts.kept` as `missing`.
    """
    messages = _distinct(records, counts)
    out_of_order = not by_time and not _parents_come_first(messages)
    if out_of_order:
        counts.repair("sorted_by_time", f"{messages[0].where} and those after it")
    if by_time or out_of_order:
        messages = _sorted(messages)
    places = {message.id: place for place, message in enumerate(messages)}
    yield from in_order(messages, counts, places, called=called, missing=missing)


def in_order(
    messages: Iterable[Message],
    counts: ReadCounts,
    places: Mapping[str, int],
    *,
    called: Callable[[str], str] = str,
    missing: str = "missing_parent",
) -> Iterator[Node]:
    """Yield the nodes of messages that have different ids and are in order. `places`: id of a possible parent -> its place."""
    latest = -math.inf
    for place, message in enumerate(messages):
        parents = () if message.starts else None
        if message.answers is not None and encodable(message.answers) == message.id:
            counts.repair("own_parent", message.where)
            parents = ()
        elif message.answers is not None:
            parent = places.get(encodable(message.answers))
            if parent is None:
                counts.repair(missing, message.where)
            elif parent >= place:
                counts.repair("late_parent", message.where)
            else:
                parents = (parent,)
        if message.time is not None:
            if message.time < latest:
                counts.repair("clock_back", message.where)
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


def tops(parents: Mapping[str, str | None]) -> dict[str, str]:
    """The uppermost ancestor of each id, be it missing itself. The members of a cycle have one of them in common."""
    top: dict[str, str] = {}
    for start in parents:
        path: dict[str, None] = {}
        here = start
        while here not in top and here not in path and (above := parents.get(here)) is not None:
            path[here] = None
            here = above
        end = top.get(here, here)
        top |= dict.fromkeys(path, end)
        top.setdefault(start, end)
    return top


def _distinct(records: Iterable[Message], counts: ReadCounts) -> list[Message]:
    """One message per id, in its latest version. If different messages share an id, the later ones get new ids."""
    distinct: dict[str, Message] = {}
    copies: Counter[str] = Counter()
    for record in records:
        name = record.id = encodable(record.id)
        known = distinct.setdefault(name, record)
        if known is not record and _are_one(known, record):
            counts.skip(record.event or known.event or "duplicate_id", record.where)
            distinct[name] = _merged(known, record)
        elif known is not record:
            while record.id in distinct:
                copies[name] += 1
                record.id = f"{name}/{copies[name] + 1}"
            distinct[record.id] = record
            counts.repair("shared_id", record.where)
    for message in distinct.values():
        if message.event == "deletion":
            # The deleted record is not in the export or is not a message.
            counts.skip("deletion", message.where)
    return [message for message in distinct.values() if message.event != "deletion"]


def _are_one(one: Message, other: Message) -> bool:
    """Whether the records are versions of one message, or copies from overlapping exports, one of which may lack the text."""
    if one.event or other.event or GONE in (one.text, other.text):
        return True
    if one.author != other.author and None not in (one.author, other.author):
        return False
    return one.text == other.text or "" in (one.text, other.text) or one.edited is not None or other.edited is not None


def _merged(known: Message, record: Message) -> Message:
    # The message itself holds the most fields, a deletion the fewest.
    base = min((known, record), key=lambda version: ("", "edit", "deletion").index(version.event))
    other = record if base is known else known

    def lateness(version: Message) -> tuple[bool, float, bool]:
        return version.text == GONE, -math.inf if version.edited is None else version.edited, bool(version.text)

    latest = max((base, other), key=lateness)
    return replace(
        base,
        text=latest.text,
        kind=base.kind or other.kind,
        edited=latest.edited,
        author=other.author if base.author is None else base.author,
        answers=other.answers if base.answers is None else base.answers,
    )


def _parents_come_first(messages: list[Message]) -> bool:
    places: dict[str | None, int] = {message.id: place for place, message in enumerate(messages)}
    return all(places.get(message.answers, 0) <= place for place, message in enumerate(messages))


def newest_first(records: Sequence[Message]) -> bool:
    """Whether the records are in descending order of time, as servers return them. It takes at least three to tell."""
    times = [record.time for record in records if record.time is not None]
    return len(times) > 2 and times[0] > times[-1] and all(one >= other for one, other in pairwise(times))


def _sorted(messages: list[Message]) -> list[Message]:
    """Sort messages by time, stably. A message without a time stays after the message before it."""
    times = []
    latest = -math.inf
    for message in messages:
        latest = latest if message.time is None else message.time
        times.append(latest)
    return [messages[place] for place in sorted(range(len(messages)), key=times.__getitem__)]
