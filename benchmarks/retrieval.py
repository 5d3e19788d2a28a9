"""Find the parent, and a sibling, of a comment among 1,000 comments by the greatest cosine: what vectors say about likeness.

    python benchmarks/retrieval.py --data DATA/reddit --model tree-mlm-small --minilm DATA/minilm

Queries are held-out comments in the order of a hash of their ids, each with another answer: 2,000 whose parent is a comment, and
2,000 with a sibling, which a hash chooses as well. A tree has at most `PER_TREE` queries of a kind. The candidates of a query
are its answer and 999 answers to queries of other trees, so all candidates are parents, or siblings, of some comment. All have
words. Equal scores share the mean of their ranks. Intervals are bootstrapped over trees.

Vectors are those of `embed`, which `ramify nearest` compares. `alone`: the text alone. `in context`: given its ancestors, which
siblings share; only models that read ancestors have it. `centred`: the mean vector of the training comments (a sample) is
subtracted first. TF-IDF takes its document frequencies from the comments of the training trees.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ramify.memory import keep_pages

keep_pages()  # before torch is imported

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

import ramify
from experiments import Figures
from ramify.batching.forest import node_seeds
from ramify.dataset.store import Store
from ramify.metrics import bootstrap_ratio
from rows import current_commit, replace_rows

QUERIES = 2_000
PER_TREE = 20
CANDIDATES = 1_000
CENTRE = 1_000
"""Number of training comments whose mean vector is subtracted."""


@dataclass(frozen=True)
class Relatives:
    """Queries, the answer to each, and the number of the tree of both."""

    query: np.ndarray
    answer: np.ndarray
    tree: np.ndarray


def nodes_of(store: Store, split: str) -> np.ndarray:
    """The nodes of a split, in the order of a hash of their ids."""
    nodes = np.concatenate([np.arange(*store.offsets[tree : tree + 2]) for tree in store.split(split)])
    return nodes[np.argsort(node_seeds(store, nodes), kind="stable")]


def relatives(store: Store, split: str, queries: int) -> dict[str, Relatives]:
    """Comments and their parents, and comments and their siblings."""
    nodes = nodes_of(store, split)
    depth, parent = np.asarray(store.depth), np.asarray(store.parent)
    has_words = {node: bool(text.strip()) for node, text in zip(nodes.tolist(), store.texts(nodes), strict=True)}
    replies: dict[int, list[int]] = {}
    for node in nodes[depth[nodes] > 0].tolist():
        if has_words[node]:
            replies.setdefault(int(parent[node]), []).append(node)

    def pairs(kind: str) -> Iterator[tuple[int, int]]:
        for above, children in replies.items():
            if kind == "sibling":
                yield from zip(children, children[1:])
            elif depth[above] > 0 and has_words[above]:
                yield children[0], above

    chosen = {}
    for kind in ("parent", "sibling"):
        place = {node: number for number, node in enumerate(nodes.tolist())}
        of_tree: dict[int, int] = {}
        kept = []
        for query, answer in sorted(pairs(kind), key=lambda pair: place[pair[0]]):
            tree = int(store.tree_of([query])[0])
            of_tree[tree] = of_tree.get(tree, 0) + 1
            if of_tree[tree] <= PER_TREE and len(kept) < queries:
                kept.append((query, answer, tree))
        chosen[kind] = Relatives(*np.array(kept).T)
    return chosen


def ranks(scores: np.ndarray, tree: np.ndarray, seed: int) -> np.ndarray:
    """The rank of each query's own answer, from 1, among `CANDIDATES` answers. `scores` is [query, answer]."""
    found = np.empty(len(scores))
    for query, row in enumerate(scores):
        others = np.flatnonzero(tree != tree[query])
        others = np.random.default_rng([seed, query]).choice(others, CANDIDATES - 1, replace=False)
        found[query] = 1 + (row[others] > row[query]).sum() + (row[others] == row[query]).sum() / 2
    return found


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12)


