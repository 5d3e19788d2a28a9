"""The store: trees in memory-mapped Arrow files. This module reads them; `build` writes them.

    dataset.json         version, content hash, counts, inputs and options
    nodes-00000.arrow …  whole trees, one record batch per file, in the order of the trees
    trees.arrow          one row per tree

A tree is a number below `num_trees`, and a node a number below `num_nodes`. The nodes of a tree are consecutive, parents first.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ramify.dataset.tables import Numbers, TreeColumns, extra, to_arrow, to_networkx
from ramify.errors import RamifyError, counted
from ramify.files import STANDARD
from ramify.readers.base import pc
from ramify.tree import DOCUMENT, NO_PARENT, PLACEHOLDER, Indices, Node, Tree, depths

if TYPE_CHECKING:
    import networkx
    import pandas
    import polars

VERSION = 2
INFO_FILE = "dataset.json"
COUNTED = (
    *("structure", "trees", "nodes", "placeholders", "comments", "read", "skipped", "kept", "unread_columns"),
    *("splits", "hash", "format", "inputs"),
)
"""Keys of INFO_FILE that describe the content of a data set rather than the format of its files."""
TREES_FILE = "trees.arrow"
TOKENS = "tokens-"
"""The prefix of folders with token ids, which are kept next to the files of a store."""
VECTORS = "vectors-"
"""The prefix of folders with vectors of a frozen level, which are kept there, too."""
OWN_FILES = (INFO_FILE, TREES_FILE, "nodes-*.arrow", *(f"{dot}{name}*" for name in (TOKENS, VECTORS) for dot in ("", ".")))
"""Patterns of all file names that Ramify writes into the folder of a store."""

NODES = pa.schema(
    [
        pa.field("id", pa.string()),
        # Positions within the tree; null = not annotated.
        pa.field("parents", pa.list_(pa.int32())),
        # Along first parents.
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
        # An index into SPLITS.
        pa.field("split", pa.int8()),
    ]
)

SPLITS = ("train", "dev", "test")
Split = Literal["train", "dev", "test", "all"]

Structure = Literal["replies", "log", "document", "texts"]


class Store(TreeColumns):
    """Memory-mapped trees. Use `Store.open(folder)`, or `Store.from_trees(trees)` for a few trees in memory."""

    def __init__(self, nodes: Sequence[pa.Table], trees: pa.Table, info: dict[str, Any], path: Path | None) -> None:
        self.path = path
        self.info = info
        self._nodes = nodes
        self._trees = trees

    @classmethod
    def open(cls, path: str | Path) -> "Store":
        """Open the store in a folder. Raises `RamifyError` if there is none, or if it is damaged."""
        path = Path(path)
        if path == STANDARD:
            raise RamifyError("- is standard input, but a data set is a folder. Name a folder that `ramify data build` wrote.")
        remedy = f"Build one with: ramify data build INPUT --format NAME --out {path}"
        if path.is_file():
            raise RamifyError(
                f"{path} is a file, not a data set. Build one from it: ramify data build {path} --out {path.stem}"
            )
        try:
            if not (path / INFO_FILE).exists() and (path / "run.json").exists():
                raise RamifyError(f"{path} is a run, not a data set. Its run.json names the data that it was trained on.")
            info = json.loads((path / INFO_FILE).read_bytes())
            version = info["version"]
        except PermissionError as error:
            raise RamifyError(f"cannot read {path / INFO_FILE}: {error.strerror}.") from None
        except (OSError, ValueError, TypeError, KeyError):
            raise RamifyError(f"{path} is not a Ramify data set: it has no valid {INFO_FILE}. {remedy}") from None
        if version != VERSION:
            raise RamifyError(f"{path} has version {version} of the format; this Ramify reads version {VERSION}. {remedy}")
        try:
            nodes = [map_file(path / name) for name in info["files"]]
            trees = map_file(path / TREES_FILE)
            missing = [key for key in COUNTED if key not in info]
        except (OSError, KeyError, TypeError, pa.ArrowInvalid) as error:
            raise RamifyError(f"{path} is damaged ({error}). {remedy}") from None
        if missing:
            raise RamifyError(f"{path / INFO_FILE} is damaged: it lacks {', '.join(missing)}. {remedy}")
        return cls(nodes, trees, info, path)

    @classmethod
    def is_in(cls, path: str | Path) -> bool:
        """Whether a folder holds a data set, in any condition."""
        return (Path(path) / INFO_FILE).is_file()

    @classmethod
    def from_trees(cls, trees: Iterable[Tree]) -> "Store":
        """Make a store in memory, in the given order. It has no folder, hash or splits; "all" contains every tree."""
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
        """Let a worker process open the folder instead of receiving a copy."""
        if self.path is None:
            return Store, (self._nodes, self._trees, self.info, None)
        return Store.open, (self.path,)

    # --- structure ------------------------------------------------------------------------------------------------------------

    @property
    def hash(self) -> str:
        """A hash of the content. Equal trees have equal hashes, however they were built."""
        return self.info["hash"]

    @cached_property
    def split_hash(self) -> str:
        """A hash of the assignment of trees to splits, which `hash` does not cover."""
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
        """[tree + 1]: the nodes of tree t are offsets[t] to offsets[t + 1] - 1."""
        return np.concatenate([[0], np.cumsum(self._trees["length"].to_numpy())]).astype(np.int64)

    @cached_property
    def edges(self) -> Indices:
        """[edge, 2]: (child, parent), sorted by child; the parent always has the smaller number."""
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
        """[node]: the parent, or -1 for a root. Raises `RamifyError` if a node has several (see `edges`)."""
        child, edge_parent = self.edges.T
        repeated = child[1:][child[1:] == child[:-1]]
        if len(repeated):
            node = int(repeated[0])
            tree = self.tree_ids(self.tree_of([node]))[0]
            raise RamifyError(
                f"{self.path or 'the data'}: tree {tree!r}, node {self.ids([node])[0]!r} has several parents, as messages of "
                "chat logs may. This operation needs one parent per node. Remove the other parents from the input."
            )
        parent = np.full(self.num_nodes, NO_PARENT, dtype=np.int64)
        parent[child] = edge_parent
        return parent

    @cached_property
    def annotated(self) -> np.ndarray:
        """[node]: whether the parents of the node are annotated."""
        return np.concatenate([pc.is_valid(only_chunk(table["parents"])).to_numpy(False) for table in self._nodes])

    @cached_property
    def structure(self) -> Structure:
        """The kind of the trees: `replies` (posts with comments), `log` (chat logs), `document` or `texts` (single nodes).

        The trees alone decide, so the format of the input does not matter and an export keeps the answer. The root of a
        document has the kind `document`. In a log, a node other than the first lacks a known parent, or a node has two parents
        or a `self_link`, because a log has several conversation starts, or messages without annotation. Raises `RamifyError`
        if only some trees are documents.
        """
        if "structure" in self.info:
            return self.info["structure"]
        roots = self.offsets[:-1]
        is_document = pc.equal(self.column("kind", roots), DOCUMENT)
        if pc.any(is_document).as_py():
            if not pc.all(is_document).as_py():
                other = self.tree_ids([pc.index(is_document, False).as_py()])[0]
                raise RamifyError(
                    f"{self.path or 'the data'} mixes documents with other trees, such as tree {other!r}. Build them apart."
                )
            return "document"
        children = np.delete(np.arange(self.num_nodes), roots)
        has_self_links = any(pc.any(only_chunk(table["self_link"])).as_py() for table in self._nodes)
        if has_self_links or not self.annotated.all() or not np.array_equal(self.edges[:, 0], children):
            return "log"
        return "replies" if len(children) else "texts"

    @cached_property
    def depth(self) -> np.ndarray:
        """[node], int32: the number of edges to the root along first parents."""
        columns = [only_chunk(table["depth"]).to_numpy() for table in self._nodes]
        return columns[0] if len(columns) == 1 else np.concatenate(columns)

    def tree_of(self, nodes: Numbers) -> Indices:
        """The tree of each node."""
        return np.searchsorted(self.offsets, np.asarray(nodes, dtype=np.int64), side="right") - 1

    def split(self, name: Split) -> Indices:
        """The trees of a split, in ascending order."""
        if name == "all":
            return np.arange(self.num_trees)
        if name not in SPLITS:
            raise RamifyError(f"there is no split {name!r}. The splits are {', '.join(SPLITS)} and all.")
        return np.flatnonzero(pc.fill_null(self._trees["split"], -1).to_numpy() == SPLITS.index(name))

    @property
    def predicts_roots(self) -> bool:
        """Whether a model predicts the words of roots, too: in texts and documents, but not the post of a discussion."""
        return self.structure in ("texts", "document")

    def has_targets(self, name: Split) -> bool:
        """Whether any tree of a split holds a text to predict: a comment, or any node of texts and documents."""
        trees = self.split(name)
        return bool((self.offsets[trees + 1] - self.offsets[trees] > 1).any()) or (self.predicts_roots and len(trees) > 0)

    def evaluation_trees(self, name: Split) -> Indices:
        """The trees of a split that is evaluated. Raises `RamifyError` if it holds nothing to predict."""
        if not self.has_targets(name):
            raise self.no_trees(name, "" if self.predicts_roots else " that hold a comment")
        return self.split(name)

    def no_trees(self, name: Split, lacking: str = "") -> RamifyError:
        """The error for a split without trees. `lacking` qualifies the trees."""
        counts = ", ".join(f"{len(self.split(split)):,} in {split}" for split in SPLITS)
        return RamifyError(
            f"{self.path or 'the data'} has no trees in the split {name!r}{lacking} (trees: {counts}). Choose another split "
            "(--split all takes every tree), or build the data again with other shares (ramify data build --split …)."
        )

    def is_placeholder(self, nodes: Numbers) -> NDArray[np.bool_]:
        """[node]: whether a node is a root that is missing from the input and was added for its descendants."""
        nodes = np.asarray(nodes, dtype=np.int64)
        is_placeholder = pc.and_(pc.equal(self.column("kind", nodes), PLACEHOLDER), pc.equal(self.column("text", nodes), ""))
        return (self.depth[nodes] == 0) & is_placeholder.to_numpy(zero_copy_only=False)

    # --- content --------------------------------------------------------------------------------------------------------------

    def ids(self, nodes: Numbers) -> list[str]:
        return self._values(self.column("id", nodes))

    def texts(self, nodes: Numbers) -> list[str]:
        return self._values(self.column("text", nodes))

    def tree_ids(self, trees: Numbers) -> list[str]:
        return self._values(self._trees["id"].take(pa.array(np.asarray(trees, dtype=np.int64))))

    def meta_texts(self, trees: Numbers) -> pa.Array:
        """The metadata of trees as JSON; null if there is none."""
        return self._of_trees("meta", trees)

    def split_names(self, trees: Numbers) -> pa.Array:
        """The splits of trees; null in a store without splits."""
        return pa.array(SPLITS).take(self._of_trees("split", trees))

    def _of_trees(self, column: str, trees: Numbers) -> pa.Array:
        values = self._trees[column].take(pa.array(np.asarray(trees, dtype=np.int64)))
        return values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays([*values.chunks, pa.array([], values.type)])

    def metas(self, trees: Numbers) -> list[dict[str, Any]]:
        texts = self._values(self._trees["meta"].take(pa.array(np.asarray(trees, dtype=np.int64))))
        return [json.loads(text) if text else {} for text in texts]

    def _values(self, values: pa.Array | pa.ChunkedArray | pa.Table) -> list[Any]:
        """Convert to Python values. Raises `RamifyError` if the files have changed since they were written."""
        try:
            return values.to_pylist()
        except UnicodeDecodeError as error:
            raise RamifyError(f"{self.path} is damaged ({error}). Build it again.") from None

    def column(self, name: str, nodes: Numbers) -> pa.Array:
        """The values of a column at some nodes, in the order of `nodes`; dictionaries are decoded."""
        nodes = np.asarray(nodes, dtype=np.int64)
        file = np.searchsorted(self._starts, nodes, side="right") - 1
        parts, positions = [], []
        for number in np.unique(file).tolist():
            in_file = np.flatnonzero(file == number)
            rows = pa.array(nodes[in_file] - self._starts[number])
            parts.append(decoded(only_chunk(self._nodes[number][name]).take(rows)))
            positions.append(in_file)
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return decoded(pa.array([], type=NODES.field(name).type))
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(positions))))

    def text_arrays(self, size: int = 8192) -> Iterator[pa.Array]:
        """All texts in the order of the nodes, in batches, without copying them."""
        for table in self._nodes:
            texts = only_chunk(table["text"])
            for start in range(0, len(texts), size):
                yield texts.slice(start, size)

    def text_batches(self, size: int = 8192) -> Iterator[list[str]]:
        """All texts in the order of the nodes, in batches."""
        for texts in self.text_arrays(size):
            yield self._values(texts)

    def find_tree(self, tree_id: str) -> int:
        """The first tree with this id. Raises `RamifyError` if there is none."""
        number = pc.index(self._trees["id"], tree_id).as_py()
        if number < 0:
            examples = ", ".join(map(repr, self.tree_ids(range(min(3, self.num_trees)))))
            raise RamifyError(
                f"there is no tree {tree_id!r} among {counted(self.num_trees, 'tree')}. Ids look like {examples}."
            )
        return number

    def find(self, node_id: str, tree_id: str | None = None) -> int:
        """The first node with this id, in one tree or in any. Raises `RamifyError` if there is none."""
        if tree_id is not None:
            tree = self.find_tree(tree_id)
            nodes = np.arange(self.offsets[tree], self.offsets[tree + 1])
            position = pc.index(self.column("id", nodes), node_id).as_py()
            if position >= 0:
                return int(nodes[position])
            raise RamifyError(f"tree {tree_id!r} has no node {node_id!r}; it has {counted(len(nodes), 'node')}.")
        return int(self.find_all(node_id)[0])

    def find_all(self, node_id: str) -> Indices:
        """All nodes with this id, in any tree. Raises `RamifyError` if there is none."""
        matches = [
            start + np.flatnonzero(pc.equal(only_chunk(table["id"]), node_id))
            for start, table in zip(self._starts, self._nodes)
        ]
        nodes = np.concatenate(matches)
        if not len(nodes):
            raise RamifyError(f"there is no node {node_id!r} among {counted(self.num_nodes, 'node')}.")
        return nodes

    def tree(self, number: int) -> Tree:
        if not 0 <= number < self.num_trees:
            raise RamifyError(f"there is no tree number {number}. There are {counted(self.num_trees, 'tree')}, counted from 0.")
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

    # --- other libraries ------------------------------------------------------------------------------------------------------

    def to_arrow(self) -> pa.Table:
        """A table with one row per node, tree after tree, parents first.

        Its columns are tree, split, id, parent (the id of the parent), depth, author, time (seconds since 1970), kind, label,
        text, and meta (the metadata of the tree as JSON). A store of logs also has parents (the ids of all parents; null: not
        annotated) and self_link. Labels are truth values, numbers or strings if all of them are, and JSON otherwise.
        """
        return to_arrow(self)

    def to_pandas(self) -> "pandas.DataFrame":
        """The table of `to_arrow` as a data frame. Raises `RamifyError` if pandas is not installed."""
        extra("pandas", "Store.to_pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> "polars.DataFrame":
        """The table of `to_arrow` as a data frame. Raises `RamifyError` if polars is not installed."""
        return extra("polars", "Store.to_polars").from_arrow(self.to_arrow())

    def to_networkx(self, tree: int | str) -> "networkx.DiGraph":
        """A tree, by its number or its id, as a graph with edges from parents to children.

        Its nodes are named by their ids. The metadata of the tree, its id and its split are attributes of the graph. Raises
        `RamifyError` if networkx is not installed.
        """
        return to_networkx(self, tree)

    @cached_property
    def _starts(self) -> Indices:
        """[file]: the first node of each file."""
        return np.cumsum([0, *(table.num_rows for table in self._nodes)])[:-1]


def node_columns(trees: Iterable[Tree]) -> dict[str, Any]:
    """The columns of `NODES` except depth, for the nodes of all trees in order."""
    nodes = [node for tree in trees for node in tree.nodes]
    return {
        "id": [node.id or str(position) for tree in trees for position, node in enumerate(tree.nodes)],
        "parents": [node.parents for node in nodes],
        "author": [node.author for node in nodes],
        "time": [node.time for node in nodes],
        "kind": [node.kind for node in nodes],
        "self_link": [node.self_link for node in nodes],
        "label": [to_json(node.label) for node in nodes],
        "text": [node.text for node in nodes],
    }


def to_json(value: Any) -> str | None:
    """Encode a value of the columns `label` and `meta`; None stays None."""
    return None if value is None else json.dumps(value, ensure_ascii=False)


def map_file(path: Path) -> pa.Table:
    """The memory-mapped table of an Arrow file."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def _single(table: pa.Table) -> pa.Table:
    """The table with exactly one chunk in every column."""
    return table.combine_chunks() if table.num_rows else pa.Table.from_batches([pa.RecordBatch.from_pylist([], table.schema)])


def only_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The values of a column with a single chunk."""
    return column.chunk(0)


def decoded(values: pa.Array) -> pa.Array:
    """Decode a dictionary array; other arrays stay as they are."""
    return values.dictionary_decode() if isinstance(values, pa.DictionaryArray) else values
