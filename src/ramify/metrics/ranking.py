"""Ranks of right candidates, the area under the ROC curve, and significance by resampling."""

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.metrics.intervals import Interval, interval

Floats = NDArray[np.floating[Any]]
RESAMPLES = 2_000


def rank(score: float, others: Floats) -> float:
    """The rank of a score among others, from 1. Equal scores share the mean of their ranks."""
    return 1.0 + float((others > score).sum()) + 0.5 * float((others == score).sum())


def auroc(positive: Floats, negative: Floats) -> float:
    """The probability that a positive score is higher than a negative one; equal scores count one half."""
    if not len(positive) or not len(negative):
        return float("nan")
    return _area(*_histograms(positive, negative))


def bootstrap_auroc(
    positive: Floats, negative: Floats, units: NDArray[np.int64], *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The AUROC of paired scores less 1/2, with its bootstrap interval over units.

    Item i has a score in both arrays and belongs to the unit `units[i]`; a resample draws units with replacement.
    """
    if not len(positive):
        nan = float("nan")
        return Interval(nan, nan, nan, nan)
    _, unit = np.unique(units, return_inverse=True)
    random = np.random.Generator(np.random.Philox(key=seed))
    count, size = int(unit.max()) + 1, len(positive)
    distinct, place = np.unique(np.concatenate([positive, negative]), return_inverse=True)
    values = len(distinct)
    areas = np.empty(resamples)
    for start in range(resamples):
        weights = np.bincount(random.integers(count, size=count), minlength=count)[unit].astype(np.float64)
        areas[start] = _area(
            np.bincount(place[:size], weights, minlength=values), np.bincount(place[size:], weights, minlength=values)
        )
    return interval(auroc(positive, negative) - 0.5, areas - 0.5)


def _histograms(positive: Floats, negative: Floats) -> tuple[Floats, Floats]:
    """The number of positive and of negative scores at each distinct value, in ascending order."""
    values, place = np.unique(np.concatenate([positive, negative]), return_inverse=True)
    cut = len(positive)
    counts = (np.bincount(part, minlength=len(values)).astype(np.float64) for part in (place[:cut], place[cut:]))
    one, other = counts
    return one, other


def _area(positive: NDArray[Any], negative: NDArray[Any]) -> float:
    below = np.cumsum(negative) - negative
    return float((positive * (below + 0.5 * negative)).sum() / (positive.sum() * negative.sum()))


def sign_flip(differences: Floats, units: NDArray[np.int64], *, resamples: int = 10_000, seed: int = 0) -> float:
    """The two-sided p-value of paired differences, if exchanging the two systems within a unit changes nothing.

    Each resample flips the signs of whole units. The value is at least 1 / (resamples + 1); NaN without differences.
    """
    return sign_flips(differences[None], units, resamples=resamples, seed=seed)[0]


def sign_flips(
    differences: Float[NDArray[np.floating[Any]], "measure item"],
    units: NDArray[np.int64],
    *,
    resamples: int = 10_000,
    seed: int = 0,
) -> list[float]:
    """As `sign_flip`, for several measures of the same items. They share the flips, which take most of the time."""
    count, items = differences.shape
    if not items:
        return [float("nan")] * count
    _, unit = np.unique(units, return_inverse=True)
    sums = np.stack([np.bincount(unit, row) for row in differences], 1)
    total = sums.sum(0)
    random = np.random.Generator(np.random.Philox(key=seed))
    at_least = np.zeros(count, dtype=np.int64)
    block = max(1, 2**22 // len(sums))
    for start in range(0, resamples, block):
        kept = random.integers(2, size=(min(block, resamples - start), len(sums))).astype(np.float64)
        at_least += (np.abs(2 * (kept @ sums) - total) >= np.abs(total) - 1e-9).sum(0)
    return ((at_least + 1) / (resamples + 1)).tolist()
