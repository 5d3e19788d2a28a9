"""The functions of a graph: each computes a value from its parents' values and passes gradients back to them.

`forward` is x_j = f(x_i, …). `backward` is the vector–Jacobian product (CS 533, "vector form"): it takes z_j, the gradient of
the graph's output with respect to x_j, and returns one zᵀJ per parent without ever building J. It need not sum over broadcast
axes, because the graph does so for every function. Values are NumPy arrays of floats. Functions with `exact` also accept
arrays of `decimal.Decimal`, so constants are integers where possible.
"""

import decimal
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np

from ramify.autograd.errors import GraphError
from ramify.autograd.values import Array, full_like, is_decimal


class Parent(ABC):
    """A node that functions can be applied to."""

    __slots__ = ()

    @abstractmethod
    def child(self, function: "Function", parents: Sequence[Any]) -> Self:
        """Create the node of this function of the parents."""


ParentT = TypeVar("ParentT", bound=Parent)


class Function:
    """Computes a node's value from its parents' values. Called with nodes, it creates their child: `Add()(x, y)`."""

    name: str
    sign = ""
    """Its infix operator; a function without one is written name(…)."""
    exact = False
    """Whether it accepts `decimal.Decimal`."""

    forward: Callable[..., Array]
    """Maps the parents' values to the node's value."""
    backward: Callable[..., tuple[Array, ...]]
    """Maps z_j, x_j and the parents' values to one gradient per parent."""

    def __call__(self, *parents: ParentT) -> ParentT:
        return parents[0].child(self, parents)

    def write(self, *parents: str) -> str:
        """The formula in terms of the parents."""
        return f" {self.sign} ".join(parents) if self.sign else f"{self.name}({', '.join(parents)})"


def _elementwise(of_decimal: Callable[[Decimal], Decimal], of_floats: Callable[[Array], Array], a: Array) -> Array:
    """A function of each number of an array."""
    return np.vectorize(of_decimal, otypes=[object])(a) if is_decimal(a) else of_floats(a)


# --- arithmetic ----------------------------------------------------------------------------------------------------------


class Add(Function):
    name, sign, exact = "add", "+", True

    def forward(self, a: Array, b: Array) -> Array:
        return a + b

    def backward(self, z: Array, x: Array, a: Array, b: Array) -> tuple[Array, ...]:
        return z, z


class Subtract(Function):
    name, sign, exact = "sub", "-", True

    def forward(self, a: Array, b: Array) -> Array:
        return a - b

    def backward(self, z: Array, x: Array, a: Array, b: Array) -> tuple[Array, ...]:
        return z, -z


class Multiply(Function):
    name, sign, exact = "mul", "*", True

    def forward(self, a: Array, b: Array) -> Array:
        return a * b

    def backward(self, z: Array, x: Array, a: Array, b: Array) -> tuple[Array, ...]:
        return z * b, z * a


class Divide(Function):
    name, sign, exact = "div", "/", True

    def forward(self, a: Array, b: Array) -> Array:
        return a / b

    def backward(self, z: Array, x: Array, a: Array, b: Array) -> tuple[Array, ...]:
        return z / b, -z * x / b


class Negate(Function):
    name, exact = "neg", True

    def forward(self, a: Array) -> Array:
        return -a

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (-z,)

    def write(self, *parents: str) -> str:
        return f"-{parents[0]}"


def _power(a: Array, b: Any) -> Array:
    """a to the power b. It is 1 for b = 0 and any a; Decimal alone would reject 0**0."""
    return np.where(np.equal(b, 0), full_like(a, 1), a**b)


class PowerOf(Function):
    """A fixed power."""

    name, exact = "pow", True

    def __init__(self, exponent: int | float) -> None:
        self.exponent = exponent

    def forward(self, a: Array) -> Array:
        return _power(a, self.exponent)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        if self.exponent == 0:
            return (full_like(a, 0),)
        return (z * self.exponent * _power(a, self.exponent - 1),)

    def write(self, *parents: str) -> str:
        return f"{parents[0]}**{self.exponent}"


