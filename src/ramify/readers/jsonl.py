"""Ramify's own JSON lines: one tree a line, see `Tree.to_json`."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

from ramify.errors import RamifyError
from ramify.readers import files
from ramify.readers.base import Policy, Report, lines, open_bytes
from ramify.tree import PLACEHOLDER, Node, Tree, node_fields, parse_json, tree_fields


def matches(path: Path, head: bytes) -> bool:
    line = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0]
    return line.startswith(b"{") and re.search(rb'"nodes"\s*:\s*\[', line) is not None


def read_jsonl(path: str | Path) -> Iterator[Tree]:
    """The trees of a JSON lines file, compressed or not, strictly: the first bad line raises with file and line."""
    return (tree for _, tree in numbered_trees(path))


def numbered_trees(path: str | Path) -> Iterator[tuple[int, Tree]]:
    """The trees of `read_jsonl`, each with the number of its line."""
    empty = True
    try:
        with open_bytes(Path(path)) as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    empty = False
                    yield number, Tree.from_json(line, where=f"{path}, line {number}")
    except OSError as error:
        raise RamifyError(f"{path} cannot be read: {error.strerror}. Expected JSON lines, one tree a line.") from None
    if empty:
        raise RamifyError(f"{path} holds no tree. Expected JSON lines, one tree a line.")


def read(paths: Sequence[Path], report: Report, *, policy: Policy) -> Iterator[Tree]:
    """A tree whose nodes do not fit together is mended as the policy says; what is no tree at all is skipped as one post.

    A tree without an id is called by its number in the input.
    """
    count = 0
    for path in files(paths):
        with open_bytes(path, report) as stream:
            number = 0
            for block in lines(stream, report, path):
                for line in block:
                    number += 1
                    if line.strip():
                        trees = _trees(line, str(count), f"{path}, line {number}", policy, report)
                        count += trees is not None
                        yield from trees or ()


def _trees(line: bytes, name: str, where: str, policy: Policy, report: Report) -> list[Tree] | None:
    """What a line's tree becomes; None where there is none."""
    reason = "bad_json"
    try:
        record = parse_json(line, where)
        reason = "bad_tree"
        entries, tree_id, meta = tree_fields(record, where)
    except RamifyError as error:
        report.read += 1
        report.skip(reason, str(error))
        return None
    if not entries:
        report.mend("empty_tree", f"{where}: tree {tree_id!r} has no nodes")
    try:
        tree = Tree.from_record(record, where)
        if len(tree.roots) < 2 or policy.two_roots == "forest" or _is_chat(entries):
            report.read += sum(not _is_made_up(node, node.parents) for node in tree.nodes)
            return [replace(tree, id=tree_id or name)] if entries else []
    except RamifyError:
        pass
    return _Draft(entries, tree_id or name, where, policy, report).trees(meta)


def _is_chat(entries: list[Any]) -> bool:
    """Reply trees name one parent a node. Where lists of them are named, several roots are meant."""
    return any(isinstance(entry, dict) and ("parents" in entry or entry.get("self_link")) for entry in entries)


def _is_made_up(node: Node, above: Sequence[int | str] | None) -> bool:
    return node.kind == PLACEHOLDER and not above and not node.text


MADE_UP = -1
"""The place of a root that the line does not hold."""


