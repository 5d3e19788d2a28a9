"""Batches of named columns from tables in CSV, TSV, Parquet or JSON lines, compressed or not."""

import codecs
import csv
import io
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from ramify.errors import RamifyError, counted, shown
from ramify.readers.base import (
    INTO_A_FILE,
    MAX_LINE_BYTES,
    ReadCounts,
    bad_option,
    check_not_standard,
    in_seconds,
    on_calendar,
    open_bytes,
    pc,
    read_twice,
)
from ramify.readers.dates import DateOrder, moment
from ramify.readers.encodings import as_windows, check_escapes, decoded_bytewise
from ramify.readers.records import first_record, is_json, objects_of, records
from ramify.readers.row_blocks import RowTooLongError, one_ahead, row_blocks
from ramify.readers.values import is_deep, seconds

CSV_BLOCK_BYTES = 16 << 20
PARQUET = b"PAR1"
DELIMITERS = "\t,;|"

Columns = dict[str, pa.Array]
"""Canonical column names -> values of any type."""


LINE = "line"
"""The column of places that `batches` adds if the layout asks for it: lines of JSON, and rows of other tables, from 1. The row
with the names of the columns counts."""

JSON = pa.struct([("ramify.json", pa.large_string())])
"""The type of columns that hold objects and lists of JSON lines, as JSON. The columns of Arrow need values of one type."""

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None", "\\N")
"""Spellings of a missing value, as pandas, R and databases write it. Texts and ids are never missing by their spelling."""
Missing = Literal["marks", "empty"]
"""The labels and authors that are missing: those of `MISSING`, or empty ones only."""
ROOT_MARKS = (*MISSING, "none")
"""Values that mean "no parent" in formats without null."""
ROOT_NUMBERS = ("0", "-1")
"""Parents that mean "no parent", unless a post has this id."""

UNNAMED = re.compile(r"(Unnamed: \d+|__index_level_\d+__)?")
"""Names of columns that pandas writes for an index without a name."""


@dataclass(frozen=True)
class Layout:
    """The columns that a format looks for. `synonyms`: canonical name -> names in tables; `required`: canonical names."""

    synonyms: Mapping[str, Sequence[str]]
    required: Sequence[str]
    added: Sequence[str] = ()  # columns without synonyms
    remedy: str = "Choose one with --column {ours}=NAME."  # for a missing column, in messages
    numbered: bool = False  # whether batches have the column LINE
    ignored: Sequence[str] = ()  # columns that are known to hold nothing for a node, so that no warning names them
    lists: Sequence[str] = ()  # canonical names of columns that may hold lists in Parquet; in JSON lines, lists of strings
    objects: Sequence[str] = ()  # those of them that may hold any objects and lists, which `structured` reads
    keeps_empty_strings: bool = False  # whether a quoted empty field of a CSV file is an empty string, not a missing value

    def known(self, names: Sequence[str]) -> dict[str, str]:
        """Canonical names -> names in the table, for the columns that the table has."""
        by_folded = {name.casefold(): name for name in reversed(names)}
        matches = {}
        for ours, synonyms in (*self.synonyms.items(), *((name, (name,)) for name in self.added)):
            theirs = next((by_folded[synonym] for synonym in synonyms if synonym in by_folded), None)
            if theirs is not None:
                matches[ours] = theirs
        return matches

    def only(self, name: str) -> "Layout":
        """The layout of one column."""
        return replace(self, synonyms={name: self.synonyms.get(name, ())}, required=(), added=(), numbered=True)

    def unknown(self, names: Sequence[str], columns: Mapping[str, str]) -> str:
        """For `refuses`: the reason why columns that the user names cannot be read from a table; "" if they can."""
        foreign = next((ours for ours in columns if ours not in self.synonyms), None)
        if foreign is not None:
            return f"it has no column {foreign!r} to fill"
        missing = next((theirs for theirs in columns.values() if theirs not in names), None)
        return "" if missing is None else f"line 1: no column {missing!r}"

    def lacking(self, names: Sequence[str], required: Sequence[str] = ()) -> list[str]:
        """The required columns (by default the layout's own) that the table lacks."""
        known = self.known(names)
        return [name for name in required or self.required if name not in known]


