"""Streams in UTF-16, UTF-32 or another encoding, re-encoded as they are read."""

import codecs
import io
from typing import Any

from ramify.tree import encodable

_SLICE = 1 << 18

_WIDE = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_MOST_WIDE = 0.6


def wide_encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32 if the first bytes are the byte order mark of one of them, else None.

    Without a mark, it is UTF-16 if most of its odd bytes are 0, or most of its even ones, and it holds no character 0.
    """
    if name := next((name for mark, name in _WIDE.items() if head.startswith(mark)), None):
        return name
    halves = head[: len(head) & ~1]
    for first, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        if halves[first::2].count(0) > _MOST_WIDE * (len(halves) // 2) and "\0" not in halves.decode(name, "replace"):
            return name
    return None


class Recoded(io.RawIOBase):
    """A re-encoded stream. Undecodable bytes become U+FFFD. `by_returns`: any line end becomes "\\n"."""

    def __init__(self, inner: io.BufferedReader, encoding: str, written: str, by_returns: bool) -> None:
        self._inner = inner
        self._decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)("replace"), translate=by_returns)
        self._written = written
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        while not self._ready:
            # `read1` does not wait for a full slice. A pipe may stay open for days.
            data = self._inner.read1(_SLICE)
            text = self._decoder.decode(data, final=not data)
            self._ready = memoryview(encodable(text).encode(self._written))
            if not data:
                break
        target = memoryview(buffer).cast("B")
        size = min(len(target), len(self._ready))
        target[:size], self._ready = self._ready[:size], self._ready[size:]
        return size
