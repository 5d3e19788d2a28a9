"""XHTML and HTML: elements to divisions and paragraphs. Standard Ebooks, EPUB and HTML files share it."""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from html.entities import html5
from typing import NamedTuple

from ramify.errors import RamifyError
from ramify.readers.base import ReadCounts
from ramify.readers.book.container import resolve_target
from ramify.readers.book.outline import (
    ABOVE,
    BELOW,
    CHAPTER,
    MARK,
    Division,
    Outline,
    clean_line,
    is_note_sign,
    take_mark,
    without_emphasis,
)
from ramify.readers.encodings import decoded_bytewise
from ramify.readers.markup import MAX_ELEMENT_DEPTH, LenientHtmlParser, MarkupError, XmlParser

LEFT_OUT = {
    "titlepage": "titlepage",
    "title-page": "titlepage",
    "halftitlepage": "titlepage",
    "imprint": "imprint",
    "colophon": "colophon",
    "copyright-page": "copyright",
    "cover": "cover",
    "toc": "contents",
    "toc-brief": "contents",
    "landmarks": "contents",
    "page-list": "contents",
    "loi": "contents",
    "lot": "contents",
    "endnotes": "endnotes",
    "rearnotes": "endnotes",
    "footnotes": "footnote",
    "footnote": "footnote",
    "endnote": "endnotes",
    "rearnote": "endnotes",
}
"""Semantic type of an element (or of an entry of an EPUB's guide) -> the reason under which it is left out and counted."""

DIVISIONS = {
    **{name: name for name in ("volume", "part", "division", CHAPTER, "prologue", "epilogue", "preface", "foreword")},
    **{name: name for name in ("introduction", "conclusion", "afterword", "dedication", "epigraph", "appendix", "preamble")},
    **{name: name for name in (*BELOW, "act", "dramatis-personae", "editorial-note")},
}
"""Semantic type of a <section> -> the kind of its division."""

CLASSES_LEFT_OUT = {
    "pg-boilerplate": "licence",
    "pgheader": "licence",
    "pg-header": "licence",
    "pg-footer": "licence",
    "pgfooter": "licence",
    "footnote": "footnote",
    "footnotes": "footnote",
    "toc": "contents",
    "titlepage": "titlepage",
    "title-page": "titlepage",
    "title-block-header": "titlepage",
    **dict.fromkeys(("msofootnotetext", "footnotetext", "footnote-text"), "footnote"),
    **dict.fromkeys(("msoendnotetext", "endnotetext", "endnote-text", "endnote", "endnotes", "rearnotes"), "endnotes"),
}
NOTES = ("footnote", "endnotes")
"""Reasons of notes, whose marks leave the text with them."""
_NOTE_ID = re.compile(r"_?(?:ftn|edn)\d+|(?:fn|footnote)[-_:.]?\d+(?:[-_]\d+)?", re.IGNORECASE).fullmatch
"""Ids of notes in files of word processors, of Pandoc and of Project Gutenberg."""
_BACK_ID = re.compile(r".*(?:ref|anchor)", re.IGNORECASE).match
"""Ids of the marks that such notes point back to."""
_PLAIN_LINK = re.compile(
    rb"""<a\b(?![^>]*\b(?:noteref|backlink|fnanchor)\b)[^>]*\shref\s*=\s*["']?[^"'>\s:]*#""", re.IGNORECASE
)
"""A link into the book that nothing marks as that of a note."""
_BACK_SIGN = re.compile(r"\W*[↩↑⤴⏎←⇑▲]\W*").fullmatch

MARKS = {
    **dict.fromkeys(("noteref", "fnanchor", "fnref", "footnote-ref", "footnoteref", "footnote-reference"), "note_mark"),
    **dict.fromkeys(("backlink", "footnote-back", "footnote-backref", "reversefootnote", "msofootnotereference"), "note_mark"),
    **dict.fromkeys(("pagenum", "pageno"), "page_number"),
}
_VERSE = ("verse", "poem", "song", "hymn", "stanza", "poetry", "linegroup")