class Vectors:
    """The vectors of a model, of texts alone or given their ancestors."""

    def __init__(self, model: Any, store: Store, context: str, centre: np.ndarray) -> None:
        self.model, self.store, self.context = model, store, context
        self.mean = self(centre).mean(0) if len(centre) else 0.0

    def __call__(self, nodes: np.ndarray) -> np.ndarray:
        if self.context == "none":
            return self.model.embed(self.store.texts(nodes), context="none")
        numbers = np.unique(self.store.tree_of(nodes))
        vectors = self.model.embed([self.store.tree(int(number)) for number in numbers], context=self.context)
        rows = np.concatenate([np.arange(*self.store.offsets[number : number + 2]) for number in numbers])
        return vectors[np.searchsorted(rows, nodes)]


def scored(relation: Relatives, measured: dict[str, np.ndarray]) -> dict[str, Any]:
    """Each measure with its bootstrap interval over trees."""
    trees, place = np.unique(relation.tree, return_inverse=True)
    counts = np.bincount(place)
    return {name: bootstrap_ratio(np.bincount(place, value), counts) for name, value in measured.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="tree-mlm-small", help="a model of comments (default: the one that ships)")
    parser.add_argument("--minilm", type=Path, help="the directory of all-MiniLM-L6-v2")
    parser.add_argument("--split", default="test")
    parser.add_argument("--queries", type=int, default=QUERIES, help="queries of a kind (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the candidates")
    parser.add_argument("--rows", nargs=2, metavar=("FILE", "MACHINE"), help="write the figures to FILE, in place of old ones")
    arguments = parser.parse_args()
    store = Store.open(arguments.data)
    asked = relatives(store, arguments.split, arguments.queries)
    training = nodes_of(store, "train")
    training = training[np.asarray(store.depth)[training] > 0]
    words = TfidfVectorizer(sublinear_tf=True, dtype=np.float32).fit(store.texts(training))
    of_models = {f"{arguments.model}": arguments.model} | ({"MiniLM": arguments.minilm} if arguments.minilm else {})
    systems: dict[str, Any] = {"TF-IDF": lambda nodes: words.transform(store.texts(nodes))}
    for name, source in of_models.items():
        model: Any = ramify.load(source)
        for context, said in {"none": "alone", "tree": "in context"}.items():
            if context == "none" or model.backbone.reads_context:
                systems[f"{name}, {said}"] = Vectors(model, store, context, training[:CENTRE])
    commit, _ = current_commit()
    machine = arguments.rows[1] if arguments.rows else ""
    figures = Figures(commit, commit, machine)
    command = " ".join(["python", "benchmarks/retrieval.py", *_without_rows(sys.argv[1:])])
    for name, vectors in systems.items():
        for kind, relation in asked.items():
            start = time.process_time()
            query, answer = vectors(relation.query), vectors(relation.answer)
            spent = time.process_time() - start
            versions = {name: (query, answer)}
            if isinstance(vectors, Vectors):
                versions[f"{name}, centred"] = (query - vectors.mean, answer - vectors.mean)
            for version, (one, two) in versions.items():
                scores = unit(one) @ unit(two).T if isinstance(vectors, Vectors) else (one @ two.T).toarray()
                rank = ranks(scores, relation.tree, arguments.seed)
                result = scored(relation, {"recall at 10": (rank <= 10).astype(float), "MRR": 1 / rank})
                print(json.dumps({"vectors": version, "relation": kind, "queries": len(rank), "cpu s": round(spent, 1)}
                                 | {key: [round(x, 4) for x in (v.value, v.low, v.high)] for key, v in result.items()}), flush=True)
                for measure, value in result.items():
                    figures.add(
                        "relatives", version, f"{kind}, {measure}", value.value, command, unit="",
                        seeds=(arguments.seed,), interval={"low": value.low, "high": value.high},
                    )  # fmt: skip
    if arguments.rows:
        replace_rows(Path(arguments.rows[0]), figures.rows)


def _without_rows(words: list[str]) -> list[str]:
    """The arguments of the command without `--rows FILE MACHINE`."""
    if "--rows" not in words:
        return words
    place = words.index("--rows")
    return words[:place] + words[place + 3 :]


if __name__ == "__main__":
    main()
