"""Times of messages, from dates and times that may lack the day, the year or the seconds: one clock for all logs as text."""

import re
from collections.abc import Iterable
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Literal

from ramify.readers.dates import (
    DAY,
    EPOCH,
    SOME_YEAR,
    TIME,
    DateOrder,
    Day,
    first_stamps,
    month,
    ordinal,
    read_date,
    read_time,
    since_start,
)
from ramify.tree import FIRST_TIME, LAST_TIME

HALF_DAY = DAY // 2
JITTER = 1800
# A date without a year that goes back by more days than this is in the next year.
DAYS_BACK = 183

Fault = Literal["", "bad_time", "unknown_month", "clock_back"]

Lack = Literal["", "no_year", "no_day"]
LACKS: dict[Lack, str] = {
    "no_year": "its dates have no year, so days count from the first one",
    "no_day": "its times have no day, so days count from 1970-01-01",
}
"""Missing parts of the times in a log, and how days are counted then."""

_STAMP = re.compile(rf"[\s\[(]*(?:(?P<date>\S.*?)[T ,_]{{1,2}})?(?P<time>{TIME})")
_SAYS_THE_DAY = re.compile(
    r"--- (?:Log|Day|Mon|Tue|Wed|Thu|Fri|Sat|Sun) |\*{4} (?:BEGIN|ENDING) |Session (?:Start|Time|Close):"
)
_SPELLED = re.compile(r"\b(?:[^\W\d]{3,12}\.? +\d{1,2}|\d{1,2}\.? +[^\W\d]{3,12}),?(?: +\S+)? +\d{4}\b")
_IN_NAME = re.compile(r"(?<!\d)((?:19|20)\d\d)(-?)(\d\d)\2(\d\d)(?!\d)")
_IN_FOLDERS = re.compile(r"((?:19|20)\d\d)(/)(\d\d)/(\d\d)")


def date_in(path: Path) -> date | None:
    """The date in a file's name (YYYY-MM-DD or YYYYMMDD) or else in its folders (YYYY/MM/DD)."""
    matches = [*_IN_NAME.finditer(path.name), *_IN_FOLDERS.finditer("/".join(path.parts[-4:-1]))]
    for match in matches:
        try:
            return date(int(match[1]), int(match[3]), int(match[4]))
        except ValueError:
            continue
    return None


def date_of(stamp: str) -> str | None:
    """The date in a stamp of a line of IRC; None if it has none."""
    match = _STAMP.match(stamp)
    return match["date"] if match else None


def runs_twice(stamps: Iterable[str]) -> bool:
    """Whether hours run from 1 to 12 twice a day, without AM and PM.

    This holds if no stamp has a date, AM or PM, the hour 0 or an hour above 12, and the clock falls back by more than six
    hours, as from 12:59 to 1:00. Reading stops at the first stamp that settles it.
    """
    fell_back, last = False, 0.0
    for stamp in stamps:
        match = _STAMP.match(stamp)
        time = read_time(match["time"]) if match else None
        if match is None or time is None:
            if match is None:
                continue
            return False
        if match["date"] or time.half or not 1 <= time.second // 3600 <= 12:
            return False
        second = time.second // 60 * 60
        fell_back = fell_back or second < last - HALF_DAY / 2
        last = second
    return fell_back


def is_elapsed(times: Iterable[str]) -> bool:
    """Whether times count minutes from the start: three of them have more than 23 before their only colon."""
    beyond = (time for time in times if (match := _TWO_NUMBERS.fullmatch(time)) and int(match[1]) > 23)
    return len(list(islice(beyond, 3))) == 3


_TWO_NUMBERS = re.compile(r"(\d+):\d\d")


