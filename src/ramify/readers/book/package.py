"""OPF packages: the metadata of a book, its files in reading order, and its table of contents."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from ramify.errors import RamifyError
from ramify.readers.book.container import Container, resolve, resolve_target
from ramify.readers.book.outline import Outline, clean_line, without_emphasis
from ramify.readers.book.xhtml import DIVISIONS, LEFT_OUT, RUBY, Page, Target, read_pages
from ramify.readers.markup import MarkupError, XmlParser

_TEXT_TYPES = ("application/xhtml+xml", "text/html", "text/x-oeb1-document", "application/x-dtbncx+xml")
_TYPED_SECTION = re.compile(
    rb"""<(?:section|div|article|body)\b[^>]*\b(?:epub:type|role)\s*=\s*["'][^"']*\b(?:"""
    + "|".join(map(re.escape, DIVISIONS)).encode()
    + rb")\b"
)

Element = tuple[str, Mapping[str, str], str]
"""(name without prefix, attributes without prefixes, text) of an element."""


@dataclass
class Package:
    """The content of an OPF file."""

    meta: dict[str, Any]
    spine: list[str]
    """Names of the files in reading order."""
    kinds: dict[str, str]
    """Name of a file -> its semantic type, as the guide or the landmarks give it."""
    contents: dict[str, dict[str, list[Target]]] = field(default_factory=dict)
    """Name of a file -> id of an element in it ("": its beginning) -> entries of the table of contents."""
    fault: str = ""
    """The reason why the table of contents cannot be read; "" if it can be, or if there is none."""


def read_book(container: Container, package: Package, outline: Outline) -> None:
    """Read the files of the spine into an outline.

    Elements with semantic types divide a book. If it has none, its table of contents does, or else its headings.
    """
    if package.fault:
        outline.counts.repair("bad_xml", package.fault)
    data = {name: container.read(name) for name in dict.fromkeys(package.spine)}
    is_typed = any(_TYPED_SECTION.search(content) for content in data.values())
    listed = [targets for name, targets in package.contents.items() if name in data]
    uses_contents = not is_typed and sum(map(len, listed)) > 1
    pages: list[Page] = []
    for name, content in data.items():
        page = Page(content, name, package.contents.get(name, {}) if uses_contents else {})
        kind = package.kinds.get(name)
        if not is_typed and kind in LEFT_OUT and name not in package.contents:
            page.left_out = LEFT_OUT[kind]
        pages.append(page)
    read_pages(pages, outline)


def read_package(container: Container, name: str) -> Package:
    """Read an OPF file, and the table of contents that it names. Raises `RamifyError` if it cannot be followed."""
    items: dict[str, tuple[str | None, str, str]] = {}
    spine: list[str] = []
    kinds: dict[str, str] = {}
    meta: dict[str, Any] = {}
    sources: list[str] = []
    contents_id = ""

    for tag, attributes, text in elements(container.read(name), container.where(name)):
        if tag == "item":
            items[attributes.get("id", "")] = (
                resolve(name, unquote(attributes.get("href", ""))),
                attributes.get("media-type", ""),
                attributes.get("properties", ""),
            )
        elif tag == "itemref":
            spine.append(attributes.get("idref", ""))
        elif tag == "spine":
            contents_id = attributes.get("toc", "")
        elif tag == "reference":
            if (file := resolve(name, unquote(attributes.get("href", "").partition("#")[0]))) is not None:
                kinds[file] = attributes.get("type", "")
        elif tag in ("title", "language") and text:
            meta.setdefault(tag, text)
        elif tag == "creator" and text and attributes.get("role", "aut") == "aut":
            meta["author"] = f"{meta['author']}, {text}" if "author" in meta else text
        elif tag in ("source", "identifier") and text:
            sources.append(text)
    if source := next((address for address in sources if address.startswith(("http:", "https:"))), next(iter(sources), None)):
        meta["source"] = source
    files: list[str] = []
    for item_id in spine:
        file, media_type, _ = items.get(item_id, (item_id, "", ""))
        if file is None:
            raise RamifyError(
                f"{container.where(name)}: the reading order names the item {item_id!r}, whose file is outside of the book. "
                "Leave this book out."
            )
        if file not in container.names:
            raise RamifyError(
                f"{container.where(name)}: the reading order names the file {file!r}, which is missing. Download the book "
                "again."
            )
        if media_type in _TEXT_TYPES or not media_type:
            files.append(file)
    if not files:
        raise RamifyError(f"{container.where(name)}: the reading order names no text. Download the book again.")
    package = Package(meta, files, kinds)
    navigation = next((href for href, _, properties in items.values() if "nav" in properties.split()), None)
    listing = navigation or items.get(contents_id, (None, "", ""))[0]
    if listing in container.names:
        assert listing is not None
        try:
            (_read_navigation if navigation else _read_ncx)(container, listing, package)
        except RamifyError as error:
            package.contents, package.fault = {}, f"{error}"
    return package


