"""The order in which examples are visited, cut into micro-batches."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ramify.errors import RamifyError

Numbers = NDArray[np.int64]
"""Examples by number."""


class Sampler(ABC):
    """One rank's micro-batches without end, equally many per epoch on every rank.

    They follow from the epoch and the position in it, so `state()` is these two numbers.
    """

    def __init__(self, *, world_size: int, rank: int) -> None:
        self.world_size = world_size
        self.rank = rank
        self.epoch = 0
        self.position = 0

    @abstractmethod
    def own_steps(self, epoch: int) -> Sequence[Numbers]:
        """This rank's micro-batches of an epoch."""

    def rounds(self, epoch: int) -> int:
        """The number of micro-batches that every rank takes in an epoch."""
        return len(self.own_steps(epoch))

    def __iter__(self) -> Iterator[Numbers]:
        """From the saved position on. Raises `RamifyError` where an epoch holds nothing."""
        while True:
            steps = self.own_steps(self.epoch)
            if not steps:
                raise RamifyError("there are no examples to train on. Choose other data or another view.")
            while self.position < len(steps):
                self.position += 1
                yield steps[self.position - 1]
            self.epoch, self.position = self.epoch + 1, 0

    def state(self) -> dict[str, int]:
        return {"epoch": self.epoch, "position": self.position}

    def load_state(self, state: dict[str, int]) -> None:
        self.epoch, self.position = state["epoch"], state["position"]


class TokenBudget(Sampler):
    """Shuffles examples every epoch and fills steps up to a budget, the same number on every rank.

    An example above the budget is a step of its own: nothing is dropped. The order follows from (seed, epoch) alone.
    """

    def __init__(
        self, costs: Numbers, budget: int, *, seed: int, world_size: int = 1, rank: int = 0, shuffle: bool = True
    ) -> None:
        super().__init__(world_size=world_size, rank=rank)
        self.costs = costs
        self.budget = budget
        self.seed = seed
        self.shuffle = shuffle

    def steps(self, epoch: int) -> list[Numbers]:
        """The steps of an epoch over all ranks."""
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

    def own_steps(self, epoch: int) -> list[Numbers]:
        """Every so many-th step. The last one of an epoch may be empty on some ranks."""
        steps = self.steps(epoch)
        own = steps[self.rank :: self.world_size]
        rounds = -(-len(steps) // self.world_size)
        return own + [np.zeros(0, dtype=np.int64)] * (rounds - len(own))


class Stream(Sampler):
    """Reads rows of consecutive examples side by side, each row in order: one example of every row per step.

    Example `n` stands in row `n // length`, where `length` is the number of examples per row. Each rank reads rows of its own,
    so a step continues, row by row, what the step before it read; a task carries its state from one to the next. After a row's
    last example the next epoch begins with its first. The order of rows and examples never changes: what a view draws at
    random it draws by epoch, and whether a state outlives the end of an epoch is for the task to say, which sees from the
    batch where a text begins.
    """

    def __init__(self, num_examples: int, rows: int, *, world_size: int = 1, rank: int = 0) -> None:
        super().__init__(world_size=world_size, rank=rank)
        if rows < 1 or num_examples % rows:
            raise RamifyError(
                f"{num_examples} examples are not {rows} rows of equal length. Cut the text into rows of equally many examples."
            )
        if rows % world_size:
            raise RamifyError(
                f"{rows} rows do not fall equally to {world_size} processes. Choose a multiple of {world_size} rows, or "
                "another number of processes."
            )
        self.length = num_examples // rows
        own = rows // world_size
        self.rows = np.arange(rank * own, (rank + 1) * own)
        """The rows that this rank reads."""

    def own_steps(self, epoch: int) -> list[Numbers]:
        return [self.rows * self.length + place for place in range(self.length)]
