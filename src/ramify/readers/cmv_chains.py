"""Chains of change-my-view comments, ad hominem or not: a .tar archive, compressed or not, with one JSON-lines file per chain.

The label {"chain": name of its file, "ad_hominem": bool, "delta": bool} is about the last comment of a chain, which gives it
away. So does the length of the chain, and so does the submission, with which mostly chains of one class begin. By default, a
chain is therefore the pair of comments before the last. The label belongs to the second one, and chains about one submission
are in one split.
"""

import tarfile
from collections.abc import Iterator, Sequence
from functools import partial
from html import unescape
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import pyarrow as pa

from ramify.errors import RamifyError
from ramify.readers.base import A_FOLDER, Policy, ReadCounts, guarded, lacks, open_bytes
from ramify.readers.documents import loads
from ramify.readers.listing import list_files
from ramify.readers.reddit import author, bare_id, resolve_parent, submission_text
from ramify.readers.rows import LABELLED, LABELLED_GROUPS, Post, batches
from ramify.readers.values import parse_time
from ramify.tree import GROUP

AD_HOMINEM = 2
"""The number of the rule against ad hominem comments."""

MAX_FILE_BYTES = 64 << 20

Chains = Literal["pairs", "threads"]


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        return A_FOLDER
    return lacks(path, head, b'"violated_rule"') if head[257:262] == b"ustar" else "not a tar archive"


def read(paths: Sequence[Path], counts: ReadCounts, *, policy: Policy, chains: Chains = "pairs") -> Iterator[pa.RecordBatch]:
    """Read chains.

    `chains=pairs`: each chain is a tree of the two comments before the last. A chain of which one is the submission is left out
    (`shows_submission`). `chains=threads`: the chains about one submission are one tree with all comments, for other purposes
    than predicting the label, which belongs to the last comment.
    """
    schema = LABELLED_GROUPS if chains == "pairs" else LABELLED
    return batches(_posts(paths, counts, policy, chains), counts, schema)


def _posts(paths: Sequence[Path], counts: ReadCounts, policy: Policy, chains: Chains) -> Iterator[Post]:
    read = _pair if chains == "pairs" else partial(_thread, policy)
    for path in list_files(paths):
        with open_bytes(path, counts, archives=True) as stream:
            try:
                with tarfile.open(fileobj=stream, mode="r|") as archive:
                    for member in archive:
                        where = f"{path}, {member.name}"
                        if (content := archive.extractfile(member) if member.isfile() else None) is None:
                            continue
                        if member.size > MAX_FILE_BYTES:
                            counts.leave_out("too_long", f"{where}: longer than {MAX_FILE_BYTES:,} bytes")
                            continue
                        comments = _comments(content.read(), where, counts)
                        yield from guarded(read, where, counts, comments, PurePosixPath(member.name).stem, where, counts)
            except tarfile.TarError as error:
                raise RamifyError(f"{path} is not a readable tar archive ({error}). Download it again.") from None


def _comments(content: bytes, where: str, counts: ReadCounts) -> list[dict[str, Any]]:
    comments: list[dict[str, Any]] = []
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        counts.read += 1
        try:
            comment = loads(line)
        except ValueError as error:
            counts.skip("bad_json", f"{where}, line {number}: {error}")
            continue
        if isinstance(comment, dict) and bare_id(comment.get("name")) and isinstance(comment.get("body"), str):
            comments.append(comment)
        else:
            counts.skip("not_a_post", f"{where}, line {number}: no name or no body")
    return comments


def _pair(comments: list[dict[str, Any]], name: str, where: str, counts: ReadCounts) -> Iterator[Post]:
    """The two comments before the last, as a root and its child."""
    discussion = bare_id(comments[-1].get("link_id")) if comments else None
    if discussion is None or len(comments) < 3:
        counts.skip("not_a_post", f"{where}: a chain of fewer than three comments, or without a link_id", count=len(comments))
        return
    parent, child, last = comments[-3:]
    if discussion in (bare_id(parent["name"]), bare_id(child["name"])):
        counts.skip("shows_submission", f"{where}: {discussion}", count=len(comments))
        return
    counts.skip("outside_pair", f"{where}: all comments but the two before the last", count=len(comments) - 2)
    root = _post(parent, None, name, where, counts)._replace(meta={GROUP: discussion}, group=discussion)
    yield root
    yield _post(child, root.id, name, where, counts)._replace(label=_label(last, name), group=discussion)


def _thread(policy: Policy, comments: list[dict[str, Any]], name: str, where: str, counts: ReadCounts) -> Iterator[Post]:
    """All comments, in the tree of their submission."""
    discussion = bare_id(comments[-1].get("link_id")) if comments else None
    if discussion is None:
        counts.skip("not_a_post", f"{where}: a chain without a link_id", count=len(comments))
        return
    for comment in comments:
        comment_id, parent = bare_id(comment["name"]), None
        if comment_id != discussion:
            place = f"{where}: comment {comment_id}"
            parent = resolve_parent(bare_id(comment.get("parent_id")), discussion, place, policy, counts)
            if parent is None:
                continue
        post = _post(comment, parent, discussion, where, counts)
        if comment_id == discussion and (title := unescape(comment.get("title") or "")):
            post = post._replace(text=submission_text(title, post.text), meta={"title": title})
        yield post._replace(label=_label(comment, name)) if comment is comments[-1] else post


def _post(comment: dict[str, Any], parent: str | None, tree: str, where: str, counts: ReadCounts) -> Post:
    comment_id = bare_id(comment["name"]) or ""
    time = parse_time(comment.get("created_utc"), counts, f"{where}: comment {comment_id}")
    return Post(comment_id, parent, tree, author(comment.get("author_name")), time, text=unescape(comment["body"]))


def _label(comment: dict[str, Any], chain: str) -> dict[str, Any]:
    ad_hominem = comment.get("violated_rule") == AD_HOMINEM
    return {"chain": chain, "ad_hominem": ad_hominem, "delta": comment.get("delta") is True}
