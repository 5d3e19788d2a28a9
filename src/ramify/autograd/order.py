"""Topological orders of a directed acyclic graph, given as a mapping from nodes to parents. No function recurses."""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from math import comb
from typing import TypeVar

from ramify.autograd.errors import GraphError

Node = TypeVar("Node", bound=Hashable)
Parents = Mapping[Node, Sequence[Node]]


def children(parents: Parents[Node]) -> dict[Node, list[Node]]:
    """The children of each node. A child that reads a node twice is listed twice.

    Raises:
        GraphError: a parent is not a node of the graph.
    """
    result: dict[Node, list[Node]] = {node: [] for node in parents}
    for node, node_parents in parents.items():
        for parent in node_parents:
            if parent not in result:
                raise GraphError(f"{node} has the parent {parent}, which is not a node of the graph.")
            result[parent].append(node)
    return result


def topological_order(parents: Parents[Node]) -> list[Node]:
    """Parents before children (Kahn 1962). Among the nodes that are ready, the first in the mapping comes first.

    Raises:
        GraphError: the graph has a cycle. The message names its nodes.
    """
    children_of = children(parents)
    nodes = list(parents)
    numbers = {node: number for number, node in enumerate(nodes)}
    waiting = {node: len(node_parents) for node, node_parents in parents.items()}
    ready = [number for number, node in enumerate(nodes) if not waiting[node]]
    order = []
    while ready:
        node = nodes[heappop(ready)]
        order.append(node)
        for child in children_of[node]:
            waiting[child] -= 1
            if not waiting[child]:
                heappush(ready, numbers[child])
    if len(order) < len(parents):
        raise GraphError("the graph has a cycle: " + " → ".join(map(str, _cycle(parents, waiting))) + ". Remove an arc.")
    return order


def _cycle(parents: Parents[Node], waiting: Mapping[Node, int]) -> list[Node]:
    """A cycle along the arcs. A node that never became ready has a parent that never did, so following these finds one."""
    node = next(candidate for candidate, count in waiting.items() if count)
    seen: dict[Node, int] = {}
    path = []
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        node = next(parent for parent in parents[node] if waiting[parent])
    return [node, *reversed(path[seen[node] :])]


def topological_orders(parents: Parents[Node]) -> Iterator[list[Node]]:
    """All topological orders, beginning with that of `topological_order`. There may be n!, so only use it for small graphs."""
    topological_order(parents)
    children_of = children(parents)
    nodes = list(parents)
    numbers = {node: number for number, node in enumerate(nodes)}
    waiting = {node: len(node_parents) for node, node_parents in parents.items()}
    ready = [number for number, node in enumerate(nodes) if not waiting[node]]
    order: list[Node] = []

    def append(node: Node) -> None:
        order.append(node)
        ready.remove(numbers[node])
        for child in children_of[node]:
            waiting[child] -= 1
            if not waiting[child]:
                insort(ready, numbers[child])

    def pop() -> Node:
        node = order.pop()
        for child in children_of[node]:
            if not waiting[child]:
                ready.remove(numbers[child])
            waiting[child] += 1
        insort(ready, numbers[node])
        return node

    lowest = 0
    while True:
        index = bisect_left(ready, lowest)
        if index < len(ready):
            append(nodes[ready[index]])
            lowest = 0
            continue
        if len(order) == len(nodes):
            yield list(order)
        if not order:
            return
        lowest = numbers[pop()] + 1


def count_orders(parents: Parents[Node]) -> int | None:
    """The number of topological orders, or None if counting them takes too long.

    The orders of the components are counted over the sets of nodes that can come first, and interleaved in every way.

    Raises:
        GraphError: the graph has a cycle.
    """
    topological_order(parents)
    total, nodes, steps = 1, 0, MAX_COUNT_STEPS
    for component in _components(parents):
        bits = {node: 1 << number for number, node in enumerate(component)}
        needs = {bits[node]: sum(bits[parent] for parent in {*parents[node]}) for node in component}
        size = len(component) // 8 + 1
        # Bytes are the keys, because hashes of large powers of two collide.
        ways = {bytes(size): 1}
        for _ in component:
            longer: dict[bytes, int] = {}
            for key, count in ways.items():
                steps -= size * len(component)
                if steps < 0:
                    return None
                first = int.from_bytes(key, "little")
                for bit, need in needs.items():
                    if not first & bit and first & need == need:
                        next_key = (first | bit).to_bytes(size, "little")
                        longer[next_key] = longer.get(next_key, 0) + count
            ways = longer
        nodes += len(component)
        total *= comb(nodes, len(component)) * sum(ways.values())
    return total


MAX_COUNT_STEPS = 10_000_000
"""Most sets of nodes that are tried, times their size in bytes."""


def _components(parents: Parents[Node]) -> Iterator[list[Node]]:
    """Sets of nodes between which there are no arcs."""
    children_of = children(parents)
    seen: set[Node] = set()
    for node in parents:
        component, waiting = [], [node]
        while waiting:
            if (reached := waiting.pop()) not in seen:
                seen.add(reached)
                component.append(reached)
                waiting += [*parents[reached], *children_of[reached]]
        if component:
            yield component


def check_order(parents: Parents[Node], order: Sequence[Node]) -> None:
    """Check that an order has every node of the graph once, parents before children.

    Raises:
        GraphError: a node comes before its parent, is missing, is unknown, or appears twice. The message names it.
    """
    seen: set[Node] = set()
    for node in order:
        if node not in parents:
            raise GraphError(f"{node} is not a node of the graph.")
        if node in seen:
            raise GraphError(f"{node} appears in the order twice.")
        for parent in parents[node]:
            if parent not in seen:
                raise GraphError(f"{node} comes before its parent {parent}.")
        seen.add(node)
    for node in parents:
        if node not in seen:
            raise GraphError(f"{node} is missing from the order.")
