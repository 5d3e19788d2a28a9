"""Files of chat logs: their names, and the annotation files beside them."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from ramify.errors import RamifyError, counted
from ramify.files import STANDARD
from ramify.readers import annotation
from ramify.readers.base import ReadCounts, file_name, open_bytes
from ramify.readers.listing import list_files
from ramify.readers.messages import LogNames
from ramify.readers.names import distinct_names, unpacked
from ramify.tree import encodable

LINKS, ASCII, TOKENS, RAW = annotation.ENDINGS

_ENDINGS = (".log", ".txt", ".weechatlog")

Answers = Mapping[int, tuple[tuple[int, ...], bool]]
"""Line -> its parents, and whether it starts a conversation."""


def logs_of(folder: Path) -> list[Path]:
    """The files of a folder, without those that accompany another file."""
    inside = list_files([folder])
    present = {path.with_name(unpacked(path.name)) for path in inside}
    return [
        path
        for path in inside
        if not (name := unpacked(path.name)).endswith((LINKS, TOKENS))
        and not (name.endswith(RAW) and path.with_name(name.removesuffix(RAW) + ASCII) in present)
    ]


def logs_in(folder: Path, refused: Callable[[Path], str], counts: ReadCounts, kind: str) -> list[Path]:
    """The files of a folder that are logs of a kind. The others are counted, with the reason that `refused` gives."""
    logs = []
    for path in logs_of(folder):
        if reason := refused(path):
            counts.leave_out("not_a_log", f"{path}: {reason}")
        else:
            logs.append(path)
    if not logs:
        raise RamifyError(f"no file in the folder {folder} looks like {kind}. Name one of its files to see the reason.")
    return logs


def links_of(path: Path) -> Path | None:
    """The annotation file beside a log, if there is one."""
    beside = path.with_name(short(path) + LINKS)
    return beside if path != STANDARD and beside.exists() else None


def beside(paths: Sequence[Path], options: Mapping[str, object]) -> list[Path]:
    """The further files, existing or not, that a reader of logs would read beside these with the given options."""
    endings = {"annotations": LINKS, "tokens": TOKENS}
    read = [ending for option, ending in endings.items() if options.get(option) == "beside"]
    return [path.with_name(short(path) + ending) for path in paths for ending in read]


def short(path: Path) -> str:
    """The name of a log in annotation files."""
    name = unpacked(file_name(path))
    known = annotation.log_name(name)
    if known == name:
        known = next((name.removesuffix(ending) for ending in _ENDINGS if name.endswith(ending)), name)
    return known or name


def log_names(paths: Sequence[Path]) -> list[str]:
    """Short names, prefixed with as many folders as are needed to distinguish files of the same name."""
    given = LogNames()
    return [given.give(name) for name in map(encodable, distinct_names(paths, map(short, paths)))]


def answers(path: Path, log: str) -> Answers:
    links = annotation.read_links([path])
    if foreign := sorted(links.keys() - {log}):
        raise RamifyError(
            f"{path} is read as the links of {log!r}, but it also names {foreign[0]!r}. "
            "Set --option annotations=none to ignore it."
        )
    parents: dict[int, set[int]] = defaultdict(set)
    for one, other in links[log].tolist() if log in links else ():
        parents[max(one, other)].add(min(one, other))
    return {child: (tuple(sorted(linked - {child})), child in linked) for child, linked in parents.items()}


def refuse_line(annotated: Path, log: Path, size: int) -> NoReturn:
    """Raise `RamifyError` for the line of an annotation file that names a line beyond the end of the log."""
    with open_bytes(annotated) as stream:
        for number, line in enumerate(stream, start=1):
            linked = [int(digits) for digits in re.findall(rb"\d+", line.rpartition(b":")[2])]
            if any(place >= size for place in linked):
                raise RamifyError(
                    f"{annotated}, line {number}: links line {max(linked)}, but {log} has {counted(size, 'line')}, numbered "
                    "from 0. Check that they belong together, or set --option annotations=none to read the log alone."
                )
    raise AssertionError(annotated)
