"""TEI (P4 and P5): <div>, <p>, <lg>, <l> and <sp>. Each <TEI> of a corpus is a document."""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.entities import html5
from pathlib import Path

from ramify.errors import RamifyError
from ramify.readers.base import ReadCounts
from ramify.readers.book.container import read_whole
from ramify.readers.book.outline import Outline, Work, clean_line, take_mark
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
        "table",
        "text",
        "trailer",
    }
)
# Inside a paragraph, these are part of its text.
_INLINE_TOO = {"bibl", "cit", "label", "quote"}
LEFT_OUT = {
    "note": "footnote", "titlePage": "titlepage", "figDesc": "picture", "figure": "picture", "divGen": "contents",
    "stage": "stage_direction", "castList": "front_matter", "set": "front_matter", "desc": "front_matter",
}  # fmt: skip
REMOVED = {"fw": "page_number", "del": "deletion"}
"""Elements inside of paragraphs that are removed from their texts, which are repaired by that."""
_REPLACED = {"sic", "orig", "abbr"}
"""Readings inside of <choice> that another one replaces."""
_VARIANTS = {"lem", "rdg", "rdgGrp"}
"""Readings inside of <app>, of which the first is kept."""
_ALTERNATIVES = {"choice", "app", "rdgGrp", "subst"}
_PERSONS = {"person", "personGrp", "persName", "role"}
_BREAKS = {"lb", "pb", "cb", "gb", "milestone"}
_BEHIND_SPEAKERS = " .:,;—–-"
_DIRECTION = re.compile(r"\s*(?:\([^()]*\)|\[[^\[\]]*\])")
_NOTE_ID = re.compile(rb"""<note\b[^>]*?\s(?:xml:)?id\s*=\s*["']([^"']+)""")
_HYPHENS = "-‐¬⸗\xad"
_BREAK_IN_WORD = re.compile(rf"\s*[{_HYPHENS}]?\s*\f\s*")
_LINE_BREAK = re.compile(rf"(?:(?<=[^\W\d_])[{_HYPHENS}]\v\s*(?=(?P<next>[^\W\d_])))|\v")
_SPACE = re.compile(r"\s+")
_KINDS = {*DIVISIONS, "book", "letter", "canto", "stave"}
_PARAGRAPHS = {"p", "ab", "l", "head"}


def is_tei(head: bytes) -> bool:
    return (NAMESPACE in head and b"<TEI" in head) or b"<TEI.2" in head


def read(path: Path, counts: ReadCounts, name: str, language: str = "") -> Iterator[Work]:
    """Yield the documents of a file. `name` becomes the id of the first one, and "name/2" of the second."""
    data = read_whole(path, counts)
    events = _Events(path, counts, name, language, {found.decode("utf-8", "replace") for found in _NOTE_ID.findall(data)})
    try:
        events.parser.feed(data, final=True)
    except MarkupError as error:
        raise RamifyError(f"{path}, line {error.line}: {error}. Expected well-formed TEI. Repair the file.") from None
    if not events.works:
        raise RamifyError(f"{path} holds no <TEI> element. Name its format with --format.")
    yield from events.works


class _Element:
    __slots__ = ("is_block", "is_division", "mark", "readings", "tag")

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.is_block = self.is_division = False
        # The number of parts of the text before the link to a note.
        self.mark: int | None = None
        # Of an element with alternatives: the tag of each, and the number of parts of the text before it.
        self.readings: list[tuple[str, int]] = []


@dataclass
class _Speech:
    """An open <sp>. `who` holds the ids of the speakers."""

    who: tuple[str, ...]
    speakers: list[str] = field(default_factory=list)
    has_text: bool = False


