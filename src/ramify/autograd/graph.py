"""Forward and backward passes over a directed acyclic graph, in topological order and in its reverse (CS 533)."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Generic, Literal, TypeVar, get_args

import numpy as np

from ramify.autograd import order as orders
from ramify.autograd.errors import GraphError
from ramify.autograd.node import Node, compute
from ramify.autograd.values import Array, full_like, is_finite

By = Literal["push", "pull"]
NodeT = TypeVar("NodeT", bound=Node)


class Graph(Generic[NodeT]):
    """One node, the output ω, and all its ancestors.

    `nodes` are in topological order, the order of their creation. `inputs` may add nodes on which the output does not depend;
    their gradient is 0.

    Raises:
        GraphError: the graph has a cycle. Only an assignment to `parents` can create one.
    """

    def __init__(self, output: NodeT, inputs: Sequence[NodeT] = ()) -> None:
        self.output = output
        self._passed: dict[NodeT, list[Array]] = {}
        self.nodes = sorted(_ancestors([output, *inputs]), key=lambda node: node.serial)
        numbers = {node: number for number, node in enumerate(self.nodes)}
        if any(numbers[parent] >= number for number, node in enumerate(self.nodes) for parent in node.parents):
            self.nodes = orders.topological_order({node: node.parents for node in self.nodes})

    @property
    def inputs(self) -> list[NodeT]:
        """The input nodes, without constants."""
        return [node for node in self.nodes if node.op == "input"]

    @property
    def parents(self) -> dict[NodeT, tuple[NodeT, ...]]:
        """pa(i). A node that reads a parent twice, as y · y does, lists it twice."""
        return {node: node.parents for node in self.nodes}

    @cached_property
    def children(self) -> dict[NodeT, list[NodeT]]:
        """ch(i)."""
        return orders.children(self.parents)

    def clear(self) -> None:
        """Reset the gradient of every node and the value of every node but inputs and constants."""
        for node in self.nodes:
            node.gradient = None
            if node.function:
                node.value = None

    # --- forward ---

    def forward(self, order: Sequence[NodeT] | None = None) -> Array:
        """Recompute every value from the inputs and return the output's."""
        for _ in self.forward_steps(order):
            pass
        return self.output.known

    def forward_steps(self, order: Sequence[NodeT] | None = None) -> Iterator[NodeT]:
        """Compute a_i = f_i(a of the parents) node by node; each node is yielded once it has its value.

        Raises:
            GraphError: the order reaches a node before one of its parents has a value.
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
        order: Sequence[NodeT] | None = None,
        *,
        by: By = "push",
        accumulate: bool = False,
        retain: bool = True,
    ) -> None:
        """Compute z_i = ∂x_ω/∂x_i for every node i.

        All gradients are reset first, so a second call gives the same result.

        Args:
            order: A topological order, which the pass visits in reverse.
            by: Whether every node passes gradients to its parents (push) or fetches them from its children (pull). Both give
                the same result.
            accumulate: Whether to add to the inputs' present gradients, as torch does.
            retain: Whether nodes other than inputs and constants keep their gradients.

        Raises:
            GraphError: the output has no value or more than one number, or the order is not a topological order.
        """
        before = {node: node.gradient for node in self.inputs} if accumulate else {}
        steps = self._start(order, by, None)
        with np.errstate(all="ignore"):
            for node in steps:
                self._visit(node, by)
            for node in self.nodes:
                if node.function and not retain:
                    node.gradient = None
                elif (previous := before.get(node)) is not None:
                    _add_to(node, previous)

    def backward_steps(
        self, order: Sequence[NodeT] | None = None, *, by: By = "push", z: Array | None = None
    ) -> Iterator[NodeT]:
        """Run the pass node by node; each node is yielded once its gradient is complete (and, with push, passed on).

        `z` replaces the output's gradient z_ω = 1; the output may then be an array.
        """
        return self._steps(self._start(order, by, z), by)

    def _steps(self, nodes: Sequence[NodeT], by: By) -> Iterator[NodeT]:
        for node in nodes:
            with np.errstate(all="ignore"):
                self._visit(node, by)
            yield node

    def _start(self, order: Sequence[NodeT] | None, by: By, z: Array | None) -> Sequence[NodeT]:
        """Reset all gradients but the output's and return the nodes in the order of the pass."""
        if by not in get_args(By):
            raise GraphError(f"by={by!r} is not a kind of backward pass. Use {' or '.join(map(repr, get_args(By)))}.")
        if order is not None:
            orders.check_order(self.parents, order)
        value = self.output.known
        if z is None and value.size != 1:
            raise GraphError(
                f"{self.output} has the shape {value.shape}, but a backward pass starts from a single number. Sum it first."
            )
        for node in self.nodes:
            node.gradient = None
        self._passed = {}
        self.output.gradient = full_like(value, 1) if z is None else z
        return list(self.nodes if order is None else order)[::-1]

    def _visit(self, node: NodeT, by: By) -> None:
        """Complete a node's gradient after its children were visited."""
        if by == "pull":
            self._pull(node)
        elif node.function and node.gradient is not None:
            self._push(node)
        if node.gradient is None:
            node.gradient = full_like(node.known, 0)
        elif node.function is None:
            # The gradient may share its memory with another node's.
            node.gradient = np.array(node.gradient)

    def _push(self, node: NodeT) -> None:
        for parent, part in zip(node.parents, passed_back(node), strict=True):
            _add_to(parent, part)

    def _pull(self, node: NodeT) -> None:
        for child in dict.fromkeys(self.children[node]):
            if child not in self._passed:
                self._passed[child] = passed_back(child)
            for parent, part in zip(child.parents, self._passed[child], strict=True):
                if parent is node:
                    _add_to(node, part)

    # --- inspection ---

    def _repr_html_(self) -> str | None:
        """The page of `ramify backprop --out`, for notebooks; None if the graph has no page (`drawing.as_page` says when)."""
        from ramify.autograd.drawing import as_frame

        try:
            return as_frame(self)
        except GraphError:
            return None

    def not_finite(self) -> list[tuple[NodeT, Literal["value", "gradient"]]]:
        """The nodes where infinities and NaNs begin: in the value but in no parent's, or in the gradient but in no child's."""
        result: list[tuple[NodeT, Literal["value", "gradient"]]] = []
        for node in self.nodes:
            if not _finite(node.value) and all(_finite(parent.value) for parent in node.parents):
                result.append((node, "value"))
        for node in reversed(self.nodes):
            if not _finite(node.gradient) and all(_finite(child.gradient) for child in self.children[node]):
                result.append((node, "gradient"))
        return result