def header(path: Path, head: bytes) -> list[str]:
    """The column names of a table, from its first bytes. Raises `pa.ArrowInvalid` for a damaged Parquet file."""
    if head.startswith(PARQUET):
        return _open_parquet(path).schema_arrow.names
    if is_json(head):
        return list(first_record(head))
    return _split_header(first_line(head), delimiter_of(head))


_BEGINNING = re.compile(rb'(?:\xef\xbb\xbf)?(?:"?sep=([\t -~])"?\r?\n(?:\r?\n)*)?', re.IGNORECASE)
"""The bytes before the rows of a delimited table: a byte order mark, and the line `sep=;` with which Excel names the delimiter,
with empty lines below it."""


def _beginning(head: bytes) -> re.Match[bytes]:
    match = _BEGINNING.match(head)
    assert match is not None  # Both parts are optional.
    return match


def rows_above(head: bytes) -> int:
    """The number of lines above the rows of a delimited table, which have numbers, too."""
    return _beginning(head)[0].count(b"\n")


def open_delimited(path: Path, counts: ReadCounts | None = None) -> io.BufferedReader:
    """`open_bytes` of a delimited table, at its first row."""
    stream = open_bytes(path, counts)
    stream.read(_beginning(stream.peek()).end())
    return stream


def first_line(head: bytes) -> str:
    """The first row of a delimited table, up to the first line end."""
    return decoded_bytewise(head[_beginning(head).end() :].partition(b"\n")[0])


def first_rows(head: bytes, count: int) -> list[list[str]]:
    """The fields of the first rows of a delimited table. [] if they are damaged."""
    text = io.StringIO(decoded_bytewise(head[_beginning(head).end() :]), newline="")
    try:
        return list(islice(csv.reader(text, delimiter=delimiter_of(head)), count))
    except csv.Error:
        return []


def names_of(path: Path) -> list[str]:
    """The names of the columns of a file: of JSON lines, the keys in its first lines. [] for a damaged file."""
    read_twice(path, INTO_A_FILE)
    with open_bytes(path) as stream:
        head = stream.read(1 << 16)
    try:
        names = header(path, head)
    except (pa.ArrowException, OSError):
        return []
    return list(dict.fromkeys(key for line in _first_lines(path) for key in line)) if is_json(head) else names


def delimiter_of(head: bytes) -> str:
    """The delimiter that a table names, if it has several columns then, or else the most frequent one in its first row."""
    named = (_beginning(head)[1] or b"").decode()
    return named if named and named in first_line(head) else max(DELIMITERS, key=first_line(head).count)


def delimiter_at(path: Path) -> str:
    """`delimiter_of` a delimited table; "" for other files."""
    with open_bytes(path) as stream:
        head = stream.read(1 << 16)
    return "" if head.startswith(PARQUET) or is_json(head) else delimiter_of(head)


def check(layout: Layout, columns: Mapping[str, str] | None, delimiter: object, quote: object) -> None:
    """Raise `RamifyError` for an invalid option."""
    if columns is not None and not isinstance(columns, Mapping):
        raise bad_option("columns", "names of the table's columns (--column OURS=THEIRS)", columns)
    if delimiter is not None and not _is_separator(delimiter):
        raise bad_option("delimiter", "one ASCII character other than a line end (a tab: --option delimiter=$'\\t')", delimiter)
    if quote != "" and not _is_separator(quote):
        raise bad_option("quote", "one ASCII character other than a line end, or nothing (--option quote=)", quote)
    if quote == delimiter:
        raise bad_option("quote", "a character other than the delimiter", quote)
    for name in columns or {}:
        if name not in layout.synonyms:
            raise RamifyError(f"there is no column {name!r} to fill. The columns are {', '.join(layout.synonyms)}.")


def _is_separator(value: object) -> bool:
    return isinstance(value, str) and len(value) == 1 and "\0" < value < "\x80" and value not in "\r\n"