class Power(Function):
    """A power whose exponent is a node, too."""

    name, sign, exact = "pow", "**", True

    def forward(self, a: Array, b: Array) -> Array:
        return _power(*np.broadcast_arrays(a, b))

    def backward(self, z: Array, x: Array, a: Array, b: Array) -> tuple[Array, ...]:
        a, b = np.broadcast_arrays(a, b)
        # 0**b is constant for b > 0, although the logarithm of 0 is infinite.
        constant = (a == 0) & (b >= 0)
        of_exponent = np.where(constant, full_like(x, 0), x * Log().forward(np.where(constant, full_like(x, 1), a)))
        return np.where(b == 0, full_like(x, 0), z * b * _power(a, b - 1)), z * of_exponent


class MatMul(Function):
    """Like `numpy.matmul`: the last two axes are matrices; a vector is a row on the left and a column on the right."""

    name, sign, exact = "matmul", "@", True

    def forward(self, a: Array, b: Array) -> Array:
        if not a.ndim or not b.ndim:
            raise ValueError("a scalar has no rows and columns")
        return a @ b

    def backward(self, z: Array, x: Array, a: Array, b: Array) -> tuple[Array, ...]:
        rows = a[None, :] if a.ndim == 1 else a
        columns = b[:, None] if b.ndim == 1 else b
        z = z[..., None] if b.ndim == 1 else z
        z = z[..., None, :] if a.ndim == 1 else z
        to_a, to_b = z @ columns.swapaxes(-1, -2), rows.swapaxes(-1, -2) @ z
        return (to_a[..., 0, :] if a.ndim == 1 else to_a), (to_b[..., 0] if b.ndim == 1 else to_b)


# --- elementwise functions -----------------------------------------------------------------------------------------------


class Exp(Function):
    name, exact = "exp", True

    def forward(self, a: Array) -> Array:
        return np.exp(a)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (z * x,)


class Log(Function):
    name, exact = "log", True

    def forward(self, a: Array) -> Array:
        return _elementwise(Decimal.ln, np.log, a)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (z / a,)


class Sqrt(Function):
    name, exact = "sqrt", True

    def forward(self, a: Array) -> Array:
        return np.sqrt(a)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (z / (2 * x),)


MAX_ANGLE_DIGITS = 10_000
"""Most digits before the decimal point of a Decimal whose sine is computed: its remainder needs as many digits of π."""


def _pi() -> Decimal:
    """π to the context's precision, by the arithmetic–geometric mean (Brent 1976, Salamin 1976)."""
    a, b, t, p = Decimal(1), 1 / Decimal(2).sqrt(), Decimal(1) / 4, 1
    # Each step doubles the number of correct digits.
    for _ in range(decimal.getcontext().prec.bit_length() + 1):
        middle = (a + b) / 2
        b = (a * b).sqrt()
        t -= p * (a - middle) ** 2
        a, p = middle, 2 * p
    return (a + b) ** 2 / (4 * t)


def _decimal_sin(a: Decimal, quarters: int = 0) -> Decimal:
    """sin(a + quarters · π/2)."""
    if not a.is_finite():
        return Decimal("nan")
    if a.adjusted() > MAX_ANGLE_DIGITS:
        raise ValueError(f"an angle may have at most {MAX_ANGLE_DIGITS:,} digits before the decimal point")
    with decimal.localcontext() as context:
        # sin 3a = 3 sin a − 4 sin³ a: a third of the angle needs fewer terms, at the cost of a digit.
        thirds = math.isqrt(context.prec) // 2
        context.prec += max(0, a.adjusted()) + thirds + 5
        pi = _pi()
        angle = a + quarters * pi / 2
        angle -= 2 * pi * (angle / (2 * pi)).to_integral_value()
        angle /= 3**thirds
        term, total, power, square = angle, angle, 1, -angle * angle
        while term and term.adjusted() > total.adjusted() - context.prec:
            power += 2
            term = term * square / (power * (power - 1))
            total += term
        for _ in range(thirds):
            total = 3 * total - 4 * total**3
    return +total


class Sin(Function):
    name, exact = "sin", True

    def forward(self, a: Array) -> Array:
        return _elementwise(_decimal_sin, np.sin, a)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (z * Cos().forward(a),)


class Cos(Function):
    name, exact = "cos", True

    def forward(self, a: Array) -> Array:
        return _elementwise(partial(_decimal_sin, quarters=1), np.cos, a)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (-z * Sin().forward(a),)


class Abs(Function):
    """Its slope at 0 is 0, as in torch."""

    name, exact = "abs", True

    def forward(self, a: Array) -> Array:
        return np.abs(a)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (z * np.sign(a),)


