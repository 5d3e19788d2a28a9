"""Layouts in the manner of known clients, bots, bouncers, phones and meetings, from general knowledge of their formats."""
# ruff: noqa: SIM905 - long lists of words read better as text

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from chat_layout_base import Event, Form, Layout, Line, Log, clock_axis, clock_of, date_axis, iso, time_parts, write
from chat_layout_talk import CHANNELS, FULL_NAMES, NICKS, WILD_NICKS, start_day, talk

# Notices by style: the name of the axis value, then a template for each kind of event.
NOTES: dict[str, tuple[str, dict[str, str]]] = {
    "none": ("none", {}),
    "mirc": (
        "one star",
        {
            "join": "* {who} ({ident}@{host}) has joined {chan}",
            "part": "* {who} ({ident}@{host}) has left {chan}",
            "quit": "* {who} ({ident}@{host}) Quit ({reason})",
            "nick": "* {who} is now known as {new}",
            "mode": "* {other} sets mode: +o {who}",
            "topic": "* {who} changes topic to '{topic}'",
            "kick": "* {who} was kicked by {other} ({reason})",
        },
    ),
    "hexchat": (
        "one star",
        {
            "join": "*\t{who} ({ident}@{host}) has joined",
            "part": "*\t{who} ({ident}@{host}) has left",
            "quit": "*\t{who} has quit ({reason})",
            "nick": "*\t{who} is now known as {new}",
            "mode": "*\tChanServ gives channel operator status to {who}",
            "topic": "*\t{who} has changed the topic to: {topic}",
        },
    ),
    "irssi": (
        "bang",
        {
            "join": "-!- {who} [{ident}@{host}] has joined {chan}",
            "part": "-!- {who} [{ident}@{host}] has left {chan} [{reason}]",
            "quit": "-!- {who} [{ident}@{host}] has quit [{reason}]",
            "nick": "-!- {who} is now known as {new}",
            "mode": "-!- mode/{chan} [+v {who}] by {other}",
            "topic": "-!- {who} changed the topic of {chan} to: {topic}",
            "kick": "-!- {who} was kicked from {chan} by {other} [{reason}]",
            "server": "-!- Irssi: Join to {chan} was synced in {num} secs",
        },
    ),
    "weechat": (
        "ascii arrows",
        {
            "join": "-->\t{who} ({ident}@{host}) has joined {chan}",
            "part": "<--\t{who} ({ident}@{host}) has left {chan} ({reason})",
            "quit": "<--\t{who} ({ident}@{host}) has quit ({reason})",
            "nick": "--\t{who} is now known as {new}",
            "mode": "--\tMode {chan} [+o {who}] by ChanServ",
            "topic": '--\t{who} has changed topic for {chan} to "{topic}"',
        },
    ),
    "arrows": (
        "ascii arrows",
        {
            "join": "--> {who} ({ident}@{host}) has joined {chan}",
            "part": "<-- {who} has left {chan} ({reason})",
            "quit": "<-- {who} has quit ({reason})",
            "nick": "<-> {who} is now known as {new}",
            "mode": "*** Mode {chan} +o {who} by {other}",
            "topic": '*** {who} has changed topic for {chan} to: "{topic}"',
        },
    ),
    "short arrows": (
        "ascii arrows",
        {"join": "--> | {who} joined", "quit": "<-- | {who} left: {reason}", "nick": "--- | {who} -> {new}"},
    ),
    "unicode arrows": (
        "unicode arrows",
        {
            "join": "→ {who} joined ({ident}@{host})",
            "part": "← {who} left ({reason})",
            "quit": "⇐ {who} quit: {reason}",
            "nick": "↔ {who} is now {new}",
            "topic": "✎ {who} set the topic: {topic}",
        },
    ),
    "znc": (
        "stars",
        {
            "join": "*** Joins: {who} ({ident}@{host})",
            "part": "*** Parts: {who} ({ident}@{host}) ({reason})",
            "quit": "*** Quits: {who} ({ident}@{host}) ({reason})",
            "nick": "*** {who} is now known as {new}",
            "mode": "*** {other} sets mode: +o {who}",
            "topic": "*** {who} changes topic to '{topic}'",
        },
    ),
    "stars": (
        "stars",
        {
            "join": "*** {who} joined",
            "part": "*** {who} left: {reason}",
            "quit": "*** {who} disconnected ({reason})",
            "topic": "*** Topic: {topic}",
            "server": "*** bridge: reconnected after {num}s",
        },
    ),
    "supybot": (
        "stars",
        {
            "join": "*** {who} <{ident}@{host}> has joined {chan}",
            "part": "*** {who} <{ident}@{host}> has left {chan}",
            "quit": "*** {who} <{ident}@{host}> has quit IRC ({reason})",
            "nick": "*** {who} is now known as {new}",
            "topic": '*** {who} changes topic to "{topic}"',
            "mode": "*** {other} sets mode: +v {who}",
        },
    ),
    "eggdrop": (
        "prose",
        {
            "join": "{who} ({ident}@{host}) joined {chan}.",
            "part": "{who} ({ident}@{host}) left {chan} ({reason}).",
            "quit": "{who} ({ident}@{host}) left irc: {reason}",
            "nick": "Nick change: {who} -> {new}",
            "mode": "{chan}: mode change '+o {who}' by {other}!{ident}@{host}",
            "topic": "Topic changed on {chan} by {who}!{ident}@{host}: {topic}",
            "kick": "{who} kicked from {chan} by {other}: {reason}",
        },
    ),
    "prose": (
        "prose",
        {
            "join": "{who} has joined the room",
            "part": "{who} has left the room",
            "quit": "{who} has gone offline",
            "topic": "{who} has set the topic to “{topic}”",
        },
    ),
    "dashes": (
        "dashes",
        {
            "join": "-- {who} entered --",
            "quit": "-- {who} left ({reason}) --",
            "nick": "-- {who} is called {new} now --",
            "server": "-- MARK --",
        },
    ),
    "equals": (
        "dashes",
        {
            "join": "=== {who} [{ident}@{host}] has joined {chan}",
            "part": "=== {who} [{ident}@{host}] has left {chan} [{reason}]",
            "nick": "=== {who} is now known as {new}",
            "topic": "=== Topic for {chan}: {topic}",
        },
    ),
    "brackets": (
        "bracketed",
        {
            "join": "[system] {who} joined",
            "quit": "[system] {who} left ({reason})",
            "server": "[bridge] telegram <-> irc: link up, {num} ms",
            "topic": "[topic] {topic}",
        },
    ),
    "upper": (
        "bracketed",
        {
            "join": "[JOIN] {who} joined the game",
            "quit": "[LEAVE] {who} left the game",
            "server": "[WARN] lag: {num} ticks behind",
        },
    ),
    "minecraft": (
        "bracketed",
        {
            "join": "{who} joined the game",
            "part": "{who} left the game",
            "quit": "{who} lost connection: Disconnected",
            "server": "Can't keep up! Is the server overloaded? Running {num}00ms or {num} ticks behind",
            "mode": "{who} has made the advancement [Stone Age]",
        },
    ),
    "zendesk": (
        "stars",
        {
            "join": "*** {who} joined the chat ***",
            "part": "*** {who} left the chat ***",
            "topic": "*** {who} changed their name ***",
        },
    ),
    "wa-en": (
        "phone",
        {
            "join": "{who} added {other}",
            "part": "{who} left",
            "topic": "{who} changed the subject to “{topic}”",
            "icon": "{who} changed this group's icon",
            "mode": "You're now an admin",
        },
    ),
    "wa-en-colon": (
        "phone",
        {
            "join": "{who} joined using this group's invite link",
            "topic": "{who} changed the subject from “Trip: Porto” to “Trip: {topic}”",
            "number": "{who} changed their phone number to a new number. Tap to message or add the new number.",
            "timer": "{who} turned on disappearing messages. New messages will disappear from this chat after 90 days.",
        },
    ),
    "wa-de": (
        "phone",
        {
            "join": "{who} hat {other} hinzugefügt",
            "part": "{who} hat die Gruppe verlassen",
            "topic": "{who} hat den Betreff zu „{topic}“ geändert",
            "icon": "{who} hat das Gruppenbild geändert",
        },
    ),
    "wa-es": (
        "phone",
        {
            "join": "{who} añadió a {other}",
            "part": "{who} salió del grupo",
            "topic": "{who} cambió el asunto a “{topic}”",
            "icon": "{who} cambió el ícono de este grupo",
        },
    ),
    "wa-pt": (
        "phone",
        {
            "join": "{who} adicionou {other}",
            "part": "{who} saiu",
            "topic": "{who} mudou o nome para “{topic}”",
            "icon": "{who} mudou a imagem do grupo",
        },
    ),
    "wa-fr": (
        "phone",
        {
            "join": "{who} a ajouté {other}",
            "part": "{who} est parti(e)",
            "topic": "{who} a changé le sujet en « {topic} »",
            "icon": "{who} a changé l'icône de ce groupe",
        },
    ),
    "wa-ru": ("phone", {"join": "{who} добавил(-а) {other}", "part": "{who} покинул(-а) группу", "mode": "Теперь вы админ"}),
    "wa-tr": (
        "phone",
        {"join": "{who}, {other} kişisini ekledi", "part": "{who} ayrıldı", "topic": "{who} konuyu “{topic}” yaptı"},
    ),
    "wa-it": ("phone", {"join": "{who} ha aggiunto {other}", "part": "{who} ha abbandonato", "mode": "Ora sei amministratore"}),
    "wa-nl": (
        "phone",
        {"join": "{who} heeft {other} toegevoegd", "part": "{who} heeft de groep verlaten", "mode": "Je bent nu een beheerder"},
    ),
    "wa-ja": (
        "phone",
        {
            "join": "{who}が{other}を追加しました",
            "part": "{who}が退出しました",
            "topic": "{who}が件名を「{topic}」に変更しました",
        },
    ),
    "wa-zh": ("phone", {"join": "{who}添加了{other}", "part": "{who}已退出群组", "topic": "{who}将主题更改为“{topic}”"}),
    "wa-ko": (
        "phone",
        {"join": "{who}님이 {other}님을 추가했습니다", "part": "{who}님이 나갔습니다", "mode": "이제 관리자입니다"},
    ),
    "wa-fi": (
        "phone",
        {"join": "{who} lisäsi käyttäjän {other}", "part": "{who} poistui ryhmästä", "mode": "Olet nyt ylläpitäjä"},
    ),
    "discord": (
        "posted",
        {
            "join?": "{head}\nJoined the server.",
            "pin?": "{head}\nPinned a message.",
            "call?": "{head}\nStarted a call that lasted {num} minutes.",
        },
    ),
    "matrix": (
        "prose",
        {
            "join": "{who} joined the room",
            "topic": '{who} changed the topic to "{topic}".',
            "nick": "{who} changed their display name to {new}",
            "part": "{who} left the room",
        },
    ),
    "line": (
        "prose",
        {
            "join": "{who} joined the chat.",
            "part": "{who} left the chat.",
            "topic": "{who} changed the group's name to {topic}.",
        },
    ),
    "kakao": ("prose", {"join": "{who}님이 들어왔습니다.", "part": "{who}님이 나갔습니다."}),
    "meeting": (
        "prose",
        {"join": "{who} has joined the meeting.", "part": "{who} has left the meeting.", "rec": "Recording started"},
    ),
    "twitch": (
        "prose",
        {
            "join": "{who} subscribed at Tier 1.",
            "mode": "{who} has been timed out for {num}s.",
            "server": "This room is in followers-only mode.",
        },
    ),
    "chatty": (
        "prose",
        {
            "mode": "MOD_ACTION: {other} (timeout {who} 600)",
            "join": "JOIN: {who}",
            "part": "PART: {who}",
            "ban": "BAN: {who} ({num}s)",
        },
    ),
    "chatzilla": (
        "ascii arrows",
        {
            "join": "-->|\t{who} ({ident}@{host}) has joined {chan}",
            "part": "|<--\t{who} has left {chan}",
            "quit": "|<--\t{who} has left irc.example.net ({reason})",
            "nick": "=-=\t{who} is now known as {new}",
            "info": "[INFO]\tYou are now in {chan}.",
        },
    ),
    "konversation": (
        "bracketed",
        {
            "join": "[Join]\t{who} ({ident}@{host}) has joined this channel.",
            "quit": "[Quit]\t{who} has left this server ({reason}).",
            "nick": "[Nick]\t{who} is now known as {new}.",
            "topic": '[Topic]\tThe channel topic is "{topic}".',
        },
    ),
    "erc": (
        "stars",
        {
            "join": "*** {who} ({ident}@{host}) has joined channel {chan}",
            "quit": "*** {who} ({ident}@{host}) has quit: {reason}",
            "nick": "*** {who} ({ident}@{host}) is now known as {new}",
        },
    ),
    "notices": (
        "bang",
        {
            "join": "-!- {who} has joined {chan}",
            "notice?": "-NickServ({ident}@services.)- You are now identified for {who}",
            "server?": "-irc.example.net- *** Looking up your hostname...",
            "quit": "-!- {who} has quit [{reason}]",
        },
    ),
    "pidgin": (
        "prose",
        {
            "join": "{who} has signed on.",
            "part": "{who} has signed off.",
            "quit": "{who} has gone away.",
            "topic": "The topic for {chan} is: {topic}",
        },
    ),
    "eve": (
        "posted",
        {"topic?": "EVE System > Channel MOTD: {topic}", "join?": "EVE System > Channel changed to Local : {topic}"},
    ),
    "group": (
        "phone",
        {"join?": "{group}: \u200e{who} added {other}", "topic?": "{group}: \u200e{who} changed the group name to “{topic}”"},
    ),
}

