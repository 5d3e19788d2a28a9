"""Search among the vectors of a data set: the nodes with the greatest cosine."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.batching.forest import Ints
from ramify.dataset.store import Store
from ramify.errors import RamifyError, counted
from ramify.inference.answers import Nearest, Neighbour
from ramify.inference.base import Pipeline, check_options, verb
from ramify.tensors import content_hash
from ramify.tokenizer import Tokenizer
from ramify.tree import Tree
from ramify.version import __version__

MADE_OF = "ramify"
"""The key of a Parquet file's metadata that says what vectors were made of: hashes of model and data, options of `embed`."""


@dataclass(frozen=True)
class SearchedNodes:
    """The nodes of a data set among which a model searches. `SearchPipeline.searched` makes them."""

    store: Store
    node: Ints
    """The store's number of each node, ascending."""
    level: str | None
    """The level of documents; None: the nodes are comments."""
    text_of: Callable[[Tree, int], str]
    """The text of a node of a tree, by its place in the tree."""

    @property
    def name(self) -> str:
        """The word for one node."""
        return self.level or "comment"

    def place(self, node: str, tree: str | None = None) -> int:
        """The place of a node, by its id and that of its tree (None: any). Raises `RamifyError` if there is none, or if several
        trees have such a node."""
        numbers = self.store.find_all(node) if tree is None else np.array([self.store.find(node, tree)])
        matches = numbers[np.isin(numbers, self.node)]
        if not len(matches):
            kinds = self.store.column("kind", numbers).to_pylist()
            others = " or a ".join(sorted({kind or "node without a kind" for kind in kinds}))
            other_level = "" if self.level is None else ", or another level"
            raise RamifyError(f"node {node!r} is no {self.name}, but a {others}. Choose a {self.name}{other_level}.")
        if len(matches) > 1:
            one, other = self.store.tree_ids(self.store.tree_of(matches[:2]))
            raise RamifyError(
                f"node {node!r} is in {counted(len(matches), 'tree')}, such as {one!r} and {other!r}. Name the tree (--tree)."
            )
        return int(np.searchsorted(self.node, matches[0]))


@dataclass(frozen=True)
class Index:
    """The vectors of some nodes, in memory. `SearchPipeline.index` makes one."""

    nodes: SearchedNodes
    vectors: Float[NDArray, "node dim"]
    """Vectors of length 1."""
    context: Literal["tree", "none"] | None
    """The context of comments, as it was chosen."""
    model: str
    """The `encoding_hash` of the model that made the vectors."""

    def __len__(self) -> int:
        return len(self.nodes.node)

    def nearest(self, vector: Float[NDArray, " dim"], k: int, without: int | None = None) -> Nearest:
        """The k nodes with the greatest cosine, the nearest first. `without` is the place of a node that is left out. Raises
        `RamifyError` for k below 1."""
        if k < 1:
            raise RamifyError(f"k={k} asks for no node. Set k to 1 or more.")
        scores = self.vectors @ (vector / max(float(np.linalg.norm(vector)), 1e-12)).astype(np.float32)
        if without is not None:
            scores[without] = -np.inf
        count = min(k, len(scores) - (without is not None))
        # Equal scores keep the order of the store.
        best = np.argsort(-scores, kind="stable")[:count]
        neighbours = []
        store, trees = self.nodes.store, dict[int, Tree]()
        for place in best.tolist():
            number = int(self.nodes.node[place])
            number_of_tree = int(store.tree_of([number])[0])
            if number_of_tree not in trees:
                trees[number_of_tree] = store.tree(number_of_tree)
            tree = trees[number_of_tree]
            in_tree = number - int(store.offsets[number_of_tree])
            node = tree.nodes[in_tree]
            text = self.nodes.text_of(tree, in_tree)
            neighbours.append(Neighbour(tree.id, node.id, float(scores[place]), text, node.author))
        return Nearest(self.nodes.level, tuple(neighbours))


