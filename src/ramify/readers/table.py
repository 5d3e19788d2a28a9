"""One post a row, in any order: CSV, TSV, Parquet or JSON lines, compressed or not.

Columns are found by name: `id`, `parent` (empty = a root), `tree`, `author`, `time`, `text`, or one of their synonyms;
`columns` names them otherwise. `title`, `topic` and their like on a root describe the tree.
"""

import contextlib
import json
import math
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ramify.errors import RamifyError
from ramify.readers import files
from ramify.readers.base import POSTS, Report, bad_option, open_bytes, pc
from ramify.readers.records import records
from ramify.readers.reddit import NOBODY

SYNONYMS = {
    "id": ("id", "post_id", "comment_id", "message_id", "node_id"),
    "parent": ("parent", "parent_id", "reply_to", "in_reply_to", "in_reply_to_id", "parent_post_id"),
    "tree": ("tree", "tree_id", "thread", "thread_id", "discussion", "discussion_id", "conversation", "conversation_id"),
    "author": ("author", "user", "username", "author_id", "user_id", "author_name", "speaker", "poster"),
    "time": ("time", "timestamp", "created_utc", "created_at", "created", "date", "datetime"),
    "kind": ("kind",),
    "text": ("text", "body", "content", "message", "comment"),
}
REQUIRED = ("id", "parent", "tree", "text")
TITLES = ("title", "subject")
TREE_COLUMNS = (*TITLES, "topic", "subreddit", "forum", "section", "category", "url")
ROOT_MARKS = ("", "null", "None", "NULL", "nan", "NaN")
"""What stands for "no parent" where a format cannot say null."""

Entities = Literal["numeric", "all", "none"]
NUMERIC_ENTITY = re.compile(r"&#(?:[0-9]+|[xX][0-9a-fA-F]+);?")
ODD: dict[str, str] = {"numeric": "&#|[\u0080-\u009f]", "all": "&|[\u0080-\u009f]"}
WINDOWS_1252 = {code: bytes([code]).decode("cp1252", "replace") for code in range(0x80, 0xA0)}
"""C1 control characters, which no text means: what the same bytes are in Windows-1252."""

CSV_BLOCK_BYTES = 16 << 20
PARQUET = b"PAR1"
DELIMITERS = "\t,;|"

Columns = dict[str, pa.Array]
"""Our names (`SYNONYMS`, `TREE_COLUMNS`) -> values of any type."""


def matches(path: Path, head: bytes) -> bool:
    if path.is_dir():
        return False
    if head.startswith(PARQUET):
        try:
            return _has_posts(_open_parquet(path).schema_arrow.names)
        except pa.ArrowInvalid:
            return True  # `read` says what is wrong with it.
    line = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].decode("utf-8", "replace")
    if line.startswith("{"):
        try:
            return _has_posts(json.loads(line))
        except ValueError:
            return False
    return _has_posts(_split_header(line, _delimiter(line)))


def read(
    paths: Sequence[Path],
    report: Report,
    *,
    columns: Mapping[str, str] | None = None,
    delimiter: str | None = None,
    quote: str = '"',
    entities: Entities = "numeric",
) -> Iterator[pa.RecordBatch]:
    """`columns`: our name -> the table's. `delimiter`: if not the one that the first line holds most of. `quote=""`: quotation
    marks are text. `entities`: HTML entities to unescape; unless "none", C1 control characters are read as Windows-1252.
    """
    _check(columns, delimiter, quote, entities)
    for name in columns or {}:
        if name not in SYNONYMS:
            raise RamifyError(f"there is no column {name!r} to fill; the columns are {', '.join(SYNONYMS)}.")
    for path in files(paths):
        row = 1
        for batch in _batches(path, report, columns or {}, delimiter, quote):
            yield _posts(batch, path, row, entities, report)
            row += len(batch["id"])


def _check(columns: object, delimiter: object, quote: object, entities: object) -> None:
    """Users write them, as text."""
    if columns is not None and not isinstance(columns, Mapping):
        raise bad_option("columns", "our names for the table's columns (--column OURS=THEIRS)", columns)
    if delimiter is not None and not _is_mark(delimiter):
        raise bad_option("delimiter", "one ASCII character that ends no line (a tab: --option delimiter=$'\\t')", delimiter)
    if quote != "" and not _is_mark(quote):
        raise bad_option("quote", "one ASCII character that ends no line, or nothing (--option quote=)", quote)
    if quote == delimiter:
        raise bad_option("quote", "another character than the delimiter", quote)
    if entities not in get_args(Entities):
        raise bad_option("entities", " or ".join(get_args(Entities)), entities)


