"""Files in ZIP archives and folders, read in place: nothing is unpacked to disk."""

import io
import lzma
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from ramify.errors import RamifyError
from ramify.readers.base import INTO_A_FILE, Held, ReadCounts, check_not_standard, open_bytes, open_packed, read_twice
from ramify.readers.listing import list_files

ZIP = b"PK\x03\x04"

MAX_RATIO = 200
"""The largest ratio of unpacked to packed size of a file above FREE_BYTES. JSON reaches about 50 if its records are alike."""
FREE_BYTES = 64 << 20

_FAULTS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, NotImplementedError, RuntimeError)


def is_zip(path: Path) -> bool:
    """Whether a file begins like a ZIP archive. Raises `RamifyError` for a pipe."""
    read_twice(path, INTO_A_FILE)
    with path.open("rb") as file:
        return file.read(len(ZIP)) == ZIP


def leads_out(name: str) -> bool:
    """Whether the name of a file in an archive leads out of the folder into which the archive would be unpacked."""
    path = PurePosixPath(name.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or any(":" in part for part in path.parts[:1])


@dataclass(frozen=True)
class Source:
    """A folder or ZIP archive of many small files: their names, and a function that reads one."""

    path: Path
    names: list[str]
    read: Callable[[str, Held, ReadCounts | None], bytes]
    hidden: Mapping[str, int] = field(default_factory=dict)
    """The number of earlier files of the same name, which are not read."""

    def where(self, name: str) -> str:
        return f"{self.path / name}" if self.path.is_dir() else f"{self.path}: {name}"


def source_of(path: Path, remedy: str) -> Source:
    """Open a folder or ZIP archive. Raises `RamifyError` as `Archive` does."""
    if path.is_dir():
        return Source(path, [file.relative_to(path).as_posix() for file in list_files([path])], from_folder(path))
    archive = Archive(path, remedy=remedy)

    def read(name: str, held: Held, counts: ReadCounts | None) -> bytes:
        with archive.open(name) as stream:
            data = held.read(stream, path)
        if counts is not None:
            counts.bytes += archive.size(name)
        return data

    return Source(path, sorted(archive.times), read, {name: count - 1 for name, count in archive.times.items()})


def from_folder(root: Path) -> Callable[[str, Held, ReadCounts | None], bytes]:
    """A function that reads the files of a folder by their names."""

    def read(name: str, held: Held, counts: ReadCounts | None) -> bytes:
        with open_bytes(root / name, counts) as stream:
            return held.read(stream, root / name)

    return read


class Archive:
    """A ZIP archive. `times` counts how often each name of a file occurs.

    `counts.bytes` counts along. `remedy` ends the message about a damaged archive. Raises `RamifyError` if the archive is
    incomplete and, when a file in it is opened or read, if it is encrypted, damaged or a bomb.
    """

    def __init__(self, path: Path, counts: ReadCounts | None = None, remedy: str = "Download it again.") -> None:
        self.path = path
        self._remedy = remedy
        check_not_standard(path, "a ZIP archive", "its end is read first")
        read_twice(path, INTO_A_FILE)
        try:
            self._zip = zipfile.ZipFile(open_packed(path, counts))
        except (zipfile.BadZipFile, OSError, NotImplementedError, UnicodeDecodeError) as error:
            raise RamifyError(f"{path} is not a complete ZIP file ({error}). {remedy}") from None
        self.times = Counter(info.filename for info in self._zip.infolist() if info.filename and not info.is_dir())

    @property
    def escaping(self) -> str | None:
        """The first name that leads out of the folder into which the archive would be unpacked."""
        return next((name for name in self.times if leads_out(name)), None)

    def size(self, name: str) -> int:
        """The packed size of a file."""
        return self._zip.getinfo(name).compress_size

    def open(self, name: str) -> io.BufferedReader:
        """Open a file. If several have this name, it is the last, the one that remains when an archive is unpacked."""
        info = self._zip.getinfo(name)
        if info.flag_bits & 1:
            raise RamifyError(f"{self.path} is encrypted ({name}). Unpack it with its password and name the folder.")
        if info.file_size > max(FREE_BYTES, MAX_RATIO * info.compress_size):
            raise RamifyError(
                f"{self.path}: {name} unpacks from {info.compress_size:,} to {info.file_size:,} bytes, more than {MAX_RATIO} "
                "times as many, as in a ZIP bomb. If you trust it, unpack it and name the folder."
            )
        try:
            inner = self._zip.open(info)
        except _FAULTS as error:
            raise self._damaged(name, error) from None
        return io.BufferedReader(_Member(self, name, inner), buffer_size=1 << 20)

    def close(self) -> None:
        self._zip.close()

    def _damaged(self, name: str, error: Exception) -> RamifyError:
        return RamifyError(f"{self.path} is damaged ({name}: {error}). {self._remedy}")


class _Member(io.RawIOBase):
    """Converts the errors of a file in an archive into `RamifyError`s. It ends at the size that the archive declares."""

    def __init__(self, archive: Archive, name: str, inner: Any) -> None:
        self._archive, self._name, self._inner = archive, name, inner

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        try:
            return self._inner.readinto(buffer)
        except _FAULTS as error:
            raise self._archive._damaged(self._name, error) from None

    def close(self) -> None:
        self._inner.close()
        super().close()
