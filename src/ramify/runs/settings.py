"""Set fields of configs from text: `--set key=value`."""

import json
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from types import NoneType
from typing import Any, Literal

from ramify.config import RENAMED, from_record, renamed, settings_in, spelled
from ramify.errors import RamifyError

Texts = Mapping[str, tuple[str, str]]
"""Dotted paths, each with the new value as text and the key as the user wrote it."""


def set_fields(value: Any, settings: Texts) -> Any:
    """A copy of a frozen dataclass with fields set from text. All fields of one dataclass change, and are checked, together."""
    hints = typing.get_type_hints(type(value))
    kinds = {field.name: hints[field.name] for field in fields(value)}
    changes: dict[str, Any] = {}
    inside: dict[str, dict[str, tuple[str, str]]] = {}
    for path, (text, key) in settings.items():
        name, _, rest = path.partition(".")
        if name not in kinds:
            meant = [f"{part}.{name}" for part in kinds if name in _field_names(getattr(value, part))]
            if renamed(key, kinds):
                meant = [RENAMED[key]]
            hint = f" Did you mean {' or '.join(meant)}?" if meant else ""
            problem = f"there is no setting {name!r} here" if name else "this is a group of settings, not a setting"
            raise RamifyError(f"--set {key}: {problem}; the settings are {', '.join(kinds)}.{hint}")
        if not rest:
            changes[name] = _parse(text, kinds[name], key)
        elif settings_in(kinds[name]) is not None or is_dataclass(getattr(value, name)):
            inside.setdefault(name, {})[rest] = (text, key)
        else:
            raise RamifyError(f"--set {key}: {name} is a single value, without settings below it.")
    groups = {name: _group(changes.get(name, getattr(value, name)), kinds[name]) for name in inside}
    return replace(value, **changes | {name: set_fields(groups[name], texts) for name, texts in inside.items()})


def _group(value: Any, kind: Any) -> Any:
    """Settings below a field: those that it has, or the defaults of optional ones that are null."""
    optional = settings_in(kind)
    return optional() if value is None and optional is not None else value


def _field_names(value: Any) -> set[str]:
    return {field.name for field in fields(value)} if is_dataclass(value) else set()


def _parse(text: str, kind: Any, key: str, *, optional: bool = False) -> Any:
    """A value from text. `optional`: it may be null in place of a group of settings."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        if text not in arguments:
            raise RamifyError(f"--set {key}={text} is not one of {', '.join(map(str, arguments))}.")
        return text
    if NoneType in arguments:
        (inner,) = (argument for argument in arguments if argument is not NoneType)
        return None if text.lower() in ("null", "none") else _parse(text, inner, key, optional=True)
    if origin is tuple:
        try:
            return _typed(json.loads(text), kind)
        except ValueError:
            raise RamifyError(f"--set {key}={text} is not a JSON list of the form {spelled(kind)}.") from None
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
            raise RamifyError(f"--set {key}={text} is not true or false.")
        return text.lower() in ("true", "1", "yes")
    if kind in (int, float, str):
        try:
            return kind(text.replace("_", "")) if kind is not str else text
        except ValueError:
            raise RamifyError(f"--set {key}={text} is not a {spelled(kind)}.") from None
    if optional:
        try:
            return _typed(json.loads(text), kind)
        except (ValueError, TypeError):
            raise RamifyError(
                f"--set {key}={text} is not null or a JSON object of settings such as {{}}. Set them one by one ({key}.…), or "
                f"{key}={{}} for the defaults."
            ) from None
    raise RamifyError(f"--set {key}: this is a group of settings. Set them one by one ({key}.…).")


def _typed(value: Any, kind: Any) -> Any:
    """A value from JSON as a type made of tuples, settings, numbers and strings. Raises `ValueError` where it is of another
    type."""
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        known = {field.name for field in fields(kind)}
        needed = {field.name for field in fields(kind) if field.default is MISSING}
        if not needed <= value.keys() <= known:
            raise ValueError
        return from_record(kind, value)
    if typing.get_origin(kind) is tuple and isinstance(value, list):
        inner = typing.get_args(kind)
        inner = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        if len(inner) == len(value):
            return tuple(map(_typed, value, inner))
    elif kind is float and type(value) in (int, float):
        return float(value)
    elif type(value) is kind:
        return value
    raise ValueError
