"""Measures of coherence: the share of replaced children, and single children that are replaced or kept."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ramify.batching.document_batch import BOS, NUM_MARKS
from ramify.batching.forest import Ints
from ramify.inference.documents.floors import FittedFloors
from ramify.inference.documents.measures import (
    BATCH_SLOTS,
    PROBED_SLOTS,
    Advance,
    HeldOut,
    Measure,
    Measures,
    copies,
    generator,
    mean,
    probes,
    spread,
)
from ramify.metrics.intervals import bootstrap_ratio
from ramify.metrics.ranking import auroc, bootstrap_auroc
from ramify.models.agent import EXPECTED_SHARE
from ramify.nn.ragged import runs
from ramify.tasks.nested.corruption import RETRIES, Pool, RowChildren, replace_children

LONG = 4
"""The mean squared error is measured on rows with at least so many children."""


@dataclass
class JudgedRows:
    """Rows with the draws of training, and the checker's judgement."""

    predicted: list[NDArray[np.float64]] = field(default_factory=list)
    share: list[NDArray[np.float64]] = field(default_factory=list)
    marked: list[NDArray[np.float64]] = field(default_factory=list)
    """The number of marked children of each row; NaN if the model is not told."""
    counts: list[Ints] = field(default_factory=list)

    def add(
        self, predicted: NDArray[np.float64], share: NDArray[np.float64], marked: NDArray[np.float64], counts: Ints
    ) -> None:
        self.predicted.append(predicted)
        self.share.append(share)
        self.marked.append(marked)
        self.counts.append(counts)

    def measure(self) -> Measure:
        """The mean squared error on rows with several children, beside that of the marks alone and of the expected share."""
        predicted, share, marked, counts = (
            np.concatenate(arrays) if arrays else np.zeros(0)
            for arrays in (self.predicted, self.share, self.marked, self.counts)
        )
        long = counts >= LONG
        predicted, share, marked, counts = predicted[long], share[long], marked[long], counts[long]
        constant = (EXPECTED_SHARE - share) ** 2
        guess = np.where(np.isnan(marked), EXPECTED_SHARE, marked / (2 * np.maximum(counts, 1)))
        errors, by_marks = (predicted - share) ** 2, (guess - share) ** 2
        p = error_difference(errors, by_marks, np.arange(len(errors)))
        items = {"error": errors, "by_marks": by_marks}
        return Measure(mean(errors), mean(by_marks), mean(constant), len(errors), p, items=items)


def error_difference(errors: NDArray[Any], others: NDArray[Any], units: Ints) -> float:
    """The p-value of the difference of two systems' mean errors, by a bootstrap over units."""
    _, unit = np.unique(units, return_inverse=True)
    return bootstrap_ratio(np.bincount(unit, errors - others), np.bincount(unit)).p


@dataclass(frozen=True)
class Judged:
    """The scores of the same children when they are kept and when they are replaced; all are marked as replaceable."""

    row: Ints
    kept: NDArray[np.float64]
    replaced: NDArray[np.float64]
    simple_kept: NDArray[np.float64]
    """Scores of a rule without the checker; NaN if there is none."""
    simple_replaced: NDArray[np.float64]

    def measure(self) -> Measure:
        value, simple = auroc(self.replaced, self.kept), math.nan
        if len(self.row) and not np.isnan(self.simple_kept).any():
            simple = auroc(self.simple_replaced, self.simple_kept)
        chance = 0.5 if len(self.row) else math.nan
        p = bootstrap_auroc(self.replaced, self.kept, self.row).p
        items = {"unit": self.row, "kept": self.kept, "replaced": self.replaced}
        items |= {"simple_kept": self.simple_kept, "simple_replaced": self.simple_replaced}
        return Measure(value, simple, chance, len(self.row), p, items=items)


def sources(held: HeldOut, number: int) -> dict[str, Ints | None]:
    """What a replacement shares with its child, by the choice of replacements. None: it is of another document."""
    shared: dict[str, Ints | None] = {"": None}
    if number == 0:
        return shared
    nearby, tree = held.node_above(number - 1, 2), held.level(number - 1).tree
    if nearby is not None:
        shared[".nearby"] = nearby
    if number + 1 < len(held.rows.levels) and (nearby is None or len(np.unique(nearby)) > len(np.unique(tree))):
        shared[".same_document"] = tree
    return shared


