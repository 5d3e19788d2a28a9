"""Text in unknown or mixed encodings: streams whose lines end with b"\\n", and the text of a block of lines."""

import codecs
import io
import re
from pathlib import Path

from ramify.errors import RamifyError
from ramify.readers.base import ReadCounts, bad_option
from ramify.readers.recoding import Recoded, wide_encoding
from ramify.tree import encodable

AUTO = "auto"


def check_encoding(encoding: str) -> None:
    """Raise `RamifyError` for an unknown encoding."""
    try:
        if encoding != AUTO:
            "\n".encode(encoding)
            bytes(range(256)).decode(encoding, "replace")
    except (LookupError, ValueError):
        raise bad_option("encoding", "auto or the name of a Python encoding, such as koi8-r", encoding) from None


def with_line_ends(stream: io.BufferedReader, encoding: str) -> tuple[io.BufferedReader, str]:
    """A stream whose lines end with b"\\n", and the encoding of its lines.

    UTF-16 and similar encodings are re-encoded, and so are streams whose lines end with b"\\r" alone.
    """
    head = stream.peek()
    wide = None
    if isinstance(stream.raw, Recoded):
        encoding = AUTO
    elif encoding == AUTO:
        wide = wide_encoding(head)
    elif "\n".encode(encoding) != b"\n":
        wide = encoding
    if encoding == AUTO:
        check_escapes(head, "Name its encoding (--option encoding={name}), or convert")
    text = head.decode(wide or "latin-1", "replace")
    # A "\r" at the end of the head may be half of "\r\n".
    by_returns = "\r" in text[:-1] and "\n" not in text
    if wide is None and not by_returns:
        return stream, encoding
    recoded = Recoded(stream, wide, "utf-8", by_returns) if wide else Recoded(stream, "latin-1", "latin-1", by_returns)
    return io.BufferedReader(recoded, buffer_size=1 << 20), "utf-8" if wide else encoding


_ESCAPES = {
    "iso-2022-jp": re.compile(rb"\x1b\$[@B]|\x1b\([IJ]"),
    "iso-2022-kr": re.compile(rb"\x1b\$\)C"),
    "iso-2022-cn": re.compile(rb"\x1b\$\)[AG]"),
}
_MOST_ESCAPED = 0.01


def check_escapes(head: bytes, remedy: str = "Convert") -> None:
    """Raise `RamifyError` if more than some of the lines hold the escapes of an ISO-2022 encoding."""
    lines = head.split(b"\n") if b"\x1b" in head else []
    for name, mark in _ESCAPES.items():
        if sum(map(bool, map(mark.search, lines))) > _MOST_ESCAPED * len(lines):
            raise RamifyError(
                f"the text holds escapes of {name}, so it is not UTF-8. {remedy.format(name=name)} it "
                f"(iconv -f {name} -t UTF-8 FILE)."
            )


def decoded(block: bytes, encoding: str, first: int, path: Path, counts: ReadCounts) -> str:
    """The text of a block of lines, with as many lines as the block. `first` is the number of the first line, from 1.

    An undecodable line is read as cp1252 (`auto`), or its undecodable bytes become U+FFFD. It is counted.
    """
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
            counts.repair("encoding", f"{path}, line {number}")
        lines.append(encodable(text).replace("\n", " "))
    return "\n".join(lines)


def as_windows(error: UnicodeError) -> tuple[str, int]:
    """The undecodable bytes as Windows-1252, and where they end: a handler of errors for `codecs`."""
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.end].decode("cp1252", "replace"), error.end


codecs.register_error("ramify.cp1252", as_windows)


def decoded_bytewise(data: bytes) -> str:
    """The text of UTF-8 in which other bytes are read as cp1252, one by one, because markup may stand on a single line."""
    return data.decode("utf-8", "ramify.cp1252")
