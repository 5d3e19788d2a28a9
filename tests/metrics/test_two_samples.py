"""Distances of two samples, and the variety of texts."""

import numpy as np
import pytest
from scipy.stats import energy_distance as in_one_dimension

from ramify.metrics.two_samples import classifier_accuracy, coverage, energy_distance, fitted_gaussian, nearest_cosines
from ramify.metrics.variety import distinct, self_bleu


def normal(rows, dim, seed, shift=0.0):
    return (np.random.default_rng(seed).standard_normal((rows, dim)) + shift).astype(np.float32)


def test_energy_distance_against_scipy():
    """scipy's is the root of the biased sum, in which a value has distance 0 to itself."""
    one, other = normal(40, 1, 0).astype(float), normal(50, 1, 1, 0.7).astype(float)
    between = 2 * np.abs(one - other.T).mean()
    within = sum(np.abs(sample - sample.T).sum() / (len(sample) * (len(sample) - 1)) for sample in (one, other))
    biased = sum(np.abs(sample - sample.T).mean() for sample in (one, other))
    assert energy_distance(one, other) * between == pytest.approx(between - within, rel=1e-5)
    assert in_one_dimension(one[:, 0], other[:, 0]) ** 2 == pytest.approx(between - biased, rel=1e-4)


def test_energy_distance_of_equal_and_of_distant_samples():
    assert abs(energy_distance(normal(400, 8, 0), normal(400, 8, 1))) < 0.01
    assert energy_distance(np.zeros((5, 3)), np.ones((5, 3))) == pytest.approx(1.0)
    assert energy_distance(np.zeros((5, 3)), np.zeros((5, 3))) == 0.0
    assert np.isnan(energy_distance(np.zeros((1, 3)), np.zeros((5, 3))))


def test_coverage():
    real = np.arange(20, dtype=np.float64)[:, None]
    assert coverage(real, real) == 1.0
    # The third neighbour of 0 is 3, that of 5 lies two away.
    assert coverage(real, np.array([[5.0]]), neighbours=3) == pytest.approx(5 / 20)
    assert coverage(real, np.zeros((0, 1))) == 0.0
    assert np.isnan(coverage(real[:5], real))


def test_a_collapsed_sample_covers_little():
    real = normal(200, 6, 0)
    assert coverage(real, np.repeat(real[:1], 200, 0)) < 0.2
    assert coverage(real, normal(200, 6, 1)) > 0.9


def test_nearest_cosines_equal_all_pairs():
    vectors, known = normal(7, 5, 0), normal(30, 5, 1)
    vectors[3] = 0
    cosines, numbers = nearest_cosines(vectors, known)
    pairs = vectors @ known.T / np.maximum(np.linalg.norm(vectors, axis=1)[:, None] * np.linalg.norm(known, axis=1), 1e-12)
    assert cosines == pytest.approx(pairs.max(1), abs=1e-6)
    others = [0, 1, 2, 4, 5, 6]
    assert (numbers[others] == pairs.argmax(1)[others]).all()


def test_a_fresh_classifier_tells_only_different_samples_apart():
    one = normal(300, 6, 0)
    assert abs(classifier_accuracy(one, normal(300, 6, 1), 0) - 0.5) < 0.08
    assert classifier_accuracy(one, normal(300, 6, 1, 1.5), 0) > 0.9
    # Vectors of both samples have been learned with the other label.
    assert classifier_accuracy(one, one[::-1], 0) < 0.5


def test_a_fresh_classifier_leaves_the_generator_of_random_numbers_alone():
    import torch

    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    classifier_accuracy(normal(10, 2, 0), normal(10, 2, 1), 0)
    assert torch.equal(torch.rand(2), expected)


def test_a_fitted_gaussian_has_mean_and_covariance():
    real = normal(60, 4, 0) @ np.random.default_rng(2).standard_normal((4, 4)).astype(np.float32) + 3
    drawn = fitted_gaussian(real, 200_000, 0)
    assert drawn.mean(0) == pytest.approx(real.mean(0), abs=0.05)
    assert np.cov(drawn.T) == pytest.approx(np.cov(real.T), abs=0.15)


def test_distinct_ngrams():
    assert distinct([[1, 2, 1], [1, 2]], 1) == pytest.approx(2 / 5)
    assert distinct([[1, 2, 1], [1, 2]], 2) == pytest.approx(2 / 3)
    assert np.isnan(distinct([[1]], 2))


def test_self_bleu():
    pytest.importorskip("sacrebleu")
    same = ["the cat sat on the mat"] * 3
    assert self_bleu(same) == pytest.approx(100.0)
    assert self_bleu(["the cat sat on the mat", "no word here is shared with it"]) < 10
    assert np.isnan(self_bleu(same[:1]))