def batches(
    path: Path,
    counts: ReadCounts,
    layout: Layout,
    columns: Mapping[str, str],
    delimiter: str | None,
    quote: str,
    titles: Sequence[str] = (),
) -> Iterator[Columns]:
    """Yield the columns of a table in batches. `titles` names the columns of a delimited table whose first row does not.

    Raises `RamifyError` for a table that cannot be read.
    """
    read_twice(path, INTO_A_FILE)
    with open_bytes(path) as stream:
        head = stream.read(1 << 16)
    if head.startswith(PARQUET):
        return _parquet(path, counts, layout, columns)
    if is_json(head):
        return _json_lines(path, counts, layout, columns)
    return _delimited(path, counts, layout, columns, head, delimiter, quote, titles)


# --- the three kinds of files -----------------------------------------------------------------------------------------


@contextmanager
def complete_parquet(path: Path) -> Iterator[None]:
    """Raise `RamifyError` if Parquet cannot be read."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise RamifyError(f"{path} is not a complete Parquet file ({error}). Write or download it again.") from None


def _parquet(path: Path, counts: ReadCounts, layout: Layout, columns: Mapping[str, str]) -> Iterator[Columns]:
    with complete_parquet(path):
        file = _open_parquet(path)
        names = _names(file.schema_arrow.names, layout, columns, path)
        for ours, theirs in names.items():
            kind = file.schema_arrow.field(theirs).type
            if pa.types.is_nested(kind) and ours not in layout.lists:
                raise RamifyError(
                    f"{path}: the column {theirs!r} holds {kind}, which cannot be a post's {ours}. Write one value per row, "
                    f"or name another column (--column {ours}=NAME)."
                )
        _report_unread(counts, path, file.schema_arrow.names, names, layout)
        row = 1
        for batch in file.iter_batches(batch_size=1 << 14, columns=list(dict.fromkeys(names.values()))):
            counts.read += batch.num_rows
            values = {ours: _sound(batch.column(theirs)) for ours, theirs in names.items()}
            yield values | {LINE: pa.array(np.arange(row, row + batch.num_rows))} if layout.numbered else values
            row += batch.num_rows


def parquet_rows(path: Path, columns: Sequence[str] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (file and row, row) of Parquet, for columns that hold lists or objects. Raises `RamifyError` if it is damaged."""
    row = 1
    with complete_parquet(path):
        for batch in _open_parquet(path).iter_batches(batch_size=1 << 10, columns=columns and list(columns)):
            batch = pa.RecordBatch.from_arrays([_sound(column) for column in batch.columns], names=batch.schema.names)
            for values in batch.to_pylist():
                yield f"{path}, row {row}", values
                row += 1


def _open_parquet(path: Path) -> pyarrow.parquet.ParquetFile:
    """Open a Parquet file. Its end is read first, so a file that is compressed as a whole is unpacked to disk."""
    check_not_standard(path, "Parquet", "its end is read first")
    try:
        with open(path, "rb") as file:
            if file.read(len(PARQUET)) == PARQUET:
                return pyarrow.parquet.ParquetFile(path)
        # Opened by name, so that Arrow's threads read a file instead of a Python object. The open file outlives its name.
        with tempfile.NamedTemporaryFile() as unpacked, open_bytes(path) as stream:
            shutil.copyfileobj(stream, unpacked)
            unpacked.flush()
            return pyarrow.parquet.ParquetFile(unpacked.name)
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"a name of a column is not UTF-8: {error}") from None


def _sound(values: pa.Array) -> pa.Array:
    """The values. Texts that are not valid UTF-8, which Arrow does not check, become bytes, which `decoded` reads."""
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return values
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return values.cast(pa.large_binary())
    return values