for symbol in "!! ## >>> ~~ -+- // @@ +++ § ⚑ %% ··".split():
    NOTES[f"odd {symbol}"] = (
        "odd symbol",
        {
            "join": f"{symbol} {{who}} came in",
            "part": f"{symbol} {{who}} left ({{reason}})",
            "topic": f"{symbol} topic: {{topic}}",
            "server": f"{symbol} {{num}} users, {{other}} is admin",
        },
    )


@dataclass
class Row:
    family: str
    form: dict[str, Any]
    notes: str = "none"
    names: str = "nick"
    texts: str = "en"
    prefix: str = "none"
    bracket: str = ""
    days: int | None = None
    chat: dict[str, Any] = field(default_factory=dict)
    aliases: Callable[[str], tuple[str, ...]] | None = None


CHAT_OPTIONS = {"tricky", "busy", "actions", "empty", "count", "people", "hard_lines"}


def row(family: str, said: str, **options: Any) -> Row:
    own = {
        key: options.pop(key) for key in ("notes", "names", "texts", "prefix", "bracket", "days", "aliases") if key in options
    }
    chat = {key: options.pop(key) for key in list(options) if key in CHAT_OPTIONS}
    return Row(family, {"said": said, **options}, **own, chat=chat)


def people_for(r: Random, names: str, count: int) -> list[str]:
    pools = {"nick": NICKS, "wild": WILD_NICKS + NICKS[:8], "full": FULL_NAMES, "mixed": NICKS[:20] + FULL_NAMES}
    if names == "given":
        pools["given"] = [name for name in NICKS if name.isalpha() and name[0].isupper()]
    return r.sample(pools[names], count)


def bracket_axis(said: str) -> str:
    if "{text}" not in said:
        return "own line"
    found = re.search(r"(.?)\{(?:who|nick)[^}]*\}(.{0,2})", said)
    assert found is not None
    before, after = found.groups()
    pairs = {"<>": "<ann>", "[]": "[ann]", "()": "(ann)", "{}": "{ann}", "«»": "«ann»", "**": "*ann*"}
    if before + after[:1] in pairs:
        return pairs[before + after[:1]]
    if before == "@":
        return "@ann"
    simple = {":": "ann:", "|": "ann |", "-": "ann -", "—": "ann -", ">": "ann>", "»": "ann »", "\t": "ann TAB"}
    return simple.get(after[:1] if after[:1] in ":>\t" else after[1:2] or after[:1], "other")


