"""Candidates: the messages that a message may answer."""

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs


def list_candidates(targets: Ints, window: int) -> Int[NDArray, "target candidate"]:
    """Each target itself, then the messages 1 to `window` before it; -1 before the start of the log."""
    return np.maximum(targets[:, None] - np.arange(window + 1), -1)


def first_candidates(logs: Logs, messages: Ints) -> Ints:
    """The earliest candidate of each message of the logs."""
    return np.maximum(messages - logs.input.window, logs.offsets[logs.find_log(messages)])


def add_candidates(logs: Logs, messages: Ints) -> Ints:
    """The messages with all their candidates."""
    reach = first_candidates(logs, messages)
    depth = np.zeros(len(logs) + 1, dtype=np.int64)
    np.add.at(depth, reach, 1)
    np.add.at(depth, messages + 1, -1)
    return np.flatnonzero(np.cumsum(depth[:-1]) > 0)
