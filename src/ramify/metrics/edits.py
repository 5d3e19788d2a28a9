"""Edits between sequences."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Sequence_ = NDArray[Any]


def edit_distance(one: Sequence_, other: Sequence_) -> int:
    """The least number of insertions, deletions and replacements that turn one sequence into the other (Levenshtein 1966)."""
    shared = min(len(one), len(other))
    same = one[:shared] == other[:shared]
    start = shared if same.all() else int(same.argmin())
    one, other = one[start:], other[start:]
    shared = min(len(one), len(other))
    same = one[len(one) - shared :][::-1] == other[len(other) - shared :][::-1]
    end = shared if same.all() else int(same.argmin())
    one, other = one[: len(one) - end], other[: len(other) - end]
    if len(one) > len(other):
        one, other = other, one
    place = np.arange(len(other) + 1)
    distances = place.copy()
    for number, item in enumerate(one, 1):
        replaced = distances[:-1] + (other != item)
        without_insertions = np.concatenate([[number], np.minimum(replaced, distances[1:] + 1)])
        # An insertion costs 1: the minimum over all places before, plus the distance to them.
        distances = np.minimum.accumulate(without_insertions - place) + place
    return int(distances[-1])


def change_rate(one: Sequence_, other: Sequence_) -> float:
    """The edit distance of two sequences, divided by the length of the longer one: 0 for equal ones, at most 1."""
    longest = max(len(one), len(other))
    return edit_distance(one, other) / longest if longest else 0.0