def make_layout(name: str, plan: Row, r: Random) -> Layout:
    """Write one layout."""
    options = dict(plan.form)
    label, notes = NOTES[plan.notes]
    form = Form(**options, notes=notes)
    dates = date_axis(form)
    clock, _ = clock_of(form)
    when, early = "any", False
    if dates in ("day first", "month first"):
        when = r.choice(("clear", "cross"))
        early = when == "cross"
    elif dates == "either order":
        when = "low"
    days = plan.days
    if days is None:
        days = 0 if form.dated_top and not form.day else r.choice((0, 1, 1, 2, 3))
    if clock in ("none", "elapsed"):
        days = 0
    elif clock == "day" and not form.day and dates == "none":
        days = r.choice((0, 0, 0, 1))
    chat = {"tricky": 0.14, "busy": 0.15, "actions": 0.06 if form.act else 0.0, "empty": 0.0, **plan.chat}
    count = chat.pop("count", None) or r.randrange(30, 81)
    people = people_for(r, plan.names, chat.pop("people", None) or r.randrange(2, 7))
    if bracket_axis(form.said) == "(ann)":
        people = [person for person in people if "(" not in person]
        people += ["Gwen", "Elif"][: max(0, 2 - len(people))]
    group = r.choice(("Weekend 🏕", "Band practice", "Hiking: north", "Flat 4b"))
    events = talk(
        r,
        people,
        start=start_day(r, when),
        count=count,
        lang=plan.texts,
        notes=sorted(notes),
        multi=0.09 if form.multi != "none" else 0.0,
        inside=form.multi == "inside",
        days=min(days, 3),
        early=early,
        **chat,
    )
    for event in events:
        event.fields["group"] = group
        if plan.family.startswith("whatsapp") and event.kind == "message" and event.lines[0] and r.random() < 0.04:
            place, words = ("whatsapp-ios", "\u200e") if plan.family == "whatsapp-ios" else ("whatsapp-android", "")
            event.lines = (words + r.choice(MEDIA[place].get(plan.texts, MEDIA[place]["en"])),)
            event.fields["mark"] = words
        if event.kind.endswith("?") and "{head}" in notes[event.kind]:
            parts = time_parts(event.when, form.lang, form.zone) | {"who": event.who, "nick": event.who}
            event.fields["head"] = form.said.format_map(parts | {"pre": ""})
    return layout_of(name, plan, form, write(r, events, form), label, people, chat)


def layout_of(
    name: str, plan: Row, form: Form, log: Log, label: str, people: list[str], chat: Mapping[str, Any], **axes: str
) -> Layout:
    clock, precision = clock_of(form)
    blanks = "between" if form.between else "some" if form.scatter else "inside" if form.multi == "inside" else "none"
    found = {
        "prefix": plan.prefix,
        "date": date_axis(form),
        "time": clock_axis(form),
        "author": plan.bracket or bracket_axis(form.said),
        "modes": "modes" if form.modes else "none",
        "names": "spaces" if any(" " in person for person in people) else "plain",
        "system": label,
        "headers": "day" if form.day else "file" if form.top or form.bottom else "none",
        "actions": "some" if form.act else "none",
        "lines": "below"
        if "{text}" not in form.said
        else form.multi
        if form.multi == "none"
        else "flush"
        if not form.indent
        else "indented",
        "blank": blanks,
        "empty": "some" if chat.get("empty") else "none",
        "ends": "CRLF" if form.crlf else "LF",
    }
    aliases = {person: plan.aliases(person) for person in people} if plan.aliases else {}
    return Layout(
        name,
        found | axes,
        log.join(form),
        tuple(log.truth),
        clock,
        precision,
        form.either_order,
        form.named_zone,
        aliases,
    )


def with_at(who: str) -> tuple[str, ...]:
    return (f"@{who}",)


def no_tag(who: str) -> tuple[str, ...]:
    return (f"{who}#0000", who)


NN = "\u202f"
MEDIA = {
    "whatsapp-android": {
        "en": (
            "<Media omitted>",
            "IMG-20230305-WA0007.jpg (file attached)",
            "This message was deleted",
            "location: https://example.com/maps?q=1,2",
        ),
        "de": ("<Medien ausgeschlossen>", "Diese Nachricht wurde gelöscht.", "IMG-20230305-WA0007.jpg (Datei angehängt)"),
        "es": ("<Multimedia omitido>", "Eliminaste este mensaje."),
        "pt": ("<Mídia oculta>", "Mensagem apagada"),
        "fr": ("<Médias omis>", "Ce message a été supprimé"),
    },
    "whatsapp-ios": {
        "en": (
            "image omitted",
            "video omitted",
            "<attached: 00000012-PHOTO-2023-03-05-10-12-01.jpg>",
            "You deleted this message.",
        ),
        "de": ("Bild weggelassen", "<Anhang: 00000012-PHOTO-2023-03-05-10-12-01.jpg>"),
        "es": ("imagen omitida", "audio omitido"),
        "fr": ("image absente", "<pièce jointe : 00000031-AUDIO.opus>"),
    },
}
BIRTH = "{WD} {MON} {DD} {HH}:{MI}:{SS} {Y4}"
IRC = {"act": "{pre}[{HH}:{MI}] * {who} {text}", "note": "{pre}[{HH}:{MI}] {text}"}


def timed(stamp: str, star: str = "* ") -> dict[str, str]:
    """Templates of actions and notices with the stamp of the messages."""
    return {"act": f"{stamp}{star}{{who}} {{text}}", "note": f"{stamp}{{text}}"}


def rows() -> list[Row]:
    return [*irc_rows(), *phone_rows(), *messenger_rows(), *team_rows(), *meeting_rows(), *game_rows()]


