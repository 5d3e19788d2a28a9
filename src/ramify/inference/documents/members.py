"""Which children belong to a node: each child is looked for by all that was decoded from its node's vector."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.batching.forest import Ints
from ramify.inference.documents.masked_children import FEWEST, NEARBY, OTHERS, candidates_of
from ramify.inference.documents.measures import HeldOut, Measures, generator, spread
from ramify.inference.documents.ranks import BASELINES, MODEL, Ranks
from ramify.metrics.ranking import rank

Decoded = Mapping[int, Float[NDArray, "_place _dim"]]
"""The query at each place of a child, by the row that was decoded."""


def member_measures(
    held: HeldOut,
    number: int,
    decoded: Decoded,
    most: int,
    *,
    others: int = OTHERS,
    nearby: int = NEARBY,
    fewest: int = FEWEST,
) -> Measures:
    """Recall at 10, accuracy and AUROC of at most `most` children of decoded rows, among the candidates of hidden children.

    A candidate has the highest of its reconstruction scores at the places of the row, so order is not asked for. The baseline
    is the mean of the vectors of all children, by dot product or cosine: a vector of the row that nobody learns.
    """
    measures: Measures = {}
    for place, (name, size, nodes) in enumerate((("", others, None), (".nearby", nearby, held.node_above(number - 1, 2)))):
        if name and nodes is None:
            continue
        ranks = _ranks(held, number, decoded, most, size, fewest, nodes, generator(held.seed, number, place, 3))
        measures |= ranks.measures("member", name)
    return measures


def _ranks(
    held: HeldOut,
    number: int,
    decoded: Decoded,
    most: int,
    size: int,
    fewest: int,
    nodes: Ints | None,
    random: np.random.Generator,
) -> Ranks:
    pool, keys = held.pools[number - 1], held.keys(held.task.child_similarity(number), number - 1)
    parents = held.node_above(number - 1, 1)
    assert parents is not None
    families = {row: held.children_of(number, row) for row in sorted(decoded)}
    asked = [(row, child) for row, family in families.items() if len(family) > 1 for child in family.tolist()]
    table: list[tuple[float, ...]] = []
    for query in spread(len(asked), most).tolist():
        row, child = asked[query]
        chosen = candidates_of(pool, child, parents, size, nodes, random)
        # A node elsewhere with the content of a sibling is no wrong answer.
        chosen = chosen[~np.isin(pool.content[chosen], pool.content[families[row]])]
        if len(chosen) < fewest:
            continue
        chosen = np.concatenate([[child], chosen])
        vectors, queries = pool.vectors[chosen], decoded[row]
        # Without a place, all candidates are equal.
        scores = (queries @ keys[chosen].T).max(0) if len(queries) else np.zeros(len(chosen))
        by_mean = vectors @ pool.vectors[families[row]].mean(0)
        by_cosine = by_mean / np.linalg.norm(vectors, axis=1).clip(1e-12)
        ranks = (rank(float(values[0]), values[1:]) for values in (scores, by_mean, by_cosine))
        table.append((row, len(families[row]), len(chosen), *ranks))
    columns = np.array(table, dtype=np.float64).reshape(-1, 6).T
    unit, siblings, candidates = columns[:3].astype(np.int64)
    return Ranks(unit, siblings, candidates, dict(zip((MODEL, *BASELINES), columns[3:], strict=True)))