class _Events:
    """Turns the events of a parser into works."""

    def __init__(self, path: Path, counts: ReadCounts, name: str, language: str, notes: Container[str]) -> None:
        self.works: list[Work] = []
        self.parser = XmlParser(self.start, self.end, self.text, self.entity)
        self._path, self._counts, self._name, self._language = path, counts, name, language
        self._notes = notes
        self._stack: list[_Element] = []
        self._work: Work | None = None
        # The height of the stack at the element that is left out with everything in it; 0 if there is none.
        self._left_out = 0
        self._in_header = False
        self._field = ""
        self._parts: list[str] = []
        self._is_verse = False
        self._numbers: list[str] = []
        self._speech: _Speech | None = None
        # id of a person -> name
        self._names: dict[str, str] = {}
        # id of a person -> author of what the person says alone
        self._authors: dict[str, str] = {}
        # The id of the person in whose entry the parser is, and of the one whose name it reads.
        self._person = self._named = ""

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        tag = tag.rpartition(":")[2]
        outer = self._stack[-1] if self._stack else _Element("")
        element = _Element(tag)
        self._stack.append(element)
        if tag in _ROOTS and self._work is None:
            self._begin_work(attributes)
        if tag in _PERSONS:
            self._begin_name(tag, _id(attributes))
        if self._left_out or self._work is None:
            return
        if self._in_header or tag == "teiHeader":
            self._in_header = True
            self._start_in_header(tag, attributes)
            return
        outline = self._work.outline
        if tag == "text" and (language := _language(attributes)):
            self._work.meta["language"] = language
            outline.speaks(self._language or language)
        if self._leaves_out(tag, outer):
            self._left_out = len(self._stack)
            return
        element.is_division = bool(_DIVISION(tag))
        element.is_block = element.is_division or (
            tag in _BLOCKS and not (tag in _INLINE_TOO and any(ancestor.tag in _PARAGRAPHS for ancestor in self._stack[:-1]))
        )
        if outer.tag in _ALTERNATIVES:
            outer.readings.append((tag, len(self._parts)))
        if tag == "l":
            self._is_verse = True
        elif element.is_block:
            self._flush(outer.tag)
        if element.is_division:
            kind = attributes.get("type", "").lower()
            kind = kind if kind in _KINDS else ""
            outline.begin(kind)
            number = attributes.get("n", "")
            self._numbers.append(f"{kind} {number}".strip() if number else "")
        elif tag == "sp":
            self._speech = _Speech(tuple(name.removeprefix("#") for name in attributes.get("who", "").split()))
        elif tag == "ref" and any(target.removeprefix("#") in self._notes for target in attributes.get("target", "").split()):
            element.mark = len(self._parts)
        elif tag == "gap":
            outline.counts.repair("gap", f"{outline.where}, {self._place}")
            self._left_out = len(self._stack)
        else:
            self._parts.append(_gap_at(tag, attributes))

    def end(self, tag: str) -> None:
        element = self._stack[-1]
        if element.tag in _PERSONS:
            self._named = ""
            self._person = self._person if element.tag == "persName" else ""
        if self._left_out:
            if self._left_out == len(self._stack):
                self._left_out = 0
        elif element.tag == "teiHeader" and self._work is not None:
            self._in_header = False
            self._work.meta = {key: text for key, value in self._work.meta.items() if (text := clean_line(str(value)))}
            self._work.outline.speaks(self._language or self._work.meta.get("language", ""))
        elif self._in_header:
            self._field = ""
        elif self._work is not None:
            self._end_in_text(element, self._work.outline)
        self._stack.pop()
        if element.tag in _ROOTS and not any(ancestor.tag in _ROOTS for ancestor in self._stack):
            self._work = None

    def text(self, data: str) -> None:
        if self._named:
            self._names[self._named] = f"{self._names.get(self._named, '')}{data}"
        if self._left_out or self._work is None:
            return
        if self._in_header:
            if self._field:
                self._work.meta[self._field] = f"{self._work.meta.get(self._field, '')}{data}"
        elif not (self._stack[-1].tag in _ALTERNATIVES and data.isspace()):
            self._parts.append(_SPACE.sub(" ", data))

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
        meta = {"language": language} if (language := _language(attributes)) else {}
        self._work = Work(name, f"{self._path}", Outline(self._counts, f"{self._path}", self._language), meta)
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

    def _leaves_out(self, tag: str, outer: _Element) -> bool:
        """Whether an element is left out with everything in it. It is counted."""
        assert self._work is not None
        outline = self._work.outline
        if tag in LEFT_OUT:
            outline.skip(LEFT_OUT[tag], self._place)
        elif tag in REMOVED and outer.tag != "restore":
            outline.counts.repair(REMOVED[tag], f"{outline.where}, {self._place}")
        elif tag in _VARIANTS and outer.readings:
            outline.counts.repair("alternative", f"{outline.where}, {self._place}")
        else:
            return False
        return True

    def _end_in_text(self, element: _Element, outline: Outline) -> None:
        if element.tag == "l":
            self._parts.append("\n")
        elif element.tag == "choice" and element.readings:
            self._choose(element.readings)
        elif element.mark is not None and take_mark(self._parts, element.mark):
            outline.counts.repair("note_mark", f"{outline.where}, {self._place}")
        elif element.tag == "speaker" and self._speech is not None:
            name, directions = _DIRECTION.subn("", clean_line("".join(self._parts)))
            outline.skip("stage_direction", self._place, directions)
            self._speech.speakers.append(name.rstrip(_BEHIND_SPEAKERS))
            self._parts.clear()
        elif element.is_block:
            self._flush(element.tag)
        if element.tag == "sp" and self._speech is not None:
            if not self._speech.has_text:
                outline.skip("empty_division", f"{self._place}: <sp>")
            self._speech = None
        if element.is_division:
            number = self._numbers.pop()
            division = outline.innermost
            division.kind = division.kind or outline.kind_of(division.title)
            division.title = division.title or number
            outline.end()

    def _choose(self, readings: Sequence[tuple[str, int]]) -> None:
        """Keep one of the readings in <choice>, which are at the end of the text."""
        assert self._work is not None
        chosen = next((place for place, (tag, _) in enumerate(readings) if tag not in _REPLACED), 0)
        places = [place for _, place in readings] + [len(self._parts)]
        self._parts[places[0] :] = self._parts[places[chosen] : places[chosen + 1]]
        self._counts.repair("alternative", f"{self._path}, {self._place}", len(readings) - 1)

    # --- speakers -------------------------------------------------------------------------------------------------------

    def _begin_name(self, tag: str, identifier: str) -> None:
        """Begin the name of a person in the header, or of a role in the list of persons."""
        if tag != "persName":
            self._person = identifier
        if tag in ("persName", "role") and self._person not in self._names:
            self._named = self._person

    def _author(self, speech: _Speech) -> str | None:
        """The speakers as the text names them, or else as the lists of persons do. A person keeps the first name."""
        speakers = [speaker for speaker in speech.speakers if speaker]
        if len(speech.who) == 1 and len(speakers) <= 1:
            (person,) = speech.who
            own = speakers[0] if speakers else clean_line(self._names.get(person, "")) or person
            return self._authors.setdefault(person, own)
        known = (self._authors.get(person) or clean_line(self._names.get(person, "")) or person for person in speech.who)
        return ", ".join(speakers or known) or None

    def _flush(self, block: str) -> None:
        """Add the text of a block to the outline, up to an element that begins or ends."""
        text, is_verse = _LINE_BREAK.sub(_joined, _BREAK_IN_WORD.sub("", "".join(self._parts))), self._is_verse
        self._parts.clear()
        self._is_verse = False
        if not text.strip() or self._work is None:
            return
        outline = self._work.outline
        division = outline.innermost
        if block == "head" and division is not outline.root and not division.content:
            outline.entitle(text)
            return
        author = None
        if self._speech is not None:
            self._speech.has_text = True
            author = self._author(self._speech)
        outline.paragraph(text, is_verse, author)


def _id(attributes: Mapping[str, str]) -> str:
    return attributes.get("xml:id") or attributes.get("id", "")


def _language(attributes: Mapping[str, str]) -> str:
    return attributes.get("xml:lang") or attributes.get("lang", "")


def _gap_at(tag: str, attributes: Mapping[str, str]) -> str:
    """The white space in place of an element, which tells line ends apart, and breaks inside of words."""
    if tag in _BREAKS and attributes.get("break") == "no":
        return "\f"
    return "\v" if tag == "lb" else " " if tag == "cell" else ""


def _joined(line_end: re.Match[str]) -> str:
    """A line end is a space, but a word that is divided there is one word: "Ver-" and "stand", "Anglo-" and "Saxon"."""
    if not line_end["next"]:
        return " "
    return "" if line_end["next"].islower() else line_end[0][0]
