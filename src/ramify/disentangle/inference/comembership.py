"""Comembership: the probability that two messages belong to one conversation, which is more than that one answers the other."""

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.disentangle.data.channel import Ints

_ROOM = 4


class Comembership:
    """The probability that a message of a log shares a conversation with each message before it, within a window.

    A message belongs where its parent does: P(t with m) is the sum over all p of P(p is t's parent) P(p with m). This is exact
    if parents are independent, except for messages beyond the window. In Bayesian clustering these numbers are known as a
    posterior similarity matrix; here it grows by one row per message, and holds no more rows than a window.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        # Along the diagonal, so that a window is a square slice; it moves back to the first corner when it reaches the last.
        self._table = np.eye((1 + _ROOM) * window, dtype=np.float32)
        self._next = window

    def update(self, distance: Ints, probabilities: Float[NDArray, " candidate"]) -> Float[NDArray, " window"]:
        """Add the next message, by the probabilities of some candidates and their distances back (0: a start). Returns its
        probabilities to share a conversation with the message before it, the one before that, and so on."""
        if self._next == len(self._table):
            self._move()
        parents = np.zeros(self._window + 1, dtype=np.float32)
        parents[self._window - distance] = probabilities
        before = slice(self._next - self._window, self._next)
        row = parents[:-1] @ self._table[before, before]
        self._table[self._next, before] = self._table[before, self._next] = row
        self._next += 1
        return row[::-1]

    def find_latest(self, conversation: Ints, message: int) -> int:
        """The distance to the latest message of the same conversation; 0 if there is none within the window."""
        first = max(0, message - self._window)
        same = np.flatnonzero(conversation[first:message] == conversation[message])
        return message - first - int(same[-1]) if len(same) else 0

    def _move(self) -> None:
        held = self._table[-self._window :, -self._window :].copy()
        self._table[:] = np.eye(len(self._table), dtype=np.float32)
        self._table[: self._window, : self._window] = held
        self._next = self._window


class Comemberships:
    """The comemberships of several logs, whose messages are numbered through. Each log's is held from the first to the last of
    its messages that are asked for."""

    def __init__(self, offsets: Ints, window: int) -> None:
        """`offsets`: where each log starts, and the end of the last; a log without an end is a live channel."""
        self._starts = offsets
        self._ends = frozenset(offsets[1:].tolist())
        self._window = window
        self._by_log: dict[int, Comembership] = {}

    def select(self, message: int) -> Comembership:
        """The comembership of a message's log. Ask once per message, and in order within a log."""
        log = int(np.searchsorted(self._starts, message, side="right")) - 1
        comembership = self._by_log.get(log) or self._by_log.setdefault(log, Comembership(self._window))
        if message + 1 in self._ends:
            del self._by_log[log]
        return comembership
