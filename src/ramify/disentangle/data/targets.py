"""Targets: the messages of a log that a model decides, and those that it reads for them."""

import numpy as np

from ramify.disentangle.data.candidates import add_candidates
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs


def decode_start(logs: Logs) -> Ints:
    """[log]: the message that decoding starts at, so that the decisions on annotated messages do not depend on it: two windows
    before the first of them."""
    return np.maximum(logs.offsets[:-1], logs.first_annotated - 2 * logs.input.window)


def list_targets(logs: Logs, start: Ints) -> Ints:
    """The messages of each log from its message `start` on."""
    return np.concatenate([np.zeros(0, dtype=np.int64), *map(np.arange, start, logs.offsets[1:])])


def list_read_messages(logs: Logs, start: Ints) -> Ints:
    """All messages that are read to decide each log from its message `start` on."""
    return add_candidates(logs, list_targets(logs, start))
