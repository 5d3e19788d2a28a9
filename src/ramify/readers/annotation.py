"""Reply links in the format of the Ubuntu IRC disentanglement data: `PARENT CHILD -`, or `LOG:PARENT CHILD -` for several logs.

Numbers are lines of the log, from 0. A message that starts a conversation is its own parent. The name of a log is the name of
its file without folder and ending.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ramify.errors import RamifyError, shown
from ramify.files import STANDARD, replacing
from ramify.readers.base import Held, file_name, open_bytes
from ramify.readers.names import unpacked

ENDINGS = (".annotation.txt", ".ascii.txt", ".tok.txt", ".raw.txt")

Links = NDArray[np.int64]
"""[link 2]: parent and child."""

_LINE = re.compile(r"(?:(?P<log>.*):)?\s*(?P<parent>\d{1,15})\s+(?P<child>\d{1,15})(?:\s+-)?\s*")


def log_name(file: str) -> str:
    """The name of a log, from the name of any of its files."""
    name = unpacked(re.split(r"[/\\]", file)[-1])
    return next((name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)), name)


def readable_name(log: str) -> str:
    """A log's name in a form that `write_links` accepts: reading it returns the same name."""
    name = re.sub(r"[/\\\r\n]+", "-", log)
    while (shorter := log_name(name)) != name:
        name = shorter
    return name or "log"


def link_line(log: str, parent: int, child: int) -> str:
    return f"{log}:{parent} {child} -"


def read_links(paths: Sequence[Path]) -> dict[str, Links]:
    """Read the links of each log, in the order of the files. A folder stands for the `*.annotation.txt` files in it.

    Raises `RamifyError` with file and line if a line is not a link, and if lines without a log's name occur in two files of the
    same name.
    """
    owner: dict[str, Path] = {}
    links: dict[str, list[tuple[int, int]]] = defaultdict(list)
    held = Held("and the files before it have", "Give fewer files at a time.")
    for path in _files(paths):
        with open_bytes(path) as stream:
            text = held.read(stream, path).decode("utf-8-sig", "replace")
        file_log = log_name(file_name(path))
        has_unnamed = False
        for number, line in enumerate(text.split("\n"), start=1):
            if not line.strip():
                continue
            if (link := _LINE.fullmatch(line)) is None:
                raise RamifyError(
                    f"{path}, line {number}: expected 'PARENT CHILD -' or 'LOG:PARENT CHILD -' with line numbers from 0, "
                    f"found {shown(line.strip())}."
                )
            has_unnamed = has_unnamed or link["log"] is None
            name = file_log if link["log"] is None else log_name(link["log"])
            links[name].append((int(link["parent"]), int(link["child"])))
        if has_unnamed and owner.setdefault(file_log, path) != path:
            raise RamifyError(
                f"{owner[file_log]} and {path} both hold links of {file_log!r}, according to their names. Rename one, or write "
                "LOG:PARENT CHILD."
            )
        if not text.strip():
            links.setdefault(file_log, [])
    return {name: np.array(pairs, dtype=np.int64).reshape(-1, 2) for name, pairs in links.items()}


def write_links(path: Path, links: Mapping[str, Iterable[tuple[int, int]]], *, named: bool = True) -> None:
    """Write the (parent, child) links of each log, one link per line. `named` puts the log's name before each link.

    Raises `RamifyError` for a name that would be read back differently, and for several logs without `named`.
    """
    for name in links:
        if log_name(name) != name:
            raise RamifyError(f"{path}: the log {name!r} would be read back as {log_name(name)!r}. Rename the log.")
    if not named and len(links) > 1:
        raise RamifyError(f"{path}: links of {len(links)} logs in one file need the logs' names. Write them with named=True.")
    with replacing(path) as scratch, open(scratch, "w", encoding="utf-8", newline="\n") as file:
        for name, pairs in links.items():
            lines = (link_line(name, parent, child) if named else f"{parent} {child} -" for parent, child in pairs)
            file.writelines(f"{line}\n" for line in lines)


def _files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if path != STANDARD and not path.exists():
            raise RamifyError(f"there is no file or folder {path}. Check the spelling of the input.")
        inside = (
            sorted(file for file in path.iterdir() if unpacked(file.name).endswith(ENDINGS[0])) if path.is_dir() else [path]
        )
        if not inside:
            raise RamifyError(f"the folder {path} holds no file *{ENDINGS[0]}. Check the spelling of the input.")
        files += inside
    return files
