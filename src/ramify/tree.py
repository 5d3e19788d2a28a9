"""Text on nodes, structure between nodes: `Node` and `Tree`, and the split of a big tree into bounded pieces.

Structure is held as parent indices (a parent always stands before its child), so nothing here recurses: real threads
pass depth 1,000.
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

from ramify.errors import RamifyError

Indices = NDArray[np.int64]

NO_PARENT = -1

PLACEHOLDER = "placeholder"
"""The kind of a root that no input held, put there for what hangs below it."""

GROUP = "group"
"""In a tree's metadata: trees in which it is the same are in the same split of a data set."""

FIRST_TIME, LAST_TIME = -62_135_596_800.0, 253_402_300_799.0
"""The years 1 to 9999, in seconds since 1970: what a calendar can show."""


@dataclass(frozen=True, slots=True)
class Node:
    """A post, comment, message or section.

    `parents` are indices of earlier nodes of the same tree: `()` is a root, `None` means that nobody annotated it. More
    than one parent occurs only in chat logs, where `self_link` (starts a conversation) may stand beside others. `time` is in
    seconds since 1970; raises `RamifyError` where no calendar has it.
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
            # Of numpy, say, which JSON does not know.
            object.__setattr__(self, "time", float(self.time))
        if self.time is not None and not (type(self.time) is float and FIRST_TIME <= self.time <= LAST_TIME):
            raise RamifyError(
                f"node {self.id!r}: its time is {self.time!r}, which is no second of the years 1 to 9999. Give seconds since "
                "1970 (milliseconds divided by 1000), or None."
            )

    @property
    def is_made_up(self) -> bool:
        """Is it a root that no input held?"""
        return self.kind == PLACEHOLDER and not self.parents and not self.text


@dataclass(frozen=True)
class Tree:
    """A discussion, chat log or document: its nodes in reading order. A forest is allowed.

    Raises `RamifyError` when a parent does not stand before its child.
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
                        f"tree {self.id!r}, node {index} ({node.id!r}): its parent is node {parent}, but a parent must "
                        "stand before its child. Sort the nodes so that parents come first, and break cycles."
                    )

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def parent(self) -> Indices:
        """The parent of every node, -1 for roots and for nodes that nobody annotated; raises where a node has two."""
        parent = np.full(len(self.nodes), NO_PARENT, dtype=np.int64)
        for index, node in enumerate(self.nodes):
            parents = node.parents
            if parents:
                if len(parents) != 1:
                    raise RamifyError(
                        f"tree {self.id!r}, node {index} ({node.id!r}) has {len(parents)} parents; "
                        "this operation needs a tree with one parent a node."
                    )
                parent[index] = parents[0]
        return parent

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        children: list[list[int]] = [[] for _ in self.nodes]
        for index, node in enumerate(self.nodes):
            for parent in node.parents or ():
                children[parent].append(index)
        return tuple(tuple(each) for each in children)

    @cached_property
    def depth(self) -> Indices:
        """Edges from the root: 0 for the post, 1 for a top-level comment."""
        return depths(self.parent)

    @cached_property
    def subtree_sizes(self) -> Indices:
        """Number of nodes below and including each node."""
        return subtree_sizes(self.parent)

    @property
    def roots(self) -> tuple[int, ...]:
        return tuple(index for index, node in enumerate(self.nodes) if not node.parents)

    def ancestors(self, index: int) -> tuple[int, ...]:
        """Strict ancestors of a node, from the root to its parent."""
        path = []
        while (index := int(self.parent[index])) != NO_PARENT:
            path.append(index)
        return tuple(reversed(path))

    def thread(self, index: int) -> tuple[int, ...]:
        """The path from the root to a node, both included."""
        return (*self.ancestors(index), index)

    def subtree(self, index: int) -> tuple[int, ...]:
        """A node and everything below it, in reading order."""
        inside = {index}
        for child in range(index + 1, len(self.nodes)):
            if any(parent in inside for parent in self.nodes[child].parents or ()):
                inside.add(child)
        return tuple(sorted(inside))

    def threads(self, over: Literal["all", "leaves"] = "all") -> Iterator[tuple[int, ...]]:
        """Root-to-node paths of every non-root node, or of the leaves only."""
        if over not in ("all", "leaves"):
            raise RamifyError(f"threads run over 'all' nodes or over 'leaves', not {over!r}.")
        for index in range(len(self.nodes)):
            if self.nodes[index].parents and (over == "all" or not self.children[index]):
                yield self.thread(index)

    def index(self, node_id: str) -> int:
        """The position of the node with this id."""
        for position, node in enumerate(self.nodes):
            if node.id == node_id:
                return position
        raise RamifyError(f"tree {self.id!r} has no node {node_id!r}; it has {len(self.nodes)} nodes.")

    def to_json(self) -> str:
        """One line of our JSON lines format; fields at their default are left out. A node without an id gets its number."""
        nodes = []
        names = _all_named([node.id for node in self.nodes])
        # Several roots are meant where nodes say `parents`: those of a reply tree would be taken for a mistake.
        several = len(self.roots) > 1
        for index, node in enumerate(self.nodes):
            record: dict[str, Any] = {"id": names[index]}
            if node.parents is None:
                record["parents"] = None
            elif len(node.parents) > 1 or (several and not node.parents):
                record["parents"] = [names[parent] for parent in node.parents]
            else:
                record["parent"] = names[node.parents[0]] if node.parents else None
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
        """Read one line of our JSON lines format; `where` (file and line) leads every error message.

        Half surrogate pairs become U+FFFD: no file could hold them.
        """
        return cls.from_record(parse_json(line, where), where)

    @classmethod
    def from_record(cls, record: Any, where: str = "") -> "Tree":
        """From what a line says, parsed; strictly: the first node that does not fit raises."""
        entries, tree_id, meta = tree_fields(record, where)
        position: dict[str, int] = {}
        nodes = []
        for index, entry in enumerate(entries):
            here = f"{where and where + ': '}tree {tree_id!r}, node "
            fields, named = node_fields(entry, index, here)
            node_id = fields["id"]
            if node_id in position:
                raise RamifyError(f"{here}{node_id!r}: this id stands twice; node ids must differ within a tree.")
            try:
                parents = None if named is None else tuple(position[name] for name in named)
            except KeyError as missing:
                raise RamifyError(
                    f"{here}{node_id!r}: its parent {missing.args[0]!r} does not stand before it; "
                    "parents must come first, in the same tree."
                ) from None
            position[node_id] = index
            nodes.append(Node(parents=parents, **fields))
        return cls(tuple(nodes), id=tree_id, meta=meta)


