"""Parallel texts: files in pairs, a source and a target, whose lines with the same number translate or answer each other.

Each pair of lines is a tree: the source is the root, and the target its child. Trees are named FILE/NUMBER after the file of
the sources, with numbers of ten digits, so that the order of the ids is the order of the file.
"""

import io
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from ramify.errors import RamifyError, counted
from ramify.readers.base import A_FOLDER, ReadCounts, blocks, file_name, guarded, open_bytes
from ramify.readers.encodings import AUTO, check_encoding, decoded, with_line_ends
from ramify.readers.names import distinct_names
from ramify.readers.split_names import in_name
from ramify.tree import SPLIT, Node, Tree, encodable

Assigned = Literal["train", "dev", "test", "shares"]

KINDS = ("source", "target")
"""The kinds of the two nodes of a tree."""


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        return A_FOLDER
    return "parallel texts have no mark of their own. Name them with --format parallel"


def read(
    paths: Sequence[Path],
    counts: ReadCounts,
    *,
    train: Assigned = "train",
    val: Assigned = "dev",
    test: Assigned = "test",
    encoding: str = AUTO,
) -> Iterator[Tree]:
    """Read pairs of files in the given order: the first file holds the sources of the second, and so on.

    `train`, `val` and `test` are the splits of the files whose names hold such a word (or dev, valid, …): train, dev, test, or
    shares, which divides the pairs as if the names said nothing. `encoding` is as in the format text. White space around a
    text is removed. A pair with an empty side is left out and counted. Raises `RamifyError` for an odd number of files, for two
    files whose names say different splits, for pairs whose names say opposite directions, and for two files with unequal
    numbers of lines.
    """
    splits = {"train": train, "dev": val, "test": test}
    check_encoding(encoding)
    _check_paths(paths)
    sources, targets = paths[::2], paths[1::2]
    _check_directions(sources, targets)
    names = distinct_names(sources, map(file_name, sources))
    for source, target, name in zip(sources, targets, names, strict=True):
        split = _split(source, target)
        assigned = "shares" if split is None else splits[split]
        yield from _trees(source, target, name, {} if assigned == "shares" else {SPLIT: assigned}, encoding, counts)


def lines_of(path: Path, counts: ReadCounts, encoding: str = AUTO) -> Iterator[str]:
    """The lines of a file, without white space around them. A line above the limit of `blocks` is empty, and counted."""
    with open_bytes(path, counts) as packed:
        stream, encoding = with_line_ends(packed, encoding)
        yield from _lines(stream, path, encoding, counts)


def _lines(stream: io.BufferedReader, path: Path, encoding: str, counts: ReadCounts) -> Iterator[str]:
    for numbers, block in blocks(stream, counts, path):
        text = decoded(block, encoding, numbers.start, path, counts).removesuffix("\n")
        yield from map(str.strip, text.split("\n"))


def _check_paths(paths: Sequence[Path]) -> None:
    if folder := next((path for path in paths if path.is_dir()), None):
        raise RamifyError(f"{folder} is a folder, but the order of the files says which belong together. Name the files.")
    if len(paths) % 2:
        raise RamifyError(
            f"--format parallel reads files in pairs, a source and a target, but got {counted(len(paths), 'file')}: "
            f"{', '.join(map(str, paths))}. Name the missing file; empty files do not count."
        )


def _check_directions(sources: Sequence[Path], targets: Sequence[Path]) -> None:
    """Raise `RamifyError` for two pairs of opposite directions, as the words say that only one name of a pair holds."""
    pair_of: dict[tuple[frozenset[str], frozenset[str]], str] = {}
    for source, target in zip(sources, targets, strict=True):
        words, others = (frozenset(re.split(r"[^A-Za-z]+", str(path).lower())) for path in (source, target))
        source_alone, target_alone = words - others, others - words
        if other := pair_of.get((target_alone, source_alone)):
            raise RamifyError(
                f"{source} and {target} are paired in the opposite direction of {other}. Name the files of every pair in the "
                "order source, target."
            )
        if source_alone and target_alone:
            pair_of[source_alone, target_alone] = f"{source} and {target}"


def _split(source: Path, target: Path) -> str | None:
    """The split that the names of both files say, if they do."""
    splits = in_name(source), in_name(target)
    if splits[0] != splits[1]:
        said = " and ".join(split or "no split" for split in splits)
        raise RamifyError(
            f"the names of {source} and {target}, which are paired, say {said}. Name the files in the order source, target."
        )
    return splits[0]


def _trees(source: Path, target: Path, name: str, meta: dict[str, str], encoding: str, counts: ReadCounts) -> Iterator[Tree]:
    """The pairs of two files. All lines of the longer file are counted for the message."""
    number = [0, 0]
    for texts in zip_longest(lines_of(source, counts, encoding), lines_of(target, counts, encoding)):
        for side, text in enumerate(texts):
            number[side] += text is not None
        if number[0] != number[1]:
            continue
        where = f"{source}, line {number[0]}"
        yield from guarded(_pair, where, counts, texts, (source, target), number[0], name, meta, counts)
    if number[0] != number[1]:
        raise RamifyError(
            f"{source} has {counted(number[0], 'line')}, but {target} has {number[1]:,}. Line by line, each file must "
            "translate the other. Check that both belong together and are complete."
        )


def _pair(
    texts: Sequence[str], files: tuple[Path, Path], line: int, name: str, meta: dict[str, str], counts: ReadCounts
) -> list[Tree]:
    """The tree of a pair of lines, or nothing."""
    if not all(texts):
        side = 0 if not texts[0] else 1
        counts.leave_out("empty_side", f"{files[side]}, line {line}: no {KINDS[side]}", 2)
        return []
    source, target = texts
    nodes = (Node(source, id="source", kind=KINDS[0]), Node(target, (0,), id="target", kind=KINDS[1]))
    tree = Tree(nodes, f"{encodable(name)}/{line:010d}", meta)
    counts.read += 2
    return [tree]
