"""Type checks of frozen configs, whether their values come from Python, from `--set` or from JSON."""

import math
import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar

from ramify.errors import RamifyError

Config = TypeVar("Config")


def check_fields(config: Any, head: str = "") -> None:
    """Raise `RamifyError` if a field of a dataclass has a value of another type than annotated, or a number that is not finite.

    `head` precedes the field's name in the message.
    """
    for name, kind in _kinds(type(config)).items():
        value = getattr(config, name)
        if not _fits(value, kind):
            expected = f"one of {spelled(kind)}" if typing.get_origin(kind) is Literal else f"of the form {spelled(kind)}"
            raise RamifyError(f"{head}{name} must be {expected}, not {value!r}.")


def check_choice(name: str, value: str, choices: Collection[str]) -> None:
    """Raise `RamifyError` if a setting names none of the `choices`."""
    if value not in choices:
        raise RamifyError(f"{name}={value} is not one of {', '.join(choices)}. Choose one of them.")


def check_seed(seed: int, name: str = "seed") -> None:
    """Raise `RamifyError` if a number cannot seed every generator of random numbers."""
    if not 0 <= seed < 2**63:
        raise RamifyError(f"{name}={seed} is out of range. Choose a seed of at least 0 and below 2^63.")


RENAMED = {"view.rows": "view.streams"}
"""Names of settings in files of earlier versions -> today's names. Files are read with either; `--set` takes today's."""


def from_record(kind: type[Config], record: Mapping[str, Any], head: str = "") -> Config:
    """Build a config from JSON: lists become tuples, and objects become the configs that the fields are annotated with.

    `head` precedes the fields' names in `RENAMED`.
    """
    kinds = _kinds(kind)
    named = {renamed(head + name, kinds) or name: value for name, value in record.items()}
    return kind(**{name: _from_json(value, kinds.get(name)) for name, value in named.items()})


def renamed(path: str, names: Collection[str]) -> str | None:
    """The new name of the setting at this dotted path; None if it has no other name among `names`."""
    name = RENAMED.get(path, "").rpartition(".")[2]
    return name if name in names else None


def _from_json(value: Any, kind: Any = None) -> Any:
    if isinstance(value, list):
        inner = typing.get_args(kind)[:1] if typing.get_origin(kind) is tuple else ()
        return tuple(_from_json(item, *inner) for item in value)
    inside = settings_in(kind)
    return value if inside is None or not isinstance(value, Mapping) else from_record(inside, value)


def settings_in(kind: Any) -> type[Any] | None:
    """The dataclass that a type is, or may be beside null; None if it is neither."""
    kinds = typing.get_args(kind) if _is_union(kind) else (kind,)
    return next((each for each in kinds if isinstance(each, type) and is_dataclass(each)), None)


def spelled(kind: Any) -> str:
    """Describe a type by its values in JSON (number, [number, number], [[string, number], …]) or by its choices."""
    if typing.get_origin(kind) is Literal:
        return ", ".join(map(str, typing.get_args(kind)))
    if _is_union(kind):
        return " or ".join(map(spelled, typing.get_args(kind)))
    if typing.get_origin(kind) is tuple:
        return f"[{', '.join('…' if item is Ellipsis else spelled(item) for item in typing.get_args(kind))}]"
    plain = {float: "number", int: "whole number", str: "string", bool: "true or false", type(None): "null"}
    return plain.get(kind, getattr(kind, "__name__", ""))


_kinds = cache(typing.get_type_hints)


def _is_union(kind: Any) -> bool:
    """Whether a type is a union, such as `float | None`."""
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


def _fits(value: Any, kind: Any) -> bool:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in arguments)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        arguments = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        return len(value) == len(arguments) and all(map(_fits, value, arguments))
    if _is_union(kind):
        return any(_fits(value, alternative) for alternative in arguments)
    if isinstance(kind, type) and is_dataclass(kind):
        return isinstance(value, kind)
    if kind is type(None):
        return value is None
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    if kind in (int, str, bool):
        return type(value) is kind
    return True