@torch.no_grad()
def probing_measures(held: HeldOut, number: int, floors: FittedFloors, most: int, advance: Advance) -> Measures:
    """The AUROC of replaced against kept children, judged one by one.

    At most `most` children of rows with at least two are judged twice: as they are, and replaced. In both copies the child
    alone carries the mark. Tokens are replaced by other tokens of the documents; longer nodes by nodes of other documents, in
    `.nearby` by nodes of the same node two levels above with another parent, and in `.same_document` by nodes of the same
    document with another parent. The checker judges; in `.foreign`, the head of foreign children does, if there is one.
    """
    rows, children = probes(held, number, most)
    numbers = _numbers(held, number, rows, children)
    kept = scores_of(held, number, rows, children, None, advance)
    measures: Measures = {}
    for place, (choice, nodes) in enumerate(sources(held, number).items()):
        chosen = _replacements(held, number, numbers, nodes, place)
        known = np.flatnonzero(chosen >= 0)
        some = (rows[known], children[known])
        replaced = scores_of(held, number, *some, chosen[known], advance)
        if number == 0:
            simple = _by_pairs(held, floors, *some, numbers[known], chosen[known])
        else:
            simple = _by_siblings(held, number, *some, numbers[known], chosen[known])
        for system, scores in replaced.items():
            judged = Judged(rows[known], kept[system][known], scores, *simple)
            measures[f"probing_auroc{choice}{system}"] = judged.measure()
    return measures


