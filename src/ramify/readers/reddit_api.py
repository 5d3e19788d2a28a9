"""Responses of Reddit's API: listings of submissions and comments with nested `replies`.

A file is one response, `[submission listing, comment listing]`, or JSON lines of responses, of submissions with nested
comments (`replies` or `comments`, as listings or as lists), or of comments. Responses about one discussion in several files
become one tree. The parent of a comment is its `parent_id` or else the post in which it is nested.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from html import unescape as unescaped
from pathlib import Path
from typing import Any

import pyarrow as pa

from ramify.errors import shown
from ramify.readers.base import A_FOLDER, Policy, ReadCounts, guarded
from ramify.readers.documents import documents
from ramify.readers.listing import list_files
from ramify.readers.reddit import author, bare_id, resolve_parent, submission_text
from ramify.readers.rows import Post, batches
from ramify.readers.values import parse_time

_LISTING = re.compile(rb'"kind"\s*:\s*"(?:Listing|t1|t3|more)"')
_NESTED = re.compile(rb'"(?:replies|comments)"\s*:\s*[\[{]')
_OF_REDDIT = re.compile(rb'"(?:parent_id|link_id|subreddit|created_utc|permalink)"\s*:')
_CONTAINERS = ("json", "data", "things", "children")


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        return A_FOLDER
    nested = _NESTED.search(head) and (b'"selftext"' in head or (b'"body"' in head and _OF_REDDIT.search(head)))
    if _LISTING.search(head) or nested:
        return ""
    return 'no "kind" that is Listing, t1, t3 or more, and no "replies" or "comments" of a post with a text'


def read(paths: Sequence[Path], counts: ReadCounts, *, policy: Policy, unescape: bool = True) -> Iterator[pa.RecordBatch]:
    """Read submissions and comments.

    `unescape`: unescape &amp; &lt; &gt; in texts. Responses contain these unless they were requested with raw_json=1.
    "more" objects, which stand for comments that were not sent, are counted in `counts.kept`.
    """
    return batches(_posts(paths, counts, policy, unescaped if unescape else str), counts)


def _posts(paths: Sequence[Path], counts: ReadCounts, policy: Policy, clean: Callable[[str], str]) -> Iterator[Post]:
    for path in list_files(paths):
        for where, document in documents(path, counts):
            yield from guarded(_walk, where, counts, document, where, counts, policy, clean)


def _walk(document: Any, where: str, counts: ReadCounts, policy: Policy, clean: Callable[[str], str]) -> Iterator[Post]:
    """Yield the posts of a document, depth first. The stack holds (object, the post in which it is nested)."""
    tree: str | None = None
    stack: list[tuple[Any, str | None]] = [(document, None)]
    while stack:
        thing, parent = stack.pop()
        if isinstance(thing, list):
            stack += [(child, parent) for child in reversed(thing)]
            continue
        if not isinstance(thing, dict):
            # An empty string means no replies. Other strings are ids of comments given elsewhere.
            if thing is document:
                _refuse(thing, where, counts)
            continue
        kind, inner = thing.get("kind"), thing.get("data")
        data: dict[str, Any] = inner if isinstance(inner, dict) else thing
        post_id = bare_id(data.get("id") or data.get("name"))
        if kind == "more" or ("count" in data and "children" in data and "body" not in data):
            counts.repair("more", where)
            counts.repair("more_comments", count=_count(data))
        elif kind == "t3" or (kind != "t1" and "body" not in data and isinstance(data.get("title"), str)):
            if post_id is None:
                _refuse(data, where, counts)
                continue
            tree = post_id
            counts.read += 1
            yield _submission(data, post_id, clean, where, counts)
            stack += [(data.get(name), post_id) for name in ("comments", "replies")]
        elif kind == "t1" or isinstance(data.get("body"), str):
            discussion = bare_id(data.get("link_id")) or tree
            if post_id is None or discussion is None:
                _refuse(data, where, counts)
            else:
                counts.read += 1
                named = bare_id(data.get("parent_id")) or parent
                parent_id = resolve_parent(named, discussion, f"{where}: comment {post_id}", policy, counts)
                if parent_id is not None:
                    yield Post(
                        post_id,
                        parent_id,
                        discussion,
                        author(data.get("author")),
                        parse_time(data.get("created_utc"), counts, f"{where}: comment {post_id}"),
                        text=clean(_text(data, "body")),
                    )
            stack.append((data.get("replies"), post_id))
        elif inside := [data[name] for name in _CONTAINERS if isinstance(data.get(name), list | dict)]:
            stack += [(child, parent) for child in reversed(inside)]
        elif data:
            _refuse(data, where, counts)


def _refuse(thing: Any, where: str, counts: ReadCounts) -> None:
    counts.leave_out("not_a_post", f"{where}: neither a comment nor a submission with an id: {shown(thing)}")


def _submission(data: dict[str, Any], post_id: str, clean: Callable[[str], str], where: str, counts: ReadCounts) -> Post:
    title, body = clean(_text(data, "title")), clean(_text(data, "selftext"))
    meta = {"title": title, "subreddit": data.get("subreddit")}
    text = submission_text(title, body)
    time = parse_time(data.get("created_utc"), counts, f"{where}: submission {post_id}")
    return Post(post_id, None, post_id, author(data.get("author")), time, text=text, meta=meta)


def _text(data: dict[str, Any], name: str) -> str:
    text = data.get(name)
    return text if isinstance(text, str) else ""


def _count(data: dict[str, Any]) -> int:
    count = data.get("count")
    return count if isinstance(count, int) and count > 0 else 0