def _is_mark(value: object) -> bool:
    return isinstance(value, str) and len(value) == 1 and "\0" < value < "\x80" and value not in "\r\n"


def _batches(path: Path, report: Report, columns: Mapping[str, str], delimiter: str | None, quote: str) -> Iterator[Columns]:
    with open_bytes(path) as stream:
        head = stream.read(1 << 16)
    if head.startswith(PARQUET):
        return _parquet(path, report, columns)
    if head.lstrip(b"\xef\xbb\xbf \n").startswith(b"{"):
        return _json_lines(path, report, columns)
    return _delimited(path, report, columns, head, delimiter, quote)


# --- the three kinds of files -----------------------------------------------------------------------------------------


def _parquet(path: Path, report: Report, columns: Mapping[str, str]) -> Iterator[Columns]:
    try:
        file = _open_parquet(path)
        names = _names(file.schema_arrow.names, columns, path)
        for batch in file.iter_batches(batch_size=1 << 14, columns=list(names.values())):
            report.read += batch.num_rows
            yield {ours: batch.column(theirs) for ours, theirs in names.items()}
    except pa.ArrowInvalid as error:
        raise RamifyError(f"{path} is not a whole Parquet file ({error}). Write or download it again.") from None


def _open_parquet(path: Path) -> pyarrow.parquet.ParquetFile:
    """Its end is read first, so one that is compressed as a whole is unpacked to disk."""
    with open(path, "rb") as file:
        if file.read(len(PARQUET)) == PARQUET:
            return pyarrow.parquet.ParquetFile(path)
    unpacked = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as what reads it)
    with open_bytes(path) as stream:
        shutil.copyfileobj(stream, unpacked)
    return pyarrow.parquet.ParquetFile(unpacked)


def _json_lines(path: Path, report: Report, columns: Mapping[str, str]) -> Iterator[Columns]:
    keys = dict.fromkeys(key for line in _first_lines(path) for key in line)
    # Roots may come first, and say nothing of a parent.
    names = _names([*keys, *TREE_COLUMNS], columns, path, without=("parent",))
    # A field that none of the first lines has may still come, by whatever name.
    late = [(ours, name) for ours in SYNONYMS if ours not in names for name in SYNONYMS[ours]]
    # One field may be two of our columns.
    fields = {name: f"field{place}" for place, name in enumerate(dict.fromkeys([*names.values(), *(name for _, name in late)]))}
    rename = {field: name for name, field in fields.items()}
    row_type = msgspec.defstruct("Row", [(field, Any, None) for field in rename], rename=rename, gc=False)
    came = "parent" in names
    for _, rows in records(path, report, row_type):
        columns_here = {ours: _values([getattr(row, fields[theirs]) for row in rows]) for ours, theirs in names.items()}
        for ours, theirs in late:
            values = _values([getattr(row, fields[theirs]) for row in rows])
            if len(values) > values.null_count:
                came = came or ours == "parent"
                before = columns_here.get(ours)
                columns_here[ours] = values if before is None else pc.coalesce(_strings(before), _strings(values))
        columns_here.setdefault("parent", pa.nulls(len(rows), pa.large_string()))
        yield columns_here
    if not came:
        _names([*keys], columns, path)


