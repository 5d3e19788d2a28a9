"""Which messages a model decides on together, and how far back it looks for what they answer."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ramify.chat.channel import Ints
from ramify.chat.features import candidates
from ramify.chat.logs import Logs
from ramify.errors import RamifyError
from ramify.fields import check_fields
from ramify.views import Example, View


@dataclass(frozen=True)
class History:
    """How a chat is read: part of a trained model, so that it is used as it was trained."""

    window: int = 100
    """Messages back that one may answer."""
    causal: bool = False
    """Look at nothing that is said later, as a live channel needs it."""
    faithful: bool = False
    """With the quirks of the features' published code (see `Channel.of`)."""

    def __post_init__(self) -> None:
        check_fields(self, "reading.")
        if self.window < 1:
            raise RamifyError(f"reading.window must be at least 1, not {self.window}.")


class Blocks(View):
    """Runs of up to `block` messages of one log, each with itself and the messages before it as candidates.

    Consecutive messages share most of their candidates, so a block costs little more than one of its messages. In training
    (`known`) only messages take part whose link is known and within the window.
    """

    def __init__(self, logs: Logs, history: History, *, block: int, known: bool) -> None:
        self.logs = logs
        self.history = history
        targets = np.flatnonzero(logs.annotated) if known else np.arange(len(logs))
        log = logs.log_of(targets)
        if known:
            reachable = logs.links[logs.links[:, 0] - logs.links[:, 1] <= history.window, 0]
            inside = np.isin(targets, reachable)
            targets, log = targets[inside], log[inside]
        self._targets = targets
        # Blocks begin where a log does, and every so many targets after that.
        first = np.flatnonzero(np.diff(log, prepend=-1))
        place = np.arange(len(targets)) - np.repeat(first, np.diff(first, append=len(targets)))
        starts = np.flatnonzero(place % block == 0)
        self._ends = np.append(starts[1:], len(targets)) if len(starts) else starts
        self._starts = starts
        reach = np.minimum(targets - logs.offsets[log], history.window) + 1
        tokens = np.diff(logs.starts)[targets]
        self._keys = np.add.reduceat(reach, starts) if len(starts) else starts
        self._tokens = np.add.reduceat(tokens, starts) if len(starts) else starts

    @property
    def costs(self) -> Ints:
        """Pairs of a message and a candidate."""
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
        near = candidates(targets - first, self.history.window)
        real = near >= 0
        return Example(targets, np.ones(len(targets)), (near + first)[real], real.sum(axis=1))
