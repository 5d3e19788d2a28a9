"""Markdown, parsed by markdown-it-py (CommonMark and tables). Headings divide a text."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ramify.readers.base import ReadCounts
from ramify.readers.book.container import read_text
from ramify.readers.book.outline import Outline, Work
from ramify.readers.book.xhtml import RUBY
from ramify.readers.markup import html_to_text

SUFFIXES = (".md", ".markdown", ".mdown")

_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?\n)(?:---|\.\.\.)[ \t]*(?:\n|$)", re.DOTALL)
_FIELD = re.compile(r"""(title|author|language|lang|source)[ \t]*:[ \t]*["']?(.*?)["']?[ \t]*""", re.IGNORECASE)
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_TAG = re.compile(r"<(/?[a-zA-Z]+)")
_NOTE = re.compile(r" {0,3}\[\^[^\]]+\]:")
_NOTE_MARK = re.compile(r"\[\^[^\]\s]+\]")
_ATTRIBUTES = re.compile(r"\s*\{(?::?\s*[#.][^{}]*|-|[\w-]+=[^{}]*)\}\s*$")
"""Identifiers and classes after a heading, as Pandoc, Kramdown and others read them."""


def read(path: Path, counts: ReadCounts, name: str, language: str = "") -> Work:
    """Read a file. `name` becomes the id of its tree. Footnotes are left out and counted."""
    text = read_text(path, counts)
    meta: dict[str, str] = {}
    offset = 0
    front = _FRONT_MATTER.match(text)
    if front:
        fields = [field for line in front[1].split("\n") if (field := _FIELD.fullmatch(line))]
        meta = {{"lang": "language"}.get(key := field[1].lower(), key): field[2] for field in fields if field[2]}
    outline = Outline(counts, f"{path}", language or meta.get("language", ""))
    if front:
        outline.skip("front_matter", "line 1")
        offset = front[0].count("\n")
        text = text[front.end() :]
    lines = list(_without_notes(text.split("\n"), outline, offset))
    parser = MarkdownIt("commonmark", {"maxNesting": 100}).enable(["table", "strikethrough"])
    _add(parser.parse("\n".join(lines)), outline, offset)
    return Work(name, f"{path}", outline, meta)


def _without_notes(lines: Sequence[str], outline: Outline, offset: int) -> Iterator[str]:
    """Yield as many lines, without footnotes, which CommonMark would take for the addresses of links, and their marks."""
    fence = ""
    in_note = False
    for number, line in enumerate(lines, start=1 + offset):
        if fence_mark := _FENCE.match(line):
            fence = fence_mark[1][:3] if not fence else ("" if fence_mark[1].startswith(fence) else fence)
        if fence:
            yield line
        elif _NOTE.match(line):
            in_note = True
            outline.skip("footnote", f"line {number}")
            yield ""
        elif in_note and (not line.strip() or line.startswith(("  ", "\t"))):
            yield ""
        else:
            in_note = False
            marks = _NOTE_MARK.findall(line)
            outline.counts.repair("note_mark", f"{outline.where}, line {number}", len(marks))
            yield _NOTE_MARK.sub("", line) if marks else line


def _add(tokens: Sequence[Token], outline: Outline, offset: int) -> None:
    """Add blocks to the outline: paragraphs, items, rows of tables, lines of code. Raw HTML becomes its visible text."""
    heading = 0
    row: list[str] | None = None
    for token in tokens:
        place = f"line {token.map[0] + 1 + offset}" if token.map else ""
        if token.type == "heading_open":
            heading = int(token.tag[1:])
        elif token.type == "heading_close":
            heading = 0
        elif token.type == "tr_open":
            row = []
        elif token.type == "tr_close" and row is not None:
            outline.paragraph(" ".join(row))
            row = None
        elif token.type == "hr":
            outline.skip("scene_break", place)
        elif token.type in ("fence", "code_block"):
            outline.paragraph(token.content, is_verse=True)
        elif token.type == "html_block":
            for part in html_to_text(token.content).split("\n\n"):
                outline.paragraph(part)
        elif token.type == "inline":
            text = _inline(token.children or (), outline, place)
            if heading:
                outline.heading(heading, _ATTRIBUTES.sub("", text))
            elif row is not None:
                row.append(text)
            else:
                outline.paragraph(text)


def _inline(tokens: Sequence[Token], outline: Outline, place: str) -> str:
    parts: list[str] = []
    ruby = ""
    for token in tokens:
        tag = match[1].lower() if token.type == "html_inline" and (match := _TAG.match(token.content)) else ""
        if ruby:
            ruby = "" if tag == f"/{ruby}" else ruby
        elif tag in RUBY:
            ruby = tag
            outline.counts.repair(RUBY[tag], f"{outline.where}, {place}", bool(RUBY[tag]))
        elif token.type in ("text", "code_inline"):
            parts.append(token.content)
        elif token.type == "softbreak":
            parts.append(" ")
        elif token.type == "hardbreak" or tag == "br":
            parts.append("\n")
        elif token.type == "image":
            outline.skip("picture", place)
    return "".join(parts)