def irc_rows() -> list[Row]:
    start = ("Session Start: " + BIRTH, "Session Ident: #garden")
    opened = ("--- Log opened " + BIRTH,)
    changed = ("--- Day changed {WD} {MON} {DD} {Y4}",)
    begin = ("**** BEGIN LOGGING AT {WD} {MON} {DP} {HH}:{MI}:{SS} {Y4}", "")
    end = ("", "**** ENDING LOGGING AT {WD} {MON} {DP} {HH}:{MI}:{SS} {Y4}")
    tab = "{Y4}-{MO}-{DD} {HH}:{MI}:{SS}\t"
    return [
        row(
            "mirc",
            "[{HH}:{MI}] <{nick}> {text}",
            notes="mirc",
            names="wild",
            modes="@+---",
            top=("", *start),
            crlf=True,
            dated_top=True,
            bottom=("Session Close: " + BIRTH, ""),
            days=0,
            empty=0.03,
            **timed("[{HH}:{MI}] "),
        ),
        row(
            "mirc",
            "[{HH}:{MI}:{SS}] <{nick}> {text}",
            notes="mirc",
            names="wild",
            modes="@%+--",
            day=("", *start),
            crlf=True,
            days=2,
            **timed("[{HH}:{MI}:{SS}] "),
        ),
        row(
            "mirc",
            "<{who}> {text}",
            notes="mirc",
            top=start,
            act="* {who} {text}",
            bottom=("Session Close: " + BIRTH,),
            crlf=True,
        ),
        row("mirc", "({HH}:{MI}) (@{who}) {text}", notes="mirc", aliases=with_at, **timed("({HH}:{MI}) ")),
        row("mirc", "[{h}:{MI}{ap}] <{who}> {text}", notes="mirc", **timed("[{h}:{MI}{ap}] "), empty=0.02),
        row(
            "irssi",
            "{HH}:{MI} <{nick:>9}> {text}",
            notes="irssi",
            modes="@-+-",
            top=opened,
            day=changed,
            first_day=False,
            dated_top=True,
            bottom=("--- Log closed " + BIRTH,),
            **timed("{HH}:{MI} ", " * "),
        ),
        row(
            "irssi",
            "{HH}:{MI} < {who}> {text}",
            bracket="<ann>",
            notes="irssi",
            names="wild",
            day=changed,
            **timed("{HH}:{MI} ", " * "),
        ),
        row(
            "irssi",
            "{HH}:{MI}:{SS} <@{who}> {text}",
            bracket="<ann>",
            notes="notices",
            aliases=with_at,
            top=opened,
            dated_top=True,
            days=0,
            **timed("{HH}:{MI}:{SS} ", " * "),
        ),
        row(
            "irssi",
            "{Y4}-{MO}-{DD} {HH}:{MI}:{SS} <{nick}> {text}",
            notes="irssi",
            modes="@+-",
            empty=0.03,
            **timed("{Y4}-{MO}-{DD} {HH}:{MI}:{SS} ", " * "),
        ),
        row(
            "irssi",
            "{HH}:{MI} <+{who}> {text}",
            bracket="<ann>",
            notes="irssi",
            aliases=lambda who: (f"+{who}",),
            scatter=0.03,
            keep_space=False,
            empty=0.03,
            **timed("{HH}:{MI} ", " * "),
        ),
        row("weechat", tab + "{nick}\t{text}", notes="weechat", names="wild", modes="@+--", **timed(tab, " *\t"), empty=0.03),
        row(
            "weechat",
            "{HH}:{MI}:{SS} {nick:>12} | {text}",
            notes="short arrows",
            modes="@+--",
            note="{HH}:{MI}:{SS}          {text}",
        ),
        row(
            "weechat",
            "{HH}:{MI} {who:>10} │ {text}",
            notes="unicode arrows",
            bracket="ann |",
            note="{HH}:{MI}            {text}",
        ),
        row(
            "hexchat",
            "{MON} {DD} {HH}:{MI}:{SS} <{who}>\t{text}",
            notes="hexchat",
            top=begin,
            bottom=end,
            names="wild",
            days=0,
            dated_top=True,
            **timed("{MON} {DD} {HH}:{MI}:{SS} ", "*\t"),
        ),
        row(
            "hexchat",
            "{MON} {DD} {HH}:{MI}:{SS} <{nick}>\t{text}",
            notes="hexchat",
            modes="@+-",
            top=begin,
            bottom=end,
            days=2,
            **timed("{MON} {DD} {HH}:{MI}:{SS} ", "*\t"),
        ),
        row(
            "xchat",
            "{Y4}-{MO}-{DD} {HH}:{MI}:{SS} <{who}>\t{text}",
            notes="hexchat",
            **timed("{Y4}-{MO}-{DD} {HH}:{MI}:{SS} ", "*\t"),
            empty=0.03,
        ),
        row("znc", "[{HH}:{MI}:{SS}] <{who}> {text}", notes="znc", names="wild", **timed("[{HH}:{MI}:{SS}] "), empty=0.03),
        row("znc", "[{HH}:{MI}:{SS}] <{who}> {text}", notes="znc", top=("",), **timed("[{HH}:{MI}:{SS}] "), relay="tgbridge"),
        row("quassel", "[{HH}:{MI}:{SS}] <{nick}> {text}", notes="arrows", modes="@+--", **timed("[{HH}:{MI}:{SS}] ", "-*- ")),
        row(
            "thelounge",
            "[{Y4}-{MO}-{DD}T{HH}:{MI}:{SS}.{MS}Z] <{who}> {text}",
            notes="stars",
            zone=("UTC", 0),
            **timed("[{Y4}-{MO}-{DD}T{HH}:{MI}:{SS}.{MS}Z] "),
        ),
        row(
            "thelounge",
            "[{Y4}-{MO}-{DD}T{HH}:{MI}:{SS}.{MS}Z] <{who}> {text}",
            notes="znc",
            zone=("UTC", 0),
            names="wild",
            empty=0.02,
            **timed("[{Y4}-{MO}-{DD}T{HH}:{MI}:{SS}.{MS}Z] "),
        ),
        row(
            "thelounge",
            "[{Y4}-{MO}-{DD} {HH}:{MI}:{SS}] <{nick}> {text}",
            modes="@+-",
            notes="unicode arrows",
            **timed("[{Y4}-{MO}-{DD} {HH}:{MI}:{SS}] "),
        ),
        row(
            "supybot",
            "{Y4}-{MO}-{DD}T{HH}:{MI}:{SS}  <{who}> {text}",
            notes="supybot",
            **timed("{Y4}-{MO}-{DD}T{HH}:{MI}:{SS}  "),
        ),
        row(
            "supybot",
            "[{DD}-{MON}-{Y4} {HH}:{MI}:{SS}]  <{nick}> {text}",
            modes="@-+",
            notes="supybot",
            **timed("[{DD}-{MON}-{Y4} {HH}:{MI}:{SS}]  "),
        ),
        row(
            "eggdrop",
            "[{HH}:{MI}] <{who}> {text}",
            notes="eggdrop",
            day=("[00:00] --- {WD} {MON} {DP} {Y4}",),
            act="[{HH}:{MI}] Action: {who} {text}",
            note="[{HH}:{MI}] {text}",
            names="wild",
        ),
        row(
            "eggdrop",
            "[{HH}:{MI}:{SS}] <{who}> {text}",
            notes="eggdrop",
            note="[{HH}:{MI}:{SS}] {text}",
            act="[{HH}:{MI}:{SS}] Action: {who} {text}",
            empty=0.03,
        ),
        row("ii", "{EP} <{who}> {text}", notes="irssi", note="{EP} {text}"),
        row(
            "ii", "{Y4}-{MO}-{DD} {HH}:{MI} <{who}> {text}", notes="irssi", names="wild", note="{Y4}-{MO}-{DD} {HH}:{MI} {text}"
        ),
        row(
            "konversation",
            "[{WEEKDAY}, {MONTH} {D}, {Y4}] [{h}:{MI}:{SS} {AP} CET] <{who}>\t{text}",
            notes="konversation",
            zone=("CET", 60),
            named_zone=True,
            note="[{WEEKDAY}, {MONTH} {D}, {Y4}] [{h}:{MI}:{SS} {AP} CET] {text}",
        ),
        row(
            "konversation",
            "[{WEEKDAY}, {D}. {MONTH} {Y4}] [{HH}:{MI}:{SS}] <{who}>\t{text}",
            notes="konversation",
            lang="de",
            texts="de",
            note="[{WEEKDAY}, {D}. {MONTH} {Y4}] [{HH}:{MI}:{SS}] {text}",
        ),
        row(
            "textual",
            "[{Y4}-{MO}-{DD}T{HH}:{MI}:{SS}{Z}] <{nick}> {text}",
            modes="@+--",
            zone=("", -420),
            notes="prose",
            act="[{Y4}-{MO}-{DD}T{HH}:{MI}:{SS}{Z}] • {who} {text}",
            note="[{Y4}-{MO}-{DD}T{HH}:{MI}:{SS}{Z}] {text}",
        ),
        row(
            "chatzilla",
            "[{Y4}-{MO}-{DD} {HH}:{MI}:{SS}]\t<{who}>\t{text}",
            notes="chatzilla",
            note="[{Y4}-{MO}-{DD} {HH}:{MI}:{SS}]\t{text}",
            names="wild",
        ),
        row("erc", "<{who}> {text}          [{HH}:{MI}]", notes="erc", note="{text}          [{HH}:{MI}]", tricky=0.08),
        row("erc", "<{who}> {text}", notes="erc", day=("[{WD} {MON} {D} {Y4}]",), act="* {who} {text}", empty=0.03),
        row("rcirc", "{HH}:{MI} <{who}> {text}", notes="equals", note="{HH}:{MI} {text}", act="{HH}:{MI} [{who} {text}]"),
        row(
            "ubuntu",
            "[{HH}:{MI}] <{who}> {text}",
            notes="equals",
            note="{text}",
            names="wild",
            act="[{HH}:{MI}]  * {who} {text}",
        ),
        row("ubuntu", "[{HH}:{MI}] <{nick}> {text}", notes="equals", modes="@+-", note="{text}", scatter=0.02, empty=0.02),
        row(
            "energymech",
            "[{HH}:{MI}:{SS}] <{who}> {text}",
            notes="dashes",
            **timed("[{HH}:{MI}:{SS}] "),
            day=("--- {WD} {MON} {DD} {Y4} ---",),
        ),
        row(
            "matterbridge",
            "[irc] <{who}> {text}",
            notes="brackets",
            prefix="channel",
            multi="indent",
            indent="    ",
            tricky=0.1,
        ),
        row(
            "matterbridge",
            "{pre}<{who}> {text}",
            prefix="channel",
            pre=bridge,
            names="mixed",
            multi="indent",
            indent="\t",
            empty=0.03,
        ),
        row(
            "matterbridge",
            "{Y4}/{MO}/{DD} {HH}:{MI}:{SS} {pre}<{who}> {text}",
            prefix="channel",
            pre=bridge,
            names="mixed",
            notes="stars",
            note="{Y4}/{MO}/{DD} {HH}:{MI}:{SS} {text}",
        ),
        row("bitchx", "[{HH}:{MI}] <{who:<9}> {text}", notes="znc", **timed("[{HH}:{MI}] ")),
        row(
            "ejabberd",
            "[{HH}:{MI}:{SS}] <{who}> {text}",
            names="full",
            notes="prose",
            top=("room@conference.example.org", "{WEEKDAY}, {MONTH} {D}, {Y4}"),
            dated_top=True,
            days=0,
            multi="flush",
            hard_lines=True,
            **timed("[{HH}:{MI}:{SS}] "),
        ),
        row(
            "prosody",
            "{MON} {DD} {HH}:{MI}:{SS} garden@conference.example.org/{who}: {text}",
            prefix="channel",
            bracket="ann:",
            notes="dashes",
            aliases=lambda who: (f"garden@conference.example.org/{who}",),
            note="{MON} {DD} {HH}:{MI}:{SS} {text}",
        ),
        row(
            "syslog",
            "{MON} {DP} {HH}:{MI}:{SS} relay1 chatd[411]: <{who}> {text}",
            prefix="host",
            notes="znc",
            **timed("{MON} {DP} {HH}:{MI}:{SS} relay1 chatd[411]: "),
        ),
        row(
            "syslog",
            "<134>{MON} {DP} {HH}:{MI}:{SS} irc-gw chat: {who}: {text}",
            prefix="host",
            bracket="ann:",
            notes="stars",
            note="<134>{MON} {DP} {HH}:{MI}:{SS} irc-gw chat: {text}",
        ),
        row(
            "journal",
            "{Y4}-{MO}-{DD}T{HH}:{MI}:{SS}{ZZ} node-7 ircbot[90]: {who} | {text}",
            prefix="host",
            zone=("", 120),
            notes="dashes",
            note="{Y4}-{MO}-{DD}T{HH}:{MI}:{SS}{ZZ} node-7 ircbot[90]: {text}",
        ),
        row(
            "two-servers",
            "{pre}[{HH}:{MI}:{SS}] <{who}> {text}",
            prefix="server",
            pre=server,
            notes="znc",
            note="{pre}[{HH}:{MI}:{SS}] {text}",
            act="{pre}[{HH}:{MI}:{SS}] * {who} {text}",
        ),
    ]


