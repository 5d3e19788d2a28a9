"""The content of reports as plain data, without HTML. `report/` renders it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Strong:
    """Emphasised text."""

    text: str


@dataclass(frozen=True)
class Code:
    """A command or a name from code."""

    text: str


Spans = Sequence[str | Strong | Code]


@dataclass(frozen=True)
class Line:
    """A line of a chart. `kind` is its class in the style sheet; `marks` draws every point."""

    name: str
    kind: str
    x: Floats
    y: Floats
    marks: bool = False


@dataclass(frozen=True)
class Chart:
    """Lines over a common x axis, which starts at zero. `zero` includes and draws the zero of the y axis."""

    lines: tuple[Line, ...]
    x_label: str
    y_label: str
    zero: bool = False


@dataclass(frozen=True)
class Dots:
    """One estimate per category of a chart, as (value, low, high); None if there is none. `kind` is as in `Line`."""

    name: str
    kind: str
    values: tuple[tuple[float, float, float] | None, ...]


@dataclass(frozen=True)
class DotChart:
    """Estimates with their intervals by category, several series side by side. The zero of the y axis is drawn."""

    categories: tuple[str, ...]
    series: tuple[Dots, ...]
    x_label: str
    y_label: str


@dataclass(frozen=True)
class Cloud:
    """Points of a scatter chart. `kind` is as in `Line`."""

    name: str
    kind: str
    x: Floats
    y: Floats


@dataclass(frozen=True)
class ScatterChart:
    """Clouds of points on a plane whose axes have the same unit."""

    clouds: tuple[Cloud, ...]
    x_label: str
    y_label: str


@dataclass(frozen=True)
class Charts:
    """Charts side by side under one legend of (kind, name)."""

    charts: tuple[Chart | DotChart | ScatterChart, ...]
    legend: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, and small print below it."""

    text: str
    small: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells under the headings of the columns. The first cell of each row is its heading."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    style: Literal["numbers", "scores", "texts"] = "numbers"
    """numbers: the first row is the main one. scores: all rows are alike. texts: likewise, and cells hold running text."""


@dataclass(frozen=True)
class FilledMask:
    """A masked word in its sentence, its ancestors, and guesses: (kind, name, probability of the word, likeliest pieces)."""

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
class MarkedText:
    """A part of a text, marked in its surroundings, and lines below it. `marked` is empty if there is none."""

    title: str
    before: str
    marked: str
    after: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class MarkedTexts:
    """Cards of texts."""

    texts: tuple[MarkedText, ...]


@dataclass(frozen=True)
class WeightMap:
    """Weights from 0 to 1 as shades: a row for each query, with a column for each key. `title` is a caption."""

    title: str
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    weights: Floats


@dataclass(frozen=True)
class Definitions:
    """Names and their values. `folded` is a heading and a long text that is hidden until it is opened."""

    pairs: tuple[tuple[str, str], ...]
    folded: tuple[str, str] | None = None


@dataclass(frozen=True)
class Notice:
    """A sentence that replaces a missing part."""

    text: Spans


Block = Charts | Table | FilledMasks | MarkedTexts | WeightMap | Definitions | Notice


@dataclass(frozen=True)
class Section:
    """A part of a report: a heading, a lead below it, and its content."""

    title: str
    blocks: tuple[Block, ...]
    lead: Spans = ()


def smooth(values: Floats, window: int) -> Floats:
    """Means over the last `window` values, or fewer at the start."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    stop = np.arange(1, len(values) + 1)
    start = np.maximum(stop - window, 0)
    return (sums[stop] - sums[start]) / (stop - start)


def chosen_on_dev(split: str) -> Spans:
    """A caution for scores on the split on which the weights were chosen."""
    return (
        (" The weights were chosen on this split; for unbiased scores, use ", Code("--split test"), ".")
        if split == "dev"
        else ()
    )


def number(value: float, form: str) -> str:
    """A formatted number with a typographic minus sign."""
    return f"{value:{form}}".replace("-", "−")