def _json_lines(path: Path, counts: ReadCounts, layout: Layout, columns: Mapping[str, str]) -> Iterator[Columns]:
    keys = dict.fromkeys(key for line in _first_lines(path) for key in line)
    # Roots may come first and lack the parent field.
    names = _names(list(keys), layout, columns, path, without=("parent",), late=layout.added)
    # A field that is absent from the first lines may occur later, under any of its names.
    late = [(ours, name) for ours in layout.synonyms if ours not in names for name in layout.synonyms[ours]]
    # One field may fill two columns.
    fields = {name: f"field{place}" for place, name in enumerate(dict.fromkeys([*names.values(), *(name for _, name in late)]))}
    rename = {field: name for name, field in fields.items()}
    row_type = msgspec.defstruct("Row", [(field, Any, None) for field in rename], rename=rename, gc=False)
    has_parent = "parent" in names or "parent" not in layout.required
    _report_unread(counts, path, keys, {**names, **{name: name for _, name in late}}, layout)

    def values_of(ours: str, name: str, numbers: Sequence[int], rows: list[Any]) -> pa.Array:
        kinds = (list, dict) if ours in layout.objects else (list,) if ours in layout.lists else ()
        return _array([getattr(row, fields[name]) for row in rows], kinds, path, numbers, name, counts)

    for numbers, rows in records(path, counts, row_type):
        batch = {ours: values_of(ours, theirs, numbers, rows) for ours, theirs in names.items()}
        for ours, theirs in late:
            values = values_of(ours, theirs, numbers, rows)
            if len(values) > values.null_count:
                has_parent = has_parent or ours == "parent"
                previous = batch.get(ours)
                batch[ours] = values if previous is None else pc.coalesce(strings(previous), strings(values))
        batch.setdefault("parent", pa.nulls(len(rows), pa.large_string()))
        if layout.numbered:
            batch[LINE] = pa.array(numbers, pa.int64())
        yield batch
    if not has_parent:
        _names([*keys], layout, columns, path)


def _first_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in the first lines, or of a single value. Each may lack fields that others have."""
    if (whole := objects_of(path)) is not None:
        yield from whole
        return
    with open_bytes(path) as stream:
        head = stream.read(1 << 20)
        if b"\n" not in head:
            head += stream.readline(MAX_LINE_BYTES)
        for line in head.split(b"\n"):
            try:
                record = json.loads(decoded_bytewise(line))
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                yield record


def _array(
    values: list[Any], kinds: tuple[type, ...], path: Path, lines: Sequence[int], name: str, counts: ReadCounts
) -> pa.Array:
    """An array of the values of a column, which may hold lists of strings, or any lists and objects, if these are its `kinds`.

    All other lists and objects count as absent. Raises `RamifyError` if only some of the values are of these kinds.
    """
    nested = [place for place, value in enumerate(values) if isinstance(value, list | dict)]
    fitting = [place for place in nested if isinstance(values[place], kinds)]
    single = (place for place, value in enumerate(values) if value is not None and not isinstance(value, kinds))
    if fitting and (place := next(single, None)) is not None:
        kind, several = ("a list", "lists") if isinstance(values[fitting[0]], list) else ("an object", "objects")
        raise RamifyError(
            f"{path}, line {lines[fitting[0]]}: {name!r} holds {kind}, but {shown(values[place])} in line {lines[place]} is "
            f"not. Write {several} in all lines, or in none."
        )
    for place in nested:
        value, fault = values[place], ""
        if not fitting:
            fault = f"holds a {type(value).__name__}, not a single value"
        elif dict in kinds and is_deep(value):
            fault = "is nested too deeply"
        elif dict not in kinds and not all(isinstance(part, str) for part in value):
            fault = "holds a list of other values than strings"
        if fault:
            counts.repair("odd_json", f"{path}, line {lines[place]}: {name!r} {fault}")
            values[place] = None
    if fitting and dict in kinds:
        column = pa.array([value if value is None else json.dumps(value) for value in values], pa.large_string())
        return pa.StructArray.from_arrays([column], fields=list(JSON), mask=column.is_null())
    if fitting:
        return pa.array(values, pa.list_(pa.large_string()))
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else str(value) for value in values], pa.large_string())


def structured(values: pa.Array) -> list[Any]:
    """The lists and objects of a column as JSON values."""
    if values.type != JSON:
        return values.to_pylist()
    return [None if text is None else json.loads(text) for text in values.field(0).to_pylist()]


class _BadRows:
    """Counts the rows of another width than the first, and numbers the other rows."""

    def __init__(self, path: Path, above: int, counts: ReadCounts) -> None:
        self._path, self._above, self._counts = path, above, counts
        self._in_block: list[int] = []

    def skip(self, row: Any) -> str:
        """Arrow's handler of such a row, whose number counts from the first row of the block."""
        self._in_block.append(row.number)
        where = f"{self._path}, row {self._above + row.number}"
        self._counts.leave_out("bad_row", f"{where}: {counted(row.actual_columns, 'column')}, not {row.expected_columns}")
        return "skip"

    def numbers(self, num_rows: int) -> NDArray[np.int64]:
        """The numbers in the file of the other rows of the block that was parsed last."""
        total = num_rows + len(self._in_block)
        numbers = np.delete(np.arange(total), np.array(self._in_block, np.int64) - 1) + self._above + 1
        self._above += total
        self._in_block.clear()
        return numbers