def _sigmoid(a: Array) -> Array:
    # exp of a non-positive number cannot overflow.
    small = np.exp(-np.abs(a))
    return np.where(a >= 0, 1 / (1 + small), small / (1 + small))


class Sigmoid(Function):
    name, exact = "sigmoid", True

    def forward(self, a: Array) -> Array:
        return _sigmoid(a)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (z * x * (1 - x),)


def _decimal_tanh(a: Decimal) -> Decimal:
    if not a.is_finite():
        return a if a.is_nan() else Decimal(1).copy_sign(a)
    with decimal.localcontext() as context:
        # 1 - exp(-2a) loses one digit per zero after the decimal point of a.
        lost = max(0, -a.adjusted())
        if lost > context.prec:
            return +a
        context.prec += lost + 3
        small = (-2 * abs(a)).exp()
        precise = ((1 - small) / (1 + small)).copy_sign(a)
    return +precise


class Tanh(Function):
    name, exact = "tanh", True

    def forward(self, a: Array) -> Array:
        return _elementwise(_decimal_tanh, np.tanh, a)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (z * (1 - x * x),)


class ReLU(Function):
    """Its slope at 0 is 0, as in torch."""

    name, exact = "relu", True

    def forward(self, a: Array) -> Array:
        # The comparison is false for NaN, so NaN passes through.
        return np.where(a <= 0, full_like(a, 0), a)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (np.where(a <= 0, full_like(z, 0), z),)


_erf = np.vectorize(math.erf, otypes=[float])


class GELU(Function):
    """x Φ(x) (Hendrycks & Gimpel 2016), exact or by the tanh approximation of BERT's original code."""

    name = "gelu"

    def __init__(self, approximate: bool = False) -> None:
        self.approximate = approximate

    def forward(self, a: Array) -> Array:
        if self.approximate:
            return a / 2 * (1 + np.tanh(self._inner(a)))
        return a / 2 * (1 + _erf(a / math.sqrt(2)))

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        if self.approximate:
            t = np.tanh(self._inner(a))
            inner = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * a**2)
            return (z * ((1 + t) / 2 + a / 2 * (1 - t**2) * inner),)
        density = np.exp(-(a**2) / 2) / math.sqrt(2 * math.pi)
        return (z * ((1 + _erf(a / math.sqrt(2))) / 2 + a * density),)

    def _inner(self, a: Array) -> Array:
        return math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)


class Where(Function):
    """The first parent's value where the condition holds, else the second's."""

    name = "where"

    def __init__(self, condition: Array) -> None:
        self.condition = np.asarray(condition, dtype=bool)

    def forward(self, a: Array, b: Array) -> Array:
        return np.where(self.condition, a, b)

    def backward(self, z: Array, x: Array, a: Array, b: Array) -> tuple[Array, ...]:
        return np.where(self.condition, z, 0), np.where(self.condition, 0, z)


class Dropout(Function):
    """x · m / (1 − p), where `mask` is true for the elements that stay. A repeated forward pass uses the same mask.

    Args:
        p: The probability of an element to be dropped; a Decimal where the values are.
        arguments: The arguments after the value, as the formula writes them.
    """

    name, exact = "dropout", True

    def __init__(self, mask: Array, p: float | Decimal, arguments: str = "") -> None:
        if not 0 <= p < 1:
            raise GraphError(f"dropout p={p} is out of range. Use 0 <= p < 1.")
        self.scale = np.where(np.asarray(mask, dtype=bool), np.asarray(1 / (1 - p)), np.asarray(type(p)(0)))
        self.arguments = arguments or f"{p:g}"

    def forward(self, a: Array) -> Array:
        return a * self.scale

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (z * self.scale,)

    def write(self, *parents: str) -> str:
        return f"dropout({parents[0]}, {self.arguments})"


# --- along axes ----------------------------------------------------------------------------------------------------------

Axis = int | tuple[int, ...] | None


class Reduction(Function):
    """Reduces the elements along `axis` (None: all) to one; `keepdims` keeps the axis with length 1."""

    def __init__(self, axis: Axis = None, keepdims: bool = False) -> None:
        self.axis = axis
        self.keepdims = keepdims

    def spread(self, reduced: Array) -> Array:
        """Reshape reduced values so that they broadcast against the elements."""
        if self.axis is None or self.keepdims:
            return reduced
        return np.expand_dims(reduced, self.axis)

    def count(self, a: Array) -> int:
        """Number of elements that are reduced to one."""
        if self.axis is None:
            return a.size
        return math.prod(a.shape[axis] for axis in np.atleast_1d(self.axis).tolist())


