"""Dates and times of day in the spellings of many programs and their locales, for all readers."""

import re
from collections.abc import Iterable, Mapping
from datetime import date
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

from ramify.tree import FIRST_TIME, LAST_TIME

DAY = 86_400
EPOCH = date(1970, 1, 1).toordinal()

SOME_YEAR = 1972
"""The year of dates without one: a leap year, so that every day exists."""

Order = Literal["month", "day", "year"]
"""The number with which a date of three numbers begins. The year then has two digits."""

First = Literal["auto", "day", "month"]
Given = Literal["auto", "month", "day", "year"]

DENSER = 5
"""The days of a log under one order must lie so many times closer together to rule out the other order."""

_MONTHS = (
    "january januar janvier enero gennaio janeiro januari января stycznia ledna ocak ιανουαρίου січня január ianuarie",
    "february februar février fevrier febrero febbraio fevereiro februari февраля lutego "
    "února şubat φεβρουαρίου лютого február februarie",
    "march märz maerz mars marzo março marco maart mrt marts марта marca března mart μαρτίου березня március martie maret",
    "april avril abril aprile апреля kwietnia dubna nisan απριλίου квітня április aprilie",
    "may mai mayo maggio maio mei maj мая май maja května mayıs μαΐου травня május",
    "june juni juin junio giugno junho июня czerwca června haziran ιουνίου червня június iunie",
    "july juli juillet julio luglio julho июля lipca července temmuz ιουλίου липня július iulie",
    "august août aout agosto augustus augusti августа sierpnia srpna ağustos αυγούστου серпня augusztus agustus",
    "september septembre septiembre setiembre settembre setembro сентября września září "
    "eylül σεπτεμβρίου вересня szeptember septembrie",
    "october oktober octobre octubre ottobre outubro октября października října ekim οκτωβρίου жовтня október octombrie",
    "november novembre noviembre novembro ноября listopada listopadu kasım νοεμβρίου листопада noiembrie",
    "december dezember décembre decembre diciembre dicembre dezembro desember декабря "
    "grudnia prosince aralık δεκεμβρίου грудня decembrie",
)
"""Names of the months in English, German, French, Spanish, Italian, Portuguese, Dutch, Russian, Polish, Czech, Turkish, Greek,
Ukrainian, Hungarian, Romanian, Indonesian, and partly in Swedish."""

_GAP = "[ \u00a0\u202f\u2009]"
_WORD = r"[^\W\d_]{3,12}"
_WEEKDAY_NAMES = """
    monday tuesday wednesday thursday friday saturday sunday montag dienstag mittwoch donnerstag freitag samstag sonnabend
    sonntag lundi mardi mercredi jeudi vendredi samedi dimanche lunes martes miércoles jueves viernes sábado domingo
    lunedì martedì mercoledì giovedì venerdì sabato domenica segunda terça quarta quinta sexta maandag dinsdag woensdag
    donderdag vrijdag zaterdag zondag måndag tisdag onsdag torsdag fredag lördag söndag
    poniedziałek wtorek środa czwartek piątek sobota niedziela pazartesi salı çarşamba perşembe cuma cumartesi pazar
    понедельник вторник среда четверг пятница суббота воскресенье пн вт ср чт пт сб вс 日 月 火 水 木 金 土
    日曜日 月曜日 火曜日 水曜日 木曜日 金曜日 土曜日 월 화 수 목 금 토 일
    월요일 화요일 수요일 목요일 금요일 토요일 일요일 星期一 星期二 星期三 星期四
    星期五 星期六 星期日 週一 週二 週三 週四 週五 週六 週日 周一 周二 周三 周四 周五 周六 周日
    pondělí úterý středa čtvrtek pátek neděle mandag tirsdag lørdag søndag
"""
_WEEKDAYS = frozenset(_WEEKDAY_NAMES.split())
_SHORT_WEEKDAYS = frozenset(["mon", "tue", "tues", "wed", "thu", "thur", "thurs", "fri", "sat", "sun"])
_ANY_WEEKDAY = rf"(?:[^\W\d_]{{2,12}}\.?,?{_GAP})?"


