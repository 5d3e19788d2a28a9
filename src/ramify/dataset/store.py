"""The store: trees as memory-mapped Arrow files. Reading only; `build` writes them.

    dataset.json         version, content hash, counts, what went in and how
    nodes-00000.arrow …  whole trees, one record batch a file, in the order of the trees
    trees.arrow          a row per tree

A tree is a number below `num_trees`, a node a number below `num_nodes`; the nodes of a tree are consecutive, parents first.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ramify.errors import RamifyError
from ramify.readers.base import pc
from ramify.tree import NO_PARENT, PLACEHOLDER, Indices, Node, Tree, depths

VERSION = 1
INFO_FILE = "dataset.json"
COUNTED = ("trees", "nodes", "placeholders", "comments", "read", "skipped", "kept", "splits", "hash", "format", "inputs")
"""What a build says of a data set in INFO_FILE, beside the form of its files."""
TREES_FILE = "trees.arrow"
TOKENS = "tokens-"
"""How folders of token ids begin that are kept beside the files of a store."""
OWN_FILES = (INFO_FILE, TREES_FILE, "nodes-*.arrow", f"{TOKENS}*", f".{TOKENS}*")
"""Patterns of all names that Ramify gives to what it writes into a store's folder."""

NODES = pa.schema(
    [
        pa.field("id", pa.string()),
        # Places within the tree; null = nobody annotated it.
        pa.field("parents", pa.list_(pa.int32())),
        # Along the first parents.
        pa.field("depth", pa.int32()),
        pa.field("author", pa.dictionary(pa.int32(), pa.string())),
        pa.field("time", pa.float64()),
        pa.field("kind", pa.dictionary(pa.int32(), pa.string())),
        pa.field("self_link", pa.bool_()),
        # Any JSON value.
        pa.field("label", pa.string()),
        pa.field("text", pa.large_string()),
    ]
)
TREES = pa.schema(
    [
        pa.field("id", pa.string()),
        # A JSON object.
        pa.field("meta", pa.string()),
        pa.field("length", pa.int64()),
        # A place in SPLITS.
        pa.field("split", pa.int8()),
    ]
)

SPLITS = ("train", "dev", "test")
Split = Literal["train", "dev", "test", "all"]

Numbers = Sequence[int] | Indices


