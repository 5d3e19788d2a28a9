"""What answers what, as far as it is known or was found: ancestors among the messages that a target looks back on."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs


@dataclass
class Structure:
    """Links between messages of some logs. A message's link to itself is none."""

    parents: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def known(cls, logs: Logs) -> "Structure":
        """What the logs say themselves."""
        found = cls()
        for answering, answered in logs.links.tolist():
            found.link(answering, answered)
        return found

    def link(self, answering: int, answered: int) -> None:
        if answering != answered:
            self.parents.setdefault(answering, []).append(answered)

    def copy(self, since: int = 0) -> "Structure":
        """With what these messages and later ones answer."""
        return Structure({message: list(above) for message, above in self.parents.items() if message >= since})

    def above(self, candidates: Ints, lengths: Ints) -> Int[NDArray, "target place place"]:
        """Of the candidates of each target of one example (itself first, then message by message back): how many links lead
        from one up to another, by the shortest way; 0 where none do. What the target itself answers is not looked at.

        A way between two messages of a window never leaves it, for links lead back.
        """
        ends = np.cumsum(lengths)
        base = int(candidates.min())
        ways = self._ways(base, int(candidates.max()) + 1)
        widest = int(lengths.max())
        out = np.zeros((len(lengths), widest, widest), dtype=np.int16)
        for row, (end, size) in enumerate(zip(ends.tolist(), lengths.tolist())):
            places = candidates[end - size : end] - base
            out[row, 1:size, 1:size] = ways[np.ix_(places[1:], places[1:])]
        return out

    def _ways(self, first: int, stop: int) -> NDArray[np.int16]:
        """[message message] over `[first, stop)`."""
        ways = np.zeros((stop - first, stop - first), dtype=np.int16)
        far = np.iinfo(np.int16).max
        for message in range(first, stop):
            near = [above - first for above in self.parents.get(message, ()) if above >= first]
            if not near:
                continue
            rows = ways[near]
            further = np.where(rows > 0, rows + 1, far).min(axis=0)
            further[near] = 1
            ways[message - first] = np.where(further == far, 0, further)
        return ways
