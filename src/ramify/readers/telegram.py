"""Telegram Desktop's JSON, result.json: one chat, or all of an account's. A chat is a log, and so is each topic of a group."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any

from ramify.readers import chat
from ramify.readers.base import Held, Report
from ramify.readers.documents import documents
from ramify.readers.messages import Accounts, LogNames, Message, Names, head_of, nodes, said
from ramify.readers.values import fields, identifier, seconds, string, told_time

RESULT = "result.json"

_CHAT = re.compile(
    rb'"type"\s*:\s*"(?:personal_chat|bot_chat|saved_messages|replies|verification_codes|private_group|private_channel|'
    rb'(?:private|public)_supergroup|public_channel)"\s*,\s*"id"\s*:\s*-?\d+\s*,\s*"messages"'
)
_ACCOUNT = re.compile(rb'\A\s*\{\s*"about"\s*:\s*"[^"]*Telegram')
_MEDIA = re.compile(r"(?:photo|file|thumbnail|contact_information|location_information|poll)\Z")


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        found = any(not refuses(file, head_of(file)) for file in path.rglob(RESULT) if file.is_file())
        return "" if found else f"a folder without a {RESULT} of Telegram's"
    if _CHAT.search(head) or _ACCOUNT.search(head):
        return ""
    return 'no chat with a "type" and an "id" before its "messages", and no "about" that names Telegram'


def logs(paths: Sequence[Path], report: Report, *, names: Names = "name") -> Iterator[chat.Log]:
    """`names`: authors are called as they called themselves, or by their ids.

    A reply to what the export leaves out, or to a message of another chat, is counted in `report.kept` as `missing_parent`.
    Where a message was forwarded from is its label: {"forwarded_from"}. Exports of one chat, told by its id, are one log.
    """
    accounts = Accounts(names)
    given = LogNames()
    chats: dict[Any, _Chat] = {}
    held = Held("and the exports before it have", "Build from fewer of them at a time.")
    for path in _files(paths):
        for place, document in documents(path, report, held):
            for each in _chats(document):
                if not isinstance(each, dict) or not isinstance(each.get("messages"), list):
                    report.read += 1
                    report.skip("not_a_post", f'{place}: no chat with a list "messages"')
                    continue
                # Without an id nobody knows which chat it is: none of the others.
                found = chats.setdefault(_peer(each) or len(chats), _Chat(each, path))
                found.records += _records(each["messages"], accounts, place, report)
    for each in chats.values():
        for topic, records in _topics(each.records):
            full = f"{each.name}/{topic}" if topic else each.name
            yield chat.Log(
                given.give(full, f"{full} {each.id or ''}".rstrip()),
                nodes(records, report, called=accounts.name),
                said(topic=topic),
                f"{each.path}",
            )


class _Chat:
    """The records of all exports of one chat, each with the title of the topic that it opens; the first names it."""

    def __init__(self, about: dict[str, Any], path: Path) -> None:
        self.name = string(about.get("name")) or string(about.get("type"))
        self.id = identifier(about.get("id"))
        self.path = path
        self.records: list[tuple[Message, str | None]] = []


def _peer(about: dict[str, Any]) -> tuple[str, str] | None:
    """What names a chat in all exports: people, groups, and channels (with the large groups) have ids of their own each."""
    own, kind = identifier(about.get("id")), string(about.get("type")) or ""
    if own is None:
        return None
    return ("channel" if kind.endswith(("supergroup", "channel")) else "group" if kind.endswith("group") else "person"), own


def _files(paths: Sequence[Path]) -> list[Path]:
    """Beside the export, folders hold what was sent: JSON files too."""
    return [file for path in paths for file in (sorted(path.rglob(RESULT)) if path.is_dir() else [path])]


def _chats(document: Any) -> list[Any]:
    if isinstance(document, dict) and "messages" not in document:
        found = [fields(document.get(name)).get("list") for name in ("chats", "left_chats")]
        return [each for chats in found if isinstance(chats, list) for each in chats] if any(found) else [document]
    return [document]


def _records(messages: list[Any], accounts: Accounts, place: str, report: Report) -> Iterator[tuple[Message, str | None]]:
    """Each with the title of the topic that it opens."""
    for number, message in enumerate(messages, 1):
        report.read += 1
        where = f"{place}, message {number}"
        own = identifier(message.get("id")) if isinstance(message, dict) else None
        if own is None:
            report.skip("not_a_post", f"{where}: no object with an id")
            continue
        service = message.get("type") == "service"
        side = "actor" if service else "from"
        account, name = identifier(message.get(f"{side}_id")), string(message.get(side))
        if account is not None:
            accounts.add(account, name)
        forwarded = string(message.get("forwarded_from"))
        answered = identifier(message.get("reply_to_message_id"))
        if answered is not None and message.get("reply_to_peer_id") is not None:
            report.mend("missing_parent", where)
            answered = None
        if message.get("type") == "unsupported":
            report.mend("unsupported", where)
        record = Message(
            own,
            _service(message) if service else _text(message),
            author=account or name,
            time=told_time(_stamp(message, "date"), report, where),
            kind=chat.SYSTEM if service else "",
            label={"forwarded_from": forwarded} if forwarded else None,
            answers=answered,
            edited=seconds(_stamp(message, "edited")),
            where=where,
        )
        opens = message.get("action") == "topic_created" and service
        yield record, (string(message.get("title")) or own) if opens else None


def _stamp(message: dict[str, Any], name: str) -> Any:
    """The exact one, where it is one."""
    exact = message.get(f"{name}_unixtime")
    return exact if seconds(exact) is not None or message.get(name) is None else message[name]


def _topics(pairs: list[tuple[Message, str | None]]) -> list[tuple[str | None, list[Message]]]:
    """The records by topic. What replies to nothing else replies to the message that opened its topic: that is no answer."""
    titles = {record.id: title for record, title in pairs if title is not None}
    topic_of: dict[str, str | None] = {own: own for own in titles}
    above = {record.id: record.answers for record, _ in pairs}
    for own in above:
        path: dict[str, None] = {}
        at: str | None = own
        while at is not None and at not in topic_of and at not in path:
            path[at] = None
            at = above.get(at)
        topic = None if at is None else topic_of.get(at)
        topic_of |= dict.fromkeys(path, topic)
    topics: dict[str | None, list[Message]] = {}
    for record, _ in pairs:
        topics.setdefault(topic_of[record.id], []).append(record)
        if record.answers in titles or record.kind:
            record.answers = None
    return [(None if own is None else titles[own], records) for own, records in topics.items()]


def _service(message: dict[str, Any]) -> str:
    """Services have no text, but say in fields what was done, to whom, and with what."""
    action = (string(message.get("action")) or string(message.get("information_text")) or "").replace("_", " ")
    members = message.get("members")
    names = ", ".join(each for each in members if isinstance(each, str)) if isinstance(members, list) else None
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