class _Entries:
    """Adds the entries of a table of contents to a package, each to the place that it names.

    An entry that names no place, as the title of a part may, begins where the next entry inside of it begins.
    """

    def __init__(self, package: Package, base: str) -> None:
        self._package, self._base = package, base
        self._waiting: list[Target] = []

    def add(self, target: Target, reference: str) -> None:
        target = Target(target.depth, without_emphasis(target.title))
        self._waiting = [waiting for waiting in self._waiting if waiting.depth < target.depth] + [target]
        if not reference:
            return
        file, fragment = resolve_target(self._base, reference)
        if file is not None:
            self._package.contents.setdefault(file, {}).setdefault(fragment, []).extend(self._waiting)
            self._waiting.clear()


def _read_ncx(container: Container, name: str, package: Package) -> None:
    entries = _Entries(package, name)
    depth = 0
    title = ""
    in_map = is_open = False

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        nonlocal depth, title, in_map, is_open
        if tag == "navMap":
            in_map = True
        elif tag == "navPoint":
            if is_open and clean_line(title):
                entries.add(Target(depth, clean_line(title)), "")
            depth += 1
            title, is_open = "", True
        elif tag == "content" and in_map and is_open:
            entries.add(Target(depth, clean_line(title)), attributes.get("src", ""))
            is_open = False

    def end(tag: str) -> None:
        nonlocal depth, in_map, is_open
        if tag == "navPoint":
            depth -= 1
            is_open = False
        in_map = in_map and tag != "navMap"

    def text(data: str) -> None:
        nonlocal title
        title += data

    parse(container.read(name), container.where(name), start, end, text)


def _read_navigation(container: Container, name: str, package: Package) -> None:
    """Read the navigation file of EPUB 3: lists of links in <nav epub:type="toc">, and types of files in the landmarks."""
    entries = _Entries(package, name)
    listing = href = title = kind = ""
    depth = 0
    # In an entry that has named no place yet.
    is_open = False
    # The number of open elements with readings of words above them.
    readings = 0

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        nonlocal listing, depth, href, title, kind, is_open, readings
        readings += tag in RUBY
        if tag == "nav":
            listing = attributes.get("type", "")
        elif tag == "ol":
            if is_open and listing == "toc" and clean_line(title):
                entries.add(Target(depth, clean_line(title)), "")
            depth += 1
            is_open = False
        elif tag == "li":
            title, is_open = "", True
        elif tag == "a":
            href, title, kind, is_open = attributes.get("href", ""), "", attributes.get("type", ""), True

    def end(tag: str) -> None:
        nonlocal listing, depth, is_open, readings
        readings -= tag in RUBY
        if tag == "nav":
            listing = ""
        elif tag == "ol":
            depth -= 1
        elif tag == "a" and is_open:
            is_open = False
            if listing == "toc":
                entries.add(Target(depth, clean_line(title)), href)
            elif listing == "landmarks" and kind and (file := resolve_target(name, href)[0]) is not None:
                package.kinds.setdefault(file, kind.split()[-1])

    def text(data: str) -> None:
        nonlocal title
        title += "" if readings else data

    parse(container.read(name), container.where(name), start, end, text)


# --- XML ------------------------------------------------------------------------------------------------------------------


def parse(
    data: bytes,
    where: str,
    start: Callable[[str, Mapping[str, str]], None],
    end: Callable[[str], None],
    text: Callable[[str], None],
) -> None:
    """Parse XML with names without prefixes. Raises `RamifyError` if it is not well-formed or is refused."""

    def local(name: str) -> str:
        return name.rpartition(":")[2]

    parser = XmlParser(
        lambda tag, attributes: start(local(tag), {local(key): value for key, value in attributes.items()}),
        lambda tag: end(local(tag)),
        text,
    )
    try:
        parser.feed(data, final=True)
    except MarkupError as error:
        raise RamifyError(f"{where}, line {error.line}: {error}. Expected well-formed XML. Download the book again.") from None


def elements(data: bytes, where: str) -> Sequence[Element]:
    """The elements of a small XML file, each with the text directly in it."""
    parsed: list[list[Any]] = []
    path: list[int] = []

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        path.append(len(parsed))
        parsed.append([tag, attributes, ""])

    def text(data: str) -> None:
        if path:
            parsed[path[-1]][2] += data

    def end(tag: str) -> None:
        path.pop()

    parse(data, where, start, end, text)
    return [(tag, attributes, clean_line(content)) for tag, attributes, content in parsed]
