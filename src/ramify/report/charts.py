"""Charts of lines and of dots as inline SVG. Colours are classes of the page's style, so they follow its theme."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

import numpy as np

from ramify.runs.sections import Chart, DotChart, Line, ScatterChart

WIDTH, HEIGHT = 430, 280
LEFT, RIGHT, TOP, BOTTOM = 78, 16, 12, 44
POINTS = 400
"""Most points drawn per line."""


@dataclass(frozen=True)
class Axis:
    """A linear map from values to pixels."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)

    def ticks(self, about: int) -> list[float]:
        """Up to `about` round numbers within the axis, 1, 2 or 5 times a power of ten apart."""
        step = 10 ** math.floor(math.log10((self.high - self.low) / about))
        step *= next(factor for factor in (1, 2, 5, 10) if (self.high - self.low) / (step * factor) <= about)
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def line_chart(chart: Chart) -> str:
    """A chart as SVG, without values that are not finite."""
    x_label, y_label, zero = chart.x_label, chart.y_label, chart.zero
    lines = [replace(line, x=line.x[fine], y=line.y[fine]) for line in chart.lines if (fine := np.isfinite(line.y)).any()]
    if not lines:
        return "<p>No values have been logged yet.</p>"
    x_axis = Axis(0.0, max(max(float(line.x.max()) for line in lines), 1e-9), LEFT, WIDTH - RIGHT)
    y_axis = _y_axis(lines, zero)
    parts = [*_grid(x_axis, y_axis, x_label, y_label)]
    if zero:
        parts.append(f'<line class="zero" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_axis(0):.1f}" y2="{y_axis(0):.1f}"/>')
    for line in lines:
        parts += _line(line, x_axis, y_axis)
    names = ", ".join(line.name for line in lines)
    label = escape(f"{y_label} against {x_label}: {names}")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _y_axis(lines: Sequence[Line], zero: bool) -> Axis:
    # The first steps, in which the loss falls from its random start, may lie above the chart.
    marked = [line for line in lines if line.marks] or lines
    high = max(float(line.y.max()) for line in marked)
    low = min(float(line.y.min()) for line in lines)
    for line in lines:
        high = max(high, float(np.quantile(line.y, 0.95)))
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    margin = max(0.06 * (high - low), 1e-6 * max(1.0, abs(high)))
    return Axis(low - margin, high + margin, HEIGHT - BOTTOM, TOP)


def _grid(x_axis: Axis, y_axis: Axis, x_label: str, y_label: str) -> list[str]:
    parts = _y_grid(y_axis)
    for value in x_axis.ticks(5):
        parts.append(f'<text class="tick" x="{x_axis(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">')
        parts.append(f"{_number(value)}</text>")
    return parts + _labels(x_label, y_label)


def _y_grid(y_axis: Axis) -> list[str]:
    parts = []
    for value in y_axis.ticks(6):
        y = y_axis(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_number(value)}</text>')
    return parts


