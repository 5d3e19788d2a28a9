"""Graph and conversation accuracy, by hand."""

import numpy as np
import pytest

from ramify.metrics.replies import ReplyCounts

PARENT = np.array([0, 0, 1, 0, 0, 1, 2])
PREDICTED = np.array([0, 1, 1, 0, 0, 1, 2])
LENGTHS = np.array([3, 0, 1, 3])
"""Four conversations, the second without comments; in the first one of three parents is wrong."""


def test_scores():
    found = ReplyCounts.count(PREDICTED, PARENT, LENGTHS)
    assert found.comments.tolist() == [3, 1, 3]
    assert found.correct.tolist() == [2, 1, 3]
    assert found.first_correct.tolist() == [1, 1, 1]
    assert found.scores() == pytest.approx(
        {"graph_accuracy": 600 / 7, "graph_accuracy_without_first": 75, "conv_accuracy": 200 / 3}
    )


def test_first_comment_may_be_wrong():
    found = ReplyCounts.count(np.array([1, 0, 7]), np.array([0, 0, 0]), np.array([2, 1]))
    assert found.first_correct.tolist() == [0, 0]
    assert found.scores() == pytest.approx({"graph_accuracy": 100 / 3, "graph_accuracy_without_first": 100, "conv_accuracy": 0})


def test_nothing_to_score():
    none = np.zeros(0, dtype=np.int64)
    assert set(ReplyCounts.count(none, none, np.array([0, 0])).scores().values()) == {None}
    assert ReplyCounts.count(none, none, none).intervals() == {}
    alone = ReplyCounts.count(np.array([0]), np.array([0]), np.array([1]))
    assert alone.scores() == {"graph_accuracy": 100, "graph_accuracy_without_first": None, "conv_accuracy": 100}
    assert set(alone.intervals(resamples=10)) == {"graph_accuracy", "conv_accuracy"}


def test_intervals_contain_the_scores():
    random = np.random.default_rng(0)
    lengths = random.integers(1, 9, size=200)
    right = random.random(lengths.sum()) < 0.7
    found = ReplyCounts.count(right.astype(np.int64), np.ones(lengths.sum(), dtype=np.int64), lengths)
    for name, interval in found.intervals().items():
        assert interval.value == pytest.approx(found.scores()[name])
        assert interval.low < interval.value < interval.high
        assert interval.high - interval.low < 20
