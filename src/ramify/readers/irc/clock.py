"""Times of messages, from stamps that may lack the day, the year or the seconds."""

import re
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Literal

from ramify.readers.dates import DATE, DAY, EPOCH, TIME, DateOrder, day_of, offset, ordinal, second_of_day
from ramify.tree import FIRST_TIME, LAST_TIME

HALF_DAY = DAY // 2
JITTER = 1800
# A date without a year that goes back by more days than this is in the next year.
DAYS_BACK = 183

Fault = Literal["", "bad_time", "unknown_month", "clock_back"]

# The year of stamps with month and day only: a leap year, so that every day exists.
_SOME_YEAR = 1972
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)

_STAMP = re.compile(rf"[\s\[(]*(?:{DATE}\D{{1,2}}|(?P<word>[^\W\d]+)\.? +(?P<nth>\d{{1,2}}) +)?{TIME}")
_SAYS_THE_DAY = re.compile(
    r"--- (?:Log|Day|Mon|Tue|Wed|Thu|Fri|Sat|Sun) |\*{4} (?:BEGIN|ENDING) |Session (?:Start|Time|Close):"
)
_SPELLED = re.compile(
    rf"\b(?:(?P<word>[^\W\d]{{3,12}})\.? +(?P<nth>\d{{1,2}})|(?P<nth2>\d{{1,2}})\.? +(?P<word2>[^\W\d]{{3,12}})),?"
    rf"(?: +{TIME})?,? +(?P<year>\d{{4}})\b"
)
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


def runs_twice(stamps: Iterable[str]) -> bool:
    """Whether hours run from 1 to 12 twice a day, without AM and PM.

    This holds if no stamp has a date, AM or PM, the hour 0 or an hour above 12, and the clock falls back by more than six
    hours, as from 12:59 to 1:00. Reading stops at the first stamp that settles it.
    """
    fell_back, last = False, 0.0
    for stamp in stamps:
        match = _STAMP.match(stamp)
        if match is None:
            continue
        if match["year"] or match["long"] or match["word"] or match["half"] or not 1 <= int(match["hour"]) <= 12:
            return False
        second = int(match["hour"]) * 3600 + int(match["minute"]) * 60
        fell_back = fell_back or second < last - HALF_DAY / 2
        last = second
    return fell_back


def _month(word: str) -> int:
    """1 to 12 for an English name of at least three letters; 0 for any other word."""
    word = word.lower()
    return next((number for number, name in enumerate(_MONTHS, 1) if len(word) >= 3 and name.startswith(word)), 0)


class Clock:
    """Converts the stamps of a log, in order, to seconds since 1970. Stamps are in UTC unless they name a zone.

    Without a date, days count from 1970-01-01. A jump back by more than twelve hours is midnight; a smaller jump is kept. A
    stamp without seconds keeps the last known second within its minute.

    `twelve`: hours without a date, AM and PM run twice a day (`runs_twice`). Twelve is then the first hour of a half day, and a
    jump back by more than six hours ends the half day. The log begins in the first half of its day, unless a line names a time.
    """

    def __init__(self, day: date | None, order: DateOrder, *, twelve: bool = False) -> None:
        self.time: float | None = None
        self._order, self._twelve = order, twelve
        self._day = 0 if day is None else day.toordinal() - EPOCH
        self._second = 0.0
        self._year = day and day.year
        self._rolled = False

    def set(self, stamp: str) -> Fault:
        """Advance to a stamp and return its fault, if any. An unreadable stamp is ignored.

        If the month is not an English name, the day follows from the previous time.
        """
        match = _STAMP.match(stamp)
        if match is None:
            return "bad_time"
        month = _month(match["word"] or "")
        unknown: Fault = "unknown_month" if match["word"] and not month else ""
        try:
            second = second_of_day(*match.group("hour", "minute", "second", "half"))
            day = day_of(match, day_first=self._order.day_first)
        except ValueError:
            return "bad_time"
        year = int(match["year"] or match["long"]) if day is not None else None
        yearless = (month, int(match["nth"])) if month and day is None else None
        exact, zone = match["second"] is not None, offset(match["zone"])
        return self.move(second, day, year, yearless, half=bool(match["half"]), exact=exact, zone=zone) or unknown

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
                self._year = year
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
        if not exact and self.time is not None and moment == self.time // 60 * 60:
            return ""
        return self._move(day, second, moment)

    def set_by_text(self, line: str) -> Fault:
        """Advance to the time in a line that opens or closes the log or names a new day. Other lines change nothing."""
        match = _SAYS_THE_DAY.match(line) and _SPELLED.search(line)
        if not match:
            return ""
        month = _month(match["word"] or match["word2"])
        if not month:
            return "unknown_month"
        year = int(match["year"])
        try:
            day = ordinal(year, month, int(match["nth"] or match["nth2"]))
            second = second_of_day(*match.group("hour", "minute", "second", "half")) if match["hour"] else 0.0
        except ValueError:
            return "bad_time"
        self._year = year
        return self.begin(day, second if match["hour"] else None)

    def begin(self, day: int, second: float | None) -> Fault:
        """Advance to a day that a line names, in days since 1970, and to a second of it if the line names that too."""
        if second is None and self.time is not None and day == self._day:
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
        back = self.time is not None and time < self.time
        self._day, self._second, self.time = day, second, time
        return "clock_back" if back else ""

    def _yearless(self, month: int, nth: int) -> int:
        if self._year is None:
            self._year = _SOME_YEAR
        day = ordinal(self._year, month, nth)
        if self.time is not None and day < self._day - DAYS_BACK:
            day, self._year = ordinal(self._year + 1, month, nth), self._year + 1
        return day
