"""Typed records from JSON lines. Well-formed blocks are decoded at once, others line by line and leniently."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from ramify.readers.base import ReadCounts, blocks, open_bytes
from ramify.tree import encodable_json

Record = TypeVar("Record", bound=msgspec.Struct)


def records(path: Path, counts: ReadCounts, kind: type[Record]) -> Iterator[tuple[Sequence[int], list[Record]]]:
    """Yield batches of records and the numbers of their lines. All fields of `kind` must have defaults.

    Blank lines are ignored. Every other line is counted as read; a line that is not a JSON object is skipped as `bad_json`.
    """
    decoder = msgspec.json.Decoder(kind)
    with open_bytes(path, counts) as stream:
        for numbers, block in blocks(stream, counts, path):
            try:
                batch = decoder.decode_lines(block)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                batch = []
            if len(batch) != len(numbers):
                numbers, batch = _one_by_one(path, counts, decoder, numbers, block)
            counts.read += len(batch)
            yield numbers, batch


def _one_by_one(
    path: Path, counts: ReadCounts, decoder: msgspec.json.Decoder[Record], lines: range, block: bytes
) -> tuple[list[int], list[Record]]:
    numbers, batch = [], []
    for number, line in zip(lines, block.split(b"\n")):
        if not line.strip():
            continue
        try:
            record = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            try:
                record = _leniently(decoder.type, line)
            except (ValueError, RecursionError) as error:
                counts.read += 1
                counts.skip("bad_json", f"{path}, line {number}: {error}")
                continue
            counts.repair("odd_json", f"{path}, line {number}")
        numbers.append(number)
        batch.append(record)
    return numbers, batch


def _leniently(kind: type[Record], line: bytes) -> Record:
    """Decode a line. Invalid UTF-8 and lone surrogates become U+FFFD; values of unexpected types are dropped."""
    record = encodable_json(json.loads(line.decode("utf-8", "replace")))
    if not isinstance(record, dict):
        raise ValueError(f"expected a JSON object, got {type(record).__name__}")
    values = {}
    for field in msgspec.structs.fields(kind):
        with contextlib.suppress(msgspec.ValidationError):
            values[field.name] = msgspec.convert(record.get(field.encode_name), field.type)
    return kind(**values)