class Sum(Reduction):
    name, exact = "sum", True

    def forward(self, a: Array) -> Array:
        return a.sum(axis=self.axis, keepdims=self.keepdims)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (np.broadcast_to(self.spread(z), a.shape),)


class Mean(Reduction):
    name, exact = "mean", True

    def forward(self, a: Array) -> Array:
        return np.asarray(a.sum(axis=self.axis, keepdims=self.keepdims)) / self.count(a)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (np.broadcast_to(self.spread(z / self.count(a)), a.shape),)


class Extreme(Reduction):
    """Elements that tie for the extreme share the gradient equally, as in torch.amax and torch.amin."""

    exact = True

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        extreme = a == self.spread(x)
        count = extreme.sum(axis=self.axis, keepdims=True)
        # NaN equals nothing, so the count is 0 and the gradient is 0/0 = NaN.
        return (extreme * (self.spread(z) / count),)


class Max(Extreme):
    name = "max"

    def forward(self, a: Array) -> Array:
        return a.max(axis=self.axis, keepdims=self.keepdims)


class Min(Extreme):
    name = "min"

    def forward(self, a: Array) -> Array:
        return a.min(axis=self.axis, keepdims=self.keepdims)


class ExtremeOf(Function):
    """The extreme of several values, element by element. Values that tie share the gradient equally, as in torch.maximum."""

    exact = True

    def __init__(self, extreme: type[Max] | type[Min]) -> None:
        self.extreme = extreme(axis=0)
        self.name = self.extreme.name

    def forward(self, *values: Array) -> Array:
        return self.extreme.forward(self._stacked(values))

    def backward(self, z: Array, x: Array, *values: Array) -> tuple[Array, ...]:
        (back,) = self.extreme.backward(z, x, self._stacked(values))
        return tuple(back)

    def _stacked(self, values: Sequence[Array]) -> Array:
        return np.stack(np.broadcast_arrays(*values))


class LogSumExp(Reduction):
    name = "logsumexp"

    def forward(self, a: Array) -> Array:
        highest = a.max(axis=self.axis, keepdims=True)
        # inf - inf is NaN.
        highest = np.where(np.isfinite(highest), highest, 0)
        total = np.log(np.exp(a - highest).sum(axis=self.axis, keepdims=True)) + highest
        return total if self.keepdims else np.squeeze(total, axis=self.axis)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (self.spread(z) * np.exp(a - self.spread(x)),)


class Softmax(Function):
    name, exact = "softmax", True

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, a: Array) -> Array:
        powers = np.asarray(np.exp(a - a.max(axis=self.axis, keepdims=True)))
        return powers / powers.sum(axis=self.axis, keepdims=True)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (x * (z - np.asarray(z * x).sum(axis=self.axis, keepdims=True)),)


class LayerNorm(Function):
    """(x − μ) / √(σ² + ε) · gain + bias along the last axis, with the biased variance σ² (Ba et al. 2016)."""

    name = "layernorm"

    def __init__(self, eps: float = 1e-5) -> None:
        self.eps = eps

    def forward(self, a: Array, gain: Array, bias: Array) -> Array:
        return self._normed(a)[0] * gain + bias

    def backward(self, z: Array, x: Array, a: Array, gain: Array, bias: Array) -> tuple[Array, ...]:
        normed, scale = self._normed(a)
        inner = z * gain
        along = (inner * normed).mean(axis=-1, keepdims=True)
        return (inner - inner.mean(axis=-1, keepdims=True) - normed * along) * scale, z * normed, z

    def _normed(self, a: Array) -> tuple[Array, Array]:
        centred = a - a.mean(axis=-1, keepdims=True)
        scale = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self.eps)
        return centred * scale, scale


# --- indexing and shapes -------------------------------------------------------------------------------------------------


class Index(Function):
    """Indexing by NumPy's rules."""

    name, exact = "index", True

    def __init__(self, key: Any) -> None:
        self.key = key

    def forward(self, a: Array) -> Array:
        return a[self.key]

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        back = full_like(a, 0)
        # An element that was selected several times gets the sum of their gradients.
        np.add.at(back, self.key, z)
        return (back,)