class _SwallowedRows:
    """Posts with a field in which a line looks like a row of the table, as after a stray quotation mark."""

    def __init__(self, header: Sequence[str], names: Mapping[str, str], delimiter: str, quote: str) -> None:
        self._width, self._delimiter, self._quote = len(header), delimiter, quote
        self._places = {ours: header.index(theirs) for ours, theirs in names.items() if ours in _REPEATED}
        self._num_marks = 0
        self._suspects: dict[int, bool] = {}
        """Number of a post -> whether such a line is of the same tree."""

    def read(self, stream: io.BufferedReader, size: int) -> bytes:
        """The next bytes of the file, whose quotation marks are counted."""
        data = stream.read(size)
        self._num_marks += data.count(self._quote.encode()) if self._quote else 0
        return data

    def look(self, columns: Columns, first_row: int) -> None:
        for values in columns.values() if self._quote else ():
            several = pc.match_substring(values, "\n").fill_null(False)
            for row, text in zip(pc.indices_nonzero(several).to_pylist(), values.filter(several).to_pylist()):
                repeated = [(place, columns[ours][row].as_py()) for ours, place in self._places.items()]
                for line in text.split("\n")[1:]:
                    if line.count(self._delimiter) == self._width - 1:
                        fields = line.split(self._delimiter)
                        likely = any(fields[place].strip('\r"') == value for place, value in repeated)
                        self._suspects[first_row + row] = self._suspects.get(first_row + row, False) or likely

    def report(self, path: Path, counts: ReadCounts) -> None:
        for number, is_likely in sorted(self._suspects.items()):
            # If the number of quotation marks is even, the post may as well quote a table.
            if self._num_marks % 2 or is_likely:
                where = f"{path}, post {number}: it seems to hold further rows because of a stray quotation mark"
                counts.repair("swallowed_rows", where)


def _delimited(
    path: Path,
    counts: ReadCounts,
    layout: Layout,
    columns: Mapping[str, str],
    head: bytes,
    delimiter: str | None,
    quote: str,
    titles: Sequence[str],
) -> Iterator[Columns]:
    check_escapes(head)
    line, delimiter = first_line(head), delimiter or delimiter_of(head)
    if quote == delimiter:
        raise bad_option("quote", f"a character other than the delimiter of {path}", quote)
    header = list(titles) or _split_header(line, delimiter)
    names = _names(header, layout, columns, path)
    _report_unread(counts, path, header, names, layout)
    bad_rows = _BadRows(path, rows_above(head) + (not titles), counts)
    swallowed = _SwallowedRows(header, names, delimiter, quote)
    parsing = pyarrow.csv.ParseOptions(delimiter=delimiter, quote_char=quote or False, invalid_row_handler=bad_rows.skip)
    row = 1
    with _blocks_of_rows(path, counts, swallowed, delimiter, quote) as blocks, _readable(path, lambda: row - 1):
        first = next(blocks, (b"", False))
        parsed_header = header
        if not titles and all(name == name.strip() for name in line.rstrip("\r").split(delimiter)):
            parsed_header = _parsed(bytes(first[0]).replace(FOREIGN.encode(), b"") + b"\n", parsing).column_names
        for block, is_marked in chain([first] if titles else [], blocks):
            batch = _parsed(block, parsing, _as_bytes(names, layout), parsed_header)
            numbers = bad_rows.numbers(batch.num_rows)
            counts.read += batch.num_rows
            values = {ours: batch[theirs].chunk(0).cast(pa.large_string()) for ours, theirs in names.items()}
            if is_marked:
                values = _without_marks(values, path, row, counts)
            swallowed.look(values, row)
            yield values | {LINE: pa.array(numbers)} if layout.numbered else values
            row += batch.num_rows
    swallowed.report(path, counts)


