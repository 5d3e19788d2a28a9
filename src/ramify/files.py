"""Atomic writing of files and folders, and reading of JSON with clear errors."""

import errno
import glob
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from io import BufferedIOBase, BufferedWriter, FileIO, RawIOBase, TextIOWrapper
from os import dup, fstat, strerror
from os.path import realpath, samestat
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO, TextIO

from filelock import FileLock, Timeout

from ramify.errors import RamifyError

STANDARD = Path("-")
"""Standard input where a file is read, and standard output where a file is written. It never names a file or a folder."""

GENERATOR = b'<meta name="generator" content="Ramify">'
"""Stands at the beginning of every page that Ramify writes."""

KEPT_BYTES = 4 << 20
"""Bytes of standard input that are kept, so that a format can be guessed before the input is read."""

_STDOUT, _STDERR = 1, 2
_PARTIAL = ".partial-"
_LOCK = ".lock"
_OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; the file written there replaces `path` if the block succeeds.

    Standard output, a device or a pipe receives the whole file at that time. Raises `RamifyError` with the path if the system
    refuses (no space, no such folder).
    """
    with _writing_errors(path):
        if path != STANDARD and (not path.name or path.is_dir()):
            raise RamifyError(f"{str(path)!r} names no file. Choose a file to write to.")
        if _is_stream(path):
            with tempfile.TemporaryDirectory() as folder:
                yield (whole := Path(folder) / "whole")
                with appending(path) as stream, open(whole, "rb") as written:
                    shutil.copyfileobj(written, stream.buffer)
            return
        # Replace the target of a link, not the link.
        target = path.resolve() if path.is_symlink() else path
        scratch = target.with_name(f"{_PARTIAL}{target.name}")
        try:
            scratch.unlink(missing_ok=True)
            # Create the file here, so that it has the permissions of any new file: some libraries create theirs for the owner
            # alone.
            scratch.touch()
            mode = scratch.stat().st_mode
            yield scratch
            scratch.chmod(mode)
            os.replace(scratch, target)
        finally:
            with suppress(OSError):
                scratch.unlink()


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing bytes in order. The file replaces `path` if the block succeeds.

    Standard output, a device or a pipe receives the bytes as they come, so that a large output needs no room on the disk.
    """
    if _is_stream(path):
        with _writing_errors(path), appending(path) as stream:
            yield stream.buffer
    else:
        with replacing(path) as scratch, open(scratch, "wb") as file:
            yield file


@contextmanager
def appending(path: Path) -> Iterator[TextIO]:
    """Open a text file, standard output, a device or a pipe for incremental writing.

    A file is emptied first. A device is appended to, because /dev/stdout may be a log with earlier content. Raises
    `RamifyError` with the path if the system refuses.
    """
    with _writing_errors(path):
        if path == STANDARD:
            raw = _StandardOutput()
        elif (descriptor := _standard_descriptor(path)) is not None:
            # Share the file offset of the descriptor, so that later output of the shell follows this output.
            raw = FileIO(dup(descriptor), "w")
        else:
            raw = FileIO(path, "a" if _is_stream(path) else "w")
    with _Text(BufferedWriter(raw), path) as file:
        yield file


@contextmanager
def _writing_errors(path: Path) -> Iterator[None]:
    """Convert errors of the system into `RamifyError`. An error about another file names that file."""
    try:
        yield
    except BrokenPipeError:
        raise  # The reader closed the pipe; this is not an error.
    except OSError as error:
        written = {name for file in (path, Path(realpath(path))) for name in (file, file.parent / f"{_PARTIAL}{file.name}")}
        if isinstance(error.filename, str | Path) and Path(error.filename) not in written:
            raise RamifyError(f"cannot open {error.filename}: {error.strerror}. Check its path and permissions.") from None
        raise RamifyError(f"cannot write {path}: {error.strerror or error}. Free some space, or choose another path.") from None


class _Text(TextIOWrapper):
    """A text file whose own errors become `RamifyError`; errors of files that are read in the same block do not."""

    def __init__(self, file: "BufferedWriter[Any]", path: Path) -> None:
        self._path = path
        super().__init__(file, encoding="utf-8", newline="\n")

    def write(self, text: str, /) -> int:
        with _writing_errors(self._path):
            return super().write(text)

    def flush(self) -> None:
        with _writing_errors(self._path):
            super().flush()

    def close(self) -> None:
        with _writing_errors(self._path):
            super().close()


def _is_stream(path: Path) -> bool:
    """Whether output is appended to the path instead of replacing it: standard output, a device, a pipe, or an open
    descriptor."""
    if path == STANDARD:
        return True
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    if not S_ISREG(status.st_mode):
        return True
    folder = path.parent.resolve()
    return _standard_descriptor(path) is not None or (folder.name == "fd" and folder.is_relative_to("/proc"))


