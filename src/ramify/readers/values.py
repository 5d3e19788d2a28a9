"""Values from untrusted records. They are returned if they have the expected type; else the result is None or empty."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ramify.errors import shown
from ramify.readers.base import ReadCounts
from ramify.readers.dates import settled_moment
from ramify.tree import FIRST_TIME, LAST_TIME, Tree


def parse_time(value: Any, counts: ReadCounts, where: str, *, unit: float = 1.0) -> float | None:
    """`seconds` of a record's time, or the moment that it spells in another way (see `dates`), if this is not ambiguous.

    A value that is not a time is counted as `bad_time`.
    """
    time = seconds(value, unit=unit)
    if time is None and isinstance(value, str):
        time = settled_moment(value)
    if time is None and value not in (None, ""):
        counts.repair("bad_time", f"{where}: {shown(value)}")
    return time


def seconds(value: Any, *, unit: float = 1.0) -> float | None:
    """Seconds since 1970 from a number, or from an ISO 8601 date (in UTC unless it names a zone).

    `unit` is how many units of the number make a second. A number beyond the year 9999 is read in units a thousand times finer,
    as milliseconds instead of seconds. The result is None for other values and outside the years 1 to 9999.
    """
    if isinstance(value, bool):
        return None
    try:
        time = float(value) / unit
        time = time / 1000 if abs(time) > LAST_TIME else time
    except (TypeError, ValueError, OverflowError):
        try:
            date = datetime.fromisoformat(value.strip())
            time = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        except (AttributeError, TypeError, ValueError, OverflowError):
            return None
    return time if FIRST_TIME <= time <= LAST_TIME else None


MAX_SPELLED = 400
MAX_DEPTH = 100
"""The nesting of the deepest label or metadata that a tree can hold."""


def is_deep(value: Any) -> bool:
    """Whether a JSON value is nested deeper than `MAX_DEPTH`."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inside
            for outer in level
            if isinstance(outer, dict | list)
            for inside in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def sound_tree(tree: Tree, counts: ReadCounts) -> Tree:
    """The tree, without labels and metadata that are nested too deeply, which are counted."""
    deep = [name for name, value in tree.meta.items() if is_deep(value)]
    places = [place for place, node in enumerate(tree.nodes) if isinstance(node.label, dict | list) and is_deep(node.label)]
    if not deep and not places:
        return tree
    nodes = list(tree.nodes)
    for place in places:
        nodes[place] = replace(nodes[place], label=None)
        counts.repair("odd_json", f"tree {tree.id!r}, node {nodes[place].id!r}: its label is nested too deeply")
    counts.repair("odd_json", f"tree {tree.id!r}: its metadata is nested too deeply", len(deep))
    return replace(tree, nodes=tuple(nodes), meta={name: value for name, value in tree.meta.items() if name not in deep})


def identifier(value: Any) -> str | None:
    """An id as a string. Exports write ids as strings or as whole numbers."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return string(value)


def spelled(value: Any) -> str:
    """A value of any type as a string, bounded unless it is one."""
    return value if isinstance(value, str) else shown(value, MAX_SPELLED)


def string(value: Any) -> str | None:
    """The value if it is a string that is not blank."""
    return value if isinstance(value, str) and value.strip() else None


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; an empty list for other values."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def fields(value: Any) -> dict[str, Any]:
    """The value if it is an object; an empty object otherwise."""
    return value if isinstance(value, dict) else {}
