"""Descriptions of a log's lines: how much of them a pattern explains, and whether two patterns read them alike."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ramify.readers import chat
from ramify.readers.chat_log.layout import Layout, Line
from ramify.readers.chat_log.pattern import SPACES

CHARACTER_BITS = 6.0
OPEN = re.compile(r"\{author\} *\{text\}")


@dataclass
class Hypothesis:
    """A pattern, its reading of the sample, and the length of the description in bits."""

    source: str
    layout: Layout
    read: list[Line | None]
    bits: float = 0.0
    fault: str = ""
    """Why it is no chat; "" if it is one."""
    is_possible: bool = True
    """Whether it may be right in spite of its fault, which is a lack of evidence."""
    is_known: bool = False
    """Whether it is the pattern of a known client, whose optional parts may leave out times."""

    @property
    def is_open(self) -> bool:
        """Whether only a space parts names from texts."""
        return OPEN.search(self.source) is not None

    @property
    def messages(self) -> list[tuple[int, Line]]:
        return [(place, line) for place, line in enumerate(self.read) if line and line.kind != chat.SYSTEM]

    @property
    def coverage(self) -> int:
        """Number of messages that the pattern itself fits, without actions and notices."""
        return sum(line is not None and not line.kind for line in self.read)


def description_bits(read: Sequence[Line | None], lines: Sequence[str]) -> float:
    """The length of a description of the lines, given what was read of them."""
    bits = 0.0
    authors: Counter[str] = Counter()
    frames: dict[int, Counter[str]] = defaultdict(Counter)
    for line, parsed in zip(lines, read, strict=True):
        if parsed is None:
            bits += len(line) * CHARACTER_BITS
            continue
        bits += len(parsed.text) * CHARACTER_BITS
        for place, piece in enumerate(_PIECE.findall(frame_of(line, parsed))):
            frames[place][piece] += 1
        if parsed.kind != chat.SYSTEM:
            authors[parsed.author or ""] += 1
    bits += sum(map(_vocabulary_bits, (authors, *frames.values())))
    kinds = Counter("" if parsed is None else parsed.kind or "message" for parsed in read)
    return bits + sum(count * -math.log2(count / len(read)) for count in kinds.values())


def frame_of(line: str, parsed: Line) -> str:
    """A line without its text, author, date and time."""
    frame = line.removesuffix(parsed.text) if parsed.text else line
    for part in (parsed.date, parsed.time, parsed.author):
        if part:
            frame = frame.replace(part, "\0", 1)
    return re.sub(f"[{SPACES}]+", " ", frame)


_PIECE = re.compile(r"\w+|[^\w]")


def _vocabulary_bits(counts: Counter[str]) -> float:
    """Each different string is spelled once, and then named by its frequency."""
    total = sum(counts.values())
    spelled = sum(len(value) * CHARACTER_BITS + 8 for value in counts)
    return spelled + sum(count * -math.log2(count / total) for count in counts.values())


def differ(one: Sequence[Line | None], other: Sequence[Line | None], *, with_times: bool = True) -> bool:
    """Whether two readings of the same lines find other messages in more than a tenth of the lines."""
    differences = sum(_said(a, with_times) != _said(b, with_times) for a, b in zip(one, other, strict=True))
    return differences * 10 > len(one)


def _said(line: Line | None, with_times: bool) -> object:
    if line is None or line.kind == chat.SYSTEM:
        return None
    times = (line.date, line.time) if with_times else ()
    return line.author, line.text.strip(), line.kind, *times
