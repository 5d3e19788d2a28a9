"""JSON lines to typed records, fast while lines are as they should be, and leniently where they are not."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from ramify.readers.base import Report, blocks, open_bytes
from ramify.tree import encodable_json

Record = TypeVar("Record", bound=msgspec.Struct)


def records(path: Path, report: Report, kind: type[Record]) -> Iterator[tuple[Sequence[int], list[Record]]]:
    """Batches of records and the numbers of their lines. All fields of `kind` must have defaults.

    Blank lines are passed over. Every other line is counted as read; what is no JSON object is skipped as `bad_json`.
    """
    decoder = msgspec.json.Decoder(kind)
    with open_bytes(path, report) as stream:
        for numbers, block in blocks(stream, report, path):
            try:
                batch = decoder.decode_lines(block)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                batch = []
            if len(batch) != len(numbers):
                numbers, batch = _one_by_one(path, report, decoder, numbers, block)
            report.read += len(batch)
            yield numbers, batch


def _one_by_one(
    path: Path, report: Report, decoder: msgspec.json.Decoder[Record], lines: range, block: bytes
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
                report.read += 1
                report.skip("bad_json", f"{path}, line {number}: {error}")
                continue
            report.mend("odd_json", f"{path}, line {number}")
        numbers.append(number)
        batch.append(record)
    return numbers, batch


def _leniently(kind: type[Record], line: bytes) -> Record:
    """Bytes that are not UTF-8 and half surrogate pairs become U+FFFD; values of other types than expected go."""
    record = encodable_json(json.loads(line.decode("utf-8", "replace")))
    if not isinstance(record, dict):
        raise ValueError(f"expected a JSON object, got {type(record).__name__}")
    values = {}
    for field in msgspec.structs.fields(kind):
        with contextlib.suppress(msgspec.ValidationError):
            values[field.name] = msgspec.convert(record.get(field.encode_name), field.type)
    return kind(**values)