def _all_named(ids: Sequence[str]) -> list[str]:
    """The ids, with a node's number for one that is missing, marked where another node is called so."""
    taken = set(ids)
    names = []
    for index, name in enumerate(ids):
        own = name or str(index)
        while not name and own in taken:
            own = f"{own}'"
        taken.add(own)
        names.append(own)
    return names


# --- what a line of JSON says ---------------------------------------------------------------------------------------------


def parse_json(line: str | bytes, where: str = "") -> Any:
    """The JSON value of a line, without half surrogate pairs. Raises `RamifyError`."""
    try:
        text = encodable(line if isinstance(line, str) else line.decode("utf-8-sig", "surrogatepass"))
        value = json.loads(text)
        # Escapes of halves, and of whole pairs: most lines have neither, and are not worth a second look.
        if "\\ud" in text or "\\uD" in text:
            value = encodable_json(value)
    except (ValueError, RecursionError) as error:
        raise RamifyError(f"{where and where + ': '}not valid JSON ({error}). Mend the line, or take it out.") from None
    return value


def tree_fields(record: Any, where: str = "") -> tuple[list[Any], str, dict[str, Any]]:
    """The entries for nodes, the id and the metadata of a tree. Raises `RamifyError` where it is none."""
    where = where and where + ": "
    if not isinstance(record, dict) or not isinstance(record.get("nodes"), list):
        raise RamifyError(f'{where}expected a JSON object with "id" and a list "nodes".')
    tree_id, meta = record.get("id"), record.get("meta") or {}
    tree_id = "" if tree_id is None else str(tree_id)
    if not isinstance(meta, dict):
        raise RamifyError(f'{where}tree {tree_id!r}: "meta" must be an object, not {type(meta).__name__}.')
    return record["nodes"], tree_id, meta


