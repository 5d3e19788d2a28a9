"""Documents as examples: complete nodes of the level below the document, and whole documents for the level above them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ramify.batching.forest import Ints
from ramify.batching.levels import Levels, Overflow
from ramify.batching.views.base import UnitView
from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.nn.ragged import runs
from ramify.tree import DOCUMENT


@dataclass(frozen=True)
class LevelInput:
    """The cutting of documents into rows."""

    overflow: Overflow = "cut"
    """Nodes with more children than a row of their level holds. cut: several rows, all but the last of which end in a mark of
    continuation. pack: as cut, and short neighbours share a row. truncate: further children are left out."""
    unit_tokens: int = 8192
    """A chapter (or any node of the level below the document) with more tokens is cut, because a batch holds complete rows."""
    layout: Literal["agent"] = "agent"
    """The marks around a sentence. Every row of a level ends with the level's end mark."""

    def __post_init__(self) -> None:
        check_fields(self, "input.")
        if self.unit_tokens < 1:
            raise RamifyError(f"input.unit_tokens must be at least 1, but is {self.unit_tokens}.")


@dataclass(frozen=True)
class DocumentExample:
    """Rows `start` to `stop - 1` of the unit's level, and the rows of the documents that they complete.

    `apart`: a whole document that is larger than a batch; its rows of the unit's level are encoded part by part.
    """

    start: int
    stop: int
    document_start: int
    document_stop: int
    apart: bool


def unit_level(names: Sequence[str]) -> int:
    """The number of the unit's level among levels with these names: the one below the document, or else the highest."""
    return len(names) - 1 - has_documents(names)


def has_documents(names: Sequence[str]) -> bool:
    """Whether the highest of levels with these names is that of documents."""
    return names[-1] == DOCUMENT and len(names) > 1


class Documents(UnitView[DocumentExample]):
    """Complete rows of the unit's level, which is the one below the document, or else the highest.

    A document that fits into a batch is one example. Each unit of a longer document is an example of its own, and the document
    is a further example, so that its own level learns, too. Units of the lowest level may be stretches of neighbours.
    """

    def __init__(
        self,
        levels: Levels,
        longest: Sequence[int],
        input: LevelInput,
        *,
        budget: int,
        whole_documents: bool = True,
        divided: bool = False,
        neighbours: int = 0,
    ) -> None:
        """`budget`: the tokens of a batch. Without `whole_documents`, the level of documents is not read. `divided`: a document
        that fits into a batch is divided into its units, too. `neighbours`: if units are of the lowest level, neighbouring ones
        of a document are one example, up to about so many tokens (0: each is one)."""
        self.unit = unit_level(levels.names)
        limits: list[int | None] = [None] * len(levels.levels)
        if has_documents(levels.names):
            limits[self.unit] = input.unit_tokens
        self.rows = levels.rows(longest, input.overflow, limits)
        self.budget = budget
        self.divided = divided
        self.neighbours = neighbours if self.unit == 0 else 0
        self.examples = self._examples(has_documents(levels.names) and whole_documents)
        ends = np.concatenate([[0], np.cumsum(self.rows.held_tokens(self.unit))])
        start = np.array([example.start for example in self.examples], dtype=np.int64)
        stop = np.array([example.stop for example in self.examples], dtype=np.int64)
        self._tokens = ends[stop] - ends[start]
        # A document without text has no unit.
        tree = self.rows.levels[self.unit].tree
        self._trees = np.append(tree, -1)[np.where(start < stop, start, len(tree))]
        self._apart = np.array([example.apart for example in self.examples], dtype=bool)

    def _examples(self, whole_documents: bool) -> list[DocumentExample]:
        units = self.rows.levels[self.unit]
        if not whole_documents:
            return [DocumentExample(start, stop, 0, 0, False) for start, stop in self._stretches(0, len(units))]
        documents = self.rows.levels[-1]
        examples: list[DocumentExample] = []
        ends = np.concatenate([[0], np.cumsum(self.rows.held_tokens(self.unit))])
        for row, continues in zip(*self._documents(), strict=True):
            start, stop = int(documents.spans[row]), int(documents.spans[continues])
            if self.divided and start == stop:
                continue
            if not self.divided and ends[stop] - ends[start] <= self.budget:
                examples.append(DocumentExample(start, stop, row, continues, False))
            else:
                examples += [DocumentExample(first, end, row, row, False) for first, end in self._stretches(start, stop)]
                examples.append(DocumentExample(start, stop, row, continues, True))
        return examples

    def _stretches(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The units of each example, of those from `start` to `stop` - 1. A stretch ends with a document, and pieces of a
        sentence are all in one."""
        if not self.neighbours:
            return [(unit, unit + 1) for unit in range(start, stop)]
        units = self.rows.levels[self.unit]
        node, tree, tokens = (each[start:stop] for each in (units.node_of_row, units.tree, units.tokens))
        firsts = np.flatnonzero(np.diff(node, prepend=-1))
        if not len(firsts):
            return []
        sizes, trees = np.add.reduceat(tokens, firsts), tree[firsts]
        borders = [*np.flatnonzero(np.diff(trees, prepend=-1)).tolist(), len(firsts)]
        ends = np.append(firsts, stop - start) + start
        stretches = []
        for first, last in pairwise(borders):
            stretches += [
                (int(ends[first + one]), int(ends[first + other])) for one, other in runs(sizes[first:last], self.neighbours)
            ]
        return stretches

    def _documents(self) -> tuple[list[int], list[int]]:
        """The first row of each document, and the row after its last one."""
        documents = self.rows.levels[-1]
        return documents.first_row.tolist(), (documents.first_row + documents.num_rows).tolist()

    @property
    def num_levels(self) -> int:
        """The number of levels of which some example has nodes."""
        return self.unit + 1 + any(example.document_start < example.document_stop for example in self.examples)

    @property
    def trees(self) -> Ints:
        return self._trees

    @property
    def apart(self) -> NDArray[np.bool_]:
        return self._apart

    @property
    def costs(self) -> Ints:
        return np.maximum(self._tokens, 1)

    @property
    def weights(self) -> NDArray[np.float64]:
        return self.sizes.astype(np.float64)

    @property
    def sizes(self) -> Ints:
        """Number of rows of the unit's level. A document that is encoded part by part counts as one."""
        lengths = np.array([example.stop - example.start for example in self.examples], dtype=np.int64)
        return np.where(self._apart, 1, lengths)

    @property
    def target_tokens(self) -> Ints:
        """Tokens of each example. A document that is encoded part by part has none, because its units are examples, too."""
        return np.where(self._apart, 0, self._tokens)

    def example(self, number: int, epoch: int = 0) -> DocumentExample:
        return self.examples[number]
