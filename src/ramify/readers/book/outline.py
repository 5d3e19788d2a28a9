"""The common form of all books between file and tree: divisions with titles, and paragraphs, in reading order."""

import re
from dataclasses import dataclass, field
from typing import Any

from ramify.readers.base import ReadCounts
from ramify.readers.book.headings import headings
from ramify.readers.languages import code_of, codes_of

CHAPTER = "chapter"
ABOVE = ("volume", "book", "part", "division", "act")
"""Kinds of divisions that hold chapters. One that holds none is a chapter."""
BELOW = ("section", "subsection", "subchapter", "scene")
"""Kinds of divisions inside a chapter. One outside of all chapters is a chapter."""

_INVISIBLE = re.compile("[\u2060\u200b\ufeff\u00ad]")
_SPACE = re.compile(r"[^\S\n]+")
_LINE_ENDS = re.compile(r" *\n+ *")
_BREAK = re.compile(r"[\s*·•_~#—–-]+").fullmatch


@dataclass
class Paragraph:
    """A block of text. The lines of verse are separated by "\\n"; so are lines that the source breaks."""

    text: str
    is_verse: bool = False
    author: str | None = None
    """The speaker, in a play."""


@dataclass(eq=False)
class Division:
    """A part of a work. `kind` is the name of its level in singular; "" if the source does not say."""

    kind: str = ""
    title: str = ""
    content: list["Division | Paragraph"] = field(default_factory=list)
    rank: int | None = None
    """The rank of the heading that begins the division; None if `end` ends it."""

    @property
    def divisions(self) -> list["Division"]:
        return [item for item in self.content if isinstance(item, Division)]


@dataclass
class Work:
    """A book as its reader leaves it. `where` names the file or folder in messages."""

    id: str
    where: str
    outline: "Outline"
    meta: dict[str, Any]


class Outline:
    """Collects the divisions and paragraphs of one work in reading order."""

    def __init__(self, counts: ReadCounts, where: str, language: str = "") -> None:
        self.root = Division("document")
        self.counts = counts
        self.where = where
        self.speaks(language)
        self._open = [self.root]

    @property
    def innermost(self) -> Division:
        return self._open[-1]

    def speaks(self, language: str) -> None:
        """Set the language, for works that say it late."""
        self.language = code_of(language)
        self.headings = headings(*codes_of(language))

    def kind_of(self, title: str) -> str:
        """The kind of division that a title names in the language of the work; "" if it names none."""
        return self.headings.kind_of(title)

    def begin(self, kind: str, title: str = "") -> Division:
        """Begin a division that ends with `end`."""
        division = Division(kind, title)
        self._append(division)
        return division

    def resume(self, division: Division) -> None:
        """Continue a division that has ended, or that holds the innermost one. It ends with `end`."""
        self._open.append(division)

    def end(self) -> None:
        """End the innermost division that `begin` or `resume` opened, and all headings in it."""
        while self._open[-1].rank is not None:
            self._open.pop()
        if len(self._open) > 1:
            self._open.pop()

    def heading(self, rank: int, title: str, kind: str | None = None) -> None:
        """Begin a division that ends with the next heading of its rank or a smaller one, or with the division around it.

        Without `kind`, the title names it. A part and its chapters may have headings of one rank.
        """
        kind = self.kind_of(title) if kind is None else kind
        while (last := self._open[-1]).rank is not None:
            holds = last.kind in ABOVE and kind not in ABOVE and rank == last.rank
            if last.rank < rank or holds:
                break
            self._open.pop()
        self._append(Division(kind, clean_line(title), rank=rank))

    def entitle(self, text: str) -> None:
        """Add a line to the title of the innermost division."""
        text = clean_line(text)
        if text:
            division = self._open[-1]
            division.title = f"{division.title}: {text}" if division.title else text

    def paragraph(self, text: str, is_verse: bool = False, author: str | None = None) -> None:
        """Add a paragraph to the innermost division. Blank text is ignored; a line of stars or dashes is a scene break."""
        text = clean(text)
        if not text:
            return
        if _BREAK(text):
            self.skip("scene_break")
        else:
            self._open[-1].content.append(Paragraph(text, is_verse, author))

    def skip(self, reason: str, place: str = "", count: int = 1) -> None:
        """Count content that is left out. `place` follows the name of the file."""
        self.counts.leave_out(reason, f"{self.where}{place and ', ' + place}", count)

    def _append(self, division: Division) -> None:
        self._open[-1].content.append(division)
        self._open.append(division)


MARK = "\ufdd0"
"""Stands in a text for the mark of a note until `clean` removes it, with the brackets around it."""
_MARKS = rf"{MARK}(?:[,;\s]*{MARK})*+"
_REMOVED_MARKS = re.compile(rf"\s*(?:\[\s*{_MARKS}\s*\]|\(\s*{_MARKS}\s*\))|\s*{_MARKS}(?=\s*(?:[.,;:!?…)\]»”]|$))|{_MARKS}")
is_note_sign = re.compile(
    r"[\W_]*(?:(?:fn|note|n|nota|anm|註|注)?[.\s]*[\d⁰¹²³⁴-⁹①-⑳]{1,4}[a-z]?|[a-z]|[ivxlc]{1,7})?[\W_]*", re.IGNORECASE
).fullmatch


def take_mark(parts: list[str], start: int) -> bool:
    """Replace the parts of a text from a place on with `MARK` if they look like the mark of a note: "[2]", "*", "↩"."""
    if not is_note_sign("".join(parts[start:])):
        return False
    parts[start:] = [MARK]
    return True


def clean(text: str) -> str:
    """Normal spaces, without invisible characters and removed marks of notes. Line ends stay."""
    if MARK in text:
        text = _REMOVED_MARKS.sub("", text)
    text = _SPACE.sub(" ", _INVISIBLE.sub("", text))
    return _LINE_ENDS.sub("\n", text).strip()


def clean_line(text: str) -> str:
    """`clean` text on one line."""
    return clean(text).replace("\n", " ")


_SIGNS = frozenset("*_=~+")
_EMPHASIS = re.compile(
    r"(?<![\w*_=~+])(?P<mark>\*{1,3}|_|={1,2}|~{1,2}|\+)(?=[^\s*_=~+])(?P<text>(?:(?!(?P=mark)).)*)"
    r"(?<=[^\s*_=~+])(?P=mark)(?![\w*_=~+])"
)


def without_emphasis(title: str) -> str:
    """A title without the marks of emphasis of plain text: "_To Ann_", "*To Ann*", "=To Ann=". Other such characters stay."""
    return _EMPHASIS.sub(r"\g<text>", title) if not _SIGNS.isdisjoint(title) else title
