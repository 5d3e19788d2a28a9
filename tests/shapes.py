"""The type checker behind `--shapes`."""

from collections.abc import Callable
from typing import Any, Self

from beartype import BeartypeConf, beartype

# An int may stand for a float, as in type checkers.
_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True))


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its arguments and result checked; unchanged if it returns `Self`.

    Beartype can check `Self` only in classes that it decorates whole, and jaxtyping decorates functions.

    Jaxtyping checks a call twice: its arguments before it, and its arguments and result after it. Axes of the arguments are
    remembered until then, so the second check is of the result alone, which takes half of the time.
    """
    hints = function.__annotations__
    if Self in hints.values():
        return function
    if hints.get("return", Any) is not Any:
        function.__annotations__ = {"return": hints["return"]}
    return _beartype(function)
