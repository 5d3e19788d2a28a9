"""Text of log lines: mixed encodings and colour codes."""

import codecs
import io
import re
from pathlib import Path

from ramify.readers.base import ReadCounts
from ramify.readers.encodings import decoded, with_line_ends
from ramify.readers.messages import HEAD_BYTES

_CODES = re.compile(
    "[\x02\x0f\x11\x16\x1d\x1e\x1f]|\x03(?:[0-9]{1,2}(?:,[0-9]{1,2})?)?"
    "|\x04[0-9A-Fa-f]{6}(?:,[0-9A-Fa-f]{6})?|\x1b\\[[0-9;:]{0,32}m"
)
# Tabs separate the fields of some dialects and are removed later.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f]")


def text_lines(block: bytes, encoding: str, first: int, path: Path, counts: ReadCounts) -> list[str]:
    """The lines of a block without line ends and colour codes. `first` is the number of the first line, from 1.

    An undecodable line is read as cp1252 (`auto`), or its undecodable bytes become U+FFFD. It is counted.
    """
    text = decoded(block, encoding, first, path, counts).replace("\r\n", "\n")
    # Before codes are removed, because an unfinished line may hold nothing else.
    text = text[:-1] if text.endswith(("\n", "\r")) else text
    if _CONTROLS.search(text):
        text = _CONTROLS.sub(" ", _CODES.sub("", text))
    return text.split("\n")


def head_lines(head: bytes, encoding: str) -> list[str]:
    """The whole lines of the first bytes of a file."""
    stream, encoding = with_line_ends(io.BufferedReader(io.BytesIO(head)), encoding)
    lines = text_lines(stream.read().removeprefix(codecs.BOM_UTF8), encoding, 1, Path(), ReadCounts())
    return lines[:-1] if len(head) >= HEAD_BYTES else lines
