"""The functions of a graph: what each computes from its parents' values, and what it passes back to them.

`forward` is x_j = f(x_i, …). `backward` is the vector–Jacobian product: given z_j, the gradient of the graph's output with
respect to x_j, one zᵀJ for every parent (CS 533, "vector form"); no Jacobian is ever built. What was broadcast need not be
summed here: the graph does that for all of them. Values are NumPy arrays of floats, or, for the plain arithmetic, of
`decimal.Decimal`; constants are therefore whole numbers wherever they can be.
"""

import decimal
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from ramify.autograd.errors import GraphError
from ramify.autograd.values import Array, full_like, is_decimal


class Function:
    """What a node does with its parents' values."""

    name: str
    sign = ""
    """How it is written, where it is not written as name(…)."""
    exact = False
    """Whether it can compute with `decimal.Decimal`."""

    forward: Callable[..., Array]
    """Of the parents' values."""
    backward: Callable[..., tuple[Array, ...]]
    """Of z_j, x_j and the parents' values: what goes to each parent."""

    def write(self, *parents: str) -> str:
        """As a formula of the parents."""
        return f" {self.sign} ".join(parents) if self.sign else f"{self.name}({', '.join(parents)})"


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
    """a to the b; 1 for b = 0, whatever a is, which Decimals see otherwise."""
    return np.where(np.equal(b, 0), full_like(a, 1), a**b)


class PowerOf(Function):
    """To a fixed power."""

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
    """To a power that is a node as well."""

    name, sign, exact = "pow", "**", True

    def forward(self, a: Array, b: Array) -> Array:
        return _power(*np.broadcast_arrays(a, b))

    def backward(self, z: Array, x: Array, a: Array, b: Array) -> tuple[Array, ...]:
        a, b = np.broadcast_arrays(a, b)
        # 0**b does not move with b > 0, though the logarithm of 0 is infinite.
        still = (a == 0) & (b >= 0)
        of_exponent = np.where(still, full_like(x, 0), x * Log().forward(np.where(still, full_like(x, 1), a)))
        return np.where(b == 0, full_like(x, 0), z * b * _power(a, b - 1)), z * of_exponent


class MatMul(Function):
    """As `numpy.matmul`: matrices are the last two axes, a vector is a row on the left and a column on the right."""

    name, sign, exact = "matmul", "@", True

    def forward(self, a: Array, b: Array) -> Array:
        if not a.ndim or not b.ndim:
            raise ValueError("a single number has no rows and columns")
        return a @ b

    def backward(self, z: Array, x: Array, a: Array, b: Array) -> tuple[Array, ...]:
        rows = a[None, :] if a.ndim == 1 else a
        columns = b[:, None] if b.ndim == 1 else b
        z = z[..., None] if b.ndim == 1 else z
        z = z[..., None, :] if a.ndim == 1 else z
        to_a, to_b = z @ columns.swapaxes(-1, -2), rows.swapaxes(-1, -2) @ z
        return (to_a[..., 0, :] if a.ndim == 1 else to_a), (to_b[..., 0] if b.ndim == 1 else to_b)


# --- of each element -----------------------------------------------------------------------------------------------------


class Exp(Function):
    name, exact = "exp", True

    def forward(self, a: Array) -> Array:
        return np.exp(a)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (z * x,)


class Log(Function):
    name, exact = "log", True

    def forward(self, a: Array) -> Array:
        return np.vectorize(Decimal.ln, otypes=[object])(a) if is_decimal(a) else np.log(a)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (z / a,)


class Sqrt(Function):
    name, exact = "sqrt", True

    def forward(self, a: Array) -> Array:
        return np.sqrt(a)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (z / (2 * x),)


def _sigmoid(a: Array) -> Array:
    # The exponential of what is not positive cannot overflow.
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
        # 1 - exp(-2a) loses as many digits as there are zeros behind the point.
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
        return np.vectorize(_decimal_tanh, otypes=[object])(a) if is_decimal(a) else np.tanh(a)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (z * (1 - x * x),)


class ReLU(Function):
    """Its slope at 0 is 0, as everywhere in the field."""

    name, exact = "relu", True

    def forward(self, a: Array) -> Array:
        # NaN is no number to be cut off.
        return np.where(a <= 0, full_like(a, 0), a)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (np.where(a <= 0, full_like(z, 0), z),)


_erf = np.vectorize(math.erf, otypes=[float])


class GELU(Function):
    """x Φ(x) (Hendrycks & Gimpel 2016): with the normal distribution itself, or as BERT's first code has it, by tanh."""

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
    """x · m / (1 − p): `mask` says which elements stay. It belongs to the function, so a second pass forward has the same."""

    name = "dropout"

    def __init__(self, mask: Array, p: float) -> None:
        if not 0 <= p < 1:
            raise GraphError(f"dropout needs a probability of at least 0 and below 1, not {p}.")
        self.scale = np.asarray(mask, dtype=bool) / (1 - p)

    def forward(self, a: Array) -> Array:
        return a * self.scale

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (z * self.scale,)


# --- along axes ----------------------------------------------------------------------------------------------------------

Axis = int | tuple[int, ...] | None


