"""Layouts that no known program writes: prefix, date, time, brackets, notices and empty lines in free combination."""
# ruff: noqa: E501, SIM905 - long lists of words and templates read better as text

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

from chat_layout_base import Event
from chat_layout_exporters import Row, row
from chat_layout_talk import OTHERS

T = TypeVar("T")

# Times by kind of date. A stamp that holds "] [" needs square brackets around it.
STAMPS: dict[str, str] = {
    "none": """{HH}:{MI};{HH}:{MI}:{SS};{h}:{MI} {AP};{hh}:{MI}:{SS}{ap};{HH}.{MI};{HH}:{MI}:{SS}.{MS};{HH}h{MI};{HH}:{MI}:{SS},{MS}
        {HH}:{MI} UTC;{h}.{MI} {apdot};T{HH}:{MI}:{SS};{HH}:{MI}:{SS}Z;{H}:{MI};{HH}.{MI}.{SS};{HH}:{MI} Uhr;{hp}:{MI} {ap}""",
    "header": "{HH}:{MI};{HH}:{MI}:{SS};{h}:{MI} {AP};{HH}.{MI};{HH}:{MI}:{SS}.{MS};{H}:{MI}:{SS};{hh}:{MI}{ap};{HH}h{MI};{HH}:{MI}",
    "year first": """{Y4}-{MO}-{DD} {HH}:{MI}:{SS};{Y4}-{MO}-{DD}T{HH}:{MI}:{SS}{ZZ};{Y4}-{MO}-{DD}T{HH}:{MI}:{SS}Z;{Y4}{MO}{DD}T{HH}{MI}{SS}Z
        {Y4}-{MO}-{DD} {HH}:{MI}:{SS},{MS};{Y4}/{MO}/{DD} {HH}:{MI}:{SS};{Y4}.{MO}.{DD} {HH}:{MI};{Y4}-{MO}-{DD}_{HH}:{MI}:{SS}
        {Y4}-{MO}-{DD}, {h}:{MI} {AP};{Y4}-{MO}-{DD}] [{HH}:{MI};{Y4}-{MO}-{DD} {HH}:{MI}:{SS} {Z};{Y4}-{MO}-{DD}T{HH}:{MI}:{SS}.{MS}{ZZ}
        {Y4}{MO}{DD} {HH}:{MI}:{SS};{Y4}-{M}-{D} {H}:{MI};{Y4}年{M}月{D}日 {HH}:{MI};{HH}:{MI}:{SS} {Y4}-{MO}-{DD};{Y4}-{MO}-{DD} {HH}:{MI} UTC""",
    "dotted": """{DD}.{MO}.{Y4} {HH}:{MI};{D}.{M}.{Y4}, {HH}:{MI};{DD}.{MO}.{Y2} {HH}:{MI}:{SS};{HH}:{MI} {DD}.{MO}.{Y4};{DD}.{MO}.{Y4}] [{HH}:{MI}:{SS}
        {D}. {M}. {Y4} {H}:{MI};{DD}.{MO}.{Y4} - {HH}.{MI};{WD} {DD}.{MO}.{Y4} {HH}:{MI}""",
    "day first": """{DD}/{MO}/{Y4} {HH}:{MI};{DD}-{MO}-{Y4} {HH}:{MI}:{SS};{D}/{M}/{Y2} {HH}:{MI};{DD}/{MO}/{Y2} {h}:{MI} {ap};{HH}:{MI} {DD}/{MO}/{Y4}
        {DD}/{MO}/{Y4}] [{HH}:{MI}:{SS};{WD} {DD}/{MO}/{Y4} {HH}:{MI};{DD}-{MO}-{Y4} {HH}:{MI}""",
    "month first": """{MO}/{DD}/{Y4} {hh}:{MI} {AP};{M}/{D}/{Y2} {h}:{MI}:{SS} {AP};{MO}/{DD}/{Y2} {HH}:{MI};{MO}-{DD}-{Y4} {HH}:{MI}:{SS}
        {M}/{D}/{Y4}, {HH}:{MI};{h}:{MI} {AP} {MO}/{DD}/{Y4};{MO}/{DD}/{Y4} {HH}:{MI}:{SS};{MO}/{DD}/{Y4}] [{HH}:{MI}""",
    "month name": """{DD} {MON} {Y4} {HH}:{MI};{MON} {D}, {Y4} {h}:{MI} {AP};{WD} {MON} {DD} {HH}:{MI}:{SS} {Y4};{D}. {MONTH} {Y4} {HH}:{MI}
        {D} de {MONTH} de {Y4} {HH}:{MI};{D} {MONTH} {Y4} {HH}:{MI}:{SS};{DD}-{MON}-{Y4} {HH}:{MI};{DD}/{MON}/{Y4}:{HH}:{MI}:{SS} {Z}
        {WD}, {DD} {MON} {Y4} {HH}:{MI}:{SS} {Z};{WEEKDAY} {D} {MONTH} {Y4}, {HH}h{MI};{Y4}-{MON}-{DD} {HH}:{MI}:{SS};{MONTH} {D}, {Y4} at {h}:{MI} {AP}""",
    "no year": "{MON} {DD} {HH}:{MI}:{SS};{MO}-{DD} {HH}:{MI}:{SS}.{MS};{DD}.{MO}. {HH}:{MI};{WD} {HH}:{MI};{MON} {D}, {h}:{MI} {AP};{DD}/{MO} {HH}:{MI}",
    "epoch": "{EP};{EP}.{MS};{EPMS};ts={EP};{EP}",
    "either order": "{DD}/{MO}/{Y4} {HH}:{MI};{M}/{D}/{Y2} {HH}:{MI}:{SS};{MO}-{DD}-{Y4} {HH}:{MI};{DD}/{MO}/{Y2} {h}:{MI} {AP};{MO}/{DD}/{Y4}] [{HH}:{MI}",
    "no time": ";;;;;;;",
}  # fmt: skip
DATES = {
    "none": 21,
    "header": 13,
    "year first": 19,
    "dotted": 8,
    "day first": 9,
    "month first": 8,
    "month name": 12,
    "no year": 6,
}
DATES |= {"epoch": 5, "either order": 5, "no time": 8}
# How to write the names of months, for the templates that hold one.
TONGUES = {"{D}. {MONTH} {Y4}": "de", " de {MONTH}": "pt", "{WEEKDAY} {D} {MONTH}": "fr", "{D} {MONTH} {Y4} {HH}": "ru"}

