"""Bootstrap intervals of ratios."""

import math

import numpy as np
import pytest

from ramify.metrics import bootstrap_ratio


def test_bootstrap_of_many_units_equals_the_normal_interval():
    random = np.random.default_rng(0)
    counts = np.full(4000, 7)
    totals = random.normal(0.3, 1.0, 4000)
    found = bootstrap_ratio(totals, counts)
    error = totals.std() / 7 / 4000**0.5
    assert found.value == pytest.approx(totals.sum() / counts.sum())
    assert found.low == pytest.approx(found.value - 1.96 * error, abs=0.1 * error)
    assert found.high == pytest.approx(found.value + 1.96 * error, abs=0.1 * error)
    assert found.p == 1 / 10_000
    assert found == bootstrap_ratio(totals, counts)
    assert found != bootstrap_ratio(totals, counts, seed=1)
    narrow = bootstrap_ratio(totals, counts, level=0.5)
    assert found.low < narrow.low < narrow.value < narrow.high < found.high


def test_bootstrap_weighs_units_by_their_counts():
    """The estimate is Σ totals / Σ counts, not the mean of ratios."""
    found = bootstrap_ratio(np.array([10.0, 0.0]), np.array([1, 99]), resamples=100)
    assert found.value == 0.1


def test_bootstrap_intervals_cover():
    """About 95 % of the intervals of 200 experiments contain the true ratio."""
    random = np.random.default_rng(1)
    covered = 0
    for seed in range(200):
        counts = random.integers(1, 20, 100)
        totals = 0.5 * counts + random.normal(0, 1, 100) * counts**0.5
        found = bootstrap_ratio(totals, counts, resamples=500, seed=seed)
        covered += found.low <= 0.5 <= found.high
    assert 178 <= covered <= 199


def test_p_value():
    random = np.random.default_rng(2)
    counts = np.full(300, 5)
    none = random.normal(0, 1, 300)
    none -= none.mean()
    assert bootstrap_ratio(none, counts).p > 0.9
    # A shift of two standard errors: near .046.
    shifted = none + 2 * none.std() / 300**0.5
    assert bootstrap_ratio(shifted, counts).p == pytest.approx(0.0455, abs=0.015)
    assert bootstrap_ratio(-shifted, counts).p == pytest.approx(0.0455, abs=0.015)


def test_units_without_counts_are_excluded():
    totals, counts = np.array([1.0, 0.0, 2.0]), np.array([2, 0, 4])
    assert bootstrap_ratio(totals, counts) == bootstrap_ratio(totals[[0, 2]], counts[[0, 2]])
    empty = bootstrap_ratio(totals[:0], counts[:0])
    assert all(math.isnan(value) for value in (empty.value, empty.low, empty.high, empty.p))
