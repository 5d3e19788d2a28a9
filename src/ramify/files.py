"""Files that are written whole or not at all, and JSON that is read with a clear error."""

import errno
import glob
import json
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from os import dup, fstat, strerror
from os.path import realpath, samestat
from pathlib import Path
from stat import S_ISREG
from typing import Any, TextIO

from filelock import FileLock, Timeout

from ramify.errors import RamifyError

_STDOUT, _STDERR = 1, 2
_PARTIAL = ".partial-"
_LOCK = ".lock"
_IN_THE_WAY = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Another name to write a file under, which takes the place of `path` when all went well. What the system refuses (no
    room, no such folder) is raised as `RamifyError` with the path."""
    with _refusals(path):
        if not path.name or path.is_dir():
            raise RamifyError(f"{str(path)!r} names no file: choose a name to write to.")
        if _is_stream(path):
            with tempfile.TemporaryDirectory() as folder:
                yield (whole := Path(folder) / "whole")
                with appending(path) as stream, open(whole, "rb") as written:
                    shutil.copyfileobj(written, stream.buffer)
            return
        # What a link leads to is replaced, not the link.
        target = path.resolve() if path.is_symlink() else path
        scratch = target.with_name(f"{_PARTIAL}{target.name}")
        try:
            scratch.unlink(missing_ok=True)
            # Made here, so that its permissions are those of any new file: some libraries make theirs for the owner alone.
            scratch.touch()
            mode = scratch.stat().st_mode
            yield scratch
            scratch.chmod(mode)
            scratch.rename(target)
        finally:
            with suppress(OSError):
                scratch.unlink()


@contextmanager
def appending(path: Path) -> Iterator[TextIO]:
    """A text file, or a device or pipe, to write to little by little. A file begins empty; a device takes what comes behind
    what it has (/dev/stdout may be a log that somebody appends to). What the system refuses is raised as `RamifyError`."""
    with _refusals(path):
        printed = _printed(path)
        # Through the same descriptor, so that what the shell prints next comes after it.
        raw = FileIO(path, "a" if _is_stream(path) else "w") if printed is None else FileIO(dup(printed), "w")
    with _Text(BufferedWriter(raw), path) as file:
        yield file


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read it has read enough
    except OSError as error:
        own = {place for each in (path, Path(realpath(path))) for place in (each, each.parent / f"{_PARTIAL}{each.name}")}
        if isinstance(error.filename, str | Path) and Path(error.filename) not in own:
            raise RamifyError(f"cannot open {error.filename}: {error.strerror}.") from None
        raise RamifyError(
            f"cannot write {path}: {error.strerror or error}. Make room there, or choose another place."
        ) from None


class _Text(TextIOWrapper):
    """A text file of which what the system refuses is told apart from what it refuses of others, which are read meanwhile."""

    def __init__(self, file: "BufferedWriter[FileIO]", path: Path) -> None:
        self._path = path
        super().__init__(file, encoding="utf-8", newline="\n")

    def write(self, text: str, /) -> int:
        with _refusals(self._path):
            return super().write(text)

    def flush(self) -> None:
        with _refusals(self._path):
            super().flush()

    def close(self) -> None:
        with _refusals(self._path):
            super().close()


def _is_stream(path: Path) -> bool:
    """Is it written to, rather than replaced: a device, a pipe, what this process prints to?"""
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    if not S_ISREG(found.st_mode):
        return True
    handed = path.parent.resolve()
    return _printed(path) is not None or (handed.name == "fd" and handed.is_relative_to("/proc"))


def _printed(path: Path) -> int | None:
    """The descriptor that this process prints to, if that is where the path leads to."""
    for number in (_STDOUT, _STDERR):
        with suppress(OSError):
            if samestat(path.stat(), fstat(number)):
                return number
    return None


@contextmanager
def sole_writer(out: Path) -> Iterator[None]:
    """Holds a lock beside the folder `out`. Raises `RamifyError` where another process holds it."""
    out = out.resolve()
    # Hidden, because `out` may lie among what is read.
    lock = out.with_name(f".{out.name}{_LOCK}")
    with ExitStack() as stack:
        with _refused_beside(out):
            if out.parent.exists() and not out.parent.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, strerror(errno.ENOTDIR))
            out.parent.mkdir(parents=True, exist_ok=True)
            try:
                stack.enter_context(_locked(lock, blocking=False))
            except Timeout:
                raise RamifyError(f"{out} is being written by another process. Wait for it, or choose another --out.") from None
        try:
            yield
        finally:
            # The file goes while it is locked, and so leaves no clutter. A process that has opened it already then locks a file
            # without a name, which FileLock (since 3.24) does not take for the lock. The file of a killed process stays, but
            # not its lock: the next process takes the file over, and removes it.
            with suppress(OSError):
                lock.unlink()


@contextmanager
def new_folder(out: Path, refusal: Callable[[Path], str]) -> Iterator[Path]:
    """An empty folder that takes the place of `out` when all went well, and goes when not. No other process makes `out` so
    meanwhile.

    `refusal(place)` says why what stands there may not be replaced, or "" where it may. It is asked at the start, and again of
    the same folder before that is removed. What appears at `out` in between is never touched. Raises `RamifyError`.
    """
    out = out.resolve()
    with sole_writer(out), ExitStack() as stack:
        with _refused_beside(out):
            before = _identity(out)
            if before and (reason := refusal(out)):
                raise RamifyError(f"{out} {reason}")
            folder = stack.enter_context(scratch_folder(out))
        yield folder
        _take_place(folder, out, before, refusal)


@contextmanager
def _refused_beside(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RamifyError(f"cannot write to {out.parent}: {error.strerror}. Choose another --out.") from None


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file or folder stands there, if any."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _take_place(folder: Path, out: Path, before: tuple[int, int] | None, refusal: Callable[[Path], str]) -> None:
    changed = f"{out} has changed while its new content was made: it is not touched, and the new content is discarded."
    now = _identity(out)
    if now not in (None, before):
        raise RamifyError(f"{changed} Choose another --out.")
    try:
        if now is None or not any(out.iterdir()):
            # The system refuses where anything but an empty folder has come since.
            folder.rename(out)
            return
        if reason := refusal(out):
            raise RamifyError(f"{out} {reason}")
        old = out.rename(out.with_name(f"{out.name}.old-{secrets.token_hex(4)}"))
    except OSError as error:
        if error.errno in _IN_THE_WAY:
            raise RamifyError(f"{changed} Choose another --out.") from None
        raise
    try:
        # Nobody finds it by its name any more: what has come into it has come.
        if reason := refusal(old):
            raise RamifyError(f"{out} {reason}")
        folder.rename(out)
    except BaseException as error:
        try:
            old.rename(out)
        except OSError:
            raise RamifyError(f"{changed} What was there before is now {old}.") from error
        raise
    shutil.rmtree(old)


@contextmanager
def scratch_folder(out: Path) -> Iterator[Path]:
    """An empty folder beside `out`, to be renamed to it when all is written. What is left of it goes in the end; where this
    process is killed, with the next one that asks for the same. Raises `OSError`."""
    # Hidden, because `out` may lie among what is read.
    stem = f".{out.name}{_PARTIAL}"
    for lock in out.parent.glob(f"{glob.escape(stem)}*{_LOCK}"):
        with suppress(Timeout, OSError), _locked(lock, blocking=False):
            _remove(lock)
    # Beside the folder, not in it: it is held until the folder has its place.
    lock = out.with_name(f"{stem}{secrets.token_hex(4)}{_LOCK}")
    folder = lock.with_suffix("")
    try:
        folder.mkdir(parents=True)
        with _locked(lock):
            yield folder
    finally:
        _remove(lock)


def _locked(lock: Path, *, blocking: bool = True) -> AbstractContextManager[object]:
    """Held already."""
    try:
        return FileLock(lock, blocking=blocking).acquire()
    except NotImplementedError as error:
        raise OSError(errno.ENOLCK, f"the file system knows no locks ({error})") from None


def _remove(lock: Path) -> None:
    shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
    lock.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """With the folders above it. What the system refuses is raised as `RamifyError`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RamifyError(f"cannot make the folder {path}: {error.strerror or error}. Choose another place.") from None


def write_text(path: Path, content: str) -> None:
    """Write a text file under another name, then rename it."""
    with replacing(path) as scratch:
        scratch.write_text(content, encoding="utf-8")


def read_json(path: Path, what: str) -> dict[str, Any]:
    """The object that a JSON file holds. Raises `RamifyError`; `what` says what its folder is then not (`a checkpoint`)."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise RamifyError(f"{path.parent} holds no {path.name}: it is not {what}.") from None
    except OSError as error:
        raise RamifyError(f"cannot read {path}: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:  # among them numbers of thousands of digits
        raise RamifyError(f"{path} is not valid JSON ({error}).") from None
    if not isinstance(found, dict):
        raise RamifyError(f"{path} holds no JSON object: it is no file of {what}.")
    return found


def check_format(record: Mapping[str, Any], number: int, path: Path) -> None:
    """Raise where a JSON file is of another format than this Ramify reads."""
    if record.get("format") != number:
        written = f"format {record['format']}" if "format" in record else "no format number"
        raise RamifyError(
            f"{path} was written by another version of Ramify ({written}, this one reads {number}). Use the version "
            "that wrote it, or train anew."
        )