def _first_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Objects among the first lines: a field may be absent from any of them."""
    with open_bytes(path) as stream:
        for line in stream.read(1 << 20).split(b"\n"):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record


def _values(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else str(value) for value in values], pa.large_string())


def _delimited(
    path: Path, report: Report, columns: Mapping[str, str], head: bytes, delimiter: str | None, quote: str
) -> Iterator[Columns]:
    line = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].decode("utf-8", "replace")
    delimiter = delimiter or _delimiter(line)
    if quote == delimiter:
        raise bad_option("quote", f"another character than the delimiter of {path}", quote)
    header = _split_header(line, delimiter)
    names = _names(header, columns, path)
    spaced = any(name != name.strip() for name in line.rstrip("\r").split(delimiter))

    def bad_row(row: Any) -> str:
        report.read += 1
        report.skip("bad_row", f"{path}, row {row.number}: {row.actual_columns} columns, not {row.expected_columns}")
        return "skip"

    row, swallowed = 1, []
    with open_bytes(path, report) as stream:
        marks = _Marks(stream, quote)
        try:
            batches = pyarrow.csv.open_csv(
                marks,
                read_options=pyarrow.csv.ReadOptions(
                    use_threads=False,
                    block_size=CSV_BLOCK_BYTES,
                    column_names=header if spaced else None,
                    skip_rows=1 if spaced else 0,
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=delimiter,
                    quote_char=quote or False,
                    newlines_in_values=bool(quote),
                    invalid_row_handler=bad_row,
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(names.values(), pa.binary()),
                    include_columns=list(names.values()),
                    strings_can_be_null=True,
                    null_values=[""],
                    check_utf8=False,
                ),
            )
            for batch in batches:
                report.read += batch.num_rows
                values = {ours: _decoded(batch.column(theirs), path, row, report) for ours, theirs in names.items()}
                swallowed += _swallowed(values, delimiter, len(header), row) if quote else []
                yield values
                row += batch.num_rows
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            raise RamifyError(
                f"{path} cannot be read as a table ({error}). If its fields are not quoted, say --option quote= ; "
                "if its columns are not parted by the most frequent of tab, comma, semicolon and bar, say --option delimiter=…"
            ) from None
    if marks.count % 2:
        for number in swallowed:
            report.mend(
                "swallowed_rows", f"{path}, post {number}: it seems to hold further rows, because of a quotation mark too many"
            )


class _Marks:
    """A stream that counts the quotation marks in it."""

    def __init__(self, stream: BinaryIO, quote: str) -> None:
        self._stream, self._quote = stream, quote.encode()
        self.count = 0
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.count += data.count(self._quote) if self._quote else 0
        return data


def _swallowed(columns: Columns, delimiter: str, width: int, first_row: int) -> list[int]:
    """Posts with a line in one of their fields that could be a row of the table."""
    found = set()
    for values in columns.values():
        several = pc.fill_null(pc.match_substring(values, "\n"), False)
        for row, text in zip(pc.indices_nonzero(several).to_pylist(), values.filter(several).to_pylist()):
            if any(line.count(delimiter) == width - 1 for line in text.split("\n")[1:]):
                found.add(first_row + row)
    return sorted(found)


def _decoded(values: pa.Array, path: Path, first_row: int, report: Report) -> pa.Array:
    try:
        return values.cast(pa.large_string())
    except pa.ArrowInvalid:
        texts = [None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist()]
        for row, text in enumerate(texts, first_row):
            if text is not None and "\ufffd" in text:
                report.mend("bad_utf8", f"{path}, post {row}")
        return pa.array(texts, pa.large_string())


# --- which column is what ---------------------------------------------------------------------------------------------


def _delimiter(header: str) -> str:
    return max(DELIMITERS, key=header.count)


def _split_header(line: str, delimiter: str) -> list[str]:
    return [name.strip().strip('"') for name in line.rstrip("\r").split(delimiter)]


def _has_posts(names: Iterable[str]) -> bool:
    found = _known(list(names))
    return all(name in found for name in REQUIRED)


def _known(names: Sequence[str]) -> dict[str, str]:
    """Our names -> the table's, as far as they are there."""
    spelled = {name.casefold(): name for name in reversed(names)}
    found = {}
    for ours, synonyms in (*SYNONYMS.items(), *((name, (name,)) for name in TREE_COLUMNS)):
        theirs = next((spelled[synonym] for synonym in synonyms if synonym in spelled), None)
        if theirs is not None:
            found[ours] = theirs
    return found


def _names(names: Sequence[str], columns: Mapping[str, str], path: Path, *, without: Sequence[str] = ()) -> dict[str, str]:
    """Our names -> the table's. Raises where one that is required is missing, but for those that may be (`without`)."""
    for ours, theirs in columns.items():
        if theirs not in names:
            raise RamifyError(f"{path} has no column {theirs!r} (for {ours}); it has {', '.join(dict.fromkeys(names))}.")
    found = _known(names) | dict(columns)
    for ours in REQUIRED:
        if ours not in found and ours not in without:
            raise RamifyError(
                f"{path} has no column for {ours}: none of {', '.join(SYNONYMS[ours])}. It has "
                f"{', '.join(dict.fromkeys(names))}. Say which one it is with --column {ours}=NAME."
            )
    return found


# --- columns to posts -------------------------------------------------------------------------------------------------


