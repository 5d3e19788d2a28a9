"""Metrics as pure functions of sums and counts."""

from ramify.metrics.depths import DEPTH_BINS, depth_bin
from ramify.metrics.intervals import Interval, bootstrap_ratio

__all__ = ["DEPTH_BINS", "Interval", "bootstrap_ratio", "depth_bin"]
