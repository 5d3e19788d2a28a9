"""A second hundred of invented chat-log layouts with their truth, and eight texts that are no chats.

The programs, names and texts differ from those of `chat_layouts`. Layouts with the axis `doubt` = `refuse` are ambiguous: their truth
is the likeliest reading, and a careful reader may refuse them. Names, texts and formats come from a fixed seed.
"""
# ruff: noqa: E501, SIM905 - tables of templates and lists of words read better as text

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from random import Random
from typing import Any, TypeVar

from chat_layout_base import Decoy, Event, Form, Layout, Log, write
from chat_layout_exporters import Row, bracket_axis, layout_of
from chat_layout_second_texts import DOINGS, ENGLISH, HARD, MEDIA, MORE, OTHERS, POOLS, THINGS, TRICKY, make_decoys, split

T = TypeVar("T")
SEED = "chat layouts 2"
COUNT = 100


# Notices of a style.
NOTES = {
    style: split(texts)
    for style, _, texts in (
        line.partition(" ")
        for line in r"""none
kvirc {who} [{ident}@{host}] has joined {chan} ¦ {who} [{ident}@{host}] has quit IRC: {reason} ¦ {who} [{ident}@{host}] is now known as {new}
ircii *** {who} ({ident}@{host}) has joined channel {chan} ¦ *** Signoff: {who} ({reason}) ¦ *** {who} is now known as {new} ¦ *** {other} has changed the topic on channel {chan} to {topic}
smuxi -!- {who} [{ident}@{host}] has joined {chan} ¦ -!- {who} [{ident}@{host}] has quit [{reason}] ¦ -!- {other} changed the topic of {chan} to: {topic}
circe *** Join: {who} ({ident}@{host}) ¦ *** Quit: {who} ({ident}@{host}) - {reason} ¦ *** Nick change: {who} is now {new}
arrows --> {who} has come in ¦ <-- {who} has gone out: {reason} ¦ --- {who} set the topic: {topic} ¦ --- {who} is now {new}
muc {who} joined the room ¦ {who} left the room: {reason} ¦ {who} is now known as {new} ¦ {who} set the subject to: {topic}
phone {who} added {other} ¦ {who} left the group ¦ {who} changed the group name to “{topic}” ¦ Missed voice call from {who}
srcds World triggered "Round_Start" ¦ "{who}<{num}><[U:1:{num}77]><>" entered the game ¦ Team "CT" scored "{num}" with "5" players ¦ server_cvar: "mp_timelimit" "{num}"
frags {who} killed {other} with shotgun. ¦ {who} connected ¦ {who} suicided. ¦ Map changed to de_lake
quest {who} hits a bog rat for {num} points of damage. ¦ You have entered Lower Fenmoor. ¦ {who} has been slain by a bog rat! ¦ Your faction standing got better.
tibia You lose {num} hitpoints due to an attack by a cave rat. ¦ You advanced to level {num}. ¦ {who} was promoted to Vice Leader
inf Player '{who}' joined the game ¦ Time: {num}.10m FPS: 40.12 Heap: 12{num}.4MB Max: 2048.0MB ¦ World saved: {num} chunks
kills Kill: 1 2 15: {who} killed {other} by MOD_RIFLE ¦ ClientConnect: {num} ¦ Item: 3 ut_weapon_knife
fics Notification: {who} has arrived. ¦ {{Game {num} ({who} vs. {other}) Creating rated blitz match.}} ¦ Notification: {who} has departed.
mush [Public] {who} has connected. ¦ GAME: {who} has disconnected. ¦ [Public] {who} has joined this channel.
subs {who} subscribed at Tier 1. They've subscribed for {num} months! ¦ {who} is raiding with a party of {num}. ¦ {who} has been timed out for {num}s.
bot [BOT] Thread was opened by {who} ¦ [SYSTEM] Moved thread to {chan} ¦ [COMMAND] !close {num}m
moodle {who} has just entered this chat ¦ {who} has left this chat
stars ** {who} is here ** ¦ ** {who} left ({reason}) ** ¦ ** {who} renamed the room to {topic} **
dashes -- {who} joined -- ¦ -- {who} parted ({reason}) -- ¦ -- new title: {topic} --
brackets [{who} entered the room] ¦ [{who} left the room] ¦ [{other} was removed by {who}]
equals === {who} <{ident}@{host}> has joined ¦ === {who} has signed off [{reason}] ¦ === {who} is now {new}
bullets • {who} came online ¦ • {who} went offline ¦ • {who} pinned a message""".split("\n")
    )
}

