"""Parsing of dates and times of day in common spellings, including dates with an ambiguous order of day and month."""

import re
from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from typing import Literal, get_args

from ramify.readers.base import bad_option
from ramify.tree import FIRST_TIME, LAST_TIME

DAY = 86_400
EPOCH = date(1970, 1, 1).toordinal()

TIME = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d(?:[.,]\d{1,9})?))?"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\b\.?)?(?: ?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)\b)?"
)
DATE = (
    r"(?:(?P<year>\d{4})[-/.](?P<month>\d\d)[-/.](?P<day>\d\d)"
    r"|(?P<one>\d{1,2})(?P<mark>[./])(?P<other>\d{1,2})(?P=mark)(?P<long>\d{4}))"
)
"""2004-11-15, 15.11.2004, 15/11/2004, 11/15/2004."""

_MOMENT = re.compile(rf"\s*{DATE}(?:[T ,_]{{1,2}}{TIME})?\s*")
_SLASHED = re.compile(r"[\s\[(]*(\d{1,2})/(\d{1,2})/\d{4}(?!\d)")

First = Literal["auto", "day", "month"]


class DateOrder:
    """Which number comes first in dates with slashes: the `day`, the `month`, or (`auto`) as inferred from the dates.

    The month comes first if the dates are ambiguous, and before `settle` is called.
    """

    def __init__(self, dates: First) -> None:
        if dates not in get_args(First):
            raise bad_option("dates", " or ".join(get_args(First)), dates)
        self.day_first = dates == "day"
        self._settled = dates != "auto"

    def settle(self, texts: Iterable[str]) -> str | None:
        """Infer the order from the first unambiguous date. Returns an ambiguous date if there is no unambiguous one.

        Later calls change nothing once dates with slashes were seen, so that the order is the same in the whole file.
        """
        ambiguous = None
        for text in () if self._settled else texts:
            if match := _SLASHED.match(text):
                self._settled = True
                one, other = int(match[1]), int(match[2])
                if (one > 12) != (other > 12):
                    self.day_first = one > 12
                    return None
                ambiguous = ambiguous or match[0].strip(" [(")
        return ambiguous


def is_slashed(text: str) -> bool:
    return _SLASHED.match(text) is not None


def day_of(match: re.Match[str], *, day_first: bool) -> int | None:
    """Days since 1970 of a match of `DATE`; None if it holds no date. Raises `ValueError` if there is no such day."""
    if match["year"]:
        return ordinal(int(match["year"]), int(match["month"]), int(match["day"]))
    if not match["long"]:
        return None
    one, other = int(match["one"]), int(match["other"])
    day, month = (one, other) if day_first or match["mark"] == "." else (other, one)
    return ordinal(int(match["long"]), month, day)


@lru_cache(maxsize=64)
def ordinal(year: int, month: int, day: int) -> int:
    """Days since 1970. Raises `ValueError` if there is no such day."""
    return date(year, month, day).toordinal() - EPOCH


def second_of_day(hour: str, minute: str, second: str | None, half: str | None) -> float:
    """Seconds since midnight. Raises `ValueError` if there is no such time."""
    hours, minutes = int(hour), int(minute)
    seconds = float(second.replace(",", ".")) if second else 0.0
    if half:
        if not 1 <= hours <= 12:
            raise ValueError
        hours = hours % 12 + 12 * (half in "Pp")
    if hours > 23 or minutes > 59 or seconds >= 61:
        raise ValueError
    return hours * 3600 + minutes * 60 + seconds


def offset(zone: str | None) -> int:
    """Seconds by which a zone is ahead of UTC."""
    if zone in (None, "Z", "UTC"):
        return 0
    seconds = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
    return -seconds if zone[0] == "-" else seconds


def moment(text: str, *, day_first: bool) -> float | None:
    """Seconds since 1970 of a date with an optional time, in UTC unless it names a zone; None if it is not a date."""
    match = _MOMENT.fullmatch(text)
    try:
        day = match and day_of(match, day_first=day_first)
        if not match or day is None:
            return None
        second = second_of_day(*match.group("hour", "minute", "second", "half")) if match["hour"] else 0.0
    except ValueError:
        return None
    time = day * DAY + second - offset(match["zone"])
    return time if FIRST_TIME <= time <= LAST_TIME else None
