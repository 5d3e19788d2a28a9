"""Chat-log layouts for tests: the types, the writer that turns a conversation into lines with their truth, and the judge."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from random import Random
from typing import Any

UNITS = {"minute": 60.0, "second": 1.0, "milli": 0.001}
# Direction marks: WhatsApp writes them around names, phone numbers and attachments.
MARKS = dict.fromkeys(map(ord, "\u200e\u200f\u202a\u202c\ufeff\r"))


@dataclass(frozen=True)
class Line:
    """The truth about one line of a log.

    `kind` is `message`, `header` (a message whose text begins on the next line), `continuation`, `action`, `system`, `extra`
    (an attachment or reaction of the message above, in or out of its text), or `blank`. `optional` system lines may be read
    as a message. `others` are further correct readings (author, text) of the line.
    """

    kind: str
    author: str | None = None
    text: str = ""
    time: str | None = None
    optional: bool = False
    others: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Message:
    """A message, action or optional notice that a reader gives back, with every correct reading of it."""

    line: int
    kind: str
    readings: tuple[tuple[str, str], ...]
    time: str | None


@dataclass(frozen=True)
class Layout:
    """A chat log with its truth.

    `clock` is `full` (date and time), `day` (the time of day alone), `elapsed` (not checked) or `none`. `either_order` marks
    dates that can be day first or month first. `named_zone` marks a zone abbreviation: local time is accepted as well as UTC.
    `aliases` maps authors to other correct forms of their names.
    """

    name: str
    axes: Mapping[str, str]
    text: str
    truth: tuple[Line, ...]
    clock: str
    precision: str
    either_order: bool = False
    named_zone: bool = False
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def lines(self) -> list[str]:
        return split_lines(self.text)

    def messages(self, *, optional: bool = False) -> list[Message]:
        """The ordinary messages in order; with `optional`, also the actions and notices that may be read as messages."""
        found: list[Message] = []
        at = 0
        while at < len(self.truth):
            line, first = self.truth[at], at
            at += 1
            if line.kind == "system" and line.optional:
                body = [self.lines[first]]
                while at < len(self.truth) and self.truth[at].kind == "system" and not self.truth[at].author:
                    body.append(self.lines[at])
                    at += 1
                if optional:
                    found.append(Message(first, "notice", (("", "\n".join(body)),), line.time))
                continue
            if line.kind not in ("message", "header", "action"):
                continue
            pieces = [] if line.kind == "header" else [line.text]
            extras: list[str] = []
            while at < len(self.truth) and self.truth[at].kind in ("continuation", "blank", "extra"):
                (extras if self.truth[at].kind == "extra" else pieces).append(self.truth[at].text)
                at += 1
            text = "\n".join(pieces).rstrip("\n")
            author = line.author or ""
            names = (author, *self.aliases.get(author, ()))
            rest = "\n".join(["", *pieces[1:]]).rstrip("\n") if line.kind != "header" else ""
            readings = [(name, text) for name in names]
            readings += [(name, other + rest) for name, other in line.others]
            if extras:
                readings += [(name, "\n".join([text, *extras])) for name in names]
                readings += [(name, "\n".join([text, *extras[1:]])) for name in names]
            if line.kind != "action":
                found.append(Message(first, "message", tuple(readings), line.time))
            elif optional:
                found.append(Message(first, "action", tuple(readings), line.time))
        return found


@dataclass(frozen=True)
class Decoy:
    """A text that is no chat."""

    name: str
    text: str


@dataclass(frozen=True)
class Verdict:
    """`part` names the first difference: `count`, `empty`, `author`, `text`, `date` (the time of day is right) or `time`."""

    right: bool
    part: str = ""
    difference: str = ""

    def __str__(self) -> str:
        return "right" if self.right else f"wrong ({self.part}): {self.difference}"


def split_lines(text: str) -> list[str]:
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines and not lines[-1] else lines


def judge(layout: Layout, nodes: Iterable[Any]) -> Verdict:
    """Compare what a reader gives back with the truth.

    `nodes` are triples (author, text, time) or objects with these attributes and perhaps `kind`. Times are seconds since
    1970, ISO strings, `datetime` objects or None; times without a zone count as UTC. Nodes without an author or with a kind
    other than `message` are not ordinary messages and are passed over. Ordinary messages must be equal in order, author, text
    and time, apart from direction marks, space around each line, and blank lines within a message. Actions may be missing or
    read as messages of their author.
    """
    read = [node for node in map(_triple, nodes) if node is not None]
    verdict = _compare(layout, read, swap=False)
    if layout.either_order and not verdict.right:
        other = _compare(layout, read, swap=True)
        return other if other.right else verdict
    return verdict


def judge_decoy(decoy: Decoy, nodes: Iterable[Any] | None) -> Verdict:
    """`nodes` is None if the reader refused the text. A reader that accepts it must not read an ordinary message in it."""
    read = [] if nodes is None else [node for node in map(_triple, nodes) if node is not None]
    if read:
        return Verdict(False, "count", f"{decoy.name}: {len(read)} messages read, first {read[0]!r:.200}")
    return Verdict(True)


def _triple(node: Any) -> tuple[str, str, Any] | None:
    if isinstance(node, Sequence):
        author, text, time = node[:3]
        kind = node[3] if len(node) > 3 else ""
    else:
        author, text, time, kind = node.author, node.text, node.time, getattr(node, "kind", "")
    return None if not author or kind not in ("", None, "message") else (author, text, time)


def _plain(text: str) -> str:
    lines = (line.strip() for line in text.translate(MARKS).split("\n"))
    return "\n".join(line for line in lines if line)


def _compare(layout: Layout, read: list[tuple[str, str, Any]], *, swap: bool) -> Verdict:
    at = 0
    number = 0
    for message in layout.messages(optional=True):
        node = read[at] if at < len(read) else None
        if message.kind != "message":
            if node is not None and _may_be(message, node) and not _time_fault(layout, message, node[2], swap):
                at += 1
            continue
        number += 1
        here = f"{layout.name}, line {message.line + 1}, message {number}"
        author, text = message.readings[0]
        if node is None:
            return Verdict(
                False, "count", f"{here}: expected {author!r}: {text!r:.120}, read nothing more ({len(read)} messages)"
            )
        fault = _fault(layout, message, node, swap)
        if fault:
            if not _plain(text) and _plain(node[1]):
                fault = "empty"
            shown = f"({author!r}, {text!r:.120}, {message.time!r})"
            return Verdict(False, fault, f"{here}: expected {shown}, read ({node[0]!r}, {node[1]!r:.120}, {node[2]!r})")
        at += 1
    if at < len(read):
        return Verdict(False, "count", f"{layout.name}: {len(read) - at} messages too many, first {read[at]!r:.200}")
    return Verdict(True)


def _may_be(message: Message, node: tuple[str, str, Any]) -> bool:
    text = _plain(node[1])
    if message.kind == "notice":
        return bool(text) and text in _plain(message.readings[0][1])
    return any(_plain(node[0]) == name and said in text for name, said in message.readings)


def _fault(layout: Layout, message: Message, node: tuple[str, str, Any], swap: bool) -> str:
    author, text = _plain(node[0]), _plain(node[1])
    if (author, text) not in [(_plain(name), _plain(said)) for name, said in message.readings]:
        return "text" if author in [_plain(name) for name, _ in message.readings] else "author"
    return _time_fault(layout, message, node[2], swap)


def _time_fault(layout: Layout, message: Message, time: Any, swap: bool) -> str:
    if layout.clock == "elapsed":
        return ""
    if message.time is None:
        return "" if time is None else "time"
    read = _seconds(time)
    if read is None:
        return "time"
    iso = message.time
    if swap:
        iso = iso[:5] + iso[8:10] + "-" + iso[5:7] + iso[10:]
    wanted = [_seconds(iso)]
    if layout.named_zone:
        wanted.append(_seconds(re.sub(r"[+-]\d\d:\d\d$", "", iso)))
    unit = UNITS[layout.precision]
    exact = any(value is not None and _same(read, value, unit) for value in wanted)
    time_of_day = any(value is not None and _same(read % 86400, value % 86400, unit) for value in wanted)
    if layout.clock == "day":
        return "" if time_of_day else "time"
    return "" if exact else "date" if time_of_day else "time"


def _same(one: float, other: float, unit: float) -> bool:
    return abs(one - other) < 0.0015 if unit < 1 else one // unit == other // unit


def _seconds(time: Any) -> float | None:
    if time is None or isinstance(time, bool):
        return None
    if isinstance(time, int | float):
        return float(time)
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time if "-" in time[:8] else f"1970-01-01T{time}")
        except ValueError:
            return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


# --- Writing ---------------------------------------------------------------------------------------------------------

MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "nl": "januari februari maart april mei juni juli augustus september oktober november december",
    "ru": "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
}
WEEKDAYS = {
    "en": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "de": "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
    "es": "lunes martes miércoles jueves viernes sábado domingo",
    "pt": "segunda-feira terça-feira quarta-feira quinta-feira sexta-feira sábado domingo",
    "fr": "lundi mardi mercredi jeudi vendredi samedi dimanche",
    "it": "lunedì martedì mercoledì giovedì venerdì sabato domenica",
    "nl": "maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
    "ru": "понедельник вторник среда четверг пятница суббота воскресенье",
    "ko": "월요일 화요일 수요일 목요일 금요일 토요일 일요일",
}


def time_parts(when: datetime, lang: str, zone: tuple[str, int] | None) -> dict[str, Any]:
    """The fields of time templates: `{DD}.{MO}.{Y4} {HH}:{MI}` and so on."""
    month = MONTHS.get(lang, MONTHS["en"]).split()[when.month - 1]
    weekday = WEEKDAYS.get(lang, WEEKDAYS["en"]).split()[when.weekday()]
    late = when.hour >= 12
    hour = when.hour % 12 or 12
    name, minutes = zone or ("UTC", 0)
    offset = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}{abs(minutes) % 60:02}"
    utc = when.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    epoch = int(utc.timestamp())
    millis = when.microsecond // 1000
    return {
        **{"D": when.day, "DD": f"{when.day:02}", "DP": f"{when.day:2}", "M": when.month, "MO": f"{when.month:02}"},
        **{"MON": month[:3], "MONTH": month, "WD": weekday[:3], "WEEKDAY": weekday},
        **{"Y2": f"{when.year % 100:02}", "Y4": when.year, "H": when.hour, "HH": f"{when.hour:02}"},
        **{"h": hour, "hh": f"{hour:02}", "hp": f"{hour:2}"},
        **{"MI": f"{when.minute:02}", "SS": f"{when.second:02}", "MS": f"{millis:03}"},
        **{"AP": "PM" if late else "AM", "ap": "pm" if late else "am", "apdot": "p.m." if late else "a.m."},
        **{"apes": "p.\xa0m." if late else "a.\xa0m.", "apzh": "下午" if late else "上午", "apko": "오후" if late else "오전"},
        **{"Z": offset, "ZZ": f"{offset[:3]}:{offset[3:]}", "ZN": name, "EP": epoch, "EPMS": f"{epoch}{millis:03}"},
    }


@dataclass
class Event:
    kind: str
    who: str
    lines: tuple[str, ...]
    when: datetime
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass
class Form:
    """The form of a log. Templates have the fields of `time_parts` and `pre who nick text` and those of the event.

    `said` without `{text}` puts the text on the lines below; `again` is then the head of a second message of the same author.
    Keys of `notes` are kinds of events; one that ends in `?` makes optional lines. `top`, `bottom` and `day` are written as
    system lines.
    """

    said: str
    again: str | None = None
    act: str | None = None
    note: str = "{text}"
    notes: Mapping[str, str] = field(default_factory=dict)
    top: Sequence[str] = ()
    bottom: Sequence[str] = ()
    day: Sequence[str] = ()
    first_day: bool = True
    multi: str = "none"
    indent: str = ""
    between: int = 0
    scatter: float = 0.0
    keep_space: bool = True
    lang: str = "en"
    zone: tuple[str, int] | None = None
    named_zone: bool = False
    elapsed: bool = False
    either_order: bool = False
    dated_top: bool = False
    crlf: bool = False
    bom: bool = False
    last_newline: bool = True
    extras: float = 0.0
    relay: str = ""
    pre: Callable[[Random, int, Event], str] = lambda r, number, event: ""
    alias: Callable[[str], tuple[str, ...]] = lambda who: ()
    modes: str = ""


class Log:
    """Lines and their truth, in step."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.truth: list[Line] = []

    def add(
        self, text: str, kind: str, author: str | None = None, said: str = "", time: str | None = None, **more: Any
    ) -> None:
        pieces = text.split("\n")
        opening = len(pieces) - 1 if kind in ("header", "message") else 0
        for number, piece in enumerate(pieces):
            self.lines.append(piece)
            if not piece.strip() and kind != "message":
                self.truth.append(Line("blank"))
            elif number != opening:
                self.truth.append(Line("system"))
            else:
                self.truth.append(Line(kind, author, said, time, **more))

    def blank(self, count: int = 1) -> None:
        for _ in range(count):
            self.add("", "blank")

    def join(self, form: Form) -> str:
        end = "\r\n" if form.crlf else "\n"
        return ("\ufeff" if form.bom else "") + end.join(self.lines) + (end if form.last_newline or not self.lines[-1] else "")