def bridge(r: Random, number: int, event: Event) -> str:
    return "[" + ("irc", "tg", "discord", "xmpp")[sum(map(ord, event.who)) % 4] + "] "


def server(r: Random, number: int, event: Event) -> str:
    return r.choice(("libera/#garden ", "oftc/#garden ", "libera/#dev "))


def phone_rows() -> list[Row]:
    def android(stamp: str, **options: Any) -> Row:
        options = {"notes": "wa-en", "names": "full", "multi": "flush", "busy": 0.07, **options}
        encrypted = options.pop(
            "encrypted", "Messages and calls are end-to-end encrypted. No one outside of this chat can read them."
        )
        return row(
            "whatsapp-android",
            stamp + " - {who}: {text}",
            note=stamp + " - {text}",
            top=(stamp + " - " + encrypted,),
            **options,
        )

    def ios(stamp: str, **options: Any) -> Row:
        options = {"notes": "group", "names": "full", "multi": "flush", "busy": 0.06, **options}
        return row("whatsapp-ios", f"{{mark}}[{stamp}] {{who}}: {{text}}", note=f"[{stamp}] {{text}}", **options)

    return [
        android(
            "{DD}.{MO}.{Y2}, {HH}:{MI}",
            texts="de",
            notes="wa-de",
            hard_lines=True,
            encrypted="Nachrichten und Anrufe sind Ende-zu-Ende-verschlüsselt.",
        ),
        android(
            "{DD}.{MO}.{Y4}, {HH}:{MI}",
            texts="ru",
            notes="wa-ru",
            encrypted="Сообщения и звонки защищены сквозным шифрованием.",
        ),
        android("{DD}.{MO}.{Y4} {HH}:{MI}", texts="tr", notes="wa-tr", encrypted="Mesajlar ve aramalar uçtan uca şifrelidir."),
        android(f"{{M}}/{{D}}/{{Y2}}, {{h}}:{{MI}}{NN}{{AP}}", hard_lines=True),
        android("{M}/{D}/{Y2}, {h}:{MI} {AP}", notes="wa-en-colon", multi="inside"),
        android("{M}/{D}/{Y2}, {HH}:{MI}", empty=0.03),
        android("{MO}/{DD}/{Y4}, {hh}:{MI} {AP}", notes="none"),
        android("{DD}/{MO}/{Y4}, {HH}:{MI}", notes="wa-en-colon", hard_lines=True),
        android(f"{{DD}}/{{MO}}/{{Y2}}, {{h}}:{{MI}}{NN}{{ap}}", texts="hi"),
        android("{DD}/{MO}/{Y2}, {h}:{MI} {ap}", texts="hi", multi="inside", crlf=True),
        android(
            "{D}/{M}/{Y2}, {HH}:{MI}",
            texts="es",
            notes="wa-es",
            encrypted="Los mensajes y las llamadas están cifrados de extremo a extremo.",
        ),
        android(
            f"{{D}}/{{M}}/{{Y4}}, {{h}}:{{MI}}{NN}{{apes}}",
            texts="es",
            notes="wa-es",
            encrypted="Los mensajes están cifrados de extremo a extremo.",
        ),
        android(
            "{DD}/{MO}/{Y4} {HH}:{MI}",
            texts="pt",
            notes="wa-pt",
            encrypted="As mensagens e as ligações são protegidas com a criptografia de ponta a ponta.",
        ),
        android(
            "{DD}/{MO}/{Y4}, {HH}:{MI}",
            texts="fr",
            notes="wa-fr",
            multi="inside",
            encrypted="Les messages et les appels sont chiffrés de bout en bout.",
        ),
        android(
            "{DD}/{MO}/{Y4} à {HH}:{MI}",
            texts="fr",
            notes="wa-fr",
            encrypted="Les messages et les appels sont chiffrés de bout en bout.",
        ),
        android(
            "{DD}-{MO}-{Y4} {HH}:{MI}",
            texts="nl",
            notes="wa-nl",
            encrypted="Berichten en oproepen worden end-to-end versleuteld.",
        ),
        android("{Y4}-{MO}-{DD} {HH}:{MI}", notes="wa-en", hard_lines=True),
        android("{Y4}-{MO}-{DD}, {h}:{MI} {apdot}", notes="wa-en-colon"),
        android(
            "{Y4}/{MO}/{DD} {HH}:{MI}",
            texts="ja",
            notes="wa-ja",
            encrypted="メッセージと通話はエンドツーエンドで暗号化されています。",
        ),
        android("{Y4}/{M}/{D} {apzh}{h}:{MI}", texts="zh", notes="wa-zh", encrypted="消息和通话都进行端到端加密。"),
        android(
            "{Y4}. {M}. {D}. {apko} {h}:{MI}",
            texts="ko",
            notes="wa-ko",
            encrypted="메시지와 통화는 종단간 암호화되어 있습니다.",
        ),
        android("{D}.{M}.{Y4} klo {HH}.{MI}", texts="fi", notes="wa-fi", encrypted="Viestit ja puhelut ovat täysin salattuja."),
        android("{M}/{D}/{Y2}, {h}:{MI} {AP}", either_order=True, days=2, notes="wa-en"),
        android("{DD}/{MO}/{Y4}, {HH}:{MI}", either_order=True, days=1, notes="none", empty=0.02),
        ios("{DD}.{MO}.{Y2}, {HH}:{MI}:{SS}", texts="de", hard_lines=True, crlf=True),
        ios(f"{{M}}/{{D}}/{{Y2}}, {{h}}:{{MI}}:{{SS}}{NN}{{AP}}", bom=True),
        ios("{M}/{D}/{Y2}, {h}:{MI}:{SS} {AP}", multi="inside", notes="none"),
        ios("{DD}/{MO}/{Y4}, {HH}:{MI}:{SS}", notes="group", hard_lines=True),
        ios(f"{{DD}}/{{MO}}/{{Y2}}, {{h}}:{{MI}}:{{SS}}{NN}{{ap}}", texts="hi"),
        ios("{D}/{M}/{Y2}, {HH}:{MI}:{SS}", texts="es", notes="none", crlf=True),
        ios("{DD}/{MO}/{Y4}, {HH}:{MI}:{SS}", texts="pt", notes="none"),
        ios("{DD}/{MO}/{Y4} à {HH}:{MI}:{SS}", texts="fr", notes="none"),
        ios("{Y4}-{MO}-{DD}, {HH}:{MI}:{SS}", texts="ar", bom=True),
        ios("{DD}-{MO}-{Y4} {HH}:{MI}:{SS}", texts="nl", notes="none", empty=0.03),
        ios("{Y4}/{M}/{D} {apzh}{h}:{MI}:{SS}", texts="zh"),
        ios("{DD}/{MO}/{Y2}, {HH}:{MI}:{SS}", either_order=True, days=1),
        row(
            "line",
            "{HH}:{MI}\t{who}\t{text}",
            names="full",
            texts="ja",
            notes="line",
            note="{HH}:{MI}\t{text}",
            top=("[LINE] Chat history with Garden", ""),
            day=("", "{Y4}.{MO}.{DD} {WEEKDAY}"),
        ),
        row(
            "line",
            "{HH}:{MI} {who} {text}",
            names="given",
            texts="ja",
            day=("", "{Y4}/{MO}/{DD}({WD})"),
            bracket="other",
            tricky=0.05,
        ),
        row(
            "kakaotalk",
            "[{who}] [{apko} {h}:{MI}] {text}",
            names="full",
            texts="ko",
            notes="kakao",
            lang="ko",
            day=("--------------- {Y4}년 {M}월 {D}일 {WEEKDAY} ---------------",),
        ),
        row(
            "kakaotalk",
            "{Y4}년 {M}월 {D}일 {apko} {h}:{MI}, {who} : {text}",
            names="full",
            texts="ko",
            notes="kakao",
            multi="flush",
            note="{Y4}년 {M}월 {D}일 {apko} {h}:{MI}, {text}",
            bracket="ann:",
            day=("", "{Y4}년 {M}월 {D}일 {WEEKDAY}"),
            lang="ko",
        ),
        row(
            "kakaotalk",
            "{MON} {D}, {Y4} {h}:{MI} {AP}, {who} : {text}",
            names="full",
            bracket="ann:",
            multi="flush",
            hard_lines=True,
        ),
        row("signal", "[{Y4}-{MO}-{DD} {HH}:{MI}] {who}: {text}", names="full", multi="flush", hard_lines=True),
        row("signal", "[{Y4}-{MO}-{DD}, {HH}:{MI}:{SS}] {who}: {text}", names="full", multi="inside", empty=0.04),
        row("signal", "{who} ({Y4}-{MO}-{DD} {HH}:{MI}:{SS}): {text}", names="full", bracket="time after", multi="flush"),
        row("sms", "{DD}/{MO}/{Y4} {HH}:{MI}:{SS} {who}: {text}", names="full", people=2, texts="fr", multi="flush"),
        row("sms", "{MON} {D}, {Y4} at {h}:{MI} {AP} - {who} - {text}", names="full", people=2, bracket="ann -"),
        row("imessage", "{MON} {DD}, {Y4}  {hp}:{MI}:{SS} {AP}\n{who}", names="full", people=2, between=1, bracket="own line"),
    ]


