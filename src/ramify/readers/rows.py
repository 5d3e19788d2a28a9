"""Record batches from single posts, for formats whose records cannot be decoded as columns."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from ramify.readers.base import GROUPED, POSTS, ReadCounts
from ramify.tree import encodable

BATCH_ROWS = 1 << 14
BATCH_CHARACTERS = 16 << 20

LABELLED = POSTS.append(pa.field("label", pa.string()))
"""`POSTS` with a label for each post: any JSON value."""

LABELLED_GROUPS = LABELLED.append(GROUPED.field("group"))
"""`LABELLED` of trees in groups; see `GROUPED`."""

NODE_COLUMNS = ("tree", "split", "id", "parent", "depth", "author", "time", "kind", "label", "text", "meta")
"""The columns of Ramify's own tables of nodes. `label` and `meta` are JSON."""

LOG_COLUMNS = ("parents", "self_link")
"""Further columns of such tables for chat logs, whose messages may have several parents, or none that is known."""


class Post(NamedTuple):
    """A row of `LABELLED` or `LABELLED_GROUPS`. `meta` and `label` are Python values, not yet JSON."""

    id: str
    parent: str | None
    tree: str
    author: str | None = None
    time: float | None = None
    kind: str | None = None
    text: str = ""
    meta: dict[str, Any] | None = None
    label: Any = None
    group: str = ""


def batches(posts: Iterable[Post], counts: ReadCounts, schema: pa.Schema = POSTS) -> Iterator[pa.RecordBatch]:
    """Yield record batches of `POSTS`, `LABELLED` or `LABELLED_GROUPS`.

    Metadata and labels that are nested too deeply to be written are left out and counted. Lone surrogates, which UTF-8 cannot
    encode, become U+FFFD.
    """
    pending: list[Post] = []
    characters = 0
    for post in posts:
        pending.append(post)
        characters += len(post.text)
        if len(pending) >= BATCH_ROWS or characters >= BATCH_CHARACTERS:
            yield _batch(pending, counts, schema)
            pending, characters = [], 0
    if pending:
        yield _batch(pending, counts, schema)


def _batch(posts: list[Post], counts: ReadCounts, schema: pa.Schema) -> pa.RecordBatch:
    columns = dict(zip(Post._fields, map(list, zip(*posts)), strict=True))
    for name in ("meta", "label"):
        columns[name] = [
            None if value is None else _as_json(value, f"post {post.id!r} of {post.tree!r}: its {name}", counts)
            for post, value in zip(posts, columns[name], strict=True)
        ]
    try:
        return _arrays(columns, schema)
    except UnicodeEncodeError:
        for name in columns.keys() - {"time"}:
            columns[name] = [value and encodable(value) for value in columns[name]]
        return _arrays(columns, schema)


def _as_json(value: Any, where: str, counts: ReadCounts) -> str | None:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        counts.repair("odd_json", f"{where} is nested too deeply")
        return None


def _arrays(columns: dict[str, list[Any]], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)
