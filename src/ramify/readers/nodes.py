"""Ramify's own tables of nodes, as `ramify data export` writes them: CSV or Parquet, one row per node, tree after tree.

Unlike a table of posts, such a table keeps the order of the nodes, several parents, labels and the metadata of trees.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ramify.errors import RamifyError, shown
from ramify.readers.base import A_FOLDER, Policy, ReadCounts, bad_option
from ramify.readers.columns import Layout, batches, decoded, header
from ramify.readers.jsonl import trees_of
from ramify.readers.listing import list_files
from ramify.readers.rows import LOG_COLUMNS, NODE_COLUMNS
from ramify.tree import SPLIT, Tree

LAYOUT = Layout(
    {name: (name,) for name in (*NODE_COLUMNS, *LOG_COLUMNS)},
    required=NODE_COLUMNS,
    lists=("parents",),
    keeps_empty_strings=True,
)


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        return A_FOLDER
    try:
        missing = LAYOUT.lacking(header(path, head))
    except (pa.ArrowException, OSError):
        return "a damaged Parquet file"
    return f"line 1: no column {', '.join(missing)}" if missing else ""


def read(paths: Sequence[Path], counts: ReadCounts, *, policy: Policy, split: str = "") -> Iterator[Tree]:
    """Read trees. Inconsistent trees are repaired according to the policy, as in JSON lines of trees.

    `split`: the column with the splits of trees, which becomes their metadata `split`; by default, splits follow
    from the trees. Raises `RamifyError` if the rows of a tree are not consecutive.
    """
    if split not in ("", SPLIT):
        raise bad_option("split", f"{SPLIT}, the name of the column with the splits", split)
    for path in list_files(paths):
        pending: list[dict[str, Any]] = []
        first = number = 1
        for batch in batches(path, counts, LAYOUT, {}, None, '"'):
            # Counted with its tree, where placeholder roots are left out.
            counts.read -= len(batch["id"])
            columns = {name: decoded(values, path, number, counts).to_pylist() for name, values in batch.items()}
            for values in zip(*columns.values(), strict=True):
                row = dict(zip(columns, values, strict=True))
                if pending and row["tree"] != pending[0]["tree"]:
                    yield from _trees(pending, path, first, policy, counts, split)
                    pending, first = [], number
                pending.append(row)
                number += 1
        if pending:
            yield from _trees(pending, path, first, policy, counts, split)


def _trees(rows: list[dict[str, Any]], path: Path, first: int, policy: Policy, counts: ReadCounts, split: str) -> list[Tree]:
    where = f"{path}, post {first}"
    root = rows[0]
    is_log = LOG_COLUMNS[0] in root
    nodes = [_entry(row, is_log, f"{path}, post {number}") for number, row in enumerate(rows, first)]
    if nodes[0].get("parent") or nodes[0].get("parents"):
        raise RamifyError(
            f"{where}: the first row of the tree {root['tree']!r} answers {root['parent']!r}. Expected its root, because the "
            "rows of a tree are consecutive, parents first. Sort the rows, or read the file with --format table."
        )
    meta = _meta(root["meta"], where, counts)
    if split and root[split] is not None:
        meta[SPLIT] = root[split]
    record = {"id": root["tree"], "meta": meta, "nodes": nodes}
    return trees_of(record, root["tree"] or str(first), where, policy, counts) or []


def _entry(row: dict[str, Any], is_log: bool, where: str) -> dict[str, Any]:
    """A row as a node of Ramify's JSON lines."""
    entry = {name: row[name] for name in ("id", "author", "time", "kind", "text")}
    entry["label"] = None if row["label"] is None else _json(row["label"], row["label"])
    if is_log:
        entry["parents"] = _parents(row["parents"], where)
        entry["self_link"] = row.get("self_link") in (True, "true", "True")
    else:
        entry["parent"] = row["parent"] or None
    return entry


def _parents(value: Any, where: str) -> list[str] | None:
    parents = _json(value, value) if isinstance(value, str) else value
    if parents is not None and not isinstance(parents, list):
        raise RamifyError(f'{where}: parents={shown(value)} is not a JSON list of ids, such as ["m1", "m2"]. Repair the row.')
    return parents


def _meta(value: Any, where: str, counts: ReadCounts) -> dict[str, Any]:
    meta = {} if value is None else _json(value, None)
    if not isinstance(meta, dict):
        counts.repair("bad_meta", where)
        return {}
    return meta


def _json(text: str, otherwise: Any) -> Any:
    """The value of a JSON text, or another value if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return otherwise