def messenger_rows() -> list[Row]:
    conversation = (
        "Conversation with petra@jabber.example.org at {WD} {DD} {MON} {Y4} {hh}:{MI}:{SS} {AP} CET on lotte/ (jabber)",
    )
    qip_in = "--------------------------------------<-\n{who} ({HH}:{MI}:{SS} {D}/{MO}/{Y4})"
    return [
        row(
            "pidgin",
            "({hh}:{MI}:{SS} {AP}) {who}: {text}",
            top=conversation,
            notes="pidgin",
            note="({hh}:{MI}:{SS} {AP}) {text}",
            dated_top=True,
            days=0,
            multi="flush",
            names="mixed",
        ),
        row(
            "pidgin",
            "({HH}:{MI}:{SS}) {who}: {text}",
            top=("Conversation with #garden at {Y4}-{MO}-{DD} {HH}:{MI}:{SS} on nils (irc)",),
            dated_top=True,
            days=0,
            notes="pidgin",
            note="({HH}:{MI}:{SS}) {text}",
            act="({HH}:{MI}:{SS}) ***{who} {text}",
            empty=0.03,
        ),
        row(
            "pidgin", "({DD}.{MO}.{Y4} {HH}:{MI}:{SS}) {who}: {text}", names="full", texts="de", multi="flush", hard_lines=True
        ),
        row(
            "pidgin",
            "({MO}/{DD}/{Y4} {hh}:{MI}:{SS} {AP}) {who}: {text}",
            names="full",
            notes="pidgin",
            note="({MO}/{DD}/{Y4} {hh}:{MI}:{SS} {AP}) {text}",
        ),
        row(
            "adium",
            "({HH}:{MI}:{SS}) {who}: {text}",
            names="full",
            notes="pidgin",
            note="({HH}:{MI}:{SS}) {text}",
            multi="flush",
        ),
        row(
            "adium",
            "{h}:{MI}:{SS} {AP} {who}: {text}",
            names="nick",
            day=("{WEEKDAY}, {MONTH} {D}, {Y4}",),
            multi="indent",
            indent="   ",
        ),
        row(
            "aim",
            "{who} ({h}:{MI}:{SS} {AP}): {text}",
            bracket="time after",
            bottom=("Session concluded at {h}:{MI}:{SS} {AP}",),
        ),
        row("yahoo", "{who} ({M}/{D}/{Y4} {h}:{MI}:{SS} {AP}): {text}", bracket="time after", names="full"),
        row(
            "trillian",
            "[{HH}:{MI}] {who}: {text}",
            top=("Session Start (wanda:petra): " + BIRTH,),
            dated_top=True,
            days=0,
            notes="stars",
            note="[{HH}:{MI}] {text}",
            bottom=("Session Close (petra): " + BIRTH, ""),
        ),
        row(
            "msn-plus",
            "[{HH}:{MI}:{SS}] {who}: {text}",
            names="mixed",
            multi="indent",
            indent=" " * 11,
            day=(
                ".----------------------------------------.",
                "| Session Start: {D} {MONTH} {Y4}",
                ".----------------------------------------.",
            ),
        ),
        row(
            "msn-plus",
            "[{HH}:{MI}] {who}: {text}",
            texts="nl",
            lang="nl",
            multi="indent",
            indent="        ",
            day=("| Sessie: {WEEKDAY} {D} {MONTH} {Y4} |",),
        ),
        row("miranda", "[{HH}:{MI}:{SS} {DD}.{MO}.{Y4}] {who}: {text}", texts="ru", multi="flush"),
        row("miranda", "{who} {DD}.{MO}.{Y4} {HH}:{MI}:{SS}:", between=1, texts="ru", bracket="own line", multi="flush"),
        row("miranda", "{DD}.{MO}.{Y4} {HH}:{MI}:{SS} <{who}> {text}", names="full", between=1, multi="flush"),
        row("qip", qip_in, between=1, texts="ru", multi="flush"),
        row(
            "qip",
            "--------------------------------------->-\n{who} ({HH}:{MI}:{SS} {DD}.{MO}.{Y4})",
            between=1,
            multi="flush",
            names="full",
        ),
        row(
            "psi",
            "[{Y4}-{MO}-{DD} {HH}:{MI}:{SS}] <{who}> {text}",
            multi="flush",
            notes="dashes",
            note="[{Y4}-{MO}-{DD} {HH}:{MI}:{SS}] {text}",
            empty=0.03,
        ),
        row("gajim", "{Y4}-{MO}-{DD} {HH}:{MI}:{SS} {who}: {text}", names="full", multi="flush", hard_lines=True),
        row(
            "skype",
            "[{HH}:{MI}:{SS}] {who}: {text}",
            names="full",
            notes="stars",
            note="[{HH}:{MI}:{SS}] {text}",
            multi="flush",
        ),
        row(
            "skype",
            "[{DD}.{MO}.{Y4} {HH}:{MI}:{SS}] {who}: {text}",
            names="full",
            texts="de",
            notes="zendesk",
            note="[{DD}.{MO}.{Y4} {HH}:{MI}:{SS}] {text}",
            multi="flush",
        ),
        row(
            "skype",
            "[{M}/{D}/{Y4} {h}:{MI}:{SS} {AP}] {who}: {text}",
            names="full",
            multi="inside",
            notes="zendesk",
            note="[{M}/{D}/{Y4} {h}:{MI}:{SS} {AP}] {text}",
        ),
        row("skype", "[{M}/{D}/{Y2} {h}:{MI}:{SS} {AP}] {who}: {text}", names="full", either_order=True, days=1),
        row("gtalk", "{h}:{MI} {AP} {who}: {text}", names="given"),
        row("icq", "{who} {HH}:{MI}:{SS} {DD}/{MO}/{Y4}", between=1, bracket="own line", multi="flush"),
        row("qq", "{Y4}-{MO}-{DD} {H}:{MI}:{SS} {who}", between=1, names="full", texts="zh", multi="flush"),
        row("wechat", "{who} {MO}-{DD} {HH}:{MI}:{SS}", between=1, texts="zh", bracket="own line", multi="flush", days=1),
        row("telegram-copy", "{who}, [{DD}.{MO}.{Y4} {HH}:{MI}]", names="full", texts="ru", bracket="own line", multi="flush"),
        row("telegram-copy", "{who}, [{DD}.{MO}.{Y2} {HH}:{MI}]:", names="full", between=1, multi="flush"),
        row("telegram-copy", "{who}, [{MON} {D}, {Y4} at {h}:{MI}:{SS} {AP}]:", names="full", between=1, multi="flush"),
        row("telegram-copy", "[{DD}.{MO}.{Y4} {HH}:{MI}] {who}: {text}", names="full", multi="flush", hard_lines=True),
        row("telegram-copy", "> {who}:", names="full", bracket="own line", between=1, people=3, tricky=0.03),
        row(
            "telegram-cli",
            "[{HH}:{MI}]  {who} >>> {text}",
            names="full",
            bracket="ann>",
            note="[{HH}:{MI}]  {text}",
            notes="prose",
        ),
        row("telegram-cli", "[{DD} {MON}]  {who} »»» {text}", names="full", bracket="ann »", elapsed=True),
        row("jabber", "{HH}:{MI}:{SS} {who}> {text}", notes="unicode arrows", note="{HH}:{MI}:{SS} {text}"),
        row(
            "icb",
            "{HH}:{MI}:{SS} <*{who}*> {text}",
            bracket="other",
            notes="dashes",
            note="{HH}:{MI}:{SS} {text}",
            aliases=lambda who: (f"*{who}*",),
        ),
        row("talkd", "{who}> {text}", tricky=0.08, notes="brackets"),
    ]


