"""Ramify's own JSON lines: one tree per line, as `Tree.to_json` writes it."""

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

from ramify.errors import RamifyError
from ramify.readers.base import A_FOLDER, Policy, ReadCounts, free_id, guarded, lines, open_bytes
from ramify.readers.json_fields import beginnings
from ramify.readers.listing import list_files
from ramify.readers.values import fields, seconds, sound_tree
from ramify.tree import GROUP, PLACEHOLDER, Node, Tree, node_fields, parse_json, tree_fields


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        return A_FOLDER
    text = head.removeprefix(b"\xef\xbb\xbf")
    rest = text.lstrip()
    line = rest.partition(b"\n")[0]
    if any(isinstance(fields(value).get("nodes"), list) for value in beginnings(line)):
        return ""
    number = text[: len(text) - len(rest)].count(b"\n") + 1
    return f'line {number}: no JSON object with a list "nodes"'


def read_jsonl(path: str | Path) -> Iterator[Tree]:
    """Yield the trees of a JSON lines file, compressed or not. Raises `RamifyError` with file and line for a bad line."""
    return (tree for _, tree in numbered_trees(path))


def numbered_trees(path: str | Path) -> Iterator[tuple[int, Tree]]:
    """Yield the trees of `read_jsonl` with the numbers of their lines."""
    empty = True
    with open_bytes(Path(path)) as stream:
        beginning = stream.peek().removeprefix(codecs.BOM_UTF8).lstrip()
        if beginning and not beginning.startswith(b"{"):
            raise RamifyError(
                f"{path} is neither a data set nor JSON lines of trees. Build a data set of it first: "
                f"ramify data build {path} --out FOLDER"
            )
        for number, line in enumerate(stream, 1):
            if line.strip():
                empty = False
                yield number, Tree.from_json(line, where=f"{path}, line {number}")
    if empty:
        raise RamifyError(f"{path} holds no tree. Expected JSON lines, one tree per line.")


def read(paths: Sequence[Path], counts: ReadCounts, *, policy: Policy) -> Iterator[Tree]:
    """Read trees. Inconsistent trees are repaired according to the policy; a line without a tree is skipped as one post.

    The id of a tree without one is its number in the input.
    """
    count = 0
    for path in list_files(paths):
        with open_bytes(path, counts) as stream:
            number = 0
            for block in lines(stream, counts, path):
                for line in block:
                    number += 1
                    if line.strip():
                        where = f"{path}, line {number}"
                        for trees in guarded(_trees, where, counts, line, str(count), where, policy, counts):
                            count += 1
                            yield from trees


def _trees(line: bytes, name: str, where: str, policy: Policy, counts: ReadCounts) -> Iterator[list[Tree]]:
    """Yield the trees made from a line, if it holds any."""
    try:
        record = parse_json(line, where)
    except RamifyError as error:
        counts.leave_out("bad_json", str(error))
        return
    if (trees := trees_of(record, name, where, policy, counts)) is not None:
        yield trees


def trees_of(record: Any, name: str, where: str, policy: Policy, counts: ReadCounts) -> list[Tree] | None:
    """The trees made from a parsed line, repaired according to the policy; None if it holds no tree.

    `name` is the id of a tree without one. `where` names the place of the record.
    """
    try:
        if isinstance(record, dict) and not isinstance(record.get("meta") or {}, dict):
            counts.repair("bad_meta", where)
            record["meta"] = {}
        entries, tree_id, meta = tree_fields(record, where)
    except RamifyError as error:
        counts.leave_out("bad_tree", str(error))
        return None
    if not entries:
        counts.repair("empty_tree", f"{where}: tree {tree_id!r} has no nodes")
        return []
    try:
        tree = Tree.from_record(record, where)
    except RamifyError:
        pass
    else:
        if len(tree.roots) < 2 or policy.two_roots == "forest" or _is_chat(entries):
            counts.read += sum(not node.is_placeholder for node in tree.nodes)
            return [sound_tree(replace(tree, id=tree_id or name), counts)]
    draft = _Draft(entries, tree_id, where, policy, counts)
    trees = draft.chat(meta, tree_id or name) if _is_chat(entries) else draft.trees(meta, tree_id or name)
    return [sound_tree(tree, counts) for tree in trees]