_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = (
    {"address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl", "dt", "fieldset"}
    | {"figcaption", "figure", "footer", "form", "header", "hgroup", "hr", "li", "main", "nav", "ol", "p", "pre", "section"}
    | {"summary", "table", "tbody", "tfoot", "thead", "tr", "ul", *_HEADINGS}
)
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"}
_DIVIDING = {"section", "div", "article", "body"}
RUBY = {"rt": "ruby", "rtc": "ruby", "rp": ""}
"""Readings above words, and the brackets around them -> the reason under which they are counted."""
_HIDDEN = {"head", "script", "style", "template", "noscript", "svg", "math", "object", "iframe", "audio", "video"}
# An end tag that is left out: a start tag on the left ends an open element on the right.
_IMPLIED_ENDS = {
    "li": ("li",),
    "dt": ("dt", "dd"),
    "dd": ("dt", "dd"),
    "tr": ("tr",),
    "td": ("td", "th"),
    "th": ("td", "th"),
    **dict.fromkeys(("rt", "rp"), ("rb", "rt", "rp")),
    **dict.fromkeys(("rb", "rtc"), ("rb", "rt", "rp", "rtc")),
}
_HOLDERS = {"ul", "ol", "dl", "table", "ruby"}

_SPACE = re.compile(r"\s+")
_NUMBERED_KIND = re.compile(r"(volume|book|part|act)-\d").match
_WORD = re.compile(r"[^\W_]").search
_PARAGRAPH_ENDS = re.compile(r"\n\s*\n")

HEADING_RANK = 1_000
"""Ranks of headings are above this number. Entries of a table of contents, whose ranks are their depths, come before them."""


class Target(NamedTuple):
    """An entry of a table of contents: its depth and title."""

    depth: int
    title: str


@dataclass
class Page:
    """An entry of the list of a package's files."""

    data: bytes
    place: str = ""
    targets: Mapping[str, Sequence[Target]] = field(default_factory=dict)
    """id of an element, or "" for the beginning of the file -> the entries of the table of contents that point at it."""
    is_html: bool = False
    left_out: str = ""
    """The reason why the whole file is left out; "" if it is read."""


_Place = tuple[str | None, str]
"""The name of a file, and the id of an element in it."""


class _Element:
    """An open element. Inline elements share the properties of the block around them."""

    __slots__ = ("divisions", "heading", "in_group", "is_pre", "is_verse", "link", "tag")

    def __init__(self, tag: str, outer: "_Element | None") -> None:
        self.tag = tag
        self.is_verse = outer is not None and outer.is_verse
        self.is_pre = outer is not None and outer.is_pre
        self.in_group = tag == "hgroup" or (outer is not None and outer.in_group)
        # The rank of the heading that the element is part of; 0 if it is none.
        self.heading = _HEADINGS.get(tag) or (outer.heading if outer is not None else 0)
        # The number of divisions that end with the element.
        self.divisions = 0
        # Of a link to an element: the number of parts of the text before it, where it leads, and whether words are before it.
        self.link: tuple[int, _Place, bool] | None = None


class _Notes:
    """The notes that are left out: the ids of elements in them, and files of notes alone."""

    def __init__(self) -> None:
        self.ids: set[_Place] = set()
        self.files: set[str | None] = set()
        # The ids that begin notes.
        self.starts: set[_Place] = set()
        # Where a mark leads -> the ids at the marks. And blocks: the ids at their beginnings, and where links in them lead.
        self.marks: dict[_Place, set[_Place]] = {}
        self.blocks: list[tuple[list[_Place], _Place | None]] = []

    def hold(self, target: _Place) -> bool:
        return target in self.ids or target[0] in self.files

    def find(self) -> None:
        """Find the notes: blocks that marks lead to, and that lead back to these marks or stand below the title of notes."""
        for ids, back in self.blocks:
            self.starts.update(start for start in ids if start in self.marks and (back is None or back in self.marks[start]))
        self.ids |= self.starts