# --- The programs ----------------------------------------------------------------------------------------------------

MACROS = {
    "%F": "{Y4}-{MO}-{DD}",
    "%T": "{HH}:{MI}:{SS}",
    "%R": "{HH}:{MI}",
    "%I": "{h}:{MI} {AP}",
    "%Y": "{Y4}",
    "%y": "{Y2}",
    "%m": "{MO}",
    "%d": "{DD}",
}
MACROS |= {
    "%e": "{D}",
    "%n": "{M}",
    "%b": "{MON}",
    "%B": "{MONTH}",
    "%a": "{WD}",
    "%A": "{WEEKDAY}",
    "⏎": "\n",
    "⇥": "\t",
    "␣": " ",
}

# Family, template, options. `§` ends the part that notices and actions share; a flag alone stands for 1.
PROGRAMS = r"""
kvirc ¦ [%T] §<{who}> {text} ¦ act=* {who} {text} ¦ notes=kvirc ¦ names=wild ¦ top=### Log session started at %a %b %d %T %Y ### ¦ dated_top
ircii ¦ §<{who}> {text} ¦ act=* {who} {text} ¦ notes=ircii ¦ names=wild ¦ top=IRC log started %a %b %e %R ¦ bottom=IRC log ended *** %a %b %e %R
smuxi ¦ %F %T §<{nick}> {text} ¦ act= * {who} {text} ¦ notes=smuxi ¦ days=2 ¦ modes=@+␣
catgirl ¦ [%FT%T{Z}] §<{who}> {text} ¦ act=* {who} {text} ¦ notes=arrows ¦ zone=120 ¦ days=1 ¦ names=wild
bip ¦ %F %T §< {who}!{pre}: {text} ¦ act=* {who}!{pre} {text} ¦ notes=smuxi ¦ pre=host ¦ days=1
dircproxy ¦ @{EP} §<{who}!{pre}> {text} ¦ act=[{who}!{pre}] ACTION {text} ¦ pre=host
psybnc ¦ %a %b %d %T §:({who}!{pre}) {text} ¦ pre=host
rrsagent ¦ %T §[{who}]⇥{text} ¦ empty=0.04
logbot-table ¦ %R | {who} | {text} ¦ top=Time | Nick | Message⏎------|------|-------- ¦ names=nick
profanity ¦ %FT%T.{MS}{ZZ} §- {who}: {text} ¦ act=* {who} {text} ¦ zone=60 ¦ multi=flush ¦ hard ¦ days=2
poezio ¦ MR %Y%m%dT%TZ {pre} <{who}>␣␣{text} ¦ note=MI %Y%m%dT%TZ 000 {text} ¦ notes=muc ¦ pre=extra ¦ multi=indented ¦ indent=␣
amsn ¦ [%T] §{who} : {text} ¦ names=full ¦ top=[Conversation started on %e %b %Y %T]⏎ ¦ bottom=⏎[You have closed the window] ¦ dated_top ¦ scatter=0.05
msn-copy-de ¦ {who} sagt (%R): ¦ indent=␣␣ ¦ names=full ¦ texts=de ¦ multi=indented
msn-copy ¦ {who} says: ¦ indent=␣␣ ¦ names=full ¦ top=␣Never give out your password in an instant message. ¦ bom ¦ crlf
viber ¦ [ %e %B %Y %I ] §{who}: {text} ¦ names=full ¦ notes=phone ¦ multi=inside ¦ hard ¦ media ¦ days=2
whatsapp-web ¦ [%I, %n/%e/%Y] {who}: {text} ¦ names=full ¦ media ¦ multi=flush ¦ edit= <This message was edited>
vk ¦ {who} (%d.%m.%Y %T): ¦ between=1 ¦ names=full ¦ multi=flush ¦ days=2 ¦ media
google-chat ¦ {who}, %b %e, %I ¦ names=clean ¦ multi=flush
instagram ¦ %b %e, %Y, %I⏎{who} ¦ after ¦ names=full ¦ media ¦ between=1 ¦ top=Participants: {people}⏎ ¦ days=1
imazing ¦ ------------------------------------------------⏎%F %T from {who} ¦ names=full ¦ multi=flush ¦ media ¦ top=Messages - {group} ¦ days=2
bbm ¦ {who}: {text} ¦ names=full ¦ top=--------------------------------⏎Participants:⏎--------------------------------⏎{people}⏎⏎Messages:⏎--------------------------------
gotomeeting ¦ {who} (to Everyone): %I: {text} ¦ names=clean
chime ¦ {who} [%I] {text} ¦ names=full ¦ day=%A, %B %e, %Y ¦ days=1
lync ¦ {who} [%I]: ¦ names=clean ¦ top=Conversation with {people}⏎Started: %A, %B %e, %Y⏎ ¦ dated_top ¦ multi=flush
chatwork ¦ {who}⏎%Y年%n月%e日 %R ¦ names=cjk ¦ texts=ja ¦ between=1 ¦ multi=flush ¦ days=1
srcds ¦ L %m/%d/%Y - %T: §"{who}<{pre}><CT>" say "{text}" ¦ notes=srcds ¦ pre=steam ¦ quote=" ¦ names=wild
source-console ¦ {pre}{who} :␣␣{text} ¦ note={text} ¦ notes=frags ¦ pre=dead ¦ names=nick
7dtd ¦ %FT%T {TM}.{ES} INF §Chat (from 'Steam_{pre}', entity id '171', to 'Global'): '{who}': {text} ¦ notes=inf ¦ pre=digits
everquest ¦ [%a %b %d %T %Y] §{who} says, '{text}' ¦ quote=' ¦ notes=quest ¦ names=nick
tibia ¦ %R §{who} [{pre}]: {text} ¦ pre=level ¦ names=clean ¦ notes=tibia ¦ top=Channel Server Log saved %a %b %d %T %Y⏎
steam ¦ %I - {who}: {text} ¦ day=⏎%A, %B %e, %Y ¦ days=2 ¦ names=full ¦ media
urbanterror ¦ {TM:>3}:{ES} §say: {pre} {who}: {text} ¦ pre=slot ¦ notes=kills ¦ elapsed
fics ¦ {who}(50): {text} ¦ note={text} ¦ notes=fics ¦ names=Greta;moth;Ruairi;kpax
pennmush ¦ [Public] {who} says, "{text}" ¦ quote=" ¦ note={text} ¦ notes=mush ¦ act=[Public] {who} {text}
vb-shoutbox ¦ {who} (%d-%m-%Y, {hh}:{MI} {AP}): {text} ¦ names=nick ¦ days=1
cbox ¦ %e %b %y, %R⏎{who}: {text} ¦ names=nick ¦ between=1
tracker-shoutbox ¦ [%e-%b %R] [{who}] {text} ¦ names=nick
chat-downloader ¦ {EH}:{EM}:{ES} | {pre}{who}: {text} ¦ pre=badge ¦ elapsed ¦ names=full
justlog ¦ [%F %T] §{chan} {who}: {text} ¦ notes=subs ¦ names=nick ¦ days=1
matrix-commander ¦ Message received for room {group} | sender {who} [@{pre}:example.org] | event received %F %T | {text} ¦ pre=handle ¦ names=full
discourse ¦ [/chat]⏎[chat quote="{who};{n};%FT%TZ"] ¦ after ¦ multi=inside ¦ names=nick ¦ between=1
omegle ¦ {who}: {text} ¦ names=strangers ¦ top=You're now chatting with a random stranger. Say hi! ¦ bottom=Stranger has disconnected.
assistant-copy ¦ {who} said: ¦ names=assistant ¦ multi=inside
otter ¦ {who}␣␣{TM}:{ES} ¦ elapsed ¦ names=clean ¦ between=1 ¦ multi=flush
linkedin ¦ {who} sent the following message at %I⏎View the profile of {who}⏎{who}␣␣%I ¦ names=clean ¦ day=%b %e ¦ days=1 ¦ multi=flush
modmail ¦ [%F %T] §[{pre}] {who}: {text} ¦ pre=side ¦ names=nick ¦ notes=bot ¦ multi=flush ¦ top=# Modmail thread #{n} with {who} started at %F %T
write ¦ EOF⏎Message from {who}@{pre} on pts/2 at %R ... ¦ after ¦ pre=box ¦ names=Greta;moth;hugo99;kpax ¦ multi=flush
barnowl ¦ ␣{chan} / {pre} / {who}␣␣%R ¦ pre=thing ¦ indent=␣␣␣␣ ¦ multi=indented ¦ names=nick
js8call ¦ %F %T⇥7.078⇥{pre}⇥{who}: {text} ¦ pre=snr ¦ names=calls
etherpad ¦ {who}: %R {text} ¦ names=full
moodle ¦ %R §{who}: {text} ¦ note=%R: {text} ¦ notes=moodle ¦ names=clean
myphone ¦ Von: {who}⏎Datum: %d.%m.%Y %R ¦ names=full ¦ texts=de ¦ between=1 ¦ bom ¦ crlf ¦ multi=flush
mail-copy-fr ¦ {who} a écrit le %e %B %Y à %R : ¦ names=full ¦ texts=fr ¦ lang=fr ¦ between=1 ¦ days=2 ¦ multi=inside
copy-es ¦ {who}, [%e de %B de %Y, %R]: {text} ¦ names=full ¦ texts=es ¦ lang=es ¦ multi=flush ¦ days=1 ¦ edit= (editado)
direct-tsv ¦ %F %T⇥{who}⇥{to}⇥{text} ¦ top=date⇥from⇥to⇥text ¦ names=clean
spaces ¦ %R {who} {text} ¦ names=clean ¦ doubt
heads ¦ {who} ¦ names=heads ¦ doubt
colons ¦ {who}: {text} ¦ names=nick ¦ multi=flush ¦ hard ¦ doubt
short-years ¦ %y-%m-%d %R {who}: {text} ¦ names=nick ¦ doubt
dashes ¦ {who} - {text} ¦ names=full ¦ note={text} ¦ notes=phone ¦ doubt
stage ¦ {who}. {text} ¦ names=heads ¦ doubt ¦ between=1
commas ¦ {who}, {text} ¦ names=nick ¦ doubt
two-clocks ¦ %R {pre} {who}: {text} ¦ names=nick ¦ pre=local ¦ doubt
interview ¦ {who}: {text} ¦ names=Q;A ¦ doubt
from-or-to ¦ %F %T⇥{who}⇥{to}⇥{text} ¦ names=clean ¦ doubt
"""