class SearchPipeline(Pipeline, ABC):
    """A pipeline of a model whose vectors of nodes can be compared."""

    @abstractmethod
    def embed(
        self, data: Any, *, level: str | None = None, context: Literal["tree", "none"] | None = None
    ) -> Float[NDArray, "node dim"]: ...

    @abstractmethod
    def searched(self, data: Store | Iterable[Tree | str], level: str | None = None) -> SearchedNodes:
        """The nodes of a data set that have vectors: all comments, or all nodes of a level (None: the lowest)."""

    @abstractmethod
    def vectors_of(
        self, nodes: SearchedNodes, context: Literal["tree", "none"] | None, progress: Callable[[int], None] | None
    ) -> Float[NDArray, "node dim"]:
        """The vectors of these nodes, as `embed` gives them."""

    @abstractmethod
    def options_of_vectors(self, level: str | None, context: Literal["tree", "none"] | None) -> dict[str, str]:
        """The options of `embed` that vectors depend on, with the values that stand for the defaults."""

    @cached_property
    def encoding(self) -> str:
        """The `encoding_hash` of this model, whose weights do not change any more."""
        return encoding_hash(self.backbone, self.tokenizer, self.parts())

    def made_of(self, store: Store | None, level: str | None, context: Literal["tree", "none"] | None) -> dict[str, str | None]:
        """Everything that the vectors of a data set depend on. None: data without a hash, as is a store in memory."""
        data = None if store is None or store.path is None else store.hash
        return {"model": self.encoding, **self.options_of_vectors(level, context), "data": data}

    def index(
        self,
        data: SearchedNodes | Store | Iterable[Tree | str],
        *,
        level: str | None = None,
        context: Literal["tree", "none"] | None = None,
        vectors: str | Path | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Index:
        """The vectors of all comments of a data set, or of all nodes of a level, for `nearest`. They stay in memory.

        `level` and `context` are those of `embed`. `vectors` is a Parquet file that `ramify embed` wrote for this model and
        data set; without it, all nodes are encoded. Raises `RamifyError` if there is no such node, for nodes of another level,
        and for a file of other vectors.
        """
        check_options(self, "nearest", {"level": level, "context": context})
        if isinstance(data, SearchedNodes) and level not in (None, data.level):
            raise RamifyError(
                f"level={level!r} is another than that of the nodes, {data.level!r}. Leave level out, or choose the nodes with "
                f"searched(data, {level!r})."
            )
        nodes = data if isinstance(data, SearchedNodes) else self.searched(data, level)
        if not len(nodes.node):
            other_level = "" if nodes.level is None else ", or another level"
            raise RamifyError(f"{nodes.store.path or 'the data'} holds no {nodes.name}. Choose other data{other_level}.")
        if vectors is None:
            matrix = self.vectors_of(nodes, context, progress)
        else:
            matrix = _read_vectors(Path(vectors), nodes, self.made_of(nodes.store, nodes.level, context))
        return Index(nodes, _unit_length(matrix), context, self.encoding)

    @verb
    def nearest(
        self,
        query: str | tuple[str, str],
        index: Index,
        *,
        k: int = 10,
        level: str | None = None,
        context: Literal["tree", "none"] | None = None,
    ) -> Nearest:
        """The k nodes of an index whose vectors have the greatest cosine with that of a query.

        The query is a text, which is one comment without ancestors, or one node of `level`; or the ids of a tree and its node,
        which is left out of the answer. `level` and `context` are those of the index by default. Vectors of two levels have no
        cosine unless they are equally long, and seldom a meaningful one. Raises `RamifyError` for a text without tokens, for k
        below 1, and for an index that another model made.
        """
        if index.model != self.encoding:
            raise RamifyError(
                f"the index of {counted(len(index), index.nodes.name)} was made by another model than this "
                f"{type(self).__name__}, and vectors of two models have no meaningful cosine. Make it anew with model.index."
            )
        if not isinstance(query, str):
            place = index.nodes.place(query[1], query[0])
            return index.nearest(index.vectors[place], k, place)
        query_ids(self.tokenizer, query)
        level_of_query = index.nodes.level if level is None else level
        vector = self.embed(query, level=level_of_query, context=index.context if context is None else context)[0]
        if len(vector) != index.vectors.shape[1]:
            raise RamifyError(
                f"the query, read as a {level}, has vectors of length {len(vector)}, and every {index.nodes.name} of the index "
                f"of {index.vectors.shape[1]}. Leave level out."
            )
        return index.nearest(vector, k)


def query_ids(tokenizer: Tokenizer, query: str) -> list[int]:
    """The tokens of a query. Raises `RamifyError` if there is none."""
    ids = tokenizer.encode(query)
    if not ids or not query.strip():
        raise RamifyError(f"the query {query!r} holds no text. Give some words.")
    return ids


def encoding_hash(backbone: Any, tokenizer: Tokenizer, parts: Any) -> str:
    """A hash of everything but the data that vectors depend on. `parts`: the settings beside the model's own."""
    weights = content_hash(backbone.state_dict())
    settings = [__version__, repr(backbone.config), repr(parts), tokenizer.hash, weights]
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()


def _read_vectors(file: Path, nodes: SearchedNodes, expected: Mapping[str, str | None]) -> Float[NDArray, "node dim"]:
    """The vectors of a Parquet file that `ramify embed` wrote. Raises `RamifyError` if it was made of anything else."""
    options = {name: value for name, value in expected.items() if name not in ("model", "data")}
    chosen = " and ".join(f"{name} {value}" for name, value in options.items())
    remedy = f"Write it anew with `ramify embed MODEL --data DIR --out {file}` ({chosen})."
    if not file.is_file():
        raise RamifyError(f"{file} is no file. {remedy}")
    try:
        with pq.ParquetFile(file) as table:
            written = dict(json.loads((table.schema_arrow.metadata or {})[MADE_OF.encode()]))
            columns = table.read(["tree", "id", "vector"])
        rows = list(zip(columns["tree"].to_pylist(), columns["id"].to_pylist(), strict=True))
        dim = columns.schema.field("vector").type.list_size
        vectors = columns["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError):
        raise RamifyError(f"{file} is not a complete Parquet file of vectors that `ramify embed` wrote. {remedy}") from None
    if written.get("model") != expected["model"]:
        raise RamifyError(f"{file} was written by another model, or by another version of Ramify. {remedy}")
    for name, value in options.items():
        if written.get(name) != value:
            raise RamifyError(
                f"{file} has the vectors of {name} {written.get(name)}, not {value}. Name that {name}, or another file."
            )
    # Trees without a hash can have other texts under the same ids.
    if expected["data"] is None or written.get("data") != expected["data"]:
        raise RamifyError(f"{file} was not written from {nodes.store.path or 'a built data set'}. {remedy}")
    store = nodes.store
    searched = list(zip(store.tree_ids(store.tree_of(nodes.node)), store.ids(nodes.node), strict=True))
    if rows != searched or len(vectors) != len(rows) * dim:
        raise RamifyError(f"{file} does not hold exactly one row for each {nodes.name} of {store.path}. {remedy}")
    return vectors.reshape(-1, dim).copy()


def _unit_length(vectors: Float[NDArray, "node dim"]) -> Float[NDArray, "node dim"]:
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return vectors