def _any_of(words: Iterable[str]) -> str:
    """An expression for any of the words. First letters in common are written once; more groups take longer to compile."""
    rests: dict[str, list[str]] = {}
    for word in sorted(words, reverse=True):
        rests.setdefault(re.escape(word[:1]), []).append(re.escape(word[1:]))
    return f"(?:{'|'.join(first + '(?:' + '|'.join(endings) + ')' for first, endings in rests.items())})"


_SHORTENED = {day[:length] for day in _WEEKDAYS for length in (2, 3, 4)}
_WEEKDAY = rf"(?:(?=[^\W\d_])(?i:{_any_of(_WEEKDAYS | _SHORT_WEEKDAYS)}[.,]{{0,2}}|{_any_of(_SHORTENED)}[.,]{{1,2}}){_GAP})?"
_OF_YEAR = r"(?: \u0433\.?)?"
_YEAR = r"(?:\d{4}(?!\d)|\d\d(?![\d:h]|\.\d))"
_HALVES = {
    "a": "上午 午前 凌晨 早上 오전 ص ق.ظ. ق.ظ π.μ. πμ ÖÖ पूर्वाह्न de. SA PG p.d. пр.об. e_paradites vm.",
    "p": "下午 午後 中午 晚上 오후 م ب.ظ. ب.ظ μ.μ. μμ ÖS अपराह्न du. CH PTG m.d. сл.об. e_pasdites nm.",
}
"""Words for the halves of a day: Chinese, Japanese, Korean, Arabic, Persian, Greek, Turkish, Hindi, Hungarian and others.
A line stands for a space."""
_HALF_OF = {word.replace("_", " "): half for half, words in _HALVES.items() for word in words.split()}
_HALF_WORD = "|".join(sorted(map(re.escape, _HALF_OF), key=len, reverse=True))
_HALF = rf"(?:{_GAP}?(?:{_HALF_WORD}|[AaPp]\.?{_GAP}?[Mm]\b\.?)(?![^\W_]))?"
_CLOCK = rf"(?:\d{{1,2}}:\d\d(?::\d\d(?:[.,:]\d{{1,9}})?)?|\d{{1,2}}[時시]{_GAP}?\d\d[分분]){_HALF}"
_ZONE = r"(?: ?(?:Z|(?:UTC|GMT)?[+-]\d\d:?\d\d|UTC|GMT)\b)?"
_HALF_FIRST = f"(?:(?:{_HALF_WORD}){_GAP}?)?"

_FORMS = (
    # A whole moment in one piece: Wed Jan 31 10:00:00 CET 2024, seconds or milliseconds since 1970, 20240131100000.
    rf"{_WORD} {_WORD} {{1,2}}\d{{1,2}} {_CLOCK} (?:[A-Z]{{3,5}} )?\d{{4}}",
    r"1\d{9}(?:\d{3}|\.\d{1,9})?",
    r"(?:19|20)\d\d[01]\d[0-3]\d[0-2]\d[0-5]\d[0-5]\d(?!\d)",
    rf"{_ANY_WEEKDAY}\d{{4}}(?:-\d{{1,2}}-|/\d{{1,2}}/|\.\d{{1,2}}\.)\d{{1,2}}",
    r"\d{4}\. \d{1,2}\. \d{1,2}\.",
    r"\d{4}年 ?\d{1,2}月 ?\d{1,2}日",
    r"\d{4}년 ?\d{1,2}월 ?\d{1,2}일",
    rf"{_ANY_WEEKDAY}\d{{4}}(?:-{_WORD}-|/{_WORD}/| {_WORD} )\d{{1,2}}(?!\d)",
    rf"\d{{1,2}}{_WORD}\d{{4}}(?!\d)",
    rf"{_ANY_WEEKDAY}\d{{1,2}}(?:/\d{{1,2}}/|\. ?\d{{1,2}}\. ?|-\d{{1,2}}-){_YEAR}",
    r"(?:19|20)\d\d[01]\d[0-3]\d(?!\d)",
    rf"{_ANY_WEEKDAY}\d{{1,2}}(?:\.|st|nd|rd|th|er|º)?[ \-/](?:de |of )?{_WORD}\.?(?:,?[ \-/](?:de |of )?{_YEAR}{_OF_YEAR})?",
    rf"{_ANY_WEEKDAY}{_WORD}\.? {{1,2}}\d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?(?!\d)",
)
_WITHOUT_YEAR = r"\d{1,2}[-/]\d{1,2}(?![-/\d])|\d{1,2}\.\d{1,2}\.(?!\d)"
"""Dates that are recognised only beside a time, or where a pattern says so."""