def code(who: str, size: int) -> int:
    return sum(place * ord(letter) for place, letter in enumerate(who, start=7)) % size


def host(who: str) -> str:
    return f"~{who[:4].lower().strip()}@{('10.1.0.{}', 'dsl-{}.example.net', 'user/x{}')[code(who, 3)].format(code(who, 200))}"


def handle(who: str) -> str:
    return f"u{code(who, 900):03}"


def badge(who: str) -> str:
    return ("", "", "(Moderator) ", "(Member (2 months)) ")[code(who, 4)]


PRE: dict[str, Callable[[Random, int, Event], str]] = {
    "": lambda r, number, event: "",
    "host": lambda r, number, event: host(event.who),
    "extra": lambda r, number, event: f"{max(0, len(event.lines) - 1):03}",
    "steam": lambda r, number, event: f"{code(event.who, 30)}><[U:1:{code(event.who, 99991)}]",
    "dead": lambda r, number, event: r.choice(("", "", "*DEAD* ", "(TEAM) ")) if event.kind == "message" else "",
    "digits": lambda r, number, event: f"7656119{code(event.who, 99991):05}",
    "level": lambda r, number, event: str(code(event.who, 300)),
    "slot": lambda r, number, event: str(code(event.who, 12)),
    "badge": lambda r, number, event: badge(event.who),
    "handle": lambda r, number, event: handle(event.who),
    "side": lambda r, number, event: ("FROM USER", "TO USER", "CHAT")[code(event.who, 3)],
    "box": lambda r, number, event: "vax2",
    "thing": lambda r, number, event: r.choice(THINGS[:4]),
    "snr": lambda r, number, event: f"{r.randrange(-24, 9):+03}",
    "local": lambda r, number, event: (event.when + timedelta(hours=6)).strftime("%H:%M"),
    "hex": lambda r, number, event: f"{r.getrandbits(32):08x}",
    "arrow": lambda r, number, event: "→" if code(event.who, 2) else "←",
}
ALIASES: dict[str, Callable[[str], tuple[str, ...]]] = {
    "bip": lambda who: (f"{who}!{host(who)}",),
    "dircproxy": lambda who: (f"{who}!{host(who)}",),
    "psybnc": lambda who: (f"{who}!{host(who)}",),
    "tibia": lambda who: (f"{who} [{code(who, 300)}]",),
    "chat-downloader": lambda who: (badge(who) + who,),
    "fics": lambda who: (f"{who}(50)",),
    "write": lambda who: (f"{who}@vax2",),
    "matrix-commander": lambda who: (f"@{handle(who)}:example.org", f"{who} [@{handle(who)}:example.org]"),
}


