"""Topological orders of a directed acyclic graph that is given as each node's parents. Nothing here recurses."""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import TypeVar

from ramify.autograd.errors import GraphError

Node = TypeVar("Node", bound=Hashable)
Parents = Mapping[Node, Sequence[Node]]


def children(parents: Parents[Node]) -> dict[Node, list[Node]]:
    """Where each node's arcs lead; a child that reads a node twice is there twice.

    Raises:
        GraphError: a parent is no node of the graph.
    """
    found: dict[Node, list[Node]] = {node: [] for node in parents}
    for node, above in parents.items():
        for parent in above:
            if parent not in found:
                raise GraphError(f"{node} reads {parent}, which is no node of the graph.")
            found[parent].append(node)
    return found


def topological_order(parents: Parents[Node]) -> list[Node]:
    """Parents before children (Kahn 1962): of all nodes that are ready, the one that the mapping names first.

    Raises:
        GraphError: there is a cycle; it is named.
    """
    below = children(parents)
    names = list(parents)
    place = {node: number for number, node in enumerate(names)}
    waiting = {node: len(above) for node, above in parents.items()}
    ready = [number for number, node in enumerate(names) if not waiting[node]]
    order = []
    while ready:
        node = names[heappop(ready)]
        order.append(node)
        for child in below[node]:
            waiting[child] -= 1
            if not waiting[child]:
                heappush(ready, place[child])
    if len(order) < len(parents):
        raise GraphError("the graph has a cycle: " + " → ".join(map(str, _cycle(parents, waiting))) + ".")
    return order


def _cycle(parents: Parents[Node], waiting: Mapping[Node, int]) -> list[Node]:
    """A cycle along the arcs. From a node that never became ready, parents that did not either lead into one."""
    node = next(each for each, count in waiting.items() if count)
    seen: dict[Node, int] = {}
    path = []
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        node = next(parent for parent in parents[node] if waiting[parent])
    return [node, *reversed(path[seen[node] :])]


def topological_orders(parents: Parents[Node]) -> Iterator[list[Node]]:
    """All orders, the one of `topological_order` first. There may be as many as n!: for small graphs."""
    topological_order(parents)
    below = children(parents)
    names = list(parents)
    numbers = {node: number for number, node in enumerate(names)}
    waiting = {node: len(above) for node, above in parents.items()}
    ready = [number for number, node in enumerate(names) if not waiting[node]]
    order: list[Node] = []

    def place(node: Node) -> None:
        order.append(node)
        ready.remove(numbers[node])
        for child in below[node]:
            waiting[child] -= 1
            if not waiting[child]:
                insort(ready, numbers[child])

    def take_back() -> Node:
        node = order.pop()
        for child in below[node]:
            if not waiting[child]:
                ready.remove(numbers[child])
            waiting[child] += 1
        insort(ready, numbers[node])
        return node

    least = 0
    while True:
        at = bisect_left(ready, least)
        if at < len(ready):
            place(names[ready[at]])
            least = 0
            continue
        if len(order) == len(names):
            yield list(order)
        if not order:
            return
        least = numbers[take_back()] + 1


def check_order(parents: Parents[Node], order: Sequence[Node]) -> None:
    """Raise where this is not an order of the graph's nodes with parents before children.

    Raises:
        GraphError: the first node that is out of place, and the parent that it is missing; or a node that is absent, unknown
            or there twice.
    """
    seen: set[Node] = set()
    for node in order:
        if node not in parents:
            raise GraphError(f"{node} is no node of the graph.")
        if node in seen:
            raise GraphError(f"{node} stands in the order twice.")
        for parent in parents[node]:
            if parent not in seen:
                raise GraphError(f"{node} stands before its parent {parent}.")
        seen.add(node)
    for node in parents:
        if node not in seen:
            raise GraphError(f"{node} is missing from the order.")
