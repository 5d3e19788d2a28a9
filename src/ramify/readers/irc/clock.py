"""The time of messages, from stamps that may leave out the day, the year or the seconds."""

import re
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Literal

DAY = 86_400
HALF_DAY = DAY // 2
JITTER = 1800
# A date without its year that falls back by more is in the next year.
DAYS_BACK = 183

Fault = Literal["", "bad_time", "clock_back"]

_EPOCH = date(1970, 1, 1).toordinal()
# Of a stamp that names month and day alone: a leap year, so that every day is there.
_SOME_YEAR = 1972
_MONTHS = {"janfebmaraprmayjunjulaugsepoctnovdec"[3 * month : 3 * month + 3]: month + 1 for month in range(12)}

_TIME = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d(?:[.,]\d{1,9})?))?"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\b\.?)?(?: ?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)\b)?"
)
_STAMP = re.compile(
    r"[\s\[(]*(?:(?P<year>\d{4})[-/.](?P<month>\d\d)[-/.](?P<day>\d\d)\D{1,2}"
    rf"|(?P<word>[^\W\d]+)\.? +(?P<nth>\d{{1,2}}) +)?{_TIME}"
)
_SAYS_THE_DAY = re.compile(r"--- (?:Log|Day) |\*{4} (?:BEGIN|ENDING) |Session (?:Start|Time|Close):")
_SPELLED = re.compile(
    rf"\b(?:(?P<word>[^\W\d]{{3,12}})\.? +(?P<nth>\d{{1,2}})|(?P<nth2>\d{{1,2}})\.? +(?P<word2>[^\W\d]{{3,12}})),?"
    rf"(?: +{_TIME})?,? +(?P<year>\d{{4}})\b"
)
_IN_NAME = re.compile(r"(?<!\d)((?:19|20)\d\d)(-?)(\d\d)\2(\d\d)(?!\d)")
_IN_FOLDERS = re.compile(r"((?:19|20)\d\d)(/)(\d\d)/(\d\d)")


def date_in(path: Path) -> date | None:
    """The day that a file's name says, YYYY-MM-DD or YYYYMMDD, or else that its folders say, YYYY/MM/DD."""
    found = [*_IN_NAME.finditer(path.name), *_IN_FOLDERS.finditer("/".join(path.parts[-4:-1]))]
    for match in found:
        try:
            return date(int(match[1]), int(match[3]), int(match[4]))
        except ValueError:
            continue
    return None


class Clock:
    """Seconds since 1970 from a log's stamps, in its order; what the log shows is taken for UTC unless it names a zone.

    Without a date days count from 1970-01-01, and a jump back by more than twelve hours is midnight. A smaller one stays as it
    is. A stamp without seconds stands, within one minute, for the second that was last heard of.
    """

    def __init__(self, day: date | None) -> None:
        self.time: float | None = None
        self._day = 0 if day is None else day.toordinal() - _EPOCH
        self._second = 0.0
        self._year = day and day.year
        self._rolled = False

    def set(self, stamp: str) -> Fault:
        """Move to what a stamp says, unless nothing can be made of it."""
        match = _STAMP.match(stamp)
        if match is None:
            return "bad_time"
        year, month, nth, word, nth_of_word, *time, zone = match.groups()
        try:
            second = _second_of_day(*time)
            if year:
                day, self._year = _ordinal(int(year), int(month), int(nth)), int(year)
            elif word and word[:3].lower() in _MONTHS:
                day = self._yearless(_MONTHS[word[:3].lower()], int(nth_of_word))
            else:
                rolled = second < self._second - HALF_DAY
                # Lines that change places at midnight belong to the day that has just ended.
                back = self._rolled and second > self._second + DAY - JITTER
                day = self._day + rolled - back
                self._rolled = rolled or (self._rolled and not back)
        except ValueError:
            return "bad_time"
        moment = day * DAY + second - (_offset(zone) if zone else 0)
        if time[2] is None and self.time is not None and moment == self.time // 60 * 60:
            return ""
        return self._move(day, second, moment)

    def set_by_text(self, line: str) -> Fault:
        """Move to what a line says that opens or closes the log or tells a new day; other lines leave the clock alone."""
        match = _SAYS_THE_DAY.match(line) and _SPELLED.search(line)
        month = match and _MONTHS.get((match["word"] or match["word2"])[:3].lower())
        if not match or not month:
            return ""
        year = int(match["year"])
        try:
            day = _ordinal(year, month, int(match["nth"] or match["nth2"]))
            second = _second_of_day(*match.group("hour", "minute", "second", "half")) if match["hour"] else 0.0
        except ValueError:
            return "bad_time"
        self._year = year
        if not match["hour"] and self.time is not None and day == self._day:
            # Midnight was noticed before it was said.
            return ""
        return self._move(day, second, day * DAY + second)

    def _move(self, day: int, second: float, time: float) -> Fault:
        back = self.time is not None and time < self.time
        self._day, self._second, self.time = day, second, time
        return "clock_back" if back else ""

    def _yearless(self, month: int, nth: int) -> int:
        if self._year is None:
            self._year = _SOME_YEAR
        day = _ordinal(self._year, month, nth)
        if self.time is not None and day < self._day - DAYS_BACK:
            day, self._year = _ordinal(self._year + 1, month, nth), self._year + 1
        return day


@lru_cache(maxsize=64)
def _ordinal(year: int, month: int, day: int) -> int:
    return date(year, month, day).toordinal() - _EPOCH


def _second_of_day(hour: str, minute: str, second: str | None, half: str | None) -> float:
    """Raises ValueError where there is no such time."""
    hours, minutes = int(hour), int(minute)
    seconds = float(second.replace(",", ".")) if second else 0.0
    if half:
        if not 1 <= hours <= 12:
            raise ValueError
        hours = hours % 12 + 12 * (half in "Pp")
    if hours > 23 or minutes > 59 or seconds >= 61:
        raise ValueError
    return hours * 3600 + minutes * 60 + seconds


def _offset(zone: str) -> int:
    if zone in ("Z", "UTC"):
        return 0
    seconds = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
    return -seconds if zone[0] == "-" else seconds