class Store:
    """Trees, read where they lie. `Store.open(folder)`, or `Store.of(trees)` for a few trees in memory."""

    def __init__(self, nodes: Sequence[pa.Table], trees: pa.Table, info: dict[str, Any], path: Path | None) -> None:
        self.path = path
        self.info = info
        self._nodes = nodes
        self._trees = trees

    @classmethod
    def open(cls, path: str | Path) -> "Store":
        path = Path(path)
        remedy = f"Build one with: ramify data build INPUT --format NAME --out {path}"
        if path.is_file():
            raise RamifyError(f"{path} is a file, no data set. Build one from it: ramify data build {path} --out {path.stem}")
        try:
            if not (path / INFO_FILE).exists() and (path / "run.json").exists():
                raise RamifyError(f"{path} is a run, no data set; its run.json says what data it was trained on.")
            info = json.loads((path / INFO_FILE).read_bytes())
            version = info["version"]
        except PermissionError as error:
            raise RamifyError(f"cannot read {path / INFO_FILE}: {error.strerror}.") from None
        except (OSError, ValueError, TypeError, KeyError):
            raise RamifyError(f"{path} is not a Ramify data set: it has no {INFO_FILE} of ours. {remedy}") from None
        if version != VERSION:
            raise RamifyError(f"{path} has version {version} of the format; this Ramify reads version {VERSION}. {remedy}")
        try:
            nodes = [map_file(path / name) for name in info["files"]]
            trees = map_file(path / TREES_FILE)
            missing = [key for key in COUNTED if key not in info]
        except (OSError, KeyError, TypeError, pa.ArrowInvalid) as error:
            raise RamifyError(f"{path} is damaged ({error}). {remedy}") from None
        if missing:
            raise RamifyError(f"{path / INFO_FILE} is damaged: it does not say {', '.join(missing)}. {remedy}")
        return cls(nodes, trees, info, path)

    @classmethod
    def of(cls, trees: Iterable[Tree]) -> "Store":
        """A store in memory: no folder, no hash, no splits ("all" holds every tree), trees in the given order."""
        trees = [tree for tree in trees if len(tree)]
        nodes = node_columns(trees)
        depth = [depths([node.parents[0] if node.parents else NO_PARENT for node in tree.nodes]) for tree in trees]
        nodes["depth"] = np.concatenate([np.zeros(0, np.int64), *depth])
        table = {
            "id": [tree.id for tree in trees],
            "meta": [to_json(dict(tree.meta) or None) for tree in trees],
            "length": [len(tree) for tree in trees],
            "split": [None] * len(trees),
        }
        return cls([_single(pa.table(nodes, schema=NODES))], pa.table(table, schema=TREES), {}, None)

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker process opens the folder again instead of receiving a copy."""
        if self.path is None:
            return Store, (self._nodes, self._trees, self.info, None)
        return Store.open, (self.path,)

    # --- numbers --------------------------------------------------------------------------------------------------------------

    @property
    def hash(self) -> str:
        """Of the content: equal for equal trees, however they were built."""
        return self.info["hash"]

    @cached_property
    def split_hash(self) -> str:
        """Of which tree is in which split, which `hash` does not hang on."""
        splits = pc.fill_null(self._trees["split"], -1).to_numpy().astype(np.int8)
        return hashlib.sha256(splits.tobytes()).hexdigest()

    @property
    def num_trees(self) -> int:
        return self._trees.num_rows

    @property
    def num_nodes(self) -> int:
        return int(self.offsets[-1])

    @cached_property
    def offsets(self) -> Indices:
        """[tree + 1]: the nodes of tree t are offsets[t] to offsets[t + 1]."""
        return np.concatenate([[0], np.cumsum(self._trees["length"].to_numpy())]).astype(np.int64)

    @cached_property
    def edges(self) -> Indices:
        """[edge, 2]: (child, parent), sorted by child; the parent always is the smaller number."""
        pairs = [np.zeros((0, 2), dtype=np.int64)]
        for start, table in zip(self._starts.tolist(), self._nodes):
            parents = only_chunk(table["parents"])
            counts = pc.fill_null(pc.list_value_length(parents), 0).to_numpy()
            child = np.repeat(np.arange(start, start + len(counts)), counts)
            local = parents.flatten().to_numpy(zero_copy_only=False)
            pairs.append(np.stack([child, local + self.offsets[self.tree_of(child)]], axis=1))
        return np.concatenate(pairs)

    @cached_property
    def parent(self) -> Indices:
        """[node]: the parent, -1 for a root; raises where a node has two (see `edges`)."""
        child, above = self.edges.T
        twice = child[1:][child[1:] == child[:-1]]
        if len(twice):
            node = int(twice[0])
            tree = self.tree_ids(self.tree_of([node]))[0]
            raise RamifyError(
                f"{self.path or 'the data'}: tree {tree!r}, node {self.ids([node])[0]!r} has several parents, as messages of "
                "chat logs may; this needs trees with one parent a node. Leave all but one of them out of the input."
            )
        parent = np.full(self.num_nodes, NO_PARENT, dtype=np.int64)
        parent[child] = above
        return parent

    @cached_property
    def annotated(self) -> np.ndarray:
        """[node]: did somebody say what this node answers?"""
        return np.concatenate([pc.is_valid(only_chunk(table["parents"])).to_numpy(False) for table in self._nodes])

    @cached_property
    def holds_reply_trees(self) -> bool:
        """Whether every tree is a post with its comments, each of which answers exactly one earlier one; else they are logs.

        It is told by the structure alone, so it holds whatever format the trees came from, and after they were exported: no
        node but the first of its tree is without a known parent, none has two, and none has a `self_link`. In logs several
        conversations begin, or nobody said of some messages what they answer.
        """
        answering = np.delete(np.arange(self.num_nodes), self.offsets[:-1])
        begins = any(pc.any(only_chunk(table["self_link"])).as_py() for table in self._nodes)
        return not begins and bool(self.annotated.all()) and np.array_equal(self.edges[:, 0], answering)

    @cached_property
    def depth(self) -> np.ndarray:
        """[node], int32: edges to the root, along first parents."""
        columns = [only_chunk(table["depth"]).to_numpy() for table in self._nodes]
        return columns[0] if len(columns) == 1 else np.concatenate(columns)

    def tree_of(self, nodes: Numbers) -> Indices:
        return np.searchsorted(self.offsets, np.asarray(nodes, dtype=np.int64), side="right") - 1

    def split(self, name: Split) -> Indices:
        """The trees of a split, ascending."""
        if name == "all":
            return np.arange(self.num_trees)
        if name not in SPLITS:
            raise RamifyError(f"there is no split {name!r}; the splits are {', '.join(SPLITS)} and all.")
        return np.flatnonzero(pc.fill_null(self._trees["split"], -1).to_numpy() == SPLITS.index(name))

    def has_comments(self, name: Split) -> bool:
        """Whether any tree of a split is more than a bare post."""
        trees = self.split(name)
        return bool((self.offsets[trees + 1] - self.offsets[trees] > 1).any())

    def held(self, name: Split) -> Indices:
        """The trees of a split of which something is to be measured; raises where none of them holds a comment."""
        if not self.has_comments(name):
            counts = ", ".join(f"{len(self.split(each)):,} in {each}" for each in SPLITS)
            raise RamifyError(
                f"{self.path} has no trees in the split {name!r} that hold a comment (trees: {counts}). Choose another split "
                "(--split all takes every tree), or build the data again with other shares (ramify data build --split …)."
            )
        return self.split(name)

    def made_up(self, nodes: Numbers) -> NDArray[np.bool_]:
        """Which nodes are roots that no input held, put there for what hangs below them."""
        nodes = np.asarray(nodes, dtype=np.int64)
        silent = pc.and_(pc.equal(self.column("kind", nodes), PLACEHOLDER), pc.equal(self.column("text", nodes), ""))
        return (self.depth[nodes] == 0) & silent.to_numpy(zero_copy_only=False)

    # --- what nodes and trees say ---------------------------------------------------------------------------------------------

    def ids(self, nodes: Numbers) -> list[str]:
        return self._values(self.column("id", nodes))

    def texts(self, nodes: Numbers) -> list[str]:
        return self._values(self.column("text", nodes))

    def tree_ids(self, trees: Numbers) -> list[str]:
        return self._values(self._trees["id"].take(pa.array(np.asarray(trees, dtype=np.int64))))

    def metas(self, trees: Numbers) -> list[dict[str, Any]]:
        texts = self._values(self._trees["meta"].take(pa.array(np.asarray(trees, dtype=np.int64))))
        return [json.loads(text) if text else {} for text in texts]

    def _values(self, held: pa.Array | pa.ChunkedArray | pa.Table) -> list[Any]:
        """As Python has them. Raises `RamifyError` where the files were changed since they were written."""
        try:
            return held.to_pylist()
        except UnicodeDecodeError as error:
            raise RamifyError(f"{self.path} is damaged ({error}). Build it again.") from None

    def column(self, name: str, nodes: Numbers) -> pa.Array:
        """A column's values at some nodes, in the order asked for; dictionaries are decoded."""
        nodes = np.asarray(nodes, dtype=np.int64)
        file = np.searchsorted(self._starts, nodes, side="right") - 1
        parts, places = [], []
        for number in np.unique(file).tolist():
            here = np.flatnonzero(file == number)
            local = pa.array(nodes[here] - self._starts[number])
            parts.append(decoded(only_chunk(self._nodes[number][name]).take(local)))
            places.append(here)
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return decoded(pa.array([], type=NODES.field(name).type))
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(places))))

    def text_arrays(self, size: int = 8192) -> Iterator[pa.Array]:
        """All texts in the order of the nodes, some at a time, where they lie."""
        for table in self._nodes:
            texts = only_chunk(table["text"])
            for start in range(0, len(texts), size):
                yield texts.slice(start, size)

    def text_batches(self, size: int = 8192) -> Iterator[list[str]]:
        """All texts in the order of the nodes, some at a time."""
        for texts in self.text_arrays(size):
            yield self._values(texts)

    def find_tree(self, tree_id: str) -> int:
        number = pc.index(self._trees["id"], tree_id).as_py()
        if number < 0:
            examples = ", ".join(map(repr, self.tree_ids(range(min(3, self.num_trees)))))
            raise RamifyError(f"there is no tree {tree_id!r} among the {self.num_trees:,} trees; ids look like {examples}.")
        return number

    def find(self, node_id: str, tree_id: str | None = None) -> int:
        """The first node with this id, in one tree or in any."""
        if tree_id is not None:
            tree = self.find_tree(tree_id)
            nodes = np.arange(self.offsets[tree], self.offsets[tree + 1])
            place = pc.index(self.column("id", nodes), node_id).as_py()
            if place >= 0:
                return int(nodes[place])
            raise RamifyError(f"tree {tree_id!r} has no node {node_id!r}; it has {len(nodes):,} nodes.")
        return int(self.find_all(node_id)[0])

    def find_all(self, node_id: str) -> Indices:
        """Every node with this id, in whatever tree; raises where there is none."""
        found = [
            start + np.flatnonzero(pc.equal(only_chunk(table["id"]), node_id))
            for start, table in zip(self._starts, self._nodes)
        ]
        nodes = np.concatenate(found)
        if not len(nodes):
            raise RamifyError(f"there is no node {node_id!r} among the {self.num_nodes:,} nodes.")
        return nodes

    def tree(self, number: int) -> Tree:
        if not 0 <= number < self.num_trees:
            raise RamifyError(f"there is no tree number {number}; there are {self.num_trees:,}, counted from 0.")
        start, stop = self.offsets[number : number + 2].tolist()
        file = int(np.searchsorted(self._starts, start, side="right")) - 1
        rows = self._values(self._nodes[file].slice(start - int(self._starts[file]), stop - start))
        nodes = tuple(
            Node(
                text=row["text"],
                parents=None if row["parents"] is None else tuple(row["parents"]),
                self_link=row["self_link"],
                id=row["id"],
                author=row["author"],
                time=row["time"],
                kind=row["kind"],
                label=None if row["label"] is None else json.loads(row["label"]),
            )
            for row in rows
        )
        return Tree(nodes, id=self.tree_ids([number])[0], meta=self.metas([number])[0])

    def trees(self, numbers: Numbers | None = None) -> Iterator[Tree]:
        for number in range(self.num_trees) if numbers is None else numbers:
            yield self.tree(int(number))

    @cached_property
    def _starts(self) -> Indices:
        """[file]: the first node of each file."""
        return np.cumsum([0, *(table.num_rows for table in self._nodes)])[:-1]


