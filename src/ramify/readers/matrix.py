"""Matrix rooms: Element's JSON exports, API responses, and events as JSON lines. A room is a log.

The parent of a reply is the message it names. The parent of any other message in a thread is the message that started the
thread.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ramify.readers import chat
from ramify.readers.base import Held, ReadCounts, file_name, lacks
from ramify.readers.documents import documents
from ramify.readers.messages import (
    GONE,
    Accounts,
    LogNames,
    Message,
    Names,
    Skip,
    first_refusal,
    json_files,
    newest_first,
    nodes,
    tried,
)
from ramify.readers.values import fields, parse_time, seconds, string

MILLISECONDS = 1000
"""Milliseconds per second."""
ENCRYPTED = "m.room.encrypted"
MESSAGES = ("m.room.message", "m.sticker", "m.poll.start", "org.matrix.msc3381.poll.start", ENCRYPTED)
DONE = {"join": "joined", "leave": "left", "invite": "was invited", "ban": "was banned", "knock": "asked to join"}
"""Membership event -> text about the member."""

# Skipped events that belong to a message: a part of their type -> the reason.
_REASONS = {"reaction": "reaction", "poll": "vote"}
_EXPORT = (b'"room_name"', b'"exported_by"', b'"messages"')
_EVENT = re.compile(rb'"event_id"\s*:\s*"\$')
_QUOTED = re.compile(r"> (?:\* )?<@[^>\n]+>[^\n]*(?:\n>[^\n]*)*(?:\n\n?|\Z)").match


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        return first_refusal(path, json_files([path]), refuses)
    if not lacks(path, head, *_EXPORT):
        return ""
    missing = lacks(path, head, b'"origin_server_ts"', b'"sender"', b'"content"')
    return missing or ("" if _EVENT.search(head) else 'no "event_id" beginning with $')


def logs(paths: Sequence[Path], counts: ReadCounts, *, names: Names = "name") -> Iterator[chat.Log]:
    """Yield one log per room. `names`: authors are named by their display names, or by their ids (@ann:example.org).

    An edited message has its latest text, and a redacted one "[deleted]". An encrypted message has no text and is counted in
    `counts.kept` as `undecryptable`. Edits, redactions, reactions and votes are skipped. Files of the same room, identified by
    its id, are joined in the order of time.
    """
    given = LogNames()
    rooms: dict[Any, _Room] = {}
    held = Held("and the files before it hold", "Build from fewer files at a time, or from fewer events per file.")
    for path in json_files(paths):
        for place, document in documents(path, counts, held):
            about = fields(document)
            inside = next((about[name] for name in ("messages", "chunk") if isinstance(about.get(name), list)), None)
            events = inside if inside is not None else document if isinstance(document, list) else [document]
            # An export is of one room. A file without a room id is not joined with any other.
            ids = (room_id for event in events if (room_id := string(fields(event).get("room_id"))))
            whole = next(ids, path) if "room_name" in about else None
            for number, event in enumerate(events, 1):
                where = place if event is document else f"{place}, event {number}"
                if not isinstance(event, dict) or string(event.get("type")) is None:
                    counts.leave_out("not_a_post", f'{where}: not an event with a "type"')
                    continue
                key = whole or string(event.get("room_id")) or path
                room = rooms[key] = rooms.get(key) or _Room(Accounts(names), counts)
                room.records += tried(room.read, where, counts, event, path, about)
    for room_id, room in rooms.items():
        name = room_id if isinstance(room_id, str) and not room.exported else None
        stem = Path(file_name(room.paths[0])).stem
        called = room.name or room.exported or name
        records = room.finished()
        by_time = len(room.paths) > 1 or newest_first(records)
        messages = nodes(records, counts, called=room.accounts.name, by_time=by_time)
        yield given.log((called, name, f"{called or stem} ({stem})"), messages, room.paths[0], topic=room.topic)


class _Room:
    """The records of one room and the files that hold them."""

    def __init__(self, accounts: Accounts, counts: ReadCounts) -> None:
        self.accounts, self._counts = accounts, counts
        self.name: str | None = None
        self.exported: str | None = None
        self.topic: str | None = None
        self.paths: list[Path] = []
        self.records: list[Message] = []

    def read(self, event: dict[str, Any], where: str, path: Path, about: dict[str, Any]) -> Message:
        """The record of an event. `about` is the file's description of the room. Raises `Skip` for an event without one."""
        if path not in self.paths[-1:]:
            self.paths.append(path)
        self.exported = self.exported or string(about.get("room_name"))
        self.topic = self.topic or string(about.get("topic"))
        kind, content = event["type"], fields(event.get("content"))
        relation = fields(content.get("m.relates_to"))
        target = string(relation.get("event_id")) if relation.get("rel_type") == "m.replace" else None
        time = parse_time(event.get("origin_server_ts"), self._counts, where, unit=MILLISECONDS)
        record = Message(string(event.get("event_id")) or "", author=string(event.get("sender")), time=time, where=where)
        if kind == "m.room.redaction":
            target = string(event.get("redacts")) or string(content.get("redacts"))
            if target is None:
                raise Skip("deletion")
            record = Message(target, GONE, event="deletion", where=where)
        elif "state_key" in event or kind.startswith("m.call.") or (kind.startswith("m.room.") and kind not in MESSAGES):
            self._fill_state(record, event, content)
        elif kind not in MESSAGES:
            raise Skip(next((reason for mark, reason in _REASONS.items() if mark in kind), "not_a_post"), kind)
        elif not record.id:
            raise Skip("not_a_post", "the message has no id")
        elif target is not None:
            record.id, record.event, record.edited = target, "edit", time or 0.0
            record.text = self._text(kind, fields(content.get("m.new_content")) or content, where)
        else:
            self._fill_message(record, event, content)
        return record

    def _fill_message(self, record: Message, event: dict[str, Any], content: dict[str, Any]) -> None:
        about = fields(event.get("unsigned"))
        if "redacted_because" in about or "redacted_because" in event or not content:
            record.text = GONE
            return
        record.answers = _parent(fields(content.get("m.relates_to")))
        # Servers may send the latest version along with a message.
        latest = fields(fields(about.get("m.relations")).get("m.replace"))
        newer = fields(fields(latest.get("content")).get("m.new_content"))
        if string(newer.get("body")) is not None:
            content, record.edited = newer, seconds(latest.get("origin_server_ts"), unit=MILLISECONDS)
        record.text = self._text(event["type"], content, record.where)
        record.kind = chat.ACTION if content.get("msgtype") == "m.emote" else ""

    def _fill_state(self, record: Message, event: dict[str, Any], content: dict[str, Any]) -> None:
        kind, record.kind = event["type"], chat.SYSTEM
        record.id = record.id or f"state {len(self.records)}"
        if kind == "m.room.name":
            self.name = string(content.get("name")) or self.name
        if kind == "m.room.member":
            record.author = string(event.get("state_key")) or record.author
            membership, shown = string(content.get("membership")) or "", string(content.get("displayname"))
            before = fields(fields(event.get("unsigned")).get("prev_content")).get("membership")
            if record.author is not None and membership == "join":
                self.accounts.add(record.author, shown)
            renamed = membership == before == "join" and shown is not None
            record.text = f"goes by {shown}" if renamed else DONE.get(membership, kind)
        else:
            parts = [string(content.get(name)) for name in ("name", "topic", "body")]
            record.text = ": ".join(part for part in (kind, *parts) if part)

    def _text(self, kind: str, content: dict[str, Any], where: str) -> str:
        if kind == ENCRYPTED or content.get("msgtype") == "m.bad.encrypted":
            self._counts.repair("undecryptable", where)
            return ""
        body = string(content.get("body"))
        if body is None:
            return string(content.get("m.text")) or string(content.get("org.matrix.msc1767.text")) or ""
        # Old clients quote the parent at the beginning of a reply.
        is_reply = fields(content.get("m.relates_to")).get("m.in_reply_to") is not None
        return body[quoted.end() :] if is_reply and (quoted := _QUOTED(body)) else body

    def finished(self) -> list[Message]:
        """The records, without edits by other users than the author.

        An account without a name is named by the first part of its id, if this name is free.
        """
        authors = {record.id: record.author for record in self.records if not record.event}
        accepted = []
        for record in self.records:
            if record.event == "edit" and authors.get(record.id, record.author) != record.author:
                self._counts.skip("bad_edit", record.where)
                continue
            accepted.append(record)
            if record.author is not None:
                self.accounts.add(record.author, record.author.removeprefix("@").partition(":")[0])
        return accepted


def _parent(relation: dict[str, Any]) -> str | None:
    replied = string(fields(relation.get("m.in_reply_to")).get("event_id"))
    thread = string(relation.get("event_id")) if relation.get("rel_type") in ("m.thread", "io.element.thread") else None
    # In a thread, a fallback for old clients presents every message as a reply to the message before it.
    return thread if thread is not None and (replied is None or relation.get("is_falling_back")) else replied
