"""JSON exports of Telegram Desktop (result.json): one chat, or all chats of an account.

A chat is a log, and so is each topic of a group.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any

from ramify.readers import chat
from ramify.readers.base import Held, ReadCounts, guarded
from ramify.readers.documents import documents
from ramify.readers.messages import Accounts, LogNames, Message, Names, head_of, nodes, said
from ramify.readers.values import fields, identifier, parse_time, seconds, string

RESULT = "result.json"

_CHAT = re.compile(
    rb'"type"\s*:\s*"(?:personal_chat|bot_chat|saved_messages|replies|verification_codes|private_group|private_channel|'
    rb'(?:private|public)_supergroup|public_channel)"\s*,\s*"id"\s*:\s*-?\d+\s*,\s*"messages"'
)
_ACCOUNT = re.compile(rb'\A\s*\{\s*"about"\s*:\s*"[^"]*Telegram')
_MEDIA = re.compile(r"(?:photo|file|thumbnail|contact_information|location_information|poll)\Z")


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        accepted = any(not refuses(file, head_of(file)) for file in path.rglob(RESULT) if file.is_file())
        return "" if accepted else f"a folder without a {RESULT} from Telegram"
    if _CHAT.search(head) or _ACCOUNT.search(head):
        return ""
    return 'no chat with a "type" and an "id" before its "messages", and no "about" that names Telegram'


def logs(paths: Sequence[Path], counts: ReadCounts, *, names: Names = "name") -> Iterator[chat.Log]:
    """Yield one log per chat or topic. `names`: authors are named by their display names, or by their ids.

    A reply to a message outside the export or in another chat is counted in `counts.kept` as `missing_parent`. The label of a
    forwarded message is {"forwarded_from": its source}. Exports of the same chat, identified by its id, are joined.
    """
    accounts = Accounts(names)
    given = LogNames()
    chats: dict[Any, _Chat] = {}
    held = Held("and the exports before it have", "Build from fewer exports at a time.")
    for path in _files(paths):
        for place, document in documents(path, counts, held):
            for about in _chats(document):
                if not isinstance(about, dict) or not isinstance(about.get("messages"), list):
                    counts.leave_out("not_a_post", f'{place}: not a chat with a list "messages"')
                    continue
                # A chat without an id is not joined with any other.
                export = chats.setdefault(_peer(about) or len(chats), _Chat(about, path))
                export.records += _records(about["messages"], accounts, place, counts)
    for export in chats.values():
        for topic, records in _topics(export.records):
            full = f"{export.name}/{topic}" if topic else export.name
            yield chat.Log(
                given.give(full, f"{full} {export.id or ''}".rstrip()),
                nodes(records, counts, called=accounts.name),
                said(topic=topic),
                f"{export.path}",
            )


class _Chat:
    """The records of one chat from all its exports, each with the title of the topic that it opens.

    The first export names the chat.
    """

    def __init__(self, about: dict[str, Any], path: Path) -> None:
        self.name = string(about.get("name")) or string(about.get("type"))
        self.id = identifier(about.get("id"))
        self.path = path
        self.records: list[tuple[Message, str | None]] = []


def _peer(about: dict[str, Any]) -> tuple[str, str] | None:
    """A key for a chat that holds across exports.

    Ids are unique among people, among groups, and among channels with supergroups, but not across these three.
    """
    chat_id, kind = identifier(about.get("id")), string(about.get("type")) or ""
    if chat_id is None:
        return None
    return ("channel" if kind.endswith(("supergroup", "channel")) else "group" if kind.endswith("group") else "person"), chat_id


def _files(paths: Sequence[Path]) -> list[Path]:
    """The files named result.json. Other files in the folders are attachments, which may be JSON too."""
    return [file for path in paths for file in (sorted(path.rglob(RESULT)) if path.is_dir() else [path])]


def _chats(document: Any) -> list[Any]:
    if isinstance(document, dict) and "messages" not in document:
        lists = [fields(document.get(name)).get("list") for name in ("chats", "left_chats")]
        return [about for chats in lists if isinstance(chats, list) for about in chats] if any(lists) else [document]
    return [document]


def _records(messages: list[Any], accounts: Accounts, place: str, counts: ReadCounts) -> Iterator[tuple[Message, str | None]]:
    """Yield each message with the title of the topic that it opens, if any."""
    for number, message in enumerate(messages, 1):
        where = f"{place}, message {number}"
        yield from guarded(_record, where, counts, message, accounts, where, counts)


def _record(message: Any, accounts: Accounts, where: str, counts: ReadCounts) -> Iterator[tuple[Message, str | None]]:
    message_id = identifier(message.get("id")) if isinstance(message, dict) else None
    if message_id is None:
        counts.leave_out("not_a_post", f"{where}: not an object with an id")
        return
    service = message.get("type") == "service"
    side = "actor" if service else "from"
    account, name = identifier(message.get(f"{side}_id")), string(message.get(side))
    if account is not None:
        accounts.add(account, name)
    forwarded = string(message.get("forwarded_from"))
    parent = identifier(message.get("reply_to_message_id"))
    if parent is not None and message.get("reply_to_peer_id") is not None:
        counts.repair("missing_parent", where)
        parent = None
    if message.get("type") == "unsupported":
        counts.repair("unsupported", where)
    record = Message(
        message_id,
        _service(message) if service else _text(message),
        author=account or name,
        time=parse_time(_stamp(message, "date"), counts, where),
        kind=chat.SYSTEM if service else "",
        label={"forwarded_from": forwarded} if forwarded else None,
        answers=parent,
        edited=seconds(_stamp(message, "edited")),
        where=where,
    )
    opens = message.get("action") == "topic_created" and service
    counts.read += 1
    yield record, (string(message.get("title")) or message_id) if opens else None


def _stamp(message: dict[str, Any], name: str) -> Any:
    """A message's time: the exact one if it is valid."""
    exact = message.get(f"{name}_unixtime")
    return exact if seconds(exact) is not None or message.get(name) is None else message[name]


