"""Blocks of whole rows from a delimited table, cut at the row ends that Arrow sees.

Arrow's streaming reader is not used because one of its threads reads the stream ahead and continues after an error. A foreign
thread that requests Python's lock at exit aborts the process or deadlocks. A Python thread is joined at exit.
"""

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Gaps = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Starts and ends of the stretches outside quoted fields. A line end in such a stretch ends a row."""

Item = TypeVar("Item")

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINE_ENDS = (b"\n", b"\r")


class RowTooLongError(ValueError):
    """A row is longer than a block, or a quotation mark is never closed."""


def row_blocks(read: Callable[[int], bytes], size: int, delimiter: str, quote: str) -> Iterator[memoryview]:
    """Yield the header row, then blocks of whole rows. The last row may lack its line end.

    `read(size)` returns at most `size` further bytes of the stream. Raises `RowTooLongError`.
    """
    rest, block, has_header = b"", read(size).removeprefix(_BYTE_ORDER_MARK), False
    while block:
        following = read(size)
        data = rest + block
        gaps = _gaps(data, delimiter, quote)
        end = _last_row_end(data, gaps) if following else len(data)
        if rest and not end:
            raise RowTooLongError
        start = 0
        if end and not has_header:
            has_header, start = True, _first_row_end(data, gaps)
            yield memoryview(data)[:start]
        if start < end:
            yield memoryview(data)[start:end]
        rest, block = data[end:], following


def one_ahead(items: Iterator[Item]) -> Generator[Item, None, None]:
    """Yield the same items. A thread computes the next item while the caller uses the current one.

    The thread ends with this generator, before the interpreter exits.
    """
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, items, None)
        while (item := following.result()) is not None:
            following = pool.submit(next, items, None)
            yield item


def _first_row_end(data: bytes, gaps: Gaps) -> int:
    """The end of the first row. The last row may lack its line end."""
    for start, end in zip(*gaps, strict=True):
        places = [place for mark in _LINE_ENDS if (place := data.find(mark, start, end)) >= 0]
        if places:
            return min(places) + (2 if data.startswith(b"\r\n", min(places)) else 1)
    return len(data)


def _last_row_end(data: bytes, gaps: Gaps) -> int:
    """The end of the last row that has a line end; 0 if there is none."""
    backwards: Iterable[tuple[int, int]] = zip(*(places[::-1] for places in gaps), strict=True)
    for start, end in backwards:
        place = max(data.rfind(mark, start, end) for mark in _LINE_ENDS)
        if place >= 0:
            return place + 1
    return 0


def _gaps(data: bytes, delimiter: str, quote: str) -> Gaps:
    marks = np.zeros(0, np.int64)
    if quote and quote.encode() in data:
        marks = _field_marks(np.frombuffer(data, np.uint8), ord(delimiter), ord(quote))
    # A field that is open at the end has no gap after it.
    return np.append(0, marks[1::2] + 1), np.append(marks, len(data))[::2]


def _field_marks(data: NDArray[np.uint8], delimiter: int, quote: int) -> NDArray[np.int64]:
    """Places of the quotation marks that open and close fields, alternating. A doubled mark closes a field and reopens it."""
    marks = np.flatnonzero(data == quote)
    before = data[marks - 1]
    # A mark opens a field only at the field's start. Inside an unquoted field it is text.
    opens = (marks == 0) | (before == delimiter) | (before == ord("\n")) | (before == ord("\r"))
    can_open = opens | np.append(False, marks[1:] == marks[:-1] + 1)
    if can_open[::2].all():
        return marks
    openings = np.flatnonzero(opens).tolist()
    # The marks with even and with odd numbers that can neither open nor reopen a field.
    plain = [(2 * np.flatnonzero(~can_open[odd::2]) + odd).tolist() for odd in (0, 1)]
    in_use = np.zeros(len(marks), bool)
    at = 0
    while (place := bisect_left(openings, at)) < len(openings):
        start = openings[place]
        place = bisect_left(plain[start % 2], start)
        at = plain[start % 2][place] if place < len(plain[start % 2]) else len(marks)
        in_use[start:at] = True
    return marks[in_use]
