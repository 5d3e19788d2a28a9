"""Find the parent, and a sibling, of a comment among 1,000 comments by the greatest cosine: what vectors say about likeness.

    python benchmarks/retrieval.py --data DATA/reddit --model tree-mlm-small --minilm DATA/minilm

Queries are held-out comments in the order of a hash of their ids: 1,100 whose parent is a comment, each with another parent,
and 1,100 with a sibling, the next in that order. A tree has at most ten queries of a kind. The candidates of a query are its
answer and 999 answers to queries of other trees, so all candidates are parents, or siblings, of some comment. All have words.
Equal scores share the mean of their ranks. Intervals are bootstrapped over trees.

Vectors are those of `embed`, which `ramify nearest` compares. `alone`: of the text alone. `in context`: given its ancestors,
which siblings share; only models that read ancestors have it. `centred`: less the mean of all answers. TF-IDF takes its
document frequencies from the comments of the training trees.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ramify.memory import keep_pages

keep_pages()  # before torch is imported

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

import ramify
from experiments import Figures
from ramify import RamifyError, Tree
from ramify.batching.forest import node_seeds
from ramify.dataset.store import Store
from ramify.metrics import bootstrap_ratio
from rows import current_commit, replace_rows

QUERIES = 1_100
PER_TREE = 10
CANDIDATES = 1_000
TABLE = "relatives"


@dataclass(frozen=True)
class Relatives:
    """Queries and the answer to each: numbers of nodes, and of the tree of both."""

    query: np.ndarray
    answer: np.ndarray
    tree: np.ndarray


def nodes_of(store: Store, split: str) -> np.ndarray:
    """The comments of a split, in the order of a hash of their ids."""
    nodes = np.concatenate([np.arange(*store.offsets[tree : tree + 2]) for tree in store.split(split)])
    nodes = nodes[np.asarray(store.depth)[nodes] > 0]
    return nodes[np.argsort(node_seeds(store, nodes), kind="stable")]


def relatives(store: Store, nodes: np.ndarray, queries: int) -> dict[str, Relatives]:
    """Comments and their parents, and comments and their siblings."""
    depth, parent = np.asarray(store.depth), np.asarray(store.parent)
    nodes = nodes[[bool(text.strip()) for text in store.texts(nodes)]]
    place = {node: number for number, node in enumerate(nodes.tolist())}
    replies: dict[int, list[int]] = {}
    for node in place:
        replies.setdefault(int(parent[node]), []).append(node)

    def pairs(kind: str) -> Iterator[tuple[int, int]]:
        for above, children in replies.items():
            if kind == "sibling":
                yield from pairwise(children)
            elif depth[above] > 0 and above in place:
                yield children[0], above

    chosen = {}
    for kind in ("parent", "sibling"):
        of_tree = Counter[int]()
        kept = []
        for query, answer in sorted(pairs(kind), key=lambda pair: place[pair[0]]):
            tree = int(store.tree_of([query])[0])
            of_tree[tree] += 1
            if of_tree[tree] <= PER_TREE and len(kept) < queries:
                kept.append((query, answer, tree))
        chosen[kind] = Relatives(*np.array(kept, dtype=np.int64).reshape(-1, 3).T)
    return chosen


def check_candidates(asked: dict[str, Relatives], queries: int) -> None:
    """Raise `RamifyError` if a query of some kind has too few answers to queries of other trees."""
    for kind, relation in asked.items():
        others = len(relation.tree) - max(Counter(relation.tree.tolist()).values(), default=0)
        if others < CANDIDATES - 1:
            raise RamifyError(
                f"--queries {queries} gives {len(relation.tree)} queries with a {kind}, so some query has {others} answers of "
                f"other trees, and {CANDIDATES - 1} are needed. Set --queries to {CANDIDATES + PER_TREE - 1} or more, or take "
                "more data."
            )


def ranks(scores: np.ndarray, tree: np.ndarray, seed: int) -> np.ndarray:
    """The rank of each query's answer, from 1, among `CANDIDATES` answers. `scores` is [query, answer]."""
    ranked = np.empty(len(scores))
    for query, row in enumerate(scores):
        others = np.flatnonzero(tree != tree[query])
        others = row[np.random.default_rng([seed, query]).choice(others, CANDIDATES - 1, replace=False)]
        ranked[query] = 1 + (others > row[query]).sum() + (others == row[query]).sum() / 2
    return ranked


