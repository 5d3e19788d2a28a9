"""Values from strangers' records, which may be of any type: what they are if they are as expected, and None or nothing else."""

from datetime import UTC, datetime
from typing import Any

from ramify.readers.base import Report
from ramify.tree import FIRST_TIME, LAST_TIME


def told_time(value: Any, report: Report, where: str, *, unit: float = 1.0) -> float | None:
    """`seconds` of what a record has for its time; where something is there that is none, it is counted."""
    time = seconds(value, unit=unit)
    if time is None and value not in (None, ""):
        report.mend("bad_time", f"{where}: {value!r:.80}")
    return time


def seconds(value: Any, *, unit: float = 1.0) -> float | None:
    """Since 1970, from a number of which `unit` make a second, or from a date as ISO 8601 writes it (in UTC unless it says
    otherwise); None where it is neither, or no calendar has it. Numbers that would be after the year 9999 count a thousand
    times finer: seconds that are milliseconds."""
    if isinstance(value, bool):
        return None
    try:
        time = float(value) / unit
        time = time / 1000 if abs(time) > LAST_TIME else time
    except (TypeError, ValueError, OverflowError):
        try:
            date = datetime.fromisoformat(value.strip())
            time = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        except (AttributeError, ValueError, OverflowError):
            return None
    return time if FIRST_TIME <= time <= LAST_TIME else None


def identifier(value: Any) -> str | None:
    """An id, which exports write as a string or as a whole number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return string(value)


def string(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects in what should be a list of them."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def fields(value: Any) -> dict[str, Any]:
    """What should be an object; an empty one where it is none."""
    return value if isinstance(value, dict) else {}