WRAPS = [
    "[%s] ",
    "(%s) ",
    "<%s> ",
    "%s ",
    "{{%s}} ",
    "%s - ",
    "%s | ",
    "|%s| ",
    "«%s» ",
    "%s\t",
    "[%s]: ",
    "%s> ",
    "%s — ",
    "%s :: ",
    "[%s]",
]
WRAPS += ["%s  ", "@%s ", "~%s~ ", "%s » ", "#%s# ", "%s, ", "[ %s ] ", "%s; ", "== %s == ", "[%s] ", "(%s) ", "%s ", "[%s] "]

# Authors: template, axis value, and letters: s names may have spaces, w odd names, m modes, e empty texts, u usable without a time.
AUTHORS = [tuple(line.split("~~")) for line in """<{nick}> ~~<ann>~~swmeu
<{nick}>  ~~<ann>~~swmeu
<{who}>: ~~<ann>~~seu
[{who}] ~~[ann]~~seu
[{nick}] ~~[ann]~~seum
[{who}]: ~~[ann]~~seu
({who}) ~~(ann)~~seu
({nick}) ~~(ann)~~seum
({who}): ~~(ann)~~eu
{{{who}}} ~~{ann}~~seu
{{{who}}}: ~~{ann}~~eu
{{ {who} }} ~~{ann}~~eu
«{who}» ~~«ann»~~seu
«{who}»: ~~«ann»~~se
*{who}* ~~*ann*~~eu
*{who}* ~~*ann*~~se
**{who}**: ~~*ann*~~seu
[{who}] - ~~[ann]~~seu
[ {who} ] ~~[ann]~~seu
({who}) - ~~(ann)~~eu
( {who} ) ~~(ann)~~eu
« {who} » ~~«ann»~~seu
«{who}» - ~~«ann»~~se
*{who}*: ~~*ann*~~seu
* {who} * ~~*ann*~~e
*{who}* - ~~*ann*~~eu
{who} — ~~ann -~~su
{who} - ~~ann -~~u
{who} --- ~~ann -~~s
{who}: ~~ann:~~seu
{who} : ~~ann:~~seu
{nick}: ~~ann:~~me
{who:<12}: ~~ann:~~u
{who} | ~~ann |~~seu
{who:>14} | ~~ann |~~seu
{who} ¦ ~~ann |~~e
{who} - ~~ann -~~su
{who} – ~~ann -~~s
{who} -- ~~ann -~~u
{who}> ~~ann>~~eu
{nick}> ~~ann>~~m
{who} > ~~ann>~~su
@{who} ~~@ann~~u
@{who}: ~~@ann~~eu
@{who} - ~~@ann~~u
{who} » ~~ann »~~su
{who}» ~~ann »~~eu
{who} »» ~~ann »~~s
{who}\t~~ann TAB~~wse
{who}\t\t~~ann TAB~~e
{nick}\t~~ann TAB~~me
{who} >> ~~other~~s
{who} → ~~other~~su
{who} says: ~~other~~s
From {who}: ~~other~~su
【{who}】~~other~~seu
「{who}」 ~~other~~seu
<<{who}>> ~~other~~seu
[[{who}]] ~~other~~seu
|{who}| ~~other~~eu
~{who}~ ~~other~~e
/{who}/ ~~other~~e
"{who}" ~~other~~se
‘{who}’: ~~other~~se
{who}$ ~~other~~
{who}% ~~other~~
{who} # ~~other~~
{who} :: ~~other~~su
{who} => ~~other~~su
{who} ~ ~~other~~
#{who}# ~~other~~e
user={who} msg=~~other~~eu
{who}; ~~other~~
=={who}== ~~other~~e
⟨{who}⟩ ~~other~~seu
{who} ⟩ ~~other~~
{who} (user): ~~other~~e
<{who}!{who}@203.0.113.9> ~~other~~eu
[{who}/main] ~~other~~e
→{who}: ~~other~~e
{who}@desk7: ~~other~~e""".split("\n")]  # fmt: skip
LAST = [
    "{who} [%s]: ",
    "{who} (%s) ",
    "{who} @ %s: ",
    "<{who} %s> ",
    "{who}, %s: ",
    "[{who} | %s] ",
    "{who} <%s> ",
    "({who} - %s) ",
]

