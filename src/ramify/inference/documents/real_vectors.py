"""The vectors of real nodes, which generators learn to imitate: of documents, and level by level."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch

from ramify.batching.adversary_batch import AdversaryBatch
from ramify.batching.document_batch import EMPTY, Banks, DocumentBatch
from ramify.batching.forest import Ints
from ramify.batching.levels import Levels
from ramify.dataset.store import Store
from ramify.errors import RamifyError, counted
from ramify.inference.documents.cached_vectors import FrozenVectors
from ramify.inference.documents.document_banks import banks_of
from ramify.inference.documents.measures import spread
from ramify.inference.documents.node_reconstruction import bank
from ramify.inference.documents.vectors import Vectors, encode_documents, lay_out
from ramify.nn.modes import evaluating
from ramify.tasks.nested_adversary import NestedAdversary

MOST_KNOWN = 20_000
"""The most real vectors of a level that are held in memory."""

MOST_BANK = 4_096
"""The most known vectors of a level, from which an end mark must differ."""


class RealVectors(ABC):
    """The vectors of the real nodes of each level of some documents."""

    def __init__(self, adversary: NestedAdversary, store: Store, trees: Ints) -> None:
        self.adversary = adversary
        agent = adversary.backbone
        opened = Levels.open(store, adversary.tokenizer, agent.config.levels, trees)
        self.view, self.collator = lay_out(agent, adversary.input, opened)
        rows = self.collator.rows.levels
        self.sources = {level: level - adversary.is_alone(level) for level in adversary.learning}
        """The level whose rows are the real nodes of each level that learns."""
        self.pools = {level: np.flatnonzero(rows[source - 1].children > 0) for level, source in self.sources.items()}
        """These rows, but for those without children."""
        self.held: dict[tuple[int, int], Vectors] = {}
        """Vectors that have been asked for, by their level and greatest number, since they were opened."""

    @abstractmethod
    def open(self) -> None:
        """Read the vectors, or compute them with the weights of this moment."""

    @abstractmethod
    def of_rows(self, level: int, rows: Ints) -> Vectors:
        """The vectors of some rows of a level, in any order."""

    @torch.no_grad()
    def of_level(self, level: int, most: int = MOST_KNOWN) -> Vectors:
        """At most so many real vectors of a level that learns, evenly spread over the documents."""
        if (level, most) not in self.held:
            pool = self.pools[level]
            vectors = self.of_rows(self.sources[level], pool[spread(len(pool), most)])
            if self.adversary.is_alone(level):
                children = torch.from_numpy(vectors).to(self.adversary.device)
                with evaluating(self.adversary):
                    vectors = self.adversary.alone(level, children).float().cpu().numpy()
            self.held[level, most] = vectors
        return self.held[level, most]

    def banks(self) -> list[Vectors | None]:
        """Known vectors of each level of children below the highest that learns; None for tokens."""
        known: list[Vectors | None] = [None]
        for level in range(1, max(self.adversary.learning)):
            rows = spread(len(self.collator.rows.levels[level - 1]), MOST_BANK)
            known.append(bank(self.adversary.autoencoder, level, self.of_rows(level, rows)))
        return known

    def check(self, where: str) -> None:
        """Raise `RamifyError` if a level has too few nodes to learn or to measure. `where` names the documents."""
        for level, pool in self.pools.items():
            if len(pool) < 2:
                raise RamifyError(
                    f"{where} has {counted(len(pool), 'node')} for the level {self.adversary.names[level]}, and a generator "
                    "needs two or more. Leave the level out (task.levels), or build the data with other splits."
                )


class CachedVectors(RealVectors):
    """Vectors of frozen encoders, which are computed once and kept with the data set."""

    def __init__(self, adversary: NestedAdversary, store: Store, trees: Ints) -> None:
        super().__init__(adversary, store, trees)
        self.frozen: list[FrozenVectors] = []
        for number in range(max(self.sources.values())):
            below = self.frozen[-1] if self.frozen else None
            self.frozen.append(FrozenVectors(adversary.backbone, self.collator, store, number, below=below))
        self.trees, self.tree_of_row = np.unique(self.collator.rows.levels[0].tree, return_inverse=True)
        self.names: Banks | None = None
        """The bank of each document, if the generators make banks, too."""

    def open(self) -> None:
        self.held.clear()
        for vectors in self.frozen:
            vectors.open()
        names = banks_of(self.adversary.autoencoder, self.collator)
        if self.adversary.names_generator is not None and names is not None:
            self.names = names.of_whole_documents(self.trees)

    def sample(self, level: int, rows: Ints) -> DocumentBatch:
        """Some rows of a level, with their vectors."""
        source = self.collator.rows.levels[level - 1]
        below = np.arange(source.num_below if level > 1 else 0)
        batch = self.collator.level(level - 1, rows, below, below)
        vectors = torch.from_numpy(np.ascontiguousarray(self.frozen[level - 1](batch.source)))
        names = None
        if self.names is not None and level == 1:
            names = self.names.at(torch.from_numpy(self.tree_of_row[batch.source]))
        tokens = int(source.tokens[rows].sum())
        return DocumentBatch((batch,), level - 1, (), tokens, given=1, vectors=vectors, banks=names)

    @torch.no_grad()
    def of_rows(self, level: int, rows: Ints) -> Vectors:
        agent = self.adversary.backbone
        with evaluating(agent):
            return agent(self.sample(level, rows).to(self.adversary.device)).nodes[-1].float().cpu().numpy()


class LiveVectors(RealVectors):
    """Vectors of encoders that learn, which are computed anew each time they are opened."""

    def open(self) -> None:
        self.held.clear()
        levels = max(*self.sources.values(), *(level - 1 for level in self.adversary.learning))
        self.vectors = encode_documents(self.adversary.backbone, self.view, self.collator, num_levels=levels).vectors

    def of_rows(self, level: int, rows: Ints) -> Vectors:
        return self.vectors[level - 1][rows]


def sampled_batch(vectors: CachedVectors, shares: Sequence[float]) -> AdversaryBatch:
    """Real nodes of each level that learns, at these shares of its nodes: from 0 to below 1."""
    samples = []
    for level in range(1, vectors.adversary.backbone.depth + 1):
        if level not in vectors.sources:
            samples.append(EMPTY)
            continue
        pool = vectors.pools[level]
        numbers = (np.asarray(shares) * len(pool)).astype(np.int64)
        samples.append(vectors.sample(vectors.sources[level], pool[numbers]))
    return AdversaryBatch(samples=tuple(samples))
