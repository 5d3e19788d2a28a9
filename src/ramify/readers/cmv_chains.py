"""Chains of change-my-view comments, ad hominem or not: a .tar archive, compressed or not, with one JSON-lines file per chain.

Chains about one submission become one tree, so that a split by tree keeps them together. The submission itself is usually
missing. The label of a chain's last comment is {"chain": name of its file, "ad_hominem": bool, "delta": bool}.
"""

import tarfile
from collections.abc import Iterator, Sequence
from html import unescape
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from ramify.errors import RamifyError
from ramify.readers import list_files
from ramify.readers.base import A_FOLDER, Policy, ReadCounts, lacks, open_bytes
from ramify.readers.documents import loads
from ramify.readers.reddit import author, bare_id, resolve_parent, submission_text
from ramify.readers.rows import LABELLED, Post, batches
from ramify.readers.values import parse_time

AD_HOMINEM = 2
"""The number of the rule against ad hominem comments."""

MAX_FILE_BYTES = 64 << 20


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        return A_FOLDER
    return lacks(path, head, b'"violated_rule"') if head[257:262] == b"ustar" else "not a tar archive"


def read(paths: Sequence[Path], counts: ReadCounts, *, policy: Policy) -> Iterator[pa.RecordBatch]:
    return batches(_posts(paths, counts, policy), counts, LABELLED)


def _posts(paths: Sequence[Path], counts: ReadCounts, policy: Policy) -> Iterator[Post]:
    for path in list_files(paths):
        with open_bytes(path, counts) as stream:
            try:
                with tarfile.open(fileobj=stream, mode="r|") as archive:
                    for member in archive:
                        content = archive.extractfile(member) if member.isfile() else None
                        if content is None:
                            continue
                        where = f"{path}, {member.name}"
                        if member.size > MAX_FILE_BYTES:
                            counts.read += 1
                            counts.skip("too_long", f"{where}: longer than {MAX_FILE_BYTES:,} bytes")
                        else:
                            yield from _chain(content.read(), PurePosixPath(member.name).stem, where, counts, policy)
            except tarfile.TarError as error:
                raise RamifyError(f"{path} is not a readable tar archive ({error}). Download it again.") from None


def _chain(content: bytes, name: str, where: str, counts: ReadCounts, policy: Policy) -> Iterator[Post]:
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
    discussion = bare_id(comments[-1].get("link_id")) if comments else None
    if discussion is None:
        counts.skip("not_a_post", f"{where}: a chain without a link_id", count=len(comments))
        return
    for place, comment in enumerate(comments):
        comment_id = bare_id(comment["name"]) or ""
        parent = None
        if comment_id != discussion:
            place_name = f"{where}: comment {comment_id}"
            parent = resolve_parent(bare_id(comment.get("parent_id")), discussion, place_name, policy, counts)
            if parent is None:
                continue
        title, body = unescape(comment.get("title") or ""), unescape(comment["body"])
        is_last = place == len(comments) - 1
        yield Post(
            id=comment_id,
            parent=parent,
            tree=discussion,
            author=author(comment.get("author_name")),
            time=parse_time(comment.get("created_utc"), counts, f"{where}: comment {comment_id}"),
            text=submission_text(title, body) if comment_id == discussion else body,
            meta={"title": title} if comment_id == discussion and title else None,
            label=_label(comment, name) if is_last else None,
        )


def _label(comment: dict[str, Any], chain: str) -> dict[str, Any]:
    return {
        "chain": chain,
        "ad_hominem": comment.get("violated_rule") == AD_HOMINEM,
        "delta": comment.get("delta") is True,
    }