_LOOSE_TIMES = (
    rf"\d{{1,2}}[.h]\d\d(?:[.m]\d\d)?{_HALF}",
    r"\d\d-\d\d-\d\d",
    r"\d{3}:\d\d",
    rf"\d{{6}}{_ZONE}",
    rf"\d{{4}}{_ZONE}",
)
"""Times of day that are recognised only beside a date, or where a pattern says so."""

_AFTER_A_WEEKDAY = "|".join(form.removeprefix(_ANY_WEEKDAY) for form in _FORMS if form.startswith(_ANY_WEEKDAY))
_ALONE_FORMS = "|".join(form for form in _FORMS if not form.startswith(_ANY_WEEKDAY))
# The names of weekdays stand in it once, because compiling them takes long.
DATE = f"(?:{_ALONE_FORMS}|{_WEEKDAY}(?:{_AFTER_A_WEEKDAY})|{_WITHOUT_YEAR})"
TIME = f"{_HALF_FIRST}{_CLOCK}{_ZONE}"
ANY_TIME = f"(?:{TIME}|{'|'.join(_LOOSE_TIMES)}(?!\\d))"

_NO_WORD = r"(?!\d)(?!(?!T\d)[^\W_])"
_DATE_AT = re.compile(rf"(?<![^\W_])(?<![.,/+])(?<!\d:)(?<!\w-)(?:{'|'.join(_FORMS)}){_NO_WORD}(?!-[\da-f]{{4}}-)")
_TIME_AT = re.compile(
    rf"(?:(?<![^\W_])(?:{_HALF_WORD}){_GAP}?|(?<![\w.+])|(?<=[\[(T]\+)|(?<=^\+)|(?<=^T)|(?<=\WT))(?<!\d:)(?<!\w-)(?<!\d/){_CLOCK}{_ZONE}(?!\d|:\d)"
)
_NEXT_TIME = re.compile(rf"{TIME}(?!\d|:\d)")
_LOOSE_AT = re.compile(rf"(?:{'|'.join(_LOOSE_TIMES)})(?!\d)")
_ALONE = re.compile(rf"(?<![\w.,:/-])\d{{1,2}}[.h]\d\d(?:[.m]\d\d)?{_HALF}(?![\w./:-])")
_DATE_BEFORE = re.compile(rf"(?<![\w.,:/+-])(?:{_WITHOUT_YEAR})(?=,?{_GAP}{{1,2}}(?:(?:at|um|-){_GAP})?\Z)")
_DASHED = re.compile(r"\d\d-\d\d-\d\d(?![-\d])")
_T_TIME = re.compile(rf"(?:\d{{6}}|\d{{4}}){_ZONE}(?!\d)")
_MINUTES = re.compile(
    r"(?:\A\W{0,2}|\A\S.*\s[\[(]?)((?:2[4-9]|[3-9]\d|\d{3}):[0-5]\d)(?:[\])]?\Z|(?<=\A.{5})(?![\w:])|(?<=\A.{6})(?![\w:]))"
)
"""Minutes and seconds since the start, at the beginning or the end of a line."""
_FIRST_TIME = re.compile(rf"\W{{0,3}}(\d{{1,2}}[.h]\d\d(?:[.m]\d\d)?{_HALF})(?![\w.])")
_JOINER = re.compile(rf"[T_:-]|{_GAP}-{_GAP}|[,،]?{_GAP}?(?:(?:at|um|à|às|alle|kl\.?|klo|om|a las|в){_GAP})?")


class Stamp(NamedTuple):
    """A date or a time of day in a line."""

    kind: Literal["date", "time"]
    start: int
    end: int


class Day(NamedTuple):
    """A date. `year` is None if the date has none. `second` is the time of day of a date that holds one."""

    year: int | None
    month: int
    day: int
    second: float | None = None
    zone: int = 0