class Clock:
    """Converts the dates and times of a log, in order, to seconds since 1970. They are in UTC unless they name a zone.

    Without a date or a year, days count from 1970-01-01. A jump back by more than twelve hours is midnight; a smaller jump is
    kept. A time without seconds keeps the last known second within its minute.

    `twelve`: hours without a date, AM and PM run twice a day (`runs_twice`). Twelve is then the first hour of a half day, and a
    jump back by more than six hours ends the half day. The log begins in the first half of its day, unless a line names a time.
    `elapsed`: times are minutes and seconds since the start, or hours with both.
    """

    def __init__(self, day: date | None, order: DateOrder, *, twelve: bool = False, elapsed: bool = False) -> None:
        self._order, self._twelve, self._elapsed = order, twelve, elapsed
        self._now: float | None = None
        self._has_day = day is not None
        self._day = 0 if day is None else day.toordinal() - EPOCH
        self._second = 0.0
        self._year = day and day.year
        self._first_day = 0
        self._rolled = False

    @property
    def time(self) -> float | None:
        """The latest time; None if there was none."""
        return None if self._now is None else self._now - self._first_day * DAY

    @property
    def lack(self) -> Lack:
        """The missing part of the times so far."""
        if self._first_day != 0:
            return "no_year"
        return "" if self._has_day or self._now is None else "no_day"

    def set_stamp(self, stamp: str) -> Fault:
        """Advance to a stamp of a line of IRC, such as `[10:00] ` or `Jan 31 10:00:00 `, and return its fault, if any.

        If the month is unknown, the day follows from the previous time.
        """
        match = _STAMP.match(stamp)
        if match is None:
            return "bad_time"
        date_, time = match["date"], match["time"]
        if date_ and date_[0].isalpha() and read_date(date_, "month") is None and not _has_known_month(date_):
            return self.set(None, time) or "unknown_month"
        return self.set(date_, time)

    def set(self, date: str | None, time: str | None) -> Fault:
        """Advance to the date and time of a line. An unreadable one is ignored."""
        day = read_date(date, self._order.order) if date else None
        moment = read_time(since_start(time) if self._elapsed else time) if time else None
        if (date and day is None) or (time and moment is None):
            return "bad_time"
        if day is not None and day.second is not None:
            place = _ordinal(day) + int(day.second // DAY)
            return self.move(day.second % DAY, place, day.year, half=False, exact=True, zone=0)
        if moment is None:
            if day is None:
                return ""
            return self.begin(self._yearless(day.month, day.day) if day.year is None else _ordinal(day), None)
        second, exact, half, zone = moment
        if day is None:
            return self.move(second, half=half, exact=exact, zone=zone)
        if day.year is None:
            return self.move(second, yearless=(day.month, day.day), half=half, exact=exact, zone=zone)
        return self.move(second, _ordinal(day), day.year, half=half, exact=exact, zone=zone)

    def name_day(self, date: str, time: str | None) -> Fault:
        """Advance to a day that a line of its own names."""
        day = read_date(date, self._order.order)
        moment = read_time(time) if time else None
        if day is None:
            return "bad_time"
        if day.year is not None:
            self._year, self._first_day = day.year, 0
        second = day.second if day.second is not None else moment and moment.second
        return self.begin(self._yearless(day.month, day.day) if day.year is None else _ordinal(day), second)

    def set_by_text(self, line: str) -> Fault:
        """Advance to the time in a line that opens or closes the log or names a new day. Other lines change nothing."""
        if not _SAYS_THE_DAY.match(line):
            return ""
        date, time = first_stamps(line)
        day = read_date(date, self._order.order) if date else None
        if date is None or day is None or day.year is None:
            return "" if not _SPELLED.search(line) else "bad_time" if _has_known_month(line) else "unknown_month"
        return self.name_day(date, time)

    def move(
        self,
        second: float,
        day: int | None = None,
        year: int | None = None,
        yearless: tuple[int, int] | None = None,
        *,
        half: bool,
        exact: bool,
        zone: int,
    ) -> Fault:
        """Advance to a second of the day. `day`, in days since 1970, is given with its `year`; `yearless` is a month and a day.

        Without both, the day follows from the previous time. `exact`: the time has seconds. `half`: it has AM or PM.
        """
        try:
            if day is not None:
                self._year, self._first_day, self._has_day = year, 0, True
            elif yearless:
                day = self._yearless(*yearless)
            else:
                second = self._onward(second, HALF_DAY if self._twelve and not half else DAY)
                day, second = self._day + int(second // DAY), second % DAY
        except ValueError:
            return "bad_time"
        moment = day * DAY + second - zone
        if not FIRST_TIME <= moment <= LAST_TIME:
            return "bad_time"
        if not exact and self._now is not None and moment == self._now // 60 * 60:
            return ""
        return self._move(day, second, moment)

    def begin(self, day: int, second: float | None) -> Fault:
        """Advance to a day that a line names, in days since 1970, and to a second of it if the line names that too."""
        self._has_day = True
        if second is None and self._now is not None and day == self._day:
            # Midnight was inferred before this line named it.
            return ""
        second = second or 0.0
        return self._move(day, second, day * DAY + second)

    def _onward(self, second: float, period: int) -> float:
        """Seconds since the start of the last stamp's day, for a clock that repeats after `period`."""
        now = self._second
        if period < DAY:
            second = now // period * period + second % period
        rolled = second < now - period / 2
        # Lines that are out of order around midnight belong to the day that has just ended.
        back = self._rolled and second > now + period - JITTER
        self._rolled = rolled or (self._rolled and not back)
        return second + period * (rolled - back)

    def _move(self, day: int, second: float, time: float) -> Fault:
        back = self._now is not None and time < self._now
        self._day, self._second, self._now = day, second, time
        return "clock_back" if back else ""

    def _yearless(self, month: int, nth: int) -> int:
        if self._year is None:
            self._year = SOME_YEAR
            self._first_day = ordinal(SOME_YEAR, month, nth)
        day = ordinal(self._year, month, nth)
        if self._now is not None and day < self._day - DAYS_BACK:
            day, self._year = ordinal(self._year + 1, month, nth), self._year + 1
        return day


def _ordinal(day: Day) -> int:
    return ordinal(SOME_YEAR if day.year is None else day.year, day.month, day.day)


def _has_known_month(text: str) -> bool:
    return any(month(word) for word in re.findall(r"[^\W\d]{3,12}", text))
