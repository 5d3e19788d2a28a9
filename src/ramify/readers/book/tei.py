"""TEI (P4 and P5): <div>, <p>, <lg> and <l>. Each <TEI> of a corpus is a document."""

import re
from collections.abc import Iterator, Mapping
from html.entities import html5
from pathlib import Path

from ramify.errors import RamifyError
from ramify.readers.base import ReadCounts
from ramify.readers.book.container import read_whole
from ramify.readers.book.outline import Outline, Work, clean_line, kind_of
from ramify.readers.book.xhtml import DIVISIONS
from ramify.readers.markup import MarkupError, XmlParser

SUFFIXES = (".xml", ".tei")
NAMESPACE = b"http://www.tei-c.org/ns/1.0"

_ROOTS = ("TEI", "TEI.2")
_DIVISION = re.compile(r"div[0-7]?").fullmatch
_BLOCKS = (
    {"ab", "argument", "back", "bibl", "body", "byline", "castItem", "cit", "closer", "dateline", "docAuthor", "docDate"}
    | {"docImprint", "docTitle", "epigraph", "floatingText", "front", "group", "head", "imprimatur", "item", "l", "label", "lg"}
    | {
        "list",
        "opener",
        "p",
        "postscript",
        "quote",
        "row",
        "salute",
        "signed",
        "sp",
        "speaker",
        "stage",
        "table",
        "text",
        "trailer",
    }
)
# Inside a paragraph, these are part of its text.
_INLINE_TOO = {"bibl", "cit", "label", "quote", "stage"}
LEFT_OUT = {"note": "footnote", "titlePage": "titlepage", "figDesc": "picture", "figure": "picture", "divGen": "contents"}
_READINGS = {"sic", "orig", "abbr"}
"""Readings inside of <choice> that another one replaces."""
_SPACE = re.compile(r"\s+")
_KINDS = {*DIVISIONS, "book", "letter", "canto", "stave"}
_PARAGRAPHS = {"p", "ab", "l", "head"}


def is_tei(head: bytes) -> bool:
    return (NAMESPACE in head and b"<TEI" in head) or b"<TEI.2" in head


def read(path: Path, counts: ReadCounts, name: str) -> Iterator[Work]:
    """Yield the documents of a file. `name` becomes the id of the first one, and "name/2" of the second."""
    data = read_whole(path, counts)
    events = _Events(path, counts, name)
    try:
        events.parser.feed(data, final=True)
    except MarkupError as error:
        raise RamifyError(f"{path}, line {error.line}: {error}. Expected well-formed TEI. Repair the file.") from None
    if not events.works:
        raise RamifyError(f"{path} holds no <TEI> element. Name its format with --format.")
    yield from events.works


class _Element:
    __slots__ = ("is_block", "is_division", "tag")

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.is_block = self.is_division = False


