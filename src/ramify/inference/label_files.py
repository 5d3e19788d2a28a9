"""Files of texts whose labels are predicted: lines of text, tables, and trees; and tables of the answers."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from ramify.dataset.store import Store
from ramify.errors import RamifyError, counted
from ramify.files import STANDARD, replacing
from ramify.inference.answers import Prediction
from ramify.inference.label_pipeline import Item, Pairs
from ramify.readers import conll
from ramify.readers.base import ReadCounts, open_bytes
from ramify.readers.columns import PARQUET, Layout, batches, names_of, strings
from ramify.readers.jsonl import read_jsonl
from ramify.readers.labelled import SYNONYMS
from ramify.readers.parallel import lines_of

FileKind = Literal["csv", "tsv", "jsonl", "parquet"]

KINDS: dict[str, FileKind] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".parquet": "parquet"}
"""The kinds of tables, by the endings of their names."""

CONLL = (".conll", ".bio", ".iob")
"""The endings of tables of tokens, which need not have tags."""

PACKED = (".gz", ".zst", ".bz2", ".xz")

NAMED = ("text", "text_pair", "id")
"""The columns of a table that a model is asked about, as `ramify data build` names them."""


@dataclass(frozen=True)
class LabelFile:
    """The texts of a file, and the rows that the answers are added to."""

    items: Sequence[Item] | Store
    """Texts or pairs, one per row, or trees; a store is read in place."""
    ids: Sequence[str]
    """The id of each text or pair; those of trees come with their nodes."""
    rows: Sequence[dict[str, Any]] | None
    """The columns of each row; None: the file is no table."""
    table: pa.Table | None = None
    """The table of a Parquet file, whose types are kept."""
    notes: tuple[str, ...] = ()


def read_label_file(path: Path, columns: Mapping[str, str], *, pairs: Pairs) -> LabelFile:
    """Read a file with one text per line, a table (CSV, TSV, JSON lines, Parquet), a table of tokens (conll), a JSON lines file
    of trees, or a data set.

    `columns` names those of `NAMED` as the table has them; `pairs` says whether the model reads a second text. Raises
    `RamifyError` for a table without the columns that are needed.
    """
    if other := [name for name in columns if name not in NAMED]:
        raise RamifyError(f"--column {other[0]}={columns[other[0]]} fills no column. The columns are {', '.join(NAMED)}.")
    if path.is_dir():
        _no_columns(columns, path, "a data set")
        return LabelFile(Store.open(path), (), None)
    if _is_conll(path):
        _no_columns(columns, path, "a table of tokens")
        counts = ReadCounts()
        return LabelFile(list(conll.read([path], counts)), (), None, notes=_repairs(counts))
    kind = _kind(path)
    if kind is None:
        _no_columns(columns, path, "a file with one text per line")
        counts = ReadCounts()
        texts = list(lines_of(path, counts))
        return LabelFile(texts, [str(place) for place in range(len(texts))], None, notes=_repairs(counts))
    if kind == "jsonl" and _holds_trees(path):
        _no_columns(columns, path, "a file of trees")
        return LabelFile(list(read_jsonl(path)), (), None)
    counts = ReadCounts()
    table = _parquet(path) if kind == "parquet" else None
    rows = _rows(path, kind, counts) if table is None else table.to_pylist()
    if not rows:
        raise RamifyError(f"{path} has no rows, so there is nothing to predict. Name another file.")
    names = list(dict.fromkeys(chain.from_iterable(rows)))
    known = _known(path, names, columns, ("text", "text_pair") if pairs == "always" else ("text",))
    read = [known["text"]] + ([known["text_pair"]] if pairs != "never" and "text_pair" in known else [])
    columns_of_texts = [_column(rows, name) for name in read]
    texts = columns_of_texts[0] if len(read) == 1 else list(zip(*columns_of_texts, strict=True))
    ids = _column(rows, known["id"]) if "id" in known else [str(place) for place in range(len(rows))]
    return LabelFile(texts, ids, rows, table, (*_repairs(counts), *(note for name in read for note in _missing(rows, name))))


def _kind(path: Path) -> FileKind | None:
    """The kind of table that a file holds, by its ending or its first bytes; None: lines of text."""
    name = _unpacked(path)
    for ending, kind in KINDS.items():
        if name.endswith(ending):
            return kind
    if path == STANDARD:
        return None
    with open_bytes(path) as stream:
        head = stream.read(1 << 10)
    if head.startswith(PARQUET):
        return "parquet"
    return "jsonl" if head.lstrip(b"\xef\xbb\xbf \n").startswith(b"{") else None


def _unpacked(path: Path) -> str:
    """The name of a file in small letters, without the ending of its compression."""
    name = path.name.lower()
    return next((name.removesuffix(ending) for ending in PACKED if name.endswith(ending)), name)


def _is_conll(path: Path) -> bool:
    """Whether a file is a table of tokens (`readers.conll`), by its ending or by tags of spans in its last column."""
    if path == STANDARD:
        return False
    with open_bytes(path) as stream:
        return _unpacked(path).endswith(CONLL) or not conll.refuses(path, stream.read(1 << 16))


def _holds_trees(path: Path) -> bool:
    return "nodes" in names_of(path)


def _parquet(path: Path) -> pa.Table:
    try:
        return pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise RamifyError(f"{path} is not a complete Parquet file ({error}). Write or download it again.") from None


def _rows(path: Path, kind: FileKind, counts: ReadCounts) -> list[dict[str, Any]]:
    """The rows of a table with all columns."""
    if kind == "jsonl":
        return _objects(path)
    names = names_of(path)
    layout = Layout(dict.fromkeys(names, ()), (), lists=names, keeps_empty_strings=True)
    delimiter = "\t" if kind == "tsv" else None
    read = batches(path, counts, layout, {name: name for name in names}, delimiter, '"')
    return [row for batch in read for row in pa.table(batch).to_pylist()]


def _objects(path: Path) -> list[dict[str, Any]]:
    rows = []
    with open_bytes(path) as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise RamifyError(f"{path}, line {number}: {line[:80]!r} is not a JSON object. Write one object per line.")
            rows.append(row)
    return rows


def _known(path: Path, names: Sequence[str], columns: Mapping[str, str], required: Sequence[str]) -> dict[str, str]:
    """The names of the columns in the table. Raises `RamifyError` if a required one is missing."""
    for ours, theirs in columns.items():
        if theirs not in names:
            raise RamifyError(f"{path} has no column {theirs!r} (for {ours}). Its columns are {', '.join(names)}.")
    known = Layout({name: SYNONYMS[name] for name in NAMED}, ()).known(names) | dict(columns)
    for ours in required:
        if ours not in known:
            reads = "The model reads pairs of texts. " if ours == "text_pair" else ""
            raise RamifyError(
                f"{path} has no column for {ours}; its columns are {', '.join(names) or 'none'}. {reads}Choose one with "
                f"--column {ours}=NAME."
            )
    return known


def _column(rows: Sequence[dict[str, Any]], name: str) -> list[str]:
    """The values of a column as texts; a missing one is empty."""
    values = [row.get(name) for row in rows]
    if all(value is None or isinstance(value, str) for value in values):
        return [value or "" for value in values]
    try:
        return [value or "" for value in strings(pa.array(values)).to_pylist()]
    except pa.ArrowException:
        return ["" if value is None else str(value) for value in values]


def _missing(rows: Sequence[dict[str, Any]], name: str) -> Iterator[str]:
    """A note about rows without a text."""
    if lacking := [number for number, row in enumerate(rows, 1) if row.get(name) is None]:
        yield f"{counted(len(lacking), 'row')} without a text in {name!r}, read as empty; the first is row {lacking[0]:,}"


def _no_columns(columns: Mapping[str, str], path: Path, what: str) -> None:
    if columns:
        name, theirs = next(iter(columns.items()))
        raise RamifyError(f"--column {name}={theirs} names a column of a table, but {path} is {what}. Leave it out.")


def _repairs(counts: ReadCounts) -> tuple[str, ...]:
    found = counts.skipped + counts.kept
    return tuple(
        f"{counted(count, 'row')} {reason.replace('_', ' ')}; the first is {counts.examples[reason][0]}"
        for reason, count in found.items()
        if reason in counts.examples
    )


def write_answers(out: Path, kind: FileKind, file: LabelFile, answers: Sequence[Prediction]) -> None:
    """Write the answers as a table: the columns of the file, if it is a table, and else ids; and `predicted` and the
    probabilities behind them.

    Raises `RamifyError` if the file has such a column.
    """
    rows = [{"id": answer.id} for answer in answers] if file.rows is None else file.rows
    added = [answer.columns() for answer in answers]
    names = dict.fromkeys(chain.from_iterable(added))
    if taken := next((name for row in rows for name in row if name in names), None):
        raise RamifyError(f"{taken!r} is a column of the input, too, which the answers would replace. Rename it there.")
    joined = [row | columns for row, columns in zip(rows, added, strict=True)]
    with replacing(out) as scratch:
        if kind == "jsonl":
            scratch.write_text("".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in joined), "utf-8")
        elif kind == "parquet":
            pq.write_table(_beside(file.table, added) if file.table is not None else pa.Table.from_pylist(joined), scratch)
        else:
            with open(scratch, "w", encoding="utf-8", newline="") as stream:
                fields = list(dict.fromkeys(chain.from_iterable(joined)))
                writer = csv.DictWriter(stream, fields, delimiter="\t" if kind == "tsv" else ",", lineterminator="\n")
                writer.writeheader()
                writer.writerows({name: _cell(value) for name, value in row.items()} for row in joined)


def _beside(table: pa.Table, added: Sequence[dict[str, Any]]) -> pa.Table:
    """The table with further columns."""
    further = pa.Table.from_pylist(list(added))
    for name in further.column_names:
        table = table.append_column(name, further[name])
    return table


def _cell(value: Any) -> Any:
    """A value of a CSV file; several labels are separated by commas, and spans are JSON."""
    if isinstance(value, list | tuple) and any(isinstance(part, dict) for part in value):
        return json.dumps(value, ensure_ascii=False)
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else value
