"""Nodes of text and the trees they form: `Node`, `Tree`, and the split of a large tree into bounded pieces.

The structure is an array of parent indices in which a parent always precedes its child. Nothing here recurses, because real
threads are more than 1,000 levels deep.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ramify.errors import RamifyError, counted

Indices = NDArray[np.int64]

NO_PARENT = -1

PLACEHOLDER = "placeholder"
"""The kind of a root that is missing from the input and was added so that its descendants have one."""

DOCUMENT = "document"
"""The kind of the root of a document. Below it, the kind of a node names its level, such as chapter, paragraph or sentence."""

GROUP = "group"
"""The metadata key of a tree's group. Trees of one group are in the same split of a data set."""

SPLIT = "split"
"""The metadata key of the split (train, dev or test) that the data gives to a tree."""

FIRST_TIME, LAST_TIME = -62_135_596_800.0, 253_402_300_799.0
"""The first and last second of the years 1 to 9999, in seconds since 1970: the range of Python's calendar."""


@dataclass(frozen=True, slots=True)
class Node:
    """A post, comment, message or section.

    `parents` are indices of earlier nodes of the same tree: `()` marks a root, `None` a node without annotation. Only chat logs
    have nodes with several parents. There, `self_link` (the message starts a conversation) may accompany other links. `time` is
    in seconds since 1970. Raises `RamifyError` if `time` is outside the years 1 to 9999.
    """

    text: str = ""
    parents: tuple[int, ...] | None = ()
    self_link: bool = False
    id: str = ""
    author: str | None = None
    time: float | None = None
    kind: str = ""
    label: Any = None

    def __post_init__(self) -> None:
        if type(self.time) is not float and isinstance(self.time, Real) and not isinstance(self.time, bool):
            # JSON cannot serialize the number types of NumPy.
            object.__setattr__(self, "time", float(self.time))
        if self.time is not None and not (type(self.time) is float and FIRST_TIME <= self.time <= LAST_TIME):
            raise RamifyError(
                f"node {self.id!r}: time={self.time!r} is not in the years 1 to 9999. Give seconds since 1970 (milliseconds "
                "divided by 1000), or None."
            )

    @property
    def is_placeholder(self) -> bool:
        """Whether the node is a root that was added because the input has none."""
        return self.kind == PLACEHOLDER and not self.parents and not self.text