@contextmanager
def _blocks_of_rows(
    path: Path, counts: ReadCounts, swallowed: _SwallowedRows, delimiter: str, quote: str
) -> Iterator[Iterator[tuple[bytes | memoryview, bool]]]:
    """The blocks of `_as_utf_8`: the header row, then the others."""
    # The blocks are closed first, so that their thread ends before the stream is closed.
    with open_delimited(path, counts) as stream:
        rows = map(_as_utf_8, row_blocks(partial(swallowed.read, stream), CSV_BLOCK_BYTES, delimiter, quote))
        with closing(one_ahead(rows)) as blocks:
            yield blocks


@contextmanager
def _readable(path: Path, rows_read: Callable[[], int]) -> Iterator[None]:
    """Raise `RamifyError` if a table cannot be read any further."""
    try:
        yield
    except RowTooLongError:
        raise RamifyError(
            f"{path}, after row {rows_read():,}: a row is longer than {CSV_BLOCK_BYTES >> 20} MiB, or a quotation mark is "
            "never closed. Remove the row, or set --option quote= if quotation marks are plain text."
        ) from None
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise RamifyError(
            f"{path} cannot be read as a table ({error}). If its fields are not quoted, set --option quote= ; "
            "if the delimiter is not the most frequent of tab, comma, semicolon and bar, set --option delimiter=…"
        ) from None


def _as_bytes(names: Mapping[str, str], layout: Layout) -> pyarrow.csv.ConvertOptions:
    """Columns as bytes, in which an empty field is null."""
    return pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names.values(), pa.binary()),
        include_columns=list(dict.fromkeys(names.values())),
        strings_can_be_null=True,
        null_values=[""],
        quoted_strings_can_be_null=not layout.keeps_empty_strings,
        check_utf8=False,
    )


def _parsed(
    rows: bytes | memoryview,
    parsing: pyarrow.csv.ParseOptions,
    conversion: pyarrow.csv.ConvertOptions | None = None,
    names: list[str] | None = None,
) -> pa.Table:
    """Parse whole rows in the caller's thread. Without `names`, the first row holds the names of the columns."""
    # Copied into Arrow's memory, so that Arrow's threads never free a Python object.
    held = pa.allocate_buffer(len(rows))
    np.frombuffer(held, np.uint8)[:] = np.frombuffer(rows, np.uint8)
    reading = pyarrow.csv.ReadOptions(use_threads=False, block_size=len(rows), column_names=names)
    return pyarrow.csv.read_csv(pa.BufferReader(held), reading, parsing, conversion)


FOREIGN = "\ufdd0"
"""A noncharacter that marks a character which was read from Windows-1252, until its row is known."""


def _as_marked_windows(error: UnicodeError) -> tuple[str, int]:
    text, end = as_windows(error)
    return FOREIGN + text, end


codecs.register_error("ramify.marked", _as_marked_windows)


def _as_utf_8(rows: memoryview) -> tuple[bytes | memoryview, bool]:
    """Rows whose bytes beyond UTF-8 are read as Windows-1252, each behind `FOREIGN`, and whether they have any.

    Arrow's handler of malformed rows needs valid UTF-8.
    """
    try:
        codecs.utf_8_decode(rows, "strict", True)
    except UnicodeDecodeError:
        return codecs.utf_8_decode(rows, "ramify.marked", True)[0].encode(), True
    return rows, False


def _without_marks(columns: Columns, path: Path, first_row: int, counts: ReadCounts) -> Columns:
    """The columns without `FOREIGN`. Rows that had it are counted."""
    marked = (pc.match_substring(values, FOREIGN).fill_null(False) for values in columns.values())
    for row in sorted({row for mask in marked for row in pc.indices_nonzero(mask).to_pylist()}):
        counts.repair("encoding", f"{path}, post {first_row + row}")
    return {name: pc.replace_substring(values, FOREIGN, "") for name, values in columns.items()}


