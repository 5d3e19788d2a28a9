"""The files in folders that can be data, and those that are left out."""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from os.path import isfile, islink, splitext
from pathlib import Path

from ramify.errors import RamifyError

_MARKDOWN = (".md", ".markdown")
_ACCOMPANYING = (".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".css")
_DOCUMENTS = ("", ".txt", ".rst", ".html", ".htm", ".pdf", ".rtf", ".cff", *_MARKDOWN)
_ABOUT = re.compile(
    r"(?:read[-_ ]?me|licen[cs]e|unlicense|copying|notice|change[-_ ]?log|contributing|citation|code_of_conduct)"
    r"(?:[-_][\w-]+(?:\.\d+)*)?"
).fullmatch
_OF_DESKTOP = {"thumbs.db", "desktop.ini", "icon\r", "__macosx"}


def list_files(paths: Sequence[Path]) -> list[Path]:
    """The given files, and the files in the given folders that can be data, sorted (see `left_out`).

    In a cache of the Hugging Face hub (`datasets--OWNER--NAME`), these are the files of its latest snapshot. Raises
    `RamifyError` for a link in a folder to a missing file.
    """
    result = []
    for path in paths:
        result += sorted(path / name for name, kept in _inside(path) if kept) if path.is_dir() else [path]
    return result


def left_out(paths: Sequence[Path]) -> dict[Path, list[str]]:
    """Folder -> the files and folders in it that `list_files` leaves out, relative to the folder.

    Left out are hidden files, files of the desktop (Thumbs.db, __MACOSX), LICENSE, README and similar files, and Markdown,
    unless the folder holds nothing else but pictures. A file that is named as an input is always read.
    """
    without = {path: sorted(name for name, kept in _inside(path) if not kept) for path in paths if path.is_dir()}
    return {path: names for path, names in without.items() if names}


def _is_about(name: str) -> bool:
    """Whether a file describes data rather than holding it, by its name: LICENSE, README.txt."""
    stem, ending = splitext(name.casefold())
    return (ending in _DOCUMENTS and _ABOUT(stem) is not None) or _ABOUT(name.casefold()) is not None


def is_foreign(part: str) -> bool:
    """Whether a part of a path belongs to a file system, a desktop or a version control system."""
    return part.startswith(".") or part.casefold() in _OF_DESKTOP


def _inside(folder: Path) -> list[tuple[str, bool]]:
    """The files in a folder, relative to it, and whether each can be data. A foreign folder counts as a file: `.git/`.

    So does a link to a folder.
    """
    inside: list[tuple[str, bool]] = []
    markdown: list[str] = []
    start = _snapshot(folder)
    for root, folders, files in os.walk(start):
        prefix = "" if root == str(folder) else f"{Path(root).relative_to(folder).as_posix()}/"
        # Links to folders are not followed, because they may lead anywhere.
        inside += ((f"{prefix}{name}/", False) for name in folders if is_foreign(name) or islink(f"{root}/{name}"))
        folders[:] = (name for name in folders if not is_foreign(name))
        for name in files:
            if is_foreign(name) or _is_about(name):
                inside.append((prefix + name, False))
            elif name.casefold().endswith(_MARKDOWN):
                markdown.append(prefix + name)
            elif isfile(f"{root}/{name}"):
                inside.append((prefix + name, True))
            elif islink(f"{root}/{name}"):
                raise RamifyError(
                    f"{root}/{name} is a link to {os.readlink(f'{root}/{name}')}, which does not exist. Download the folder "
                    "again, or remove the link."
                )
    is_text = not any(kept and not name.casefold().endswith(_ACCOMPANYING) for name, kept in inside)
    return inside + [(name, is_text) for name in markdown]


def _snapshot(folder: Path) -> Path:
    """The latest snapshot in a cache of the Hugging Face hub, which holds the content of each file twice; else the folder."""
    snapshots = folder / "snapshots"
    if not (snapshots.is_dir() and (folder / "blobs").is_dir()):
        return folder
    revisions = sorted(path for path in snapshots.iterdir() if path.is_dir())
    with suppress(OSError, UnicodeDecodeError):
        revision = snapshots / (folder / "refs" / "main").read_text("utf-8").strip()
        if revision in revisions:
            return revision
    if len(revisions) == 1:
        return revisions[0]
    held = f"{len(revisions)} snapshots, and refs/main names none of them" if revisions else "no snapshot"
    raise RamifyError(f"{folder} is a cache of the Hugging Face hub with {held}. Name a folder in {snapshots}.")
