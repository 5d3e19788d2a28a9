"""Typed records from JSON lines, from a JSON list, or from the list in {"data": […]}.

Well-formed blocks of lines are decoded at once, others line by line and leniently.
"""

import codecs
import contextlib
import io
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ramify.readers.base import ReadCounts, blocks, open_bytes
from ramify.readers.documents import documents_in, text_in
from ramify.readers.encodings import decoded_bytewise
from ramify.readers.values import fields
from ramify.tree import encodable_json

Record = TypeVar("Record", bound=msgspec.Struct)

LIST = "data"
"""The key of the list of records in an object, as APIs return it."""

_SINGLE = rb'(?:null|true|false|-?[0-9.]+|"[^"\\\\]*")'
_LISTED = re.compile(rb'\[\s*(?=[{\]])|\{(?:\s*"\w*"\s*:\s*' + _SINGLE + rb'\s*,)*\s*"data"\s*:\s*\[\s*(?=[{\]])')
_BATCH = 1 << 14


def is_json(head: bytes) -> bool:
    """Whether a table begins like JSON: with an object, or with a list of objects."""
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()
    return start.startswith(b"{") or _LISTED.match(start) is not None


def first_record(head: bytes) -> dict[str, Any]:
    """The first record in the first bytes of a file. {} if it is damaged or longer."""
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()
    listed = _LISTED.match(start)
    text = decoded_bytewise(start[listed.end() :] if listed else start.partition(b"\n")[0])
    try:
        return fields(json.JSONDecoder(strict=False).raw_decode(text)[0])
    except (ValueError, RecursionError):
        return {}


def objects_of(path: Path) -> list[dict[str, Any]] | None:
    """The records of a file that is a list, or an object with a list; None for JSON lines."""
    with open_bytes(path) as stream:
        is_list = _is_list(stream)
        return [record for _, record in _listed(stream, path, ReadCounts()) if isinstance(record, dict)] if is_list else None


def _is_list(stream: io.BufferedReader) -> bool:
    return _LISTED.match(stream.peek().removeprefix(codecs.BOM_UTF8).lstrip()) is not None


def _listed(stream: io.BufferedReader, path: Path, counts: ReadCounts) -> Iterator[tuple[int, Any]]:
    """The numbered records of the lists in a file."""
    number = 0
    for _, document in documents_in(stream, path, counts):
        inside = fields(document).get(LIST, document)
        for record in inside if isinstance(inside, list) else [inside]:
            number += 1
            yield number, record


def records(path: Path, counts: ReadCounts, kind: type[Record]) -> Iterator[tuple[Sequence[int], list[Record]]]:
    """Yield batches of records and the numbers of their lines, or of their places in a list. All fields of `kind` must have
    defaults.

    Blank lines are ignored. Every other line is counted as read; a line that is not a JSON object is skipped as `bad_json`.
    """
    decoder = msgspec.json.Decoder(kind)
    with open_bytes(path, counts) as stream:
        if _is_list(stream):
            yield from _from_list(stream, path, counts, kind)
            return
        for numbers, block in blocks(stream, counts, path):
            try:
                batch = decoder.decode_lines(block)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                batch = []
            if len(batch) != len(numbers):
                numbers, batch = _one_by_one(path, counts, decoder, numbers, block)
            counts.read += len(batch)
            yield numbers, batch


def _from_list(
    stream: io.BufferedReader, path: Path, counts: ReadCounts, kind: type[Record]
) -> Iterator[tuple[Sequence[int], list[Record]]]:
    numbers, batch = list[int](), list[Record]()
    for number, value in _listed(stream, path, counts):
        counts.read += 1
        try:
            batch.append(_converted(kind, value))
        except (ValueError, RecursionError) as error:
            counts.skip("bad_json", f"{path}, record {number}: {error}")
            continue
        numbers.append(number)
        if len(batch) == _BATCH:
            yield numbers, batch
            numbers, batch = [], []
    if batch:
        yield numbers, batch


def _one_by_one(
    path: Path, counts: ReadCounts, decoder: msgspec.json.Decoder[Record], lines: range, block: bytes
) -> tuple[list[int], list[Record]]:
    numbers, batch = [], []
    for number, line in zip(lines, block.split(b"\n")):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        text = text_in(line, where, counts)
        try:
            record = decoder.decode(text)
        except (msgspec.DecodeError, RecursionError):
            try:
                record = _converted(decoder.type, json.loads(text))
            except (ValueError, RecursionError) as error:
                counts.leave_out("bad_json", f"{where}: {error}")
                continue
            counts.repair("odd_json", where)
        numbers.append(number)
        batch.append(record)
    return numbers, batch


def _converted(kind: type[Record], value: Any) -> Record:
    """An object as a record. Values of unexpected types are dropped, and lone surrogates become U+FFFD."""
    record = encodable_json(value)
    if not isinstance(record, dict):
        raise ValueError(f"expected a JSON object, got {type(record).__name__}")
    values = {}
    for field in msgspec.structs.fields(kind):
        with contextlib.suppress(msgspec.ValidationError):
            values[field.name] = msgspec.convert(record.get(field.encode_name), field.type)
    return kind(**values)
