"""EPUB 2 and 3: a ZIP archive, or the folder of one, with an OPF package. Nothing is unpacked, and nothing is fetched."""

from pathlib import Path

from ramify.errors import RamifyError
from ramify.readers.archives import ZIP
from ramify.readers.base import ReadCounts
from ramify.readers.book.container import Archive, Container, Folder
from ramify.readers.book.outline import Outline, Work
from ramify.readers.book.package import elements, read_book, read_package

CONTAINER = "META-INF/container.xml"
ENCRYPTION = "META-INF/encryption.xml"
_FONTS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
"""Algorithms that only disguise fonts."""


def is_epub(path: Path, head: bytes) -> bool:
    return path.suffix.lower() == ".epub" or (head.startswith(ZIP) and b"mimetypeapplication/epub+zip" in head[:256])


def read(path: Path, counts: ReadCounts, name: str, language: str = "") -> Work:
    """Read a book. `name` becomes the id of its tree. Raises `RamifyError` if it is no EPUB, or if it is encrypted."""
    container = Folder(path, counts) if path.is_dir() else Archive(path, counts)
    try:
        if CONTAINER not in container.names:
            raise RamifyError(f"{path} is a ZIP archive without {CONTAINER}, so it is not an EPUB. Name the EPUB file itself.")
        _check_encryption(container, path)
        packages = [
            attributes.get("full-path", "")
            for tag, attributes, _ in elements(container.read(CONTAINER), container.where(CONTAINER))
            if tag == "rootfile"
        ]
        package_name = next((candidate for candidate in packages if candidate in container.names), None)
        if package_name is None:
            raise RamifyError(f"{container.where(CONTAINER)} names no package that the book holds. Download the book again.")
        package = read_package(container, package_name)
        outline = Outline(counts, f"{path}", language or package.meta.get("language", ""))
        read_book(container, package, outline)
    finally:
        container.close()
    return Work(name, f"{path}", outline, package.meta)


def _check_encryption(container: Container, path: Path) -> None:
    if ENCRYPTION not in container.names:
        return
    algorithm = ""
    for tag, attributes, _ in elements(container.read(ENCRYPTION), container.where(ENCRYPTION)):
        if tag == "EncryptionMethod":
            algorithm = attributes.get("Algorithm", "")
        elif tag == "CipherReference" and algorithm not in _FONTS:
            raise RamifyError(
                f"{path} is encrypted ({attributes.get('URI', '')}). Only books without copy protection can be read."
            )
