"""Which messages a model decides on together."""

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from ramify.batching.views.base import Example, View
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs

NEAR = 12
"""So many messages back, and the target itself, nothing is left out."""


def candidates(targets: Ints, window: int) -> Int[NDArray, "target candidate"]:
    """Each target itself, then the messages 1 to `window` before it; -1 where the log has not begun."""
    return np.maximum(targets[:, None] - np.arange(window + 1), -1)


class Blocks(View):
    """Runs of up to `block` of the given messages (ascending) of one log, each with itself and the messages before it as
    candidates.

    Consecutive messages share most of their candidates, so a block costs little more than one of its messages.

    Of candidates farther than `NEAR` that nothing points to (they are by another author, neither message addresses the other's,
    and the target is not known to answer them) the share `far` is read, drawn anew in every epoch.
    """

    def __init__(self, logs: Logs, targets: Ints, *, block: int, far: float = 1.0, seed: int = 0) -> None:
        self.logs = logs
        self.far = far
        self.seed = seed
        self._targets = targets
        log = logs.log_of(targets)
        # Blocks begin where a log does, and every so many targets after that.
        first = np.flatnonzero(np.diff(log, prepend=-1))
        place = np.arange(len(targets)) - np.repeat(first, np.diff(first, append=len(targets)))
        starts = np.flatnonzero(place % block == 0)
        self._ends = np.append(starts[1:], len(targets)) if len(starts) else starts
        self._starts = starts
        reach = np.minimum(targets - logs.offsets[log], logs.history.window) + 1
        tokens = np.diff(logs.starts)[targets]
        self._keys = np.add.reduceat(reach, starts) if len(starts) else starts
        self._tokens = np.add.reduceat(tokens, starts) if len(starts) else starts

    @property
    def costs(self) -> Ints:
        """Pairs of a message and a candidate, far ones among them, read or not: so updates are of equally many messages."""
        return self._keys

    @property
    def weights(self) -> NDArray[np.float64]:
        return self.sizes.astype(np.float64)

    @property
    def sizes(self) -> Ints:
        return self._ends - self._starts

    @property
    def target_tokens(self) -> Ints:
        return self._tokens

    def example(self, number: int, epoch: int = 0) -> Example:
        targets = self._targets[self._starts[number] : self._ends[number]]
        first = int(self.logs.offsets[self.logs.log_of(targets[:1])[0]])
        near = candidates(targets - first, self.logs.history.window)
        real = near >= 0
        chance = None
        if self.far < 1:
            generator = np.random.Generator(np.random.Philox(key=[self.seed, (epoch << 32) + number]))
            chances = np.where(self._pointed_to(targets, near + first), 1.0, self.far)
            real &= generator.random(near.shape) < chances
            chance = chances[real]
        return Example(targets, np.ones(len(targets)), (near + first)[real], real.sum(axis=1), chance)

    def _pointed_to(self, targets: Ints, near: Int[NDArray, "target candidate"]) -> NDArray[np.bool_]:
        """Which candidates are read in any case."""
        logs = self.logs
        log = int(logs.log_of(targets[:1])[0])
        channel, first = logs.channels[log], int(logs.offsets[log])
        pointed = np.broadcast_to(np.arange(near.shape[1]) <= NEAR, near.shape).copy()
        row, place = np.nonzero(~pointed & (near >= first))
        late, early = targets[row], near[row, place]
        pointed[row, place] = (
            logs.are_by_one(late, early)
            | logs.is_link(late, early)
            | channel.names_speaker_of(late - first, early - first)
            | channel.names_speaker_of(early - first, late - first)
        )
        return pointed