def row(family: str, said: str, options: dict[str, str]) -> Row:
    form: dict[str, Any] = {"said": said.replace("§", "")}
    stamp = said.partition("§")[0] if "§" in said else ""
    if "act" in options:
        form["act"] = stamp + options.pop("act")
    form["note"] = options.pop("note", stamp + "{text}")
    for key in ("top", "bottom", "day"):
        if key in options:
            form[key] = options.pop(key).split("\n")
    for key in ("dated_top", "either_order", "elapsed", "crlf", "bom", "between"):
        if key in options:
            form[key] = int(options.pop(key))
    form |= {key: options.pop(key) for key in ("multi", "indent", "lang", "modes") if key in options}
    if "scatter" in options:
        form["scatter"] = float(options.pop("scatter"))
    if "zone" in options:
        minutes = int(options.pop("zone"))
        form["zone"] = (f"UTC+{minutes // 60}", minutes)
    own: dict[str, Any] = {key: options.pop(key) for key in ("notes", "names", "texts", "prefix", "bracket") if key in options}
    days = int(options.pop("days", "0"))
    unknown = set(options) - {"pre", "hard", "media", "edit", "quote", "after", "doubt", "empty"}
    assert not unknown, (family, unknown)
    aliases = (lambda who: (f"@{who}",)) if "@{who}" in said else ALIASES.get(family)
    return Row(family, form, days=days, aliases=aliases, chat=options, **own)