def _ancestors(nodes: Sequence[NodeT]) -> set[NodeT]:
    """The nodes and all their ancestors."""
    seen, waiting = set(nodes), list(nodes)
    while waiting:
        for parent in waiting.pop().parents:
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return seen


def _add_to(node: Node, part: Array) -> None:
    node.gradient = part if node.gradient is None else np.asarray(node.gradient + part)


def passed_back(node: Node) -> list[Array]:
    """The gradients that a node passes back, one per parent and in the parent's shape. The node must have a gradient."""
    assert node.function is not None
    assert node.gradient is not None
    parts = node.function.backward(node.gradient, node.known, *(parent.known for parent in node.parents))
    return [_summed_to(part, parent.known.shape) for part, parent in zip(parts, node.parents, strict=True)]


def _summed_to(part: Array, shape: tuple[int, ...]) -> Array:
    """Sum a gradient over the axes that were broadcast, down to this shape."""
    part = np.asarray(part)
    if part.shape == shape:
        return part
    part = part.sum(axis=tuple(range(part.ndim - len(shape))))
    broadcast = tuple(axis for axis, size in enumerate(shape) if size == 1 and np.shape(part)[axis] != 1)
    return np.asarray(part.sum(axis=broadcast, keepdims=True)) if broadcast else np.asarray(part)


def _finite(value: Array | None) -> bool:
    return value is None or is_finite(value)
