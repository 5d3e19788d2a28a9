"""JSON exports of DiscordChatExporter. A file holds a channel or thread, or a part of it. The parts of a channel are one log.

The parent of a reply is the message it refers to. The parent of any other message in a thread is the thread's first message.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ramify.readers import chat
from ramify.readers.base import Held, ReadCounts, file_name, guarded, lacks
from ramify.readers.documents import documents
from ramify.readers.messages import Accounts, LogNames, Message, Names, first_refusal, head_of, json_files, nodes, said
from ramify.readers.values import fields, identifier, objects, parse_time, seconds, string

MEDIA = "_Files"
"""The suffix of folders in which the exporter stores attachments of a channel."""

_CHANNEL = re.compile(rb'"channel"\s*:\s*\{\s*"id"\s*:\s*"(\d+)"')
_GUILD = re.compile(rb'"guild"\s*:\s*\{')
# Discord's numbers stand for kinds that the exporter does not know by name.
_ORDINARY = {"Default", "Reply", "ChatInputCommand", "ContextMenuCommand", "ThreadStarterMessage", "0", "19", "20", "21", "23"}
_STARTERS = {"ThreadStarterMessage", "21"}
_REPLIES = {"Reply", "19"}


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        return first_refusal(path, _files([path]), lambda file, head: _no_channel(head))
    return _no_channel(head) or lacks(path, head, b'"messages"')


def _no_channel(head: bytes) -> str:
    if not _GUILD.search(head):
        return 'no object "guild"'
    return "" if _CHANNEL.search(head) else 'no object "channel" with its id first'


def logs(paths: Sequence[Path], counts: ReadCounts, *, names: Names = "name") -> Iterator[chat.Log]:
    """Yield one log per channel. `names`: authors are named by their nicknames, or by their ids.

    A reply to a message outside the export is counted in `counts.kept` as `missing_parent`.
    """
    accounts = Accounts(names)
    given = LogNames()
    channels: dict[bytes, list[Path]] = {}
    for path in _files(paths):
        match = _CHANNEL.search(head_of(path))
        channels.setdefault(match[1] if match else bytes(path), []).append(path)
    for parts in channels.values():
        log = _Log(accounts, counts)
        for path in parts:
            log.add(path)
        name, guild = string(log.channel.get("name")), string(log.guild.get("name"))
        yield chat.Log(
            given.give(name, name and guild and f"{guild}/{name}", Path(file_name(parts[0])).stem),
            nodes(log.finished(), counts, called=accounts.name),
            said(guild=guild, topic=log.channel.get("topic")),
            f"{parts[0]}",
        )


def _files(paths: Sequence[Path]) -> list[Path]:
    """The JSON files of the export, without attachments, which may be JSON too."""
    given = set(paths)
    return [path for path in json_files(paths) if path in given or not any(part.endswith(MEDIA) for part in path.parent.parts)]


class _Log:
    """The records and the description of one channel."""

    def __init__(self, accounts: Accounts, counts: ReadCounts) -> None:
        self._accounts, self._counts = accounts, counts
        self._held = Held("and the parts before it have", "Export shorter periods of the channel and build each separately.")
        self._records: list[Message] = []
        self._starter: str | None = None
        self.channel: dict[str, Any] = {}
        self.guild: dict[str, Any] = {}

    def add(self, path: Path) -> None:
        for place, document in documents(path, self._counts, self._held):
            if not isinstance(document, dict) or not isinstance(document.get("messages"), list):
                self._counts.leave_out("not_a_post", f'{place}: not an object with a list "messages"')
                continue
            self.channel = self.channel or fields(document.get("channel"))
            self.guild = self.guild or fields(document.get("guild"))
            for number, message in enumerate(document["messages"], 1):
                where = f"{place}, message {number}"
                self._records += guarded(self._read, where, self._counts, message, where)

    def _read(self, message: Any, where: str) -> list[Message]:
        message_id = identifier(message.get("id")) if isinstance(message, dict) else None
        records = [] if message_id is None else [self._record(message, message_id, where)]
        self._counts.read += 1
        if not records:
            self._counts.skip("not_a_post", f"{where}: not an object with an id")
        return records

    def _record(self, message: dict[str, Any], message_id: str, where: str) -> Message:
        kind = identifier(message.get("type")) or "Default"
        author = fields(message.get("author"))
        account = identifier(author.get("id"))
        name = string(author.get("name"))
        if account is not None:
            self._accounts.add(account, author.get("nickname"), name)
        if kind in _STARTERS:
            self._starter = message_id
        return Message(
            message_id,
            _text(message),
            author=account or name,
            time=parse_time(message.get("timestamp"), self._counts, where),
            kind="" if kind in _ORDINARY else chat.SYSTEM,
            answers=self._find_parent(message, kind) if kind in _ORDINARY else None,
            edited=seconds(message.get("timestampEdited")),
            where=where,
        )

    def _find_parent(self, message: dict[str, Any], kind: str) -> str | None:
        """The id of the parent. References to forwarded messages and to other channels are not parents."""
        reference = fields(message.get("reference"))
        channel, here = identifier(reference.get("channelId")), identifier(self.channel.get("id"))
        if reference.get("type") == "Forward" or kind in _STARTERS:
            return None
        if kind not in _REPLIES and channel is not None and here is not None and channel != here:
            return None
        return identifier(reference.get("messageId"))

    def finished(self) -> list[Message]:
        if "Thread" not in (string(self.channel.get("type")) or ""):
            return self._records
        ids = {record.id for record in self._records}
        # In a forum the first message has the thread's id. Elsewhere this is the id of a message in the parent channel.
        thread = identifier(self.channel.get("id"))
        starter = thread if thread in ids else self._starter
        for record in self._records:
            if record.id == starter:
                record.starts = starter == thread and record.answers is None
            elif record.answers is None and not record.kind:
                record.answers = starter
        return self._records


def _text(message: dict[str, Any]) -> str:
    text = string(message.get("content"))
    if text is not None:
        return _visible(text, message)
    forwarded = fields(message.get("forwardedMessage"))
    parts = [string(forwarded.get("content"))]
    for source in (message, forwarded):
        parts += [f"[{name}]" for file in objects(source.get("attachments")) if (name := string(file.get("fileName")))]
        parts += [string(embed.get(field)) for embed in objects(source.get("embeds")) for field in ("title", "description")]
        parts += [f"[{name}]" for sticker in objects(source.get("stickers")) if (name := string(sticker.get("name")))]
    return "\n".join(part for part in parts if part)


_MARK = re.compile(r"<(?:@!?(\d+)|a?(:\w+:)\d+)>")


def _visible(text: str, message: dict[str, Any]) -> str:
    """Replace the markup that the exporter leaves unless it formats texts: `<@1>`, `<:smile:2>`."""
    if "<" not in text:
        return text
    mentioned = {
        identifier(user.get("id")): string(user.get("nickname")) or string(user.get("name"))
        for user in objects(message.get("mentions"))
    }
    return _MARK.sub(lambda mark: mark[2] or f"@{mentioned.get(mark[1]) or mark[1]}", text)
