"""Pure functions on sums and counts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DEPTH_BINS = {"1": (1, 1), "2": (2, 2), "3-5": (3, 5), "6-10": (6, 10), "11-20": (11, 20), "21+": (21, 2**31)}
"""Depths of comments (top level = 1) as reports group them."""


def depth_bin(depth: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of every depth in `DEPTH_BINS`; posts (depth 0) count with depth 1."""
    return np.searchsorted([last for _, last in DEPTH_BINS.values()], depth, side="left")


@dataclass(frozen=True)
class Interval:
    """An estimate with its bootstrap interval and two-sided p-value (of being on the other side of zero)."""

    value: float
    low: float
    high: float
    p: float


def bootstrap_ratio(
    totals: NDArray[np.float64], counts: NDArray[np.int64], *, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Σ totals / Σ counts over units drawn with replacement. For a paired difference of two systems on the same units, give
    the differences of their totals.

    The p-value is twice the share of resamples on zero's other side, at least 1 / resamples.
    """
    units = np.flatnonzero(counts > 0)
    if len(units) == 0:
        return Interval(float("nan"), float("nan"), float("nan"), float("nan"))
    totals, counts = totals[units], counts[units]
    random = np.random.Generator(np.random.Philox(key=seed))
    ratios = np.empty(resamples)
    block = max(1, 2**22 // len(units))
    for start in range(0, resamples, block):
        drawn = random.integers(len(units), size=(min(block, resamples - start), len(units)))
        ratios[start : start + len(drawn)] = totals[drawn].sum(1) / counts[drawn].sum(1)
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2])
    other_side = min((ratios <= 0).mean(), (ratios >= 0).mean())
    p = min(1.0, max(2 * other_side, 1 / resamples))
    return Interval(float(totals.sum() / counts.sum()), float(low), float(high), float(p))