class Second(NamedTuple):
    """A time of day. `exact`: it has seconds. `half`: it has AM or PM."""

    second: float
    exact: bool
    half: bool
    zone: int


@lru_cache(maxsize=1)
def _month_prefixes() -> dict[str, int]:
    """Month by every beginning of at least three letters that is the beginning of one month only."""
    months: dict[str, set[int]] = {}
    for number, names in enumerate(_MONTHS, 1):
        for name in names.split():
            for length in range(3, len(name) + 1):
                months.setdefault(name[:length], set()).add(number)
    return {prefix: next(iter(numbers)) for prefix, numbers in months.items() if len(numbers) == 1}


def month(word: str) -> int:
    """1 to 12 for the name of a month, or for a beginning of at least three letters of one; 0 for any other word."""
    return _month_prefixes().get(word.lower(), 0)


@lru_cache(maxsize=1 << 12)
def find_stamps(line: str) -> list[Stamp]:
    """The dates and times of day in the first 200 characters of a line, in order."""
    line = line[:200]
    stamps: list[Stamp] = []
    at = 0
    while match := _DATE_AT.search(line, at):
        start, text = match.start(), match[0]
        if (parsed := _any_date(text)) is None:
            # A word and a number that are no date may hide the beginning of one.
            at = start + len(text.split(" ")[0])
            continue
        at = match.end()
        # Any word may stand before a date, and only some are weekdays.
        while (shorter := _FIRST_WORD.sub("", text)) != text and _is_date(shorter) and not is_weekday(text):
            start, text = start + len(text) - len(shorter), shorter
        stamps.append(Stamp("date", start, match.end()))
        if parsed.second is None:
            stamps += _time_after(line, match.end())
    taken = [(stamp.start, stamp.end) for stamp in stamps]
    for match in _TIME_AT.finditer(line):
        if read_time(match[0]) is not None and all(match.end() <= start or match.start() >= end for start, end in taken):
            stamps.append(Stamp("time", match.start(), match.end()))
    if not stamps and (match := _FIRST_TIME.match(line)) and read_time(match[1]) is not None:
        stamps.append(Stamp("time", match.start(1), match.end(1)))
    if not stamps and (match := _MINUTES.search(line)):
        stamps.append(Stamp("time", match.start(1), match.end(1)))
    stamps.sort(key=lambda stamp: stamp.start)
    first = stamps[0] if stamps else None
    if first and first.kind == "time" and all(stamp.kind == "time" for stamp in stamps[:2]):
        match = _DATE_BEFORE.search(line[: first.start])
        if match and _is_date(match[0]):
            stamps.insert(0, Stamp("date", match.start(), match.end()))
    return stamps


def first_stamps(line: str) -> tuple[str | None, str | None]:
    """The first date and the first time of day in a line."""
    texts = {stamp.kind: line[stamp.start : stamp.end] for stamp in reversed(find_stamps(line))}
    return texts.get("date"), texts.get("time")


def _any_date(text: str) -> Day | None:
    return read_date(text, "day") or read_date(text, "month")


def _is_date(text: str) -> bool:
    return _any_date(text) is not None


def find_loose_times(line: str) -> list[Stamp]:
    """The times of day in the first 80 characters whose parts are not separated by colons: 10.05, 10h05."""
    return [
        Stamp("time", match.start(), match.end())
        for match in _ALONE.finditer(line[:80])
        if read_time(match[0].strip()) is not None
    ]


def _time_after(line: str, start: int) -> list[Stamp]:
    """A time of day directly after a date, in a spelling that would not be recognised elsewhere."""
    joiner = _JOINER.match(line, start)
    if joiner is None or joiner.end() == start:
        return []
    is_compact = line[max(0, start - 8) : start].isdecimal()
    forms = (
        (_NEXT_TIME, _DASHED, *[_T_TIME] * is_compact)
        if joiner[0] == "-"
        else (_NEXT_TIME, _T_TIME if joiner[0] == "T" else _LOOSE_AT)
    )
    for form in forms:
        if (match := form.match(line, joiner.end())) and read_time(match[0]) is not None:
            return [Stamp("time", match.start(), match.end())]
    return []


