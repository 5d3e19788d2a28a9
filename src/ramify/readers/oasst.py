"""OpenAssistant's conversation trees: JSON lines of `{"message_tree_id", "tree_state", "prompt": {…, "replies": [...]}}`.

A node's kind is its role (prompter, assistant). Its label holds the rank, the language, whether the message is synthetic, and
the name of the model that wrote it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ramify.readers.base import ReadCounts, guarded, lacks
from ramify.readers.documents import listed
from ramify.readers.listing import list_files
from ramify.readers.rows import LABELLED, Post, batches
from ramify.readers.values import parse_time

_LABEL = ("rank", "lang", "synthetic", "model_name")


def refuses(path: Path, head: bytes) -> str:
    return lacks(path, head, b'"message_tree_id"', b'"prompt"')


def read(paths: Sequence[Path], counts: ReadCounts) -> Iterator[pa.RecordBatch]:
    return batches(_posts(paths, counts), counts, LABELLED)


def _posts(paths: Sequence[Path], counts: ReadCounts) -> Iterator[Post]:
    for path in list_files(paths):
        for where, record in listed(path, counts):
            prompt = record.get("prompt") if isinstance(record, dict) else None
            if isinstance(prompt, dict):
                yield from guarded(_messages, where, counts, record, prompt, where, counts)
            else:
                counts.leave_out("not_a_post", f'{where}: not an object with an object "prompt"')


def _messages(record: dict[str, Any], prompt: dict[str, Any], where: str, counts: ReadCounts) -> Iterator[Post]:
    tree = str(record.get("message_tree_id") or prompt.get("message_id") or where)
    meta = {"tree_state": record["tree_state"]} if "tree_state" in record else None
    stack: list[tuple[Any, str | None]] = [(prompt, None)]
    while stack:
        message, parent = stack.pop()
        counts.read += 1
        message_id = message.get("message_id") if isinstance(message, dict) else None
        if not isinstance(message_id, str) or not isinstance(message.get("text"), str):
            counts.skip("not_a_post", f"{where}: a message without an id or a text")
            message_id = parent
        else:
            yield Post(
                id=message_id,
                parent=parent,
                tree=tree,
                author=_string(message.get("user_id")),
                time=parse_time(message.get("created_date"), counts, f"{where}: message {message_id!r}"),
                kind=_string(message.get("role")),
                text="[deleted]" if message.get("deleted") else message["text"],
                meta=meta if parent is None else None,
                label=_label(message),
            )
        replies = message.get("replies") if isinstance(message, dict) else None
        stack += [(reply, message_id) for reply in reversed(replies if isinstance(replies, list) else [])]


def _label(message: dict[str, Any]) -> dict[str, Any] | None:
    return {name: value for name in _LABEL if (value := message.get(name)) is not None and value is not False} or None


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None
