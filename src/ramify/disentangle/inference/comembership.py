"""How likely two messages belong to one conversation: more than how likely one answers the other."""

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.disentangle.data.channel import Ints

_ROOM = 4


class Comembership:
    """How likely each message of a log belongs to one conversation with each of those before it, within a window.

    A message belongs where what it answers does: P(t with m) is the sum over all p of P(t answers p) P(p with m). That is exact
    if what messages answer is independent, but for what lies beyond the window. In Bayesian clustering these numbers are known
    as a posterior similarity matrix; here it grows by a row a message, and no more rows are held than a window has.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        # Along the diagonal, so that a window is a square cut out; it moves back to the first corner when it reaches the last.
        self._table = np.eye((1 + _ROOM) * window, dtype=np.float32)
        self._next = window

    def hear(self, back: Ints, shares: Float[NDArray, " candidate"]) -> Float[NDArray, " window"]:
        """Of the next message: how likely it belongs with the one before it, with the one before that, and so on; by how likely
        it answers some of them, each so far `back` (0: it starts a conversation)."""
        if self._next == len(self._table):
            self._move()
        answers = np.zeros(self._window + 1, dtype=np.float32)
        answers[self._window - back] = shares
        before = slice(self._next - self._window, self._next)
        found = answers[:-1] @ self._table[before, before]
        self._table[self._next, before] = self._table[before, self._next] = found
        self._next += 1
        return found[::-1]

    def _move(self) -> None:
        held = self._table[-self._window :, -self._window :].copy()
        self._table[:] = np.eye(len(self._table), dtype=np.float32)
        self._table[: self._window, : self._window] = held
        self._next = self._window


class Comemberships:
    """Of several logs, whose messages are numbered through; each log's is held from its first message that is asked for to its
    last."""

    def __init__(self, offsets: Ints, window: int) -> None:
        self._offsets = offsets
        self._window = window
        self._of: dict[int, Comembership] = {}

    def of(self, message: int) -> Comembership:
        """That of its log. Each message is asked for once, those of a log in order."""
        log = int(np.searchsorted(self._offsets, message, side="right")) - 1
        found = self._of.get(log) or self._of.setdefault(log, Comembership(self._window))
        if message + 1 == self._offsets[log + 1]:
            del self._of[log]
        return found
