"""Depth bins of reports."""

import numpy as np
from numpy.typing import NDArray

DEPTH_BINS = {"1": (1, 1), "2": (2, 2), "3-5": (3, 5), "6-10": (6, 10), "11-20": (11, 20), "21+": (21, 2**31)}
"""Name of a bin -> its first and last depth. Top-level comments have depth 1."""


def depth_bin(depth: NDArray[np.int64]) -> NDArray[np.int64]:
    """The index of each depth's bin in `DEPTH_BINS`. Posts (depth 0) belong to the first bin."""
    return np.searchsorted([last for _, last in DEPTH_BINS.values()], depth, side="left")