def _topics(pairs: list[tuple[Message, str | None]]) -> list[tuple[str | None, list[Message]]]:
    """The records by topic. A reply to the message that opened the topic is not a reply link, because it is the default."""
    titles = {record.id: title for record, title in pairs if title is not None}
    topic_of: dict[str, str | None] = {opening: opening for opening in titles}
    parent_of = {record.id: record.answers for record, _ in pairs}
    for message_id in parent_of:
        path: dict[str, None] = {}
        at: str | None = message_id
        while at is not None and at not in topic_of and at not in path:
            path[at] = None
            at = parent_of.get(at)
        topic = None if at is None else topic_of.get(at)
        topic_of |= dict.fromkeys(path, topic)
    topics: dict[str | None, list[Message]] = {}
    for record, _ in pairs:
        topics.setdefault(topic_of[record.id], []).append(record)
        if record.answers in titles or record.kind:
            record.answers = None
    return [(None if opening is None else titles[opening], records) for opening, records in topics.items()]


def _service(message: dict[str, Any]) -> str:
    """A text for a service message, which has none: the action and its details from other fields."""
    action = (string(message.get("action")) or string(message.get("information_text")) or "").replace("_", " ")
    members = message.get("members")
    names = ", ".join(member for member in members if isinstance(member, str)) if isinstance(members, list) else None
    details = [names, string(message.get("title")), string(message.get("new_title")), _text(message)]
    return ": ".join(part for part in (action, *details) if part)


def _text(message: dict[str, Any]) -> str:
    for name in ("text", "text_entities"):
        parts = message.get(name)
        text = "".join(_words(part) for part in (parts if isinstance(parts, list) else [parts]))
        if text.strip():
            return text
    poll = string(fields(message.get("poll")).get("question"))
    emoji = string(message.get("sticker_emoji"))
    if poll or emoji:
        return poll or emoji or ""
    file = string(message.get("file_name"))
    if file is None and not (path := string(message.get("file")) or "(").startswith("("):
        file = PureWindowsPath(path).name
    kind = string(message.get("media_type")) or next((name for name in message if _MEDIA.match(name)), "")
    return f"[{file or kind.replace('_', ' ')}]" if file or kind else ""


def _words(part: Any) -> str:
    text = part if isinstance(part, str) else fields(part).get("text")
    return text if isinstance(text, str) else ""