class _Draft:
    """The nodes of a tree that does not hold together, by their places in the line, while the policies are applied."""

    def __init__(self, entries: list[Any], name: str, where: str, policy: Policy, report: Report) -> None:
        self.name, self.where, self.policy, self.report = name, where, policy, report
        self.nodes: dict[int, Node] = {}
        self.named: dict[int, tuple[str, ...] | None] = {}
        self.parents: dict[int, list[int]] = {}
        self.left_out: dict[int, str] = {}
        """Place -> why. What hangs on it leaves with it."""
        self.is_forest = policy.two_roots == "forest" or _is_chat(entries)
        self._read(entries)

    def trees(self, meta: dict[str, Any]) -> list[Tree]:
        first = self._link()
        order = self._sorted(first)
        if self.policy.two_roots == "first" and not self.is_forest:
            further = (place for place, named in self.named.items() if not named and place != first)
            self.left_out |= dict.fromkeys(further, "two_roots")
        members: dict[int, dict[int, int]] = {}
        """Root of a tree -> place -> number in that tree."""
        tree_of: dict[int, int] = {}
        for place in order:
            above = self.parents[place]
            reason = self.left_out.get(place) or (self.left_out.get(above[0]) if above else None)
            if reason:
                self.left_out[place] = reason
                self._skip(reason, place)
                continue
            root = tree_of[above[0]] if above else first if self.is_forest else place
            if root == place != first:
                self.report.mend("split_roots", self._called(place))
            tree_of[place] = root
            inside = members.setdefault(root, {})
            inside[place] = len(inside)
        return [
            Tree(
                tuple(self._placed(place, inside) for place in inside),
                id=self.name if root == first else f"{self.name}/{self.nodes[root].id}",
                meta=meta if root == first else {},
            )
            for root, inside in members.items()
        ]

    def _read(self, entries: list[Any]) -> None:
        place_of: dict[str, int] = {}
        for place, entry in enumerate(entries):
            here = f"{self.where}: tree {self.name!r}, node "
            try:
                fields, named = node_fields(self._with_sound_time(entry, f"{here}{place}"), place, here)
            except RamifyError as error:
                self.report.read += 1
                self.report.skip("not_a_post", str(error))
                continue
            node = Node(**fields)
            self.report.read += not _is_made_up(node, named)
            if node.id in place_of:
                self.report.skip("duplicate_id", f"{here}{node.id!r}")
                if self.policy.duplicate_id == "first":
                    continue
                del self.nodes[place_of[node.id]], self.named[place_of[node.id]]
            place_of[node.id] = place
            self.nodes[place], self.named[place] = node, named

    def _with_sound_time(self, entry: Any, here: str) -> Any:
        try:
            float((entry.get("time") if isinstance(entry, dict) else None) or 0)
        except (TypeError, ValueError, OverflowError):
            self.report.mend("bad_time", here)
            return {**entry, "time": None}
        return entry

    def _link(self) -> int:
        """Ids to places; what answers nothing that is here is an orphan. The first root's place."""
        place_of = {node.id: place for place, node in self.nodes.items()}
        for place, named in self.named.items():
            self.parents[place] = list(dict.fromkeys(place_of[name] for name in named or () if name in place_of))
        root = next((place for place, named in self.named.items() if not named), None)
        if root is None and self.policy.missing_root == "drop":
            for place in self.nodes:
                self._skip("missing_root", place)
            self.nodes, self.named, self.parents = {}, {}, {}
            return MADE_UP
        if root is None:
            root = MADE_UP
            self.nodes[root] = Node(id=self.name if self.name not in place_of else f"{self.name}/root", kind=PLACEHOLDER)
            self.named[root], self.parents[root] = (), []
        for place, named in self.named.items():
            if not named or self.parents[place]:
                unknown = sum(name not in place_of for name in named or ())
                self.report.mend("bad_relation", self._called(place), count=unknown)
            elif self.policy.orphan == "root" or named == (self.name,):
                self.parents[place] = [root]
                # To name the tree is to name its root.
                self.report.mend("orphan", self._called(place), count=int(named != (self.name,)))
            else:
                self.left_out[place] = "orphan"
        return root

    def _sorted(self, root: int) -> list[int]:
        """In the order of the line, but parents first; rings are cut or left out."""
        children: dict[int, list[int]] = {place: [] for place in self.nodes}
        for place, above in self.parents.items():
            for each in above:
                children[each].append(place)
        waits_for = {place: len(above) for place, above in self.parents.items()}
        ready = [place for place, count in waits_for.items() if not count]
        heapify(ready)
        order: list[int] = []
        placed: set[int] = set()
        rest = sorted(self.nodes, reverse=True)
        while len(order) < len(self.nodes):
            if not ready:
                while rest[-1] in placed:
                    rest.pop()
                if self.policy.cycle == "drop":
                    for place in self.nodes.keys() - placed:
                        self._skip("cycle", place)
                    break
                ready.append(self._cut_ring(rest[-1], placed, root))
            place = heappop(ready)
            placed.add(place)
            order.append(place)
            for child in children[place]:
                waits_for[child] -= 1
                # What a ring was cut at still has its old parent above it.
                if not waits_for[child] and child not in placed:
                    heappush(ready, child)
        return order

    def _cut_ring(self, start: int, placed: set[int], root: int) -> int:
        """Hang the first node of the ring above `start` on the root."""
        path: dict[int, int] = {}
        at = start
        while at not in path:
            path[at] = len(path)
            at = next(above for above in self.parents[at] if above not in placed)
        cut = min(list(path)[path[at] :])
        self.parents[cut] = [root]
        self.report.mend("cycle", self._called(cut))
        return cut

    def _placed(self, place: int, inside: dict[int, int]) -> Node:
        above = tuple(inside[each] for each in self.parents[place] if each in inside)
        return replace(self.nodes[place], parents=None if self.named[place] is None else above)

    def _skip(self, reason: str, place: int) -> None:
        self.report.skip(reason, self._called(place), count=int(not _is_made_up(self.nodes[place], self.named[place])))

    def _called(self, place: int) -> str:
        return f"{self.where}: tree {self.name!r}, node {self.nodes[place].id!r}"
