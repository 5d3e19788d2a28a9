"""Plain text: documents, paragraphs or lines of text files. Each is a tree with a single node, named FILE/NUMBER.

Numbers run from 1 through a file and have ten digits, so that the order of the ids is the order of the file. The metadata of a
tree holds the file and the number of the first line.
"""

import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from ramify.errors import RamifyError
from ramify.readers.base import A_FOLDER, GROUPED, ReadCounts, blocks, file_name, open_bytes
from ramify.readers.encodings import AUTO, check_encoding, decoded, with_line_ends
from ramify.readers.listing import list_files
from ramify.readers.names import distinct_names, unpacked
from ramify.readers.prose import unlike_prose
from ramify.readers.recoding import wide_encoding
from ramify.readers.rows import BATCH_CHARACTERS, BATCH_ROWS
from ramify.tree import GROUP, Indices, encodable

Unit = Literal["document", "paragraph", "line"]
Headings = Literal["auto", "wikitext", "none"]

ENDINGS = (".txt", ".text", ".tokens")
MAX_CHARACTERS = 64 << 20
"""The length of the longest unit."""

BLOCKS = 200
SMALLEST_BLOCK, LARGEST_BLOCK = 2 << 10, 1 << 20
BLOCK_OF_PIPE = 64 << 10

_READ_BYTES = 1 << 20
_HEAD_BYTES = 1 << 16


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        return A_FOLDER
    if not _has_ending(path):
        return f"not named {', '.join(ENDINGS)}"
    reason = _no_text(head, AUTO)
    if not reason:
        sample = _sample(head)
        reason = "" if _WIKITEXT(next((line for line in sample.split("\n") if line.strip()), "")) else unlike_prose(sample)
    return f"{reason}. If it is plain text, name it with --format text" if reason else ""


def read(
    paths: Sequence[Path],
    counts: ReadCounts,
    *,
    unit: Unit = "document",
    headings: Headings = "auto",
    encoding: str = AUTO,
) -> Iterator[pa.RecordBatch]:
    """Read text files. In a folder with `.txt` files, other files are skipped and counted as `not_text`.

    `unit`: a document is a file, a paragraph ends at a blank line. `headings`: `wikitext` ends a document before each line
    ` = Title = ` between blank lines; `auto` does so in files that begin with such a line. `encoding`: `auto` reads UTF-8,
    UTF-16 and UTF-32 with a byte order mark, and lines that are not UTF-8 as cp1252.

    White space around a unit is removed, and control characters become spaces. Paragraphs and lines have the group FILE#BLOCK,
    where a block is a contiguous part of a file: 1/200 of the bytes of all files, but 2 KiB to 1 MiB, or 64 KiB of a pipe.
    Raises `RamifyError` for a named file that holds no text.
    """
    check_encoding(encoding)
    given = set(paths)
    files = _files(paths, counts)
    block_bytes = None if unit == "document" else _block_bytes(list(files))
    rows = _Rows(block_bytes)
    for path, name in files.items():
        with open_bytes(path, counts, archives=True) as packed:
            if reason := _no_text(packed.peek()[:_HEAD_BYTES], encoding):
                if path in given:
                    raise RamifyError(f"{path} is not plain text: {reason}.")
                _skip(path, reason, counts)
                continue
            number = 1
            for units in _units(_chunks(packed, path, encoding, counts), unit, headings):
                counts.read += len(units.texts)
                for text, line in zip(units.texts, units.lines, strict=True):
                    if text is None:
                        remedy = "divide it" if unit == "line" else "choose a smaller unit, or divide a single line"
                        where = f"{path}, line {line}: a {unit} of more than {MAX_CHARACTERS:,} characters"
                        counts.skip("too_long", f"{where}; {remedy} (fold -s -w 1000)")
                rows.add(units, encodable(name), number)
                number += len(units.texts)
                if rows.are_enough:
                    yield rows.take()
    if rows:
        yield rows.take()


# --- files --------------------------------------------------------------------------------------------------------------


