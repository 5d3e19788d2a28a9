"""The files of a book: a folder, or a ZIP archive that is read in place and never unpacked."""

import codecs
import posixpath
from abc import ABC, abstractmethod
from pathlib import Path
from urllib.parse import unquote

from ramify.errors import RamifyError
from ramify.readers import archives
from ramify.readers.base import ReadCounts, check_not_standard, open_bytes, open_packed
from ramify.readers.encodings import AUTO, decoded, with_line_ends
from ramify.readers.listing import list_files
from ramify.readers.recoding import wide_encoding

MAX_FILE_BYTES = 64 << 20
"""The largest file of a book, decompressed."""
MAX_BOOK_BYTES = 256 << 20
"""The largest book, decompressed, pictures not included."""


class Container(ABC):
    """Files of one book by their names, which use "/"."""

    names: frozenset[str]

    @abstractmethod
    def read(self, name: str) -> bytes: ...

    @abstractmethod
    def where(self, name: str) -> str: ...

    @abstractmethod
    def close(self) -> None: ...


def check_inside(path: Path, folder: Path) -> None:
    """Raise `RamifyError` for a file in a folder of books that is a link out of it."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise RamifyError(f"{path} is a link to {path.resolve()}, outside of the book's folder. Copy the file into it.")


class Folder(Container):
    """The files in a folder."""

    def __init__(self, path: Path, counts: ReadCounts) -> None:
        self.path = path
        self.names = frozenset(file.relative_to(path).as_posix() for file in list_files([path]))
        self._counts = counts
        self._bytes = 0

    def read(self, name: str) -> bytes:
        path = self.path / name
        check_inside(path, self.path)
        data = read_whole(path, self._counts)
        self._bytes += len(data)
        if self._bytes > MAX_BOOK_BYTES:
            raise _too_large(f"{self.path}", MAX_BOOK_BYTES)
        return data

    def where(self, name: str) -> str:
        return f"{self.path / name}"

    def close(self) -> None:
        """Do nothing, because no file is left open."""


class Archive(Container):
    """The files in a ZIP archive.

    Raises `RamifyError` for anything but a complete archive, for names that lead out of it, for encrypted files, and for files
    that grow beyond the limits when they are decompressed.
    """

    def __init__(self, path: Path, counts: ReadCounts) -> None:
        check_not_standard(path, "an EPUB", "its end is read first")
        self.path = path
        with open_packed(path) as file:
            head = file.peek(1024)
        if not head:
            raise RamifyError(f"{path} is empty. Check that it was written or downloaded completely.")
        if not head.startswith(archives.ZIP):
            kind = next((name for mark, name in _KNOWN.items() if head.lstrip().startswith(mark)), "no ZIP archive")
            raise RamifyError(f"{path} is {kind}, and an EPUB is a ZIP archive. Convert it to EPUB, or leave it out.")
        self._archive = archives.Archive(path, counts, "Download or copy the book again.")
        if name := self._archive.escaping:
            raise RamifyError(f"{path} holds a file {name!r}, whose name leads out of the archive. Leave this book out.")
        self.names = frozenset(self._archive.times)
        self._bytes = 0

    def read(self, name: str) -> bytes:
        with self._archive.open(name) as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise _too_large(self.where(name), MAX_FILE_BYTES)
        self._bytes += len(data)
        if self._bytes > MAX_BOOK_BYTES:
            raise _too_large(f"{self.path}", MAX_BOOK_BYTES)
        return data

    def where(self, name: str) -> str:
        return f"{self.path}: {name}"

    def close(self) -> None:
        self._archive.close()


_KNOWN = {
    b"%PDF": "a PDF file",
    b"<!DOCTYPE html": "an HTML page",
    b"<html": "an HTML page",
    b"<?xml": "an XML file",
    b"Rar!": "a RAR archive",
    b"\x1f\x8b": "a gzip archive",
    b"ITOLITLS": "a LIT book",
}


def resolve(base: str, reference: str) -> str | None:
    """The name of the file that a file named `base` refers to; None if it is outside of the book."""
    name = posixpath.normpath(posixpath.join(posixpath.dirname(base), reference))
    return None if name.startswith(("../", "/")) or name == ".." else name


def resolve_target(base: str, reference: str) -> tuple[str | None, str]:
    """(name of a file or None if it is outside of the book, id of an element in it or "") of a reference."""
    href, _, fragment = reference.partition("#")
    return resolve(base, unquote(href)) if href else base, unquote(fragment)


def read_whole(path: Path, counts: ReadCounts) -> bytes:
    """The content of a file, decompressed. Raises `RamifyError` if it is larger than MAX_FILE_BYTES."""
    with open_bytes(path, counts) as stream:
        data = stream.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise _too_large(f"{path}", MAX_FILE_BYTES)
    return data


def read_text(path: Path, counts: ReadCounts) -> str:
    """The text of a file, with "\\n" at the ends of lines. Lines that are not UTF-8 are read as Windows-1252 and counted.

    Raises `RamifyError` if the file is not text.
    """
    with open_bytes(path, counts) as stream:
        if b"\0" in stream.peek(1024)[:1024] and wide_encoding(stream.peek(4)) is None:
            raise RamifyError(
                f"{path} is not text (byte 0 among its first 1,024). Convert it to EPUB, HTML, Markdown or plain text, or "
                "leave it out."
            )
        lines, encoding = with_line_ends(stream, AUTO)
        data = lines.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise _too_large(f"{path}", MAX_FILE_BYTES)
    text = decoded(data.removeprefix(codecs.BOM_UTF8), encoding, 1, path, counts)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _too_large(where: str, limit: int) -> RamifyError:
    return RamifyError(f"{where} is larger than {limit >> 20} MiB, the limit for books. Divide it, or leave it out.")
