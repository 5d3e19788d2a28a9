"""Values of nodes: arrays of float64, or of `decimal.Decimal`."""

import decimal
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramify.autograd.errors import GraphError

Array = NDArray[Any]


def as_array(value: Any) -> Array:
    """Float64, or Decimals as they are.

    Raises:
        GraphError: it is not made of numbers.
    """
    if isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype is _FLOATS):
        return np.asarray(value)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise GraphError(f"a value must be a number, or rows of the same length: {error}.") from None
    if array.dtype == object and all(isinstance(each, Decimal) for each in array.flat):
        return array
    if array.dtype.kind not in "fiub":
        raise GraphError(f"a value must be made of numbers, and {value!r} is not.")
    return array.astype(np.float64, copy=False)


_OBJECTS = np.dtype(object)
_FLOATS = np.dtype(np.float64)


def read_decimal(text: str) -> Decimal:
    """A number of any size and length, as it stands there.

    Raises:
        ValueError: it is none.
    """
    with decimal.localcontext(Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN) as context:
        context.traps[decimal.InvalidOperation] = True
        try:
            found = Decimal(text)
        except decimal.InvalidOperation:
            raise ValueError(f"{text!r} is no number that decimals can hold") from None
    if found.is_snan():
        raise ValueError(f"{text!r} is no number to compute with")
    return found


def is_decimal(value: Array) -> bool:
    return value.dtype is _OBJECTS


def full_like(value: Array, number: int) -> Array:
    return np.full_like(value, Decimal(number) if is_decimal(value) else number)


def is_finite(value: Array) -> bool:
    if is_decimal(value):
        return all(each.is_finite() for each in value.flat)
    return bool(np.isfinite(value).all())


@contextmanager
def decimals(digits: int) -> Iterator[None]:
    """Inside, Decimals have so many digits, exponents as large as the machine can hold, and infinities like floats."""
    with decimal.localcontext(prec=digits, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN) as context:
        context.clear_traps()
        yield


def rounded(value: Array, digits: int) -> Array:
    """Decimals of so many digits."""
    with decimals(digits):
        return np.asarray(+value)
