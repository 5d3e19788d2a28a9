"""Nested records of SQuAD and SuperGLUE from tables with one row per question, as the Hugging Face hub has them: Parquet, or
JSON lines that `datasets` writes.

Consecutive rows about one text become one record in the layout of the publisher. A row is held until its record is complete.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa

from ramify.errors import shown
from ramify.readers.base import ReadCounts, open_bytes, read_before
from ramify.readers.columns import PARQUET, header, parquet_rows
from ramify.readers.documents import documents, listed
from ramify.readers.json_fields import at
from ramify.readers.records import LIST, is_json
from ramify.readers.values import fields, objects

Record = tuple[str, Any]
"""The place of a record, for messages, and its value."""
Row = tuple[str, dict[str, Any]]
Rows = Callable[..., Iterator[Row]]
"""Gives the rows of a table from its beginning, or some of their columns."""

COLUMNS = {
    "squad": ("context", "question", "answers"),
    "multirc": ("paragraph", "question", "answer", "idx"),
    "record": ("passage", "query", "answers", "entities"),
    "wsc": ("text", "span1_index", "span2_index", "span1_text", "span2_text"),
}
"""Shape of a data set -> the columns by which its tables are recognised."""

NO_LABEL = -1


def shape_of(path: Path, head: bytes) -> str | None:
    """The shape of a table in Parquet or JSON, by its columns; None for other tables."""
    if not head.startswith(PARQUET) and not is_json(head):
        return None
    try:
        names = header(path, head)
    except (pa.ArrowException, OSError):
        return None
    return next((shape for shape, columns in COLUMNS.items() if {*columns} <= {*names}), None)


def records(path: Path, counts: ReadCounts, shape: str) -> Iterator[Record]:
    """The records of a file: of a table, as `COLUMNS` describes it, or nested ones of JSON."""
    with open_bytes(path) as stream:
        head = stream.read(1 << 16)
    if head.startswith(PARQUET):
        return _GATHER[shape](partial(parquet_rows, path))
    if shape_of(path, head) != shape:
        return documents(path, counts)
    read_before(path)
    return _GATHER[shape](lambda columns=None: _objects(path, counts if columns is None else ReadCounts()))


def _objects(path: Path, counts: ReadCounts) -> Iterator[Row]:
    for where, value in listed(path, counts):
        inside = fields(value).get(LIST)
        for row in inside if isinstance(inside, list) else [value]:
            if isinstance(row, dict):
                yield where, row
            else:
                counts.leave_out("not_a_post", f"{where}: {shown(row, 40)} is no row of a table")


def _groups(rows: Iterable[Row], field: str) -> Iterator[tuple[Any, list[Row]]]:
    """Consecutive rows that have one value in a field, behind the value."""
    return ((value, list(same)) for value, same in groupby(rows, key=lambda row: at(row[1], field)))


def _squad(rows: Rows) -> Iterator[Record]:
    """One record per article, in the order of the rows. A text without a title is an article."""
    # The file as a whole says whether it is version 2.0, in which a question may have no answer.
    version = "2.0" if any(_answers(row) == [] for _, row in rows(["answers"])) else "1.1"

    def question(row: dict[str, Any]) -> dict[str, Any]:
        asked, answers = {name: row.get(name) for name in ("id", "question") if name in row}, _answers(row)
        return asked if answers is None else {**asked, "is_impossible": answers == [], "answers": answers}

    def article(row: Row) -> tuple[Any, Any]:
        title = row[1].get("title")
        return title, title or row[1].get("context")

    for (title, _), same in groupby(rows(), key=article):
        about = list(same)
        paragraphs = [
            {"context": context, "qas": [question(row) for _, row in asked]} for context, asked in _groups(about, "context")
        ]
        yield about[0][0], {"version": version, "data": [{"title": title, "paragraphs": paragraphs}]}


def _answers(row: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The answers to a question as the publisher writes them. None: they are secret."""
    answers = row.get("answers")
    if isinstance(answers, dict):
        texts, starts = (answers.get(name) or [] for name in ("text", "answer_start"))
        return [{"text": text, "answer_start": start} for text, start in zip_longest(texts, starts)]
    return [answer if isinstance(answer, dict) else {} for answer in answers] if isinstance(answers, list) else None


def _multirc(rows: Rows) -> Iterator[Record]:
    for number, about in _groups(rows(), "idx.paragraph"):
        questions = []
        for place, asked in _groups(about, "idx.question"):
            answers = [{"text": row.get("answer"), "idx": at(row, "idx.answer"), "label": _label(row)} for _, row in asked]
            questions.append({"question": asked[0][1].get("question"), "idx": place, "answers": answers})
        where, first = about[0]
        yield where, {"idx": number, "passage": {"text": first.get("paragraph"), "questions": questions}}


def _record(rows: Rows) -> Iterator[Record]:
    for number, about in _groups(rows(), "idx.passage"):
        queries = []
        for _, row in about:
            right = [span for span in _spans(row) if span["text"] in (row.get("answers") or [])]
            query = {"query": row.get("query"), "idx": at(row, "idx.query")}
            queries.append({**query, "answers": right} if row.get("answers") else query)
        where, first = about[0]
        yield where, {"idx": number, "passage": {"text": first.get("passage"), "entities": _spans(first)}, "qas": queries}


def _spans(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The entities of a passage with the places of their first and last characters.

    In early exports, entities have no places, and are searched for.
    """
    spans = row.get("entity_spans")
    if isinstance(spans, dict):
        entities = list(zip(spans.get("text") or [], spans.get("start") or []))
    elif spans:
        entities = [(span["text"], span["start"]) for span in objects(spans)]
    else:
        entities = [(text, (row.get("passage") or "").find(text)) for text in row.get("entities") or []]
    return [{"text": text, "start": start, "end": start + len(text) - 1} for text, start in entities]


def _wsc(rows: Rows) -> Iterator[Record]:
    for where, row in rows():
        yield where, {**row, "target": {name: row.get(name) for name in COLUMNS["wsc"][1:]}, "label": _label(row)}


def _label(row: dict[str, Any]) -> Any:
    return None if row.get("label") == NO_LABEL else row.get("label")


_GATHER: dict[str, Callable[[Rows], Iterator[Record]]] = {
    "squad": _squad,
    "multirc": _multirc,
    "record": _record,
    "wsc": _wsc,
}
