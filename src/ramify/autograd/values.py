"""Values of nodes: arrays of float64 or of `decimal.Decimal`."""

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
    """Convert to an array of float64; Decimals stay Decimals.

    Raises:
        GraphError: the value does not consist of numbers.
    """
    if isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype is _FLOATS):
        return np.asarray(value)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise GraphError(f"a value must be a number, or rows of the same length: {error}.") from None
    if array.dtype == object and all(isinstance(number, Decimal) for number in array.flat):
        return array
    if array.dtype.kind not in "fiub":
        raise GraphError(f"a value must be made of numbers, not {value!r}.")
    return array.astype(np.float64, copy=False)


_OBJECTS = np.dtype(object)
_FLOATS = np.dtype(np.float64)


def read_decimal(text: str) -> Decimal:
    """Parse a number of any size and length without rounding.

    Raises:
        ValueError: the text is not a number.
    """
    with decimal.localcontext(Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN) as context:
        context.traps[decimal.InvalidOperation] = True
        try:
            result = Decimal(text)
        except decimal.InvalidOperation:
            raise ValueError(f"{text!r} is not a number that Decimal can hold") from None
    if result.is_snan():
        raise ValueError(f"{text!r} is a signaling NaN")
    return result


def is_decimal(value: Array) -> bool:
    return value.dtype is _OBJECTS


def full_like(value: Array, number: int) -> Array:
    return np.full_like(value, Decimal(number) if is_decimal(value) else number)


def is_finite(value: Array) -> bool:
    if is_decimal(value):
        return all(number.is_finite() for number in value.flat)
    return bool(np.isfinite(value).all())


@contextmanager
def decimals(digits: int) -> Iterator[None]:
    """Compute with Decimals of so many digits, the largest possible exponents, and infinities instead of exceptions."""
    with decimal.localcontext(prec=digits, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN) as context:
        context.clear_traps()
        yield


def rounded(value: Array, digits: int) -> Array:
    """Round Decimals to so many digits."""
    with decimals(digits):
        return np.asarray(+value)