def expand(text: str) -> str:
    for macro, value in MACROS.items():
        text = text.replace(macro, value)
    return text


def programs() -> list[Row]:
    rows = []
    for line in PROGRAMS.strip().split("\n"):
        family, said, *options = line.split(" ¦ ")
        pairs = (option.partition("=") for option in options)
        rows.append(row(family, expand(said), {key: expand(value) or "1" for key, _, value in pairs}))
    return rows


# --- Composed over the axes ------------------------------------------------------------------------------------------

BEFORE = split(
    "none ¦ none ¦ none ¦ none ¦ none ¦ [{chan}] ¦ {chan} | ¦ {n:05} ¦ msg-{n}: ¦ INFO chat.room - ¦ srv2 relay[311]: ¦ ({pre}) hex ¦ {pre} arrow ¦ >>"
)
STAMPS = split("""%F %T ¦ %Y/%m/%d %R ¦ %Y.%m.%d-%T ¦ %d.%m.%y %R ¦ %d.%m.%Y, %T ¦ %e. %B %Y %R de ¦ %e %B %Y, %R fr ¦ %e de %B de %Y %R es ¦ %d-%m-%Y %R
%d/%m/%Y %T ¦ %m/%d/%y %I ¦ %n/%e/%Y, {h}:{MI}:{SS} {AP} ¦ %a %e %b %Y %R ¦ %b %d %T ¦ %A %R ¦ {EP} ¦ {EPMS} ¦ %FT%T.{MS}Z ¦ %F %R:{SS}{ZZ} zone ¦ %T ¦ %T ¦ %R ¦ %R
{h}.{MI} {ap} ¦ {HH}h{MI} ¦ %Y%m%d{HH}{MI}{SS} ¦ %d/%m/%y %R either ¦ %n-%e-%Y %I either ¦ %d %b %y %T ¦ none ¦ none ¦ none ¦ none ¦ %Y年%n月%e日 %R""")
WRAPS = split("[*]␣ ¦ (*)␣ ¦ *␣ ¦ *␣|␣ ¦ <*>␣ ¦ *␣-␣ ¦ {{*}}␣ ¦ *;␣ ¦ *␣→␣ ¦ *⇥ ¦ ‹*›␣ ¦ *␣>␣ ¦ [*]: ¦ -*-␣ ¦ *␣·␣")
AUTHORS = split("""<{who}> {text} ¦ {who}: {text} ¦ {who} » {text} ¦ «{who}» {text} ¦ [{who}] {text} ¦ ({who}) {text} ¦ *{who}* {text} ¦ {who}⇥{text} ¦ {who} | {text} ¦ {who} ▸ {text}
~{who}~ {text} ¦ {who} > {text} ¦ @{who}: {text} ¦ {{{who}}} {text} ¦ /{who}/ {text} ¦ {who} wrote: {text} ¦ {who} says: {text} ¦ from {who}: {text} ¦ "{who}" {text} ¦ {who}：{text}
【{who}】{text} ¦ {who} => {text} ¦ #{who}# {text} ¦ {who} :: {text} ¦ <<{who}>> {text} ¦ {who}]] {text} ¦ ={who}= {text}""")
ROUND = split(
    "{who} (*): {text} ¦ {who} [*] {text} ¦ {who}, *: {text} ¦ {who} @ * > {text} ¦ {who}␣|␣*␣|␣{text} ¦ <{who} *> {text} ¦ {who} (*)⇥{text}"
)
BELOW = split("{who} – * ¦ * · {who} ¦ [*] {who}: ¦ @{who} (*) : ¦ == {who}, * == ¦ From {who} at * ¦ *⏎{who}: ¦ ### {who} | *")
MARKED = "none stars dashes brackets equals bullets arrows circe none".split()
DAYS = ("----- %A, %e %B %Y -----", "=== %F ===", "%d.%m.%Y")


