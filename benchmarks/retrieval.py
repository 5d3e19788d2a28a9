"""Find the parent of a comment among 1,000 comments by the nearest vector: what a model's vectors say about replies.

    python benchmarks/retrieval.py --data DATA/reddit --models OUT/A-reddit-tree-0 OUT/A-reddit-paper-0

Queries are the first 1,000 comments of the split, in the order of a hash of their ids, that have a comment as parent and words
of their own, each with another parent. The pool is the 1,000 parents. Vectors are `embed(context="none")`: texts alone, so no
vector has seen another text. Vectors are centred on the pool's mean before their cosine is taken.
"""

import argparse
import json
from pathlib import Path

from ramify.memory import keep_pages

keep_pages()  # before torch is imported

import numpy as np

import ramify
from ramify.batching.forest import node_seeds
from ramify.dataset.store import Store
from rows import add_options, append_rows

QUERIES = 1_000


def pairs(store: Store, split: str) -> tuple[list[str], list[str]]:
    """Texts of comments and of their parents."""
    trees = store.split(split)
    nodes = np.concatenate([np.arange(store.offsets[tree], store.offsets[tree + 1]) for tree in trees])
    nodes = nodes[np.asarray(store.depth)[nodes] >= 2]
    nodes = nodes[np.argsort(node_seeds(store, nodes), kind="stable")]
    queries, parents, known = [], [], set()
    for start in range(0, len(nodes), QUERIES):
        part = nodes[start : start + QUERIES]
        above = np.asarray(store.parent)[part]
        for text, parent, words in zip(store.texts(part), above.tolist(), store.texts(above), strict=True):
            if text.strip() and words.strip() and parent not in known and len(queries) < QUERIES:
                known.add(parent)
                queries.append(text)
                parents.append(words)
        if len(queries) == QUERIES:
            return queries, parents
    raise SystemExit(f"{store.path}: the split {split} has {len(queries):,} such comments; {QUERIES:,} are needed.")


def ranks(queries: np.ndarray, parents: np.ndarray) -> np.ndarray:
    """The rank of each query's own parent by cosine, from 1."""
    mean = parents.mean(0)
    one, two = (each - mean for each in (queries, parents))
    one, two = (each / np.linalg.norm(each, axis=1, keepdims=True).clip(1e-12) for each in (one, two))
    scores = one @ two.T
    return 1 + (scores > np.diag(scores)[:, None]).sum(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", type=Path, nargs="+", required=True)
    parser.add_argument("--split", default="test")
    add_options(parser)
    arguments = parser.parse_args()
    queries, parents = pairs(Store.open(arguments.data), arguments.split)
    for folder in arguments.models:
        model = ramify.load(folder)
        rank = ranks(*(model.embed(texts, context="none") for texts in (queries, parents)))
        found = {
            "first": float((rank == 1).mean()),
            "among the first ten": float((rank <= 10).mean()),
            "mean reciprocal rank": float((1 / rank).mean()),
        }
        print(json.dumps({"model": folder.name, **found}), flush=True)
        append_rows(arguments, "retrieval", folder.name, found)


if __name__ == "__main__":
    main()
