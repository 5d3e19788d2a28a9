"""JSON values from files with one value per line or a single value, nested to any depth."""

import codecs
import io
import json
import re
from collections.abc import Iterator
from itertools import chain
from json.decoder import scanstring  # pyright: ignore[reportAttributeAccessIssue]
from pathlib import Path
from typing import Any

from ramify.readers.base import Held, ReadCounts, lines, open_bytes
from ramify.readers.encodings import decoded_bytewise
from ramify.tree import encodable

MAX_NESTING = 1_000_000


def documents(path: Path, counts: ReadCounts, held: Held | None = None) -> Iterator[tuple[str, Any]]:
    """Yield (file and line, value). A value that cannot be parsed counts as one skipped post.

    `held` counts bytes for a reader that keeps all values. A file that is a single value is always counted.
    """
    return documents_in(open_bytes(path, counts), path, counts, held)


def listed(path: Path, counts: ReadCounts, held: Held | None = None) -> Iterator[tuple[str, Any]]:
    """Yield (place, record) for the values of `documents`, or for the items of those that are lists."""
    for where, document in documents(path, counts, held):
        for record in document if isinstance(document, list) else [document]:
            yield where, record


def documents_in(
    opened: io.BufferedReader, path: Path, counts: ReadCounts, held: Held | None = None
) -> Iterator[tuple[str, Any]]:
    """`documents` of an open file, which is closed at the end. `path` names it in messages."""
    with opened as stream:
        number = 0
        first = True
        blocks = lines(stream, counts, path)
        if held is not None:
            blocks = _counted(blocks, path, held)
        for block in blocks:
            for place, line in enumerate(block):
                number += 1
                if not line.strip():
                    continue
                where = f"{path}, line {number}"
                try:
                    value = loads(text_of_line(line, where, counts))
                except ValueError as error:
                    if first and _is_unfinished(error):
                        rest = _counted(blocks, path, single_value("Write it as JSON lines, one value per line."))
                        yield from _as_one([*block[place:], *chain.from_iterable(rest)], number, path, counts)
                        return
                    counts.leave_out("bad_json", f"{where}: {error}")
                else:
                    yield where, value
                first = False


def loads(data: bytes | str) -> Any:
    """Parse JSON, without recursion if it is deeply nested. Lone surrogates become U+FFFD. Raises `ValueError`."""
    text = data if isinstance(data, str) else data.decode("utf-8-sig")
    try:
        value = json.loads(text, strict=False)
    except RecursionError:
        value = _loads_nested(text)
    return _encodable([value])[0] if "\\ud" in text or "\\uD" in text else value


def _encodable(whole: list[Any]) -> list[Any]:
    """A list of JSON values, changed in place: its strings and keys are `encodable`."""
    todo: list[Any] = [whole]
    while todo:
        container = todo.pop()
        if isinstance(container, dict):
            pairs = [(encodable(key), value) for key, value in container.items()]
            container.clear()
        else:
            pairs = list(enumerate(container))
        for key, value in pairs:
            container[key] = encodable(value) if isinstance(value, str) else value
            if isinstance(value, dict | list):
                todo.append(value)
    return whole


def text_of_line(data: bytes, where: str, counts: ReadCounts) -> str:
    """The text of a line of JSON, in which bytes that are not UTF-8 are read as Windows-1252, and counted."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        counts.repair("encoding", where)
        return decoded_bytewise(data.removeprefix(codecs.BOM_UTF8))


def single_value(remedy: str) -> Held:
    """A counter for a file that is one JSON value."""
    return Held("is one JSON value of", remedy)


def _counted(blocks: Iterator[list[bytes]], path: Path, held: Held) -> Iterator[list[bytes]]:
    for block in blocks:
        held.add(path, sum(map(len, block)))
        yield block


def _as_one(rest: list[bytes], number: int, path: Path, counts: ReadCounts) -> Iterator[tuple[str, Any]]:
    """Parse the rest of a file as a single value or, if that fails, line by line.

    If no line is a list or an object, the rest counts as one damaged value.
    """
    whole = b"\n".join(rest)
    try:
        value = loads(text_of_line(whole, f"{path}", counts))
    except ValueError as error:
        if not any(map(_is_container, rest)):
            where = f"{path}, line {number + _place(whole, error)}"
            counts.leave_out("bad_json", f"{where}, where the file's single value is truncated or damaged: {error}")
            return
        for line_number, line in enumerate(rest, number):
            if line.strip():
                where = f"{path}, line {line_number}"
                try:
                    yield where, loads(text_of_line(line, where, counts))
                except ValueError as error:
                    counts.leave_out("bad_json", f"{where}: {error}")
    else:
        yield f"{path}", value


def _is_container(line: bytes) -> bool:
    try:
        return isinstance(loads(line), dict | list)
    except ValueError:
        return False


def _place(data: bytes, error: ValueError) -> int:
    """The line, from 0, at which parsing failed."""
    if isinstance(error, json.JSONDecodeError):
        return error.lineno - 1
    return data.count(b"\n", 0, error.start) if isinstance(error, UnicodeDecodeError) else 0


def _is_unfinished(error: ValueError) -> bool:
    return isinstance(error, json.JSONDecodeError) and error.pos >= len(error.doc.rstrip())


# --- parsing without recursion ------------------------------------------------------------------------------------------

_space = re.compile(r"[ \t\n\r]*").match
_scalar = re.compile(r"(?:-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null|NaN|-?Infinity)(?![\w.])").match


def _loads_nested(text: str) -> Any:
    """`json.loads` with an explicit stack of open containers, each with the key that awaits its value."""
    open_: list[tuple[Any, str | None]] = []
    at = _skip(text, 0)
    while True:
        char = text[at : at + 1]
        if char in ("{", "["):
            if len(open_) == MAX_NESTING:
                raise json.JSONDecodeError(f"Nested deeper than {MAX_NESTING:,}", text, at)
            value = {} if char == "{" else []
            at = _skip(text, at + 1)
            if text[at : at + 1] != ("}" if char == "{" else "]"):
                key = None
                if char == "{":
                    key, at = _key(text, at)
                open_.append((value, key))
                continue
            at += 1
        elif char == '"':
            value, at = scanstring(text, at + 1, False)
        elif match := _scalar(text, at):
            value, at = json.loads(match.group()), match.end()
        else:
            raise json.JSONDecodeError("Expecting value", text, at)
        while True:
            at = _skip(text, at)
            if not open_:
                if at != len(text):
                    raise json.JSONDecodeError("Extra data", text, at)
                return value
            container, key = open_[-1]
            if key is None:
                container.append(value)
            else:
                container[key] = value
            char = text[at : at + 1]
            at += 1
            if char == ",":
                at = _skip(text, at)
                if key is not None:
                    key, at = _key(text, at)
                    open_[-1] = container, key
                break
            if char != ("]" if key is None else "}"):
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at - 1)
            open_.pop()
            value = container


def _skip(text: str, at: int) -> int:
    match = _space(text, at)
    return match.end() if match else at


def _key(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] != '"':
        raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
    key, at = scanstring(text, at + 1, False)
    at = _skip(text, at)
    if text[at : at + 1] != ":":
        raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
    return key, _skip(text, at + 1)