SYMBOLS = "!! ## >>> ~~ -+- // @@ +++ § ⚑ %% ··".split()
NOTICE_STYLES = """none mirc irssi weechat arrows unicode_arrows znc stars supybot eggdrop prose dashes equals brackets zendesk none
odd odd odd upper pidgin""".split()

DAY_LINES = """--- {WEEKDAY}, {D} {MONTH} {Y4} ---
=== {Y4}-{MO}-{DD} ===
# {DD}.{MO}.{Y4}
{WEEKDAY}, {MONTH} {D}, {Y4}
{Y4}-{MO}-{DD}
Day changed to {DD} {MON} {Y4}
[{Y4}-{MO}-{DD}]
*** Log for {WD} {MON} {DD} {Y4}
~~~~ {D}. {MONTH} {Y4} ~~~~
### {MONTH} {D}, {Y4}
Date: {WD}, {DD} {MON} {Y4}
________ {Y4}/{MO}/{DD} ________
{WD} {D} {MON} {Y4}""".split("\n")

PREFIXES = """none none none none none none none channel channel channels channels server number number number level levels host uuid id
none number channel level host uuid""".split()


def hexadecimal(r: Random, length: int) -> str:
    return "".join(r.choice("0123456789abcdef") for _ in range(length))


def prefix(r: Random, kind: str) -> tuple[str, Callable[[Random, int, Event], str]]:
    """A value of the axis and a writer of prefixes."""
    if kind == "channel":
        value = r.choice(("[#garden] ", "#ops ", "#dev: ", "allotment/tools | ", "(#lounge) ", "{general} "))
        return "channel", lambda r, number, event: value
    if kind == "channels":
        form = r.choice(("[{}] ", "{} ", "{} | ", "({}) "))
        names = r.choice((("#dev", "#ops"), ("#a", "#b", "#c"), ("garden/north", "garden/south"), ("#lounge", "#lounge-de")))
        return "channel", lambda r, number, event: form.format(r.choice(names))
    if kind == "server":
        value = r.choice(("irc.example.net ", "(oftc) ", "libera: ", "[eu-3] "))
        return "server", lambda r, number, event: value
    if kind == "number":
        form, start = (
            r.choice(("{} ", "{:05} ", "{}: ", "#{} ", "{:>4}  ", "({}) ", "{}) ", "{}. ", "L{} ")),
            r.choice((0, 0, 40, 2100)),
        )
        return "number", lambda r, number, event: form.format(number + start)
    if kind == "level":
        value = r.choice(("[INFO] ", "INFO ", "INFO:root:", "I/chat: ", "[info][chat] ", "DEBUG|"))
        return "level", lambda r, number, event: value
    if kind == "levels":
        form = r.choice(("[{}] ", "{:<6} ", "<{}> "))
        return "level", lambda r, number, event: form.format(
            "INFO" if event.kind == "message" else r.choice(("NOTICE", "WARN"))
        )
    if kind == "host":
        value = r.choice(("web3 chatd[88]: ", "relay.example.org ", "10.0.0.7 ", "node7: ", "gw-2 chat[1]: "))
        return "host", lambda r, number, event: value
    if kind == "uuid":
        return "uuid", lambda r, number, event: "-".join(hexadecimal(r, size) for size in (8, 4, 4, 4, 12)) + " "
    if kind == "id":
        form = r.choice(("[{}] ", "id={} ", "${}: "))
        return "uuid", lambda r, number, event: form.format(hexadecimal(r, 8))
    return "none", lambda r, number, event: ""


