"""Nested records of SQuAD and SuperGLUE from Parquet with one row per question, as the Hugging Face hub has them.

Consecutive rows about one text become one record in the layout of the publisher. A row is held until its record is complete.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from ramify.readers.base import ReadCounts, open_bytes
from ramify.readers.columns import PARQUET, header, parquet_rows
from ramify.readers.documents import documents
from ramify.readers.values import fields, objects

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
    return next((shape for shape, columns in COLUMNS.items() if all(column in names for column in columns)), None)


def records(path: Path, counts: ReadCounts, shape: str) -> Iterator[Record]:
    """The records of a file: of Parquet, as `COLUMNS` describes it, or of JSON."""
    with open_bytes(path) as stream:
        is_parquet = stream.peek(len(PARQUET)).startswith(PARQUET)
    if is_parquet:
        yield from _GATHER[shape](path)
    else:
        yield from documents(path, counts)


def _squad(path: Path) -> Iterator[Record]:
    """One record per article, in the order of the rows."""
    # The file as a whole says whether it is version 2.0, in which a question may have no answer.
    version = "2.0" if any(not _texts(row) for _, row in parquet_rows(path, ["answers"])) else "1.1"
    for title, rows in groupby(parquet_rows(path), key=lambda row: row[1].get("title")):
        paragraphs: list[dict[str, Any]] = []
        place = ""
        for where, row in rows:
            place = place or where
            if not paragraphs or paragraphs[-1]["context"] != row.get("context"):
                paragraphs.append({"context": row.get("context"), "qas": []})
            answers = fields(row.get("answers"))
            pairs = zip(_texts(row), answers.get("answer_start") or [])
            question = {
                "id": row.get("id"),
                "question": row.get("question"),
                "is_impossible": version == "2.0" and not _texts(row),
            }
            paragraphs[-1]["qas"].append(
                question | {"answers": [{"text": text, "answer_start": start} for text, start in pairs]}
            )
        yield place, {"version": version, "data": [{"title": title, "paragraphs": paragraphs}]}


def _texts(row: dict[str, Any]) -> Sequence[str]:
    return fields(row.get("answers")).get("text") or []


def _multirc(path: Path) -> Iterator[Record]:
    for number, rows in groupby(parquet_rows(path), key=lambda row: _number(row, "paragraph")):
        first, *others = rows
        questions = [
            {
                "question": asked[0][1].get("question"),
                "idx": place,
                "answers": [
                    {"text": row.get("answer"), "idx": _number((where, row), "answer"), "label": _label(row)}
                    for where, row in asked
                ],
            }
            for place, group in groupby([first, *others], key=lambda row: _number(row, "question"))
            if (asked := list(group))
        ]
        yield first[0], {"idx": number, "passage": {"text": first[1].get("paragraph"), "questions": questions}}


def _record(path: Path) -> Iterator[Record]:
    for number, rows in groupby(parquet_rows(path), key=lambda row: _number(row, "passage")):
        first, *others = rows
        passage = first[1].get("passage")
        queries = []
        for where, row in (first, *others):
            spans = _spans(row)
            query: dict[str, Any] = {"query": row.get("query"), "idx": _number((where, row), "query")}
            if row.get("answers"):
                query["answers"] = [span for span in spans if span["text"] in row["answers"]]
            queries.append(query)
        yield first[0], {"idx": number, "passage": {"text": passage, "entities": _spans(first[1])}, "qas": queries}


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
        target = {name: row.get(name) for name in COLUMNS["wsc"] if name != "text"}
        yield where, {"text": row.get("text"), "idx": row.get("idx"), "target": target, "label": _label(row)}


def _number(row: Row, name: str) -> Any:
    """The number of a text in its data set."""
    return fields(row[1].get("idx")).get(name)


def _label(row: dict[str, Any]) -> Any:
    return None if row.get("label") == NO_LABEL else row.get("label")


_GATHER: dict[str, Callable[[Path], Iterator[Record]]] = {
    "squad": _squad,
    "multirc": _multirc,
    "record": _record,
    "wsc": _wsc,
}