def spread(r: Random, values: Sequence[T], count: int) -> list[T]:
    """Each value about equally often, in random order."""
    found: list[T] = []
    while len(found) < count:
        found += r.sample(list(values), len(values))
    return found[:count]


def composed(r: Random, count: int) -> list[Row]:
    shapes = spread(r, ("author",) * 6 + ("round", "round", "below", "below"), count)
    multis = spread(r, ("none",) * 6 + ("flush", "flush", "indented", "inside"), count)
    lists = [spread(r, values, count) for values in (BEFORE, STAMPS, WRAPS, AUTHORS, ROUND, BELOW, MARKED)]
    rows = []
    for shape, multi, before, stamp, wrap, author, around, below, notes in zip(shapes, multis, *lists):
        stamp, _, flag = stamp.rpartition(" ") if re.search(r" (de|fr|es|zone|either)$", stamp) else (stamp, "", "")
        before, _, pre = before.rpartition(" ") if before.endswith((" hex", " arrow")) else (before, "", "")
        before = "" if before == "none" or shape == "below" else before.rstrip() + " "
        options: dict[str, str] = {"notes": notes, "multi": multi, "pre": pre}
        if stamp == "none":
            said = f"{before}§{author}"
        elif shape == "author":
            said = f"{before}{wrap.replace('*', stamp)}§{author}"
        else:
            said = (before + "§" + around if shape == "round" else below).replace("*", stamp)
        if shape == "below" and stamp != "none":
            options |= {"between": r.choice("01"), "indent": r.choice(("", "  "))}
        options["indent"] = options.get("indent") or (r.choice(("    ", "\t", "  | ", "  ")) if multi == "indented" else "")
        dated = "%F" in stamp or "%Y" in stamp or "EP" in stamp
        if stamp in ("%T", "%R", "{h}.{MI} {ap}") and r.random() < 0.6:
            options |= {"day": r.choice(DAYS), "days": r.choice("123")}
        elif dated:
            options["days"] = r.choice("0012")
        if flag in ("de", "fr", "es"):
            options |= {"lang": flag, "texts": flag}
        options |= {"zone": "-300"} if flag == "zone" else {"either_order": "1"} if flag == "either" else {}
        if shape == "author" and r.random() < 0.35:
            options["act"] = r.choice(("* {who} {text}", "*{who} {text}", "• {who} {text}", "- {who} {text} -"))
        options |= {"crlf": "1"} if r.random() < 0.1 else {}
        options |= (
            {"media": "1"}
            if r.random() < 0.3
            else {"edit": r.choice((" (edited)", " [edited]", " ✎"))}
            if r.random() < 0.2
            else {}
        )
        options |= {"empty": "0.03"} if "> {text}" in said and r.random() < 0.4 else {}
        options |= {"scatter": "0.04"} if r.random() < 0.12 else {}
        options |= {"hard": "1"} if dated and "{text}" in said and "{who}" in said[12:] else {}
        options["names"] = r.choice(("nick", "nick", "full", "clean")) if stamp != "none" or author[0] in "<«[(*【" else "nick"
        options["prefix"] = "none" if not before else "channel" if "chan" in before else "number" if "{n" in before else "other"
        rows.append(row("mixed", expand(said), {key: expand(value) for key, value in options.items() if value}))
    return rows


