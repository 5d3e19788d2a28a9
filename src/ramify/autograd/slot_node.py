"""Nodes as the course notes teach them (CS 533): every node computes its own value and passes its own gradient back.

x, y = SlotNode(1.0, "x"), SlotNode(2.0, "y")
c = Add()(x, y)      a function object creates a child; the child has no value yet, and its gradient slot holds 0
c.forward()          c.x = x.x + y.x
c.z = 1
c.backward()         x.z += c.z; y.z += c.z
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from ramify.autograd import functions as f
from ramify.autograd.graph import passed_back
from ramify.autograd.node import Node, compute
from ramify.autograd.values import Array, as_array, full_like, is_decimal


class SlotNode(Node):
    """A node whose two methods are the steps of the two passes. Gradients accumulate until `z` is set to 0."""

    __slots__ = ()

    def __init__(self, value: Any, name: str = "") -> None:
        super().__init__(value, name)
        self.gradient = full_like(self.known, 0)

    def __repr__(self) -> str:
        return f"SlotNode({self}, x={self.value}, z={self.z})"

    @property
    def x(self) -> Array:
        """The value.

        Raises:
            GraphError: `forward` has not computed it yet.
        """
        return self.known

    @property
    def z(self) -> Array:
        """The gradient slot."""
        return self.known_gradient

    @z.setter
    def z(self, value: Any) -> None:
        exact = is_decimal(self.known_gradient)
        self.gradient = np.asarray(np.asarray(value, dtype=object) * Decimal(1)) if exact else as_array(value)

    def child(self, function: f.Function, parents: Sequence[Any]) -> "SlotNode":
        node = SlotNode(Decimal(0) if any(is_decimal(parent.z) for parent in parents) else 0)
        node.value, node.function, node.parents = None, function, tuple(parents)
        return node

    def forward(self) -> None:
        """Compute the value from the parents' values. An input keeps its value.

        Raises:
            GraphError: a parent has no value yet.
        """
        if self.function:
            self.value = compute(self.function, self.parents)

    def backward(self) -> None:
        """Add this node's share to the gradient slot of each parent. An input has no parents."""
        if self.function:
            for parent, part in zip(self.parents, passed_back(self), strict=True):
                parent.z = parent.z + part
