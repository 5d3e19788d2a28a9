"""Statistics of the depth, width and length of a store's trees, as numbers and as a figure."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramify.dataset.labels import MAX_CLASSES
from ramify.dataset.store import COUNTED, Store, Structure
from ramify.errors import RamifyError, counted
from ramify.files import replacing
from ramify.readers.base import pc
from ramify.tree import Indices

SLICE = 1 << 20
"""Number of nodes whose columns are held at a time."""

BY_NAME = ("levels", "labels")
"""Statistics that count nodes by the names of their levels and labels."""

QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99)

MEASURES = {
    "nodes_per_tree": "nodes per tree",
    "depth": "depth of a node",
    "tree_depth": "depth of a tree",
    "children": "children per node",
    "width": "most nodes on one level of a tree",
    "words": "words per node",
    "characters": "characters per node",
}
"""Key of a measure -> its name in tables and figures."""


NOUNS: dict[Structure, tuple[str, str]] = {
    "replies": ("tree", "post"),
    "log": ("log", "message"),
    "document": ("document", "node"),
    "texts": ("text", "text"),
}
"""Structure -> the names of its trees and of its nodes."""


def content(counts: Mapping[str, Any]) -> str:
    """The content of a data set in words, from the counts of its build: "38 documents, 442,519 nodes"."""
    tree, node = NOUNS[counts["structure"]]
    held = [counted(counts["trees"], tree)]
    if counts["structure"] == "replies":
        held += [counted(counts["nodes"], "node"), counted(counts["comments"], "reply")]
    elif tree != node:
        held.append(counted(counts["nodes"], node))
    if counts["placeholders"]:
        held.append(counted(counts["placeholders"], "placeholder"))
    return ", ".join(held)


def measures(store: Store) -> dict[str, Indices]:
    """Key of `MEASURES` -> one number per tree, per node, or (depth) per node below a root, placeholders apart."""
    depth = store.depth.astype(np.int64)
    sizes = np.diff(store.offsets)
    tree = np.repeat(np.arange(store.num_trees), sizes)
    is_node = ~_find_placeholders(store)
    tree_depth = np.maximum.reduceat(depth, store.offsets[:-1])
    levels, counts = np.unique(tree * (int(depth.max()) + 1) + depth, return_counts=True)
    level_tree = levels // (int(depth.max()) + 1)
    words, characters = _lengths(store)
    return {
        "nodes_per_tree": np.add.reduceat(is_node, store.offsets[:-1], dtype=np.int64),
        "depth": depth[depth > 0],
        "tree_depth": tree_depth,
        "children": np.bincount(store.edges[:, 1], minlength=store.num_nodes)[is_node],
        "width": np.maximum.reduceat(counts, np.searchsorted(level_tree, np.arange(store.num_trees))),
        "words": words[is_node],
        "characters": characters[is_node],
    }


def _find_placeholders(store: Store) -> NDArray[np.bool_]:
    """[node]: whether it is a placeholder root."""
    is_placeholder = np.zeros(store.num_nodes, dtype=bool)
    roots = np.flatnonzero(store.depth == 0)
    for start in range(0, len(roots), SLICE):
        is_placeholder[roots[start : start + SLICE]] = store.is_placeholder(roots[start : start + SLICE])
    return is_placeholder


def statistics(store: Store) -> dict[str, Any]:
    """The counts of the build, and the mean, quantiles and maximum of every measure."""
    measured = measures(store)
    children = measured["children"]
    return {
        **{name: store.info[name] for name in COUNTED},
        "levels": levels(store),
        "labels": labels(store),
        "roots": store.num_nodes - len(np.unique(store.edges[:, 0])),
        "leaves": int((children == 0).sum()),
        **{name: summary(values) for name, values in measured.items()},
    }


def levels(store: Store) -> dict[str, int]:
    """The number of nodes on each level of documents, from the top; {} for other data."""
    if store.structure != "document":
        return {}
    counts: Counter[str] = Counter()
    top: dict[str, int] = {}
    for start in range(0, store.num_nodes, SLICE):
        nodes = np.arange(start, min(start + SLICE, store.num_nodes))
        kinds = store.column("kind", nodes).dictionary_encode()
        names = kinds.dictionary.to_pylist()
        counts.update(dict(zip(names, np.bincount(kinds.indices.to_numpy(), minlength=len(names)).tolist())))
        for name, depth in zip(names, _least(kinds.indices.to_numpy(), store.depth[nodes], len(names))):
            top[name] = min(top.get(name, depth), depth)
    return {name: counts[name] for name in sorted(counts, key=lambda name: top[name])}


def _least(group: Indices, values: Indices, groups: int) -> list[int]:
    least = np.full(groups, np.iinfo(np.int32).max, dtype=np.int64)
    np.minimum.at(least, group, values)
    return least.tolist()


def labels(store: Store) -> dict[str, Any]:
    """The labels of the texts: the number of texts with each label; for numbers, their count, mean and range.

    Labels are numbers if all are, and one is a fraction or there are more than `MAX_CLASSES` different ones. Of more than
    `MAX_CLASSES` other labels, and of lists and objects, only the number of texts and of different labels is given. The titles
    of chapters are not labels of texts.
    """
    counts: Counter[str] = Counter()
    for start in range(0, store.num_nodes, SLICE):
        nodes = np.arange(start, min(start + SLICE, store.num_nodes))
        values = store.column("label", nodes)
        if store.structure == "document":
            values = values.filter(pc.not_equal(store.column("text", nodes), ""))
        for entry in pc.drop_null(values).value_counts():
            counts[entry["values"].as_py()] += entry["counts"].as_py()
    labels = [(json.loads(text), count) for text, count in counts.items()]
    values = [value for value, _ in labels]
    if not labels:
        return {}
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values) and (
        len(values) > MAX_CLASSES or any(isinstance(value, float) for value in values)
    ):
        total = sum(counts.values())
        mean = sum(value * count for value, count in labels) / total
        return {"count": total, "mean": mean, "min": min(values), "max": max(values)}
    if len(values) > MAX_CLASSES or any(isinstance(value, list | dict) for value in values):
        return {"count": sum(counts.values()), "different": len(values)}
    return {_shown(value): count for value, count in sorted(labels, key=lambda pair: -pair[1])}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def summary(values: Indices) -> dict[str, float]:
    if len(values) == 0:
        return {"count": 0}
    quantiles = {f"p{share * 100:.0f}": value for share, value in zip(QUANTILES, np.quantile(values, QUANTILES).tolist())}
    return {"count": len(values), "mean": float(values.mean()), **quantiles, "max": int(values.max())}


def plot(store: Store, path: Path) -> None:
    """Plot depth, width and length as the share of nodes that reach a value, and save the figure.

    Raises `RamifyError` if `path` does not end in .png, .svg or .pdf.
    """
    # pyplot would select a backend for the whole process.
    from matplotlib.figure import Figure

    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise RamifyError(f"{path.name!r} is not the name of a .png, .svg or .pdf file. Choose one of these formats.")
    measured = measures(store)
    panels = (
        ("depth", "Depth", "share of nodes at least so deep", "#2f6f8f"),
        ("children", "Width", "share of nodes with at least so many", "#b5651d"),
        ("words", "Length", "share of nodes with at least so many", "#4c7a34"),
    )
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    for axis, (name, title, label, color) in zip(figure.subplots(1, len(panels)), panels):
        values, share = _survival(measured[name])
        axis.step(values, share, where="post", color=color, linewidth=1.8)
        axis.fill_between(values, share, step="post", color=color, alpha=0.12)
        if name != "depth":
            axis.set_xscale("symlog", linthresh=1)
        if len(values):
            axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
        axis.set_xlim(left=0)
        axis.set_title(title, loc="left", fontweight="bold")
        axis.set_xlabel(MEASURES[name])
        axis.set_ylabel(label)
        axis.grid(color="#dddddd", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    name = store.path.name if store.path else "trees"
    placeholders = store.num_nodes - len(measured["words"])
    more = f", {counted(placeholders, 'placeholder')}" if placeholders else ""
    trees = counted(store.num_trees, NOUNS[store.structure][0])
    title = f"{name}: {trees}, {counted(store.num_nodes - placeholders, 'node')}{more}"
    figure.suptitle(title, x=0.01, ha="left", color="#555555")
    with replacing(path) as scratch:
        figure.savefig(scratch, dpi=150, format=path.suffix[1:].lower())


def _survival(values: Indices) -> tuple[Indices, np.ndarray]:
    """The distinct values, and for each the share of values that are at least as large."""
    distinct, counts = np.unique(values, return_counts=True)
    return distinct, counts[::-1].cumsum()[::-1] / max(len(values), 1)


def _lengths(store: Store) -> tuple[Indices, Indices]:
    """[node]: the number of words, and of characters."""
    words, characters = [], []
    for texts in store.text_arrays():
        words.append(pc.count_substring_regex(texts, r"\S+").to_numpy())
        characters.append(pc.utf8_length(texts).to_numpy())
    return np.concatenate(words), np.concatenate(characters)
