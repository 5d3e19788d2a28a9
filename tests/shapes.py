"""The type checker behind `--shapes`."""

from collections.abc import Callable
from typing import Any, Self

from beartype import BeartypeConf, beartype

# An int may stand for a float, as in type checkers.
_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True))


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its arguments and result checked; unchanged if it returns `Self`.

    Beartype can check `Self` only in classes that it decorates whole, and jaxtyping decorates functions.
    """
    if Self in getattr(function, "__annotations__", {}).values():
        return function
    return _beartype(function)
