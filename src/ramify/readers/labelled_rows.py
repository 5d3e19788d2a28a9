"""Nested records of SQuAD and SuperGLUE from Parquet with one row per question, as the Hugging Face hub has them.

Consecutive rows about one text become one record in the layout of the publisher. A row is held until its record is complete.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from ramify.readers.base import ReadCounts, open_bytes
from ramify.readers.columns import PARQUET, header, parquet_rows
from ramify.readers.documents import documents
from ramify.readers.json_fields import at
from ramify.readers.values import objects

Record = tuple[str, Any]
"""The place of a record, for messages, and its value."""
Row = tuple[str, dict[str, Any]]

COLUMNS = {
    "squad": ("title", "context", "question", "answers"),
    "multirc": ("paragraph", "question", "answer", "idx"),
    "record": ("passage", "query", "answers", "entities"),
    "wsc": ("text", "span1_index", "span2_index", "span1_text", "span2_text"),
}
"""Shape of a data set -> the columns by which its Parquet files are recognised."""

NO_LABEL = -1


def shape_of(path: Path, head: bytes) -> str | None:
    """The shape of a Parquet file, by its columns; None for other tables."""
    try:
        names = header(path, head)
    except (pa.ArrowException, OSError):
        return None
    return next((shape for shape, columns in COLUMNS.items() if {*columns} <= {*names}), None)


def records(path: Path, counts: ReadCounts, shape: str) -> Iterator[Record]:
    """The records of a file: of Parquet, as `COLUMNS` describes it, or of JSON."""
    with open_bytes(path) as stream:
        is_parquet = stream.peek(len(PARQUET)).startswith(PARQUET)
    return _GATHER[shape](path) if is_parquet else documents(path, counts)


def _groups(rows: Iterable[Row], field: str) -> Iterator[tuple[Any, list[Row]]]:
    """Consecutive rows that have one value in a field, behind the value."""
    return ((value, list(same)) for value, same in groupby(rows, key=lambda row: at(row[1], field)))


def _squad(path: Path) -> Iterator[Record]:
    """One record per article, in the order of the rows."""
    # The file as a whole says whether it is version 2.0, in which a question may have no answer.
    version = "2.0" if any(not at(row, "answers.text") for _, row in parquet_rows(path, ["answers"])) else "1.1"

    def question(row: dict[str, Any]) -> dict[str, Any]:
        texts, starts = (at(row, f"answers.{name}") or [] for name in ("text", "answer_start"))
        answers = [{"text": text, "answer_start": start} for text, start in zip(texts, starts)]
        is_impossible = version == "2.0" and not texts
        return {"id": row.get("id"), "question": row.get("question"), "is_impossible": is_impossible, "answers": answers}

    for title, about in _groups(parquet_rows(path), "title"):
        paragraphs = [
            {"context": context, "qas": [question(row) for _, row in asked]} for context, asked in _groups(about, "context")
        ]
        yield about[0][0], {"version": version, "data": [{"title": title, "paragraphs": paragraphs}]}


def _multirc(path: Path) -> Iterator[Record]:
    for number, about in _groups(parquet_rows(path), "idx.paragraph"):
        questions = []
        for place, asked in _groups(about, "idx.question"):
            answers = [{"text": row.get("answer"), "idx": at(row, "idx.answer"), "label": _label(row)} for _, row in asked]
            questions.append({"question": asked[0][1].get("question"), "idx": place, "answers": answers})
        where, first = about[0]
        yield where, {"idx": number, "passage": {"text": first.get("paragraph"), "questions": questions}}


def _record(path: Path) -> Iterator[Record]:
    for number, about in _groups(parquet_rows(path), "idx.passage"):
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


def _wsc(path: Path) -> Iterator[Record]:
    for where, row in parquet_rows(path):
        yield where, {**row, "target": {name: row.get(name) for name in COLUMNS["wsc"][1:]}, "label": _label(row)}


def _label(row: dict[str, Any]) -> Any:
    return None if row.get("label") == NO_LABEL else row.get("label")


_GATHER: dict[str, Callable[[Path], Iterator[Record]]] = {
    "squad": _squad,
    "multirc": _multirc,
    "record": _record,
    "wsc": _wsc,
}
