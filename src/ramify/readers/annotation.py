"""Reply links as the Ubuntu IRC disentanglement data has them: `PARENT CHILD -`, or `LOG:PARENT CHILD -` for several logs.

Numbers are lines of the log, from 0; a message that starts a conversation is its own parent. The name of a log is that of its
file without folder and ending.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ramify.errors import RamifyError
from ramify.files import replacing
from ramify.readers.base import Held, open_bytes

ENDINGS = (".annotation.txt", ".ascii.txt", ".tok.txt", ".raw.txt")

PACKED = (".gz", ".bz2", ".xz", ".zst")

Links = NDArray[np.int64]
"""[link 2]: parent and child."""

_LINE = re.compile(r"(?:(?P<log>.*):)?\s*(?P<parent>\d{1,15})\s+(?P<child>\d{1,15})(?:\s+-)?\s*")


def unpacked(name: str) -> str:
    """A file's name without what compressing it added."""
    return next((name.removesuffix(ending) for ending in PACKED if name.endswith(ending)), name)


def log_name(file: str) -> str:
    """The name under which a log is known, whichever of its files is given."""
    name = unpacked(re.split(r"[/\\]", file)[-1])
    return next((name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)), name)


def readable_name(log: str) -> str:
    """A log's name as `write_links` may have it: one that is read again as itself."""
    name = re.sub(r"[/\\\r\n]+", "-", log)
    while (own := log_name(name)) != name:
        name = own
    return name or "log"


def link_line(log: str, parent: int, child: int) -> str:
    return f"{log}:{parent} {child} -"


def read_links(paths: Sequence[Path]) -> dict[str, Links]:
    """The links of each log, in the order of the files; a folder stands for the `*.annotation.txt` in it.

    Raises `RamifyError` with file and line where a line is no link, and where lines without a log's name stand in two files
    of one name.
    """
    owner: dict[str, Path] = {}
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    held = Held("and the files before it have", "Give fewer files at a time.")
    for path in _files(paths):
        with open_bytes(path) as stream:
            text = held.read(stream, path).decode("utf-8-sig", "replace")
        own = log_name(path.name)
        bare = False
        for number, line in enumerate(text.split("\n"), start=1):
            if not line.strip():
                continue
            if (link := _LINE.fullmatch(line)) is None:
                raise RamifyError(
                    f"{path}, line {number}: expected 'PARENT CHILD -' or 'LOG:PARENT CHILD -' with line numbers from 0, "
                    f"found {line.strip()!r:.80}."
                )
            bare = bare or link["log"] is None
            name = own if link["log"] is None else log_name(link["log"])
            found[name].append((int(link["parent"]), int(link["child"])))
        if bare and owner.setdefault(own, path) != path:
            raise RamifyError(
                f"{owner[own]} and {path} are both links of {own!r}, as their names say. Rename one, or write LOG:PARENT CHILD."
            )
        if not text.strip():
            found.setdefault(own, [])
    return {name: np.array(links, dtype=np.int64).reshape(-1, 2) for name, links in found.items()}


def write_links(path: Path, links: Mapping[str, Iterable[tuple[int, int]]], *, named: bool = True) -> None:
    """(parent, child) of each log, a line a link; `named` puts the log's name before it, as several logs need.

    Raises `RamifyError` for a name that would be read as another.
    """
    for name in links:
        if log_name(name) != name:
            raise RamifyError(f"{path}: the log {name!r} would be read again as {log_name(name)!r}. Name it without folders.")
    if not named and len(links) > 1:
        raise RamifyError(f"{path}: links of {len(links)} logs in one file need the logs' names before them.")
    with replacing(path) as scratch, open(scratch, "w", encoding="utf-8", newline="\n") as file:
        for name, pairs in links.items():
            lines = (link_line(name, parent, child) if named else f"{parent} {child} -" for parent, child in pairs)
            file.writelines(f"{line}\n" for line in lines)


def _files(paths: Sequence[Path]) -> list[Path]:
    files = []
    for path in paths:
        inside = [path]
        if path.is_dir():
            inside = sorted(each for each in path.iterdir() if unpacked(each.name).endswith(ENDINGS[0]))
        if not inside:
            raise RamifyError(f"the folder {path} holds no file *{ENDINGS[0]}.")
        files += inside
    for path in files:
        if not path.exists():
            raise RamifyError(f"there is no file or folder {path}. Check the spelling of the input.")
    return files