# --- Writing ---------------------------------------------------------------------------------------------------------


def fill(r: Random, template: str, people: Sequence[str]) -> str:
    slots = {"who": lambda: r.choice(people), "n": lambda: str(r.randrange(11, 60)), "thing": lambda: r.choice(THINGS)}
    filled = re.sub(r"\{(who|n|thing)\}", lambda found: slots[found[1]](), template)
    return filled.replace("{{", "{").replace("}}", "}")


def say(r: Random, people: Sequence[str], plan: Row, form: Form, opening: bool) -> tuple[str, ...]:
    options, draw = plan.chat, r.random()
    if "media" in options and draw < 0.06:
        return (fill(r, r.choice(MEDIA), people),)
    pool = TRICKY if r.random() < 0.15 else OTHERS[plan.texts] if plan.texts in OTHERS and r.random() < 0.7 else ENGLISH
    if pool is ENGLISH and r.random() < 0.05:
        pool = OTHERS[r.choice(sorted(OTHERS))]
    both = r.choice(("", "", ", ", " – ", "... ")) if pool is ENGLISH else ""
    text = fill(r, r.choice(pool) + (both and both + r.choice(ENGLISH)), people)
    if form.multi != "none" and (opening or draw > 0.9):
        more = [r.choice(HARD if "hard" in options and r.random() < 0.25 else MORE) for _ in range(r.choice((1, 1, 2, 2, 4)))]
        if form.multi == "inside" and r.random() < 0.5:
            more.insert(r.randrange(len(more)), "")
        return (text, *(fill(r, line, people) for line in more))
    if "empty" in options and (r.random() < float(options["empty"]) or opening):
        return ("",)
    return (text + (options["edit"] if "edit" in options and r.random() < 0.06 else ""),)


def start(r: Random, form: Form) -> datetime:
    dates = "".join((form.said, *form.day, *(form.top if form.dated_top else ())))
    first = re.search(r"\{(D|DD|M|MO|MON|MONTH|Y2|Y4)\}", dates)
    clear = first is not None and first[1] in ("D", "DD", "M", "MO") and "{MON" not in dates
    day = r.randrange(1, 5) if form.either_order else r.randrange(13, 25) if clear else r.randrange(1, 25)
    month = r.randrange(8, 13) if form.either_order else r.randrange(1, 13)
    year = r.choice((2011, 2016, 2020, 2021, 2023, 2025))
    return datetime(year, month, day, r.randrange(6, 18), r.randrange(60), r.randrange(60), 1000 * r.randrange(1000))