class Reduction(Function):
    """Several elements become one: along `axis` (None: all), which stays as an axis of one with `keepdims`."""

    def __init__(self, axis: Axis = None, keepdims: bool = False) -> None:
        self.axis = axis
        self.keepdims = keepdims

    def spread(self, reduced: Array) -> Array:
        """What there is once a group, broadcastable against the elements."""
        if self.axis is None or self.keepdims:
            return reduced
        return np.expand_dims(reduced, self.axis)

    def count(self, a: Array) -> int:
        """How many elements become one."""
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


class Max(Reduction):
    """Where several elements are the greatest, they share what comes back (as torch.amax has it)."""

    name, exact = "max", True

    def forward(self, a: Array) -> Array:
        return a.max(axis=self.axis, keepdims=self.keepdims)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        greatest = a == self.spread(x)
        count = greatest.sum(axis=self.axis, keepdims=True)
        # Among NaNs none is the greatest: nothing by nothing, for all of them.
        return (greatest * (self.spread(z) / count),)


class LogSumExp(Reduction):
    name = "logsumexp"

    def forward(self, a: Array) -> Array:
        highest = a.max(axis=self.axis, keepdims=True)
        # Infinities have no difference.
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
    """(x − μ) / √(σ² + ε) · gain + bias along the last axis, σ² biased (Ba et al. 2016)."""

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


# --- which elements stand where ------------------------------------------------------------------------------------------


class Index(Function):
    """Elements by NumPy's rules of indexing."""

    name, exact = "index", True

    def __init__(self, key: Any) -> None:
        self.key = key

    def forward(self, a: Array) -> Array:
        return a[self.key]

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        back = full_like(a, 0)
        # An element that was taken several times gets back from each.
        np.add.at(back, self.key, z)
        return (back,)


def _whole(numbers: Any, what: str) -> Array:
    found = np.asarray(numbers)
    if found.size and found.dtype.kind not in "iu":
        raise GraphError(f"{what} must be whole numbers.")
    return found.astype(np.int64)


class Embedding(Index):
    """Rows of a table."""

    name = "embedding"

    def __init__(self, ids: Any) -> None:
        super().__init__(_whole(ids, "the ids of an embedding"))


class Gather(Function):
    """Elements along an axis, one index for each that comes out; along the others as many as the index has (torch.gather)."""

    name = "gather"

    def __init__(self, index: Any, axis: int = -1) -> None:
        self.index = _whole(index, "the index of gather")
        self.axis = axis

    def forward(self, a: Array) -> Array:
        return a[self._places(a)]

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        back = full_like(a, 0)
        np.add.at(back, self._places(a), z)
        return (back,)

    def _places(self, a: Array) -> tuple[Array, ...]:
        axis = self.axis % a.ndim
        fits = all(own <= of for place, (own, of) in enumerate(zip(self.index.shape, a.shape, strict=False)) if place != axis)
        if self.index.ndim != a.ndim or not fits:
            raise ValueError(f"the index of shape {self.index.shape} reaches beyond it along another axis than {self.axis}")
        places: list[Array] = [*np.indices(self.index.shape, sparse=True)]
        places[axis] = self.index
        return tuple(places)


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
    """Axes in another order (None: backwards)."""

    name, exact = "transpose", True

    def __init__(self, axes: Sequence[int] | None = None) -> None:
        self.axes = None if axes is None else tuple(axes)

    def forward(self, a: Array) -> Array:
        return a.transpose(self.axes)

    def backward(self, z: Array, x: Array, a: Array) -> tuple[Array, ...]:
        return (z.transpose(None if self.axes is None else np.argsort([axis % a.ndim for axis in self.axes])),)


class Conv1d(Function):
    """Cross-correlation of [batch, channel, place] with filters [out, channel, width], and a bias (as torch.nn.Conv1d)."""

    name = "conv1d"

    def __init__(self, stride: int = 1, padding: int = 0) -> None:
        if stride < 1 or padding < 0:
            raise GraphError(f"conv1d needs a stride of at least 1 and no negative padding, not {stride} and {padding}.")
        self.stride = stride
        self.padding = padding

    def forward(self, a: Array, filters: Array, bias: Array) -> Array:
        if a.ndim != 3 or filters.ndim != 3 or a.shape[1] != filters.shape[1] or bias.shape != filters.shape[:1]:
            raise ValueError("it reads [batch, channel, place], filters [out, channel, width] and a bias [out]")
        return np.einsum("bcpw,ocw->bop", self._windows(self._padded(a), filters), filters) + bias[:, None]

    def backward(self, z: Array, x: Array, a: Array, filters: Array, bias: Array) -> tuple[Array, ...]:
        padded = self._padded(a)
        to_filters = np.einsum("bop,bcpw->ocw", z, self._windows(padded, filters))
        back = full_like(padded, 0)
        to_windows = np.einsum("bop,ocw->wbcp", z, filters)
        for place, part in enumerate(to_windows):
            own = back[..., place : place + self.stride * (z.shape[-1] - 1) + 1 : self.stride]
            own += part
        return back[..., self.padding : padded.shape[-1] - self.padding], to_filters, z.sum(axis=(0, 2))

    def _padded(self, a: Array) -> Array:
        return np.pad(a, ((0, 0), (0, 0), (self.padding, self.padding)))

    def _windows(self, padded: Array, filters: Array) -> Array:
        return np.lib.stride_tricks.sliding_window_view(padded, filters.shape[-1], axis=-1)[:, :, :: self.stride]
