"""Blocks: consecutive messages whose links a model predicts together."""

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from ramify.batching.views.base import Example, View
from ramify.disentangle.data.candidates import first_candidates, list_candidates
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs

NEAR = 12
"""Negative sampling never drops a candidate at most this far back."""


class Blocks(View[Example]):
    """Runs of up to `block` of the given messages (ascending) of one log, each with itself and the messages before it as
    candidates.

    Consecutive messages share most of their candidates, so a block costs little more than one of its messages.

    `negative_sampling_rate` is the share of easy candidates that are kept, drawn anew in every epoch: those farther than `NEAR`
    that have another author than the target, no mention of each other's author, and no gold link.
    """

    def __init__(self, logs: Logs, targets: Ints, *, block: int, negative_sampling_rate: float = 1.0, seed: int = 0) -> None:
        self.logs = logs
        self.negative_sampling_rate = negative_sampling_rate
        self.seed = seed
        self._targets = targets
        log = logs.find_log(targets)
        # A block starts with each log, and after every `block` targets of it.
        first = np.flatnonzero(np.diff(log, prepend=-1))
        place = np.arange(len(targets)) - np.repeat(first, np.diff(first, append=len(targets)))
        starts = np.flatnonzero(place % block == 0)
        self._ends = np.append(starts[1:], len(targets)) if len(starts) else starts
        self._starts = starts
        num_candidates = targets - first_candidates(logs, targets) + 1
        tokens = logs.count_tokens(targets)
        self._costs = np.add.reduceat(num_candidates, starts) if len(starts) else starts
        self._tokens = np.add.reduceat(tokens, starts) if len(starts) else starts

    @property
    def costs(self) -> Ints:
        """Pairs of a message and a candidate before negative sampling, so that updates hold equally many messages."""
        return self._costs

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
        first = int(self.logs.offsets[self.logs.find_log(targets[:1])[0]])
        candidates = list_candidates(targets - first, self.logs.input.window)
        kept = candidates >= 0
        probability = None
        if self.negative_sampling_rate < 1:
            generator = np.random.Generator(np.random.Philox(key=[self.seed, (epoch << 32) + number]))
            always = self._is_always_kept(targets, candidates + first)
            probabilities = np.where(always, 1.0, self.negative_sampling_rate)
            kept &= generator.random(candidates.shape) < probabilities
            probability = probabilities[kept]
        return Example(targets, np.ones(len(targets)), (candidates + first)[kept], kept.sum(axis=1), probability)

    def _is_always_kept(self, targets: Ints, candidates: Int[NDArray, "target candidate"]) -> NDArray[np.bool_]:
        logs = self.logs
        log = int(logs.find_log(targets[:1])[0])
        channel, first = logs.channels[log], int(logs.offsets[log])
        kept = np.broadcast_to(np.arange(candidates.shape[1]) <= NEAR, candidates.shape).copy()
        row, place = np.nonzero(~kept & (candidates >= first))
        late, early = targets[row], candidates[row, place]
        kept[row, place] = (
            logs.have_same_author(late, early)
            | logs.is_link(late, early)
            | channel.mentions_author_of(late - first, early - first)
            | channel.mentions_author_of(early - first, late - first)
        )
        return kept
