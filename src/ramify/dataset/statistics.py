"""Statistics of the depth, width and length of a store's trees, as numbers and as a figure."""

from pathlib import Path
from typing import Any

import numpy as np

from ramify.dataset.store import COUNTED, Store
from ramify.errors import RamifyError
from ramify.files import replacing
from ramify.readers.base import pc
from ramify.tree import Indices

QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99)

MEASURES = {
    "nodes_per_tree": "nodes per tree",
    "depth": "depth of a comment",
    "tree_depth": "depth of a tree",
    "children": "children per node",
    "width": "most nodes on one level of a tree",
    "words": "words per node",
    "characters": "characters per node",
}
"""Key of a measure -> its name in tables and figures."""


def measures(store: Store) -> dict[str, Indices]:
    """Key of `MEASURES` -> one number per tree, node or comment."""
    depth = store.depth.astype(np.int64)
    sizes = np.diff(store.offsets)
    tree = np.repeat(np.arange(store.num_trees), sizes)
    tree_depth = np.maximum.reduceat(depth, store.offsets[:-1])
    levels, counts = np.unique(tree * (int(depth.max()) + 1) + depth, return_counts=True)
    level_tree = levels // (int(depth.max()) + 1)
    words, characters = _lengths(store)
    return {
        "nodes_per_tree": sizes,
        "depth": depth[depth > 0],
        "tree_depth": tree_depth,
        "children": np.bincount(store.edges[:, 1], minlength=store.num_nodes),
        "width": np.maximum.reduceat(counts, np.searchsorted(level_tree, np.arange(store.num_trees))),
        "words": words,
        "characters": characters,
    }


def statistics(store: Store) -> dict[str, Any]:
    """The counts of the build, and the mean, quantiles and maximum of every measure."""
    measured = measures(store)
    children = measured["children"]
    return {
        **{name: store.info[name] for name in COUNTED},
        "roots": store.num_nodes - len(np.unique(store.edges[:, 0])),
        "leaves": int((children == 0).sum()),
        **{name: summary(values) for name, values in measured.items()},
    }


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
        ("depth", "Depth", "share of comments at least so deep", "#2f6f8f"),
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
    figure.suptitle(f"{name}: {store.num_trees:,} trees, {store.num_nodes:,} nodes", x=0.01, ha="left", color="#555555")
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