_REPEATED = ("tree", "channel")
"""Columns in which a swallowed row agrees with the row that swallowed it."""


# --- column names -----------------------------------------------------------------------------------------------------


def _report_unread(counts: ReadCounts, path: Path, names: Iterable[str], used: Mapping[str, str], layout: Layout) -> None:
    known = {*used.values(), *layout.ignored}
    counts.unread(path, (name for name in names if name not in known and not UNNAMED.fullmatch(name)))


def _split_header(line: str, delimiter: str) -> list[str]:
    return [name.strip().strip('"') for name in line.rstrip("\r").split(delimiter)]


def _names(
    names: Sequence[str],
    layout: Layout,
    columns: Mapping[str, str],
    path: Path,
    *,
    without: Sequence[str] = (),
    late: Sequence[str] = (),
) -> dict[str, str]:
    """Canonical names -> names in the table. `late` names may occur later in the file.

    Raises `RamifyError` if a required column is missing, unless it is in `without`, or if a column occurs twice.
    """
    for ours, theirs in columns.items():
        if theirs not in (*names, *late):
            raise RamifyError(
                f"{path} has no column {theirs!r} (for {ours}). Its columns are {', '.join(dict.fromkeys(names))}."
            )
    result = layout.known([*names, *late]) | dict(columns)
    if repeated := sorted({name for name in result.values() if names.count(name) > 1}):
        raise RamifyError(f"{path} has several columns called {', '.join(map(repr, repeated))}. Give each a different name.")
    for ours in layout.required:
        if ours not in result and ours not in without:
            raise RamifyError(
                f"{path} has no column for {ours}: none of {', '.join(layout.synonyms[ours])}. Its columns are "
                f"{', '.join(dict.fromkeys(names))}. {layout.remedy.format(ours=ours)}"
            )
    return result


# --- column values -----------------------------------------------------------------------------------------------------


def decoded(values: pa.Array, path: Path, first_row: int, counts: ReadCounts) -> pa.Array:
    """Decode bytes to text. Values of other types are unchanged."""
    if not (pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)):
        return values
    try:
        return values.cast(pa.large_string())
    except pa.ArrowInvalid:
        texts = [None if value is None else decoded_bytewise(value) for value in values.to_pylist()]
        for row, (text, value) in enumerate(zip(texts, values, strict=True), first_row):
            if text is not None and text.encode() != value.as_py():
                counts.repair("encoding", f"{path}, post {row}")
        return pa.array(texts, pa.large_string())


def strings(values: pa.Array) -> pa.Array:
    """Convert values to strings. If all numbers are whole, 3.0 becomes "3", so that ids agree. NaN becomes null."""
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), None, values)
    whole = pa.types.is_floating(values.type) and pc.all(pc.equal(pc.floor(values), values)).as_py()
    try:
        return (values.cast(pa.int64()) if whole else values).cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.array([None if value is None else str(value) for value in values.to_pylist()], pa.large_string())


KEEPABLE = "is read as a missing one; --option missing=empty keeps it"
"""Says of a label or an author why it is counted."""


def spelled(columns: Columns, path: Path, first_row: int, counts: ReadCounts, order: DateOrder, missing: Missing) -> Columns:
    """The columns as strings, but for `time` in seconds since 1970, which is null without such a column."""
    values = {name: strings(decoded(each, path, first_row, counts)) for name, each in columns.items() if name != "time"}
    if "author" in values:
        authors, values["author"] = values["author"], present(values["author"], missing)
        for row in pc.indices_nonzero(among(authors, MISSING[1:])).to_pylist() if missing == "marks" else ():
            counts.repair(
                "missing_author", f"{path}, post {first_row + row}: the author {shown(authors[row].as_py())} {KEEPABLE}"
            )
    seconds = times(columns["time"], path, first_row, counts, order) if "time" in columns else None
    return values | {"time": pa.nulls(len(next(iter(columns.values()))), pa.float64()) if seconds is None else seconds}


_WHOLE = r"^(-?[0-9]+)\.0$"


def without_decimals(texts: pa.Array) -> pa.Array:
    """The texts, with 3 for 3.0."""
    return pc.replace_substring_regex(texts, _WHOLE, r"\1")


