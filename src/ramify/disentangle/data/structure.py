"""Reply structure: gold or predicted links between messages, and distances along them."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs


@dataclass
class ReplyStructure:
    """Parents of messages. A message is never its own parent here."""

    parents: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def from_gold(cls, logs: Logs) -> "ReplyStructure":
        """All gold links of the logs."""
        structure = cls()
        structure.add_links(*logs.links.T)
        return structure

    def add_link(self, child: int, parent: int) -> None:
        if child != parent:
            self.parents.setdefault(child, []).append(parent)

    def add_links(self, children: Ints, parents: Ints) -> None:
        """Links pair by pair."""
        for child, parent in zip(children.tolist(), parents.tolist(), strict=True):
            self.add_link(child, parent)

    def copy(self, since: int = 0) -> "ReplyStructure":
        """With the parents of messages from `since` on."""
        return ReplyStructure({child: list(parents) for child, parents in self.parents.items() if child >= since})

    def measure_ancestors(self, candidates: Ints, lengths: Ints) -> Int[NDArray, "target candidate candidate"]:
        """The number of links on the shortest way from each candidate up to each of its ancestors among the candidates of the
        same target; 0 where one is no ancestor of the other.

        The candidates of each target are the target itself, whose parents are ignored, then the messages before it, nearest
        first. Links lead back in the log, so a way between two messages of a window never leaves it.
        """
        ends = np.cumsum(lengths)
        base = int(candidates.min())
        distances = self._measure_range(base, int(candidates.max()) + 1)
        widest = int(lengths.max())
        out = np.zeros((len(lengths), widest, widest), dtype=np.int16)
        for row, (end, size) in enumerate(zip(ends.tolist(), lengths.tolist())):
            places = candidates[end - size : end] - base
            out[row, 1:size, 1:size] = distances[np.ix_(places[1:], places[1:])]
        return out

    def _measure_range(self, first: int, stop: int) -> NDArray[np.int16]:
        """[message message] over `[first, stop)`."""
        distances = np.zeros((stop - first, stop - first), dtype=np.int16)
        unreachable = np.iinfo(np.int16).max
        for message in range(first, stop):
            parents = [parent - first for parent in self.parents.get(message, ()) if parent >= first]
            if not parents:
                continue
            rows = distances[parents]
            shortest = np.where(rows > 0, rows + 1, unreachable).min(axis=0)
            shortest[parents] = 1
            distances[message - first] = np.where(shortest == unreachable, 0, shortest)
        return distances
