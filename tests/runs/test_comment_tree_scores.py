"""The table that compares two evaluations."""

import numpy as np

from ramify.inference.evaluation import Scores, gain
from ramify.metrics import DEPTH_BINS
from ramify.runs.comment_trees.scores import _table


def test_a_depth_of_one_tree_has_no_interval():
    count = np.zeros((3, len(DEPTH_BINS), 2), np.int64)
    count[:, 0] = 10
    count[2, 1] = 10
    random = np.random.default_rng(0)
    classes = ("content", "function words")
    own, other = (Scores(["a", "b", "c"], count * random.uniform(1, 2, count.shape), 0 * count, count, classes) for _ in "12")
    lines = _table(own, other, gain(own, other), ("loss", "own loss"))
    assert [line.split()[0] for line in lines] == ["depth", "all", "1", "2", "content", "function"]
    assert ["one tree only" in line for line in lines] == [False, False, False, True, False, False]
    assert lines[3].split()[4:] == ["one", "tree", "only", "20"]