def node_columns(trees: Iterable[Tree]) -> dict[str, Any]:
    """The columns of `NODES` but for depth, all nodes one after the other."""
    nodes = [node for tree in trees for node in tree.nodes]
    return {
        "id": [node.id or str(place) for tree in trees for place, node in enumerate(tree.nodes)],
        "parents": [node.parents for node in nodes],
        "author": [node.author for node in nodes],
        "time": [node.time for node in nodes],
        "kind": [node.kind for node in nodes],
        "self_link": [node.self_link for node in nodes],
        "label": [to_json(node.label) for node in nodes],
        "text": [node.text for node in nodes],
    }


def to_json(value: Any) -> str | None:
    """Null for None, as the columns `label` and `meta` hold it."""
    return None if value is None else json.dumps(value, ensure_ascii=False)


def map_file(path: Path) -> pa.Table:
    """The table of an Arrow file, where it lies."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def _single(table: pa.Table) -> pa.Table:
    """The same table with exactly one chunk in every column."""
    return table.combine_chunks() if table.num_rows else pa.Table.from_batches([pa.RecordBatch.from_pylist([], table.schema)])


def only_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The values of a column that lies in one piece."""
    return column.chunk(0)


def decoded(values: pa.Array) -> pa.Array:
    """Plain values instead of a dictionary's."""
    return values.dictionary_decode() if isinstance(values, pa.DictionaryArray) else values
