"""JSON exports of Telegram Desktop (result.json): one chat, or all chats of an account.

A chat is a log, and so is each topic of a group.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any

from ramify.readers import chat
from ramify.readers.base import Held, ReadCounts
from ramify.readers.documents import documents
from ramify.readers.messages import Accounts, LogNames, Message, Names, Skip, head_of, nodes, tops, tried
from ramify.readers.values import fields, identifier, parse_time, seconds, string

RESULT = "result.json"

_Record = tuple[Message, str | None]
"""A message, and the title of the topic that it opens."""

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
    accounts, given = Accounts(names), LogNames()
    # The first export names the chat.
    chats: dict[Any, tuple[dict[str, Any], Path, list[_Record]]] = {}
    held = Held("and the exports before it have", "Build from fewer exports at a time.")
    # In folders, other files than result.json are attachments, which may be JSON too.
    files = [file for path in paths for file in (sorted(path.rglob(RESULT)) if path.is_dir() else [path])]
    for path, place, about in ((file, *each) for file in files for each in _chats(file, counts, held)):
        messages = fields(about).get("messages")
        if not isinstance(messages, list):
            counts.leave_out("not_a_post", f'{place}: not a chat with a list "messages"')
            continue
        # A chat without an id is not joined with any other.
        _, _, records = chats.setdefault(_peer(about) or len(chats), (about, path, []))
        for number, message in enumerate(messages, 1):
            records += tried(_record, f"{place}, message {number}", counts, message, accounts, counts)
    for about, path, records in chats.values():
        name, chat_id = string(about.get("name")) or string(about.get("type")), identifier(about.get("id"))
        for topic, inside in _topics(records):
            full = f"{name}/{topic}" if topic else name
            messages = nodes(inside, counts, called=accounts.name)
            yield given.log((full, f"{full} {chat_id or ''}".rstrip()), messages, path, topic=topic)


def _peer(about: dict[str, Any]) -> tuple[str, str] | None:
    """A key for a chat that holds across exports.

    Ids are unique among people, among groups, and among channels with supergroups, but not across these three.
    """
    chat_id, kind = identifier(about.get("id")), string(about.get("type")) or ""
    if chat_id is None:
        return None
    return ("channel" if kind.endswith(("supergroup", "channel")) else "group" if kind.endswith("group") else "person"), chat_id


def _chats(path: Path, counts: ReadCounts, held: Held) -> Iterator[tuple[str, Any]]:
    """Yield the chats of an export with their places."""
    for place, document in documents(path, counts, held):
        about = fields(document)
        lists = [fields(about.get(name)).get("list") for name in ("chats", "left_chats") if "messages" not in about]
        chats = [each for inside in lists if isinstance(inside, list) for each in inside] if any(lists) else [document]
        yield from ((place, each) for each in chats)


def _record(message: Any, where: str, accounts: Accounts, counts: ReadCounts) -> _Record:
    if not isinstance(message, dict) or (message_id := identifier(message.get("id"))) is None:
        raise Skip("not_a_post", "not an object with an id")
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
    return record, (string(message.get("title")) or message_id) if opens else None


def _stamp(message: dict[str, Any], name: str) -> Any:
    """A message's time: the exact one if it is valid."""
    exact = message.get(f"{name}_unixtime")
    return exact if seconds(exact) is not None or message.get(name) is None else message[name]


def _topics(pairs: list[_Record]) -> list[tuple[str | None, list[Message]]]:
    """The records by topic. A reply to the message that opened the topic is not a reply link, because it is the default."""
    titles: dict[str | None, str] = {record.id: title for record, title in pairs if title is not None}
    top = tops({record.id: None if record.id in titles else record.answers for record, _ in pairs})
    topics: dict[str | None, list[Message]] = {}
    for record, _ in pairs:
        opening = top[record.id]
        topics.setdefault(opening if opening in titles else None, []).append(record)
        if record.answers in titles or record.kind:
            record.answers = None
    return [(titles.get(opening), records) for opening, records in topics.items()]


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
