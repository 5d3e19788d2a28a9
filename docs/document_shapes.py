"""Count the children of all rows of some novels, for `nested_figures.py`. The counts are in `document_shapes.json`.

    ramify data build BOOKS --format book --out STORE
    python docs/document_shapes.py STORE TOKENIZER NOVEL

TOKENIZER is the tokenizer.json of a run on the store, and NOVEL the id of the document that is counted alone, too.
"""

import json
import sys
from pathlib import Path

import numpy as np

from ramify.batching.levels import USUAL, Levels
from ramify.batching.views.documents import Documents, LevelInput
from ramify.dataset import Store
from ramify.models.agent import AgentConfig
from ramify.tokenizer import Tokenizer

FILE = Path(__file__).with_suffix(".json")

Shape = dict[str, dict[str, list[int]]]
"""For each level, the number of nodes, the number of rows with 0, 1, 2 … children, and that of nodes with several rows."""


def shape(store: Store, tokenizer: Tokenizer, trees: np.ndarray) -> Shape:
    levels = Levels.open(store, tokenizer, USUAL, trees)
    view = Documents(levels, AgentConfig().max_children, LevelInput(), budget=1)
    return {
        rows.level.name: {
            "nodes": [len(rows.level.node)],
            "rows": np.bincount(rows.children).tolist(),
            "cut": [rows.num_cut],
        }
        for rows in view.rows.levels
    }


def main(path: str, tokenizer: str, novel: str) -> None:
    store, words = Store.open(path), Tokenizer.load(tokenizer)
    trees = np.arange(store.num_trees)
    own = np.array([store.tree_ids(trees).index(novel)])
    found = {
        "documents": len(trees),
        "vocabulary": words.vocab_size,
        "name": novel,
        "novel": shape(store, words, own),
        "novels": shape(store, words, trees),
    }
    FILE.write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
