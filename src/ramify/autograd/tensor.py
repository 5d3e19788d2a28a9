"""A node of a computation graph: its value, the function that made it, room for a gradient. Formulas make such nodes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from itertools import count
from typing import Any

import numpy as np

from ramify.autograd import functions as f
from ramify.autograd.errors import GraphError
from ramify.autograd.values import Array, as_array, is_decimal

_recording: ContextVar[bool] = ContextVar("_recording", default=True)
_serial = count()


@contextmanager
def no_grad() -> Iterator[None]:
    """What is computed inside remembers no parents: its results are inputs of whatever follows."""
    token = _recording.set(False)
    try:
        yield
    finally:
        _recording.reset(token)


class Tensor:
    """x_i of a graph. `value` is a_i, `gradient` is z_i = ∂x_ω/∂x_i once a backward pass has been there.

    Values are arrays of float64, or of `decimal.Decimal` (an array of objects) where those are given.
    """

    __array_ufunc__ = None
    """NumPy's arrays leave arithmetic with a tensor to the tensor."""
    __slots__ = ("function", "gradient", "is_constant", "name", "parents", "serial", "value")

    def __init__(self, value: Any, name: str = "", *, is_constant: bool = False) -> None:
        self.value: Array | None = as_array(value)
        self.gradient: Array | None = None
        self.function: f.Function | None = None
        self.parents: tuple[Tensor, ...] = ()
        self.name = name
        self.is_constant = is_constant
        self.serial = next(_serial)

    @property
    def op(self) -> str:
        """What makes the value: a function's name, `input`, or `const` for a number that stands in a formula."""
        if self.function:
            return self.function.name
        return "const" if self.is_constant else "input"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.known.shape

    @property
    def known(self) -> Array:
        """The value.

        Raises:
            GraphError: no pass has computed it.
        """
        if self.value is None:
            raise GraphError(f"{self} has no value yet.")
        return self.value

    @property
    def known_gradient(self) -> Array:
        """The gradient.

        Raises:
            GraphError: no pass has computed it.
        """
        if self.gradient is None:
            raise GraphError(f"{self} has no gradient yet.")
        return self.gradient

    def item(self) -> Any:
        """The value of a scalar, as Python's own number."""
        return self.known.item()

    def __str__(self) -> str:
        return self.name or f"{self.op} (node {self.serial})"

    def __repr__(self) -> str:
        shown = "not computed" if self.value is None else np.array2string(self.value, threshold=6, precision=6)
        return f"Tensor({self}, {shown})"

    def backward(self, *, accumulate: bool = False, retain: bool = True) -> None:
        """Gradients of this scalar with respect to every node that it hangs on (see `Graph.backward`)."""
        from ramify.autograd.graph import Graph

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

    def __matmul__(self, other: Any) -> "Tensor":
        return apply(f.MatMul(), self, other)

    def __rmatmul__(self, other: Any) -> "Tensor":
        return apply(f.MatMul(), other, self)

    def __getitem__(self, key: Any) -> "Tensor":
        return apply(f.Index(key), self)

    def __iter__(self) -> Iterator["Tensor"]:
        if not self.shape:
            raise GraphError(f"{self} is a single number, which has no parts.")
        return (self[number] for number in range(self.shape[0]))

    # --- what reads well behind a dot ---

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


def apply(function: f.Function, *parents: Any, name: str = "") -> Tensor:
    """The node that a function makes of its parents; what is no tensor becomes a constant.

    Raises:
        GraphError: their shapes do not fit, or the function has no decimal form.
    """
    if all(isinstance(each, Tensor) for each in parents):
        nodes: tuple[Tensor, ...] = parents
    else:
        exact = any(isinstance(each, Tensor) and is_decimal(each.known) for each in parents)
        nodes = tuple(each if isinstance(each, Tensor) else _constant(each, exact) for each in parents)
    node = Tensor.__new__(Tensor)
    node.value = compute(function, nodes)
    node.gradient = None
    node.function, node.parents = (function, nodes) if _recording.get() else (None, ())
    node.name = name
    node.is_constant = False
    node.serial = next(_serial)
    return node


def _constant(value: Any, exact: bool) -> Tensor:
    """Whole numbers among Decimals are such."""
    if exact and np.asarray(value).dtype.kind == "i":
        value = np.vectorize(Decimal, otypes=[object])(value)
    return Tensor(value, is_constant=True)


def compute(function: f.Function, parents: Sequence[Tensor]) -> Array:
    """A node's value. Whether a division by zero is warned of, is for `numpy.errstate` to say."""
    values = [parent.known for parent in parents]
    if any(map(is_decimal, values)):
        if not function.exact:
            raise GraphError(f"{function.name} has no decimal form.")
        if not all(map(is_decimal, values)):
            raise GraphError(f"{function.name} cannot take floats and Decimals together.")
    try:
        return np.asarray(function.forward(*values))
    except (ValueError, IndexError, TypeError, ArithmeticError) as error:
        shapes = " and ".join(f"{parent} of shape {parent.shape}" for parent in parents)
        raise GraphError(f"{function.name} cannot take {shapes}: {error}.") from None


# --- functions of tensors ---------------------------------------------------------------------------------------------------


def exp(a: Any) -> Tensor:
    return apply(f.Exp(), a)


def log(a: Any) -> Tensor:
    return apply(f.Log(), a)


def sqrt(a: Any) -> Tensor:
    return apply(f.Sqrt(), a)


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
    """x · m / (1 − p); draw `mask` with the chance 1 − p of a one, with whatever generator is to be replayed."""
    return apply(f.Dropout(mask, p), a)


def conv1d(a: Any, filters: Any, bias: Any, stride: int = 1, padding: int = 0) -> Tensor:
    return apply(f.Conv1d(stride, padding), a, filters, bias)