@lru_cache(maxsize=1 << 12)
def is_weekday(text: str) -> bool:
    """Whether text begins with a weekday, and not with a name (Sam 31 Jan)."""
    word = re.split(_GAP, text.lower(), maxsplit=1)[0]
    bare = word.rstrip(".,")
    if bare in _WEEKDAYS or bare in _SHORT_WEEKDAYS:
        return True
    return len(bare) > 1 and bare != word and any(day.startswith(bare) for day in _WEEKDAYS)


_FIRST_WORD = re.compile(rf"\A[^\W\d_]{{2,12}}\.?,?{_GAP}+")


# --- parsing --------------------------------------------------------------------------------------------------------------

_CTIME = re.compile(rf"{_WORD} ({_WORD}) {{1,2}}(\d{{1,2}}) ({_CLOCK}) (?:[A-Z]{{3,5}} )?(\d{{4}})")
_WHOLE = re.compile(r"(\d{4})(\d\d)(\d\d)(\d{6})")
_EPOCH = re.compile(r"(1\d{9})(\d{3})?(\.\d{1,9})?")
_NAMED_MONTH = re.compile(rf"{_ANY_WEEKDAY}(\d{{4}})[-/ ]({_WORD})[-/ ](\d{{1,2}})|(\d{{1,2}})({_WORD})(\d{{4}})")
_DAY_AND_MONTH = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\.?")
_YEAR_FIRST = re.compile(rf"{_ANY_WEEKDAY}" r"(\d{4})\D{1,3}(\d{1,2})\D{1,3}(\d{1,2})\D?")
_COMPACT = re.compile(r"(\d{4})(\d\d)(\d\d)")
_NUMBERS = re.compile(rf"{_ANY_WEEKDAY}(\d{{1,2}})([/.-]) ?(\d{{1,2}})\2 ?(\d{{4}}|\d\d)")
_DAY_MONTH = re.compile(
    rf"{_ANY_WEEKDAY}(\d{{1,2}})(?:\.|st|nd|rd|th|er|º)?[ \-/](?:de |of )?({_WORD})\.?"
    rf"(?:,?[ \-/](?:de |of )?(\d{{4}}|\d\d){_OF_YEAR})?"
)
_MONTH_DAY = re.compile(rf"{_ANY_WEEKDAY}({_WORD})\.? {{1,2}}(\d{{1,2}})(?:st|nd|rd|th)?(?:,? (\d{{4}}))?")
_NAMED_ZONE = r"(?: ?(?P<zone>Z|UTC|GMT|(?:UTC|GMT)?[+-]\d\d:?\d\d))?"
_CLOCK_PARTS = re.compile(
    rf"(?:(?=\D)(?:(?P<before>{_HALF_WORD})?{_GAP}?))?(?P<hour>\d{{1,2}})[:.h時시-]{_GAP}?(?P<minute>\d\d)[分분]?"
    rf"(?:[:.m-](?P<second>\d\d(?:[.,:]\d{{1,9}})?))?(?:(?!$){_GAP}?(?P<half>{_HALF_WORD}|[AaPp]\.?{_GAP}?[Mm]\.?))?{_NAMED_ZONE}"
)
_DIGITS = re.compile(rf"(\d\d)(\d\d)(\d\d)?{_NAMED_ZONE}")


