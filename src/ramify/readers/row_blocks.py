"""The bytes of a delimited table in blocks of whole rows, cut where Arrow ends a row.

Arrow's streaming reader cuts rows too, but a thread of Arrow's reads the stream ahead, and goes on after an error. A thread
that asks for Python's lock while the process ends aborts the process, or waits for ever. Python waits for a thread of its own.
"""

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Gaps = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Starts and ends of the parts of some rows that lie in no quoted field. A line end there ends a row."""

Item = TypeVar("Item")

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINE_ENDS = (b"\n", b"\r")


class RowTooLongError(ValueError):
    """A row goes on over all of a block and into the next: it is longer than a block, or a quotation mark is never closed."""


def row_blocks(read: Callable[[int], bytes], size: int, delimiter: str, quote: str) -> Iterator[memoryview]:
    """The header row, then blocks of whole rows. The last row may lack its line end. `read` gives the stream's next bytes, at
    most `size`. Raises `RowTooLongError`."""
    rest, block, headed = b"", read(size).removeprefix(_BYTE_ORDER_MARK), False
    while block:
        following = read(size)
        data = rest + block
        gaps = _gaps(data, delimiter, quote)
        end = _last_row_end(data, gaps) if following else len(data)
        if rest and not end:
            raise RowTooLongError
        start = 0
        if end and not headed:
            headed, start = True, _first_row_end(data, gaps)
            yield memoryview(data)[:start]
        if start < end:
            yield memoryview(data)[start:end]
        rest, block = data[end:], following


def one_ahead(items: Iterator[Item]) -> Generator[Item, None, None]:
    """The same items. A thread makes the next one while the caller uses the last. It ends with this generator, and before the
    interpreter does."""
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, items, None)
        while (item := following.result()) is not None:
            following = pool.submit(next, items, None)
            yield item


def _first_row_end(data: bytes, gaps: Gaps) -> int:
    """Where the first row ends. The last row may lack its line end."""
    for start, end in zip(*gaps, strict=True):
        found = [place for mark in _LINE_ENDS if (place := data.find(mark, start, end)) >= 0]
        if found:
            return min(found) + (2 if data.startswith(b"\r\n", min(found)) else 1)
    return len(data)


def _last_row_end(data: bytes, gaps: Gaps) -> int:
    """Where the last row with a line end ends; 0 if there is none."""
    backwards: Iterable[tuple[int, int]] = zip(*(places[::-1] for places in gaps), strict=True)
    for start, end in backwards:
        found = max(data.rfind(mark, start, end) for mark in _LINE_ENDS)
        if found >= 0:
            return found + 1
    return 0


def _gaps(data: bytes, delimiter: str, quote: str) -> Gaps:
    marks = np.zeros(0, np.int64)
    if quote and quote.encode() in data:
        marks = _field_marks(np.frombuffer(data, np.uint8), ord(delimiter), ord(quote))
    # A field that is open at the end has no gap behind it.
    return np.append(0, marks[1::2] + 1), np.append(marks, len(data))[::2]


def _field_marks(data: NDArray[np.uint8], delimiter: int, quote: int) -> NDArray[np.int64]:
    """Places of the quotation marks that open and close fields, in turn. A doubled mark closes a field and opens it again."""
    marks = np.flatnonzero(data == quote)
    before = data[marks - 1]
    # A mark opens a field only where the field starts. In the middle of an unquoted field it is text.
    opens = (marks == 0) | (before == delimiter) | (before == ord("\n")) | (before == ord("\r"))
    can_open = opens | np.append(False, marks[1:] == marks[:-1] + 1)
    if can_open[::2].all():
        return marks
    openings = np.flatnonzero(opens).tolist()
    # The marks of even and of odd number that can open no field, and reopen none.
    plain = [(2 * np.flatnonzero(~can_open[odd::2]) + odd).tolist() for odd in (0, 1)]
    kept = np.zeros(len(marks), bool)
    at = 0
    while (place := bisect_left(openings, at)) < len(openings):
        start = openings[place]
        place = bisect_left(plain[start % 2], start)
        at = plain[start % 2][place] if place < len(plain[start % 2]) else len(marks)
        kept[start:at] = True
    return marks[kept]