def _as_integers(values: Any, name: str) -> Array:
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise GraphError(f"{name} must be integers, not {array.dtype}.")
    return array.astype(np.int64)


class Embedding(Index):
    """Rows of a table."""

    name = "embedding"

    def __init__(self, ids: Any) -> None:
        super().__init__(_as_integers(ids, "the ids of an embedding"))


class Gather(Function):
    """Selects elements along an axis, one per entry of the index, as torch.gather does."""

    name = "gather"

    def __init__(self, index: Any, axis: int = -1) -> None:
        self.index = _as_integers(index, "the index of gather")
        self.axis = axis

    def forward(self, a: Array) -> Array:
        return a[self._indices(a)]

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        back = full_like(a, 0)
        np.add.at(back, self._indices(a), z)
        return (back,)

    def _indices(self, a: Array) -> tuple[Array, ...]:
        axis = self.axis % a.ndim
        sizes = zip(self.index.shape, a.shape, strict=False)
        fits = all(size <= limit for number, (size, limit) in enumerate(sizes) if number != axis)
        if self.index.ndim != a.ndim or not fits:
            raise ValueError(f"the index of shape {self.index.shape} must fit into the input along every axis but {self.axis}")
        indices: list[Array] = [*np.indices(self.index.shape, sparse=True)]
        indices[axis] = self.index
        return tuple(indices)


class Concatenate(Function):
    name, exact = "concat", True

    def __init__(self, axis: int = 0) -> None:
        self.axis = axis

    def forward(self, *values: Array) -> Array:
        return np.concatenate(values, axis=self.axis)

    def backward(self, z: Array, x: Array, *values: Array) -> tuple[Array, ...]:
        ends = np.cumsum([value.shape[self.axis] for value in values])
        return tuple(np.split(z, ends[:-1], axis=self.axis))


class Reshape(Function):
    name, exact = "reshape", True

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)

    def forward(self, a: Array) -> Array:
        return a.reshape(self.shape)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (z.reshape(a.shape),)


class Transpose(Function):
    """Permutes the axes (None: reverses them)."""

    name, exact = "transpose", True

    def __init__(self, axes: Sequence[int] | None = None) -> None:
        self.axes = None if axes is None else tuple(axes)

    def forward(self, a: Array) -> Array:
        return a.transpose(self.axes)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (z.transpose(None if self.axes is None else np.argsort([axis % a.ndim for axis in self.axes])),)


class Conv1d(Function):
    """Cross-correlation of [batch, channel, position] with filters [out, channel, width], plus a bias, as torch.nn.Conv1d."""

    name = "conv1d"

    def __init__(self, stride: int = 1, padding: int = 0) -> None:
        if stride < 1 or padding < 0:
            raise GraphError(f"conv1d stride={stride}, padding={padding} is out of range. Use stride >= 1 and padding >= 0.")
        self.stride = stride
        self.padding = padding

    def forward(self, a: Array, filters: Array, bias: Array) -> Array:
        if a.ndim != 3 or filters.ndim != 3 or a.shape[1] != filters.shape[1] or bias.shape != filters.shape[:1]:
            raise ValueError("it expects [batch, channel, position], filters [out, channel, width] and a bias [out]")
        return np.einsum("bcpw,ocw->bop", self._windows(self._padded(a), filters), filters) + bias[:, None]

    def backward(self, z: Array, x: Array, a: Array, filters: Array, bias: Array) -> tuple[Array, ...]:
        padded = self._padded(a)
        to_filters = np.einsum("bop,bcpw->ocw", z, self._windows(padded, filters))
        back = full_like(padded, 0)
        to_windows = np.einsum("bop,ocw->wbcp", z, filters)
        for offset, part in enumerate(to_windows):
            target = back[..., offset : offset + self.stride * (z.shape[-1] - 1) + 1 : self.stride]
            target += part
        return back[..., self.padding : padded.shape[-1] - self.padding], to_filters, z.sum(axis=(0, 2))

    def _padded(self, a: Array) -> Array:
        return np.pad(a, ((0, 0), (0, 0), (self.padding, self.padding)))

    def _windows(self, padded: Array, filters: Array) -> Array:
        return np.lib.stride_tricks.sliding_window_view(padded, filters.shape[-1], axis=-1)[:, :, :: self.stride]