class _Events:
    """Turns the events of a parser into works."""

    def __init__(self, path: Path, counts: ReadCounts, name: str) -> None:
        self.works: list[Work] = []
        self.parser = XmlParser(self.start, self.end, self.text, self.entity)
        self._path, self._counts, self._name = path, counts, name
        self._stack: list[_Element] = []
        self._work: Work | None = None
        # The height of the stack at the element that is left out with everything in it; 0 if there is none.
        self._left_out = 0
        self._in_header = False
        self._field = ""
        self._parts: list[str] = []
        self._is_verse = False
        self._numbers: list[str] = []

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        tag = tag.rpartition(":")[2]
        outer = self._stack[-1].tag if self._stack else ""
        element = _Element(tag)
        self._stack.append(element)
        if tag in _ROOTS and self._work is None:
            self._begin_work(attributes)
        if self._left_out or self._work is None:
            return
        if self._in_header or tag == "teiHeader":
            self._in_header = True
            self._start_in_header(tag, attributes)
            return
        outline = self._work.outline
        if tag == "text" and attributes.get("xml:lang"):
            self._work.meta.setdefault("language", attributes["xml:lang"])
        if tag in LEFT_OUT or tag == "fw" or (outer == "choice" and tag in _READINGS) or (outer == "app" and tag == "rdg"):
            self._left_out = len(self._stack)
            if tag in LEFT_OUT:
                outline.skip(LEFT_OUT[tag], self._place)
            elif tag == "fw":
                outline.counts.repair("page_number", f"{outline.where}, {self._place}")
            else:
                outline.counts.repair("alternative", f"{outline.where}, {self._place}")
            return
        element.is_division = bool(_DIVISION(tag))
        element.is_block = element.is_division or (
            tag in _BLOCKS and not (tag in _INLINE_TOO and any(ancestor.tag in _PARAGRAPHS for ancestor in self._stack[:-1]))
        )
        if tag == "l":
            self._is_verse = True
        elif element.is_block:
            self._flush(outer)
        if element.is_division:
            kind = attributes.get("type", "").lower()
            kind = kind if kind in _KINDS else ""
            outline.begin(kind)
            number = attributes.get("n", "")
            self._numbers.append(f"{kind} {number}".strip() if number else "")
        elif tag == "cell" or (tag == "lb" and attributes.get("break") != "no"):
            self._parts.append(" ")
        elif tag == "gap":
            outline.counts.repair("gap", f"{outline.where}, {self._place}")

    def end(self, tag: str) -> None:
        element = self._stack[-1]
        if self._left_out:
            if self._left_out == len(self._stack):
                self._left_out = 0
        elif element.tag == "teiHeader" and self._work is not None:
            self._in_header = False
            self._work.meta = {key: text for key, value in self._work.meta.items() if (text := clean_line(str(value)))}
        elif self._in_header:
            self._field = ""
        elif self._work is not None:
            if element.tag == "l":
                self._parts.append("\n")
            elif element.is_block:
                self._flush(element.tag)
            if element.is_division:
                number = self._numbers.pop()
                division = self._work.outline.innermost
                division.kind = division.kind or kind_of(division.title)
                division.title = division.title or number
                self._work.outline.end()
        self._stack.pop()
        if element.tag in _ROOTS and not any(ancestor.tag in _ROOTS for ancestor in self._stack):
            self._work = None

    def text(self, data: str) -> None:
        if self._left_out or self._work is None:
            return
        if not self._in_header:
            self._parts.append(_SPACE.sub(" ", data))
        elif self._field:
            self._work.meta[self._field] = f"{self._work.meta.get(self._field, '')}{data}"

    def entity(self, name: str) -> None:
        """An entity without a definition: one that HTML defines, or an unknown one, which stays as it is written."""
        if f"{name};" not in html5:
            self._counts.repair("unknown_entity", f"{self._path}, {self._place}: &{name};")
        self.text(html5.get(f"{name};", f"&{name};"))

    @property
    def _place(self) -> str:
        return f"line {self.parser.line}"

    def _begin_work(self, attributes: Mapping[str, str]) -> None:
        name = f"{self._name}/{len(self.works) + 1}" if self.works else self._name
        meta = {"language": attributes["xml:lang"]} if attributes.get("xml:lang") else {}
        self._work = Work(name, f"{self._path}", Outline(self._counts, f"{self._path}"), meta)
        self.works.append(self._work)

    def _start_in_header(self, tag: str, attributes: Mapping[str, str]) -> None:
        assert self._work is not None
        holders = {opened.tag for opened in self._stack}
        self._field = ""
        if (tag in ("title", "author") and "titleStmt" in holders) or (tag == "idno" and "publicationStmt" in holders):
            name = "source" if tag == "idno" else tag
            self._field = "" if name in self._work.meta else name
        elif tag == "language" and attributes.get("ident"):
            self._work.meta.setdefault("language", attributes["ident"])

    def _flush(self, block: str) -> None:
        """Add the text of a block to the outline, up to an element that begins or ends."""
        text, is_verse = "".join(self._parts), self._is_verse
        self._parts.clear()
        self._is_verse = False
        if not text.strip() or self._work is None:
            return
        outline = self._work.outline
        division = outline.innermost
        if block == "head" and division is not outline.root and not division.content:
            outline.entitle(text)
        else:
            outline.paragraph(text, is_verse)
