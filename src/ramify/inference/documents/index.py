"""The nearest nodes of a level among many documents, by the cosine of their vectors."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.batching.forest import Ints
from ramify.dataset.store import Store
from ramify.errors import RamifyError, counted
from ramify.inference.answers import Nearest, Neighbour
from ramify.inference.documents.text import texts_of_nodes
from ramify.inference.documents.vectors import Vectors, encode_nodes, encoding_hash, in_groups
from ramify.tasks.nested.task import NestedAutoencoder
from ramify.tree import Tree

MADE_OF = "ramify"
"""The key of a Parquet file's metadata that names what vectors were made of: hashes of model and data, and the level."""


@dataclass(frozen=True)
class DocumentIndex:
    """The vectors of all nodes of a level, in memory. `DocumentPipeline.index` makes one."""

    store: Store
    level: str
    node: Ints
    """The store's number of each node."""
    vectors: Float[NDArray, "node dim"]
    """Vectors of length 1."""

    def __len__(self) -> int:
        return len(self.node)

    def place(self, node: str, tree: str | None = None) -> int:
        """The place of a node, by its id and that of its tree. Raises as `find_node` does."""
        return int(np.searchsorted(self.node, find_node(self.store, self.level, node, tree)))

    def nearest(self, vector: Float[NDArray, " dim"], k: int, without: int | None = None) -> Nearest:
        """The k nodes with the greatest cosine, the nearest first. `without` is the place of a node that is left out."""
        scores = self.vectors @ (vector / max(float(np.linalg.norm(vector)), 1e-12)).astype(np.float32)
        if without is not None:
            scores[without] = -np.inf
        count = min(k, len(scores) - (without is not None))
        # Equal scores keep the order of the store.
        best = np.argsort(-scores, kind="stable")[:count]
        neighbours = []
        trees: dict[int, Tree] = {}
        for place in best.tolist():
            number = int(self.node[place])
            number_of_tree = int(self.store.tree_of([number])[0])
            if number_of_tree not in trees:
                trees[number_of_tree] = self.store.tree(number_of_tree)
            tree = trees[number_of_tree]
            text = next(texts_of_nodes(tree, [number - int(self.store.offsets[number_of_tree])]))
            neighbours.append(Neighbour(tree.id, self.store.ids([number])[0], float(scores[place]), text))
        return Nearest(self.level, tuple(neighbours))


def find_node(store: Store, level: str, node: str, tree: str | None) -> int:
    """The store's number of a node of a level, by its id and that of its tree (None: any). Raises `RamifyError` if there is
    none, or if several trees have such a node."""
    numbers = store.find_all(node) if tree is None else np.array([store.find(node, tree)])
    kinds = np.array(store.column("kind", numbers).to_pylist())
    matches = numbers[kinds == level]
    if not len(matches):
        others = " or a ".join(sorted({kind or "node without a kind" for kind in kinds.tolist()}))
        raise RamifyError(f"node {node!r} is no {level}, but a {others}. Choose a {level}, or another level.")
    if len(matches) > 1:
        one, other = store.tree_ids(store.tree_of(matches[:2]))
        raise RamifyError(
            f"node {node!r} is in {counted(len(matches), 'tree')}, such as {one!r} and {other!r}. Name the tree (--tree)."
        )
    return int(matches[0])


def index_documents(
    task: NestedAutoencoder, store: Store, level: int, progress: Callable[[int], None] | None = None
) -> DocumentIndex:
    """Encode all stored nodes of a level. Memory holds their vectors, and one group of documents."""
    name = task.backbone.config.levels[level]
    numbers, vectors = [], []
    for trees in in_groups(store):
        encoded = encode_nodes(task.backbone, task.tokenizer, task.input, store, trees, level, progress)
        numbers.append(encoded.nodes.node[encoded.nodes.stored])
        vectors.append(encoded.vectors[encoded.nodes.stored])
    if not sum(map(len, numbers)):
        raise RamifyError(f"{store.path or 'the data'} holds no {name}. Choose another level.")
    return DocumentIndex(store, name, np.concatenate(numbers), _unit_length(np.concatenate(vectors)))


def read_index(task: NestedAutoencoder, store: Store, level: int, file: Path) -> DocumentIndex:
    """As `index_documents`, from a Parquet file that `table.write_level` wrote. Raises `RamifyError` if the file was
    not made of this model, level and data set."""
    name, dim = task.backbone.config.levels[level], task.backbone.config.dims[level + 1]
    remedy = f"Write it anew with `ramify embed RUN --data DIR --level {name} --out {file}`."
    if not file.is_file():
        raise RamifyError(f"{file} is no file. {remedy}")
    try:
        with pq.ParquetFile(file) as table:
            made_of = json.loads((table.schema_arrow.metadata or {})[MADE_OF.encode()])
            written = (made_of["level"], made_of["model"], made_of.get("data"))
            columns = table.read(["tree", "id", "vector"])
        trees, ids = columns["tree"].to_pylist(), columns["id"].to_pylist()
        vectors = columns["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError):
        raise RamifyError(f"{file} is not a complete Parquet file of the vectors of documents. {remedy}") from None
    if written[0] != name:
        raise RamifyError(f"{file} has the vectors of level {written[0]}, not {name}. Name that level, or another file.")
    if written[1] != encoding_hash(task.backbone, task.tokenizer, task.input):
        raise RamifyError(f"{file} was written by another model, or by another version of Ramify. {remedy}")
    # Documents without a hash can have other texts under the same ids.
    if store.path is None or written[2] != store.hash:
        raise RamifyError(f"{file} was not written from {store.path or 'a built data set'}. {remedy}")
    kinds = store.column("kind", np.arange(store.num_nodes)).to_pylist()
    numbers = np.flatnonzero([kind == name for kind in kinds])
    rows = list(zip(trees, ids, strict=True))
    if (
        rows != list(zip(store.tree_ids(store.tree_of(numbers)), store.ids(numbers), strict=True))
        or len(vectors) != len(rows) * dim
    ):
        raise RamifyError(f"{file} does not hold exactly one row for each {name} of {store.path}. {remedy}")
    return DocumentIndex(store, name, numbers, _unit_length(vectors.reshape(-1, dim).copy()))


def _unit_length(vectors: Vectors) -> Vectors:
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return vectors
