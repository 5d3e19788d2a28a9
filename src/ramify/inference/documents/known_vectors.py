"""The bank of known vectors: those of training documents, with which decoded and predicted vectors are compared."""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramify.batching.forest import DONE, Ints, computed_once, token_cache
from ramify.batching.views.documents import LevelInput
from ramify.dataset.store import VECTORS, Store
from ramify.errors import RamifyError
from ramify.inference.documents.measures import spread
from ramify.inference.documents.vectors import Vectors, encode_documents, read_documents
from ramify.inference.index import encoding_hash
from ramify.models.agent import Agent
from ramify.tokenizer import Tokenizer

MOST_VECTORS = 4_096
"""The most known vectors of a level."""

MOST_TOKENS = 1_000_000
"""Documents are added until they hold so many tokens together."""

SEED = 2019
"""Draws the order in which documents are added."""


@dataclass(frozen=True)
class KnownVectors:
    """Vectors of some rows of each level of training documents, from the lowest."""

    levels: tuple[Vectors, ...]
    nodes: tuple[Ints, ...]
    """The store's number of the node of each vector; of a node that fills a missing level, that of the first node below."""
    model: str
    """The hash of the weights and settings that made the vectors."""
    store: Store

    @classmethod
    def of(cls, agent: Agent, tokenizer: Tokenizer, input: LevelInput, store: Store) -> "KnownVectors":
        """Encode random training documents of a data set (of a set without a training split: any), until they hold
        MOST_TOKENS, and keep at most MOST_VECTORS of each level, evenly spread.

        A data set on disk keeps them in its folder, or in the user's cache folder, under hashes of the weights, of the
        data and of its splits.
        """
        model = encoding_hash(agent, tokenizer, input)
        compute = partial(_compute, agent, tokenizer, input, store)
        if store.path is None:
            levels, nodes = compute()
        else:
            key = {
                "model": model,
                "data": store.hash,
                "split": store.split_hash,
                "vectors": MOST_VECTORS,
                "tokens": MOST_TOKENS,
            }
            name = f"{VECTORS}known-{model[:16]}-{store.hash[:16]}-{store.split_hash[:16]}"
            write, read = partial(_write, compute, key), partial(_read, key)
            levels, nodes = computed_once(store.path, name, "known vectors", write, read)
        return cls(tuple(levels), tuple(nodes), model, store)

    def check(self, agent: Agent, tokenizer: Tokenizer, input: LevelInput) -> None:
        """Raise `RamifyError` if another model made the vectors."""
        if self.model != encoding_hash(agent, tokenizer, input):
            raise RamifyError(
                f"the bank of {len(self.levels[0]):,} vectors of the lowest level was made by another model, so they mean "
                "nothing to this one. Make it anew with model.known_vectors(store)."
            )


def _compute(agent: Agent, tokenizer: Tokenizer, input: LevelInput, store: Store) -> tuple[list[Vectors], list[Ints]]:
    trees = _documents(store, tokenizer)
    view, collator = read_documents(agent, tokenizer, input, store, trees)
    vectors = encode_documents(agent, view, collator).vectors
    levels, nodes = [], []
    for rows, encoded in zip(view.rows.levels, vectors, strict=True):
        kept = spread(len(rows), MOST_VECTORS)
        levels.append(encoded[kept])
        nodes.append(rows.level.node[np.searchsorted(rows.first_row, kept, side="right") - 1])
    return levels, nodes


def _documents(store: Store, tokenizer: Tokenizer) -> Ints:
    """The training documents that are encoded, in ascending order."""
    trees = store.split("train") if len(store.split("train")) else np.arange(store.num_trees)
    if not len(trees):
        raise RamifyError(f"{store.path or 'the data'} holds no document. Choose another data set.")
    starts = token_cache(store, tokenizer).starts
    drawn = np.random.Generator(np.random.Philox(key=SEED)).permutation(trees)
    tokens = np.cumsum([int(starts[store.offsets[tree + 1]] - starts[store.offsets[tree]]) for tree in drawn.tolist()])
    return np.sort(drawn[: 1 + int(np.searchsorted(tokens, MOST_TOKENS))])


def _write(compute: "partial[tuple[list[Vectors], list[Ints]]]", key: dict[str, object], folder: Path) -> None:
    levels, nodes = compute()
    arrays: dict[str, NDArray[Any]] = {f"vectors{place}": level for place, level in enumerate(levels)}
    arrays |= {f"nodes{place}": level for place, level in enumerate(nodes)}
    np.savez(folder / "known.npz", allow_pickle=False, **arrays)
    (folder / DONE).write_text(json.dumps(key))


def _read(key: dict[str, object], folder: Path) -> tuple[list[Vectors], list[Ints]]:
    """Read the arrays of a folder. Raises `ValueError` if they were made of something else."""
    if json.loads((folder / DONE).read_text()) != key:
        raise ValueError("it holds vectors of other data or of another model")
    with np.load(folder / "known.npz", allow_pickle=False) as arrays:
        number = len(arrays.files) // 2
        return [arrays[f"vectors{place}"] for place in range(number)], [arrays[f"nodes{place}"] for place in range(number)]
