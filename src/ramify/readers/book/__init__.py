"""Books: Standard Ebooks folders, EPUB 2 and 3 (unpacked, too), Project Gutenberg text, Markdown, HTML and TEI.

A work becomes a document: its root, divisions, paragraphs and sentences, each with the name of its level as its kind.
Containers have a title as their label and no text; the leaves hold the text in reading order.

    <kind of input>.py   file or folder -> `Work`, whose outline holds divisions and paragraphs
    levels.py            outline -> `Tree`
    sentences.py         paragraph -> sentences
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from ramify.errors import RamifyError
from ramify.readers.base import INTO_A_FILE, ReadCounts, bad_option, file_name, open_bytes, read_twice
from ramify.readers.book import epub, gutenberg, html, markdown, standard_ebooks, tei
from ramify.readers.book.container import check_inside
from ramify.readers.book.levels import DEFAULT_LEVELS, make_tree, parse_levels
from ramify.readers.book.outline import Work
from ramify.readers.languages import LANGUAGES, code_of
from ramify.readers.listing import list_files
from ramify.tree import Tree, encodable

HEAD_BYTES = 1 << 16

_CODE = re.compile("[a-z]{2,3}").fullmatch
_NO_BOOK = re.compile(r"(?:readme|licen[cs]e|copying|changelog|contributing|authors|notice)\b.*", re.IGNORECASE).fullmatch


_Read = Callable[[Path, ReadCounts, str, str], Work | Iterable[Work]]
"""(path, counts, id of the tree, language or "" for the work's own)"""


class _Input(NamedTuple):
    """A work, or a file with works."""

    path: Path
    read: _Read


def refuses(path: Path, head: bytes) -> str:
    """Markdown, HTML and plain text without a mark of Project Gutenberg may be anything, so they are never guessed."""
    if path.is_dir():
        inputs, others = _inputs_in(path)
        if not inputs:
            return "a folder without books"
        unmistakable = all(_is_unmistakable(source) for source in inputs)
        strange = next((file for file in others if not _NO_BOOK(file.name)), None)
        if not unmistakable or strange is not None:
            if strange is None:
                return "a folder with other texts (--format book reads them as books)"
            return f"a folder with other files than books, such as {strange.name} (--format book leaves them out)"
        return ""
    if epub.is_epub(path, head) or tei.is_tei(head) or (gutenberg.is_gutenberg(head) and not html.looks_like_html(head)):
        return ""
    return "no EPUB, no TEI, no mark of Project Gutenberg (Markdown, HTML and other text need --format book)"


def read(
    paths: Sequence[Path],
    counts: ReadCounts,
    *,
    levels: str | Sequence[str] = DEFAULT_LEVELS,
    divisions: Literal["flatten", "level"] = "flatten",
    language: str = "",
) -> Iterator[Tree]:
    """Yield one tree per work, in the order of the paths. One work is held at a time.

    `levels` names the levels below the document. With `divisions="level"`, the parts, books and sections that a work has are
    levels, too; with "flatten", their titles are part of their chapters' titles. A level that a part of a work lacks is filled
    with a node of its own and counted in `counts.kept` as `missing_level`.

    Headings and the ends of sentences are those of a work's language. `language` (a name or a code, such as "fr") replaces what
    the works say of it; without it, a work that does not say is taken for English.
    """
    if language and not _CODE(code_of(language)):
        raise bad_option("language", "the name or the code of a language, such as French or fr", language)
    return _trees(paths, counts, parse_levels(levels), divisions, code_of(language) if language else "", plain=False)


def read_text(
    path: Path, counts: ReadCounts, *, levels: Sequence[str], divisions: Literal["flatten", "level"] = "flatten"
) -> Iterator[Tree]:
    """`read` one path. A file that is no book is plain text, in which blank lines end paragraphs."""
    return _trees([path], counts, parse_levels(levels), divisions, "", plain=True)


def _trees(
    paths: Sequence[Path],
    counts: ReadCounts,
    names: Sequence[str],
    divisions: Literal["flatten", "level"],
    language: str,
    *,
    plain: bool,
) -> Iterator[Tree]:
    given: set[str] = set()
    for path in paths:
        read_twice(path, INTO_A_FILE)
        for source, root in _works(path, counts, plain):
            works = source.read(source.path, counts, _name(source.path, root, given), language)
            for work in (works,) if isinstance(works, Work) else works:
                if language:
                    work.meta["language"] = language
                if work.outline.language not in LANGUAGES:
                    counts.repair("unknown_language", f"{work.where}: {work.outline.language}")
                if tree := make_tree(work, names, divisions, counts):
                    yield tree


def _works(path: Path, counts: ReadCounts, plain: bool) -> Iterator[tuple[_Input, Path]]:
    """Yield the works in a file or folder, each with the folder that its name is relative to."""
    if not path.is_dir():
        yield _input(path, counts, plain), path.parent
        return
    inputs, others = _inputs_in(path)
    if not inputs:
        raise RamifyError(
            f"the folder {path} holds no book. Expected folders of Standard Ebooks (src/epub/content.opf), or files in EPUB, "
            "TEI (.xml), Markdown (.md), HTML or plain text (.txt)."
        )
    for file in others:
        counts.leave_out("not_a_book", f"{file}")
    for source in inputs:
        check_inside(source.path, path)
        yield source, path if source.path != path else path.parent


def _name(path: Path, root: Path, given: set[str]) -> str:
    """An id that is still free: the name of the file without its ending, or of the folder, or its path, or with a number."""
    path, root = path.resolve(), root.resolve()
    short = path.name if path.is_dir() else _stem(path)
    long = (path.relative_to(root).parent / short).as_posix() if path.is_relative_to(root) else short
    number = 1
    name = short if short not in given else long
    while name in given:
        number += 1
        name = f"{long} ({number})"
    given.add(name)
    return encodable(name)


# --- kinds of input -------------------------------------------------------------------------------------------------------

_BY_SUFFIX: dict[str, _Read] = {
    ".epub": epub.read,
    **dict.fromkeys(markdown.SUFFIXES, markdown.read),
    **dict.fromkeys(html.SUFFIXES, html.read),
    **dict.fromkeys(gutenberg.SUFFIXES, gutenberg.read),
    **dict.fromkeys(tei.SUFFIXES, tei.read),
}
_COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")


def _of_folder(folder: Path) -> _Input | None:
    """The work that a folder is as a whole, because it holds a package."""
    if standard_ebooks.package_of(folder):
        return _Input(folder, standard_ebooks.read)
    return _Input(folder, epub.read) if (folder / epub.CONTAINER).is_file() else None


def _inputs_in(folder: Path) -> tuple[list[_Input], list[Path]]:
    """The works in a folder, sorted, and the files that belong to none. A folder with a package is one work."""
    if whole := _of_folder(folder):
        return [whole], []
    packages: dict[Path, _Input | None] = {}
    inputs: dict[Path, _Input] = {}
    others: list[Path] = []
    for file in list_files([folder]):
        holder = None
        for parent in reversed([ancestor for ancestor in file.parents if folder in ancestor.parents]):
            if parent not in packages:
                packages[parent] = _of_folder(parent)
            if holder := packages[parent]:
                break
        if holder is not None:
            inputs.setdefault(holder.path, holder)
        elif _suffix(file) in _BY_SUFFIX and not _NO_BOOK(file.name):
            inputs[file] = _Input(file, _BY_SUFFIX[_suffix(file)])
        else:
            others.append(file)
    return list(inputs.values()), others


def _input(path: Path, counts: ReadCounts, plain: bool) -> _Input:
    """The kind of a file: by its first bytes, or by its ending where they leave it open. `plain`: any other is plain text."""
    suffix = _suffix(path)
    if suffix == ".epub":
        return _Input(path, epub.read)
    with open_bytes(path, archives=True) as stream:
        head = stream.read(HEAD_BYTES)
    if epub.is_epub(path, head):
        return _Input(path, epub.read)
    if tei.is_tei(head):
        return _Input(path, tei.read)
    if suffix in _BY_SUFFIX and suffix not in tei.SUFFIXES:
        return _Input(path, _BY_SUFFIX[suffix])
    if html.looks_like_html(head):
        return _Input(path, html.read)
    if plain or gutenberg.is_gutenberg(head):
        return _Input(path, gutenberg.read)
    raise RamifyError(
        f"{path} cannot be read as a book. Expected a folder of Standard Ebooks, or a file in EPUB (.epub), TEI (.xml with "
        "the TEI namespace), Markdown (.md), HTML (.html) or plain text (.txt). Rename or convert it."
    )


def _is_unmistakable(source: _Input) -> bool:
    if source.read in (standard_ebooks.read, epub.read):
        return True
    try:
        with open_bytes(source.path, archives=True) as stream:
            return not refuses(source.path, stream.read(HEAD_BYTES))
    except RamifyError:
        return False


def _suffix(path: Path) -> str:
    """The ending of a file's name, without that of a compression."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() in _COMPRESSIONS else path.suffix.lower()


def _stem(path: Path) -> str:
    name = Path(file_name(path))
    return Path(name.stem).stem if name.suffix.lower() in _COMPRESSIONS else name.stem