def _files(paths: Sequence[Path], counts: ReadCounts) -> dict[Path, str]:
    """File -> its name: that of the file, or the path from the named folder on. More folders distinguish equal names."""
    names: dict[Path, str] = {}
    for path in paths:
        inside = list_files([path])
        texts = [file for file in inside if _has_ending(file)] or inside
        for file in texts:
            if path.is_dir() and not file.stat().st_size:
                counts.leave_out("empty_file", f"{file}")
                continue
            if file in names:
                raise RamifyError(f"{file} is named twice, and would be read twice. Name each file or folder once.")
            names[file] = f"{path.resolve().name}/{file.relative_to(path).as_posix()}" if path.is_dir() else file_name(file)
        taken = set(texts)
        for file in inside:
            if file not in taken:
                _skip(file, f"not named {', '.join(ENDINGS)}, as other files in the folder are", counts)
    return dict(zip(names, distinct_names(names, names.values()), strict=True))


def _skip(path: Path, reason: str, counts: ReadCounts) -> None:
    counts.leave_out("not_text", f"{path}: {reason}")


def _has_ending(path: Path) -> bool:
    return unpacked(path.name).casefold().endswith(ENDINGS)


def _block_bytes(paths: Sequence[Path]) -> int:
    """The size of a block. Archives are decompressed to learn their size, but no further than it matters."""
    total = 0
    for path in paths:
        if not path.is_file():
            return BLOCK_OF_PIPE
        with open_bytes(path, archives=True) as stream:
            while total < BLOCKS * LARGEST_BLOCK and (data := stream.read(_READ_BYTES)):
                total += len(data)
    return min(max(total // BLOCKS, SMALLEST_BLOCK), LARGEST_BLOCK)


_MAGIC = {
    b"%PDF-": "a PDF file",
    b"PK\x03\x04": "a ZIP archive (a .docx, .odt or .epub is one, too)",
    b"\xd0\xcf\x11\xe0": "a Microsoft Office file",
    b"{\\rtf": "an RTF file",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"GIF8": "a picture",
    b"SQLite format": "a database",
    b"PAR1": "a Parquet file",
}

# Without the ones that terminals and printers interpret: backspace, tab, line ends, page breaks and escape.
_BINARY = bytes(byte for byte in range(0x20) if byte not in b"\b\t\n\x0b\x0c\r\x1b")


def _no_text(head: bytes, encoding: str) -> str:
    """The reason why the first bytes of a file are not text in the given encoding; "" if they are."""
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)
    if kind:
        return f"its first bytes are those of {kind}. Convert it to text first"
    if (encoding == AUTO and wide_encoding(head)) or (encoding != AUTO and "\n".encode(encoding) != b"\n"):
        return ""
    controls = len(head) - len(head.translate(None, _BINARY))
    if controls * 100 > len(head):
        return (
            f"{controls:,} of its first {len(head):,} bytes are control characters, as in binary files, tar archives and "
            "UTF-16 without a byte order mark. Unpack an archive; for UTF-16, give --option encoding=utf-16-le or utf-16-be"
        )
    if encoding == AUTO and _is_foreign(head):
        return "it is neither UTF-8 nor Windows-1252. Name its encoding, for example --option encoding=gb18030 or koi8-r"
    return ""


def _is_foreign(head: bytes) -> bool:
    """Whether bytes that are not UTF-8 are not Windows-1252 either, in whose languages most letters are ASCII."""
    lines = head.split(b"\n")
    # The last line may be cut in the middle of a character.
    bad = b"".join(line for line in lines[:-1] or lines if not _is_utf8(line)).translate(None, b" \t\r")
    high = _high_bytes(bad)
    # In a damaged UTF-8 file, most lines are still sound.
    return high * 3 > len(bad) and high * 2 > _high_bytes(head)


def _high_bytes(data: bytes) -> int:
    return len(data) - len(data.translate(None, bytes(range(0x80, 0x100))))


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except ValueError:
        return False
    return True


def _sample(head: bytes) -> str:
    """The whole lines of the first bytes of a file."""
    stream, encoding = with_line_ends(io.BufferedReader(io.BytesIO(head), buffer_size=len(head) + 1), AUTO)
    chunks = _chunks_of(stream, Path(), encoding, ReadCounts())
    lines = [line for chunk in chunks for line in chunk.lines]
    return "\n".join(lines[:-1] if len(head) >= _HEAD_BYTES and len(lines) > 1 else lines)


# --- lines of a file ----------------------------------------------------------------------------------------------------

# "\r" alone is no line end. Tabs and "\n" stay.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_ALLOWED = "\x0b\x0c\r"
"""Control characters that are replaced without a count: a page break is no fault."""


@dataclass(slots=True)
class _Chunk:
    """Consecutive lines without their ends. `offsets`: [line] the byte at which a line begins.

    `is_lost`: the last line was too long, and an empty line stands for it.
    """

    lines: list[str]
    first: int
    offsets: Indices
    is_lost: bool


def _chunks(packed: io.BufferedReader, path: Path, encoding: str, counts: ReadCounts) -> Iterator[_Chunk]:
    stream, encoding = with_line_ends(packed, encoding)
    return _chunks_of(stream, path, encoding, counts)


def _chunks_of(stream: io.BufferedReader, path: Path, encoding: str, counts: ReadCounts) -> Iterator[_Chunk]:
    too_long = ReadCounts()
    offset = 0
    for numbers, block in blocks(stream, too_long, path, size=_READ_BYTES):
        is_lost, too_long.skipped = bool(too_long.skipped), type(too_long.skipped)()
        text = decoded(block, encoding, numbers.start, path, counts).removesuffix("\n")
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        lines = (_without_controls(text, numbers.start, path, counts) if _CONTROLS.search(text) else text).split("\n")
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
        yield _Chunk(lines, numbers.start, offset + np.append(0, ends + 1)[: len(lines)], is_lost)
        offset += len(block)


def _without_controls(text: str, first: int, path: Path, counts: ReadCounts) -> str:
    for number, line in enumerate(text.split("\n"), first):
        if any(char not in _ALLOWED for char in _CONTROLS.findall(line)):
            counts.repair("control", f"{path}, line {number}")
    return _CONTROLS.sub(" ", text)


# --- units of a file ----------------------------------------------------------------------------------------------------


class _Found(NamedTuple):
    """Consecutive units: their texts (None: too long), first lines, and first bytes; and the title of a single document."""

    texts: Sequence[str | None]
    lines: Sequence[int]
    offsets: Sequence[int]
    title: str | None = None


def _units(chunks: Iterator[_Chunk], unit: Unit, headings: Headings) -> Iterator[_Found]:
    if unit == "line":
        return _lines(chunks)
    return _paragraphs(chunks) if unit == "paragraph" else _documents(chunks, headings)


def _lines(chunks: Iterator[_Chunk]) -> Iterator[_Found]:
    for chunk in chunks:
        texts: list[str | None] = [line.strip() for line in chunk.lines]
        if chunk.is_lost:
            texts[-1] = None
        for start in range(0, len(texts), BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            numbers = range(chunk.first, chunk.first + len(texts))[part]
            yield _Found(texts[part], numbers, chunk.offsets[part].tolist())


@dataclass(slots=True)
class _Open:
    """A unit whose end has not been read yet."""

    line: int
    offset: int
    title: str | None = None
    parts: list[str] = field(default_factory=list)
    characters: int = 0
    is_lost: bool = False

    def add(self, lines: list[str]) -> None:
        self.characters += sum(map(len, lines)) + len(lines)
        if self.characters > MAX_CHARACTERS:
            self.parts, self.is_lost = [], True
        elif not self.is_lost:
            self.parts.append("\n".join(lines))

    @property
    def as_units(self) -> _Found:
        text = None if self.is_lost else "\n".join(self.parts).strip()
        return _Found([text], [self.line], [self.offset], self.title)


def _paragraphs(chunks: Iterator[_Chunk]) -> Iterator[_Found]:
    """Yield the runs of lines that are not blank. A run may go on in the next chunk."""
    unit: _Open | None = None
    for chunk in chunks:
        lines = chunk.lines
        filled = np.fromiter((bool(line) and not line.isspace() for line in lines), bool, len(lines))
        filled[-1] |= chunk.is_lost
        edges = np.flatnonzero(np.diff(filled, prepend=False, append=False)).tolist()
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            if start and unit is not None:
                yield unit.as_units
                unit = None
            unit = unit or _Open(chunk.first + start, int(chunk.offsets[start]))
            unit.add(lines[start:end])
        if unit is not None and not filled[-1]:
            yield unit.as_units
            unit = None
        if unit is not None:
            unit.is_lost |= chunk.is_lost
    if unit is not None:
        yield unit.as_units


_WIKITEXT = re.compile(r" = (?!= ).*[^\s=] = ").fullmatch
_HEADING = re.compile(r"\s*= (?!= )(.*[^\s=]) =\s*").fullmatch


def _documents(chunks: Iterator[_Chunk], headings: Headings) -> Iterator[_Found]:
    """Yield the parts of a file that begin with a heading, or the file as a whole."""
    unit: _Open | None = None
    by_headings = {"wikitext": True, "none": False}.get(headings)
    after_blank = True
    for chunk, is_end in _with_next_line(chunks):
        lines = chunk.lines
        if by_headings is None and (first := next((line for line in lines if line and not line.isspace()), None)):
            by_headings = _WIKITEXT(first) is not None
        start = 0
        for place in _headings(lines, after_blank, is_end) if by_headings else ():
            if unit is not None or start < place:
                unit = unit or _Open(chunk.first, int(chunk.offsets[0]))
                unit.add(lines[start:place])
                if unit.is_lost or not all(part.isspace() or not part for part in unit.parts):
                    yield unit.as_units
            heading = _HEADING(lines[place])
            unit = _Open(chunk.first + place, int(chunk.offsets[place]), " ".join(heading[1].split()) if heading else None)
            start = place
        unit = unit or _Open(chunk.first, int(chunk.offsets[0]))
        unit.add(lines[start:])
        unit.is_lost |= chunk.is_lost
        after_blank = not lines[-1] or lines[-1].isspace()
    if unit is not None:
        yield unit.as_units


def _headings(lines: list[str], after_blank: bool, before_blank: bool) -> Iterator[int]:
    """The places of headings between blank lines, given whether the lines before and after all these are blank."""
    for place, line in enumerate(lines):
        if "=" in line[:8] and _HEADING(line):
            before = not lines[place - 1].strip() if place else after_blank
            after = not lines[place + 1].strip() if place + 1 < len(lines) else before_blank
            if before and after:
                yield place


def _with_next_line(chunks: Iterator[_Chunk]) -> Iterator[tuple[_Chunk, bool]]:
    """Move a heading at the end of a chunk to the next one, so that the line after it is known.

    Also tells whether a chunk is a heading at the end of the file. No other chunk ends with a heading before a blank line.
    """
    held: _Chunk | None = None
    for chunk in chunks:
        if held is not None:
            offsets = np.concatenate([held.offsets, chunk.offsets])
            chunk = _Chunk([*held.lines, *chunk.lines], held.first, offsets, chunk.is_lost)
            held = None
        if not chunk.is_lost and _HEADING(chunk.lines[-1]):
            place = len(chunk.lines) - 1
            held = _Chunk(chunk.lines[place:], chunk.first + place, chunk.offsets[place:], False)
            chunk = _Chunk(chunk.lines[:place], chunk.first, chunk.offsets[:place], False)
        if chunk.lines:
            yield chunk, False
    if held is not None:
        yield held, True


# --- units to posts -----------------------------------------------------------------------------------------------------


class _Rows:
    """Pending rows. `block_bytes`: the size of a block; None: each unit is a group of its own."""

    def __init__(self, block_bytes: int | None) -> None:
        self._block_bytes = block_bytes
        self._clear()

    def _clear(self) -> None:
        self._texts: list[str] = []
        self._ids: list[str] = []
        self._metas: list[str] = []
        self._groups: list[str] = []
        self._characters = 0

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def are_enough(self) -> bool:
        return len(self) >= BATCH_ROWS or self._characters >= BATCH_CHARACTERS

    def add(self, units: _Found, name: str, first: int) -> None:
        """Add units of the file with this name, the first of which has the number `first`. Units without text are left out."""
        json_name = json.dumps(name, ensure_ascii=False)
        about = "" if units.title is None else f', "title": {json.dumps(units.title, ensure_ascii=False)}'
        numbered = zip(range(first, first + len(units.texts)), units.texts, units.lines, units.offsets, strict=True)
        for number, text, line, offset in numbered:
            if text is None:
                continue
            self._texts.append(text)
            self._characters += len(text)
            self._ids.append(name_of := f"{name}/{number:010d}")
            if self._block_bytes is None:
                self._groups.append(name_of)
                group = ""
            else:
                block = f"#{offset // self._block_bytes:06d}"
                self._groups.append(name + block)
                group = f', "{GROUP}": {json_name[:-1]}{block}"'
            self._metas.append(f'{{"file": {json_name}, "line": {line}{group}{about}}}')

    def take(self) -> pa.RecordBatch:
        columns = {"id": self._ids, "tree": self._ids, "text": self._texts, "meta": self._metas, "group": self._groups}
        arrays = [pa.array(columns.get(column.name, pa.nulls(len(self))), column.type) for column in GROUPED]
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=GROUPED)
