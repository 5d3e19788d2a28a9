"""A node of a computation graph: what the passes over a graph read and write."""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import count
from typing import Any, Self

import numpy as np

from ramify.autograd import functions as f
from ramify.autograd.errors import GraphError
from ramify.autograd.values import Array, as_array, is_decimal

SERIALS = count()
"""Numbers the nodes in the order of their creation."""


class Node(f.Parent):
    """The node x_i of a graph. `value` is a_i; `gradient` is z_i = ∂x_ω/∂x_i after a backward pass."""

    __slots__ = ("function", "gradient", "is_constant", "name", "parents", "serial", "value")

    def __init__(self, value: Any, name: str = "", *, is_constant: bool = False) -> None:
        self.value: Array | None = as_array(value)
        self.gradient: Array | None = None
        self.function: f.Function | None = None
        self.parents: tuple[Self, ...] = ()
        self.name = name
        self.is_constant = is_constant
        self.serial = next(SERIALS)

    @property
    def op(self) -> str:
        """The name of the node's function, `input`, or `const` for a constant."""
        if self.function:
            return self.function.name
        return "const" if self.is_constant else "input"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.known.shape

    @property
    def known(self) -> Array:
        """The value, which must be present.

        Raises:
            GraphError: no pass has computed it yet.
        """
        if self.value is None:
            raise GraphError(f"{self} has no value yet.")
        return self.value

    @property
    def known_gradient(self) -> Array:
        """The gradient, which must be present.

        Raises:
            GraphError: no pass has computed it yet.
        """
        if self.gradient is None:
            raise GraphError(f"{self} has no gradient yet.")
        return self.gradient

    def item(self) -> Any:
        """The value of a scalar as a Python number."""
        return self.known.item()

    def __str__(self) -> str:
        return self.name or f"{self.op} (node {self.serial})"

    @abstractmethod
    def __repr__(self) -> str:
        """The class, the name and the value."""


def compute(function: f.Function, parents: Sequence[Node]) -> Array:
    """The value of a function of these parents. `numpy.errstate` controls warnings such as division by zero."""
    values = [parent.known for parent in parents]
    if any(map(is_decimal, values)):
        if not function.exact:
            raise GraphError(f"{function.name} does not support decimals.")
        if not all(map(is_decimal, values)):
            raise GraphError(f"{function.name} cannot mix floats and Decimals.")
    try:
        return np.asarray(function.forward(*values))
    except (ValueError, IndexError, TypeError, ArithmeticError) as error:
        shapes = " and ".join(f"{parent} of shape {parent.shape}" for parent in parents)
        raise GraphError(f"{function.name} cannot take {shapes}: {error}.") from None