def clock_of(form: Form) -> tuple[str, str]:
    """The clock and precision that the templates give."""
    said = form.said
    if form.elapsed:
        return "elapsed", "second"
    if "{EP" in said:
        return "full", "milli" if "{EPMS" in said or "{MS" in said else "second"
    if "{MI" not in said:
        return "none", "second"
    precision = "milli" if "{MS" in said else "second" if "{SS" in said else "minute"
    dated = "{Y" in said or any("{Y" in line for line in form.day) or form.dated_top
    return "full" if dated else "day", precision


def iso(when: datetime, clock: str, precision: str, form: Form) -> str | None:
    if clock in ("none", "elapsed"):
        return None
    spec = {"minute": "minutes", "second": "seconds", "milli": "milliseconds"}[precision]
    if clock == "day":
        return when.time().isoformat(spec)
    if form.zone or "{EP" in form.said:
        when = when.replace(tzinfo=timezone(timedelta(minutes=form.zone[1] if form.zone else 0)))
    return when.isoformat(timespec=spec)


def write(r: Random, events: Sequence[Event], form: Form) -> Log:
    """Write a conversation as a log."""
    log = Log()
    clock, precision = clock_of(form)
    mode = {}
    number = 0

    def fields(event: Event, text: str = "") -> dict[str, Any]:
        who = event.who
        if form.modes and (who not in mode or r.random() < 0.04):
            mode[who] = r.choice(form.modes)
        parts = time_parts(event.when, form.lang, form.zone)
        passed = int((event.when - events[0].when).total_seconds())
        parts |= {
            "EH": passed // 3600,
            "EM": f"{passed // 60 % 60:02}",
            "ES": f"{passed % 60:02}",
            "TM": passed // 60,
            "mark": "",
        }
        parts |= {"who": who, "nick": mode.get(who, "").strip("-") + who, "text": text, "n": number}
        return parts | event.fields | {"pre": form.pre(r, number, event)}

    for line in form.top:
        log.add(line.format_map(fields(events[0])), "system")
    today: date | None = None
    before = ""
    for event in events:
        if form.day and event.when.date() != today and (today is not None or form.first_day):
            for line in form.day:
                log.add(line.format_map(fields(event)), "system")
        today = event.when.date()
        number += 1
        time = iso(event.when, clock, precision, form)
        if event.kind == "message":
            _write_message(r, log, form, event, fields, time, before == event.who)
        elif event.kind == "action":
            assert form.act is not None
            log.add(form.act.format_map(fields(event, event.lines[0])), "action", event.who, event.lines[0], time)
        else:
            optional = event.kind.endswith("?")
            parts = fields(event)
            text = form.notes[event.kind].format_map(parts)
            line = form.note.format_map(parts | {"text": text})
            log.add(line, "system", event.who if optional else None, line if optional else "", time, optional=optional)
        before = event.who if event.kind == "message" else ""
        log.blank(form.between)
        if form.scatter and r.random() < form.scatter:
            log.blank(r.choice((1, 1, 2)))
    for line in form.bottom:
        log.add(line.format_map(fields(events[-1])), "system")
    return log


