"""The order in which examples are visited, cut into micro-batches."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ramify.errors import RamifyError, counted

Numbers = NDArray[np.int64]
"""Numbers of examples."""


class Sampler(ABC):
    """One rank's endless sequence of micro-batches. Every rank has the same number of micro-batches per epoch.

    The epoch and the position in it determine the rest, so `state()` holds these two numbers.
    """

    def __init__(self, *, world_size: int, rank: int) -> None:
        self.world_size = world_size
        self.rank = rank
        self.epoch = 0
        self.position = 0
        self._rounds: dict[int, int] = {}

    @abstractmethod
    def own_steps(self, epoch: int) -> Sequence[Numbers]:
        """This rank's micro-batches of an epoch."""

    def rounds(self, epoch: int) -> int:
        """The number of micro-batches that every rank takes in an epoch."""
        if epoch not in self._rounds:
            self._rounds[epoch] = len(self.own_steps(epoch))
        return self._rounds[epoch]

    @property
    def epochs_done(self) -> float:
        """The number of epochs up to the saved position, with the share of the current one."""
        return self.epoch + self.position / self.rounds(self.epoch) if self.position else float(self.epoch)

    def __iter__(self) -> Iterator[Numbers]:
        """Yield micro-batches from the saved position on. Raises `RamifyError` if an epoch has none."""
        while True:
            steps = self.own_steps(self.epoch)
            self._rounds[self.epoch] = len(steps)
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
    """Shuffles examples every epoch and fills steps up to a budget. Every rank has the same number of steps.

    An example above the budget is a step of its own, so none is dropped. The seed and the epoch determine the order.
    """

    def __init__(
        self,
        costs: Numbers | Callable[[int], Numbers],
        budget: int,
        *,
        seed: int,
        world_size: int = 1,
        rank: int = 0,
        shuffle: bool = True,
    ) -> None:
        """`costs` are those of the examples, or a function of the epoch if each epoch has examples of its own."""
        super().__init__(world_size=world_size, rank=rank)
        self.costs = costs
        self.budget = budget
        self.seed = seed
        self.shuffle = shuffle

    def steps(self, epoch: int) -> list[Numbers]:
        """The steps of an epoch over all ranks."""
        costs = self.costs(epoch) if callable(self.costs) else self.costs
        order = np.arange(len(costs))
        if self.shuffle:
            np.random.Generator(np.random.Philox(key=[self.seed, epoch])).shuffle(order)
        # Greedy filling: a step ends before the example that would pass the budget.
        ends, filled = [], 0
        for place, cost in enumerate(costs[order].tolist()):
            if filled and filled + cost > self.budget:
                ends.append(place)
                filled = 0
            filled += cost
        return np.split(order, ends) if len(order) else []

    def own_steps(self, epoch: int) -> list[Numbers]:
        """Every `world_size`-th step. The last step of an epoch may be empty on some ranks."""
        steps = self.steps(epoch)
        rank_steps = steps[self.rank :: self.world_size]
        rounds = -(-len(steps) // self.world_size)
        return rank_steps + [np.zeros(0, dtype=np.int64)] * (rounds - len(rank_steps))


class Units(Sampler):
    """Makes every micro-batch of units of many documents, and visits each unit once per epoch.

    A micro-batch has `number` units, or a few more if the units cannot be divided equally. They are from at least half as many
    documents. Examples that stand apart are micro-batches of their own. Every rank has as many of both kinds as any other, and
    all ranks have the same kind at the same time; where one is missing, a micro-batch is empty.
    """

    def __init__(
        self, trees: Numbers, apart: NDArray[np.bool_], number: int, *, seed: int, world_size: int = 1, rank: int = 0
    ) -> None:
        """`trees`: the document of each example. Raises `RamifyError` if there are too few units or documents."""
        super().__init__(world_size=world_size, rank=rank)
        self.units = np.flatnonzero(~apart)
        self.apart = np.flatnonzero(apart)
        self.trees = trees[self.units]
        self.number = number
        self.seed = seed
        if len(self.units) < number:
            raise RamifyError(
                f"train.units={number} is more than the {counted(len(self.units), 'unit')} of the training documents. Lower "
                "train.units, or set it to 0 for batches of train.budget tokens."
            )
        least, needed = fewest_documents(self.trees, number), -(-number // 2)
        if least < needed:
            raise RamifyError(
                f"train.units={number} needs units of {counted(needed, 'document')} in every batch, but the "
                f"{counted(len(np.unique(self.trees)), 'training document')} can give units of {least} alone. Lower "
                "train.units, or set it to 0 for batches of train.budget tokens."
            )

    def own_steps(self, epoch: int) -> list[Numbers]:
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        batches = [self.units[places] for places in dealt(self.trees, self.number, random)]
        rounds = [
            *self._rounds_of(batches, random),
            *self._rounds_of([self.apart[[n]] for n in range(len(self.apart))], random),
        ]
        return [rounds[place][self.rank] for place in random.permutation(len(rounds))]

    def _rounds_of(self, steps: list[Numbers], random: np.random.Generator) -> Iterator[list[Numbers]]:
        """Steps in random order, one of each rank at a time."""
        order = [steps[place] for place in random.permutation(len(steps))]
        order += [np.zeros(0, dtype=np.int64)] * (-len(order) % self.world_size)
        for start in range(0, len(order), self.world_size):
            yield order[start : start + self.world_size]


def dealt(trees: Numbers, number: int, random: np.random.Generator) -> list[Numbers]:
    """Divide units at random into batches of `number` units, or a few more, of as many documents as possible.

    Units of one document follow each other, and are dealt to the batches in turn. Documents with a unit for every batch come
    first. So no batch holds units of fewer documents than any division into as many batches could guarantee.
    """
    batches = max(1, len(trees) // number)
    _, document, counts = np.unique(trees, return_inverse=True, return_counts=True)
    place = random.permutation(len(counts))
    order = np.lexsort((random.random(len(trees)), place[document], counts[document] < batches))
    return [order[start::batches] for start in range(batches)] if len(trees) else []


def fewest_documents(trees: Numbers, number: int) -> int:
    """The number of documents that every batch of `number` units holds at least, however they are `dealt`."""
    batches = max(1, len(trees) // number)
    counts = np.unique(trees, return_counts=True)[1]
    return int(np.minimum(counts, batches).sum()) // batches


def fillable(trees: Numbers, number: int) -> int:
    """The greatest number of units of a batch, of at most `number`, of which half are of different documents in every batch.
    `trees`: the document of each unit."""
    numbers = range(min(number, len(trees)), 0, -1)
    return next((some for some in numbers if 2 * fewest_documents(trees, some) >= some), 1)


class Stream(Sampler):
    """Reads streams of consecutive examples side by side, each in order: one example of every stream per step.

    Example `n` belongs to stream `n // length`, with `length` examples per stream. Each rank reads its own streams. A step
    continues the streams of the step before it, so a task can carry a state from step to step. After a stream's last example,
    the next epoch begins with its first. The order of streams and examples never changes; only the random draws of a view
    depend on the epoch. The task decides whether a state outlives the end of an epoch: it can see in the batch that a text
    begins.
    """

    def __init__(self, num_examples: int, streams: int, *, world_size: int = 1, rank: int = 0) -> None:
        super().__init__(world_size=world_size, rank=rank)
        if streams < 1 or num_examples % streams:
            raise RamifyError(
                f"{num_examples} examples are not {streams} streams of equal length. Choose a number of streams that divides "
                "the number of examples."
            )
        if streams % world_size:
            raise RamifyError(
                f"{streams} streams cannot be divided equally among {world_size} processes. Choose a multiple of {world_size} "
                "streams, or another number of processes."
            )
        self.length = num_examples // streams
        per_rank = streams // world_size
        self.streams = np.arange(rank * per_rank, (rank + 1) * per_rank)
        """The streams that this rank reads."""

    def own_steps(self, epoch: int) -> list[Numbers]:
        return [self.streams * self.length + place for place in range(self.length)]
