"""Project Gutenberg's plain text: without its licence, with chapters by their headings. Other plain text is read likewise.

Blank lines separate blocks. A block is a heading, a paragraph, verse (all its lines are indented), or is left out.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ramify.readers.base import ReadCounts
from ramify.readers.book.container import read_text
from ramify.readers.book.headings import MAX_HEADING, Headings
from ramify.readers.book.outline import ABOVE, CHAPTER, Outline, Work, clean_line, without_emphasis
from ramify.readers.languages import LANGUAGES, UNNUMBERED, code_of

SUFFIXES = (".txt",)

START = re.compile(
    r"^[ \t]*\*\*\*[ ]*START OF (?:THE|THIS) PROJECT GUTENBERG.*(?:\n.*\*\*\*)?$"
    r"|^\*END[ *]*THE SMALL PRINT!.*\*END\*[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
END = re.compile(
    r"^[ \t]*(?:\*\*\*[ ]*END OF (?:THE|THIS) PROJECT GUTENBERG.*|End of (?:the |this )?Project Gutenberg(?:'s|’s| E).*)$",
    re.MULTILINE | re.IGNORECASE,
)
_FIELD = re.compile(r"^(Title|Author|Language):[ \t]*(.+(?:\n[ \t]+\S.*)*)", re.MULTILINE)
_NUMBER = re.compile(r"\[(?:eBook|Etext|E-text) #(\d+)\]", re.IGNORECASE)

_DONE = (
    r"produced|prepared|transcribed|typed|keyed|scanned|digiti[sz]ed|proof-?read|proofed|converted|created|submitted|contributed|"
    r"provided|compiled|encoded|html(?: version)?|text file|updated"
)
_CREDITS = re.compile(
    r"\W*(?:(?:this|the|an?|revised|original|electronic|illustrated) +)*"
    r"(?:(?:e-?(?:text|book)|file|text|html|edition|version)s? +)*"
    rf"(?:(?:was|were|is|has been|have been) +)?(?:{_DONE})\b[^.]{{0,40}}?\b(?:by|from|for)\b"
    r"|\W*(?:this|the) (?:e-?(?:text|book)|file) (?:was|is|has been)\b"
    r"|\W*(?:images? of the original|project gutenberg (?:also )?has|note: +(?:project gutenberg|images? of))\b"
    r"|.*\b(?:online )?distributed proofread",
    re.IGNORECASE,
)
"""Begins a note of those who made the file, before the first heading."""
_MAKERS = r"(?:transcriber|proofreader|redactor|typist|e-?text (?:producer|editor|transcriber)|(?:pg|gutenberg) editor)"
_MAKERS_NOTE = re.compile(
    rf"\W*(?:{_MAKERS}(?:'|’)?s?(?:'|’)?|transcription|e-?text|e-?book) +(?:end)?notes?\b"
    rf"|\W*(?:an? +)?notes? +(?:by|from|of) +the +{_MAKERS}s?\b"
    r"|\W*(?:an? +)?notes? +(?:on|about|to|regarding|concerning) +(?:the|this) +(?:(?:gutenberg|pg) +)?"
    r"(?:e-?text|e-?book|e-?edition|electronic +(?:text|edition|version)|transcription|digital +(?:text|edition))\b",
    re.IGNORECASE,
)
"""Begins a note of those who made the file, anywhere."""
_MARKED_NOTE = re.compile(r"\[(?:\d{1,3}|[A-Z])\] \S")
_NOTE_MARK = re.compile(r"\[(?:\d{1,3}|[A-Z])\]")
_RUBY = re.compile(r"[｜|]([^｜|《》\n]+)《[^《》\n]+》|(?<=[々〆\u3400-\u9fff\uf900-\ufaff])()《[ぁ-ゖァ-ヺー・]+》")
"""Readings of Japanese words, as Aozora Bunko writes them: 漢字《かんじ》, ｜base《reading》."""
_EMPHASIS = re.compile(r"(?<![\w_])_([^_]+)_(?![\w_])")

_DASH_AT_END = re.compile(r"(--|—)\n")

_RANKS = {"volume": 1, "book": 2, "part": 3, "act": 3, "scene": 6}
_CHAPTER_RANK, _BARE_RANK = 5, 7


@dataclass
class _Block:
    lines: list[str]
    number: int
    """The number of its first line, from 1."""

    @cached_property
    def text(self) -> str:
        return clean_line(" ".join(line.strip() for line in self.lines))

    @cached_property
    def title(self) -> str:
        return without_emphasis(self.text)


def is_gutenberg(head: bytes) -> bool:
    return bool(START.search(head.decode("utf-8", "replace").replace("\r", "")))


def read(path: Path, counts: ReadCounts, name: str, language: str = "") -> Work:
    """Read a text. `name` becomes the id of its tree."""
    text = read_text(path, counts)
    start, end = START.search(text), None
    meta = _meta(text[: start.start()]) if start else {}
    outline = Outline(counts, f"{path}", language or meta.get("language", ""))
    if "language" in meta and (code := code_of(meta["language"])) in LANGUAGES:
        meta["language"] = code
    first = 1
    if start:
        first += text.count("\n", 0, start.end())
        outline.skip("licence", f"lines 1 to {first}")
        end = END.search(text, start.end())
        if end:
            line = text.count("\n", 0, end.start()) + 1
            outline.skip("licence", f"lines {line} to {text.count(chr(10)) + 1}")
    body = text[start.end() if start else 0 : end.start() if end else len(text)]
    blocks = _blocks(body.split("\n"), first)
    if start:
        blocks = _without_credits(blocks, outline)
    blocks = _without_contents(blocks, outline)
    _add(_without_title_page(blocks, outline) if start else blocks, outline)
    return Work(name, f"{path}", outline, meta)


def _meta(header: str) -> dict[str, str]:
    meta = {field[1].lower(): clean_line(" ".join(field[2].split())) for field in _FIELD.finditer(header)}
    if number := _NUMBER.search(header):
        meta["source"] = f"https://www.gutenberg.org/ebooks/{number[1]}"
    return meta


def _blocks(lines: Sequence[str], first: int) -> list[_Block]:
    blocks: list[_Block] = []
    is_open = False
    for number, line in enumerate(lines, start=first):
        if not line.strip():
            is_open = False
        elif is_open:
            blocks[-1].lines.append(line)
        else:
            blocks.append(_Block([line], number))
            is_open = True
    return blocks


def _without_credits(blocks: list[_Block], outline: Outline) -> list[_Block]:
    """Leave out what those who made the file say of it: their names before the first heading, and their notes anywhere.

    A note in square brackets ends with its bracket, and one below a title with the next wider gap between blocks.
    """
    kept: list[_Block] = []
    is_heading = outline.headings.is_heading
    first_heading = next((place for place, block in enumerate(blocks) if is_heading(block.title)), len(blocks))
    place = 0
    while place < len(blocks):
        block = blocks[place]
        end = place
        if note := _MAKERS_NOTE.match(block.text):
            if block.text.startswith("["):
                end = next((later for later in range(place, len(blocks)) if blocks[later].text.endswith("]")), place)
            elif not block.text[note.end() :].strip(" .:_*"):
                gap = _gap(blocks, place)
                end = next((later for later in range(place + 1, len(blocks)) if _gap(blocks, later) > gap), len(blocks) - 1)
                end = min(end, next((later - 1 for later in range(place + 1, end + 1) if is_heading(blocks[later].title)), end))
        elif not (place < min(first_heading, _OPENING) and _CREDITS.match(block.text)):
            kept.append(block)
            place += 1
            continue
        outline.skip("credits", f"line {block.number}")
        place = end + 1
    return kept


_OPENING = 12
"""The number of blocks at the beginning of a file that may name its makers."""


def _gap(blocks: Sequence[_Block], place: int) -> int:
    """The number of blank lines below a block."""
    block = blocks[place]
    return blocks[place + 1].number - block.number - len(block.lines) if place + 1 < len(blocks) else 0


def _without_contents(blocks: list[_Block], outline: Outline) -> list[_Block]:
    """Leave out a table of contents: from its title to the first heading that repeats the beginning of its first entry."""
    known = outline.headings
    titles = (without_emphasis(clean_line(block.lines[0])) for block in blocks)
    place = next((place for place, title in enumerate(titles) if known.is_contents(title)), None)
    if place is None:
        return blocks
    if len(blocks[place].lines) == 1:
        listing, lines = place + 1, blocks[place + 1].lines if len(blocks) > place + 1 else []
    else:
        listing, lines = place, blocks[place].lines[1:]
    entry = next((line for line in map(clean_line, lines) if known.is_heading(line)), None)
    if entry is None:
        return blocks
    for later in range(listing + 1, len(blocks)):
        title = blocks[later].title
        if known.start(title) == known.start(entry) and known.is_heading(title):
            # The parts that begin with this chapter belong to the text.
            while later - 1 > listing and known.is_heading(title := blocks[later - 1].title) and known.kind_of(title) in ABOVE:
                later -= 1
            outline.skip("contents", f"line {blocks[place].number}")
            return blocks[:place] + blocks[later:]
    return blocks


def _without_title_page(blocks: list[_Block], outline: Outline) -> list[_Block]:
    """Leave out what stands before the first heading if all of it is in capital letters, as titles are."""
    known = outline.headings
    first = next((place for place, block in enumerate(blocks) if known.is_heading(block.title)), 0)
    if not first or not all(block.text.isupper() and len(block.text) <= MAX_HEADING for block in blocks[:first]):
        return blocks
    outline.skip("titlepage", f"line {blocks[0].number}")
    return blocks[first:]


def _add(blocks: Sequence[_Block], outline: Outline) -> None:
    known = outline.headings
    named = {block.number: block.title for block in blocks if len(block.lines) <= 3 and known.is_heading(block.title)}
    kinds = list(map(known.kind_of, named.values()))
    ranks = dict(_RANKS)
    if "book" in kinds and "part" in kinds[: kinds.index("book")]:
        ranks["part"], ranks["book"] = ranks["book"], ranks["part"]
    has_chapters = any(kind and kind not in (*ABOVE, *UNNUMBERED) for kind in kinds)
    notes = _notes(blocks, known)
    indented = [block for block in blocks if len(block.lines) > 1 and _is_indented(block)]
    has_verse = 2 * len(indented) < sum(len(block.lines) > 1 for block in blocks)
    untitled = in_note = False
    for block in blocks:
        text = block.text
        if in_note or block.number in notes:
            if not in_note:
                outline.skip("footnote", f"line {block.number}")
            in_note = not text.endswith("]") and (in_note or known.is_note(text))
        elif title := named.get(block.number):
            kind = known.kind_of(title) or ("section" if has_chapters else CHAPTER)
            rank = ranks.get(kind, _BARE_RANK if has_chapters and not known.kind_of(title) else _CHAPTER_RANK)
            outline.heading(rank, title.rstrip(" .:"), kind)
            untitled = known.lacks_title(title)
        elif untitled and _is_title(block):
            outline.entitle(block.title.rstrip("."))
            untitled = False
        else:
            untitled = False
            _paragraph(block, outline, has_verse, bool(notes))


def _notes(blocks: Sequence[_Block], known: Headings) -> set[int]:
    """The numbers of the blocks that are footnotes: "[Footnote 1: …]", or "[1] …" if an earlier block has the mark "[1]"."""
    notes: set[int] = set()
    marks: set[str] = set()
    for block in blocks:
        text = block.text
        marked = _MARKED_NOTE.match(text)
        if known.is_note(text) or (marked and marked[0][:-2] in marks):
            notes.add(block.number)
        else:
            marks.update(_NOTE_MARK.findall(text))
    return notes


def _is_title(block: _Block) -> bool:
    """Whether a block after a heading is the second line of its title."""
    text = block.text
    if len(block.lines) > 2 or len(text) > MAX_HEADING:
        return False
    if text.isupper():
        return True
    words = re.findall(r"[^\W\d_]{4,}", text)
    return bool(words) and all(word[0].isupper() for word in words) and text[-1] not in ".,;!?”\"’':"


def _is_indented(block: _Block) -> bool:
    return all(line.startswith(("  ", "\t")) for line in block.lines)


def _paragraph(block: _Block, outline: Outline, has_verse: bool, has_notes: bool) -> None:
    is_verse = has_verse and len(block.lines) > 1 and _is_indented(block)
    text = "\n".join(line.strip() for line in block.lines)
    place = f"line {block.number}"
    text, pictures = outline.headings.pictures.subn("", text)
    if pictures:
        outline.skip("picture", place, pictures)
    if has_notes:
        outline.counts.repair("note_mark", f"{outline.where}, {place}", len(_NOTE_MARK.findall(text)))
        text = _NOTE_MARK.sub("", text)
    if outline.language == "ja":
        text, readings = _RUBY.subn(r"\1", text)
        outline.counts.repair("ruby", f"{outline.where}, {place}", readings)
    if not is_verse:
        text = _DASH_AT_END.sub(r"\1", text).replace("\n", " ")
    outline.paragraph(_EMPHASIS.sub(r"\1", text), is_verse)