def _posts(columns: Columns, path: Path, first_row: int, entities: Entities, report: Report) -> pa.RecordBatch:
    strings = {name: _strings(_text(values, path, first_row, report)) for name, values in columns.items() if name != "time"}
    count = len(strings["id"])
    absent = pa.nulls(count, pa.large_string())
    authors = strings.get("author", absent)
    is_root = pc.or_(strings["parent"].is_null(), pc.is_in(strings["parent"], pa.array(ROOT_MARKS, pa.large_string())))
    texts, metas = _describe_trees(strings, is_root, _mend(strings["text"].fill_null(""), entities), entities)
    batch = pa.RecordBatch.from_pydict(
        {
            "id": strings["id"].cast(pa.string()),
            "parent": pc.if_else(is_root, absent, strings["parent"]).cast(pa.string()),
            "tree": strings["tree"].cast(pa.string()),
            "author": pc.if_else(pc.equal(authors, NOBODY), absent, authors).cast(pa.string()),
            "time": _times(columns["time"], path, first_row, report) if "time" in columns else pa.nulls(count, pa.float64()),
            "kind": strings.get("kind", absent).cast(pa.string()),
            "text": texts,
            "meta": metas,
        }
    )
    placed = pc.and_(pc.not_equal(strings["id"], "").fill_null(False), strings["tree"].is_valid())
    for row in np.flatnonzero(~placed.to_numpy(zero_copy_only=False)).tolist():
        report.skip("not_a_post", f"{path}, post {first_row + row}: without an id, or without a tree")
    return batch.filter(placed).cast(POSTS)


def _describe_trees(strings: Columns, is_root: pa.Array, texts: pa.Array, entities: Entities) -> tuple[pa.Array, pa.Array]:
    """A root's text is its title, a blank line, its text; what describes the tree goes into its metadata."""
    roots = pc.indices_nonzero(is_root)
    names = [name for name in TREE_COLUMNS if name in strings]
    described = {name: _mend(strings[name].take(roots).fill_null(""), entities).to_pylist() for name in names}
    metas = []
    spoken = texts.take(roots).to_pylist()
    for row, text in enumerate(spoken):
        meta = {name: described[name][row] for name in names if described[name][row]}
        title = next((meta[name] for name in TITLES if name in meta), "")
        spoken[row] = f"{title}\n\n{text}" if title and text else title or text
        metas.append(json.dumps(meta, ensure_ascii=False) if meta else None)
    return (
        pc.replace_with_mask(texts, is_root, pa.array(spoken, pa.large_string())),
        pc.replace_with_mask(pa.nulls(len(texts), pa.string()), is_root, pa.array(metas, pa.string())),
    )


def _text(values: pa.Array, path: Path, first_row: int, report: Report) -> pa.Array:
    binary = pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)
    return _decoded(values, path, first_row, report) if binary else values


def _strings(values: pa.Array) -> pa.Array:
    """Numbers are spelled as whole numbers where they all are: 3.0 and 3 are the same id."""
    if pa.types.is_floating(values.type) and pc.all(pc.equal(pc.floor(values), values)).as_py():
        values = values.cast(pa.int64())
    try:
        return values.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.array([None if value is None else str(value) for value in values.to_pylist()], pa.large_string())


def _mend(texts: pa.Array, entities: Entities) -> pa.Array:
    if entities == "none":
        return texts
    odd = pc.match_substring_regex(texts, ODD[entities])
    mended = [_mend_one(text, entities) for text in texts.filter(odd).to_pylist()]
    return pc.replace_with_mask(texts, odd, pa.array(mended, pa.large_string())) if mended else texts


def _mend_one(text: str, entities: Entities) -> str:
    text = unescape(text) if entities == "all" else NUMERIC_ENTITY.sub(lambda found: unescape(found[0]), text)
    return text.translate(WINDOWS_1252)


def _times(values: pa.Array, path: Path, first_row: int, report: Report) -> pa.Array:
    """Seconds since 1970 from numbers, timestamps, or dates as ISO 8601 writes them (in UTC unless they say otherwise)."""
    if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
        return pc.divide(values.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).cast(pa.float64()), 1e6)
    if pa.types.is_temporal(values.type):
        # A time of day, or how long something took.
        report.mend("bad_time", f"{path}: {values.type} is no point in time", count=len(values) - values.null_count)
        return pa.nulls(len(values), pa.float64())
    try:
        times = values.cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        times = pa.array([_seconds(value) for value in values.to_pylist()], pa.float64())
    bad = pc.invert(pc.is_finite(times))
    for row in np.flatnonzero(bad.fill_null(False).to_numpy(zero_copy_only=False)).tolist():
        report.mend("bad_time", f"{path}, post {first_row + row}: {values[row].as_py()!r:.80}")
    return pc.if_else(bad, None, times)


def _seconds(value: Any) -> float | None:
    if value is None:
        return None
    with contextlib.suppress(ValueError):
        return float(value)
    with contextlib.suppress(ValueError):
        time = datetime.fromisoformat(str(value).strip())
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    return math.nan
