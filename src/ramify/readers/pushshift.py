"""Reddit dumps of Pushshift and Arctic Shift: JSON lines of submissions (RS_…) and of comments (RC_…).

A tree is a submission with its comments. Submissions and comments may be in any file and in any order.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from html import unescape
from pathlib import Path

import msgspec
import pyarrow as pa

from ramify.readers import list_files
from ramify.readers.base import EITHER, Policy, Report, in_seconds, pc
from ramify.readers.records import records
from ramify.readers.reddit import NOBODY, resolve_parent, submission_text
from ramify.readers.values import parse_time

BASE_36 = "0123456789abcdefghijklmnopqrstuvwxyz"


class _Post(msgspec.Struct, gc=False):
    """The fields read from a submission or comment. Some years' dumps write ids as numbers or times as strings."""

    id: str | int | None = None
    link_id: str | int | None = None
    parent_id: str | int | None = None
    author: str | None = None
    created_utc: int | float | str | None = None
    body: str | None = None
    title: str | None = None
    selftext: str | None = None
    subreddit: str | None = None


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        named = any(file.name.startswith(("RC_", "RS_")) for file in list_files([path]))
        return "" if named else "a folder without a file called RC_… or RS_…"
    line = head.partition(b"\n")[0]
    is_comment = b'"link_id"' in line and b'"body"' in line
    is_submission = b'"subreddit"' in line and b'"title"' in line
    if line.startswith(b"{") and b'"Listing"' not in line and (is_comment or is_submission):
        return ""
    return 'line 1: no JSON object with "link_id" and "body", or with "subreddit" and "title"'


def read(paths: Sequence[Path], report: Report, *, policy: Policy) -> Iterator[pa.RecordBatch]:
    """Read submissions and comments.

    Ids lose the prefixes `t1_` and `t3_`. Entities are unescaped. A submission's text is its title, a blank line and its body.
    """
    for path in list_files(paths):
        for numbers, posts in records(path, report, _Post):
            comments = [post for post in posts if post.link_id is not None and post.id is not None]
            if len(comments) < len(posts):
                submissions = [post for post in posts if _is_submission(post)]
                for number, post in zip(numbers, posts):
                    if not _is_submission(post) and (post.link_id is None or post.id is None):
                        report.skip("not_a_post", f"{path}, line {number}: neither a comment nor a submission with an id")
                if submissions:
                    yield _submissions(submissions, path, report)
            if comments:
                batch = _comments(comments, path, report)
                if batch["parent"].null_count:
                    lines = (number for number, post in zip(numbers, posts) if post.link_id is not None and post.id is not None)
                    batch = _with_parents(batch, path, lines, policy, report)
                yield batch


def _is_submission(post: _Post) -> bool:
    return post.link_id is None and post.id is not None and (post.title is not None or post.selftext is not None)


def _comments(posts: list[_Post], path: Path, report: Report) -> pa.RecordBatch:
    tree = _ids([post.link_id for post in posts])
    parent = _ids([post.parent_id for post in posts])
    parent = pc.if_else(pc.equal(parent, ""), pa.scalar(None, pa.string()), parent)
    # A number is a base-36 id in Reddit's dumps, but a plain number in files written by hand.
    plain = pa.array([str(post.parent_id) if isinstance(post.parent_id, int) else None for post in posts], pa.string())
    texts = [post.body or "" for post in posts]
    texts = [_unescaped(text) if "&" in text else text for text in texts]
    return _batch(posts, parent, tree, texts, _times(posts, path, report), or_parent=plain)


def _with_parents(batch: pa.RecordBatch, path: Path, lines: Iterable[int], policy: Policy, report: Report) -> pa.RecordBatch:
    """Fill in missing parents: top-level comments of some dumps name none."""
    columns = [batch.column(name).to_pylist() for name in ("parent", "tree", "id")]
    parents = [
        resolve_parent(parent, tree, f"{path}, line {line}: comment {comment_id}", policy, report)
        for parent, tree, comment_id, line in zip(*columns, lines, strict=True)
    ]
    filled = batch.set_column(batch.schema.get_field_index("parent"), EITHER.field("parent"), pa.array(parents, pa.string()))
    return filled.filter(filled["parent"].is_valid())


def _submissions(posts: list[_Post], path: Path, report: Report) -> pa.RecordBatch:
    ids = _ids([post.id for post in posts])
    titles = [_unescaped(post.title or "") for post in posts]
    texts = [submission_text(title, _unescaped(post.selftext or "")) for title, post in zip(titles, posts)]
    metas = [
        json.dumps({"title": title, "subreddit": post.subreddit}, ensure_ascii=False) for title, post in zip(titles, posts)
    ]
    return _batch(posts, pa.nulls(len(posts), pa.string()), ids, texts, _times(posts, path, report), metas=metas)


def _unescaped(text: str) -> str:
    """`html.unescape`, faster for the three characters that Reddit itself escapes."""
    if text.count("&") == text.count("&amp;") + text.count("&gt;") + text.count("&lt;"):
        return text.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")
    return unescape(text)


def _batch(
    posts: list[_Post],
    parent: pa.Array,
    tree: pa.Array,
    texts: list[str],
    times: pa.Array,
    *,
    or_parent: pa.Array | None = None,
    metas: list[str] | None = None,
) -> pa.RecordBatch:
    author = pa.array([post.author for post in posts], pa.string())
    columns = {
        "id": _ids([post.id for post in posts]),
        "parent": parent,
        "tree": tree,
        "author": pc.if_else(pc.equal(author, NOBODY), pa.scalar(None, pa.string()), author),
        "time": times,
        "kind": pa.nulls(len(posts), pa.string()),
        "text": pa.array(texts, pa.large_string()),
        "meta": pa.nulls(len(posts), pa.string()) if metas is None else pa.array(metas, pa.string()),
        "or_parent": pa.nulls(len(posts), pa.string()) if or_parent is None else or_parent,
    }
    return pa.RecordBatch.from_pydict(columns, schema=EITHER)


def _ids(values: list[str | int | None]) -> pa.Array:
    try:
        names = pa.array(values, pa.string())
    except pa.ArrowTypeError:
        names = pa.array([base36(value) if isinstance(value, int) else value for value in values], pa.string())
    return pc.replace_substring_regex(names, "^t[0-9]_", "")


def base36(number: int) -> str:
    """Spell a number as in Reddit's ids."""
    digits = ""
    while number > 0:
        number, digit = divmod(number, len(BASE_36))
        digits = BASE_36[digit] + digits
    return digits or "0"


def _times(posts: list[_Post], path: Path, report: Report) -> pa.Array:
    try:
        times = in_seconds(pa.array([post.created_utc for post in posts], pa.float64()))
        if not times.null_count:
            return times
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        pass  # some are dates, or no times at all
    return pa.array([parse_time(post.created_utc, report, f"{path}: post {post.id}") for post in posts], pa.float64())