def converse(r: Random, people: Sequence[str], plan: Row, form: Form) -> list[Event]:
    count, events, last = r.randrange(30, 81), [], ""
    jumps = set(r.sample(range(10, count - 2), plan.days or 0))
    when = start(r, form)
    texts = {
        "chan": r.choice(("#harbour", "#attic-dev", "#kino")),
        "group": r.choice(("Sunday hikers", "Choir ♫", "Flat 12")),
        "people": ", ".join(people),
    }
    for number in range(count):
        if number in jumps:
            when = when.replace(hour=r.randrange(6, 12), minute=r.randrange(60), second=r.randrange(60)) + timedelta(days=1)
        elif number:
            when += timedelta(milliseconds=int(1000 * r.choice((1, 4, 9, 25, 60, 150, 280)) * (0.5 + r.random())))
        who = last if last and r.random() < 0.22 else people[min(int(r.expovariate(0.7)), len(people) - 1)]
        if form.notes and r.random() < 0.16:
            one = r.choice([*people, *POOLS["nick"][:5]]) if plan.names in ("nick", "wild") else r.choice(people)
            more = {
                "other": r.choice([name for name in people if name != one]),
                "new": one.split()[0] + r.choice(("_", "2", "|zzz")),
                "num": r.randrange(3, 90),
            }
            more |= {
                "ident": host(one).partition("@")[0],
                "host": host(one).partition("@")[2],
                "reason": r.choice(("bye", "Ping timeout: 180 seconds", "Quit: zzz")),
            }
            events.append(
                Event(
                    r.choice(sorted(form.notes)),
                    one,
                    (),
                    when,
                    texts | more | {"topic": r.choice(("rules: be nice", "tea at 5", "v2 is out"))},
                )
            )
        if form.act and r.random() < 0.07:
            events.append(Event("action", r.choice(people), (fill(r, r.choice(DOINGS), people),), when, dict(texts)))
        last = who
        to = r.choice([name for name in people if name != who])
        events.append(Event("message", who, say(r, people, plan, form, number in (4, 17)), when, texts | {"to": to}))
    return events


def trail(log: Log) -> None:
    """Move the line above the opening of each message to the end of the message."""
    kinds = [known.kind for known in log.truth]
    held, pairs = None, []
    for place, pair in enumerate(zip(log.lines, log.truth)):
        rest = [kind for kind in kinds[place + 1 :] if kind != "blank"][:1]
        if kinds[place] == "system" and place + 1 < len(kinds) and kinds[place + 1] in ("header", "message"):
            held = pair
            continue
        pairs.append(pair)
        if held and kinds[place] != "blank" and rest != ["continuation"]:
            pairs.append(held)
            held = None
    log.lines, log.truth = [line for line, _ in pairs], [known for _, known in pairs]


def build(name: str, plan: Row, r: Random) -> Layout:
    options = plan.chat
    notes = {str(place): expand(text) for place, text in enumerate(NOTES[plan.notes])}
    form = Form(**plan.form, notes=notes, pre=PRE[options.get("pre", "")], last_newline=r.random() < 0.9)
    pool = POOLS.get(plan.names) or plan.names.split(";")
    if bracket_axis(form.said) == "(ann)":
        pool = [person for person in pool if "(" not in person]
    people = r.sample(pool, min(len(pool), r.randrange(2, 7)))
    log = write(r, converse(r, people, plan, form), form)
    if "after" in options:
        trail(log)
    for place, known in enumerate(log.truth):
        mark, quote = options.get("edit"), options.get("quote")
        if known.kind == "message" and mark and known.text.endswith(mark):
            log.truth[place] = replace(known, others=((known.author or "", known.text.removesuffix(mark)),))
        elif known.kind == "message" and quote:
            log.truth[place] = replace(known, others=((known.author or "", f"{quote}{known.text}{quote}"),))
    doubt = "refuse" if "doubt" in options else "clear"
    return layout_of(name, plan, form, log, plan.notes, people, options, doubt=doubt)


@cache
def _layouts() -> tuple[Layout, ...]:
    known = programs()
    plans = [*known, *composed(Random(f"{SEED}:axes"), COUNT - len(known))]
    return tuple(
        build(f"{place:03}-{plan.family}", plan, Random(f"{SEED}:{place}")) for place, plan in enumerate(plans, start=1)
    )


def layouts() -> list[Layout]:
    return list(_layouts())


def decoys() -> list[Decoy]:
    return make_decoys(SEED)
