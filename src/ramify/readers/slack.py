"""Slack exports: the ZIP file, the folder it unpacks to, or days of one channel, `2024-01-31.json`.

A channel is a log that joins its days. The parent of a reply in a thread is the message that started the thread; the parent of
a message at the top level is unknown. Markup in texts becomes visible text: names, the labels of links, & < >.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from ramify.errors import RamifyError
from ramify.readers import chat
from ramify.readers.archives import ZIP, Source, from_folder, is_zip, source_of
from ramify.readers.base import Held, ReadCounts, check_not_standard
from ramify.readers.documents import loads
from ramify.readers.messages import GONE, Accounts, LogNames, Message, Names, Skip, nodes, tried
from ramify.readers.values import fields, identifier, objects, seconds, string

CHANNELS = ("channels.json", "groups.json", "dms.json", "mpims.json")
USERS = ("users.json", "org_users.json")

_NO_EXPORT = "no channels.json in it, and no folder of a channel with files like 2024-01-31.json"

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\.json").fullmatch
_STAMP = re.compile(rb'"ts"\s*:\s*"\d{9,}\.\d{1,6}"')
_SYSTEM = re.compile(
    r"(?:channel|group)_.*|(?:un)?pinned_item|bot_(?:add|remove|enable|disable)|reminder_(?:add|delete)|joiner_notification"
    r"|app_conversation_(?:join|leave)|sh_room_.*|huddle_thread|(?:un)?share_workflow|bookmark_.*"
).fullmatch
_TOMBSTONES = ("tombstone", "ekm_access_denied")
_CHANGES = ("message_changed", "message_replied")


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir() or head.startswith(ZIP):
        try:
            return "" if _is_export(source_of(path, "Download the export again.")) else _NO_EXPORT
        except RamifyError as error:
            return f"{error}" if path.is_dir() else ""  # `logs` reports the fault of an archive.
    return "" if _is_day(head) else 'not a ZIP archive and not a JSON list of messages with "ts"'


def _is_day(head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[") and b'"message"' in head and bool(_STAMP.search(head))


def _is_export(source: Source) -> bool:
    days = [day for channels in _layout(source.names).values() for inside in channels.values() for day in inside]
    if any(name.rpartition("/")[2] in (*CHANNELS, *USERS) for name in source.names):
        return bool(days)
    held = Held("holds for one day", "Export a shorter period.")
    return any(_is_day(source.read(day, held, None)) for day in days[:1])


def logs(paths: Sequence[Path], counts: ReadCounts, *, names: Names = "name") -> Iterator[chat.Log]:
    """Yield one log per channel. `names`: authors are named as in users.json, or by their ids.

    A deleted message keeps its place, with the text "[deleted]". An edited message has its latest text. A reply whose thread
    starts with a missing message is counted in `counts.kept` as `missing_thread`.
    """
    given = LogNames()
    for source, root, channels in _exports(paths):
        accounts = Accounts(names)
        users = named_users(objects(_document(source, root, USERS)), accounts)
        # The folder of a channel is its name or its id.
        described = {
            name: channel
            for file in CHANNELS
            for channel in objects(_document(source, root, [file]))
            for name in (string(channel.get("id")), string(channel.get("name")))
        }
        for folder, days in channels.items():
            name = PurePosixPath(folder).name or source.path.resolve().stem
            channel, about = Channel(accounts, users, counts), described.get(name, {})
            _read_days(source, days, channel, counts)
            called = (string(about.get("name")) or name, f"{source.path.stem}/{name}")
            yield channel.log(given, called, about, source.path)


# --- files of an export -------------------------------------------------------------------------------------------------


def _document(source: Source, root: str, names: Sequence[str]) -> Any:
    """Load the first of the files that exists, or None. Raises `RamifyError` if it is not valid JSON."""
    name = next((f"{root}{name}" for name in names if f"{root}{name}" in source.names), None)
    if name is None:
        return None
    data = source.read(name, Held(f"is an export whose {name} is", "Remove it to read without it."), None)
    try:
        return loads(data)
    except ValueError as error:
        raise RamifyError(
            f"{source.where(name)} is not valid JSON ({error}). Export again, or remove it to read without it."
        ) from None


def _exports(paths: Sequence[Path]) -> Iterator[tuple[Source, str, dict[str, list[str]]]]:
    """Yield exports, their root folders and the days of each of their channels. Several paths may be days of one channel."""
    loose: dict[Path, list[str]] = {}
    for path in paths:
        check_not_standard(path, "a Slack export", "it holds several files")
        if path.is_dir() or is_zip(path):
            source = source_of(path, "Download the export again.")
            layout = _layout(source.names)
            if not layout:
                raise RamifyError(
                    f"{path} is not a Slack export: there is {_NO_EXPORT}. Name the file or folder that was exported."
                )
            if path.is_dir() and list(layout) == [("", True)]:
                # The folder of one channel. The files that describe it are beside it.
                days = [f"{path.resolve().name}/{name}" for name in layout["", True][""]]
                loose.setdefault(path.resolve().parent, []).extend(days)
                continue
            for (root, _), channels in layout.items():
                yield source, root, channels
        else:
            whole = path.resolve()
            loose.setdefault(whole.parent.parent, []).append(f"{whole.parent.name}/{whole.name}")
    for root, days in loose.items():
        channels: dict[str, list[str]] = {}
        for day in sorted(dict.fromkeys(days)):
            channel = day.rpartition("/")[0] if _DAY(PurePosixPath(day).name) else day.removesuffix(".json")
            channels.setdefault(channel, []).append(day)
        present = [name for name in (*CHANNELS, *USERS) if (root / name).is_file()]
        yield Source(root, [*days, *present], from_folder(root)), "", channels


def _layout(names: list[str]) -> dict[tuple[str, bool], dict[str, list[str]]]:
    """(The root folder of an export, whether it is the folder of one channel) -> folders of its channels -> their days."""
    described = {name.rpartition("/")[0] for name in names if name.rpartition("/")[2] in (*CHANNELS, *USERS)}
    layout: dict[tuple[str, bool], dict[str, list[str]]] = {}
    for name in names:
        folder, _, file = name.rpartition("/")
        if _DAY(file):
            root = folder.rpartition("/")[0]
            key = (f"{root}/" if root else "", not folder and "" not in described)
            layout.setdefault(key, {}).setdefault(folder, []).append(name)
    return layout


def named_users(described: Iterable[dict[str, Any]], accounts: Accounts) -> dict[str, str]:
    """Account -> its name, from descriptions of users."""
    users = {}
    for user in described:
        if (account := identifier(user.get("id"))) is not None:
            accounts.add(account, *_display_names(user))
            users[account] = accounts.name(account)
    return users


def _display_names(user: dict[str, Any]) -> list[Any]:
    """The names of an account, with the name displayed in channels first."""
    places = (fields(user.get("profile")), user)
    return [*(place.get(name) for name in ("display_name", "real_name") for place in places), user.get("name")]


# --- messages -----------------------------------------------------------------------------------------------------------


def _read_days(source: Source, days: list[str], channel: "Channel", counts: ReadCounts) -> None:
    held = Held("holds for one channel", "Export a shorter period.")
    for day in days:
        place = source.where(day)
        counts.leave_out("doubled_file", f"{place}: only the last file of this name is read", source.hidden.get(day, 0))
        try:
            document = loads(source.read(day, held, counts))
        except ValueError as error:
            counts.leave_out("bad_json", f"{place}: {error}")
            continue
        # The API returns an object around the list.
        document = fields(document).get("messages", document)
        channel.add(document if isinstance(document, list) else [document], place)


class Channel:
    """Collects the messages of one channel, because an edit or the start of a thread may be in another file.

    `accounts` receives the names of authors; `users` are those that mentions in texts show.
    """

    def __init__(self, accounts: Accounts, users: Mapping[str, str], counts: ReadCounts) -> None:
        self._accounts, self._users, self._counts = accounts, users, counts
        self._records: list[Message] = []
        self._threads: dict[str, str] = {}

    def add(self, messages: Iterable[Any], place: str) -> None:
        for number, message in enumerate(messages, 1):
            self._records += tried(self._read, f"{place}, message {number}", self._counts, message)

    def log(self, given: LogNames, names: Sequence[str | None], about: Mapping[str, Any], path: Path) -> chat.Log:
        """The log of all messages. `about` describes the channel."""
        for record in self._records:
            # Some exporters name a reply only in the first message of its thread.
            thread = self._threads.get(record.id)
            if record.answers is None and thread != record.id and record.kind != chat.SYSTEM:
                record.answers = thread
        messages = nodes(self._records, self._counts, called=self._accounts.name, missing="missing_thread")
        topic, purpose = (fields(about.get(name)).get("value") for name in ("topic", "purpose"))
        return given.log(names, messages, path, topic=topic, purpose=purpose)

    def _read(self, message: Any, where: str) -> Message:
        """The record of a message. The replies that it names are remembered."""
        record = self._record(message, where) if isinstance(message, dict) else None
        if record is None:
            raise Skip("not_a_post", 'not an object with a time "ts"')
        for reply in objects(message.get("replies")):
            if (stamp := identifier(reply.get("ts"))) is not None:
                self._threads[stamp] = record.id
        return record

    def _record(self, message: dict[str, Any], where: str) -> Message | None:
        subtype, inner = string(message.get("subtype")) or "", message.get("message")
        if subtype in _CHANGES and isinstance(inner, dict):
            nested = string(inner.get("subtype"))
            record = self._record(inner | {"subtype": None if nested in _CHANGES else nested}, where)
            if record is not None:
                record.event, record.edited = "edit", record.edited or seconds(message.get("ts"))
            return record
        is_deletion = subtype == "message_deleted"
        stamp = _stamp(message.get("deleted_ts" if is_deletion else "ts"))
        if stamp is None:
            return None
        if is_deletion:
            return Message(stamp, GONE, event="deletion", edited=seconds(message.get("ts")), where=where)
        gone = subtype in _TOMBSTONES
        kind = chat.SYSTEM if _SYSTEM(subtype) else chat.ACTION if subtype == "me_message" else ""
        thread = _stamp(message.get("thread_ts")) or _stamp(message.get("broadcast_thread_ts"))
        return Message(
            stamp,
            GONE if gone else self._text(message),
            author=None if gone else self._author(message),
            time=seconds(stamp),
            kind=kind,
            answers=None if thread == stamp or kind == chat.SYSTEM else thread,
            edited=seconds(fields(message.get("edited")).get("ts")),
            where=where,
        )

    def _author(self, message: dict[str, Any]) -> str | None:
        bot = identifier(message.get("bot_id"))
        user = identifier(message.get("user"))
        if user is not None:
            self._accounts.add(user, *_display_names(fields(message.get("user_profile"))))
            return user
        # One bot may post under many names, for example as a bridge to another network.
        name = string(message.get("username")) or string(fields(message.get("bot_profile")).get("name"))
        return bot or name if self._accounts.by_id else name or bot

    def _text(self, message: dict[str, Any]) -> str:
        text = string(message.get("text"))
        if text is not None:
            return plain(text, self._users)
        files = objects(message.get("files")) or objects([message.get("file")])
        parts = [
            _words(message.get("blocks"), self._users),
            *(_attached(attachment, self._users) for attachment in objects(message.get("attachments"))),
            *(f"[{name}]" for file in files if (name := string(file.get("title")) or string(file.get("name")))),
        ]
        return "\n".join(part for part in parts if part)


def _stamp(value: Any) -> str | None:
    """A time in the form by which messages refer to each other. Some programs write it as a number."""
    stamp = f"{value:.6f}" if isinstance(value, float) else identifier(value)
    return None if stamp is None or seconds(stamp) is None else stamp


def _attached(attachment: dict[str, Any], users: Mapping[str, str]) -> str:
    parts = [string(attachment.get(name)) for name in ("pretext", "title", "text")]
    if not any(parts):
        parts = [_words(attachment.get("blocks"), users) or string(attachment.get("fallback"))]
    return "\n".join(plain(part, users) for part in parts if part)


def _words(blocks: Any, users: Mapping[str, str]) -> str:
    """The text of blocks, nested to any depth: one line per innermost block."""
    parts: list[str] = []
    todo: list[Any] = [blocks]
    while todo:
        block = todo.pop()
        if isinstance(block, list):
            todo += reversed(block)
        elif isinstance(block, str):
            parts.append(block)
        elif isinstance(block, dict):
            kind = string(block.get("type"))
            if kind in _WORDS:
                parts.append(_WORDS[kind](block, users))
            else:
                inside = [block[name] for name in ("text", "fields", "elements") if isinstance(block.get(name), dict | list)]
                todo += ["\n", *reversed(inside)]
    return re.sub("\n+", "\n", "".join(parts)).strip()


_WORDS: dict[str | None, Callable[[dict[str, Any], Mapping[str, str]], str]] = {
    "text": lambda block, users: string(block.get("text")) or "",
    "plain_text": lambda block, users: string(block.get("text")) or "",
    "mrkdwn": lambda block, users: plain(string(block.get("text")) or "", users),
    "link": lambda block, users: string(block.get("text")) or string(block.get("url")) or "",
    "emoji": lambda block, users: f":{string(block.get('name')) or ''}:",
    "broadcast": lambda block, users: f"@{string(block.get('range')) or ''}",
    "user": lambda block, users: f"@{users.get(account := string(block.get('user_id')) or '', account)}",
    "channel": lambda block, users: f"#{string(block.get('channel_id')) or ''}",
    "usergroup": lambda block, users: f"@{string(block.get('usergroup_id')) or ''}",
}


_ENTITIES = {"amp": "&", "lt": "<", "gt": ">"}
_ENTITY = re.compile("&(amp|lt|gt);")
_MARK = re.compile(r"<(?:([@#!])|(?=[A-Za-z][\w+.-]*:))([^<>|]+)(?:\|([^<>]*))?>")


def plain(text: str, users: Mapping[str, str]) -> str:
    """A text without Slack's markup: `<@U1>`, `<#C1|name>`, `<!here>`, `<https://example.com|label>`, `&amp;`."""
    if "<" in text:
        text = _MARK.sub(lambda mark: _visible(mark, users), text)
    return _ENTITY.sub(lambda entity: _ENTITIES[entity[1]], text) if "&" in text else text


def _visible(mark: re.Match[str], users: Mapping[str, str]) -> str:
    sign, name, label = mark.groups()
    if sign is None:
        return label or name
    if sign == "!":
        if name.startswith("date^"):
            return label or ""
        sign, name = "@", name.partition("^")[0]
    else:
        label = users.get(name) or label
    label = label or name
    return label if label.startswith(sign) else sign + label
