"""Measures of masked children: the hidden child of a node is looked for among other nodes."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from ramify.batching.document_batch import MASK
from ramify.batching.forest import Ints
from ramify.inference.documents.measures import Advance, HeldOut, Measure, Measures, RowPool, copies, generator, mean, probes
from ramify.metrics.ranking import rank, sign_flip

OTHERS = 999
"""Candidates from other documents, beside the right one."""

NEARBY = 99
"""Candidates from the same node two levels above, such as a sentence's chapter."""

FEWEST = 20
"""A target with fewer candidates is left out: ten of them would be most."""

RECALL = 10


@dataclass(frozen=True)
class Targets:
    """Hidden children, and the ranks that each system gives them."""

    rows: Ints
    """The row of each target's parent, in ascending order."""
    children: Ints
    """The row of each target itself."""
    siblings: Ints
    """The number of children of each target's parent."""
    queries: NDArray[np.float32]
    """The query of each target, from its prediction: dot products with the keys of candidates are their scores."""
    means: NDArray[np.float32]
    """The mean of the vectors of each target's siblings."""


@torch.no_grad()
def hidden_children(held: HeldOut, number: int, most: int, advance: Advance) -> Targets:
    """Hide at most `most` children of rows with at least two, each in a copy of its row, and predict their vectors."""
    task = held.task
    rows, places = probes(held, number, most)
    items, similarity = held.items[number], task.masked_similarity(number)
    queries = np.zeros((len(rows), items.shape[1]), dtype=np.float32)
    for part in copies(held, number, rows, places):
        slots = part.batch.slots.index_fill(0, part.slot, MASK)
        predictions = task.masked_predictions(number, items, slots, part.batch.rows, part.slot)
        queries[part.start : part.stop] = similarity.queries(predictions).float().cpu().numpy()
        advance(part.stop - part.start)
    vectors = held.encoded.vectors[number - 1]
    children, means = np.zeros(len(rows), dtype=np.int64), np.zeros_like(queries)
    for target, (row, place) in enumerate(zip(rows.tolist(), places.tolist(), strict=True)):
        family = held.children_of(number, row)
        children[target] = family[place]
        means[target] = vectors[np.delete(family, place)].mean(0)
    return Targets(rows, children, held.level(number).children[rows], queries, means)


def masked_child_measures(
    held: HeldOut,
    number: int,
    most: int,
    advance: Advance,
    *,
    others: int = OTHERS,
    nearby: int = NEARBY,
    fewest: int = FEWEST,
) -> Measures:
    """Recall at 10 and accuracy of hidden children among candidates from other documents, and among near ones.

    Candidates with the content of the target are left out, and so are its siblings. The baseline is the mean of the siblings'
    vectors, by dot product or cosine, whichever has the higher recall.
    """
    targets = hidden_children(held, number, most, advance)
    return measure_targets(held, number, targets, others=others, nearby=nearby, fewest=fewest)


def measure_targets(
    held: HeldOut, number: int, targets: Targets, *, others: int = OTHERS, nearby: int = NEARBY, fewest: int = FEWEST
) -> Measures:
    """The measures of hidden children, given a vector for each."""
    tfidf = _sibling_terms(held, number, targets)
    measures: Measures = {}
    for name, size, nodes in (("", others, None), (".nearby", nearby, held.node_above(number - 1, 2))):
        if name and nodes is None:
            continue
        table = _ranks(held, number, targets, tfidf, size, fewest, nodes)
        measures |= _summary(table, targets, name)
        several = targets.siblings >= 3
        measures |= _summary(np.where(several[:, None], table, math.nan), targets, f"{name}.three_or_more")
    return measures


def _sibling_terms(held: HeldOut, number: int, targets: Targets) -> csr_matrix:
    """The sum of the TF-IDF rows of each target's siblings."""
    terms, parents = held.pools[number - 1].tfidf, held.parents[number - 1]
    child = np.flatnonzero(parents >= 0)
    shape = (len(held.level(number)), terms.get_shape()[0])
    family = csr_matrix((np.ones(len(child)), (parents[child], child)), shape=shape)
    sums = csr_matrix(family[targets.rows] @ terms - terms[targets.children])
    # Terms of the target alone leave rounding errors, which would decide between equal scores.
    sums.data[np.abs(sums.data) < 1e-12] = 0
    sums.eliminate_zeros()
    return sums


SYSTEMS = ("model", "dot", "cosine", "tfidf")


def _ranks(
    held: HeldOut, number: int, targets: Targets, tfidf: csr_matrix, size: int, fewest: int, nodes: Ints | None
) -> NDArray[np.float64]:
    """The rank of each target by each system, and the number of candidates; NaN for targets with too few candidates.

    `nodes`: candidates share this number with the target. None: they are from other documents.
    """
    pool, random = held.pools[number - 1], generator(held.seed, number, 0 if nodes is None else 1)
    keys = held.keys(held.task.masked_similarity(number), number - 1)
    lengths = np.linalg.norm(pool.vectors, axis=1).clip(1e-12)
    parents = held.node_above(number - 1, 1)
    assert parents is not None
    table = np.full((len(targets.rows), len(SYSTEMS) + 1), math.nan)
    for target, child in enumerate(targets.children.tolist()):
        chosen = _candidates(pool, child, parents, size, nodes, random)
        if len(chosen) < fewest:
            continue
        chosen = np.concatenate([[child], chosen])
        vectors = pool.vectors[chosen]
        mean_scores = vectors @ targets.means[target]
        scores = (
            keys[chosen] @ targets.queries[target],
            mean_scores,
            mean_scores / lengths[chosen],
            (pool.tfidf[chosen] @ tfidf[target].T).toarray()[:, 0],
        )
        table[target] = [*(rank(float(system_scores[0]), system_scores[1:]) for system_scores in scores), len(chosen)]
    return table


def _candidates(
    pool: RowPool,
    child: int,
    parents: Ints,
    size: int,
    nodes: Ints | None,
    random: np.random.Generator,
) -> Ints:
    """Random rows that differ from a child in content and are no siblings of it."""
    if nodes is None:
        fits = np.flatnonzero((pool.tree != pool.tree[child]) & (pool.content != pool.content[child]))
    else:
        same = np.flatnonzero((nodes == nodes[child]) & (parents != parents[child]))
        fits = same[pool.content[same] != pool.content[child]]
    return random.choice(fits, size, replace=False, shuffle=False) if len(fits) > size else fits


def _summary(table: NDArray[np.float64], targets: Targets, suffix: str) -> Measures:
    known = np.flatnonzero(~np.isnan(table[:, 0]))
    table, unit = table[known], targets.rows[known]
    candidates = table[:, -1]
    measures: Measures = {}
    for name, most in ((f"mlm_recall_at_{RECALL}", RECALL), ("mlm_accuracy", 1)):
        hits = {system: (table[:, place] <= most).astype(np.float64) for place, system in enumerate(SYSTEMS)}
        # Chosen on the targets themselves, in favour of the baseline.
        better = max(("dot", "cosine"), key=lambda system: float(hits[system].sum()))
        measures[name + suffix] = Measure(
            mean(hits["model"]),
            mean(hits[better]),
            mean(np.minimum(1.0, most / candidates)),
            len(known),
            sign_flip(hits["model"] - hits[better], unit),
            {"tfidf": mean(hits["tfidf"])},
        )
    return measures