@lru_cache(maxsize=1 << 12)
def read_date(text: str, order: Order) -> Day | None:
    """The date that a match of `DATE` spells; None if it spells none. `order` holds for dates with slashes or dashes."""
    if match := _EPOCH.fullmatch(text):
        time = int(match[1]) + int(match[2] or 0) / 1000 + float(match[3] or 0)
        return _on_calendar(1970, 1, 1, time)
    if match := _CTIME.fullmatch(text):
        second = read_time(match[3])
        return _on_calendar(int(match[4]), month(match[1]), int(match[2]), second.second) if second else None
    if match := _WHOLE.fullmatch(text):
        second = read_time(match[4])
        return _on_calendar(int(match[1]), int(match[2]), int(match[3]), second.second) if second else None
    if (match := _DAY_AND_MONTH.fullmatch(text)) and order != "year":
        one, other = int(match[1]), int(match[3])
        day_first = order == "day" or match[2] == "."
        return _on_calendar(None, *((other, one) if day_first else (one, other)))
    if match := _NAMED_MONTH.fullmatch(text):
        return _on_calendar(int(match[1] or match[6]), month(match[2] or match[5]), int(match[3] or match[4]))
    if match := _YEAR_FIRST.fullmatch(text) or _COMPACT.fullmatch(text):
        return _on_calendar(*(int(number) for number in match.groups()))
    if match := _NUMBERS.fullmatch(text):
        one, other, last = int(match[1]), int(match[3]), int(match[4])
        if order == "year" and len(match[4]) == 2:
            return _on_calendar(2000 + one, other, last)
        day_first = order == "day" or match[2] == "."
        return _on_calendar(_full_year(match[4]), *((other, one) if day_first else (one, other)))
    if match := _DAY_MONTH.fullmatch(text):
        return _on_calendar(_full_year(match[3]) if match[3] else None, month(match[2]), int(match[1]))
    if match := _MONTH_DAY.fullmatch(text):
        return _on_calendar(int(match[3]) if match[3] else None, month(match[1]), int(match[2]))
    return None


def _full_year(digits: str) -> int:
    """Two digits stand for the years 1970 to 2069."""
    year = int(digits)
    return year if len(digits) == 4 else year + (2000 if year < 70 else 1900)


def _on_calendar(year: int | None, number: int, day: int, second: float | None = None) -> Day | None:
    try:
        ordinal(SOME_YEAR if year is None else year, number, day)
    except ValueError:
        return None
    return Day(year, number, day, second)


@lru_cache(maxsize=1 << 12)
def read_time(text: str) -> Second | None:
    """The time of day that a match of `ANY_TIME` spells; None if there is no such time."""
    if match := _CLOCK_PARTS.fullmatch(text):
        word = match["before"] or match["half"]
        half = _HALF_OF.get(word, word[0]) if word else None
        second, zone = match["second"], match["zone"]
        if second and ":" in second:
            second = second.replace(":", ".")
        parts = match["hour"], match["minute"], second, half
    elif match := _DIGITS.fullmatch(text):
        half, zone = None, match["zone"]
        parts = match[1], match[2], match[3], None
    else:
        return None
    try:
        seconds = second_of_day(*parts)
    except ValueError:
        return None
    zone = (zone or "").strip().removeprefix("UTC").removeprefix("GMT")
    return Second(seconds, parts[2] is not None, half is not None, offset(zone or None))


@lru_cache(maxsize=64)
def ordinal(year: int, month: int, day: int) -> int:
    """Days since 1970. Raises `ValueError` if there is no such day."""
    return date(year, month, day).toordinal() - EPOCH


def since_start(time: str) -> str:
    """Minutes and seconds since the start, as a time of day. Times with hours stay."""
    minutes, _, seconds = time.partition(":")
    if not (minutes.isdecimal() and seconds.isdecimal()):
        return time
    return f"{int(minutes) // 60:02}:{int(minutes) % 60:02}:{seconds}"


def second_of_day(hour: str, minute: str, second: str | None, half: str | None) -> float:
    """Seconds since midnight. Raises `ValueError` if there is no such time."""
    hours, minutes = int(hour), int(minute)
    seconds = float(second.replace(",", ".")) if second else 0.0
    if half:
        if hours > 12:  # LINE counts halves from 0
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
    """Seconds since 1970 of a date with an optional time, in UTC unless it names a zone; None if it is no date with a year."""
    text = text.strip()
    stamps = find_stamps(text)
    if not stamps or stamps[0] != ("date", 0, stamps[0].end) or stamps[-1].end != len(text) or len(stamps) > 2:
        return None
    day = read_date(text[: stamps[0].end], "day" if day_first else "month")
    if day is None or day.year is None or day.second is not None:
        return None
    time = read_time(text[stamps[1].start :]) if len(stamps) > 1 else Second(0.0, exact=True, half=False, zone=0)
    if time is None or (len(stamps) > 1 and not _JOINER.fullmatch(text, stamps[0].end, stamps[1].start)):
        return None
    seconds = ordinal(day.year, day.month, day.day) * DAY + time.second - time.zone
    return seconds if FIRST_TIME <= seconds <= LAST_TIME else None