def _standard_descriptor(path: Path) -> int | None:
    """The descriptor of standard output or standard error, if the path is the same file."""
    for descriptor in (_STDOUT, _STDERR):
        with suppress(OSError):
            if samestat(path.stat(), fstat(descriptor)):
                return descriptor
    return None


class _StandardOutput(RawIOBase):
    """The program's standard output. It is flushed with each write, and stays open when this object is closed."""

    def __init__(self) -> None:
        if sys.stdout is None:
            raise RamifyError("standard output is closed. Name a file in place of -.")
        sys.stdout.flush()

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return len(data)


# --- standard input -----------------------------------------------------------------------------------------------------


class StandardInput(RawIOBase):
    """The program's standard input, from its beginning.

    It can be opened again while no more than the first `KEPT_BYTES` were read; afterwards, opening it raises `RamifyError`,
    unless `keep` was called before.
    """

    _kept: "_Kept | None" = None

    def __init__(self) -> None:
        self._source, self._at = StandardInput._current(), 0
        self._check()

    @staticmethod
    def _current() -> "_Kept":
        if sys.stdin is None:
            raise RamifyError("standard input is closed. Name a file in place of -.")
        kept = StandardInput._kept
        if kept is None or kept.stream is not sys.stdin.buffer:
            kept = StandardInput._kept = _Kept(sys.stdin.buffer)
        return kept

    @staticmethod
    def keep() -> None:
        """Copy the whole of standard input to a temporary file, as it is read, so that it can be opened any number of times."""
        StandardInput._current().keep()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self._check()
        data = self._source.read(self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _check(self) -> None:
        if not self._source.holds(self._at):
            raise RamifyError(
                "standard input can be read only once, but this command or format reads it several times. Write its content to "
                "a file first, and name the file."
            )


class _Kept:
    """A stream and its beginning, until more than `KEPT_BYTES` were read, or, after `keep`, all that was read."""

    def __init__(self, stream: BufferedIOBase | BinaryIO) -> None:
        self.stream = stream
        self._beginning = bytearray()
        self._read = 0
        self._copy: BinaryIO | None = None

    def keep(self) -> None:
        if self._copy is None and self.holds(0):
            self._copy = tempfile.TemporaryFile()  # noqa: SIM115
            self._copy.write(self._beginning)
            self._beginning.clear()

    def holds(self, at: int) -> bool:
        """Whether the bytes from this place on are at hand."""
        return self._copy is not None or at >= self._read - len(self._beginning)

    def read(self, at: int, size: int) -> bytes:
        if at < self._read and self._copy is not None:
            self._copy.seek(at)
            return self._copy.read(min(size, self._read - at))
        if at < self._read:
            return bytes(self._beginning[at : at + size])
        # `read1` returns the bytes that have arrived. `read` would wait for all of them, and a pipe may stay open for days.
        data = self.stream.read1(size)  # pyright: ignore[reportAttributeAccessIssue]
        self._read += len(data)
        if self._copy is not None:
            self._copy.seek(0, os.SEEK_END)
            self._copy.write(data)
            return data
        self._beginning += data
        if len(self._beginning) > KEPT_BYTES or self._read > len(self._beginning):
            self._beginning.clear()
        return data


# --- folders --------------------------------------------------------------------------------------------------------------


def check_folder(path: Path) -> None:
    """Raise `RamifyError` if the path of a folder to write is standard output."""
    if path.parts[:1] == STANDARD.parts:
        raise RamifyError(f"{path} cannot be written: - is standard output, but a folder is written here. Name a folder.")


@contextmanager
def sole_writer(out: Path, action: str = "written") -> Iterator[None]:
    """Hold a lock next to the folder `out`. Raises `RamifyError` if another process holds it.

    The message says that `out` "is being {action}".
    """
    check_folder(out)
    out = out.resolve()
    # Hidden, because `out` may be in a folder that is read as input.
    lock = out.with_name(f".{out.name}{_LOCK}")
    with ExitStack() as stack:
        with _parent_errors(out):
            if out.parent.exists() and not out.parent.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, strerror(errno.ENOTDIR))
            out.parent.mkdir(parents=True, exist_ok=True)
            try:
                stack.enter_context(_locked(lock, blocking=False))
            except Timeout:
                raise RamifyError(
                    f"{out} is being {action} by another process. Wait until it ends, or choose another --out."
                ) from None
        try:
            yield
        finally:
            # Remove the file while it is locked. A process that has opened it already then locks a file without a name, which
            # FileLock (since 3.24) does not accept as the lock. The file of a killed process stays without its lock: the next
            # process locks and removes it.
            with suppress(OSError):
                lock.unlink()


@contextmanager
def new_folder(out: Path, refusal: Callable[[Path], str]) -> Iterator[Path]:
    """Yield an empty folder that replaces `out` if the block succeeds, and is removed if it fails.

    `refusal(folder)` returns the reason why an existing folder must not be replaced, or "" if it may be. It is called at the
    start, and again before the old folder is removed. A file or folder that appears at `out` in between is never touched.
    Raises `RamifyError` if `out` must not be replaced, has changed meanwhile, or is being written by another process.
    """
    check_folder(out)
    out = out.resolve()
    with sole_writer(out), ExitStack() as stack:
        with _parent_errors(out):
            before = _identity(out)
            if before and (reason := refusal(out)):
                raise RamifyError(f"{out} {reason}")
            folder = stack.enter_context(scratch_folder(out))
        yield folder
        _take_place(folder, out, before, refusal)