@dataclass(frozen=True)
class Tree:
    """A discussion, chat log or document: its nodes in reading order. Several roots are allowed.

    Raises `RamifyError` if a parent does not precede its child.
    """

    nodes: tuple[Node, ...]
    id: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        for index, node in enumerate(self.nodes):
            for parent in node.parents or ():
                if not 0 <= parent < index:
                    raise RamifyError(
                        f"tree {self.id!r}, node {index} ({node.id!r}): its parent, node {parent}, does not precede it. "
                        "Sort the nodes so that parents come first, and break cycles."
                    )

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def parent(self) -> Indices:
        """The parent of every node, -1 for roots and for nodes without annotation.

        Raises `RamifyError` if a node has several parents.
        """
        parent = np.full(len(self.nodes), NO_PARENT, dtype=np.int64)
        for index, node in enumerate(self.nodes):
            parents = node.parents
            if parents:
                if len(parents) != 1:
                    raise RamifyError(
                        f"tree {self.id!r}, node {index} ({node.id!r}) has {len(parents)} parents. "
                        "This operation needs a tree with at most one parent per node."
                    )
                parent[index] = parents[0]
        return parent

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        children: list[list[int]] = [[] for _ in self.nodes]
        for index, node in enumerate(self.nodes):
            for parent in node.parents or ():
                children[parent].append(index)
        return tuple(map(tuple, children))

    @cached_property
    def depth(self) -> Indices:
        """Edges from the root: 0 for the post, 1 for a top-level comment."""
        return depths(self.parent)

    @cached_property
    def subtree_sizes(self) -> Indices:
        """Number of nodes in the subtree of each node, including the node."""
        return subtree_sizes(self.parent)

    @property
    def roots(self) -> tuple[int, ...]:
        return tuple(index for index, node in enumerate(self.nodes) if not node.parents)

    def ancestors(self, index: int) -> tuple[int, ...]:
        """The ancestors of a node, from the root to its parent."""
        path = []
        while (index := int(self.parent[index])) != NO_PARENT:
            path.append(index)
        return tuple(reversed(path))

    def thread(self, index: int) -> tuple[int, ...]:
        """The path from the root to a node, both included."""
        return (*self.ancestors(index), index)

    def subtree(self, index: int) -> tuple[int, ...]:
        """A node and its descendants, in reading order."""
        members = {index}
        for child in range(index + 1, len(self.nodes)):
            if any(parent in members for parent in self.nodes[child].parents or ()):
                members.add(child)
        return tuple(sorted(members))

    def threads(self, over: Literal["all", "leaves"] = "all") -> Iterator[tuple[int, ...]]:
        """The paths from the root to every other node, or to the leaves only."""
        if over not in ("all", "leaves"):
            raise RamifyError(f"over={over!r} is not a selection of threads. Use 'all' or 'leaves'.")
        for index in range(len(self.nodes)):
            if self.nodes[index].parents and (over == "all" or not self.children[index]):
                yield self.thread(index)

    def index(self, node_id: str) -> int:
        """The position of the node with this id. Raises `RamifyError` if there is none."""
        for position, node in enumerate(self.nodes):
            if node.id == node_id:
                return position
        raise RamifyError(f"tree {self.id!r} has no node {node_id!r}; it has {counted(len(self.nodes), 'node')}.")

    def to_json(self) -> str:
        """One line of Ramify's JSON lines format, without the fields that have their default.

        A node without an id gets its position as its id.
        """
        nodes = []
        ids = _fill_in_ids([node.id for node in self.nodes])
        # The reader takes a second root with `parent` for a mistake, and one with `parents` as intended.
        has_many_roots = len(self.roots) > 1
        for index, node in enumerate(self.nodes):
            record: dict[str, Any] = {"id": ids[index]}
            if node.parents is None:
                record["parents"] = None
            elif len(node.parents) > 1 or (has_many_roots and not node.parents):
                record["parents"] = [ids[parent] for parent in node.parents]
            else:
                record["parent"] = ids[node.parents[0]] if node.parents else None
            if node.self_link:
                record["self_link"] = True
            if node.kind:
                record["kind"] = node.kind
            record |= {name: value for name in ("author", "time", "label") if (value := getattr(node, name)) is not None}
            record["text"] = node.text
            nodes.append(record)
        record = {"id": self.id}
        if self.meta:
            record["meta"] = dict(self.meta)
        return json.dumps(record | {"nodes": nodes}, ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str | bytes, where: str = "") -> "Tree":
        """Read one line of Ramify's JSON lines format. `where` (file and line) begins every error message.

        Unpaired surrogates become U+FFFD, because UTF-8 cannot encode them. Raises `RamifyError` if the line is not a tree.
        """
        return cls.from_record(parse_json(line, where), where)

    @classmethod
    def from_record(cls, record: Any, where: str = "") -> "Tree":
        """Convert a parsed line. Raises `RamifyError` at the first node that does not fit."""
        entries, tree_id, meta = tree_fields(record, where)
        positions: dict[str, int] = {}
        nodes = []
        for index, entry in enumerate(entries):
            prefix = f"{where and where + ': '}tree {tree_id!r}, node "
            fields, parent_ids = node_fields(entry, index, prefix)
            node_id = fields["id"]
            if node_id in positions:
                raise RamifyError(
                    f"{prefix}{node_id!r}: an earlier node has the same id. Give every node of a tree its own id."
                )
            try:
                parents = None if parent_ids is None else tuple(positions[parent_id] for parent_id in parent_ids)
            except KeyError as missing:
                raise RamifyError(
                    f"{prefix}{node_id!r}: its parent {missing.args[0]!r} does not precede it in this tree. "
                    "Write parents before their children."
                ) from None
            positions[node_id] = index
            nodes.append(Node(parents=parents, **fields))
        return cls(tuple(nodes), id=tree_id, meta=meta)


def _fill_in_ids(ids: Sequence[str]) -> list[str]:
    """The ids, with a node's position for a missing id. Primes make it unique."""
    taken = set(ids)
    filled = []
    for index, node_id in enumerate(ids):
        unique_id = node_id or str(index)
        while not node_id and unique_id in taken:
            unique_id = f"{unique_id}'"
        taken.add(unique_id)
        filled.append(unique_id)
    return filled


# --- parsing JSON lines ---------------------------------------------------------------------------------------------------


