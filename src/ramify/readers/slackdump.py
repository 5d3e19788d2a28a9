"""Slack as slackdump writes it: dumps (`C123.json`) and folders of chunks (`C123.json.gz`, `users.json.gz` …).

A channel is a log. Messages are read as those of Slack's own exports.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ramify.readers import chat
from ramify.readers.base import Held, ReadCounts, file_name
from ramify.readers.documents import documents
from ramify.readers.json_fields import beginnings
from ramify.readers.messages import Accounts, LogNames, Names, first_refusal, json_files
from ramify.readers.names import unpacked
from ramify.readers.slack import Channel, named_users
from ramify.readers.values import fields, identifier, objects, string

_REPLIES = "slackdump_thread_replies"
_CHUNK = {"t", "ts"}
"""The keys of every chunk: its type and its time."""


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        return first_refusal(path, json_files([path]), refuses)
    if any(_is_dump(value) or _is_chunk(value) for value in beginnings(head)):
        return ""
    return 'no "channel_id" beside "messages" with "ts", as in a dump of slackdump, and no chunks with "t" and "ts"'


def _is_dump(value: Any) -> bool:
    about = fields(value)
    return about.keys() >= {"channel_id", "messages"} and all("ts" in each for each in objects(about["messages"]))


def _is_chunk(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() >= _CHUNK and isinstance(value["t"], int) and "type" not in value


def logs(paths: Sequence[Path], counts: ReadCounts, *, names: Names = "name") -> Iterator[chat.Log]:
    """Yield one log per channel. `names`: authors are named by their display names, or by their ids.

    Chunks without messages, users or a channel are counted as `frame`. A reply whose thread starts with a missing message is
    counted in `counts.kept` as `missing_thread`.
    """
    accounts, users = Accounts(names), dict[str, str]()
    about: dict[str, dict[str, Any]] = {}
    channels: dict[str, Channel] = {}
    files: dict[str, Path] = {}
    held = Held("and the files before it hold", "Build from fewer channels at a time.")
    for path in json_files(paths):
        for where, value in documents(path, counts, held):
            value, stem = fields(value), Path(unpacked(file_name(path))).stem
            for user in (described := objects(value.get("u"))):
                users |= named_users([user], accounts)
            for channel in (*objects(value.get("ch")), *objects([value.get("ci")])):
                described.append(channel)
                about.setdefault(identifier(channel.get("id")) or stem, channel)
            messages = _messages(value)
            if not messages and not described:
                counts.leave_out("frame" if _is_chunk(value) else "not_a_post", where)
                continue
            name = identifier(value.get("channel_id")) or identifier(value.get("id")) or stem
            if "channel_id" in value:
                about.setdefault(name, value)
            if messages:
                files.setdefault(name, path)
                channels.setdefault(name, Channel(accounts, users, counts)).add(messages, where)
    given = LogNames()
    for name, channel in channels.items():
        described = about.get(name, {})
        yield channel.log(given, (string(described.get("name")), name), described, files[name])


def _messages(value: Mapping[str, Any]) -> list[Any]:
    """The messages of a dump or chunk, each with the replies in its thread behind it."""
    messages = []
    for key in ("p", "m", "messages"):
        inside = value.get(key)
        for message in [inside] if isinstance(inside, dict) else inside if isinstance(inside, list) else []:
            replies = fields(message).get(_REPLIES)
            messages += [message, *(replies if isinstance(replies, list) else [])]
    return messages