@contextmanager
def _parent_errors(out: Path) -> Iterator[None]:
    """Convert errors of the system into a `RamifyError` that names the parent folder of `out`."""
    try:
        yield
    except OSError as error:
        raise RamifyError(f"cannot write to {out.parent}: {error.strerror}. Choose another --out.") from None


def _identity(path: Path) -> tuple[int, int] | None:
    """The device and inode of a file or folder, or None if it does not exist."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _take_place(folder: Path, out: Path, before: tuple[int, int] | None, refusal: Callable[[Path], str]) -> None:
    """Rename `folder` to `out`, and remove the old folder whose identity is `before`. Raises `RamifyError` if `out` changed."""
    changed = f"{out} has changed while its new content was written. It is not touched, and the new content is discarded."
    now = _identity(out)
    if now not in (None, before):
        raise RamifyError(f"{changed} Choose another --out.")
    try:
        if now is None or not any(out.iterdir()):
            # The system refuses unless `out` is still missing or empty.
            os.replace(folder, out)
            return
        if reason := refusal(out):
            raise RamifyError(f"{out} {reason}")
        old = out.with_name(f"{out.name}.old-{secrets.token_hex(4)}")
        os.replace(out, old)
    except OSError as error:
        if error.errno in _OCCUPIED:
            raise RamifyError(f"{changed} Choose another --out.") from None
        raise
    try:
        # Other processes no longer find the folder by its name, so its content is final.
        if reason := refusal(old):
            raise RamifyError(f"{out} {reason}")
        os.replace(folder, out)
    except BaseException as error:
        try:
            os.replace(old, out)
        except OSError:
            raise RamifyError(f"{changed} The previous content is now at {old}.") from error
        raise
    shutil.rmtree(old)


@contextmanager
def scratch_folder(out: Path) -> Iterator[Path]:
    """Yield an empty folder next to `out`, which the caller renames to `out` once it is complete.

    The folder is removed at the end if it was not renamed. If the process is killed, the next call for the same `out` removes
    it. Raises `OSError`.
    """
    # Hidden, because `out` may be in a folder that is read as input.
    stem = f".{out.name}{_PARTIAL}"
    for lock in out.parent.glob(f"{glob.escape(stem)}*{_LOCK}"):
        with suppress(Timeout, OSError), _locked(lock, blocking=False):
            _remove(lock)
    # Next to the folder, not in it: the lock is held until the folder has been renamed.
    lock = out.with_name(f"{stem}{secrets.token_hex(4)}{_LOCK}")
    folder = lock.with_suffix("")
    try:
        folder.mkdir(parents=True)
        with _locked(lock):
            yield folder
    finally:
        _remove(lock)


def _locked(lock: Path, *, blocking: bool = True) -> AbstractContextManager[object]:
    """Acquire a lock; the returned context manager releases it."""
    try:
        return FileLock(lock, blocking=blocking).acquire()
    except NotImplementedError as error:
        raise OSError(errno.ENOLCK, f"the file system does not support locks ({error})") from None


def _remove(lock: Path) -> None:
    """Remove a lock file and its folder."""
    shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
    lock.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Create a folder and its parents. Raises `RamifyError` if the system refuses."""
    check_folder(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RamifyError(f"cannot create the folder {path}: {error.strerror or error}. Choose another path.") from None


def write_text(path: Path, content: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as scratch:
        scratch.write_text(content, encoding="utf-8")


def is_page(path: Path) -> bool:
    """Whether a file is a page that Ramify wrote."""
    with open(path, "rb") as file:
        return GENERATOR in file.read(1 << 10)


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object from a file. Raises `RamifyError` if that fails.

    `what` names the expected kind of folder (`a checkpoint`) in the message.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise RamifyError(f"{path.parent} holds no {path.name}, so it is not {what}.") from None
    except OSError as error:
        raise RamifyError(f"cannot read {path}: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:  # A number of thousands of digits is a ValueError too.
        raise RamifyError(f"{path} is not valid JSON ({error}).") from None
    if not isinstance(content, dict):
        raise RamifyError(f"{path} holds no JSON object, so it is not a file of {what}.")
    return content


def check_format(record: Mapping[str, Any], number: int, path: Path) -> None:
    """Raise `RamifyError` if the format number of a JSON file is not `number`."""
    if record.get("format") != number:
        written = f"format {record['format']}" if "format" in record else "no format number"
        raise RamifyError(
            f"{path} was written by another version of Ramify ({written}, this one reads {number}). Use the version "
            "that wrote it, or train again."
        )