def team_rows() -> list[Row]:
    rule = "=" * 62
    top = (rule, "Guild: Allotments", "Channel: Text / general", "Topic: plants, tools: sharing", rule, "")
    bottom = (rule, "Exported 57 message(s)", rule)

    def discord(stamp: str, who: str = "{who}", **options: Any) -> Row:
        options = {"notes": "discord", "busy": 0.05, "multi": "flush", "extras": 0.08, **options}
        options |= {"top": top, "bottom": bottom, "between": 1, "hard_lines": True}
        return row("discord-exporter", f"[{stamp}] {who}", **options)

    return [
        discord("{DD}-{MON}-{Y2} {hh}:{MI} {AP}", "{who}#0000", aliases=no_tag),
        discord("{DD}-{MON}-{Y2} {hh}:{MI} {AP}", names="full", empty=0.05),
        discord("{M}/{D}/{Y4} {h}:{MI} {AP}", names="wild"),
        discord("{DD}.{MO}.{Y4} {HH}:{MI}", texts="de"),
        discord("{Y4}-{MO}-{DD} {HH}:{MI}", names="full", extras=0.0, notes="none", empty=0.04),
        discord("{DD}/{MO}/{Y4} {HH}:{MI}", texts="fr", multi="inside"),
        row("discord-copy", "{who} — {MO}/{DD}/{Y4} {h}:{MI} {AP}", names="mixed", bracket="own line", multi="flush"),
        row("discord-copy", "{who} — {DD}.{MO}.{Y4} {HH}:{MI}", texts="de", bracket="own line", multi="flush"),
        row("discord-copy", "[{h}:{MI} {AP}] {who}: {text}", names="mixed"),
        row(
            "slackdump",
            "> {who} [U0{who}] @ {DD}/{MO}/{Y4} {HH}:{MI}:{SS} Z:",
            bracket="own line",
            between=1,
            multi="flush",
            zone=("UTC", 0),
            aliases=lambda who: (f"{who} [U0{who}]",),
        ),
        row("slack-copy", "{who}\n  {h}:{MI} {AP}", names="full", bracket="own line", multi="flush"),
        row(
            "slack-copy",
            "{who}  {HH}:{MI}",
            names="full",
            bracket="own line",
            multi="flush",
            day=("——— {WEEKDAY}, {MONTH} {D} ———",),
            days=0,
        ),
        row("slack-copy", "{who}\n  {HH}:{MI}", again="{HH}:{MI}", names="full", bracket="own line"),
        row(
            "mattermost-copy",
            "{who}\n{h}:{MI} {AP}",
            again="{h}:{MI} {AP}",
            names="nick",
            bracket="own line",
            between=1,
        ),
        row("slack-copy", "{who} [{h}:{MI} {AP}]", names="nick", bracket="own line", multi="flush", between=1),
        row("slack-text", "[{Y4}-{MO}-{DD} {HH}:{MI}:{SS}] @{who}: {text}", aliases=with_at, multi="flush"),
        row("mattermost", "[{HH}:{MI}] @{who} {text}", aliases=with_at, notes="prose", note="[{HH}:{MI}] {text}"),
        row("mattermost", "{Y4}-{MO}-{DD}T{HH}:{MI}:{SS}.{MS}Z @{who} {text}", aliases=with_at, zone=("UTC", 0)),
        row(
            "rocketchat",
            "{who} - {WEEKDAY}, {D} {MONTH} {Y4} {HH}:{MI}",
            bracket="own line",
            between=1,
            names="nick",
            multi="flush",
        ),
        row(
            "gitter",
            "@{who} {Y4}-{MO}-{DD}T{HH}:{MI}:{SS}.{MS}Z",
            bracket="own line",
            between=1,
            aliases=with_at,
            zone=("UTC", 0),
            multi="flush",
        ),
        row("gitter", "**{who}** _{MON} {DD} {Y4} {HH}:{MI}_", bracket="own line", between=1, multi="flush"),
        row(
            "hipchat",
            "[{h}:{MI} {AP}] {who}: {text}",
            names="full",
            multi="flush",
            note="[{h}:{MI} {AP}] {text}",
            notes="prose",
        ),
        row("hipchat", "{Y4}-{MO}-{DD}T{HH}:{MI}:{SS}{Z} {who}: {text}", names="full", zone=("", -300), multi="flush"),
        row("campfire", "{who}: {text}", names="full", notes="none", day=("{WEEKDAY}, {MONTH} {D}, {Y4}",), empty=0.03),
        row(
            "matrix-element",
            "{WEEKDAY}, {MONTH} {D}, {Y4}, {HH}:{MI}:{SS} - {who}: {text}",
            names="full",
            notes="matrix",
            note="{WEEKDAY}, {MONTH} {D}, {Y4}, {HH}:{MI}:{SS} - {text}",
            multi="flush",
        ),
        row(
            "matrix-element",
            "{D}. {MONTH} {Y4}, {HH}:{MI}:{SS} - {who}: {text}",
            lang="de",
            texts="de",
            names="full",
            multi="flush",
        ),
        row(
            "zulip", "**{who}** {MON} {DD} {Y4} {HH}:{MI}: {text}", names="full", bracket="time after", multi="flush", between=1
        ),
        row(
            "helpdesk",
            "({HH}:{MI}:{SS}) {who}: {text}",
            names="full",
            notes="zendesk",
            note="({HH}:{MI}:{SS}) {text}",
            people=2,
        ),
        row(
            "helpdesk",
            "{who} [{HH}:{MI}:{SS} UTC] {text}",
            names="given",
            people=2,
            bracket="time after",
            top=("Chat transcript {D} {MONTH} {Y4}", ""),
            dated_top=True,
            days=0,
            bottom=("", "Rating: good"),
            zone=("UTC", 0),
        ),
        row(
            "helpdesk",
            "( {TM}m {ES}s ) {who}: {text}",
            names="given",
            people=2,
            elapsed=True,
            top=("Chat Started: {WEEKDAY}, {MONTH} {DD}, {Y4}, {HH}:{MI}:{SS} (+0000)",),
        ),
        row(
            "facebook",
            "{who} • {WEEKDAY} {D} {MONTH} {Y4} {HH}:{MI}",
            names="full",
            bracket="own line",
            between=1,
            multi="flush",
        ),
    ]