def node_fields(entry: Any, index: int, here: str) -> tuple[dict[str, Any], tuple[str, ...] | None]:
    """A `Node`'s fields but `parents`, and its parents' ids (None: nobody annotated them).

    `here` and the node's id lead every error message.
    """
    if not isinstance(entry, dict) or entry.get("id") in (None, ""):
        raise RamifyError(f'{here}{index}: expected an object with an "id".')
    here = f"{here}{str(entry['id'])!r}"
    if "parents" in entry:
        named = entry["parents"]
    else:
        named = [] if entry.get("parent") is None else [entry["parent"]]
    if named is not None and not isinstance(named, list):
        raise RamifyError(f'{here}: "parents" must be a list of ids or null.')
    text = "" if entry.get("text") is None else entry["text"]
    if not isinstance(text, str):
        raise RamifyError(f'{here}: "text" must be a string, not {type(text).__name__}. Write it as one.')
    author, time = entry.get("author"), entry.get("time")
    try:
        seconds = None if time is None else float(time)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if seconds is not None and not FIRST_TIME <= seconds <= LAST_TIME:
        raise RamifyError(f'{here}: "time" must be a number (seconds since 1970, of the years 1 to 9999), not {time!r:.40}.')
    fields = {
        "text": text,
        "self_link": bool(entry.get("self_link", False)),
        "id": str(entry["id"]),
        "author": None if author is None else str(author),
        "time": seconds,
        "kind": str(entry.get("kind") or ""),
        "label": entry.get("label"),
    }
    return fields, None if named is None else tuple(dict.fromkeys(str(name) for name in named if name is not None))


# --- text that UTF-8 can hold -------------------------------------------------------------------------------------------

_HALVES = re.compile("[\ud800-\udfff]")