def _is_chat(entries: list[Any]) -> bool:
    """Whether the nodes name lists of parents. Reply trees name one parent per node; logs may have several roots."""
    return any(isinstance(entry, dict) and ("parents" in entry or entry.get("self_link")) for entry in entries)


ADDED = -1
"""The place of a placeholder root."""


class _Draft:
    """The nodes of an inconsistent tree, by their places in the line, while the policies are applied."""

    def __init__(self, entries: list[Any], tree_id: str, where: str, policy: Policy, counts: ReadCounts) -> None:
        self.tree_id, self.where, self.policy, self.counts = tree_id, where, policy, counts
        self.nodes: dict[int, Node] = {}
        self.named: dict[int, tuple[str, ...] | None] = {}
        self.left_out: dict[int, str] = {}
        """Place -> reason. The descendants of such a node are left out with it."""
        self._place_of: dict[str, int] = {}
        for place, entry in enumerate(entries):
            self._read(entry, place)

    def chat(self, meta: dict[str, Any], name: str) -> list[Tree]:
        """Make a log. A link to a later message is dropped, because the messages of a log are in order."""
        number: dict[int, int] = {}
        nodes = []
        for place, named in self.named.items():
            parents = [self._place_of.get(parent, place) for parent in named or ()]
            self.counts.repair("bad_relation", self._describe(place), count=sum(parent >= place for parent in parents))
            known = [parent for parent in parents if parent < place]
            if named and not known and self.policy.orphan == "drop":
                self.left_out[place] = "orphan"
            elif named and not known:
                self.counts.repair("orphan", self._describe(place))
            elif known and known[0] in self.left_out:
                self.left_out[place] = self.left_out[known[0]]
            if place in self.left_out:
                self._skip(self.left_out[place], place)
                continue
            number[place] = len(nodes)
            remaining = tuple(number[parent] for parent in known if parent in number)
            nodes.append(replace(self.nodes[place], parents=None if named is None else remaining))
        return [Tree(tuple(nodes), id=name, meta=meta)] if nodes else []

    def trees(self, meta: dict[str, Any], name: str) -> list[Tree]:
        """Make a reply tree, or one per root."""
        parent_of = self._linked(name)
        self._cut_cycles(parent_of)
        first = next((place for place, named in self.named.items() if not named), ADDED)
        members: dict[int, dict[int, int]] = {}
        """Root of a tree -> place -> number in that tree."""
        tree_of: dict[int, int] = {}
        for place in _parents_first(parent_of):
            parent = parent_of[place]
            if parent is None and place != first and self.policy.two_roots == "first":
                self.left_out.setdefault(place, "two_roots")
            if parent in self.left_out:
                self.left_out[place] = self.left_out[parent]
            if place in self.left_out:
                self._skip(self.left_out[place], place)
                continue
            if parent is not None:
                root = tree_of[parent]
            else:
                root = first if self.policy.two_roots == "forest" else place
            if root == place != first:
                self.counts.repair("split_roots", self._describe(place))
            tree_of[place] = root
            inside = members.setdefault(root, {})
            inside[place] = len(inside)
        return [
            Tree(
                tuple(self._placed(place, parent_of, inside) for place in inside),
                id=name if root == first else f"{name}/{self.nodes[root].id}",
                meta=meta if root == first else {GROUP: meta.get(GROUP, name)},
            )
            for root, inside in members.items()
        ]

    def _read(self, entry: Any, place: int) -> None:
        prefix = f"{self.where}: tree {self.tree_id!r}, node "
        sound = entry
        try:
            try:
                fields, named = node_fields(entry, place, prefix)
            except RamifyError:
                time = seconds(entry.get("time")) if isinstance(entry, dict) else None
                sound = {**entry, "time": time} if isinstance(entry, dict) else entry
                fields, named = node_fields(sound, place, prefix)
                if time is None:
                    self.counts.repair("bad_time", f"{prefix}{fields['id']!r}")
        except RamifyError as error:
            self.counts.leave_out("not_a_post", str(error))
            return
        node = Node(**fields)
        if named == (node.id,):
            self.counts.repair("own_parent", f"{prefix}{node.id!r}")
            named = ()
        self.counts.read += not (node.is_placeholder and not named)
        earlier = self._place_of.get(node.id)
        if earlier is not None:
            dropped = place if self.policy.duplicate_id == "first" else earlier
            was_read = not (node.is_placeholder and not named) if dropped == place else self._was_read(earlier)
            self.counts.skip("duplicate_id", f"{prefix}{node.id!r}", count=int(was_read))
            if dropped == place:
                return
            del self.nodes[earlier], self.named[earlier]
        self._place_of[node.id] = place
        self.nodes[place], self.named[place] = node, named

    def _linked(self, name: str) -> dict[int, int | None]:
        """Place -> the parent's place. A node that names no node of the tree is an orphan."""
        root = next((place for place, named in self.named.items() if not named), ADDED)
        if root == ADDED and self.policy.missing_root == "drop":
            self.left_out = dict.fromkeys(self.nodes, "missing_root")
            return dict.fromkeys(self.nodes)
        parent_of: dict[int, int | None] = {}
        if root == ADDED:
            self.nodes = {ADDED: Node(id=free_id(name, self._place_of), kind=PLACEHOLDER), **self.nodes}
            self.named[ADDED], parent_of[ADDED] = (), None
        for place, named in self.named.items():
            known = [self._place_of[parent] for parent in named or () if parent in self._place_of]
            parent_of[place] = known[0] if known else None
            if not named or known:
                continue
            if named == (self.tree_id,):
                # The tree's id stands for its root.
                parent_of[place] = root
            elif self.policy.orphan == "root":
                parent_of[place] = root
                self.counts.repair("orphan", self._describe(place))
            else:
                self.left_out[place] = "orphan"
        return parent_of

    def _cut_cycles(self, parent_of: dict[int, int | None]) -> None:
        """Cut each cycle at its first node."""
        root = next((place for place, named in self.named.items() if not named), None)
        reaches_a_root: set[int] = set()
        for start in self.nodes:
            path: dict[int, int] = {}
            at: int | None = start
            while at is not None and at not in reaches_a_root and at not in path:
                path[at] = len(path)
                at = parent_of[at]
            if at in path:
                cut = min(list(path)[path[at] :])
                if self.policy.cycle == "root":
                    parent_of[cut] = root
                    self.counts.repair("cycle", self._describe(cut))
                else:
                    parent_of[cut] = None
                    self.left_out[cut] = "cycle"
            reaches_a_root |= path.keys()

    def _placed(self, place: int, parent_of: dict[int, int | None], inside: dict[int, int]) -> Node:
        parent = parent_of[place]
        return replace(self.nodes[place], parents=() if parent is None else (inside[parent],))

    def _skip(self, reason: str, place: int) -> None:
        self.counts.skip(reason, self._describe(place), count=int(self._was_read(place)))

    def _was_read(self, place: int) -> bool:
        return bool(self.named[place]) or not self.nodes[place].is_placeholder

    def _describe(self, place: int) -> str:
        return f"{self.where}: tree {self.tree_id!r}, node {self.nodes[place].id!r}"


def _parents_first(parent_of: dict[int, int | None]) -> list[int]:
    """Sort places so that parents precede their children, otherwise in the order of the line. There must be no cycles."""
    children: dict[int, list[int]] = {}
    for place, parent in parent_of.items():
        if parent is not None:
            children.setdefault(parent, []).append(place)
    ready = [place for place, parent in parent_of.items() if parent is None]
    heapify(ready)
    order = []
    while ready:
        place = heappop(ready)
        order.append(place)
        for child in children.get(place, ()):
            heappush(ready, child)
    return order
