"""Ranks, AUROC and paired tests against plain definitions."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from ramify.metrics.ranking import auroc, bootstrap_auroc, rank, sign_flip


def test_equal_scores_share_the_mean_of_their_ranks():
    assert rank(2.0, np.array([1.0, 3.0, 0.0])) == 2
    assert rank(2.0, np.array([2.0, 2.0])) == 2
    assert rank(0.0, np.zeros(999)) == 500.5


def test_auroc_is_that_of_scikit_learn_with_and_without_ties():
    random = np.random.default_rng(0)
    for scale in (3, 1000):
        positive, negative = random.integers(0, scale, 40) / scale, random.integers(0, scale, 70) / scale - 0.1
        labels = np.repeat([1, 0], [40, 70])
        assert auroc(positive, negative) == pytest.approx(roc_auc_score(labels, np.concatenate([positive, negative])))
    assert np.isnan(auroc(np.zeros(0), np.zeros(3)))


def test_the_bootstrap_of_an_auroc_draws_units():
    random = np.random.default_rng(1)
    kept = random.normal(size=300)
    found = bootstrap_auroc(kept + 1, kept, np.arange(300), resamples=300)
    assert found.value == pytest.approx(auroc(kept + 1, kept) - 0.5)
    assert found.low > 0
    assert found.p <= 2 / 300
    equal = bootstrap_auroc(random.normal(size=300), kept, np.arange(300), resamples=300)
    assert equal.p > 0.01
    # One unit has one resample, so nothing varies.
    one = bootstrap_auroc(kept + 1, kept, np.zeros(300, dtype=np.int64), resamples=20)
    assert one.low == one.high == one.value


def test_sign_flips_of_units():
    random = np.random.default_rng(2)
    assert sign_flip(np.ones(20), np.arange(20)) < 0.001
    assert sign_flip(np.ones(20), np.zeros(20, dtype=np.int64)) == 1
    assert sign_flip(random.choice([-1.0, 1.0], 200), np.arange(200)) > 0.01
    # Three units that all agree: two of eight sign patterns are as large.
    assert sign_flip(np.ones(3), np.arange(3)) == pytest.approx(0.25, abs=0.02)
    assert np.isnan(sign_flip(np.zeros(0), np.zeros(0, dtype=np.int64)))