def read_pages(pages: Sequence[Page], outline: Outline) -> None:
    """Read the files of a book into its outline, one after the other.

    Links to notes may come before them, so a book with links that nothing marks is first read for the ids of its notes alone.
    """
    notes = _Notes()
    notes.files.update(page.place for page in pages if page.left_out in NOTES)
    if any(_PLAIN_LINK.search(page.data) for page in pages):
        first = Outline(ReadCounts(), outline.where)
        first.headings = outline.headings
        for page in pages:
            if not page.left_out:
                _read_page(page, first, {}, notes)
        notes.find()
    by_id: dict[str, Division] = {}
    for page in pages:
        if page.left_out:
            outline.skip(page.left_out, page.place)
        else:
            _read_page(page, outline, by_id, notes)


def _read_page(page: Page, outline: Outline, by_id: dict[str, Division], notes: _Notes) -> None:
    """Read XHTML, or HTML. XHTML that is not well-formed is counted and read as HTML."""
    if not page.is_html:
        try:
            # Parsed twice, because an outline cannot take back a part of a file.
            XmlParser(_ignore, entity=_ignore).feed(page.data, final=True)
        except MarkupError as error:
            where = f"{outline.where}{page.place and ', ' + page.place}, line {error.line}"
            outline.counts.repair("bad_xml", f"{where}: {error}")
        else:
            events = _Events(outline, page, by_id, notes)
            XmlParser(events.start, events.end, events.text, events.entity).feed(page.data, final=True)
            events.finish()
            return
    _read_html(page, outline, by_id, notes)


def _read_html(page: Page, outline: Outline, by_id: dict[str, Division], notes: _Notes) -> None:
    """Raises `RamifyError` if elements are nested too deeply."""
    html, bad_line = decode_html(page.data)
    where = f"{outline.where}{page.place and ', ' + page.place}"
    if bad_line:
        outline.counts.repair("encoding", f"{where}, line {bad_line}")
    events = _Events(outline, page, by_id, notes)
    parser = _Html(events)
    try:
        parser.feed(_SUBSET.sub("", html, count=1))
        parser.close()
    except MarkupError as error:
        raise RamifyError(f"{where}, line {parser.getpos()[0]}: {error}. Remove the tags that are never closed.") from None
    events.finish()


def _ignore(*_: object) -> None:
    pass