def in_context(model: Any, store: Store, nodes: np.ndarray) -> np.ndarray:
    """The vectors of nodes, ascending, given their ancestors. No other nodes are encoded."""
    thinned: list[Tree] = []
    rows: list[int] = []
    total = 0
    of_node = store.tree_of(nodes)
    for number in np.unique(of_node).tolist():
        tree, first = store.tree(number), int(store.offsets[number])
        wanted = (nodes[of_node == number] - first).tolist()
        read = set(wanted)
        for node in reversed(range(len(tree))):  # a parent precedes its children
            if node in read:
                read.update(tree.nodes[node].parents or ())
        place = {node: row for row, node in enumerate(sorted(read))}
        kept = [ramify.Node(tree.nodes[n].text, tuple(place[p] for p in tree.nodes[n].parents or ()), id=str(n)) for n in place]
        thinned.append(Tree(tuple(kept), id=tree.id))
        rows += [total + place[node] for node in wanted]
        total += len(kept)
    return model.embed(thinned, context="tree")[rows]


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12)


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
    commit, _ = current_commit()
    figures = Figures(commit, commit, arguments.rows[1] if arguments.rows else "")
    store = Store.open(arguments.data)
    asked = relatives(store, nodes_of(store, arguments.split), arguments.queries)
    check_candidates(asked, arguments.queries)
    nodes = np.unique(np.concatenate([part for kind in asked.values() for part in (kind.query, kind.answer)]))
    texts = store.texts(nodes)

    def measure(name: str, vectors: Any, began: float) -> None:
        spent = time.process_time() - began
        for kind, relation in asked.items():
            one, two = (vectors[np.searchsorted(nodes, numbers)] for numbers in (relation.query, relation.answer))
            versions = {name: one @ two.T}
            if isinstance(vectors, np.ndarray):
                mean = two.mean(0)
                versions = {name: unit(one) @ unit(two).T, f"{name}, centred": unit(one - mean) @ unit(two - mean).T}
            trees, place = np.unique(relation.tree, return_inverse=True)
            for version, scores in versions.items():
                rank = ranks(scores if isinstance(scores, np.ndarray) else scores.toarray(), relation.tree, arguments.seed)
                said: dict[str, Any] = {"vectors": version, "relation": kind, "queries": len(rank), "trees": len(trees)}
                for column, values in {"recall at 10": (rank <= 10).astype(float), "MRR": 1 / rank}.items():
                    mean_of = bootstrap_ratio(np.bincount(place, values), np.bincount(place))
                    figures.add(
                        TABLE, version, f"{kind}: {column}", mean_of.value, _command(), unit="", seeds=(arguments.seed,),
                        interval={"low": mean_of.low, "high": mean_of.high}, digits=3,
                    )  # fmt: skip
                    said[column] = [round(number, 4) for number in (mean_of.value, mean_of.low, mean_of.high)]
                print(json.dumps(said | {"cpu seconds": round(spent, 1)}), flush=True)

    began = time.process_time()
    words = TfidfVectorizer(sublinear_tf=True, dtype=np.float32).fit(store.texts(nodes_of(store, "train")))
    measure("TF-IDF", words.transform(texts), began)
    for name, source in {arguments.model: arguments.model, "MiniLM": arguments.minilm}.items():
        if source is not None:
            model: Any = ramify.load(source)
            began = time.process_time()
            measure(f"{name}, alone", model.embed(texts, context="none"), began)
            if model.backbone.reads_context:
                began = time.process_time()
                measure(f"{name}, in context", in_context(model, store, nodes), began)
    if arguments.rows:
        replace_rows(Path(arguments.rows[0]), figures.rows)


def _command() -> str:
    """The command line without `--rows FILE MACHINE`, and with the names alone of folders of this machine."""
    words = [f"data/{Path(word).name}" if Path(word).is_absolute() else word for word in sys.argv[1:]]
    if "--rows" in words:
        del words[words.index("--rows") : words.index("--rows") + 3]
    return " ".join(["python", "benchmarks/retrieval.py", *words])


if __name__ == "__main__":
    main()