def parse_json(line: str | bytes, where: str = "") -> Any:
    """Parse a line, with U+FFFD for unpaired surrogates. Raises `RamifyError` if it is not valid JSON."""
    try:
        text = encodable(line if isinstance(line, str) else line.decode("utf-8-sig", "surrogatepass"))
        value = json.loads(text)
        # Most lines contain no escaped surrogates and skip this second pass.
        if "\\ud" in text or "\\uD" in text:
            value = encodable_json(value)
    except (ValueError, RecursionError) as error:
        raise RamifyError(f"{where and where + ': '}not valid JSON ({error}). Repair or remove the line.") from None
    return value


def tree_fields(record: Any, where: str = "") -> tuple[list[Any], str, dict[str, Any]]:
    """The unparsed nodes, the id and the metadata of a tree. Raises `RamifyError` if the record is not a tree."""
    where = where and where + ": "
    if not isinstance(record, dict) or not isinstance(record.get("nodes"), list):
        raise RamifyError(f'{where}expected a JSON object with "id" and a list "nodes".')
    tree_id, meta = record.get("id"), record.get("meta") or {}
    tree_id = "" if tree_id is None else str(tree_id)
    if not isinstance(meta, dict):
        raise RamifyError(f'{where}tree {tree_id!r}: "meta" must be an object, not {type(meta).__name__}.')
    return record["nodes"], tree_id, meta


def node_fields(entry: Any, index: int, here: str) -> tuple[dict[str, Any], tuple[str, ...] | None]:
    """The fields of a `Node` except `parents`, and the ids of its parents (None: not annotated).

    `here` and the node's id begin every error message. Raises `RamifyError` if the entry is not a node.
    """
    if not isinstance(entry, dict) or entry.get("id") in (None, ""):
        raise RamifyError(f'{here}{index}: expected an object with an "id".')
    here = f"{here}{str(entry['id'])!r}"
    if "parents" in entry:
        parent_ids = entry["parents"]
    else:
        parent_ids = [] if entry.get("parent") is None else [entry["parent"]]
    if parent_ids is not None and not isinstance(parent_ids, list):
        raise RamifyError(f'{here}: "parents" must be a list of ids or null.')
    text = "" if entry.get("text") is None else entry["text"]
    if not isinstance(text, str):
        raise RamifyError(f'{here}: "text" must be a string, not {type(text).__name__}. Quote it.')
    author, time = entry.get("author"), entry.get("time")
    try:
        seconds = None if time is None else float(time)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if seconds is not None and not FIRST_TIME <= seconds <= LAST_TIME:
        raise RamifyError(f'{here}: "time" must be a number (seconds since 1970, in the years 1 to 9999), not {time!r:.40}.')
    fields = {
        "text": text,
        "self_link": bool(entry.get("self_link", False)),
        "id": str(entry["id"]),
        "author": None if author is None else str(author),
        "time": seconds,
        "kind": str(entry.get("kind") or ""),
        "label": entry.get("label"),
    }
    if parent_ids is None:
        return fields, None
    return fields, tuple(dict.fromkeys(str(parent_id) for parent_id in parent_ids if parent_id is not None))


# --- text that UTF-8 can encode -----------------------------------------------------------------------------------------

_SURROGATES = re.compile("[\ud800-\udfff]")


def encodable(text: str) -> str:
    """The text with U+FFFD for unpaired surrogates, which JSON can escape but UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text)
    return text


def encodable_json(value: Any) -> Any:
    """Apply `encodable` to all strings and keys of a JSON value."""
    text = json.dumps(value, ensure_ascii=False)
    encoded = encodable(text)
    return value if encoded is text else json.loads(encoded)


# --- functions of parent arrays, shared by trees, stores and views ------------------------------------------------------


def depths(parent: Sequence[int] | Indices) -> Indices:
    """The number of edges from each node to its root.

    Pointer doubling takes log(depth) passes, so deep chains are cheap. Parents may follow their children. Raises `RamifyError`
    if they form a cycle.
    """
    jump = np.asarray(parent, dtype=np.int64)
    # An extra last node is the parent of all roots, so that every pointer stays inside the array.
    top = len(jump)
    jump = np.append(np.where(jump < 0, top, jump), top)
    depth = (jump != top).astype(np.int64)
    for _ in range(top.bit_length() + 1):
        if (jump == top).all():
            return depth[:-1]
        depth += depth[jump]
        jump = jump[jump]
    count = int((jump[:-1] != top).sum())
    raise RamifyError(f"parents: the ancestors of {count} nodes form a cycle. Break it before you compute depths.")


def roots_of(parent: Sequence[int] | Indices) -> Indices:
    """The root of each node's tree, by pointer doubling as in `depths`.

    Parents may follow their children. Raises `RamifyError` if they form a cycle.
    """
    parents = np.asarray(parent, dtype=np.int64)
    root = np.where(parents < 0, np.arange(len(parents)), parents)
    for _ in range(len(root).bit_length() + 1):
        further = root[root]
        if np.array_equal(further, root):
            break
        root = further
    # Doubling may reach a fixed point on a cycle too: two steps around a cycle of two lead back to the start.
    count = int((parents[root] >= 0).sum())
    if count:
        raise RamifyError(f"parents: the ancestors of {count} nodes form a cycle. Break it before you look for roots.")
    return root


def subtree_sizes(parent: Sequence[int] | Indices) -> Indices:
    """The number of nodes in each node's subtree, including the node. Parents must precede their children."""
    parents = np.asarray(parent).tolist()
    sizes = [1] * len(parents)
    for child in range(len(parents) - 1, -1, -1):
        if parents[child] >= 0:
            sizes[parents[child]] += sizes[child]
    return np.array(sizes, dtype=np.int64)


