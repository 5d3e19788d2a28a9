"""Depths of comments, grouped."""

import numpy as np

from ramify.metrics import DEPTH_BINS, depth_bin


def test_depth_bins():
    names = list(DEPTH_BINS)
    assert names == ["1", "2", "3-5", "6-10", "11-20", "21+"]
    found = [names[place] for place in depth_bin(np.arange(30))]
    assert found == ["1"] * 2 + ["2"] + ["3-5"] * 3 + ["6-10"] * 5 + ["11-20"] * 10 + ["21+"] * 9
    assert names[depth_bin(np.array([100_000]))[0]] == "21+"
