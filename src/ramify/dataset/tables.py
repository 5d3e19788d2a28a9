"""Tables with one row per node of a store, for data frames and for files, and graphs of its trees."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

from ramify.errors import RamifyError
from ramify.readers.base import pc
from ramify.readers.rows import LOG_COLUMNS, NODE_COLUMNS
from ramify.tree import Indices, Tree

Numbers = Sequence[int] | Indices

TYPES = {
    "tree": pa.string(),
    "split": pa.string(),
    "id": pa.string(),
    # The id of the first parent; null for a root.
    "parent": pa.string(),
    # The ids of all parents; null = not annotated.
    "parents": pa.list_(pa.string()),
    "self_link": pa.bool_(),
    "depth": pa.int32(),
    "author": pa.string(),
    "time": pa.float64(),
    "kind": pa.string(),
    # JSON.
    "label": pa.string(),
    "text": pa.large_string(),
    # The metadata of the tree as JSON, on each of its nodes.
    "meta": pa.dictionary(pa.int32(), pa.string()),
}
"""Column -> its type."""

BATCH_ROWS = 1 << 15
BATCH_BYTES = 32 << 20
"""The largest number of rows, and of bytes of text, of a batch. A single text may be longer."""


class TreeColumns(ABC):
    """The part of a `Store` that tables and graphs read. It stands here because `Store` itself makes tables."""

    @cached_property
    @abstractmethod
    def structure(self) -> str: ...

    @cached_property
    @abstractmethod
    def offsets(self) -> Indices: ...

    @cached_property
    @abstractmethod
    def depth(self) -> np.ndarray: ...

    @abstractmethod
    def tree_of(self, nodes: Numbers) -> Indices: ...

    @abstractmethod
    def tree_ids(self, trees: Numbers) -> list[str]: ...

    @abstractmethod
    def split_names(self, trees: Numbers) -> pa.Array: ...

    @abstractmethod
    def meta_texts(self, trees: Numbers) -> pa.Array: ...

    @abstractmethod
    def column(self, name: str, nodes: Numbers) -> pa.Array: ...

    @abstractmethod
    def text_arrays(self, size: int) -> Iterator[pa.Array]: ...

    @abstractmethod
    def find_tree(self, tree_id: str) -> int: ...

    @abstractmethod
    def tree(self, number: int) -> Tree: ...


def column_names(stores: Sequence[TreeColumns]) -> list[str]:
    """The columns of a table of stores. Those of logs are left out if no store holds logs."""
    names = [*NODE_COLUMNS]
    if any(store.structure == "log" for store in stores):
        place = names.index("parent") + 1
        names[place:place] = LOG_COLUMNS
    return names


def schema_of(names: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, TYPES[name]) for name in names])


def rows_of(store: TreeColumns, nodes: Numbers, names: Sequence[str]) -> pa.RecordBatch:
    """The given columns of some nodes, in the order of `nodes`."""
    nodes = np.asarray(nodes, dtype=np.int64)
    trees = store.tree_of(nodes)
    return pa.record_batch([_column(store, nodes, trees, name) for name in names], schema=schema_of(names))


def _column(store: TreeColumns, nodes: Indices, trees: Indices, name: str) -> pa.Array:
    if name == "tree":
        return pa.array(store.tree_ids(trees), pa.string())
    if name == "split":
        return store.split_names(trees)
    if name == "meta":
        distinct, place = np.unique(trees, return_inverse=True)
        return store.meta_texts(distinct).dictionary_encode().take(pa.array(place))
    if name not in ("parent", "parents"):
        return store.column(name, nodes)
    parents = store.column("parents", nodes)
    counts = pc.fill_null(pc.list_value_length(parents), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(counts)])
    numbers = parents.flatten().to_numpy(zero_copy_only=False) + np.repeat(store.offsets[trees], counts)
    if name == "parent":
        has_parent = counts > 0
        first = np.where(has_parent, np.cumsum(has_parent) - 1, 0)
        return store.column("id", numbers[offsets[:-1][has_parent]]).take(pa.array(first, mask=~has_parent))
    unknown = parents.is_null()
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), store.column("id", numbers), mask=unknown)


def batches(store: TreeColumns, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The given columns of all nodes, tree after tree, in batches of bounded size."""
    for nodes in _ranges(store):
        yield rows_of(store, nodes, names)


def _ranges(store: TreeColumns) -> Iterator[Indices]:
    start = 0
    for texts in store.text_arrays(BATCH_ROWS):
        ends = np.cumsum(pc.binary_length(texts).to_numpy())
        part = ends // BATCH_BYTES
        for cut in np.split(np.arange(start, start + len(texts)), np.flatnonzero(np.diff(part)) + 1):
            if len(cut):
                yield cut
        start += len(texts)


# --- labels -------------------------------------------------------------------------------------------------------------

_KINDS = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


def label_type(stores: Sequence[TreeColumns]) -> pa.DataType | None:
    """The type of all labels: truth values, whole numbers, numbers or strings. None: they are of several types, or others."""
    kinds: set[Any] = set()
    for store in stores:
        for batch in batches(store, ["label"]):
            for label in batch["label"].unique().drop_null().to_pylist():
                value = json.loads(label)
                fits = type(value) is not int or -(2**63) <= value < 2**63
                kinds.add(_KINDS.get(type(value)) if fits else None)
    if kinds == {pa.int64(), pa.float64()}:
        return pa.float64()
    return kinds.pop() if len(kinds) == 1 else None


def with_label_values(batch: pa.RecordBatch, kind: pa.DataType | None) -> pa.RecordBatch:
    """The batch with labels of the type `kind` in place of JSON. None: unchanged."""
    if kind is None:
        return batch
    encoded = batch["label"].dictionary_encode()
    values = pa.array([json.loads(label) for label in encoded.dictionary.to_pylist()], kind)
    place = batch.schema.get_field_index("label")
    return batch.set_column(place, pa.field("label", kind), values.take(encoded.indices))


# --- data frames and graphs ---------------------------------------------------------------------------------------------


def to_arrow(store: TreeColumns) -> pa.Table:
    """A table with one row per node; see `Store.to_arrow`."""
    names, kind = column_names([store]), label_type([store])
    schema = with_label_values(rows_of(store, [], names), kind).schema
    rows = (with_label_values(batch, kind) for batch in batches(store, names))
    return pa.Table.from_batches(rows, schema).unify_dictionaries()


def to_networkx(store: TreeColumns, tree: int | str) -> Any:
    """A tree as a `networkx.DiGraph`; see `Store.to_networkx`."""
    networkx = extra("networkx", "Store.to_networkx")
    number = store.find_tree(tree) if isinstance(tree, str) else tree
    whole = store.tree(number)
    graph = networkx.DiGraph(id=whole.id, split=store.split_names([number])[0].as_py(), meta=dict(whole.meta))
    depth = store.depth[store.offsets[number] : store.offsets[number + 1]].tolist()
    for node, level in zip(whole.nodes, depth, strict=True):
        values = {"author": node.author, "time": node.time, "kind": node.kind or None, "label": node.label}
        values["self_link"] = node.self_link or None
        known = {name: value for name, value in values.items() if value is not None}
        graph.add_node(node.id, text=node.text, depth=level, **known)
        graph.add_edges_from((whole.nodes[parent].id, node.id) for parent in node.parents or ())
    return graph


def extra(name: str, what: str) -> Any:
    """Import an optional package. Raises `RamifyError` with the command that installs it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise RamifyError(f"{what} needs {name}. Install it with: pip install 'ramify[{name}]'") from None