def meeting_rows() -> list[Row]:
    return [
        row("zoom", "{HH}:{MI}:{SS} From {who} to Everyone: {text}", names="full", bracket="other", crlf=True),
        row("zoom", "{HH}:{MI}:{SS}\t From  {who} : {text}", names="full", bracket="other", crlf=True),
        row(
            "zoom",
            "{HH}:{MI}:{SS} From {who} to Everyone:",
            names="full",
            bracket="own line",
            indent="\t",
            crlf=True,
            multi="indent",
        ),
        row(
            "zoom",
            "{Y4}-{MO}-{DD} {HH}:{MI}:{SS} From {who} to Everyone:",
            names="full",
            bracket="own line",
            indent="\t",
            multi="indent",
            texts="de",
        ),
        row("teams", "[{HH}:{MI}] {who}", names="full", bracket="own line", multi="flush", between=1),
        row("teams", "[{M}/{D} {h}:{MI} {AP}] {who}", names="full", bracket="own line", multi="flush", between=1),
        row("teams", "[{DD}.{MO}.{Y4} {HH}:{MI}] {who}: {text}", names="full", texts="de"),
        row("teams", "{who}  {M}/{D}/{Y4}, {h}:{MI} {AP}", names="full", bracket="own line", between=1),
        row("webex", "{who} ({h}:{MI} {AP}): {text}", names="full", bracket="time after", notes="meeting"),
        row("webex", "from {who} to everyone:    {h}:{MI} {AP}", names="full", bracket="own line", multi="none"),
        row(
            "bigbluebutton",
            "[{HH}:{MI}] {who} : {text}",
            names="full",
            bracket="ann:",
            notes="meeting",
            note="[{HH}:{MI}] {text}",
        ),
        row("meet", "{HH}:{MI}:{SS}.{MS} {who}: {text}", names="full", notes="meeting", note="{HH}:{MI}:{SS}.{MS} {text}"),
        row("meet", "{who}\n{h}:{MI} {AP}", names="full", bracket="own line"),
        row(
            "meet-captions",
            "0{EH}:{EM}:{ES}.000,0{EH}:{EM}:{ES}.900\n{who}: {text}",
            names="full",
            elapsed=True,
            between=1,
        ),
        row("jitsi", "{who} {HH}:{MI}: {text}", names="given", bracket="time after", notes="dashes"),
        row(
            "twitch",
            "[{HH}:{MI}:{SS}]  {who}: {text}",
            top=("# Start logging at {Y4}-{MO}-{DD} {HH}:{MI}:{SS} CET",),
            dated_top=True,
            days=0,
            notes="twitch",
            note="[{HH}:{MI}:{SS}] {text}",
            zone=("CET", 60),
            named_zone=True,
            bottom=("# Stop logging at {Y4}-{MO}-{DD} {HH}:{MI}:{SS} CET",),
        ),
        row(
            "twitch",
            "[{Y4}-{MO}-{DD} {HH}:{MI}:{SS}] <{nick}> {text}",
            modes="@%+~--",
            notes="chatty",
            note="[{Y4}-{MO}-{DD} {HH}:{MI}:{SS}] {text}",
        ),
        row(
            "twitch",
            "[{Y4}-{MO}-{DD} {HH}:{MI}:{SS} UTC] {who}: {text}",
            zone=("UTC", 0),
            notes="twitch",
            note="[{Y4}-{MO}-{DD} {HH}:{MI}:{SS} UTC] {text}",
        ),
        row("twitch", "[{EH}:{EM}:{ES}] {who}: {text}", elapsed=True),
        row("webinar", "[+{EH}:{EM}:{ES}] {who} - {text}", names="full", elapsed=True),
        row("youtube", "{TM}:{ES} | {who}: {text}", names="full", elapsed=True),
    ]


def game_rows() -> list[Row]:
    server = "[{HH}:{MI}:{SS}] [Server thread/INFO]: "
    eve = ("-" * 63, "", "  Channel ID:      local", "  Channel Name:    Local", "  Listener:        Wanda", "-" * 63, "")
    return [
        row(
            "minecraft",
            server + "<{who}> {text}",
            prefix="level",
            notes="minecraft",
            note=server + "{text}",
            act=server + "* {who} {text}",
        ),
        row(
            "minecraft",
            "[{DD}{MON}{Y4} {HH}:{MI}:{SS}.{MS}] [Async Chat Thread - #1/INFO] [chat/]: <{who}> {text}",
            prefix="level",
            notes="minecraft",
            note="[{DD}{MON}{Y4} {HH}:{MI}:{SS}.{MS}] [Server thread/INFO] [core/]: {text}",
        ),
        row(
            "factorio",
            "{Y4}-{MO}-{DD} {HH}:{MI}:{SS} [CHAT] {who}: {text}",
            prefix="level",
            notes="upper",
            note="{Y4}-{MO}-{DD} {HH}:{MI}:{SS} {text}",
        ),
        row(
            "eve",
            "[ {Y4}.{MO}.{DD} {HH}:{MI}:{SS} ] {who} > {text}",
            names="full",
            bracket="ann>",
            top=eve,
            notes="eve",
            note="[ {Y4}.{MO}.{DD} {HH}:{MI}:{SS} ] {text}",
            bom=True,
        ),
        row("secondlife", "[{Y4}/{MO}/{DD} {HH}:{MI}]  {who}: {text}", names="full", multi="indent", indent=" "),
        row(
            "teamspeak",
            '<{HH}:{MI}:{SS}> "{who}": {text}',
            names="mixed",
            bracket="other",
            aliases=lambda who: (f'"{who}"',),
            notes="stars",
            note="<{HH}:{MI}:{SS}> {text}",
        ),
        row(
            "mumble",
            "[{HH}:{MI}:{SS}] (Root) {who}: {text}",
            prefix="channel",
            bracket="ann:",
            aliases=lambda who: (f"(Root) {who}",),
            notes="prose",
            note="[{HH}:{MI}:{SS}] {text}",
        ),
        row(
            "wow",
            "{M}/{D} {HH}:{MI}:{SS}.{MS}  [Guild] {who}: {text}",
            prefix="channel",
            bracket="ann:",
            aliases=lambda who: (f"[Guild] {who}",),
            names="given",
        ),
        row("wow", "{M}/{D} {HH}:{MI}:{SS}.{MS}  {who} says: {text}", bracket="other", names="given"),
        row("mud", "[{HH}:{MI}] {who} says: {text}", bracket="other", names="given", notes="prose", note="[{HH}:{MI}] {text}"),
        row("quake", "{who}: {text}", names="wild", notes="brackets", tricky=0.1),
    ]


__all__ = ["CHANNELS", "NOTES", "Layout", "Line", "Log", "Row", "iso", "layout_of", "make_layout", "people_for", "row", "rows"]
