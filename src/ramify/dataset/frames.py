"""Data frames of any library as texts and trees, through Arrow: pandas, polars, pyarrow and others that export its C stream."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ramify.errors import RamifyError
from ramify.readers.base import pc
from ramify.readers.columns import ROOT_MARKS, ROOT_NUMBERS, UNNAMED, Spelling, strings
from ramify.tree import NO_PARENT, Indices, Node, Tree, depths, roots_of

Columns = Mapping[str, str]
"""text, id, parent or tree -> the name of a frame's column."""


class ArrowStream(ABC):
    """A data frame, or one of its columns: any class with the method of Arrow's PyCapsule interface."""

    @abstractmethod
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        return any("__arrow_c_stream__" in vars(base) for base in other.__mro__)


def as_arrow(data: Any) -> pa.Table | pa.ChunkedArray | None:
    """A data frame as a table, and one of its columns as an array. None: the data are neither.

    Raises `RamifyError` if Arrow has no type for the values of a column.
    """
    if not isinstance(data, ArrowStream):
        return None
    try:
        values = pa.chunked_array(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise RamifyError(
            f"the {type(data).__name__} has no form in Arrow ({error}). Pass only the columns that are needed, or a list."
        ) from None
    if not pa.types.is_struct(values.type):
        return values
    batches = [pa.RecordBatch.from_struct_array(chunk) for chunk in values.chunks]
    return pa.Table.from_batches(batches, pa.schema(list(values.type)))


def named_columns(table: pa.Table) -> str:
    """The names of a table's columns for messages, without an index of pandas."""
    return ", ".join(name for name in table.column_names if not UNNAMED.fullmatch(name))


def texts_of_rows(table: pa.Table, columns: Columns) -> list[str]:
    """The text of each row; a missing text is empty. Raises `RamifyError` if the column is absent or holds no texts."""
    for ours, theirs in columns.items():
        if table.column_names.count(theirs) != 1:
            raise RamifyError(f"{ours}={theirs!r} is not the name of one column. The columns are {named_columns(table)}.")
    texts = _values(table, columns["text"])
    if not (pa.types.is_null(texts.type) or _is_text(texts.type)):
        raise RamifyError(
            f"text={columns['text']!r} is a column of {texts.type}, not of texts. The columns are {named_columns(table)}."
        )
    return pc.fill_null(texts.cast(pa.large_string()), "").to_pylist()


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def trees_of_rows(table: pa.Table, columns: Columns) -> tuple[list[Tree], Indices]:
    """Trees whose nodes are the rows, and the row of each node, tree after tree. Rows may stand in any order.

    A row whose parent is missing is a root. Ids are unique in the frame, or in each tree if there is a column `tree`. They are
    spelled as in tables that are read from files. Raises `RamifyError` for an unknown parent, an id that occurs twice, or a
    cycle.
    """
    texts = texts_of_rows(table, columns)
    named = {name: strings(_values(table, columns[name])) for name in ("id", "parent", "tree") if name in columns}
    ids, parents, *trees = Spelling().alike(named).values()
    names = trees[0].to_pylist() if trees else [None] * len(texts)
    keys = list(zip(names, ids.to_pylist(), strict=True))
    if "" in ids.to_pylist() or ids.null_count:
        raise RamifyError(f"id={columns['id']!r} has rows without an id. Fill them in.")
    row_of = {key: row for row, key in enumerate(keys)}
    if len(row_of) < len(keys):
        twice = next(key for row, key in enumerate(keys) if row_of[key] != row)
        remedy = (
            "Give each node an id of its own."
            if "tree" in columns
            else "If ids are unique in each tree, name its column (tree=)."
        )
        raise RamifyError(f"id={columns['id']!r} holds {twice[1]!r} twice. {remedy}")
    parent = np.full(len(keys), NO_PARENT, dtype=np.int64)
    for row, (name, named) in enumerate(zip(names, parents.to_pylist(), strict=True)):
        if named is None or named in ROOT_MARKS or (named in ROOT_NUMBERS and (name, named) not in row_of):
            continue
        if (name, named) not in row_of:
            raise RamifyError(
                f"parent={columns['parent']!r} names {named!r} in row {row} (counted from 0), and no row has this id. Add it, "
                "or leave the parent empty."
            )
        parent[row] = row_of[name, named]
    root, depth = roots_of(parent), depths(parent)
    rows = np.lexsort((depth, root))
    starts = np.flatnonzero(np.diff(root[rows], prepend=NO_PARENT))
    place = np.empty_like(rows)
    place[rows] = np.arange(len(rows)) - np.repeat(starts, np.diff(starts, append=len(rows)))

    def node(row: int) -> Node:
        above = parent[row]
        return Node(texts[row], () if above == NO_PARENT else (int(place[above]),), id=keys[row][1])

    return [Tree(tuple(map(node, members.tolist()))) for members in np.split(rows, starts[1:]) if len(members)], rows


def _values(table: pa.Table, name: str) -> pa.Array:
    """A column as one array, with its categories spelled out."""
    values = table[name]
    return (values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values).combine_chunks()