def encodable(text: str) -> str:
    """The text with U+FFFD for half surrogate pairs, which JSON can spell and UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _HALVES.sub("\ufffd", text)
    return text


def encodable_json(value: Any) -> Any:
    """A JSON value with all its strings and keys `encodable`."""
    text = json.dumps(value, ensure_ascii=False)
    sound = encodable(text)
    return value if sound is text else json.loads(sound)


# --- structure as arrays of parents: what trees, stores and views share -----------------------------------------------


def depths(parent: Sequence[int] | Indices) -> Indices:
    """Edges from each node to its root, by pointer doubling: log(depth) passes, so deep chains cost nothing special.

    Parents need not stand before children. Raises `RamifyError` where they form a ring.
    """
    jump = np.asarray(parent, dtype=np.int64)
    # One extra node stands for "above the roots", so that every pointer stays inside the array.
    top = len(jump)
    jump = np.append(np.where(jump < 0, top, jump), top)
    depth = (jump != top).astype(np.int64)
    for _ in range(top.bit_length() + 1):
        if (jump == top).all():
            return depth[:-1]
        depth += depth[jump]
        jump = jump[jump]
    raise RamifyError(f"the parents of {int((jump[:-1] != top).sum())} nodes form a cycle. Break it before you ask for depths.")


def roots_of(parent: Sequence[int] | Indices) -> Indices:
    """The root above each node, for a root itself, by pointer doubling as in `depths`.

    Parents need not stand before children. Raises `RamifyError` where they form a ring.
    """
    parents = np.asarray(parent, dtype=np.int64)
    root = np.where(parents < 0, np.arange(len(parents)), parents)
    for _ in range(len(root).bit_length() + 1):
        further = root[root]
        if np.array_equal(further, root):
            break
        root = further
    # Doubling may come to rest on a ring too: going around a ring of two twice leads back.
    lost = int((parents[root] >= 0).sum())
    if lost:
        raise RamifyError(f"the parents of {lost} nodes form a cycle. Break it before you ask for roots.")
    return root


def subtree_sizes(parent: Sequence[int] | Indices) -> Indices:
    """Nodes below and including each node. Parents stand before children, so one backward pass is enough."""
    parents = np.asarray(parent).tolist()
    sizes = [1] * len(parents)
    for child in range(len(parents) - 1, -1, -1):
        if parents[child] >= 0:
            sizes[parents[child]] += sizes[child]
    return np.array(sizes, dtype=np.int64)


def leaf_counts(parent: Sequence[int] | Indices) -> Indices:
    """Leaves below each node; a leaf counts itself."""
    parents = np.asarray(parent).tolist()
    counts = [0] * len(parents)
    for child in range(len(parents) - 1, -1, -1):
        counts[child] = counts[child] or 1
        if parents[child] >= 0:
            counts[parents[child]] += counts[child]
    return np.array(counts, dtype=np.int64)


def multiplicity(parent: Sequence[int] | Indices, over: Literal["all", "leaves"] = "all") -> Indices:
    """How often the `threads` regime predicts each node: once a thread that passes through it.

    `all`: one thread ends at every comment, so a node occurs once for each node of its subtree; `leaves`: once for each
    leaf below it. Both fall exponentially with depth, which is the regime's bias.
    """
    if over == "all":
        return subtree_sizes(parent)
    if over == "leaves":
        return leaf_counts(parent)
    raise RamifyError(f"threads run over 'all' comments or over 'leaves', not {over!r}.")


# --- the bounded split ------------------------------------------------------------------------------------------------

Bound = Literal["strict", "soft"]
Weighting = Literal["once", "share", "seed"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a tree with at most M comments: `context` (root to parent) is read, `targets` are predicted.

    The post is in every piece and in neither list. `weights` has one entry a target.
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

    `pack` puts sibling subtrees into one piece while they fit; without it every child of a cut node has its own piece.
    `bound="strict"` cuts paths that are longer than the bound and carries the nearest half on; `"soft"` keeps complete
    paths, so a piece may hold as many comments as the deepest path.
    `weighting`: `once` predicts every comment in one piece; `share` and `seed` predict all comments of a piece,
    weighted by one over the number of times, or by 1. `name` is what messages call the tree. Raises `RamifyError` when
    `parent` is not a single tree.
    """
    parents = np.asarray(parent, dtype=np.int64)
    if max_tree_size < 1:
        raise RamifyError(f"max_tree_size must be at least 1, not {max_tree_size}.")
    if bound not in ("strict", "soft"):
        raise RamifyError(f"bound is 'strict' or 'soft', not {bound!r}.")
    if weighting not in ("once", "share", "seed"):
        raise RamifyError(f"weighting is 'once', 'share' or 'seed', not {weighting!r}.")
    bad = np.flatnonzero(parents >= np.arange(len(parents)))
    if len(bad):
        raise RamifyError(
            f"{name}: node {bad[0]} has the parent {parents[bad[0]]}, which does not stand before it (a cycle, or an "
            "unsorted tree). Readers put parents first and break cycles by their `cycle` policy."
        )
    roots = np.flatnonzero(parents < 0)
    if len(roots) != 1:
        raise RamifyError(
            f"{name} has {len(roots)} roots and cannot be split; it needs exactly one post. `ramify data build` makes a tree "
            "of each root of a discussion (--policy two_roots=split); chat logs and documents without a root are not split."
        )
    cuts = _cut(parents, max_tree_size, pack, bound)
    if weighting == "once":
        return [Piece(context, targets, (1.0,) * len(targets)) for context, targets in cuts]
    excepted = [_excepted(parents, context, max_tree_size, bound) for context, _ in cuts]
    pieces = [(context[:count], (*context[count:], *targets)) for (context, targets), count in zip(cuts, excepted, strict=True)]
    times = np.bincount([comment for _, riders in pieces for comment in riders], minlength=len(parents)).tolist()
    return [
        Piece(context, riders, tuple(1.0 if weighting == "seed" else 1 / times[comment] for comment in riders))
        for context, riders in pieces
    ]


def _cut(parents: Indices, limit: int, pack: bool, bound: Bound) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(context, targets) of every piece, each comment a target once. An explicit stack replaces the recursion."""
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
        kept = len(path) - pending
        pieces.append((tuple(path[:kept]), (*path[kept:], *_preorder(children, subtrees))))

    # A frame is a node whose children are still to be visited; the last `pending` comments of `path` are not yet
    # predicted.
    stack: list[_Frame] = [_Frame([], 0, _Children(children[0]))]
    while stack:
        frame = stack[-1]
        if frame.todo.big is None:
            frame.todo.big = _emit_small(frame, sizes, limit, pack, bound, children, emit)
        if not frame.todo.big:
            stack.pop()
            continue
        child = frame.todo.big.pop()
        # Only the last of the big children may take the list over: the others copy it.
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
    """Emit the subtrees that fit below the path; return the children that do not, last first."""
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


def _excepted(parents: Indices, context: tuple[int, ...], limit: int, bound: Bound) -> int:
    """How many comments at the head of a cut path may not be predicted, because the nearest min(depth - 1, limit // 2)
    comments above them are not all in the piece."""
    if bound == "soft" or not context or parents[context[0]] == 0:
        return 0
    return min(len(context), limit // 2)