def leaf_counts(parent: Sequence[int] | Indices) -> Indices:
    """The number of leaves in each node's subtree; a leaf counts itself. Parents must precede their children."""
    parents = np.asarray(parent).tolist()
    counts = [0] * len(parents)
    for child in range(len(parents) - 1, -1, -1):
        counts[child] = counts[child] or 1
        if parents[child] >= 0:
            counts[parents[child]] += counts[child]
    return np.array(counts, dtype=np.int64)


def multiplicity(parent: Sequence[int] | Indices, over: Literal["all", "leaves"] = "all") -> Indices:
    """The number of times that the `threads` regime predicts each node: once per thread that passes through it.

    With `all`, a thread ends at every comment, so a node occurs once per node of its subtree. With `leaves`, a node occurs once
    per leaf of its subtree. Both counts fall exponentially with depth, which biases the regime towards shallow comments.
    """
    if over == "all":
        return subtree_sizes(parent)
    if over == "leaves":
        return leaf_counts(parent)
    raise RamifyError(f"over={over!r} is not a selection of threads. Use 'all' or 'leaves'.")


# --- the bounded split ------------------------------------------------------------------------------------------------

Bound = Literal["strict", "soft"]
Weighting = Literal["once", "share", "seed"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a tree with a bounded number of comments: the model reads `context` (root to parent) and predicts `targets`.

    The post is in every piece and in neither list. `weights` has one entry per target.
    """

    context: tuple[int, ...]
    targets: tuple[int, ...]
    weights: tuple[float, ...]


def split(
    parent: Sequence[int] | Indices,
    max_tree_size: int,
    *,
    pack: bool = True,
    bound: Bound = "strict",
    weighting: Weighting = "once",
    name: str = "the tree",
) -> list[Piece]:
    """Cut a tree with one root into pieces of at most `max_tree_size` comments: a thread and whole subtrees below it.

    `pack` puts sibling subtrees into one piece while they fit. Without it, every child of a cut node gets a piece of its own.
    `bound="strict"` cuts paths that are longer than the bound and repeats their last half in the next piece. `"soft"` keeps
    complete paths, so a piece may contain as many comments as the deepest path. `weighting="once"` predicts every comment in
    one piece. `"share"` and `"seed"` predict all comments of a piece, `"share"` with weight 1 / (number of pieces that predict
    the comment) and `"seed"` with weight 1. `name` is the tree's name in messages. Raises `RamifyError` if `parent` is not a
    single tree whose parents precede their children.
    """
    parents = np.asarray(parent, dtype=np.int64)
    if max_tree_size < 1:
        raise RamifyError(f"max_tree_size={max_tree_size} is too small. Use at least 1.")
    if bound not in ("strict", "soft"):
        raise RamifyError(f"bound={bound!r} is unknown. Use 'strict' or 'soft'.")
    if weighting not in ("once", "share", "seed"):
        raise RamifyError(f"weighting={weighting!r} is unknown. Use 'once', 'share' or 'seed'.")
    bad = np.flatnonzero(parents >= np.arange(len(parents)))
    if len(bad):
        raise RamifyError(
            f"{name}: node {bad[0]} has the parent {parents[bad[0]]}, which does not precede it (a cycle, or an unsorted "
            "tree). Sort parents first and break cycles, as `ramify data build` does by its `cycle` policy."
        )
    roots = np.flatnonzero(parents < 0)
    if len(roots) != 1:
        raise RamifyError(
            f"{name} has {len(roots)} roots; only a tree with exactly one can be split. Build the data with --policy "
            "two_roots=split, which makes a tree of each root; chat logs and documents without a root cannot be split."
        )
    cuts = _cut(parents, max_tree_size, pack, bound)
    if weighting == "once":
        return [Piece(context, targets, (1.0,) * len(targets)) for context, targets in cuts]
    num_context = [_num_context(parents, context, max_tree_size, bound) for context, _ in cuts]
    pieces = [
        (context[:count], (*context[count:], *targets)) for (context, targets), count in zip(cuts, num_context, strict=True)
    ]
    times = np.bincount([comment for _, targets in pieces for comment in targets], minlength=len(parents)).tolist()
    return [
        Piece(context, targets, tuple(1.0 if weighting == "seed" else 1 / times[comment] for comment in targets))
        for context, targets in pieces
    ]


def _cut(parents: Indices, limit: int, pack: bool, bound: Bound) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The (context, targets) of every piece; each comment is a target once. An explicit stack replaces recursion."""
    comments = len(parents) - 1
    if comments == 0:
        return []
    children: list[list[int]] = [[] for _ in parents]
    for child in range(1, len(parents)):
        children[parents[child]].append(child)
    if comments <= limit:
        return [((), tuple(_preorder(children, [*children[0]])))]
    sizes = subtree_sizes(parents)
    pieces: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def emit(path: list[int], pending: int, subtrees: list[int]) -> None:
        num_context = len(path) - pending
        pieces.append((tuple(path[:num_context]), (*path[num_context:], *_preorder(children, subtrees))))

    # A frame is a node with unvisited children. No piece predicts the last `pending` comments of its `path` yet.
    stack: list[_Frame] = [_Frame([], 0, _Children(children[0]))]
    while stack:
        frame = stack[-1]
        if frame.todo.big is None:
            frame.todo.big = _emit_small(frame, sizes, limit, pack, bound, children, emit)
        if not frame.todo.big:
            stack.pop()
            continue
        child = frame.todo.big.pop()
        # The last of the big children takes the list over; the others copy it.
        path = [*frame.path, child] if frame.todo.big else frame.path
        if path is frame.path:
            path.append(child)
        pending = frame.pending + 1
        frame.pending = 0
        if bound == "strict" and len(path) >= limit:
            emit(path, pending, [])
            pending = 0
            path = path[len(path) - limit // 2 :] if limit // 2 else []
        if not frame.todo.big:
            stack.pop()
        stack.append(_Frame(path, pending, _Children(children[child])))
    return pieces


_Emit = Callable[[list[int], int, list[int]], None]


@dataclass(slots=True)
class _Children:
    all: list[int]
    big: list[int] | None = None


@dataclass(slots=True)
class _Frame:
    path: list[int]
    pending: int
    todo: _Children


def _emit_small(
    frame: _Frame, sizes: Indices, limit: int, pack: bool, bound: Bound, children: list[list[int]], emit: _Emit
) -> list[int]:
    """Emit the subtrees that fit below the path. Return the children whose subtrees do not fit, last first."""
    room = limit - len(frame.path)
    small, big = [], []
    visited = sorted(frame.todo.all, key=lambda child: sizes[child]) if pack else frame.todo.all
    for child in visited:
        fits = sizes[child] <= room or (bound == "soft" and not children[child])
        (small if fits else big).append(child)
    buffer: list[int] = []
    held = 0
    for child in small:
        if buffer and (not pack or held + sizes[child] > room):
            emit(frame.path, frame.pending, buffer)
            frame.pending, buffer, held = 0, [], 0
        buffer.append(child)
        held += int(sizes[child])
    if buffer:
        emit(frame.path, frame.pending, buffer)
        frame.pending = 0
    return big[::-1]


def _preorder(children: list[list[int]], roots: Iterable[int]) -> list[int]:
    order = []
    stack = list(roots)[::-1]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(reversed(children[node]))
    return order


def _num_context(parents: Indices, context: tuple[int, ...], limit: int, bound: Bound) -> int:
    """The number of comments at the start of a cut path that remain context under `share` and `seed`.

    The piece lacks some of their nearest min(depth - 1, limit // 2) ancestors.
    """
    if bound == "soft" or not context or parents[context[0]] == 0:
        return 0
    return min(len(context), limit // 2)
