"""Standard Ebooks: the folder of a book's source, with `content.opf` and the texts beside it, in any of a few layouts."""

from pathlib import Path

from ramify.readers.base import ReadCounts
from ramify.readers.book.container import Folder
from ramify.readers.book.outline import Outline, Work
from ramify.readers.book.package import read_book, read_package

PACKAGES = ("src/epub/content.opf", "epub/content.opf", "content.opf")


def package_of(folder: Path) -> str | None:
    """The name of the package in a folder that holds a book, or None."""
    return next((name for name in PACKAGES if (folder / name).is_file()), None)


def read(folder: Path, counts: ReadCounts, name: str, language: str = "") -> Work:
    """Read a book from its folder. `name` becomes the id of its tree."""
    container = Folder(folder, counts)
    package = read_package(container, package_of(folder) or PACKAGES[0])
    outline = Outline(counts, f"{folder}", language or package.meta.get("language", ""))
    read_book(container, package, outline)
    return Work(name, f"{folder}", outline, package.meta)
