"""The posterior of reply links: how likely each candidate is the parent of a message."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.batching.batch import join
from ramify.disentangle.data.channel import Ints


@dataclass(frozen=True)
class LinkPosterior:
    """Probabilities of the candidates of some messages: the message itself first (a start), then the nearest first."""

    messages: Ints
    candidates: Ints
    lengths: Ints
    """Number of candidates of each message."""
    probabilities: Float[NDArray, " key"]

    @classmethod
    def concatenate(cls, parts: "Sequence[LinkPosterior]") -> "LinkPosterior":
        return cls(
            join([part.messages for part in parts]),
            join([part.candidates for part in parts]),
            join([part.lengths for part in parts]),
            np.concatenate([np.zeros(0, dtype=np.float32), *(part.probabilities for part in parts)]),
        )

    @property
    def children(self) -> Ints:
        """The message that each candidate belongs to."""
        return np.repeat(self.messages, self.lengths)

    def tabulate(self, window: int) -> Float[NDArray, "message distance"]:
        """The probability of the message at each distance back (0: a start), up to the window."""
        table = np.zeros((len(self.messages), window + 1), dtype=np.float32)
        row = np.repeat(np.arange(len(self.messages)), self.lengths)
        distance = self.messages[row] - self.candidates
        near = distance <= window
        table[row[near], distance[near]] = self.probabilities[near]
        return table

    def choose_likeliest(self) -> tuple[Ints, Float[NDArray, " message"]]:
        """The likeliest parent of each message, the nearest of equals, and its probability."""
        starts = np.cumsum(self.lengths) - self.lengths
        row = np.repeat(np.arange(len(self.lengths)), self.lengths)
        best = np.maximum.reduceat(self.probabilities, starts) if len(starts) else self.probabilities
        is_best = np.flatnonzero(self.probabilities == best[row])
        first = is_best[np.unique(row[is_best], return_index=True)[1]]
        return self.candidates[first], best

    def choose_by_conversation(self, conversation: Ints) -> tuple[Ints, Float[NDArray, " message"]]:
        """The likeliest parent within the conversation of the largest total probability, and its probability.

        `conversation` numbers the conversation of every message decided so far, and any other message as a conversation of its
        own. It is updated in place as messages are decided in order.
        """
        parent, best = self.choose_likeliest()
        ends = np.cumsum(self.lengths)
        for row, (message, stop) in enumerate(zip(self.messages.tolist(), ends.tolist())):
            # A candidate above one half has the largest total as well.
            if best[row] <= 0.5:
                own = slice(stop - int(self.lengths[row]), stop)
                candidates, probabilities = self.candidates[own], self.probabilities[own].tolist()
                numbers = conversation[candidates].tolist()
                total = dict.fromkeys(sorted(numbers), 0.0)
                for number, probability in zip(numbers, probabilities):
                    total[number] += probability
                chosen = max(total, key=total.__getitem__)
                inside = [place for place, number in enumerate(numbers) if number == chosen]
                place = max(inside, key=probabilities.__getitem__)
                parent[row], best[row] = candidates[place], probabilities[place]
            conversation[message] = conversation[parent[row]]
        return parent, best
