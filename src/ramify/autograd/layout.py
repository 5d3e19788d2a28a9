"""Where the nodes of a graph stand in a picture: in layers from left to right, arcs crossing as little as a few sweeps can do
(Sugiyama et al. 1981)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ramify.autograd.graph import Graph
from ramify.autograd.tensor import Tensor

DOWN = 74.0
"""From node to node within a layer; pixels."""
BEND = 30.0
"""What an arc needs where it passes through a layer."""
SWEEPS = 12


@dataclass(eq=False)
class Spot:
    """A node's place, or (without a node) a place that an arc passes through."""

    layer: int
    node: Tensor | None = None
    y: float = 0.0
    before: "list[Spot]" = field(default_factory=list)
    after: "list[Spot]" = field(default_factory=list)

    @property
    def room(self) -> float:
        return DOWN if self.node else BEND


@dataclass
class Layout:
    spots: dict[Tensor, Spot]
    arcs: dict[tuple[Tensor, int], list[Spot]]
    """By child and which of its parents it comes from: the spots from the parent to the child."""


def laid_out(graph: Graph) -> Layout:
    layers = _layers(graph)
    spots = {node: Spot(layers[node], node) for node in graph.nodes}
    arcs = {}
    every = list(spots.values())
    for node in graph.nodes:
        for slot, parent in enumerate(node.parents):
            way = [spots[parent]]
            for layer in range(layers[parent] + 1, layers[node]):
                way.append(Spot(layer))
                every.append(way[-1])
            way.append(spots[node])
            for left, right in pairwise(way):
                left.after.append(right)
                right.before.append(left)
            arcs[node, slot] = way
    columns: list[list[Spot]] = [[] for _ in range(max(layers.values()) + 1)]
    for spot in every:
        columns[spot.layer].append(spot)
    for column in columns:
        _stack(column)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for column in columns if forward else reversed(columns):
            _settle(column, forward)
    # A picture upside down is as good, and its inputs may stand in their order.
    given = [spots[node].y for node in graph.inputs]
    up = -1 if given and given[0] > given[-1] else 1
    top = min(up * spot.y for spot in every)
    for spot in every:
        spot.y = up * spot.y - top
    return Layout(spots, arcs)


def _layers(graph: Graph) -> dict[Tensor, int]:
    """One more than the furthest parent's; what has no parents stands right before its first child."""
    layers: dict[Tensor, int] = {}
    for node in graph.nodes:
        layers[node] = 1 + max((layers[parent] for parent in node.parents), default=-1)
    for node in graph.nodes:
        if node.is_constant and graph.children[node]:
            layers[node] = min(layers[child] for child in graph.children[node]) - 1
    return layers


def _stack(column: Sequence[Spot]) -> None:
    y = 0.0
    for spot in column:
        spot.y = y
        y += spot.room


def _settle(column: list[Spot], forward: bool) -> None:
    """Everyone to the middle of its neighbours, as far as there is room."""

    def wish(spot: Spot) -> float:
        near = (spot.before if forward else spot.after) or spot.before or spot.after
        return sum(each.y for each in near) / len(near) if near else spot.y

    wishes = {spot: wish(spot) for spot in column}
    column.sort(key=lambda spot: wishes[spot])
    y = float("-inf")
    for spot in column:
        spot.y = max(wishes[spot], y + spot.room / 2)
        y = spot.y + spot.room / 2
    # Pushing down alone would let every column slide away.
    shift = sum(wishes[spot] - spot.y for spot in column) / max(len(column), 1)
    for spot in column:
        spot.y += shift
