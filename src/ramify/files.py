"""Atomic writing of files and folders, and reading of JSON with clear errors."""

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
_OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; the file written there replaces `path` if the block succeeds.

    Raises `RamifyError` with the path if the system refuses (no space, no such folder).
    """
    with _writing_errors(path):
        if not path.name or path.is_dir():
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
            scratch.rename(target)
        finally:
            with suppress(OSError):
                scratch.unlink()


@contextmanager
def appending(path: Path) -> Iterator[TextIO]:
    """Open a text file, device or pipe for incremental writing.

    A file is emptied first. A device is appended to, because /dev/stdout may be a log with earlier content. Raises
    `RamifyError` with the path if the system refuses.
    """
    with _writing_errors(path):
        descriptor = _standard_descriptor(path)
        # Share the file offset of the descriptor, so that later output of the shell follows this output.
        raw = FileIO(path, "a" if _is_stream(path) else "w") if descriptor is None else FileIO(dup(descriptor), "w")
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

    def __init__(self, file: "BufferedWriter[FileIO]", path: Path) -> None:
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
    """Whether output is appended to the path instead of replacing it: a device, a pipe, or an open descriptor."""
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


@contextmanager
def sole_writer(out: Path, action: str = "written") -> Iterator[None]:
    """Hold a lock next to the folder `out`. Raises `RamifyError` if another process holds it.

    The message says that `out` "is being {action}".
    """
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
            folder.rename(out)
            return
        if reason := refusal(out):
            raise RamifyError(f"{out} {reason}")
        old = out.rename(out.with_name(f"{out.name}.old-{secrets.token_hex(4)}"))
    except OSError as error:
        if error.errno in _OCCUPIED:
            raise RamifyError(f"{changed} Choose another --out.") from None
        raise
    try:
        # Other processes no longer find the folder by its name, so its content is final.
        if reason := refusal(old):
            raise RamifyError(f"{out} {reason}")
        folder.rename(out)
    except BaseException as error:
        try:
            old.rename(out)
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
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RamifyError(f"cannot create the folder {path}: {error.strerror or error}. Choose another path.") from None


def write_text(path: Path, content: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as scratch:
        scratch.write_text(content, encoding="utf-8")


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
