"""Models that read no vector, against which reconstruction is measured: the commonest token per place, and token trigrams."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ramify.batching.document_batch import BOS, NUM_MARKS, DocumentCollator
from ramify.batching.forest import Ints
from ramify.batching.levels import DocumentRows


@dataclass(frozen=True)
class NGrams:
    """The commonest successor of each context of some length, and the number of times that each pair occurs."""

    contexts: Ints
    """In ascending order."""
    best: Ints

    @classmethod
    def of(cls, contexts: Ints, slots: Ints, size: int) -> "NGrams":
        pairs, counts = np.unique(contexts * size + slots, return_counts=True)
        context = pairs // size
        # The last of each context is the commonest, and of equally common ones that with the lowest number.
        order = np.lexsort((-(pairs % size), counts, context))
        last = np.flatnonzero(np.append(context[order][1:] != context[order][:-1], True)) if len(order) else order
        return cls(context[order][last], (pairs % size)[order][last])

    def predict(self, contexts: Ints, otherwise: Ints) -> Ints:
        """The commonest successor of each context; `otherwise` for a context that did not occur."""
        if not len(self.contexts):
            return otherwise
        place = np.minimum(np.searchsorted(self.contexts, contexts), len(self.contexts) - 1)
        return np.where(self.contexts[place] == contexts, self.best[place], otherwise)


@dataclass(frozen=True)
class Floors:
    """Counts of the lowest rows of some documents, as slots: marks, or NUM_MARKS plus a token id."""

    size: int
    commonest: int
    """The commonest slot."""
    commonest_token: int
    """The commonest slot that is no mark."""
    by_place: Ints
    """The commonest slot of each place, among the rows that have it."""
    bigrams: NGrams
    trigrams: NGrams
    lengths: tuple[int, ...]
    """The commonest number of children of a row, for every level."""
    pairs: Ints
    """Each pair of neighbouring slots, in ascending order."""
    pair_counts: Ints

    @classmethod
    def of(cls, rows: DocumentRows, chosen: Ints, vocab_size: int) -> "Floors":
        """Count some of the lowest rows, and the lengths of all rows of the levels above."""
        size = NUM_MARKS + vocab_size
        batch = DocumentCollator(rows, 0, 1).level(0, chosen, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        slots = batch.slots.index_select(0, batch.true_slots).numpy()
        lengths = batch.lengths
        place = np.arange(len(slots)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        one, two = before(slots, place, 1), before(slots, place, 2)
        pairs, counts = np.unique(one * size + slots, return_counts=True)
        return cls(
            size,
            int(np.bincount(slots, minlength=1).argmax()),
            NUM_MARKS + _commonest(slots[slots >= NUM_MARKS] - NUM_MARKS),
            NGrams.of(place, slots, size).best,
            NGrams.of(one, slots, size),
            NGrams.of(two * size + one, slots, size),
            tuple(_commonest(level.children[chosen] if level is rows.levels[0] else level.children) for level in rows.levels),
            pairs,
            counts,
        )

    def trigram(self, slots: Ints) -> Ints:
        """The commonest successor of the two true slots before each place of a row; of one, if this pair did not occur."""
        place = np.arange(len(slots))
        return self.after(before(slots, place, 2), before(slots, place, 1))

    def after(self, two: Ints, one: Ints) -> Ints:
        """The commonest successor of pairs of slots: `one` is the nearer one."""
        fewer = self.bigrams.predict(one, np.full(len(one), self.commonest))
        return self.trigrams.predict(two * self.size + one, fewer)

    def pair_count(self, previous: int, slot: int) -> int:
        """The number of times that a slot follows another one."""
        key = previous * self.size + slot
        place = int(np.searchsorted(self.pairs, key))
        return int(self.pair_counts[place]) if place < len(self.pairs) and self.pairs[place] == key else 0


def before(slots: Ints, place: Ints, distance: int) -> Ints:
    """The slot so many places earlier in the same row, or the start mark."""
    shifted = np.concatenate([np.full(distance, BOS), slots])[: len(slots)]
    return np.where(place >= distance, shifted, BOS)


def _commonest(values: Ints) -> int:
    return int(np.bincount(values).argmax()) if len(values) else 0


@dataclass(frozen=True)
class FittedFloors:
    """Floors that were fitted on other text than the rows that they predict."""

    floors: Sequence[Floors]
    fold: Ints
    """Which of the floors each of the lowest rows is measured with."""
    source: str
    """The text that they were fitted on, for the reader."""

    def of(self, row: int) -> Floors:
        return self.floors[int(self.fold[row])]


def fitted_on_training(rows: DocumentRows, most_tokens: int, vocab_size: int, num_rows: int) -> FittedFloors:
    """Fit floors on training documents, of which about `most_tokens` are read. `num_rows` is the number of predicted rows."""
    tokens = np.cumsum(rows.levels[0].tokens)
    chosen = np.flatnonzero(tokens <= max(most_tokens, int(tokens[0]) if len(tokens) else 0))
    floors = Floors.of(rows, chosen, vocab_size)
    return FittedFloors([floors], np.zeros(num_rows, dtype=np.int64), "the training documents")


def fitted_on_others(rows: DocumentRows, vocab_size: int) -> FittedFloors:
    """Fit floors without training documents: one half of the documents for the other half. The halves of a single document
    stand for documents."""
    tree = rows.levels[0].tree
    trees = np.unique(tree)
    if len(trees) > 1:
        fold, source = np.searchsorted(trees, tree) % 2, "the other half of the documents"
    else:
        fold, source = (np.arange(len(tree)) * 2 >= len(tree)).astype(np.int64), "the other half of the document"
    return FittedFloors([Floors.of(rows, np.flatnonzero(fold != side), vocab_size) for side in (0, 1)], fold, source)
