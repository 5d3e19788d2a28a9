"""JSON exports of DiscordChatExporter. A file holds a channel or thread, or a part of it. The parts of a channel are one log.

The parent of a reply is the message it refers to. The parent of any other message in a thread is the thread's first message.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ramify.readers import chat
from ramify.readers.base import Held, ReadCounts, file_name, lacks
from ramify.readers.documents import documents
from ramify.readers.messages import Accounts, LogNames, Message, Names, Skip, first_refusal, head_of, json_files, nodes, tried
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
    accounts, given = Accounts(names), LogNames()
    channels: dict[bytes, list[Path]] = {}
    for path in _files(paths):
        match = _CHANNEL.search(head_of(path))
        channels.setdefault(match[1] if match else bytes(path), []).append(path)
    for parts in channels.values():
        channel, guild = dict[str, Any](), dict[str, Any]()
        records: list[tuple[Message, str]] = []
        held = Held("and the parts before it have", "Export shorter periods of the channel and build each separately.")
        for place, document in (each for path in parts for each in documents(path, counts, held)):
            messages = fields(document).get("messages")
            if not isinstance(messages, list):
                counts.leave_out("not_a_post", f'{place}: not an object with a list "messages"')
                continue
            channel, guild = channel or fields(document.get("channel")), guild or fields(document.get("guild"))
            here = identifier(channel.get("id"))
            for number, message in enumerate(messages, 1):
                records += tried(_record, f"{place}, message {number}", counts, message, accounts, here, counts)
        name, server = string(channel.get("name")), string(guild.get("name"))
        called = (name, name and server and f"{server}/{name}", Path(file_name(parts[0])).stem)
        messages = nodes(_in_thread(records, channel), counts, called=accounts.name)
        yield given.log(called, messages, parts[0], guild=server, topic=channel.get("topic"))


def _files(paths: Sequence[Path]) -> list[Path]:
    """The JSON files of the export, without attachments, which may be JSON too."""
    given = set(paths)
    return [path for path in json_files(paths) if path in given or not any(part.endswith(MEDIA) for part in path.parent.parts)]


def _record(message: Any, where: str, accounts: Accounts, here: str | None, counts: ReadCounts) -> tuple[Message, str]:
    """The record of a message and its kind. `here`: the id of the channel."""
    if not isinstance(message, dict) or (message_id := identifier(message.get("id"))) is None:
        raise Skip("not_a_post", "not an object with an id")
    kind = identifier(message.get("type")) or "Default"
    author = fields(message.get("author"))
    account, name = identifier(author.get("id")), string(author.get("name"))
    if account is not None:
        accounts.add(account, author.get("nickname"), name)
    record = Message(
        message_id,
        _text(message),
        author=account or name,
        time=parse_time(message.get("timestamp"), counts, where),
        kind="" if kind in _ORDINARY else chat.SYSTEM,
        answers=_parent(message, kind, here) if kind in _ORDINARY else None,
        edited=seconds(message.get("timestampEdited")),
        where=where,
    )
    return record, kind


def _parent(message: dict[str, Any], kind: str, here: str | None) -> str | None:
    """The id of the parent. References to forwarded messages and to other channels are not parents."""
    reference = fields(message.get("reference"))
    channel = identifier(reference.get("channelId"))
    if reference.get("type") == "Forward" or kind in _STARTERS:
        return None
    if kind not in _REPLIES and channel is not None and here is not None and channel != here:
        return None
    return identifier(reference.get("messageId"))


def _in_thread(records: list[tuple[Message, str]], channel: dict[str, Any]) -> list[Message]:
    """The messages. In a thread, those without a parent answer its first message."""
    messages = [record for record, _ in records]
    if "Thread" not in (string(channel.get("type")) or ""):
        return messages
    # In a forum the first message has the thread's id. Elsewhere this is the id of a message in the parent channel.
    thread = identifier(channel.get("id"))
    in_forum = any(message.id == thread for message in messages)
    starter = thread if in_forum else next((record.id for record, kind in reversed(records) if kind in _STARTERS), None)
    for message in messages:
        if message.id == starter:
            message.starts = in_forum and message.answers is None
        elif message.answers is None and not message.kind:
            message.answers = starter
    return messages


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