@torch.no_grad()
def intruder_measures(held: HeldOut, number: int, most: int, advance: Advance) -> Measures:
    """The checker's error on at most `most` rows with at least four children above the tokens, with the draws of training and
    replacements from other documents.

    In the batches of training such replacements are as rare as other documents.
    """
    task, level, pool = held.task, held.level(number), held.pools[number - 1]
    random, judged = generator(held.seed, number, 0, 4), JudgedRows()
    slots = held.collator.num_slots(number)
    long = np.flatnonzero(level.children >= LONG)
    rows = long[spread(len(long), min(most, max(1, PROBED_SLOTS * len(long) // max(1, int(slots[long].sum())))))]
    every, below = np.arange(len(pool.tree)), np.arange(level.num_below)
    replacements = Pool(every, pool.content, every, pool.tree)
    for start, stop in runs(slots[rows], BATCH_SLOTS):
        batch = held.collator.level(number, rows[start:stop], below, below)
        child, row = batch.children.numpy(), batch.child_row.numpy()
        originals = Pool(child, pool.content[child], row, pool.tree[child])
        drawn = replace_children(RowChildren(child, row, batch.counts), originals, replacements, "other_document", random)
        batch, marked = batch.to(task.device), drawn.marked.astype(np.int64)
        shown = batch.slots.index_copy(0, batch.child_slot, torch.from_numpy(NUM_MARKS + drawn.shown).to(task.device))
        marks, told = None, np.full(stop - start, math.nan)
        if task.config.marks != "none":
            marks = torch.zeros_like(shown).index_copy(0, batch.child_slot, torch.from_numpy(marked).to(task.device))
            told = np.bincount(row, marked, minlength=stop - start)
        shares = task.replaced_share(number, held.items[number], shown, batch.rows, marks)
        judged.add(shares.double().cpu().numpy(), drawn.share, told, batch.counts)
        advance(stop - start)
    return {"coherence_mse.other_documents": judged.measure()}


def _numbers(held: HeldOut, number: int, rows: Ints, children: Ints) -> Ints:
    """The row below of each child, or its place among all tokens."""
    pairs = zip(rows.tolist(), children.tolist(), strict=True)
    return np.array([held.children_of(number, row)[child] for row, child in pairs], dtype=np.int64)


def _replacements(held: HeldOut, number: int, numbers: Ints, nodes: Ints | None, place: int) -> Ints:
    """A replacement for each child: a token id, or a row below; -1 if a few draws found none of other content."""
    random = generator(held.seed, number, place, 2)
    chosen = np.full(len(numbers), -1)
    if number == 0:
        ids = held.rows.ids.astype(np.int64)
        for _ in range(1 + RETRIES):
            drawn = ids[random.integers(len(ids), size=len(numbers))] if len(ids) else ids
            chosen = np.where((chosen < 0) & (drawn != ids[numbers]), drawn, chosen) if len(ids) else chosen
        return chosen
    pool = held.pools[number - 1]
    if nodes is None:
        for _ in range(1 + RETRIES):
            drawn = random.integers(len(pool.tree), size=len(numbers)) if len(pool.tree) else chosen
            fits = (chosen < 0) & (pool.content[drawn] != pool.content[numbers]) & (pool.tree[drawn] != pool.tree[numbers])
            chosen = np.where(fits, drawn, chosen)
        return chosen
    parents = held.node_above(number - 1, 1)
    assert parents is not None
    order = np.argsort(nodes, kind="stable")
    low, high = (np.searchsorted(nodes[order], nodes[numbers], side=side) for side in ("left", "right"))
    for _ in range(1 + RETRIES):
        drawn = order[low + (random.random(len(numbers)) * (high - low)).astype(np.int64)] if len(numbers) else numbers
        fits = (chosen < 0) & (nodes[numbers] >= 0) & (parents[drawn] != parents[numbers])
        chosen = np.where(fits & (pool.content[drawn] != pool.content[numbers]), drawn, chosen)
    return chosen


CHECKER, FOREIGN = "", ".foreign"
"""The systems that judge children, as endings of the names of measures."""


def scores_of(
    held: HeldOut, number: int, rows: Ints, children: Ints, chosen: Ints | None, advance: Advance
) -> dict[str, NDArray[np.float64]]:
    """The scores of children, each marked alone, as it is or replaced, by the system that judges them.

    The checker's score is the number of replaced children that it sees, which is about 1 for a child that was replaced. It is
    not limited to 1, which would only make scores equal. The score of the head of foreign children is its log-odds.
    """
    task, items = held.task, held.items[number]
    counts = held.level(number).children[rows]
    systems = (CHECKER,) if task.foreign_heads is None or number == 0 else (CHECKER, FOREIGN)
    scores = {system: np.zeros(len(rows)) for system in systems}
    for part in copies(held, number, rows, children):
        slots = part.batch.slots
        if chosen is not None:
            drawn = torch.from_numpy(NUM_MARKS + chosen[part.start : part.stop]).to(task.device)
            slots = slots.index_copy(0, part.slot, drawn)
        marks = None if task.config.marks == "none" else torch.zeros_like(slots).index_fill(0, part.slot, 1)
        shares, foreign = task.replaced_children(number, items, slots, part.batch.rows, marks, part.slot)
        share = shares.index_select(0, part.row).double().cpu().numpy()
        scores[CHECKER][part.start : part.stop] = share * counts[part.start : part.stop]
        if foreign is not None:
            scores[FOREIGN][part.start : part.stop] = foreign.double().cpu().numpy()
        advance(part.stop - part.start)
    return scores


def _by_pairs(
    held: HeldOut, floors: FittedFloors, rows: Ints, children: Ints, numbers: Ints, chosen: Ints
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Tokens without the checker: the rarer its pair with the token before, the likelier a token was replaced."""
    ids = held.rows.ids.astype(np.int64)
    kept, replaced = np.zeros(len(rows)), np.zeros(len(rows))
    for item, (row, child, place, drawn) in enumerate(
        zip(rows.tolist(), children.tolist(), numbers.tolist(), chosen.tolist(), strict=True)
    ):
        counts = floors.of(row)
        previous = BOS if child == 0 else NUM_MARKS + int(ids[place - 1])
        kept[item] = -counts.pair_count(previous, NUM_MARKS + int(ids[place]))
        replaced[item] = -counts.pair_count(previous, NUM_MARKS + drawn)
    return kept, replaced


def _by_siblings(
    held: HeldOut, number: int, rows: Ints, children: Ints, numbers: Ints, chosen: Ints
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nodes without the checker: a vector far from the mean of its siblings, by cosine, was likely replaced."""
    pool = held.pools[number - 1]
    kept, replaced = np.zeros(len(rows)), np.zeros(len(rows))
    for item, (row, child) in enumerate(zip(rows.tolist(), children.tolist(), strict=True)):
        middle = pool.vectors[np.delete(held.children_of(number, row), child)].mean(0)
        for scores, vector in ((kept, pool.vectors[numbers[item]]), (replaced, pool.vectors[chosen[item]])):
            scores[item] = -float(vector @ middle) / max(1e-12, float(np.linalg.norm(vector) * np.linalg.norm(middle)))
    return kept, replaced
