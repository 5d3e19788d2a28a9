"""Files of texts whose labels are predicted: lines of text, tables, and trees; and tables of the answers."""

import csv
import json
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from ramify.dataset.store import INFO_FILE, Store
from ramify.errors import RamifyError, counted
from ramify.files import STANDARD, replacing
from ramify.inference.answers import Prediction
from ramify.inference.label_pipeline import Asked, Item, Pairs
from ramify.readers import conll, open_inputs
from ramify.readers.base import ReadCounts, open_bytes
from ramify.readers.columns import PARQUET, Layout, batches, names_of, strings
from ramify.readers.jsonl import read_jsonl
from ramify.readers.labelled import SYNONYMS, without_layout
from ramify.readers.labelled_sets import of_table
from ramify.readers.parallel import lines_of
from ramify.tree import Node, Tree

FileKind = Literal["csv", "tsv", "jsonl", "parquet"]

KINDS: dict[str, FileKind] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".parquet": "parquet"}
"""The kinds of tables, by the endings of their names."""

CONLL = (".conll", ".bio", ".iob")
"""The endings of tables of tokens, which need not have tags."""

PACKED = (".gz", ".zst", ".bz2", ".xz")

OF_LABELS = ("no_label", "missing_rows", "surplus_rows")
"""Repairs of labels, and differences from published sizes. Neither concerns predictions."""

QUESTIONS = "a built data set, trees as JSON lines, or a file or folder in the layout of COPA, SWAG or RACE"
"""The files of a model that chooses, for messages."""

NAMED = ("text", "text_pair", "id")
"""The columns of a table that a model is asked about, as `ramify data build` names them."""


PART = 8192
"""The rows of a file of texts or of a table that are read, predicted and written at a time."""


@dataclass(frozen=True, eq=False)
class LabelPart:
    """Some texts of a file, and the rows that their answers are added to."""

    items: Sequence[Item] | Store
    """Texts, pairs or trees of one question, one per row, or other trees; a store is read in place."""
    ids: Sequence[str]
    """The id of each row; those of other trees come with their nodes."""
    rows: Sequence[dict[str, Any]] | None = None
    """The columns of each row; None: the file is no table."""
    table: pa.Table | None = None
    """The rows of a Parquet file, whose types are kept."""


@dataclass(eq=False)
class LabelFile:
    """The texts of a file, in parts that are read one after the other. Trees are one part."""

    parts: Iterator[LabelPart]
    names: Sequence[str] = ()
    """The columns of a table."""
    counts: ReadCounts = field(default_factory=ReadCounts)
    unsaid: Collection[str] = ()
    """Reasons of repairs that are no notes."""
    missing: dict[str, tuple[int, int]] = field(default_factory=dict)
    """For columns of texts, the first row without a text and the number of such rows, as far as the file is read."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for people about repaired rows and missing texts. They are complete when all parts are read."""
        missing = (
            f"{counted(count, 'row')} without a text in {name!r}, read as empty; the first is row {first:,}"
            for name, (first, count) in self.missing.items()
        )
        return (*_repairs(self.counts, self.unsaid), *missing)


def read_label_file(path: Path, columns: Mapping[str, str], *, pairs: Pairs, asked: Asked) -> LabelFile:
    """Read a file with one text per line, a table (CSV, TSV, JSON lines, Parquet), a table of tokens (conll), a JSON lines file
    of trees, or a data set.

    `columns` names those of `NAMED` as the table has them; `pairs` says whether the model reads a second text. A model that is
    asked about questions reads files and folders in published layouts, as `ramify data build --format labelled` does. Raises
    `RamifyError` for a table without the columns that are needed, and for questions in no known layout.
    """
    if other := [name for name in columns if name not in NAMED]:
        raise RamifyError(f"--column {other[0]}={columns[other[0]]} fills no column. The columns are {', '.join(NAMED)}.")
    holds_trees = not path.is_dir() and path != STANDARD and _kind(path) == "jsonl" and _holds_trees(path)
    if asked == "questions" and not holds_trees and not (path / INFO_FILE).is_file():
        _no_columns(columns, path, "read as a set of questions")
        return _questions(path)
    if path.is_dir():
        _no_columns(columns, path, "a data set")
        return LabelFile(iter([LabelPart(Store.open(path), ())]))
    counts = ReadCounts()
    if _is_conll(path):
        _no_columns(columns, path, "a table of tokens")
        return LabelFile(iter([LabelPart(list(conll.read([path], counts)), ())]), counts=counts)
    kind = _kind(path)
    if kind is None:
        _no_columns(columns, path, "a file with one text per line")
        return LabelFile(_lines(path, counts), counts=counts)
    if holds_trees:
        _no_columns(columns, path, "a file of trees")
        return LabelFile(iter([LabelPart(list(read_jsonl(path)), ())]))
    names = _names(path, kind)
    if not names:
        raise RamifyError(f"{path} has no rows, so there is nothing to predict. Name another file.")
    known = _known(path, names, columns, ("text", "text_pair") if pairs == "always" else ("text",))
    read = [known["text"]] + ([known["text_pair"]] if pairs != "never" and "text_pair" in known else [])
    file = LabelFile(iter(()), names, counts)
    file.parts = _table_parts(path, kind, file, read, known.get("id"), _texts)
    return file


