"""The metrics of a data set: those with which it was published, or the usual ones for labels of its kind."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from ramify.dataset.labels import LabelKind
from ramify.dataset.store import Store
from ramify.readers.labelled_sets import BY_NAME, Grouping

USUAL: dict[LabelKind, tuple[str, ...]] = {
    "classes": ("accuracy", "macro_f1"),
    "several": ("micro_f1", "macro_f1"),
    "numbers": ("pearson", "spearman"),
}
"""Kind of labels -> the metrics of data sets without published ones."""


@dataclass(frozen=True)
class Published:
    """Names of metrics, of which the first chooses among models, and what they are about."""

    names: tuple[str, ...]
    positive: str = ""
    """The name of the class that F1 is about; "" without F1."""
    groups: Grouping = "none"
    """The texts that a metric takes together."""


def published_metrics(store: Store, kind: LabelKind, field: str = "") -> Published:
    """The metrics of the known data sets that a store was built from, if they agree, and else the usual ones.

    `field` is the part of the labels that is trained on. Published metrics are about whole labels.
    """
    names = store.info.get("datasets", {})
    known = {
        Published(dataset.metrics, dataset.positive, dataset.groups)
        for dataset in (BY_NAME[name] for name in names if name in BY_NAME)
        if dataset.label_kind == kind and not field
    }
    return known.pop() if len(known) == 1 and all(name in BY_NAME for name in names) else Published(USUAL[kind])


def metric_groups(store: Store, nodes: Int[NDArray, " node"], grouping: Grouping) -> Int[NDArray, " node"] | None:
    """The number of each text's group; None if no metric takes texts together."""
    if grouping == "none":
        return None
    if grouping == "parent":
        return store.parent[nodes]
    metas = store.metas(store.tree_of(nodes))
    _, group = np.unique([str(meta.get(grouping)) for meta in metas], return_inverse=True)
    return group
