"""Detection of quoting in delimited tables, where a quotation mark is either syntax or text."""

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ramify.errors import RamifyError
from ramify.readers.base import BLOCK_BYTES, ReadCounts, lines, open_bytes, read_before
from ramify.readers.columns import PARQUET, delimiter_of, open_delimited

MARK = '"'
MAX_FIELD = 16 << 20


@dataclass
class _Plain:
    """Counts of a table in which every line is a row."""

    rows: int = 0
    bad_rows: int = 0
    # Column -> its fields between quotation marks; and those of them that no writer has to quote.
    quoted: Counter[int] = field(default_factory=Counter)
    needless: Counter[int] = field(default_factory=Counter)


def quote_of_tabs(path: Path, delimiter: str | None) -> str:
    """`detect_quote` for a table with tabs. The mark for other tables, whose quoted fields may hold the delimiter."""
    with open_bytes(path) as stream:
        head = stream.read(1 << 16)
    if head.startswith((PARQUET, b"{")) or (delimiter or delimiter_of(head)) != "\t":
        return MARK
    return detect_quote(path, "\t")


def detect_quote(path: Path, delimiter: str) -> str:
    """The quotation mark of a delimited table, or "" if marks are text.

    A table that is well-formed with quoting has quoting, unless tabs separate its columns. Otherwise, marks are text if every
    line is a row of the right width. Raises `RamifyError` for a comma-separated table with a stray mark, in which neither
    reading fits.
    """
    read_before(path)
    if not _has_marks(path):
        return ""
    rows, bad_rows, fault = _quoted(path, delimiter)
    is_well_formed = fault is None and not bad_rows
    if is_well_formed and delimiter != "\t":
        return MARK
    plain = _plain(path, delimiter)
    if is_well_formed and (plain.bad_rows or rows == plain.rows):
        # Tabs cannot occur in a field of a table without quoting, so its writers quote nothing. A sentence in quotation marks
        # is no reason to assume quoting, unless the whole column is quoted.
        by_choice = any(plain.quoted[column] < plain.rows - 1 for column in plain.needless)
        return "" if by_choice and not plain.bad_rows else MARK
    if not plain.bad_rows or (delimiter == "\t" and fault is not None):
        return ""
    if fault is None:
        return MARK if bad_rows <= plain.bad_rows else ""
    raise RamifyError(
        f"{path}, row at line {fault}: a field that begins with a quotation mark does not end with one. Double the marks "
        "inside quoted fields, or set --option quote= if quotation marks are plain text."
    )


def _has_marks(path: Path) -> bool:
    with open_bytes(path) as stream:
        return any(MARK.encode() in block for block in iter(partial(stream.read, BLOCK_BYTES), b""))


def _lines(path: Path) -> Iterator[str]:
    """The lines with their ends. The delimiter and the mark are ASCII, so any single-byte encoding shows them."""
    with open_delimited(path) as stream:
        for block in lines(stream, ReadCounts(), path):
            yield from (line.decode("latin-1") + "\n" for line in block)


def _plain(path: Path, delimiter: str) -> _Plain:
    plain, width = _Plain(), 0
    for line in _lines(path):
        line = line.rstrip("\r\n")
        if not line:
            continue
        count = line.count(delimiter)
        width = width if plain.rows else count
        plain.rows += 1
        plain.bad_rows += count != width
        if MARK in line:
            for column, value in enumerate(line.split(delimiter)) if plain.rows > 1 else ():
                if len(value) > 1 and value[0] == value[-1] == MARK:
                    plain.quoted[column] += 1
                    plain.needless[column] += MARK not in value[1:-1]
    plain.needless = +plain.needless
    return plain


def _quoted(path: Path, delimiter: str) -> tuple[int, int, int | None]:
    """The number of rows, of rows of another width than the first, and the line of the first malformed row."""
    previous = csv.field_size_limit(MAX_FIELD)
    start, width, rows, bad_rows = 1, 0, 0, 0
    reader = csv.reader(_lines(path), delimiter=delimiter, quotechar=MARK, strict=True)
    try:
        for row in reader:
            start = reader.line_num + 1
            if row:
                width = width if rows else len(row)
                rows += 1
                bad_rows += len(row) != width
    except csv.Error:
        return rows, bad_rows, start
    finally:
        csv.field_size_limit(previous)
    return rows, bad_rows, None
