"""Shared parts of the readers of Reddit posts."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from ramify.readers.base import EITHER, MUTE_TEXTS, Policy, ReadCounts, in_seconds, pc
from ramify.readers.values import parse_time

NOBODY = "[deleted]"
"""The author of a post whose account was deleted."""

_PREFIX = re.compile("^t[0-9]_")
BASE_36 = "0123456789abcdefghijklmnopqrstuvwxyz"


def author(name: Any) -> str | None:
    return name if isinstance(name, str) and name != NOBODY else None


def bare_id(name: Any) -> str | None:
    """An id without the prefix of its kind (t1_, t3_)."""
    return _PREFIX.sub("", name) or None if isinstance(name, str) else None


def resolve_parent(parent: str | None, submission: str, where: str, policy: Policy, counts: ReadCounts) -> str | None:
    """The parent of a comment, or its submission if it names none. None if the policy drops such comments."""
    if parent is not None:
        return parent
    if policy.missing_parent == "drop":
        counts.skip("missing_parent", where)
        return None
    counts.repair("missing_parent", where)
    return submission


def submission_text(title: str, body: str) -> str:
    """The title, a blank line and the body. If one is empty, only the other."""
    if not title.strip():
        return body
    return title if body in MUTE_TEXTS or not body.strip() else f"{title}\n\n{body}"


class Post(msgspec.Struct, gc=False):
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


# --- posts to batches -------------------------------------------------------------------------------------------------


def batches(
    numbers: Sequence[int], posts: Sequence[Post], path: Path, policy: Policy, counts: ReadCounts
) -> Iterator[pa.RecordBatch]:
    """Yield the submissions and the comments among some posts (`EITHER`), in order. `numbers`: their lines."""
    comments = [place for place, post in enumerate(posts) if post.link_id is not None and post.id is not None]
    submissions = []
    if len(comments) < len(posts):
        submissions = [place for place, post in enumerate(posts) if _is_submission(post)]
        for number, post in zip(numbers, posts):
            if not _is_submission(post) and (post.link_id is None or post.id is None):
                counts.skip("not_a_post", f"{path}, line {number}: neither a comment nor a submission with an id")
    parts = []
    if submissions:
        parts.append(_submissions([posts[place] for place in submissions], path, counts))
    if comments:
        batch = _comments([posts[place] for place in comments], path, counts)
        if batch["parent"].null_count:
            batch = _with_parents(batch, path, [numbers[place] for place in comments], policy, counts)
            comments = np.array(comments)[batch["parent"].is_valid().to_numpy(zero_copy_only=False)]
            batch = batch.filter(batch["parent"].is_valid())
        parts.append(batch)
    if len(parts) == 1:
        yield parts[0]
    elif parts:
        # The order settles that of posts of the same time.
        yield pa.concat_batches(parts).take(pa.array(np.argsort(np.concatenate([submissions, comments]))))


def _is_submission(post: Post) -> bool:
    return post.link_id is None and post.id is not None and (post.title is not None or post.selftext is not None)


def _comments(posts: list[Post], path: Path, counts: ReadCounts) -> pa.RecordBatch:
    tree = _ids([post.link_id for post in posts])
    parent = _ids([post.parent_id for post in posts])
    parent = pc.if_else(pc.equal(parent, ""), pa.scalar(None, pa.string()), parent)
    # A number is a base-36 id in Reddit's dumps, but a plain number in files written by hand.
    plain = pa.array([str(post.parent_id) if isinstance(post.parent_id, int) else None for post in posts], pa.string())
    texts = [post.body or "" for post in posts]
    texts = [_unescaped(text) if "&" in text else text for text in texts]
    return _batch(posts, parent, tree, texts, _times(posts, path, counts), or_parent=plain)


def _with_parents(
    batch: pa.RecordBatch, path: Path, lines: Iterable[int], policy: Policy, counts: ReadCounts
) -> pa.RecordBatch:
    """Fill in missing parents: top-level comments of some dumps name none. Parents of comments to be dropped remain null."""
    columns = [batch.column(name).to_pylist() for name in ("parent", "tree", "id")]
    parents = [
        resolve_parent(parent, tree, f"{path}, line {line}: comment {comment_id}", policy, counts)
        for parent, tree, comment_id, line in zip(*columns, lines, strict=True)
    ]
    return batch.set_column(batch.schema.get_field_index("parent"), EITHER.field("parent"), pa.array(parents, pa.string()))


def _submissions(posts: list[Post], path: Path, counts: ReadCounts) -> pa.RecordBatch:
    ids = _ids([post.id for post in posts])
    titles = [_unescaped(post.title or "") for post in posts]
    texts = [submission_text(title, _unescaped(post.selftext or "")) for title, post in zip(titles, posts)]
    metas = [
        json.dumps({"title": title, "subreddit": post.subreddit}, ensure_ascii=False) for title, post in zip(titles, posts)
    ]
    return _batch(posts, pa.nulls(len(posts), pa.string()), ids, texts, _times(posts, path, counts), metas=metas)


def _unescaped(text: str) -> str:
    """`html.unescape`, faster for the three characters that Reddit itself escapes."""
    if text.count("&") == text.count("&amp;") + text.count("&gt;") + text.count("&lt;"):
        return text.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")
    return unescape(text)


def _batch(
    posts: list[Post],
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


def _times(posts: list[Post], path: Path, counts: ReadCounts) -> pa.Array:
    try:
        times = in_seconds(pa.array([post.created_utc for post in posts], pa.float64()))
        if not times.null_count:
            return times
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        pass  # some are dates, or no times at all
    return pa.array([parse_time(post.created_utc, counts, f"{path}: post {post.id}") for post in posts], pa.float64())
