"""Forward and backward as passes over a directed acyclic graph, in topological order and in the reverse (CS 533)."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from ramify.autograd import order as orders
from ramify.autograd.errors import GraphError
from ramify.autograd.tensor import Tensor, compute
from ramify.autograd.values import Array, full_like, is_finite

By = Literal["push", "pull"]


class Graph:
    """Everything that one node, the output ω, hangs on.

    `nodes` are in a topological order, the one in which they were made. `inputs` may name further nodes, on which the output
    need not hang: their gradient is then 0.

    Raises:
        GraphError: there is a cycle, which only a hand that changed `parents` can have made.
    """

    def __init__(self, output: Tensor, inputs: Sequence[Tensor] = ()) -> None:
        self.output = output
        self._passed: dict[Tensor, list[Array]] = {}
        self.nodes = sorted(_reached([output, *inputs]), key=lambda node: node.serial)
        place = {node: number for number, node in enumerate(self.nodes)}
        if any(place[parent] >= number for number, node in enumerate(self.nodes) for parent in node.parents):
            self.nodes = orders.topological_order({node: node.parents for node in self.nodes})

    @property
    def inputs(self) -> list[Tensor]:
        """What is given; constants are not among them."""
        return [node for node in self.nodes if node.op == "input"]

    @property
    def parents(self) -> dict[Tensor, tuple[Tensor, ...]]:
        """pa(i). An arc that is doubled, as in y · y, is there twice."""
        return {node: node.parents for node in self.nodes}

    @cached_property
    def children(self) -> dict[Tensor, list[Tensor]]:
        """ch(i)."""
        return orders.children(self.parents)

    def clear(self) -> None:
        """Forget every value but the inputs', and every gradient."""
        for node in self.nodes:
            node.gradient = None
            if node.function:
                node.value = None

    # --- forward ---

    def forward(self, order: Sequence[Tensor] | None = None) -> Array:
        """Compute every value anew from the inputs', and give the output's."""
        for _ in self.forward_steps(order):
            pass
        return self.output.known

    def forward_steps(self, order: Sequence[Tensor] | None = None) -> Iterator[Tensor]:
        """a_i = f_i(a of the parents), node by node: each is yielded when its value is there.

        Raises:
            GraphError: by a wrong order, a node's turn comes before a parent has a value.
        """
        self.clear()
        for node in self.nodes if order is None else order:
            if node.function:
                for parent in node.parents:
                    if parent.value is None:
                        raise GraphError(f"{node} cannot be computed yet: its parent {parent} has no value.")
                node.value = compute(node.function, node.parents)
            yield node

    # --- backward ---

    def backward(
        self,
        order: Sequence[Tensor] | None = None,
        *,
        by: By = "push",
        accumulate: bool = False,
        retain: bool = True,
    ) -> None:
        """z_i = ∂x_ω/∂x_i for every node i, from the output up.

        Twice is as once: all gradients start from nothing.

        Args:
            order: A topological order; it is gone through in reverse.
            by: Every node hands on to its parents (push), or fetches from its children (pull). Both give the same.
            accumulate: What the inputs already have is added to, as torch does.
            retain: Otherwise only the inputs keep a gradient.

        Raises:
            GraphError: the output is no single number, or has no value; the order is no topological order.
        """
        before = {node: node.gradient for node in self.inputs} if accumulate else {}
        going = self._start(order, by, None)
        with np.errstate(all="ignore"):
            for node in going:
                self._visit(node, by)
            for node in self.nodes:
                if node.function and not retain:
                    node.gradient = None
                elif (had := before.get(node)) is not None:
                    _add_to(node, had)

    def backward_steps(
        self, order: Sequence[Tensor] | None = None, *, by: By = "push", z: Array | None = None
    ) -> Iterator[Tensor]:
        """The pass node by node: each is yielded when its gradient is complete (and, by push, handed on).

        `z`: what the output's gradient is to be in the place of z_ω = 1; then the output may be an array.
        """
        return self._steps(self._start(order, by, z), by)

    def _steps(self, going: Sequence[Tensor], by: By) -> Iterator[Tensor]:
        for node in going:
            with np.errstate(all="ignore"):
                self._visit(node, by)
            yield node

    def _start(self, order: Sequence[Tensor] | None, by: By, z: Array | None) -> Sequence[Tensor]:
        """The nodes as they are to be gone through, none but the output having a gradient."""
        if by not in get_args(By):
            raise GraphError(f"a backward pass goes by {' or '.join(get_args(By))}, not {by!r}.")
        if order is not None:
            orders.check_order(self.parents, order)
        value = self.output.known
        if z is None and value.size != 1:
            raise GraphError(
                f"backward starts from a single number, and {self.output} has the shape {value.shape}: sum it first."
            )
        for node in self.nodes:
            node.gradient = None
        self._passed = {}
        self.output.gradient = full_like(value, 1) if z is None else z
        return list(self.nodes if order is None else order)[::-1]

    def _visit(self, node: Tensor, by: By) -> None:
        """Complete a node's gradient, its children having been visited."""
        if by == "pull":
            self._fetch(node)
        elif node.function and node.gradient is not None:
            self._hand_on(node)
        if node.gradient is None:
            node.gradient = full_like(node.known, 0)
        elif node.function is None:
            # What is handed on may be a view of, or the very same array as, another node's.
            node.gradient = np.array(node.gradient)

    def _hand_on(self, node: Tensor) -> None:
        for parent, part in zip(node.parents, passed_back(node), strict=True):
            _add_to(parent, part)

    def _fetch(self, node: Tensor) -> None:
        for child in dict.fromkeys(self.children[node]):
            if child not in self._passed:
                self._passed[child] = passed_back(child)
            for parent, part in zip(child.parents, self._passed[child], strict=True):
                if parent is node:
                    _add_to(node, part)

    # --- what went wrong ---

    def not_finite(self) -> list[tuple[Tensor, Literal["value", "gradient"]]]:
        """Where infinities and NaNs begin: nodes with such a value, though their parents have none; and nodes with such a
        gradient, though their children have none."""
        found: list[tuple[Tensor, Literal["value", "gradient"]]] = []
        for node in self.nodes:
            if not _finite(node.value) and all(_finite(parent.value) for parent in node.parents):
                found.append((node, "value"))
        for node in reversed(self.nodes):
            if not _finite(node.gradient) and all(_finite(child.gradient) for child in self.children[node]):
                found.append((node, "gradient"))
        return found


