"""Spread and effective rank against plain definitions."""

import numpy as np
import pytest

from ramify.metrics.vectors import effective_rank, spread


@pytest.mark.parametrize("shape", [(50, 8), (6, 20)])
def test_the_effective_rank_comes_from_singular_values(shape: tuple[int, int]):
    vectors = np.random.default_rng(0).normal(size=shape) * np.linspace(1, 4, shape[1]) + 3
    squares = np.linalg.svd(vectors - vectors.mean(0), compute_uv=False) ** 2
    shares = squares / squares.sum()
    shares = shares[shares > 1e-20]
    assert effective_rank(vectors) == pytest.approx(float(np.exp(-(shares * np.log(shares)).sum())))


def test_the_rank_of_equal_vectors_of_one_direction_and_of_all():
    same = np.full((100, 7), 0.1, dtype=np.float32)
    assert effective_rank(same) == 0
    line = np.linspace(-1, 1, 9)[:, None] * np.ones((1, 5)) + 2
    assert effective_rank(line) == pytest.approx(1)
    assert effective_rank(np.concatenate([np.eye(6), -np.eye(6)])) == pytest.approx(6)
    assert np.isnan(effective_rank(np.zeros((0, 3))))
    assert effective_rank(np.zeros((4, 3))) == 0


def test_the_spread_is_a_share_of_the_length():
    assert spread(np.full((10, 3), 0.1, dtype=np.float32)) == pytest.approx(0, abs=1e-7)
    assert spread(np.array([[1.0, 0.0], [-1.0, 0.0]])) == 1
    vectors = np.array([[3.0, 1.0], [3.0, -1.0]])
    assert spread(vectors) == pytest.approx(1 / np.sqrt(10))
    assert spread(np.zeros((4, 3))) == 0
    assert np.isnan(spread(np.zeros((0, 3))))
