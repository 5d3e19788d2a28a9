"""Ramify's own JSON lines: one tree a line, see `Tree.to_json`."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ramify.errors import RamifyError
from ramify.readers import files
from ramify.readers.base import Report, lines, open_bytes
from ramify.tree import Tree


def matches(path: Path, head: bytes) -> bool:
    line = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0]
    return line.startswith(b"{") and re.search(rb'"nodes"\s*:\s*\[', line) is not None


def read(paths: Sequence[Path], report: Report) -> Iterator[Tree]:
    """A line that is not a tree is skipped, and all posts that it lists are counted (one where it lists none)."""
    for path in files(paths):
        with open_bytes(path, report) as stream:
            number = 0
            for block in lines(stream, report, path):
                for line in block:
                    number += 1
                    if not line.strip():
                        continue
                    try:
                        tree = Tree.from_json(line, where=f"{path}, line {number}")
                    except RamifyError as error:
                        count = _listed(line)
                        report.read += count
                        report.skip("bad_tree", str(error), count)
                        continue
                    report.read += len(tree)
                    if not len(tree):
                        report.mend("empty_tree", f"{path}, line {number}: tree {tree.id!r} has no nodes")
                    yield tree


def _listed(line: bytes) -> int:
    """How many posts a line was to hold."""
    try:
        return max(1, len(json.loads(line)["nodes"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return 1
