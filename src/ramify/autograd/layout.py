"""Layered graph drawing (Sugiyama et al. 1981): nodes in layers from left to right, with few crossings of arcs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ramify.autograd.graph import Graph
from ramify.autograd.tensor import Tensor

NODE_HEIGHT = 74.0
"""Vertical room of a node within its layer, in pixels."""
BEND_HEIGHT = 30.0
"""Vertical room of an arc that passes through a layer, in pixels."""
SWEEPS = 12
"""Number of passes over the layers, alternately from either side."""


@dataclass(eq=False)
class Spot:
    """The position of a node or, without one, a point that an arc passes through."""

    layer: int
    node: Tensor | None = None
    y: float = 0.0
    before: "list[Spot]" = field(default_factory=list)
    after: "list[Spot]" = field(default_factory=list)

    @property
    def room(self) -> float:
        return NODE_HEIGHT if self.node else BEND_HEIGHT


@dataclass
class Layout:
    spots: dict[Tensor, Spot]
    arcs: dict[tuple[Tensor, int], list[Spot]]
    """The spots from parent to child, by child and the parent's number."""


def laid_out(graph: Graph[Tensor]) -> Layout:
    layers = _layers(graph)
    spots = {node: Spot(layers[node], node) for node in graph.nodes}
    arcs = {}
    all_spots = list(spots.values())
    for node in graph.nodes:
        for slot, parent in enumerate(node.parents):
            path = [spots[parent]]
            for layer in range(layers[parent] + 1, layers[node]):
                path.append(Spot(layer))
                all_spots.append(path[-1])
            path.append(spots[node])
            for left, right in pairwise(path):
                left.after.append(right)
                right.before.append(left)
            arcs[node, slot] = path
    columns: list[list[Spot]] = [[] for _ in range(max(layers.values()) + 1)]
    for spot in all_spots:
        columns[spot.layer].append(spot)
    for column in columns:
        _stack(column)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for column in columns if forward else reversed(columns):
            _align(column, forward)
    # Flip the picture if that puts the inputs into their order.
    heights = [spots[node].y for node in graph.inputs]
    sign = -1 if heights and heights[0] > heights[-1] else 1
    top = min(sign * spot.y for spot in all_spots)
    for spot in all_spots:
        spot.y = sign * spot.y - top
    return Layout(spots, arcs)


def _layers(graph: Graph[Tensor]) -> dict[Tensor, int]:
    """Each node's layer: one more than its last parent's. A constant is one layer before its first child."""
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


def _align(column: list[Spot], forward: bool) -> None:
    """Move every spot to the mean height of its neighbours, as far as the room allows."""

    def mean_height(spot: Spot) -> float:
        neighbours = (spot.before if forward else spot.after) or spot.before or spot.after
        return sum(neighbour.y for neighbour in neighbours) / len(neighbours) if neighbours else spot.y

    targets = {spot: mean_height(spot) for spot in column}
    column.sort(key=lambda spot: targets[spot])
    y = float("-inf")
    for spot in column:
        spot.y = max(targets[spot], y + spot.room / 2)
        y = spot.y + spot.room / 2
    # The loop moves spots only down; shifting back keeps columns from drifting.
    shift = sum(targets[spot] - spot.y for spot in column) / max(len(column), 1)
    for spot in column:
        spot.y += shift