def settled_moment(text: str) -> float | None:
    """`moment` of a date that is the same one with the day first and with the month first; None for any other text."""
    time = moment(text, day_first=True)
    return time if time == moment(text, day_first=False) else None


# --- the order of day and month -------------------------------------------------------------------------------------------


def is_open(date: str) -> bool:
    """Whether a date is of a form in which the day or the month may come first."""
    return (match := _NUMBERS.fullmatch(date) or _DAY_AND_MONTH.fullmatch(date)) is not None and match[2] != "."


class DateOrder:
    """The number with which dates of three numbers begin: given, or worked out. The month comes first if nothing is known."""

    def __init__(self, dates: Given) -> None:
        self.order: Order = "month" if dates == "auto" else dates
        self.given = dates != "auto"
        self.open_year: str | None = None
        """A date with dashes if none shows whether the year is its first or its last number."""

    @property
    def day_first(self) -> bool:
        return self.order == "day"

    def settle(self, texts: Iterable[str]) -> str | None:
        """Infer the order from the first unambiguous date with slashes, for rows in any order of time.

        Returns an ambiguous date if there is no unambiguous one. Later calls change
        nothing once dates with slashes were seen, so that the order is the same in the whole file.
        """
        ambiguous = None
        for text in () if self.given else texts:
            if match := _SLASHED.match(text):
                self.given = True
                one, other = int(match[1]), int(match[2])
                if (one > 12) != (other > 12):
                    self.order = "day" if one > 12 else "month"
                    return None
                ambiguous = ambiguous or match[0].strip(" [(")
        return ambiguous

    def settle_log(self, dates: Iterable[str]) -> str | None:
        """Work out the order from the dates of a log, in the log's order. Returns a date if they are all ambiguous.

        An order is ruled out by a day that does not exist, then by days that go back more often, and at last if its days lie
        `DENSER` times farther apart. The month comes first if neither is ruled out.
        """
        numbers = list(dict.fromkeys(date for date in dates if is_open(date)))
        if self.given or not numbers:
            return None
        faults: dict[Order, tuple[int, int, int]] = {order: _faults(numbers, order) for order in get_args(Order)}
        orders: list[Order] = list(faults)
        best = min(orders, key=lambda order: faults[order][:2])
        self.order = best
        if all(_SHORT_WITH_DASHES.fullmatch(date) for date in numbers) and not _is_settled(faults, best):
            self.open_year = numbers[0]
        if best == "year" or faults["day"][:2] != faults["month"][:2]:
            return None
        near, far = sorted((faults["day"][2], faults["month"][2]))
        if near > 0 and far >= DENSER * near:
            self.order = "day" if faults["day"][2] == near else "month"
            return None
        return None if near == far == 0 and all(_is_same_either_way(date) for date in numbers) else numbers[0]


_SLASHED = re.compile(r"[\s\[(]*(\d{1,2})/(\d{1,2})/(?:\d{4}|\d\d)(?!\d)")
_SHORT_WITH_DASHES = re.compile(r"\d\d-\d\d-\d\d")


def _is_settled(faults: Mapping[Order, tuple[int, int, int]], best: Order) -> bool:
    """Whether the dates show where the year stands."""
    others = [fault for order, fault in faults.items() if (order == "year") != (best == "year")]
    near = faults[best][2]
    return all(fault[:2] != faults[best][:2] or (near > 0 and fault[2] >= DENSER * near) for fault in others)


def _faults(dates: list[str], order: Order) -> tuple[int, int, int]:
    """Days that do not exist or have not come yet, days before the day above them, and days from the first to the last."""
    latest = date.today().year + 1
    days = [day if (day := read_date(date, order)) and (day.year or 0) <= latest else None for date in dates]
    known = [ordinal(day.year or SOME_YEAR, day.month, day.day) for day in days if day is not None]
    back = sum(one > other for one, other in pairwise(known))
    return len(days) - len(known), back, max(known, default=0) - min(known, default=0)


def _is_same_either_way(date: str) -> bool:
    return read_date(date, "day") == read_date(date, "month")