def _questions(path: Path) -> LabelFile:
    """Questions in the layout of a published data set: rows of a table, or trees of a file or folder."""
    if path == STANDARD:
        raise RamifyError(f"- reads lines of text, but the model chooses among the choices of questions. Name {QUESTIONS}.")
    if unknown := without_layout(path):
        raise RamifyError(
            f"{unknown} is no set of questions: it has none of the layouts of published sets of questions. Name {QUESTIONS}."
        )
    kind = None if path.is_dir() else _kind(path)
    found = of_table(path, names_of(path), ()) if kind else None
    if kind and found and len(found.pair) > 1:
        file = LabelFile(iter(()), names := _names(path, kind))
        row_id = Layout({"id": SYNONYMS["id"]}, ()).known(names).get("id")
        trees = partial(_question_trees, kept=[name for name in found.kept if name in names])
        file.parts = _table_parts(path, kind, file, [found.text, *found.pair], row_id, trees)
        return file
    # Labels say nothing here, and need not be there.
    opened = open_inputs([path], "labelled", {"labels": "none"})
    return LabelFile(_tree_parts(opened.records(), several=path.is_dir()), counts=opened.counts, unsaid=OF_LABELS)


def _texts(columns: Sequence[list[str]], rows: Sequence[dict[str, Any]]) -> Sequence[Item]:
    """The text or the texts of each row."""
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _question_trees(columns: Sequence[list[str]], rows: Sequence[dict[str, Any]], kept: Sequence[str]) -> Sequence[Item]:
    """A question with its choices for each row, with some columns as metadata."""
    trees: list[Tree] = []
    for (text, *choices), row in zip(zip(*columns, strict=True), rows, strict=True):
        meta = {name: row[name] for name in kept if row.get(name)}
        trees.append(Tree((Node(text), *(Node(choice, (0,)) for choice in choices)), meta=meta))
    return trees


def _lines(path: Path, counts: ReadCounts) -> Iterator[LabelPart]:
    """The lines of a file."""
    lines, start = lines_of(path, counts), 0
    while texts := list(islice(lines, PART)):
        yield LabelPart(texts, [str(place) for place in range(start, start + len(texts))])
        start += len(texts)


def _tree_parts(trees: Iterator[Tree], *, several: bool) -> Iterator[LabelPart]:
    """Trees of a file. In those of `several` files, the ids of nodes begin with those of their trees, because ids may occur in
    each file."""
    while some := list(islice(trees, PART)):
        yield LabelPart([_within(tree) for tree in some] if several else some, ())


def _within(tree: Tree) -> Tree:
    nodes = (
        node if (node.id or "").startswith(f"{tree.id}/") else replace(node, id=f"{tree.id}/{node.id}") for node in tree.nodes
    )
    return replace(tree, nodes=tuple(nodes))


def _table_parts(
    path: Path,
    kind: FileKind,
    file: LabelFile,
    read: Sequence[str],
    row_id: str | None,
    items: Callable[[Sequence[list[str]], Sequence[dict[str, Any]]], Sequence[Item]],
) -> Iterator[LabelPart]:
    """The rows of a table: `items` of the columns that are `read`. Raises `RamifyError` if it has none."""
    start = 0
    for rows, table in _chunks(path, kind, file.counts):
        texts = items([_column(rows, name) for name in read], rows)
        ids = [str(place) for place in range(start, start + len(rows))] if row_id is None else _column(rows, row_id)
        for name in read:
            lacking = [number for number, row in enumerate(rows, start + 1) if row.get(name) is None]
            if lacking:
                first, count = file.missing.get(name, (lacking[0], 0))
                file.missing[name] = first, count + len(lacking)
        start += len(rows)
        yield LabelPart(texts, ids, rows, table)
    if not start:
        raise RamifyError(f"{path} has no rows, so there is nothing to predict. Name another file.")


def _chunks(path: Path, kind: FileKind, counts: ReadCounts) -> Iterator[tuple[list[dict[str, Any]], pa.Table | None]]:
    if kind == "parquet":
        for batch in _parquet(path).iter_batches(batch_size=PART):
            table = pa.Table.from_batches([batch])
            yield table.to_pylist(), table
        return
    rows = _objects(path) if kind == "jsonl" else _cells(path, kind, counts)
    while some := list(islice(rows, PART)):
        yield some, None


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


def _parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise RamifyError(f"{path} is not a complete Parquet file ({error}). Write or download it again.") from None


def _names(path: Path, kind: FileKind) -> list[str]:
    """The columns of a table. Those of JSON lines are the keys of all rows."""
    if kind == "parquet":
        return _parquet(path).schema_arrow.names
    return list(dict.fromkeys(chain.from_iterable(_objects(path)))) if kind == "jsonl" else list(names_of(path))


