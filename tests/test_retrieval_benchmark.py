"""benchmarks/retrieval.py: relatives of comments, and refusals."""

import sys
from pathlib import Path

import numpy as np
import pytest

from fixtures import built, discussions
from ramify import RamifyError

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

sys.path.insert(0, str(BENCHMARKS))
try:
    import retrieval
finally:
    sys.path.remove(str(BENCHMARKS))


def test_too_few_queries_are_refused(tmp_path, monkeypatch):
    store = built(discussions(12, 8), tmp_path / "data", split=(0.0, 0.0, 1.0))
    asked = retrieval.relatives(store, retrieval.nodes_of(store, "test"), 20)
    with pytest.raises(
        RamifyError, match=r"--queries 20 gives \d+ queries with a parent, .* 999 are needed. Set --queries to 1009"
    ):
        retrieval.check_candidates(asked, 20)
    # As many candidates as the smallest choice of other trees allows.
    fewest = min(len(kind.tree) - np.unique(kind.tree, return_counts=True)[1].max() for kind in asked.values())
    monkeypatch.setattr(retrieval, "CANDIDATES", fewest + 1)
    retrieval.check_candidates(asked, 20)
    for relation in asked.values():
        ranks = retrieval.ranks(np.eye(len(relation.tree)), relation.tree, seed=0)
        assert ranks.tolist() == [1.0] * len(relation.tree)
    with pytest.raises(RamifyError, match="--queries 0 gives 0 queries with a parent"):
        retrieval.check_candidates(retrieval.relatives(store, retrieval.nodes_of(store, "test"), 0), 0)
