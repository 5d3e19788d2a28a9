"""The labels of the texts of a data set: their values, their kind, and annotated spans.

A FIELD leads into labels that are objects or lists: `ad_hominem`, or `0.type` for the first entry of a list. In a list of
annotated components, a name selects all components of that kind (`claim.type`: the types of all claims), or collects a value of
all components.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Int
from numpy.typing import NDArray

from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted
from ramify.readers.base import pc
from ramify.tree import Indices

LabelKind = Literal["classes", "several", "numbers"]
"""One class per text, any number of classes per text, or one number per text."""

MAX_CLASSES = 100
"""Whole numbers are classes if at most this many different ones occur, and else numbers."""

KIND = "kind"
"""The field of an annotated component that names its kind, such as claim or premise."""

SHOWN = 10
"""The largest number of fields that a message lists."""


@dataclass(frozen=True, eq=False)
class NodeLabels:
    """The labelled nodes of a split, in ascending order, with their labels."""

    nodes: Int[NDArray, " node"]
    values: list[Any]
    """Strings, truth values, numbers, or lists of different strings."""
    unlabelled: int
    """Nodes without a label that are of the same kind as a labelled one: roots or replies, premises or hypotheses."""


class Span(NamedTuple):
    """An annotated part of a text, in characters; `end` is exclusive."""

    start: int
    end: int
    tag: str


@dataclass(frozen=True, eq=False)
class NodeSpans:
    """The annotated nodes of a split, in ascending order, with their spans. A text without a span is annotated, too."""

    nodes: Int[NDArray, " node"]
    spans: list[list[Span]]
    unlabelled: int


def node_labels(store: Store, split: Split, field: str = "") -> NodeLabels:
    """The labels of the nodes in the trees of a split. `field` leads into labels that are objects or lists.

    A list of whole numbers is a list of their names. Raises `RamifyError` if no node has a label, if no label has the field,
    and if a label is an object, or a list of objects, where a value is needed.
    """
    nodes, labels, others = labelled_nodes(store, split)
    path = _path(field)
    decoded = {text: _value(json.loads(text), path) for text in dict.fromkeys(labels)}
    found = [(node, decoded[text]) for node, text in zip(nodes.tolist(), labels) if decoded[text] is not None]
    if not found or (field and all(value == [] for _, value in found)):
        raise _unknown_field(store, split, field, labels)
    for node, value in found:
        if not _is_label(value):
            raise _not_a_label(store, node, field, value)
    kept = np.array([node for node, _ in found], np.int64)
    values = [list(dict.fromkeys(map(label_name, value))) if isinstance(value, list) else value for _, value in found]
    return NodeLabels(kept, values, of_same_kind(store, kept, np.concatenate([others, np.setdiff1d(nodes, kept)])))


def node_spans(store: Store, split: Split, field: str = "") -> NodeSpans:
    """The spans that are annotated in the texts of a split: labels that are lists of objects with `start` and `end`.

    The tag of a span is its kind or, with a field, another value: `type` of all spans, or `claim.type` of those of one kind.
    Spans without that value are left out. Raises `RamifyError` if no node has a label, if no label has the field, and for other
    labels.
    """
    nodes, labels, others = labelled_nodes(store, split)
    path = _path(field) or [KIND]
    spans: list[list[Span]] = []
    for node, text in zip(nodes.tolist(), labels):
        components = json.loads(text)
        if not isinstance(components, list) or not all(map(_is_component, components)):
            raise RamifyError(
                f"{at_node(store, node)}: the label {text:.80} is not a list of spans, which are objects with the whole "
                "numbers `start` and `end`. Spans are needed for tags; train on other labels with `ramify train classify`."
            )
        *kinds, name = path if len(path) > 1 or not _has_kind(components, path[0]) else [path[0], KIND]
        chosen = [component for component in components if all(component.get(KIND) == kind for kind in kinds)]
        spans.append([Span(each["start"], each["end"], label_name(each[name])) for each in chosen if name in each])
    if not any(spans) and (field or any(text != "[]" for text in labels)):
        raise _unknown_field(store, split, field, labels)
    return NodeSpans(nodes, spans, of_same_kind(store, nodes, others))


def label_kind(values: Sequence[Any]) -> LabelKind:
    """The kind of labels, by their values in the training data.

    Lists are several classes. Numbers are classes if they are whole and at most `MAX_CLASSES` different ones occur. Raises
    `RamifyError` if the values are of two kinds, such as numbers and texts.
    """
    examples: dict[str, Any] = {}
    for value in values:
        examples.setdefault(_type(value), value)
    if len(examples) > 1:
        (one, first), (other, second) = list(examples.items())[:2]
        raise RamifyError(
            f"the labels are of two kinds: {first!r:.80} is {one}, and {second!r:.80} is {other}. Correct the labels, or read "
            "all of them as text: ramify data build … --option label_type=category."
        )
    if not examples:
        raise RamifyError("there are no labels to train on. Name a data set with labelled texts in its split train.")
    if "a list" in examples:
        return "several"
    if "a number" in examples and (any(isinstance(value, float) for value in values) or len(set(values)) > MAX_CLASSES):
        return "numbers"
    return "classes"


def check_kind(values: Sequence[Any], kind: LabelKind) -> None:
    """Raise `RamifyError` if the values cannot be labels of a kind that the user chose."""
    seen = label_kind(values)
    fits = {"classes": seen != "several", "several": seen == "several", "numbers": _type(values[0]) == "a number"}
    if not fits[kind]:
        raise RamifyError(
            f"label_kind={kind} does not fit the labels, such as {values[0]!r:.80}, which are {_described(values[0])}. Leave "
            "the option out, or choose another field of the labels (--label FIELD)."
        )


def class_names(values: Sequence[Any], kind: LabelKind) -> tuple[str, ...]:
    """The names of the classes that occur, in order: false before true, numbers by size, texts by their characters.

    Numbers have none.
    """
    if kind == "numbers":
        return ()
    different = set(chain.from_iterable(values)) if kind == "several" else set(values)
    return tuple(map(label_name, sorted(different)))


def label_name(value: str | bool | int | float) -> str:
    """A class as people read it: true and false, and other values as they are."""
    return value if isinstance(value, str) else json.dumps(value)


def label_names(value: Any) -> Any:
    """The class or the classes of a text as people read them; other values, such as None, as they are."""
    if isinstance(value, list):
        return [label_names(entry) for entry in value]
    return label_name(value) if isinstance(value, str | bool | int | float) else value


# --- reading ----------------------------------------------------------------------------------------------------------


def labelled_nodes(store: Store, split: Split) -> tuple[Indices, list[str], Indices]:
    """The nodes with a label in the trees of a split, their labels as JSON, and the other nodes.

    Titles of chapters are not labels of texts. Raises `RamifyError` if the split has no trees, or if no node has a label.
    """
    nodes, values, has_label = _labels_of(store, split)
    if not len(nodes):
        raise store.no_trees(split)
    if not has_label.any():
        where = f"{store.path or 'the data'}, split {split}: {counted(len(nodes), 'text')}"
        raise RamifyError(
            f"{where}, and none has a label. Choose another split, or name the column of the labels when the data are built: "
            "ramify data build … --format labelled --label NAME."
        )
    return nodes[has_label], pc.drop_null(values.filter(has_label)).to_pylist(), nodes[~has_label]


def labels_at(store: Store, nodes: Indices, field: str = "") -> list[Any]:
    """The label of each of some nodes, or its `field`; None for a node without one. Titles of chapters are no labels."""
    path = _path(field)
    texts = store.texts(nodes) if store.structure == "document" else ["text"] * len(nodes)
    labels = store.column("label", nodes).to_pylist()
    return [_value(json.loads(label), path) if label is not None and text else None for label, text in zip(labels, texts)]


def nodes_of(store: Store, split: Split) -> Indices:
    """The nodes in the trees of a split."""
    return np.flatnonzero(np.isin(store.tree_of(np.arange(store.num_nodes)), store.split(split)))


def has_labels(store: Store, split: Split) -> bool:
    """Whether any text of a split has a label. Those of test sets are often secret."""
    return bool(_labels_of(store, split)[2].any())


def _labels_of(store: Store, split: Split) -> tuple[Indices, pa.Array, NDArray[np.bool_]]:
    """The nodes in the trees of a split, their labels as JSON, and whether each has one."""
    nodes = nodes_of(store, split)
    values = store.column("label", nodes)
    has_label = pc.is_valid(values).to_numpy(zero_copy_only=False)
    if store.structure == "document":
        has_label &= pc.not_equal(store.column("text", nodes), "").to_numpy(zero_copy_only=False)
    return nodes, values, has_label


def _path(field: str) -> list[str]:
    return field.split(".") if field else []


def _value(label: Any, path: Sequence[str]) -> Any:
    """The value at the end of a path; None if the label has no such field."""
    for name in path:
        if isinstance(label, dict):
            label = label.get(name)
        elif isinstance(label, list) and name.isascii() and name.isdigit():
            label = label[int(name)] if int(name) < len(label) else None
        elif isinstance(label, list) and all(isinstance(entry, dict) for entry in label):
            of_kind = [entry for entry in label if entry.get(KIND) == name]
            label = of_kind or [entry[name] for entry in label if entry.get(name) is not None]
        else:
            return None
    return label


def _is_label(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(entry, str) or type(entry) is int for entry in value)
    return isinstance(value, str | bool | int | float)


def _is_component(value: Any) -> bool:
    return isinstance(value, dict) and type(value.get("start")) is int and type(value.get("end")) is int


def _has_kind(components: Sequence[dict[str, Any]], name: str) -> bool:
    return any(component.get(KIND) == name for component in components)


def of_same_kind(store: Store, labelled: Indices, others: Indices) -> int:
    """The number of other nodes whose kind, and whose place as a root or below one, is that of a labelled node."""

    def kinds(nodes: Indices) -> Iterator[tuple[str | None, bool]]:
        return zip(store.column("kind", nodes).to_pylist(), (store.depth[nodes] == 0).tolist())

    known = set(kinds(labelled))
    return sum(kind in known for kind in kinds(others))


# --- messages ---------------------------------------------------------------------------------------------------------


def _type(value: Any) -> str:
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "a truth value"
    return "a number" if isinstance(value, int | float) else "a text"


def _described(value: Any) -> str:
    return {"a list": "lists", "a truth value": "truth values", "a number": "numbers", "a text": "texts"}[_type(value)]


def at_node(store: Store, node: int) -> str:
    return f"{store.path or 'the data'}, node {store.ids([node])[0]!r}"


def _fields(labels: Sequence[Any]) -> list[str]:
    """Paths to the values in labels, sorted: those of objects by name, those of lists by the first entry and by kinds."""
    found: dict[str, None] = {}
    # The depth is that of the labels that Ramify's readers make.
    open_values: list[tuple[str, Any, int]] = [("", label, 0) for label in labels]
    while open_values:
        prefix, value, depth = open_values.pop()
        objects = [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
        if isinstance(value, dict) and depth < 4:
            open_values += [(f"{prefix}{name}.", entry, depth + 1) for name, entry in value.items()]
        elif objects:
            kinds = {entry[KIND] for entry in objects if isinstance(entry.get(KIND), str)}
            open_values += [(f"{prefix}0.", objects[0], depth + 1)] if not kinds else []
            found |= {f"{prefix}{KIND}": None} if kinds else {}
            found |= {f"{prefix}{entry[KIND]}.{name}": None for entry in objects if kinds for name in entry if name != KIND}
        elif prefix and value is not None:
            found[prefix.removesuffix(".")] = None
    return sorted(found)


def _listed(fields: Sequence[str]) -> str:
    return ", ".join(fields[:SHOWN]) + (f" and {len(fields) - SHOWN:,} more" if len(fields) > SHOWN else "")


def _not_a_label(store: Store, node: int, field: str, value: Any) -> RamifyError:
    fields = [f"{field}.{name}" if field else name for name in _fields([value])]
    what = f"the field {field!r} of the label" if field else "the label"
    remedy = "Write a class, a number or a list of classes into the data."
    if fields:
        remedy = f"Choose one of its fields with --label FIELD: {_listed(fields)}."
    kind = "an object" if isinstance(value, dict) else "a list"
    return RamifyError(f"{at_node(store, node)}: {what} is {kind}, {value!r:.80}, not a class or a number. {remedy}")


def _unknown_field(store: Store, split: Split, field: str, labels: Sequence[str]) -> RamifyError:
    fields = _fields([json.loads(text) for text in dict.fromkeys(labels[:1000])])
    where = f"{store.path or 'the data'}, split {split}"
    if not fields:
        return RamifyError(f"--label {field}: the labels of {where} have no fields; one is {labels[0]:.80}. Leave --label out.")
    return RamifyError(f"--label {field}: no label of {where} has this field. The fields are {_listed(fields)}.")