def _cells(path: Path, kind: FileKind, counts: ReadCounts) -> Iterator[dict[str, Any]]:
    """The rows of a delimited table with all columns."""
    names = names_of(path)
    layout = Layout(dict.fromkeys(names, ()), (), lists=names, keeps_empty_strings=True)
    delimiter = "\t" if kind == "tsv" else None
    for batch in batches(path, counts, layout, {name: name for name in names}, delimiter, '"'):
        yield from pa.table(batch).to_pylist()


def _objects(path: Path) -> Iterator[dict[str, Any]]:
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
            yield row


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


def _no_columns(columns: Mapping[str, str], path: Path, what: str) -> None:
    if columns:
        name, theirs = next(iter(columns.items()))
        raise RamifyError(f"--column {name}={theirs} names a column of a table, but {path} is {what}. Leave it out.")


def _repairs(counts: ReadCounts, unsaid: Collection[str]) -> tuple[str, ...]:
    found = counts.skipped + Counter({reason: count for reason, count in counts.kept.items() if reason not in unsaid})
    return tuple(
        f"{counted(count, 'row')} {reason.replace('_', ' ')}; the first is {counts.examples[reason][0]}"
        for reason, count in found.items()
        if reason in counts.examples
    )


class AnswerTable(ABC):
    """A table of answers that is written part by part: the columns of the file, if it is a table, and else ids; and behind them
    `predicted` and the probabilities."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path = path
        self.names = names
        """The columns of the file."""

    def add(self, part: LabelPart, answers: Sequence[Prediction]) -> None:
        """Write the answers to a part, and the labels of the data as `gold`, if they have any. Raises `RamifyError` if the file
        has a column of their names."""
        added = [answer.columns() for answer in answers]
        if any(answer.gold is not None for answer in answers):
            added = [columns | {"gold": answer.gold} for columns, answer in zip(added, answers, strict=True)]
        if taken := next((name for row in added for name in row if name in self.names), None):
            raise RamifyError(f"{taken!r} is a column of the input, too, which the answers would replace. Rename it there.")
        rows = [{"id": answer.id} for answer in answers] if part.rows is None else part.rows
        self.write([row | columns for row, columns in zip(rows, added, strict=True)], part, added)

    @abstractmethod
    def write(self, rows: Sequence[dict[str, Any]], part: LabelPart, added: Sequence[dict[str, Any]]) -> None:
        """Write rows with the columns `added` behind those of their part."""

    @abstractmethod
    def close(self) -> None:
        """Complete the file."""


class TextTable(AnswerTable):
    """JSON lines, or a delimited table."""

    def __init__(self, path: Path, names: Sequence[str], delimiter: str | None) -> None:
        """Without a delimiter, rows are JSON lines."""
        super().__init__(path, names)
        self.delimiter = delimiter
        self.fields: list[str] = []

    def write(self, rows: Sequence[dict[str, Any]], part: LabelPart, added: Sequence[dict[str, Any]]) -> None:
        with open(self.path, "a", encoding="utf-8", newline="") as stream:
            if self.delimiter is None:
                stream.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
                return
            first = not self.fields
            # All answers of a model have the same columns.
            self.fields = self.fields or list(dict.fromkeys([*self.names, *chain.from_iterable(rows)]))
            writer = csv.DictWriter(stream, self.fields, delimiter=self.delimiter, lineterminator="\n")
            if first:
                writer.writeheader()
            writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)

    def close(self) -> None:
        """Every part is complete."""


class ParquetTable(AnswerTable):
    """A Parquet file. Each part is a file first, because only all rows say what the types are."""

    def __init__(self, path: Path, names: Sequence[str], folder: Path) -> None:
        """`folder` holds the parts."""
        super().__init__(path, names)
        self.folder = folder
        self.files: list[Path] = []

    def write(self, rows: Sequence[dict[str, Any]], part: LabelPart, added: Sequence[dict[str, Any]]) -> None:
        table = pa.Table.from_pylist(list(rows)) if part.table is None else _beside(part.table, added)
        self.files.append(self.folder / str(len(self.files)))
        pq.write_table(table, self.files[-1])

    def close(self) -> None:
        schemas = [pq.read_schema(file) for file in self.files]
        schema = pa.unify_schemas(schemas, promote_options="permissive") if schemas else pa.schema([])
        with pq.ParquetWriter(self.path, schema) as writer:
            for file in self.files:
                table = pq.read_table(file)
                for name in schema.names:
                    if name not in table.column_names:
                        table = table.append_column(name, pa.nulls(len(table)))
                writer.write_table(table.select(schema.names).cast(schema))


@contextmanager
def answer_table(out: Path, kind: FileKind, file: LabelFile) -> Iterator[AnswerTable]:
    """Yield a table for the answers to a file, which replaces `out` if the block succeeds."""
    with replacing(out) as scratch, tempfile.TemporaryDirectory() as folder:
        delimiters = {"csv": ",", "tsv": "\t", "jsonl": None}
        if kind == "parquet":
            table = ParquetTable(scratch, file.names, Path(folder))
        else:
            table = TextTable(scratch, file.names, delimiters[kind])
        yield table
        table.close()


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
