"""Lines as text: mixed encodings, and codes that colour."""

import codecs
import io
import re
from pathlib import Path
from typing import Any

from ramify.readers.base import Report, bad_option, wide_encoding
from ramify.tree import encodable

AUTO = "auto"

_SLICE = 1 << 18

_CODES = re.compile(
    "[\x02\x0f\x11\x16\x1d\x1e\x1f]|\x03(?:[0-9]{1,2}(?:,[0-9]{1,2})?)?"
    "|\x04[0-9A-Fa-f]{6}(?:,[0-9A-Fa-f]{6})?|\x1b\\[[0-9;:]{0,32}m"
)
# A tab parts the fields of some dialects: it goes when they are read.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f]")


def check_encoding(encoding: str) -> None:
    try:
        if encoding != AUTO:
            "\n".encode(encoding)
            bytes(range(256)).decode(encoding, "replace")
    except (LookupError, ValueError):
        raise bad_option("encoding", "auto or the name of an encoding that Python knows, such as koi8-r", encoding) from None


def with_line_ends(stream: io.BufferedReader, encoding: str) -> tuple[io.BufferedReader, str]:
    """A stream whose lines end with b"\\n", and the encoding of its lines: UTF-16 and the like are written anew, and so is
    what begins with lines that end with b"\\r" alone."""
    head = stream.peek()
    if encoding == AUTO:
        wide = wide_encoding(head)
    else:
        wide = None if "\n".encode(encoding) == b"\n" else encoding
    text = head.decode(wide or "latin-1", "replace")
    # One that the head breaks off at may be half of "\r\n".
    by_returns = "\r" in text[:-1] and "\n" not in text
    if wide is None and not by_returns:
        return stream, encoding
    anew = _Anew(stream, wide, "utf-8", by_returns) if wide else _Anew(stream, "latin-1", "latin-1", by_returns)
    return io.BufferedReader(anew, buffer_size=1 << 20), "utf-8" if wide else encoding


def text_lines(block: bytes, encoding: str, first: int, path: Path, report: Report) -> list[str]:
    """The lines of a block without their ends and codes; `first` is the number of the first of them, from 1.

    A line that is not in its encoding is taken for cp1252 (`auto`), or U+FFFD stands for what cannot be read, and is counted.
    """
    text = _decoded(block, encoding, first, path, report).replace("\r\n", "\n")
    # Before codes go, for an unfinished line may hold nothing else.
    text = text[:-1] if text.endswith(("\n", "\r")) else text
    if _CONTROLS.search(text):
        text = _CONTROLS.sub(" ", _CODES.sub("", text))
    return text.split("\n")


def _decoded(block: bytes, encoding: str, first: int, path: Path, report: Report) -> str:
    strict, lenient = ("utf-8", "cp1252") if encoding == AUTO else (encoding, encoding)
    try:
        text = block.decode(strict)
    except ValueError:
        pass
    else:
        # Some encodings have line ends that are not b"\n".
        if strict == "utf-8" or text.count("\n") == block.count(b"\n"):
            return encodable(text)
    lines = []
    for number, line in enumerate(block.split(b"\n"), start=first):
        try:
            text = line.decode(strict)
        except ValueError:
            text = line.decode(lenient, "replace")
            report.mend("encoding", f"{path}, line {number}")
        lines.append(encodable(text).replace("\n", " "))
    return "\n".join(lines)


class _Anew(io.RawIOBase):
    """A stream in another encoding; U+FFFD stands for what cannot be read. `by_returns`: whatever ends a line becomes "\\n"."""

    def __init__(self, inner: io.BufferedReader, encoding: str, written: str, by_returns: bool) -> None:
        self._inner = inner
        self._decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)("replace"), translate=by_returns)
        self._written = written
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        while not self._ready:
            # What has come, not all that would fill a slice: a pipe may go on for days.
            data = self._inner.read1(_SLICE)
            text = self._decoder.decode(data, final=not data)
            self._ready = memoryview(encodable(text).encode(self._written))
            if not data:
                break
        target = memoryview(buffer).cast("B")
        size = min(len(target), len(self._ready))
        target[:size], self._ready = self._ready[:size], self._ready[size:]
        return size