def _reached(ends: Sequence[Tensor]) -> set[Tensor]:
    seen, waiting = set(ends), list(ends)
    while waiting:
        for parent in waiting.pop().parents:
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return seen


def _add_to(node: Tensor, part: Array) -> None:
    node.gradient = part if node.gradient is None else np.asarray(node.gradient + part)


def passed_back(node: Tensor) -> list[Array]:
    """What a node that has a gradient passes back to each of its parents, in their shapes."""
    assert node.function is not None
    assert node.gradient is not None
    parts = node.function.backward(node.gradient, node.known, *(parent.known for parent in node.parents))
    return [_summed_to(part, parent.known.shape) for part, parent in zip(parts, node.parents, strict=True)]


def _summed_to(part: Array, shape: tuple[int, ...]) -> Array:
    """An element that was broadcast to several places gets back from all of them."""
    part = np.asarray(part)
    if part.shape == shape:
        return part
    part = part.sum(axis=tuple(range(part.ndim - len(shape))))
    stretched = tuple(axis for axis, size in enumerate(shape) if size == 1 and np.shape(part)[axis] != 1)
    return np.asarray(part.sum(axis=stretched, keepdims=True)) if stretched else np.asarray(part)


def _finite(value: Array | None) -> bool:
    return value is None or is_finite(value)
