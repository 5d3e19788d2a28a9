"""Layered graph drawing (Sugiyama et al. 1981): nodes in layers, with few crossings of arcs.

Arcs run along the layers. A spot's `across` is its position within its layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ramify.autograd.graph import Graph
from ramify.autograd.tensor import Tensor

BEND_ROOM = 30.0
"""Room of an arc that passes through a layer, in pixels."""
SWEEPS = 12
"""Number of passes over the layers, alternately from either side."""


@dataclass(eq=False)
class Spot:
    """The position of a node or, without one, a point that an arc passes through."""

    layer: int
    room: float
    """Its size within its layer, in pixels."""
    across: float = 0.0
    before: "list[Spot]" = field(default_factory=list)
    after: "list[Spot]" = field(default_factory=list)


@dataclass
class Layout:
    spots: dict[Tensor, Spot]
    arcs: dict[tuple[Tensor, int], list[Spot]]
    """The spots from parent to child, by child and the parent's number."""


def laid_out(graph: Graph[Tensor], node_room: float, *, inputs_first: bool) -> Layout:
    """`inputs_first`: whether all inputs are in the first layer. Otherwise each is one layer before its first child."""
    layers = _layers(graph, inputs_first)
    spots = {node: Spot(layers[node], node_room) for node in graph.nodes}
    arcs = {}
    all_spots = list(spots.values())
    for node in graph.nodes:
        for slot, parent in enumerate(node.parents):
            path = [spots[parent]]
            for layer in range(layers[parent] + 1, layers[node]):
                path.append(Spot(layer, BEND_ROOM))
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
    places = [spots[node].across for node in graph.inputs]
    sign = -1 if places and places[0] > places[-1] else 1
    first = min(sign * spot.across for spot in all_spots)
    for spot in all_spots:
        spot.across = sign * spot.across - first
    return Layout(spots, arcs)


def _layers(graph: Graph[Tensor], inputs_first: bool) -> dict[Tensor, int]:
    """Each node's layer: one more than its last parent's. A constant is one layer before its first child."""
    layers: dict[Tensor, int] = {}
    for node in graph.nodes:
        layers[node] = 1 + max((layers[parent] for parent in node.parents), default=-1)
    for node in graph.nodes:
        if (node.is_constant or not (inputs_first or node.function)) and graph.children[node]:
            layers[node] = min(layers[child] for child in graph.children[node]) - 1
    return layers


def _stack(column: Sequence[Spot]) -> None:
    across = 0.0
    for spot in column:
        spot.across = across
        across += spot.room


def _align(column: list[Spot], forward: bool) -> None:
    """Move every spot to the mean position of its neighbours, as far as the room allows."""

    def mean_position(spot: Spot) -> float:
        neighbours = (spot.before if forward else spot.after) or spot.before or spot.after
        return sum(neighbour.across for neighbour in neighbours) / len(neighbours) if neighbours else spot.across

    targets = {spot: mean_position(spot) for spot in column}
    column.sort(key=lambda spot: targets[spot])
    across = float("-inf")
    for spot in column:
        spot.across = max(targets[spot], across + spot.room / 2)
        across = spot.across + spot.room / 2
    # The loop moves spots only one way; shifting back keeps columns from drifting.
    shift = sum(targets[spot] - spot.across for spot in column) / max(len(column), 1)
    for spot in column:
        spot.across += shift
