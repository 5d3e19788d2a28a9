"""Tables with one message per row, in the order of the channel: CSV, TSV, Parquet or JSON lines, compressed or not.

Columns are found by name: `text` and, optionally, `author`, `time`, `id`, `parent` (empty if unknown), `kind` and `channel`
(one log per channel), or one of their synonyms. `columns` maps other names.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Literal

import pyarrow as pa

from ramify.readers import chat, table
from ramify.readers.base import A_FOLDER, Held, ReadCounts, file_name
from ramify.readers.columns import ROOT_MARKS, ROOT_NUMBERS, Columns, Layout, Missing, Spelling, batches, check, header, spelled
from ramify.readers.dates import DateOrder, First
from ramify.readers.listing import list_files
from ramify.readers.messages import LogNames, Message, in_order, nodes
from ramify.readers.names import unpacked

SYNONYMS = {
    "id": table.SYNONYMS["id"],
    "parent": table.SYNONYMS["parent"],
    "channel": (
        *("channel", "channel_name", "channel_id", "room", "room_name", "room_id", "chat", "chat_name", "chat_id"),
        *table.SYNONYMS["tree"],
    ),
    "author": (*table.AUTHORS, "sender_name", "sender", "nick", "nickname", "from", *table.ACCOUNTS, "sender_id"),
    "time": (*table.SYNONYMS["time"], "ts", "sent", "sent_at"),
    "kind": table.SYNONYMS["kind"],
    "text": (*table.SYNONYMS["text"], "msg", "utterance"),
}
LAYOUT = Layout(SYNONYMS, required=("text",))
FOREIGN = ("nodes", "replies", "subreddit", "link_id")
"""Names that occur only in records of other formats."""

Order = Literal["file", "time"]
_LOOSE_QUOTE = re.compile(rb'\t"[^"\t\n]*"[^"\t\r\n]')
_THREAD = re.compile(r"/r/\w+/comments/\w+")
_LINKS = re.compile(
    r"(?:(?:post|comment|message|item|thread|topic|page|article|video|story)_)?(?:permalink|url|link|uri)", re.I
)
"""Names of columns with the addresses of posts."""
_LINK = re.compile(r"(?:https?://([^/\s]+))?/\S*")
_RULED = re.compile(rb"[^\n]*\n[ \t|+:;,=-]*[-=]{3}[ \t|+:;,=-]*\r?\n")


def refuses(path: Path, head: bytes, columns: Mapping[str, str] = MappingProxyType({})) -> str:
    if path.is_dir():
        return A_FOLDER
    try:
        names = header(path, head)
    except pa.ArrowInvalid:
        return "a damaged Parquet file"
    if _RULED.match(head):
        return "line 2: a rule, as in a table that is laid out as text"
    if _LOOSE_QUOTE.search(head):
        return 'a field with "…" at its beginning and more behind; read it with --option quote='
    if unknown := LAYOUT.unknown(names, columns):
        return unknown
    if missing := [name for name in LAYOUT.lacking(names, ("author", "time", "text")) if name not in columns]:
        return f"line 1: no column for {', '.join(missing)}"
    if all(name in columns for name in table.LAYOUT.lacking(names)):
        return "line 1: the columns of a table of posts"
    if "channel" not in {**LAYOUT.known(names), **columns} and (thread := _thread(path, names)):
        return (
            f"links such as {thread} name the threads of the posts, so they are not one channel. A table of posts "
            "needs the parents of the posts; without them, a column with the threads makes each a log (--column channel=NAME)"
        )
    return next((f"line 1: a column {name}, of another format" for name in names if name in FOREIGN), "")


def _thread(path: Path, names: Sequence[str]) -> str:
    """A thread that links to the posts name: of several, or on Reddit; "" if there is none."""
    for values in (table.sample(path, name) for name in names if _LINKS.fullmatch(name)):
        links = [link for value in values if value and (link := _LINK.fullmatch(value))]
        # Links that people share lead to many hosts.
        if 2 * len(links) > len(values) and len({link[1] for link in links}) == 1:
            pages = {_page(link[0]) for link in links}
            if len(pages) > 1 or _THREAD.search(links[0][0]):
                return next(iter(sorted(pages)))
    return ""


def _page(link: str) -> str:
    """A link without the part that may tell one post of a thread from another: its end, or all behind the first parameter."""
    page, _, place = link.partition("#")
    if place and "/" not in place:
        return page
    path, mark, query = page.partition("?")
    return f"{path}?{query.partition('&')[0]}" if mark else link.rstrip("/").rpartition("/")[0]


def logs(
    paths: Sequence[Path],
    counts: ReadCounts,
    *,
    columns: Mapping[str, str] | None = None,
    delimiter: str | None = None,
    quote: str = '"',
    order: Order = "file",
    dates: First = "auto",
    missing: Missing = "marks",
) -> Iterator[chat.Log]:
    """Yield one log per channel.

    `columns`, `delimiter`, `quote`, `dates`, `missing`: as for a table of posts. `order`: sort messages as in the file, or by
    time. A channel in which a reply precedes its parent is always sorted by time. Rows without ids, parents and channels are
    streamed unless they are sorted; other rows are held in memory.
    """
    check(LAYOUT, columns, delimiter, quote)
    given = LogNames()
    for path in list_files(paths):
        stem = PurePath(unpacked(file_name(path))).stem
        tables = batches(path, counts, LAYOUT, columns or {}, delimiter, quote)
        first = next(tables, None)
        if first is None:
            continue
        tables = chain([first], tables)
        if order == "file" and not any(name in first and first[name].null_count < len(first[name]) for name in _RELATED):
            messages = (message for _, message in _rows(tables, path, counts, DateOrder(dates), missing, related=False))
            name = given.give(stem, f"{path}")
            yield chat.Log(name, in_order(messages, counts, {}), where=f"{path}", names_parents=False)
            continue
        channels: dict[str | None, list[Message]] = {}
        for channel, message in _rows(tables, path, counts, DateOrder(dates), missing, related=True):
            channels.setdefault(channel, []).append(message)
        for channel, messages in channels.items():
            no_ids = {*ROOT_NUMBERS} - {message.id for message in messages}
            messages = [replace(each, answers=None) if each.answers in no_ids else each for each in messages]
            name = given.give(channel or stem, f"{stem}/{channel}" if channel else f"{path}")
            yield chat.Log(name, nodes(messages, counts, by_time=order == "time"), where=f"{path}")


_RELATED = ("id", "parent", "channel")


def _rows(
    tables: Iterable[Columns], path: Path, counts: ReadCounts, order: DateOrder, missing: Missing, *, related: bool
) -> Iterator[tuple[str | None, Message]]:
    """Yield messages with the names of their channels. Unless they are `related`, their ids are the numbers of their rows."""
    held = Held("is a table with ids, parents or channels of", "Split it by channel or by time.")
    row, spelling = 0, Spelling()
    for columns in tables:
        if related:
            held.add(path, sum(column.nbytes for column in columns.values()))
        texts = spelled(columns, path, row + 1, counts, order, missing)
        if texts.keys() >= {"id", "parent"}:
            texts = spelling.alike(texts)
        values = {name: column.to_pylist() for name, column in texts.items()}
        if not related:
            # In JSON lines, such a field may first occur when earlier messages were already yielded.
            late = sum(value is not None for name in _RELATED for value in values.pop(name, ()))
            counts.repair("late_column", f"{path}, post {row + 1} and later", count=late)
        absent = [None] * len(values["text"])
        found = (values.get(name) or absent for name in (*_RELATED, "time", "author", "kind", "text"))
        for message_id, parent, channel, time, author, kind, text in zip(*found, strict=True):
            row += 1
            yield (
                channel or None,
                Message(
                    message_id or (f"row {row}" if related else f"{row}"),
                    text or "",
                    author or None,
                    time if time is not None and math.isfinite(time) else None,
                    kind or "",
                    answers=None if parent in ROOT_MARKS else parent,
                    where=f"{path}, post {row}",
                ),
            )
