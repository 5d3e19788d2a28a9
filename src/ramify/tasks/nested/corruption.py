"""Random draws of the objectives of nested documents: masked children, and replaced children (AGENT, sections 3.2 and 3.3)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ramify.batching.document_batch import MASK, NUM_MARKS
from ramify.batching.forest import Ints

RETRIES = 8
"""A replacement that equals the child is drawn again so many times. After that, the child counts as not replaced."""

Source = Literal["any", "other_parent", "other_document"]


@dataclass(frozen=True)
class Pool:
    """The children that a random draw may choose from, and what a draw must differ in."""

    child: Ints
    """The number of each child."""
    content: Ints
    """A number per child, equal for children of equal content."""
    parent: Ints
    tree: Ints

    def __len__(self) -> int:
        return len(self.content)


@dataclass(frozen=True)
class RowChildren:
    """The children of some rows, by their numbers, one row after the other."""

    child: Ints
    row: Ints
    counts: Ints
    """The number of children of each row."""


@dataclass(frozen=True)
class MaskDraw:
    """Children that are predicted, by their places among all children, and the slots that the model reads in their place."""

    chosen: Ints
    shown: Ints
    """One slot value per chosen child."""


@dataclass(frozen=True)
class ReplacedChildren:
    """Children that carry the second segment vector, and those that were replaced."""

    marked: NDArray[np.bool_]
    """Whether each child carries the second segment vector."""
    shown: Ints
    """The child that the model reads in place of each child."""
    share: NDArray[np.float64]
    """The share of each row's children that were replaced."""


def mask_children(
    children: RowChildren,
    rate: float,
    split: tuple[float, float, float],
    choices: Ints,
    mask_slot: int | None,
    random: np.random.Generator,
    *,
    bernoulli: bool = False,
) -> MaskDraw:
    """Choose `max(1, round(rate · n))` of the n children of each row, or each with probability `rate`, and hide them.

    Rows of one child have none chosen: nothing predicts an only child. `split`: the shares that show the mask, a random one of
    `choices`, and the child itself. `mask_slot`: the slot of the mask; None: that of the level's mark.
    """
    counts = children.counts
    if bernoulli:
        is_chosen = (random.random(len(children.child)) < rate) & (counts[children.row] > 1)
        chosen = np.flatnonzero(is_chosen)
    else:
        quota = np.where(counts > 1, np.maximum(1, np.round(rate * counts)), 0).astype(np.int64)
        order = np.lexsort((random.random(len(children.child)), children.row))
        place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        chosen = np.sort(order[place < quota[children.row[order]]])
    action = random.random(len(chosen))
    drawn = choices[random.integers(len(choices), size=len(chosen))] if len(choices) else children.child[chosen]
    to_mask, to_random, _ = split
    slot = MASK if mask_slot is None else mask_slot
    shown = np.where(action < to_mask + to_random, drawn, children.child[chosen]) + NUM_MARKS
    return MaskDraw(chosen, np.where(action < to_mask, slot, shown))


def replace_children(
    children: RowChildren, originals: Pool, pool: Pool, source: Source, random: np.random.Generator
) -> ReplacedChildren:
    """Mark each child of a row with the row's probability P, and replace each marked child with probability 1/2.

    P is 0 for half of the rows, and uniform for the others.

    `originals` describes the children, `pool` what replaces them. A replacement differs from its child in content, and comes
    from another parent or document if the source demands it.
    """
    rows = len(children.counts)
    probability = np.where(random.random(rows) < 0.5, 0.0, random.random(rows))
    marked = random.random(len(children.child)) < probability[children.row]
    open_ = np.flatnonzero(marked & (random.random(len(children.child)) < 0.5))
    shown = children.child.copy()
    replaced = np.zeros(len(children.child), dtype=bool)
    for _ in range(1 + RETRIES):
        if not len(open_) or not len(pool):
            break
        drawn = random.integers(len(pool), size=len(open_))
        fits = pool.content[drawn] != originals.content[open_]
        if source == "other_parent":
            fits &= pool.parent[drawn] != originals.parent[open_]
        if source == "other_document":
            fits &= pool.tree[drawn] != originals.tree[open_]
        shown[open_[fits]] = pool.child[drawn[fits]]
        replaced[open_[fits]] = True
        open_ = open_[~fits]
    share = np.bincount(children.row[replaced], minlength=rows) / np.maximum(children.counts, 1)
    return ReplacedChildren(marked, shown, share)
