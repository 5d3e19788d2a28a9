"""The texts and trees that users pass to the methods of pipelines: strings, trees, or rows of a data frame."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.dataset.frames import as_arrow, named_columns, texts_of_rows, trees_of_rows
from ramify.errors import RamifyError, with_article
from ramify.tree import Indices, Tree


@dataclass(frozen=True)
class Texts:
    """Trees and texts, in order."""

    items: list[Tree | str]
    rows: Indices
    """The row of each node in the data frame that the trees come from; without trees of a data frame, nothing."""

    def in_order_of_rows(self, vectors: Float[NDArray, "node dim"]) -> Float[NDArray, "node dim"]:
        """The vectors of all nodes, tree after tree, in the order of the data."""
        return vectors[np.argsort(self.rows)] if len(self.rows) else vectors


def read_texts(data: Any, verb: str, **columns: str | None) -> Texts:
    """The texts and trees of what a user passes to a verb.

    `columns` says which columns of a data frame hold text, id, parent and tree: with parents, its rows are the nodes of trees,
    and else each row is a text. Raises `RamifyError` for other types, and for a data frame without `text`.
    """
    named = {name: column for name, column in columns.items() if column is not None}
    arrow = as_arrow(data)
    if isinstance(arrow, pa.Table):
        if "text" not in named:
            remedy = "Name the column of texts (text=)." if "text" in columns else "Pass its column of texts alone."
            raise RamifyError(f"{verb} got a {type(data).__name__} with the columns {named_columns(arrow)}. {remedy}")
        return _read_frame(arrow, named)
    for name, column in named.items():
        raise RamifyError(
            f"{name}={column!r} names a column of a data frame, but {verb} got {with_article(type(data).__name__)}. Leave it "
            "out, or pass a data frame."
        )
    if arrow is not None:
        items = arrow.to_pylist()
    elif isinstance(data, Tree | str):
        items = [data]
    elif isinstance(data, Iterable) and not isinstance(data, Mapping):
        items = list(data)
    else:
        raise _other_type(verb, data)
    if other := [item for item in items if not isinstance(item, Tree | str)]:
        raise _other_type(verb, other[0])
    return Texts(items, np.zeros(0, dtype=np.int64))


def _other_type(verb: str, value: Any) -> RamifyError:
    return RamifyError(f"{verb} takes trees and strings, not {type(value).__name__}. Pass Tree objects or strings.")


def _read_frame(table: pa.Table, named: Mapping[str, str]) -> Texts:
    if "parent" not in named:
        if surplus := next((name for name in ("id", "tree") if name in named), None):
            raise RamifyError(
                f"{surplus}={named[surplus]!r} is of no use without the ids of parents, which make rows the nodes of trees. "
                "Name their column (parent=), or leave it out."
            )
        return Texts([*texts_of_rows(table, named)], np.zeros(0, dtype=np.int64))
    if "id" not in named:
        raise RamifyError(f"parent={named['parent']!r} names ids, and the column of ids is not chosen. Name it (id=).")
    trees, rows = trees_of_rows(table, named)
    return Texts([*trees], rows)
