"""Values from untrusted records. They are returned if they have the expected type; else the result is None or empty."""

from datetime import UTC, datetime
from typing import Any

from ramify.errors import shown
from ramify.readers.base import ReadCounts
from ramify.tree import FIRST_TIME, LAST_TIME


def parse_time(value: Any, counts: ReadCounts, where: str, *, unit: float = 1.0) -> float | None:
    """`seconds` of a record's time. A value that is not a time is counted as `bad_time`."""
    time = seconds(value, unit=unit)
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


def identifier(value: Any) -> str | None:
    """An id as a string. Exports write ids as strings or as whole numbers."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return string(value)


def string(value: Any) -> str | None:
    """The value if it is a string that is not blank."""
    return value if isinstance(value, str) and value.strip() else None


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; an empty list for other values."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def fields(value: Any) -> dict[str, Any]:
    """The value if it is an object; an empty object otherwise."""
    return value if isinstance(value, dict) else {}
