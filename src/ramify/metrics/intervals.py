"""Bootstrap intervals of ratios."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
SMALLEST_P = 1 / RESAMPLES
"""The least p-value that so many resamples can give."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its bootstrap interval and the two-sided p-value of the hypothesis that it is zero.

    `p` is twice the share of resamples on the other side of zero, and at least 1 / (number of resamples).
    """

    value: float
    low: float
    high: float
    p: float


def bootstrap_ratio(
    totals: NDArray[np.float64], counts: NDArray[np.int64], *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The bootstrap interval of Σ totals / Σ counts over units that are drawn with replacement.

    For a paired difference of two systems on the same units, pass the differences of their totals.
    """
    units = np.flatnonzero(counts > 0)
    if len(units) == 0:
        return Interval(float("nan"), float("nan"), float("nan"), float("nan"))
    totals, counts = totals[units], counts[units]
    random = np.random.Generator(np.random.Philox(key=seed))
    ratios = np.empty(resamples)
    block = max(1, 2**22 // len(units))
    for start in range(0, resamples, block):
        sample = random.integers(len(units), size=(min(block, resamples - start), len(units)))
        ratios[start : start + len(sample)] = totals[sample].sum(1) / counts[sample].sum(1)
    return interval(float(totals.sum() / counts.sum()), ratios, level)


def interval(value: float, resampled: NDArray[np.float64], level: float = 0.95) -> Interval:
    """The percentile interval of an estimate, given its values on resampled units."""
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    other_side = min((resampled <= 0).mean(), (resampled >= 0).mean())
    p = min(1.0, max(2 * other_side, 1 / len(resampled)))
    return Interval(value, float(low), float(high), float(p))
