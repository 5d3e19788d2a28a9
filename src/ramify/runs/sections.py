"""The content of reports as plain data. `report/` draws it; no HTML here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Strong:
    """Text that stands out."""

    text: str


@dataclass(frozen=True)
class Code:
    """A command or a name from code."""

    text: str


Spans = Sequence[str | Strong | Code]


@dataclass(frozen=True)
class Line:
    """One line of a chart. `kind` is its class in the style sheet; `marks` draws every point."""

    name: str
    kind: str
    x: Floats
    y: Floats
    marks: bool = False


@dataclass(frozen=True)
class Chart:
    """Lines over a common x from zero on. `zero` puts y's zero into the picture and draws it."""

    lines: tuple[Line, ...]
    x_label: str
    y_label: str
    zero: bool = False


@dataclass(frozen=True)
class Charts:
    """Charts side by side under one legend of (kind, name)."""

    charts: tuple[Chart, ...]
    legend: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Cell:
    """A table's cell: its text, small print under it, and an interval (value, low, high) to be drawn beside it."""

    text: str
    small: str = ""
    interval: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class Column:
    """A column's heading. `drawn` columns have room for intervals."""

    title: str
    drawn: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells, the first of each being the row's heading. All drawn intervals share one scale."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    style: Literal["numbers", "scores"] = "numbers"


@dataclass(frozen=True)
class FilledMask:
    """A masked word, what stands above and around it, and guesses: (kind, name, probability of the word, likeliest pieces)."""

    title: str
    ancestors: tuple[str, ...]
    before: str
    word: str
    after: str
    guesses: tuple[tuple[str, str, float, tuple[tuple[str, float], ...]], ...]


@dataclass(frozen=True)
class FilledMasks:
    """Cards of masked words."""

    masks: tuple[FilledMask, ...]


@dataclass(frozen=True)
class Definitions:
    """Names and their values; `folded` is long text under a heading, hidden until it is asked for."""

    pairs: tuple[tuple[str, str], ...]
    folded: tuple[str, str] | None = None


@dataclass(frozen=True)
class Notice:
    """A sentence in place of a part that is missing."""

    text: Spans


Block = Charts | Table | FilledMasks | Definitions | Notice


@dataclass(frozen=True)
class Section:
    """A part of a report: a heading, a sentence under it, and its content."""

    title: str
    blocks: tuple[Block, ...]
    lead: Spans = ()


def smooth(values: Floats, window: int) -> Floats:
    """Mean over the last `window` values (fewer at the start)."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    stop = np.arange(1, len(values) + 1)
    start = np.maximum(stop - window, 0)
    return (sums[stop] - sums[start]) / (stop - start)


def number(value: float, form: str) -> str:
    """A formatted number with a real minus sign."""
    return f"{value:{form}}".replace("-", "−")


def counted(count: int, what: str, ending: str = "s") -> str:
    return f"{count:,} {what}{'' if count == 1 else ending}"
