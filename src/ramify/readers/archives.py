"""Folders and ZIP files of many small files, which are read one by one. Nothing is unpacked to disk."""

import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ramify.errors import RamifyError
from ramify.readers import list_files
from ramify.readers.base import INTO_A_FILE, Held, Report, open_bytes, read_twice

ZIP = b"PK\x03\x04"


@dataclass(frozen=True)
class Source:
    """A folder or ZIP file: the names of its files and a function that reads one."""

    path: Path
    names: list[str]
    read: Callable[[str, Held, Report | None], bytes]
    # The number of earlier files of the same name, which are not read.
    hidden: Mapping[str, int] = field(default_factory=dict)

    def where(self, name: str) -> str:
        return f"{self.path / name}" if self.path.is_dir() else f"{self.path}: {name}"


def is_zip(path: Path) -> bool:
    read_twice(path, INTO_A_FILE)
    with path.open("rb") as file:
        return file.read(len(ZIP)) == ZIP


def source_of(path: Path, remedy: str) -> Source:
    """Open a folder or ZIP file. Raises `RamifyError` for an encrypted archive, and with the remedy for a damaged one."""
    if path.is_dir():
        return Source(path, [file.relative_to(path).as_posix() for file in list_files([path])], from_folder(path))
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
        raise RamifyError(f"{path} is not a complete ZIP file ({error}). {remedy}") from None
    times = Counter(info.filename for info in archive.infolist() if not info.is_dir())

    def read(name: str, held: Held, report: Report | None) -> bytes:
        info = archive.getinfo(name)  # The last file of this name, as other programs unpack it.
        if info.flag_bits & 1:
            raise RamifyError(f"{path} is encrypted ({name}). Unpack it with its password and name the folder.")
        try:
            with archive.open(info) as stream:
                data = held.read(stream, path)  # pyright: ignore[reportArgumentType]
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
            raise RamifyError(f"{path} is damaged ({name}: {error}). {remedy}") from None
        if report is not None:
            report.bytes += info.compress_size
        return data

    return Source(path, sorted(times), read, {name: count - 1 for name, count in times.items()})


def from_folder(root: Path) -> Callable[[str, Held, Report | None], bytes]:
    """A function that reads the files of a folder by their names."""

    def read(name: str, held: Held, report: Report | None) -> bytes:
        with open_bytes(root / name, report) as stream:
            return held.read(stream, root / name)

    return read