_MARKS_OF_ENCODING = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_CHARSET = re.compile(rb"""<(?:meta\b[^>]+charset|\?xml\b[^>]+encoding)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)


_SUBSET = re.compile(r"<!DOCTYPE\b[^<>\[]*\[.*?\]\s*>", re.IGNORECASE | re.DOTALL)
"""A document type with definitions, which HTML does not have."""


def decode_html(data: bytes) -> tuple[str, int]:
    """Decode HTML by its byte order mark or declaration, or else as UTF-8, in which other bytes are read as Windows-1252.

    Also returns the number of the first line with such bytes; 0 if there is none.
    """
    for mark, encoding in _MARKS_OF_ENCODING.items():
        if data.startswith(mark):
            return data.decode(encoding, "replace"), 0
    declared = _CHARSET.search(data[:4096])
    if declared:
        try:
            return data.decode(declared[1].decode("ascii")), 0
        except (LookupError, ValueError):
            pass
    try:
        return data.decode(), 0
    except UnicodeDecodeError as error:
        return decoded_bytewise(data), data.count(b"\n", 0, error.start) + 1


class _Html(LenientHtmlParser):
    """Calls the events of HTML, in which end tags may be missing."""

    def __init__(self, events: "_Events") -> None:
        super().__init__()
        self._events = events

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._events.imply_ends(tag)
        self._events.start(tag, {name: value or "" for name, value in attrs})
        if tag in _VOID:
            self._events.end(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self._events.end(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            self._events.end(tag)

    def handle_data(self, data: str) -> None:
        self._events.text(data)


class _Events:
    """Turns the events of a parser into divisions and paragraphs."""

    def __init__(self, outline: Outline, page: Page, by_id: dict[str, Division], notes: _Notes) -> None:
        self._outline = outline
        self._page = page
        self._by_id = by_id
        self._notes = notes
        self._stack: list[_Element] = []
        # The height of the stack at the element that is left out with everything in it; 0 if there is none.
        self._left_out = 0
        # Whether that element is a note.
        self._in_note = False
        # The ids of elements since the last word outside of links, and those at the beginning of the block.
        self._near: list[_Place] = []
        self._begun: list[_Place] = []
        self._has_words = False
        # Whether the last heading is the title of notes.
        self._in_notes = False
        self._parts: list[str] = []
        self._page_title = ""
        # The first division of the file, which may take the title of the page.
        self._first: Division | None = None
        # The division that the table of contents has named, and the one that the open <hgroup> names.
        self._listed: Division | None = None
        self._grouped: Division | None = None
        self._reach("")

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        tag = tag.rpartition(":")[2].lower()
        outer = self._stack[-1] if self._stack else None
        element = _Element(tag, outer)
        self._stack.append(element)
        if len(self._stack) > MAX_ELEMENT_DEPTH:
            raise MarkupError(f"elements nested deeper than {MAX_ELEMENT_DEPTH:,}", 1, 0)
        if self._left_out:
            if self._in_note and attributes:
                self._add_note(attributes)
            return
        if tag in _BLOCKS:
            self._flush(outer)
        if attributes and self._start_with(element, attributes):
            return
        if tag in _HIDDEN:
            self._left_out = len(self._stack)
        elif tag in RUBY:
            self._left_out = len(self._stack)
            self._outline.counts.repair(RUBY[tag], self._where, bool(RUBY[tag]))
        elif tag == "pre":
            element.is_pre = element.is_verse = True
        elif tag == "br":
            self._parts.append("\n")
        elif tag in ("td", "th"):
            self._parts.append(" ")
        elif tag == "hr":
            self._outline.skip("scene_break", self._page.place)
        elif tag == "img":
            self._outline.skip("picture", self._page.place)
        elif tag == "hgroup":
            self._grouped = None

    def _start_with(self, element: _Element, attributes: Mapping[str, str]) -> bool:
        """Apply the attributes of an element. Returns whether it is left out."""
        identifier = attributes.get("id") or attributes.get("name", "")
        if identifier:
            self._reach(identifier)
            self._near.append((self._page.place, identifier))
        semantic = f"{attributes.get('epub:type', '')} {attributes.get('role', '').replace('doc-', ' ')}"
        types = [name.rpartition(":")[2] for name in semantic.split()]
        classes = attributes.get("class", "").lower().split()
        reference = attributes.get("href", "") if element.tag == "a" else ""
        target = resolve_target(self._page.place, reference) if "#" in reference else None
        if self._leaves_out(element.tag, types, classes, identifier) or (
            identifier and self._leaves_out_note(identifier, reference)
        ):
            if target is not None and self._parts[-1:] == [MARK]:
                self._notes.marks.setdefault(target, set()).update(self._near)
            self._add_note(attributes)
            return True
        if any(part in name for name in (*types, *classes) for part in _VERSE):
            element.is_verse = True
        if types and element.tag in _DIVIDING:
            self._begin_division(element, types, attributes)
        if target is not None:
            element.link = (len(self._parts), target, self._has_words)
        return False

    def end(self, tag: str) -> None:
        """End an element and those inside of it. A tag that ends no element is ignored."""
        tag = tag.rpartition(":")[2].lower()
        for place in range(len(self._stack) - 1, -1, -1):
            if self._stack[place].tag == tag:
                self._end_elements(place)
                break

    def text(self, data: str) -> None:
        if self._left_out:
            if self._stack[-1].tag == "title" and len(self._stack) > 1 and self._stack[-2].tag == "head":
                self._page_title += data
        elif self._stack and self._stack[-1].is_pre:
            self._parts.append(data)
        elif self._stack and self._stack[-1].tag == "ruby" and data.isspace():
            return
        else:
            if (self._near or not self._has_words) and _WORD(data):
                if not any(element.link for element in self._stack):
                    self._begun = self._begun if self._has_words else self._near
                    self._near = []
                self._has_words = True
            self._parts.append(_SPACE.sub(" ", data))

    def entity(self, name: str) -> None:
        """An entity without a definition: one that HTML defines, or an unknown one, which stays as it is written."""
        if f"{name};" not in html5:
            self._outline.counts.repair("unknown_entity", f"{self._where}: &{name};")
        self.text(html5.get(f"{name};", f"&{name};"))

    def imply_ends(self, tag: str) -> None:
        """End the elements that HTML ends when another one starts."""
        if tag in _BLOCKS:
            self._end_open(("p",), _BLOCKS)
        if tag in _IMPLIED_ENDS:
            self._end_open(_IMPLIED_ENDS[tag], _HOLDERS)

    def finish(self) -> None:
        self._end_elements(0)
        self._flush(None)
        if self._first is not None and not self._first.title:
            self._first.title = clean_line(self._page_title)

    @property
    def _where(self) -> str:
        return f"{self._outline.where}{self._page.place and ', ' + self._page.place}"

    # --- elements -------------------------------------------------------------------------------------------------------

    def _end_open(self, tags: Container[str], until: Container[str]) -> None:
        """End the open elements of these tags, up to the nearest one of `until`."""
        ended = None
        for place in range(len(self._stack) - 1, -1, -1):
            if self._stack[place].tag in tags:
                ended = place
            elif self._stack[place].tag in until:
                break
        if ended is not None:
            self._end_elements(ended)

    def _end_elements(self, place: int) -> None:
        """End all elements from a place in the stack on."""
        while len(self._stack) > place:
            element = self._stack[-1]
            if self._left_out:
                if self._left_out == len(self._stack):
                    self._left_out = 0
                    self._in_note = False
            elif element.tag in _BLOCKS:
                self._flush(element)
            elif element.link is not None:
                self._end_link(*element.link)
            for _ in range(element.divisions):
                self._outline.end()
            self._stack.pop()

    def _leaves_out(self, tag: str, types: Sequence[str], classes: Sequence[str], identifier: str) -> bool:
        for name in (*types, *classes):
            if name in MARKS:
                self._outline.counts.repair(MARKS[name], self._where)
                self._parts.append(MARK)
                self._left_out = len(self._stack)
                return True
        reason = next((LEFT_OUT[name] for name in types if name in LEFT_OUT), None) or next(
            (CLASSES_LEFT_OUT[name] for name in (*classes, identifier) if name in CLASSES_LEFT_OUT), None
        )
        if reason is None and identifier and _NOTE_ID(identifier):
            reason = "footnote"
        if reason is None or tag not in _BLOCKS:
            return False
        self._outline.skip(reason, self._page.place)
        self._left_out = len(self._stack)
        self._in_note = reason in NOTES
        return True

    def _leaves_out_note(self, identifier: str, reference: str) -> bool:
        """Leave out the block that the id of a note begins, or an anchor of a note that points back to its mark."""
        is_note = (_NOTE_ID(identifier) and _BACK_ID(reference.partition("#")[2])) or (
            (self._page.place, identifier) in self._notes.starts
        )
        if not is_note or "".join(self._parts).strip():
            return False
        block = next((height for height in range(len(self._stack), 0, -1) if self._stack[height - 1].tag in _BLOCKS), None)
        if block is None or self._stack[block - 1].heading:
            return False
        self._parts.clear()
        self._outline.skip("footnote", self._page.place)
        self._left_out, self._in_note = block, True
        return True

    def _add_note(self, attributes: Mapping[str, str]) -> None:
        """Record the ids of an element inside of a note."""
        if self._in_note:
            self._notes.ids.update((self._page.place, attributes[name]) for name in ("id", "name") if name in attributes)

    def _end_link(self, start: int, target: _Place, is_inside: bool) -> None:
        """Leave out the text of a link if it is the mark of a note that is left out, or leads back from a note."""
        text = "".join(self._parts[start:])
        leads_back = _BACK_SIGN(text)
        if leads_back or is_note_sign(text):
            if not is_inside:
                self._begun = self._near
            if leads_back or not is_inside:
                self._notes.blocks.append((self._begun, target))
            else:
                self._notes.marks.setdefault(target, set()).update(self._near)
        is_mark = leads_back or self._notes.hold(target)
        if is_mark and start <= len(self._parts) and take_mark(self._parts, start):
            self._outline.counts.repair("note_mark", self._where)

    def _begin_division(self, element: _Element, types: Sequence[str], attributes: Mapping[str, str]) -> None:
        kind = next((DIVISIONS[name] for name in types if name in DIVISIONS), None)
        if kind is None:
            return
        identifier = attributes.get("id", "")
        if kind in ABOVE and (numbered := _NUMBERED_KIND(identifier)):
            kind = numbered[1]
        holder = self._by_id.get(attributes.get("data-parent", ""))
        if holder is not None:
            self._outline.resume(holder)
            element.divisions += 1
        known = self._by_id.get(identifier) if identifier else None
        if known is not None and known.kind == kind and kind in ABOVE:
            # Each file of a part may repeat the element of the part.
            self._outline.resume(known)
        else:
            division = self._outline.begin(kind)
            self._first = self._first or division
            if identifier:
                self._by_id[identifier] = division
        element.divisions += 1

    def _reach(self, identifier: str) -> None:
        """Begin the divisions that the table of contents says begin at an element."""
        for target in self._page.targets.get(identifier, ()):
            self._outline.heading(target.depth, target.title)
            self._listed = self._outline.innermost

    # --- text -----------------------------------------------------------------------------------------------------------

    def _flush(self, block: _Element | None) -> None:
        """Add the text of a block to the outline, up to an element that begins or ends."""
        if not self._parts:
            return
        text = "".join(self._parts)
        self._parts.clear()
        if not text or text.isspace():
            return
        begun, self._begun, self._near, self._has_words = self._begun, [], [], False
        if block is not None and (block.heading or block.in_group):
            if title := without_emphasis(clean_line(text)):
                self._heading(title, block, MARK in text)
                self._in_notes = self._outline.headings.is_notes(title)
            return
        if self._in_notes:
            self._notes.blocks.append((begun, None))
        if block is not None and block.is_verse:
            self._outline.paragraph(text, is_verse=True)
        else:
            for part in _PARAGRAPH_ENDS.split(text):
                self._outline.paragraph(part)

    def _heading(self, text: str, block: _Element, had_mark: bool) -> None:
        division = self._outline.innermost
        is_new = not division.content and division is not self._outline.root
        if is_new and division is self._listed:
            listed = division.title.casefold()
            # The table of contents may repeat the mark of a note.
            is_marked = had_mark and listed.startswith(text.casefold()) and is_note_sign(listed[len(text) :])
            if text.casefold() in listed and not is_marked:
                return
            if listed in text.casefold() or is_marked:
                division.title = text
                return
        if is_new and (division is self._grouped or (division.rank is None and not division.title)):
            self._outline.entitle(text)
        else:
            self._outline.heading(HEADING_RANK + (block.heading or 1), text)
        if block.in_group:
            self._grouped = self._outline.innermost