def _write_message(
    r: Random, log: Log, form: Form, event: Event, fields: Callable[..., dict[str, Any]], time: str | None, same: bool
) -> None:
    lines = list(event.lines)
    if "{text}" not in form.said:
        head = form.again if form.again and same else form.said
        log.add(head.format_map(fields(event)), "header", event.who, "", time)
        rest = lines if any(lines) else []
    else:
        parts = fields(event, lines[0])
        others: tuple[tuple[str, str], ...] = ()
        if form.relay and lines[0] and r.random() < 0.4:
            relayed = r.choice(("<{who}> {text}", "[{who}] {text}")).format_map(parts)
            others = ((form.relay, relayed),)
            parts |= {"nick": form.relay, "who": form.relay, "text": relayed}
        first = form.said.format_map(parts)
        log.add(first if lines[0] or form.keep_space else first.rstrip(), "message", event.who, lines[0], time, others=others)
        rest = lines[1:]
    for line in rest:
        if line:
            log.add(form.indent + line, "continuation", None, line)
        else:
            log.blank()
    if form.extras and r.random() < form.extras:
        log.blank()
        for line in r.choice(EXTRAS):
            extra = line.format(n=r.randrange(100, 999))
            log.add(extra, "extra", None, extra)


EXTRAS = (
    ("{{Attachments}}", "https://cdn.example.net/files/8{n}/plan.png"),
    ("{{Attachments}}", "https://cdn.example.net/files/7{n}/notes.pdf", "https://cdn.example.net/files/7{n}/b.jpg"),
    ("{{Reactions}}", "👍 (3) 🎉"),
    ("{{Stickers}}", "https://cdn.example.net/stickers/{n}.png"),
)