def spread(r: Random, values: Sequence[T], count: int) -> list[T]:
    """Each value about equally often, in random order."""
    found: list[T] = []
    while len(found) < count:
        found += r.sample(list(values), len(values))
    return found[:count]


def composed(r: Random, count: int) -> list[Row]:
    dates = [date for date, share in DATES.items() for _ in range(share)]
    cores = {
        date: spread(r, [core.strip() for core in cores.replace("\n", ";").split(";")], DATES[date])
        for date, cores in STAMPS.items()
    }
    axes = zip(
        spread(r, dates, count),
        spread(r, PREFIXES, count),
        spread(r, WRAPS, count),
        spread(r, NOTICE_STYLES, count),
        spread(r, DAY_LINES, count),
    )
    authors = spread(r, AUTHORS, 4 * count)
    rows = []
    for date, before, wrap, style, day in axes:
        core = cores[date].pop()
        fits = [place for place, author in enumerate(authors[:60]) if date != "no time" or "u" in author[2]]
        rows.append(compose(r, date, core, before, wrap, style.replace("_", " "), day, authors.pop(fits[0])))
    return rows


def compose(r: Random, date: str, core: str, before: str, wrap: str, style: str, day: str, author: tuple[str, ...]) -> Row:
    template, bracket, letters = author
    options: dict[str, Any] = {}
    if "] [" in core:
        wrap = "[%s] "
    if core and wrap in ("/%s/ ", "%s, ") and "," in core:
        wrap = "%s - "
    stamp = wrap.replace("%s", core) if core else ""
    label, pre = prefix(r, before)
    last = core and date in ("none", "year first", "header", "dotted") and r.random() < 0.1 and "m" not in letters
    between = r.random() < 0.5 and core
    opening = stamp + "{pre}" if between else "{pre}" + stamp
    if last:
        template, bracket, letters = r.choice(LAST).replace("%s", core.replace("] [", " ")), "time after", "se"
        said, opening = "{pre}" + template + "{text}", "{pre}"
    else:
        said = opening + template + "{text}"
    names = "wild" if "w" in letters and r.random() < 0.4 else "full" if "s" in letters and r.random() < 0.55 else "nick"
    if "m" in letters and "{nick}" in said and r.random() < 0.6:
        options["modes"] = r.choice(("@+--", "@%+-", "@-", "~&@%+-"))
        names = "nick"
    multi = r.choice(("none", "none", "none", "flush", "flush", "indent", "inside"))
    if not core or last:
        multi = r.choice(("none", "indent", "none"))
    if multi == "indent":
        options["indent"] = r.choice(("  ", "    ", "\t", "        ", "           "))
    options["multi"] = multi
    if style == "odd":
        style = "odd " + r.choice(SYMBOLS)
    if style in ("eggdrop", "weechat", "pidgin") and (not core or "ann:" in bracket):
        style = "prose"
    if style in ("brackets", "upper") and bracket == "[ann]":
        style = "stars"
    if style in ("mirc", "zendesk", "stars", "znc", "supybot") and bracket == "*ann*":
        style = "dashes"
    if style in ("arrows", "weechat") and bracket in ("ann -", "ann>"):
        style = "prose" if core else "stars"
    options["notes"] = style
    stamped = not (style in ("stars", "dashes", "equals", "znc") and r.random() < 0.3 and multi in ("none", "indent"))
    options["note"] = (opening if stamped and not last else "") + "{text}"
    if last and style in ("prose", "eggdrop"):
        options["multi"] = "none"
    stars = style in ("mirc", "zendesk", "stars", "znc", "supybot", "irssi", "none", "equals") or style[:3] == "odd"
    if stars and bracket != "*ann*" and r.random() < 0.45 and not last:
        options["act"] = opening + r.choice(
            ("* {who} {text}", "* {who} {text}", " * {who} {text}", "• {who} {text}", "*{who} {text}*")
        )
        options["actions"] = 0.08
    if "e" in letters and r.random() < 0.4:
        options["empty"] = 0.04
        options["keep_space"] = bracket == "ann TAB" or r.random() < 0.5
    spacing = r.random()
    if spacing < 0.18:
        options["between"] = 1
    elif spacing < 0.36 and multi != "inside":
        options["scatter"] = 0.06
    if date == "header":
        options["day"] = (day,) if r.random() < 0.7 else ("", day, "")
    if date == "either order":
        options |= {"either_order": True, "days": r.choice((1, 2))}
    if date == "no year":
        options["days"] = r.choice((0, 1))
    if "{Z" in core:
        options["zone"] = ("", r.choice((0, 60, 120, -300, 330, -480)))
    elif "UTC" in core or "Z" in core:
        options["zone"] = ("UTC", 0)
    if date in ("none", "header", "no year"):
        options.pop("zone", None)
    options["lang"] = next((lang for part, lang in TONGUES.items() if part in core), "en")
    options["texts"] = options["lang"] if options["lang"] != "en" else r.choice(("en", "en", "en", *sorted(OTHERS)))
    if r.random() < 0.15:
        options["top"] = r.choice(
            (("# chat log", ""), ("Transcript of the garden room", "-" * 29), (";; exported, do not edit",))
        )
    if r.random() < 0.1:
        options["crlf"] = True
    options["last_newline"] = r.random() < 0.85
    options["tricky"] = r.choice((0.08, 0.14, 0.25))
    options["hard_lines"] = bool(core) and r.random() < 0.5 and multi in ("flush", "inside")
    alias = ALIASES.get(template.replace("{text}", ""))
    if alias:
        options["aliases"] = lambda who: tuple(form.format(who=who) for form in alias)
    return row("composed", said, names=names, bracket=bracket, prefix=label, pre=pre, **options)


# Forms of a name that a careful reader may keep.
ALIASES = {
    "@{who} ": ("@{who}",),
    "@{who}: ": ("@{who}",),
    "@{who} - ": ("@{who}",),
    '"{who}" ': ('"{who}"',),
    "‘{who}’: ": ("‘{who}’",),
    "{who} (user): ": ("{who} (user)",),
    "<{who}!{who}@203.0.113.9> ": ("{who}!{who}@203.0.113.9",),
    "[{who}/main] ": ("{who}/main",),
    "{who}@desk7: ": ("{who}@desk7",),
    "→{who}: ": ("→{who}",),
}
