"""Reddit dumps of Pushshift and Arctic Shift: JSON lines of submissions (RS_…) and of comments (RC_…).

A tree is a submission with its comments. Submissions and comments may be in any file and in any order.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from ramify.readers.base import Policy, ReadCounts
from ramify.readers.listing import list_files
from ramify.readers.records import first_record, is_json, records
from ramify.readers.reddit import Post, batches

_KEY = re.compile(rb'"(\w+)"\s*:')


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        named = any(file.name.startswith(("RC_", "RS_")) for file in list_files([path]))
        return "" if named else "a folder without a file called RC_… or RS_…"
    # A record may be longer than the first bytes.
    keys = first_record(head).keys() or {key.decode() for key in _KEY.findall(head.partition(b"\n")[0])}
    if is_json(head) and (keys >= {"link_id", "body"} or keys >= {"subreddit", "title"}):
        return ""
    return 'line 1: no JSON object with "link_id" and "body", or with "subreddit" and "title"'


def read(paths: Sequence[Path], counts: ReadCounts, *, policy: Policy) -> Iterator[pa.RecordBatch]:
    """Read submissions and comments.

    Ids lose the prefixes `t1_` and `t3_`. Entities are unescaped. A submission's text is its title, a blank line and its body.
    """
    for path in list_files(paths):
        for numbers, posts in records(path, counts, Post):
            yield from batches(numbers, posts, path, policy, counts)
