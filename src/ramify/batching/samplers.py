"""The order in which examples are visited, cut into micro-batches."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


class TokenBudget:
    """Shuffles examples every epoch and fills steps up to a budget, the same number on every rank.

    An example above the budget is a step of its own: nothing is dropped. The order follows from (seed, epoch) alone, so
    `state()` is two numbers.
    """

    def __init__(
        self,
        costs: NDArray[np.int64],
        budget: int,
        *,
        seed: int,
        world_size: int = 1,
        rank: int = 0,
        shuffle: bool = True,
    ) -> None:
        self.costs = costs
        self.budget = budget
        self.seed = seed
        self.world_size = world_size
        self.rank = rank
        self.shuffle = shuffle
        self.epoch = 0
        self.position = 0

    def steps(self, epoch: int) -> list[NDArray[np.int64]]:
        """The steps of an epoch over all ranks, as example numbers."""
        order = np.arange(len(self.costs))
        if self.shuffle:
            np.random.Generator(np.random.Philox(key=[self.seed, epoch])).shuffle(order)
        # Greedy filling: a step ends before the example that would pass the budget.
        ends, filled = [], 0
        for place, cost in enumerate(self.costs[order].tolist()):
            if filled and filled + cost > self.budget:
                ends.append(place)
                filled = 0
            filled += cost
        return np.split(order, ends) if len(order) else []

    def rounds(self, epoch: int) -> int:
        """How many steps every rank takes in an epoch."""
        return -(-len(self.steps(epoch)) // self.world_size)

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        """This rank's steps without end, from the saved position on. The last step of an epoch may be empty on some ranks."""
        while True:
            steps = self.steps(self.epoch)
            rounds = -(-len(steps) // self.world_size)
            while self.position < rounds:
                number = self.position * self.world_size + self.rank
                self.position += 1
                yield steps[number] if number < len(steps) else np.zeros(0, dtype=np.int64)
            self.epoch, self.position = self.epoch + 1, 0

    def state(self) -> dict[str, int]:
        return {"epoch": self.epoch, "position": self.position}

    def load_state(self, state: dict[str, int]) -> None:
        self.epoch, self.position = state["epoch"], state["position"]
