"""A node with the arithmetic that creates further nodes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from typing import Any

import numpy as np

from ramify.autograd import functions as f
from ramify.autograd.errors import GraphError
from ramify.autograd.graph import Graph
from ramify.autograd.node import SERIALS, Node, compute
from ramify.autograd.values import is_decimal

_recording: ContextVar[bool] = ContextVar("_recording", default=True)


@contextmanager
def no_grad() -> Iterator[None]:
    """Do not record parents inside this context: its results become inputs of later computations."""
    token = _recording.set(False)
    try:
        yield
    finally:
        _recording.reset(token)


class Tensor(Node):
    """The node x_i of a graph. `value` is a_i; `gradient` is z_i = ∂x_ω/∂x_i after a backward pass.

    Values are arrays of float64 or, if given as such, of `decimal.Decimal` (dtype object).
    """

    __array_ufunc__ = None
    """Makes NumPy arrays leave arithmetic with a tensor to the tensor."""
    __slots__ = ()

    def __repr__(self) -> str:
        shown = "not computed" if self.value is None else np.array2string(self.value, threshold=6, precision=6)
        return f"Tensor({self}, {shown})"

    def _repr_html_(self) -> str | None:
        """The page of the graph of this tensor, for notebooks. An input has none."""
        return Graph(self)._repr_html_() if self.function else None

    def child(self, function: f.Function, parents: Sequence[Any]) -> "Tensor":
        return apply(function, *parents)

    def backward(self, *, accumulate: bool = False, retain: bool = True) -> None:
        """Compute the gradients of this scalar with respect to all its ancestors (see `Graph.backward`)."""
        Graph(self).backward(accumulate=accumulate, retain=retain)

    # --- arithmetic ---

    def __add__(self, other: Any) -> "Tensor":
        return apply(f.Add(), self, other)

    def __radd__(self, other: Any) -> "Tensor":
        return apply(f.Add(), other, self)

    def __sub__(self, other: Any) -> "Tensor":
        return apply(f.Subtract(), self, other)

    def __rsub__(self, other: Any) -> "Tensor":
        return apply(f.Subtract(), other, self)

    def __mul__(self, other: Any) -> "Tensor":
        return apply(f.Multiply(), self, other)

    def __rmul__(self, other: Any) -> "Tensor":
        return apply(f.Multiply(), other, self)

    def __truediv__(self, other: Any) -> "Tensor":
        return apply(f.Divide(), self, other)

    def __rtruediv__(self, other: Any) -> "Tensor":
        return apply(f.Divide(), other, self)

    def __neg__(self) -> "Tensor":
        return apply(f.Negate(), self)

    def __pow__(self, exponent: Any) -> "Tensor":
        if isinstance(exponent, int | float):
            return apply(f.PowerOf(exponent), self)
        return apply(f.Power(), self, exponent)

    def __rpow__(self, base: Any) -> "Tensor":
        return apply(f.Power(), base, self)

    def __abs__(self) -> "Tensor":
        return apply(f.Abs(), self)

    def __matmul__(self, other: Any) -> "Tensor":
        return apply(f.MatMul(), self, other)

    def __rmatmul__(self, other: Any) -> "Tensor":
        return apply(f.MatMul(), other, self)

    def __getitem__(self, key: Any) -> "Tensor":
        return apply(f.Index(key), self)

    def __iter__(self) -> Iterator["Tensor"]:
        if not self.shape:
            raise GraphError(f"{self} is a single number, which cannot be iterated over.")
        return (self[number] for number in range(self.shape[0]))

    # --- shapes and reductions ---

    def reshape(self, *shape: int) -> "Tensor":
        return apply(f.Reshape(shape), self)

    def transpose(self, *axes: int) -> "Tensor":
        return apply(f.Transpose(axes or None), self)

    def sum(self, axis: f.Axis = None, keepdims: bool = False) -> "Tensor":
        return apply(f.Sum(axis, keepdims), self)

    def mean(self, axis: f.Axis = None, keepdims: bool = False) -> "Tensor":
        return apply(f.Mean(axis, keepdims), self)

    def max(self, axis: f.Axis = None, keepdims: bool = False) -> "Tensor":
        return apply(f.Max(axis, keepdims), self)

    def min(self, axis: f.Axis = None, keepdims: bool = False) -> "Tensor":
        return apply(f.Min(axis, keepdims), self)


def apply(function: f.Function, *parents: Any, name: str = "") -> Tensor:
    """Create the node that applies a function to its parents. A parent that is not a tensor becomes a constant.

    Raises:
        GraphError: the shapes do not fit, or the function does not support decimals.
    """
    if all(isinstance(parent, Tensor) for parent in parents):
        nodes: tuple[Tensor, ...] = parents
    else:
        exact = any(isinstance(parent, Tensor) and is_decimal(parent.known) for parent in parents)
        nodes = tuple(parent if isinstance(parent, Tensor) else _constant(parent, exact) for parent in parents)
    node = Tensor.__new__(Tensor)
    node.value = compute(function, nodes)
    node.gradient = None
    node.function, node.parents = (function, nodes) if _recording.get() else (None, ())
    node.name = name
    node.is_constant = False
    node.serial = next(SERIALS)
    return node


def _constant(value: Any, exact: bool) -> Tensor:
    """A constant node; `exact` turns integers into Decimals."""
    if exact and np.asarray(value).dtype.kind == "i":
        value = np.vectorize(Decimal, otypes=[object])(value)
    return Tensor(value, is_constant=True)


# --- functions of tensors ---------------------------------------------------------------------------------------------------


def exp(a: Any) -> Tensor:
    return apply(f.Exp(), a)


def log(a: Any) -> Tensor:
    return apply(f.Log(), a)


def sqrt(a: Any) -> Tensor:
    return apply(f.Sqrt(), a)


def sin(a: Any) -> Tensor:
    return apply(f.Sin(), a)


def cos(a: Any) -> Tensor:
    return apply(f.Cos(), a)


def maximum(*values: Any) -> Tensor:
    return apply(f.ExtremeOf(f.Max), *values)


def minimum(*values: Any) -> Tensor:
    return apply(f.ExtremeOf(f.Min), *values)


def tanh(a: Any) -> Tensor:
    return apply(f.Tanh(), a)


def sigmoid(a: Any) -> Tensor:
    return apply(f.Sigmoid(), a)


def relu(a: Any) -> Tensor:
    return apply(f.ReLU(), a)


def gelu(a: Any, approximate: bool = False) -> Tensor:
    return apply(f.GELU(approximate), a)


def softmax(a: Any, axis: int = -1) -> Tensor:
    return apply(f.Softmax(axis), a)


def logsumexp(a: Any, axis: f.Axis = -1, keepdims: bool = False) -> Tensor:
    return apply(f.LogSumExp(axis, keepdims), a)


def layernorm(a: Any, gain: Any, bias: Any, eps: float = 1e-5) -> Tensor:
    return apply(f.LayerNorm(eps), a, gain, bias)


def embedding(table: Any, ids: Any) -> Tensor:
    return apply(f.Embedding(ids), table)


def gather(a: Any, index: Any, axis: int = -1) -> Tensor:
    return apply(f.Gather(index, axis), a)


def concat(parts: Sequence[Any], axis: int = 0) -> Tensor:
    return apply(f.Concatenate(axis), *parts)


def where(condition: Any, a: Any, b: Any) -> Tensor:
    return apply(f.Where(condition), a, b)


def dropout(a: Any, mask: Any, p: float) -> Tensor:
    """x · m / (1 − p). The caller draws `mask`, whose entries are true with probability 1 − p."""
    return apply(f.Dropout(mask, p), a)


def conv1d(a: Any, filters: Any, bias: Any, stride: int = 1, padding: int = 0) -> Tensor:
    return apply(f.Conv1d(stride, padding), a, filters, bias)
