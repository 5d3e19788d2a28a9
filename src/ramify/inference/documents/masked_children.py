"""Measures of masked children: the hidden child of a node is looked for among other nodes."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from ramify.batching.document_batch import MASK
from ramify.batching.forest import Ints
from ramify.inference.documents.measures import Advance, HeldOut, Measures, RowPool, copies, generator, probes
from ramify.inference.documents.ranks import BASELINES, MODEL, Ranks
from ramify.metrics.ranking import rank

OTHERS = 999
"""Candidates from other documents, beside the right one."""

NEARBY = 99
"""Candidates from the same node two levels above, such as a sentence's chapter."""

FEWEST = 20
"""A target with fewer candidates is left out: ten of them would be most."""

SYSTEMS = (MODEL, *BASELINES, "tfidf")


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
    """Recall at 10, AUROC and accuracy of hidden children among candidates from other documents, and among near ones.

    Candidates with the content of the target are left out, and so are its siblings. The baseline is the mean of the siblings'
    vectors, by dot product or cosine, whichever has the higher recall.
    """
    targets = hidden_children(held, number, most, advance)
    keys = held.keys(held.task.masked_similarity(number), number - 1)
    return measure_targets(held, number, targets, keys, others=others, nearby=nearby, fewest=fewest)


def measure_targets(
    held: HeldOut,
    number: int,
    targets: Targets,
    keys: NDArray[np.float32],
    *,
    others: int = OTHERS,
    nearby: int = NEARBY,
    fewest: int = FEWEST,
) -> Measures:
    """The measures of hidden children, given the query of each and the keys of all rows of their level."""
    tfidf = _sibling_terms(held, number, targets)
    measures: Measures = {}
    for name, size, nodes in (("", others, None), (".nearby", nearby, held.node_above(number - 1, 2))):
        if name and nodes is None:
            continue
        measures |= _ranks(held, number, targets, keys, tfidf, size, fewest, nodes).measures("mlm", name)
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


def _ranks(
    held: HeldOut,
    number: int,
    targets: Targets,
    keys: NDArray[np.float32],
    tfidf: csr_matrix,
    size: int,
    fewest: int,
    nodes: Ints | None,
) -> Ranks:
    """The rank of each target by each system. Targets with too few candidates are left out.

    `nodes`: candidates share this number with the target. None: they are from other documents.
    """
    pool, random = held.pools[number - 1], generator(held.seed, number, 0 if nodes is None else 1)
    lengths = np.linalg.norm(pool.vectors, axis=1).clip(1e-12)
    parents = held.node_above(number - 1, 1)
    assert parents is not None
    known: list[int] = []
    table: list[tuple[float, ...]] = []
    for target, child in enumerate(targets.children.tolist()):
        chosen = candidates_of(pool, child, parents, size, nodes, random)
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
        known.append(target)
        table.append((*(rank(float(system_scores[0]), system_scores[1:]) for system_scores in scores), len(chosen)))
    columns = np.array(table, dtype=np.float64).reshape(-1, len(SYSTEMS) + 1).T
    systems = dict(zip(SYSTEMS, columns, strict=False))
    return Ranks(targets.rows[known], targets.siblings[known], columns[-1].astype(np.int64), systems)


def candidates_of(
    pool: RowPool,
    child: int,
    parents: Ints,
    size: int,
    nodes: Ints | None,
    random: np.random.Generator,
) -> Ints:
    """Random rows that differ from a child in content and are no siblings of it.

    `nodes`: they share this number with the child. None: they are from other documents.
    """
    if nodes is None:
        fits = np.flatnonzero((pool.tree != pool.tree[child]) & (pool.content != pool.content[child]))
    else:
        same = np.flatnonzero((nodes == nodes[child]) & (parents != parents[child]))
        fits = same[pool.content[same] != pool.content[child]]
    return random.choice(fits, size, replace=False, shuffle=False) if len(fits) > size else fits