# --- Axes ------------------------------------------------------------------------------------------------------------


def date_axis(form: Form) -> str:
    said = form.said
    if form.either_order:
        return "either order"
    if "{EP" in said:
        return "epoch"
    tokens = [
        token for token in re.findall(r"{(\w+)", said) if token in ("D", "DD", "DP", "M", "MO", "MON", "MONTH", "Y2", "Y4")
    ]
    if not tokens:
        return "header" if clock_of(form)[0] == "full" else "none"
    if "MON" in tokens or "MONTH" in tokens:
        return "month name" if tokens[-1][0] == "Y" or tokens[0][0] == "Y" else "no year"
    if not any(token[0] == "Y" for token in tokens):
        return "no year"
    if tokens[0][0] == "Y":
        return "year first"
    if tokens[0][0] == "M":
        return "month first"
    return "dotted" if re.search(r"{DD?}\. ?{M", said) else "day first"


def clock_axis(form: Form) -> str:
    said = form.said
    if form.elapsed:
        return "elapsed"
    for token, value in (("{EP", "epoch"), ("{Z", "zone"), ("UTC", "zone"), ("Z", "zone"), ("{MS", "milliseconds")):
        if token in said:
            return value
    if "{h}" in said or "{hh}" in said or "{hp}" in said:
        return "12 hours"
    return "seconds" if "{SS" in said else "minutes" if "{MI" in said else "none"