def _labels(x_label: str, y_label: str) -> list[str]:
    """The x axis, and the labels of both axes."""
    parts = [f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>']
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="label" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    height = (TOP + HEIGHT - BOTTOM) / 2
    turned = f'transform="translate(13 {height}) rotate(-90)"'
    parts.append(f'<text class="label" {turned} text-anchor="middle">{escape(y_label)}</text>')
    return parts


def _line(line: Line, x_axis: Axis, y_axis: Axis) -> list[str]:
    keep = np.unique(np.linspace(0, len(line.x) - 1, min(POINTS, len(line.x))).round().astype(int))
    points = [(x_axis(float(line.x[i])), y_axis(float(line.y[i]))) for i in keep]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    # The inner SVG clips points outside the axes.
    box = f'y="{TOP}" width="{WIDTH}" height="{HEIGHT - BOTTOM - TOP}" viewBox="0 {TOP} {WIDTH} {HEIGHT - BOTTOM - TOP}"'
    parts = [f'<svg {box}><polyline class="{line.kind}" points="{path}"/></svg>']
    if line.marks and len(points) <= 60:
        for place, (x, y) in zip(keep, points):
            hint = escape(f"{line.name}: {line.y[place]:.4f} at {line.x[place]:,.0f}")
            parts.append(f'<circle class="{line.kind}" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{hint}</title></circle>')
    return parts


def dot_chart(chart: DotChart) -> str:
    """A dot with its interval for every estimate, as SVG. Estimates that are not finite are left out."""
    series = [
        [bounds if bounds is not None and np.isfinite(bounds).all() else None for bounds in dots.values]
        for dots in chart.series
    ]
    ends = [end for values in series for bounds in values if bounds is not None for end in bounds]
    if not ends:
        return "<p>There is nothing to draw.</p>"
    low, high = min(*ends, 0.0), max(*ends, 0.0)
    margin = max(0.06 * (high - low), 1e-6)
    y_axis = Axis(low - margin, high + margin, HEIGHT - BOTTOM, TOP)
    width = (WIDTH - RIGHT - LEFT) / len(chart.categories)
    middles = [LEFT + (place + 0.5) * width for place in range(len(chart.categories))]
    parts = _y_grid(y_axis)
    parts.append(f'<line class="zero" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_axis(0):.1f}" y2="{y_axis(0):.1f}"/>')
    for middle, name in zip(middles, chart.categories, strict=True):
        parts.append(
            f'<text class="tick" x="{middle:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{escape(name)}</text>'
        )
    parts += _labels(chart.x_label, chart.y_label)
    for number, (dots, values) in enumerate(zip(chart.series, series, strict=True)):
        shift = (number - (len(series) - 1) / 2) * min(14.0, 0.8 * width / len(series))
        for middle, name, bounds in zip(middles, chart.categories, values, strict=True):
            if bounds is None:
                continue
            value, least, most = bounds
            x, kind = middle + shift, dots.kind
            hint = escape(f"{dots.name}, {name}: {value:+.4f} ({least:+.4f} to {most:+.4f})")
            parts.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{y_axis(least):.1f}" y2="{y_axis(most):.1f}"/>')
            parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y_axis(value):.1f}" r="4"><title>{hint}</title></circle>')
    label = escape(f"{chart.y_label} by {chart.x_label}: {', '.join(dots.name for dots in chart.series)}")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def scatter_chart(chart: ScatterChart) -> str:
    """A plane of points as SVG, with the same scale on both axes. Points that are not finite are left out."""
    points: list[tuple[float, str, float, float]] = []
    for cloud in chart.clouds:
        fine = np.isfinite(cloud.x) & np.isfinite(cloud.y)
        pairs = zip(cloud.x[fine].tolist(), cloud.y[fine].tolist(), strict=True)
        points += [(number / max(1, int(fine.sum())), cloud.kind, x, y) for number, (x, y) in enumerate(pairs)]
    if not points:
        return "<p>There is nothing to draw.</p>"
    wide, high = WIDTH - RIGHT - LEFT, HEIGHT - BOTTOM - TOP
    ends = [(min(values), max(values)) for values in zip(*((x, y) for _, _, x, y in points), strict=True)]
    unit = 1.08 * max((most - least or 1.0) / size for (least, most), size in zip(ends, (wide, high), strict=True))
    x_middle, y_middle = ((least + most) / 2 for least, most in ends)
    x_axis = Axis(x_middle - unit * wide / 2, x_middle + unit * wide / 2, LEFT, WIDTH - RIGHT)
    y_axis = Axis(y_middle - unit * high / 2, y_middle + unit * high / 2, HEIGHT - BOTTOM, TOP)
    parts = _grid(x_axis, y_axis, chart.x_label, chart.y_label)
    # Clouds take turns, so that none hides another.
    for _, kind, x, y in sorted(points, key=lambda point: point[0]):
        parts.append(f'<circle class="{kind} point" cx="{x_axis(x):.1f}" cy="{y_axis(y):.1f}" r="2.4"/>')
    label = escape(f"{chart.y_label} against {chart.x_label}: {', '.join(cloud.name for cloud in chart.clouds)}")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _number(value: float) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:.3g} k"
    return f"{value:.4g}".replace("-", "−") if abs(value) > 1e-12 else "0"
