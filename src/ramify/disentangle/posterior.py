"""The posterior of reply links: how likely each candidate is the parent of a message."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from ramify.batching.batch import join
from ramify.disentangle.data.channel import Ints

RecordedLinks = Mapping[int, tuple[int, ...]]
"""Message -> its parents, the main one first, for messages whose replies the log itself records; the message itself is among
them where it is recorded to start a conversation. Nothing is predicted for these messages."""

NOTHING_RECORDED: RecordedLinks = MappingProxyType({})


@dataclass(frozen=True)
class LinkPosterior:
    """Probabilities of the candidates of some messages: the message itself first (a start), then the nearest first."""

    messages: Ints
    candidates: Ints
    lengths: Ints
    """Number of candidates of each message."""
    probabilities: Float[NDArray, " key"]
    recorded: RecordedLinks = field(default_factory=dict)
    """The links that win over all probabilities (see `keep`)."""

    def keep(self, recorded: RecordedLinks, window: int) -> "LinkPosterior":
        """With certainty about recorded links. A parent outside the window, which cannot be a candidate, counts as a start in
        the probabilities, and as the parent in the decisions."""
        if not recorded:
            return self
        if recorded.keys().isdisjoint(self.messages.tolist()):
            return replace(self, recorded=recorded)
        candidates, probabilities = [], []
        ends = np.cumsum(self.lengths)
        for message, length, end in zip(self.messages.tolist(), self.lengths.tolist(), ends.tolist()):
            parents = recorded.get(message)
            if parents is None:
                candidates.append(self.candidates[end - length : end])
                probabilities.append(self.probabilities[end - length : end])
                continue
            near = sorted({parent for parent in parents if max(0, message - window) <= parent < message}, reverse=True)
            certain = np.array([message in parents or not near, *[True] * len(near)])
            candidates.append(np.array([message, *near], dtype=self.candidates.dtype))
            probabilities.append((certain / certain.sum()).astype(self.probabilities.dtype))
        lengths = np.array([len(part) for part in candidates], dtype=self.lengths.dtype)
        return LinkPosterior(self.messages, np.concatenate(candidates), lengths, np.concatenate(probabilities), recorded)

    @classmethod
    def concatenate(cls, parts: "Sequence[LinkPosterior]") -> "LinkPosterior":
        return cls(
            join([part.messages for part in parts]),
            join([part.candidates for part in parts]),
            join([part.lengths for part in parts]),
            np.concatenate([np.zeros(0, dtype=np.float32), *(part.probabilities for part in parts)]),
            parts[0].recorded if parts else {},
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
        parent = self.candidates[first]
        for row, parents in self._list_recorded():
            parent[row], best[row] = parents[0], 1.0
        return parent, best

    def _list_recorded(self) -> list[tuple[int, tuple[int, ...]]]:
        """(row, parents) of the messages with recorded links."""
        if not self.recorded:
            return []
        return [(row, self.recorded[message]) for row, message in enumerate(self.messages.tolist()) if message in self.recorded]

    @property
    def further_recorded(self) -> Int[NDArray, "link 2"]:
        """(child, parent) of the recorded links other than the main one of each message."""
        links = [(int(self.messages[row]), parent) for row, parents in self._list_recorded() for parent in parents[1:]]
        return np.array(links, dtype=np.int64).reshape(-1, 2)

    @property
    def is_recorded(self) -> Bool[NDArray, " message"]:
        """Which messages have recorded links."""
        flags = np.zeros(len(self.messages), dtype=bool)
        flags[[row for row, _ in self._list_recorded()]] = True
        return flags

    def choose_by_conversation(self, conversation: Ints) -> tuple[Ints, Float[NDArray, " message"]]:
        """The likeliest parent within the conversation of the largest total probability, and its probability.

        `conversation` numbers the conversation of every message decided so far, and any other message as a conversation of its
        own. It is updated in place as messages are decided in order.
        """
        parent, best = self.choose_likeliest()
        ends = np.cumsum(self.lengths)
        for row, (message, stop) in enumerate(zip(self.messages.tolist(), ends.tolist())):
            if message in self.recorded:
                join_recorded(conversation, message, self.recorded[message])
                continue
            # A candidate above one half has the largest total as well.
            if best[row] <= 0.5:
                keys = slice(stop - int(self.lengths[row]), stop)
                candidates, probabilities = self.candidates[keys], self.probabilities[keys].tolist()
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


def join_recorded(conversation: Ints, message: int, parents: tuple[int, ...]) -> None:
    """Put a message into the conversation of its recorded parents. Several conversations become the oldest of them."""
    joined = {int(conversation[parent]) for parent in parents}
    oldest = min(joined)
    for other in joined - {oldest}:
        conversation[conversation == other] = oldest
    conversation[message] = oldest