class Spelling:
    """Spells the ids, the parents and the trees of a file alike.

    Reddit's prefixes t1_ and t3_ are left out, unless the ids and all parents have one. pandas writes a column of whole numbers
    with gaps as 1.0, 2.0, … These become 1, 2, …, until an id ends in ".0" itself, as the numbers of chapters may.
    """

    def __init__(self) -> None:
        self._ids_have_decimals = self._ids_have_prefixes = self._are_mixed = False

    def alike(self, columns: Columns) -> Columns:
        """The next rows of the file, with their ids, parents and trees respelled."""
        names = {name: columns[name] for name in ("id", "parent", "tree") if name in columns}
        ids, parents, trees = names["id"], names["parent"], names.get("tree", names["parent"])
        bare = {name: _bare(values) for name, values in names.items()}
        if not self._ids_have_prefixes and bare["id"] is not ids:
            self._ids_have_prefixes = True
            is_bare = pc.and_(pc.equal(parents, bare["parent"]), pc.invert(among(parents, (*ROOT_MARKS, *ROOT_NUMBERS))))
            answers_tree = pc.and_(pc.equal(trees, bare["parent"]), pc.not_equal(trees, parents))
            self._are_mixed = bool(pc.any(pc.or_(is_bare, answers_tree)).as_py())
        names = bare if self._are_mixed or not self._ids_have_prefixes else names
        self._ids_have_decimals = self._ids_have_decimals or bool(pc.any(pc.match_substring_regex(ids, _WHOLE)).as_py())
        if not self._ids_have_decimals:
            names = {name: without_decimals(values) for name, values in names.items()}
        return columns | names


def present(texts: pa.Array, missing: Missing = "marks") -> pa.Array:
    """The texts, with null for each that spells a missing value."""
    return pc.if_else(among(texts, MISSING if missing == "marks" else MISSING[:1]), None, texts)


def among(values: pa.Array, marks: Sequence[str]) -> pa.Array:
    """Whether each value is one of the marks."""
    return pc.is_in(values, pa.array(marks, pa.large_string()))


def _bare(names: pa.Array) -> pa.Array:
    """The names without Reddit's prefixes; the same array if no name has one."""
    has_prefix = any(pc.any(pc.starts_with(names, prefix)).as_py() for prefix in ("t1_", "t3_"))
    return pc.replace_substring_regex(names, "^t[13]_", "") if has_prefix else names


def _moment(value: Any, order: DateOrder) -> float | None:
    time = seconds(value)
    return moment(value, day_first=order.day_first) if time is None and isinstance(value, str) else time


def times(values: pa.Array, path: Path, first_row: int, counts: ReadCounts, order: DateOrder) -> pa.Array:
    """Seconds since 1970 from numbers, timestamps, ISO 8601 dates, or dates with dots or slashes.

    Dates without a zone are in UTC. Numbers beyond the year 9999 are read as milliseconds. The first rows that hold dates with
    slashes settle `order`.
    """
    if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
        microseconds = values.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).cast(pa.float64(), safe=False)
        result = on_calendar(pc.divide(microseconds, 1e6))
        counts.repair("bad_time", f"{path}, post {first_row} and later", result.null_count - values.null_count)
        return result
    if pa.types.is_temporal(values.type):
        # A time of day or a duration.
        counts.repair("bad_time", f"{path}: {values.type} is not a point in time", count=len(values) - values.null_count)
        return pa.nulls(len(values), pa.float64())
    try:
        result = in_seconds(values.cast(pa.float64()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        items = values.to_pylist()
        if ambiguous := order.settle(value for value in items if isinstance(value, str)):
            counts.repair("open_date", f"{path}: {ambiguous} and the dates near it are ambiguous, read as month/day")
        result = pa.array([_moment(value, order) for value in items], pa.float64())
    bad = pc.and_(pc.is_null(result), pc.is_valid(values))
    for row in np.flatnonzero(bad.to_numpy(zero_copy_only=False)).tolist():
        counts.repair("bad_time", f"{path}, post {first_row + row}: {shown(values[row].as_py())}")
    return result
