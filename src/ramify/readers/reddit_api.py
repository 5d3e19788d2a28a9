"""What Reddit's API answers: listings of submissions and comments with nested `replies`.

A file is one answer, `[submission listing, comment listing]`, or JSON lines of answers, of submissions with their
comments inside (`replies` or `comments`, as listings or as lists), or of comments. Answers about one discussion may lie in
several files: they become one tree. A comment hangs on its `parent_id`; without one, on what it is nested in.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from html import unescape as unescaped
from pathlib import Path
from typing import Any

import pyarrow as pa

from ramify.readers import files
from ramify.readers.base import A_FOLDER, Policy, Report, bad_option
from ramify.readers.documents import documents
from ramify.readers.reddit import answered, author, bare_id, submission_text
from ramify.readers.rows import Post, batches
from ramify.readers.values import told_time

_LISTING = re.compile(rb'"kind"\s*:\s*"(?:Listing|t1|t3|more)"')
_NESTED = re.compile(rb'"(?:replies|comments)"\s*:\s*[\[{]')
_CONTAINERS = ("json", "data", "things", "children")


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        return A_FOLDER
    nested = _NESTED.search(head) and (b'"selftext"' in head or b'"body"' in head)
    if _LISTING.search(head) or nested:
        return ""
    return 'no "kind" that is a Listing, t1, t3 or more, and no "replies" or "comments" of what has a text'


def read(paths: Sequence[Path], report: Report, *, policy: Policy, unescape: bool = True) -> Iterator[pa.RecordBatch]:
    """`unescape`: the answers hold &amp; &lt; &gt; (they do unless they were asked for with raw_json=1).

    "more" objects, which stand for comments that were not sent, are counted in `report.kept`.
    """
    if not isinstance(unescape, bool):
        raise bad_option("unescape", "true or false", unescape)
    return batches(_posts(paths, report, policy, unescaped if unescape else str), report)


def _posts(paths: Sequence[Path], report: Report, policy: Policy, clean: Callable[[str], str]) -> Iterator[Post]:
    for path in files(paths):
        for where, document in documents(path, report):
            yield from _walk(document, where, report, policy, clean)


def _walk(document: Any, where: str, report: Report, policy: Policy, clean: Callable[[str], str]) -> Iterator[Post]:
    """Depth first with a stack of its own: (a thing, the post that it is nested in)."""
    tree: str | None = None
    stack: list[tuple[Any, str | None]] = [(document, None)]
    while stack:
        thing, parent = stack.pop()
        if isinstance(thing, list):
            stack += [(each, parent) for each in reversed(thing)]
            continue
        if not isinstance(thing, dict):
            # An empty string stands for no replies, other strings name comments that stand elsewhere.
            if thing is document:
                _refuse(thing, where, report)
            continue
        kind, inner = thing.get("kind"), thing.get("data")
        data: dict[str, Any] = inner if isinstance(inner, dict) else thing
        own = bare_id(data.get("id") or data.get("name"))
        if kind == "more" or ("count" in data and "children" in data and "body" not in data):
            report.mend("more", where)
            report.mend("more_comments", count=_count(data))
        elif kind == "t3" or (kind != "t1" and "body" not in data and isinstance(data.get("title"), str)):
            if own is None:
                _refuse(data, where, report)
                continue
            tree = own
            report.read += 1
            yield _submission(data, own, clean, where, report)
            stack += [(data.get(name), own) for name in ("comments", "replies")]
        elif kind == "t1" or isinstance(data.get("body"), str):
            discussion = bare_id(data.get("link_id")) or tree
            if own is None or discussion is None:
                _refuse(data, where, report)
            else:
                report.read += 1
                named = bare_id(data.get("parent_id")) or parent
                above = answered(named, discussion, f"{where}: comment {own}", policy, report)
                if above is not None:
                    yield Post(
                        own,
                        above,
                        discussion,
                        author(data.get("author")),
                        told_time(data.get("created_utc"), report, f"{where}: comment {own}"),
                        text=clean(_text(data, "body")),
                    )
            stack.append((data.get("replies"), own))
        elif inside := [data[name] for name in _CONTAINERS if isinstance(data.get(name), list | dict)]:
            stack += [(each, parent) for each in reversed(inside)]
        elif data:
            _refuse(data, where, report)


def _refuse(thing: Any, where: str, report: Report) -> None:
    report.read += 1
    report.skip("not_a_post", f"{where}: neither a comment nor a submission with an id: {thing!r:.80}")


def _submission(data: dict[str, Any], own: str, clean: Callable[[str], str], where: str, report: Report) -> Post:
    title, body = clean(_text(data, "title")), clean(_text(data, "selftext"))
    meta = {"title": title, "subreddit": data.get("subreddit")}
    text = submission_text(title, body)
    time = told_time(data.get("created_utc"), report, f"{where}: submission {own}")
    return Post(own, None, own, author(data.get("author")), time, text=text, meta=meta)


def _text(data: dict[str, Any], name: str) -> str:
    text = data.get(name)
    return text if isinstance(text, str) else ""


def _count(data: dict[str, Any]) -> int:
    count = data.get("count")
    return count if isinstance(count, int) and count > 0 else 0
