"""Depths of comments, grouped as reports show them."""

import numpy as np
from numpy.typing import NDArray

DEPTH_BINS = {"1": (1, 1), "2": (2, 2), "3-5": (3, 5), "6-10": (6, 10), "11-20": (11, 20), "21+": (21, 2**31)}
"""Depths of comments (top level = 1) as reports group them."""


def depth_bin(depth: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of every depth in `DEPTH_BINS`; posts (depth 0) count with depth 1."""
    return np.searchsorted([last for _, last in DEPTH_BINS.values()], depth, side="left")
