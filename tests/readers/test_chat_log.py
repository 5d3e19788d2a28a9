"""Chat logs as text: patterns, inferred layouts, and exports of messengers."""

import itertools
import os
import random
import time
from calendar import timegm
from datetime import UTC, datetime, timedelta
from pathlib import Path

import chat_layouts_second
import chat_layouts_third
import pytest
from chat_layouts import COUNT, decoys, judge, judge_decoy, layouts

from ramify import readers
from ramify.errors import RamifyError
from ramify.readers import chat_log, irc
from ramify.readers.base import ReadCounts
from ramify.readers.chat_log.guess import guess
from ramify.readers.chat_log.pattern import Pattern
from ramify.readers.dates import DateOrder, find_stamps, read_date, read_time


def log_of(path, content, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    counts = ReadCounts()
    (log,) = list_logs([path], counts, **options)
    # Every line is a message, the further line of one, or left out.
    lines = path.read_bytes().removesuffix(b"\n").count(b"\n") + 1
    assert counts.read + counts.kept["continuation"] == lines
    assert counts.read == len(log) + sum(counts.skipped.values())
    # Most logs here have no day.
    counts.kept.pop("no_day", None)
    return log, counts


def list_logs(paths, counts, **options):
    return [list(log.messages) for log in chat_log.logs(paths, counts, **options)]


def contents(nodes):
    return [(node.id, node.kind, node.author, node.text) for node in nodes]


def at(*when):
    return float(timegm((*when, *[0] * (6 - len(when)))))


# --- dates and times ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2024-01-31", (2024, 1, 31)),
        ("20240131", (2024, 1, 31)),
        ("31.01.24", (2024, 1, 31)),
        ("31. 1. 2024", (2024, 1, 31)),
        ("31/1/1999", (1999, 1, 31)),
        ("31-Jan-24", (2024, 1, 31)),
        ("31 Jan", (None, 1, 31)),
        ("Wed, 31 Jan 2024", (2024, 1, 31)),
        ("January 31st, 2024", (2024, 1, 31)),
        ("Mittwoch, 31. Januar 2024", (2024, 1, 31)),
        ("31 de enero de 2024", (2024, 1, 31)),
        ("31 août 2024", (2024, 8, 31)),
        ("2024年1月31日", (2024, 1, 31)),
        ("2024. 1. 31.", (2024, 1, 31)),
        ("31 jui 2024", None),  # June or July
        ("30.02.2024", None),
        ("12 cats", None),
    ],
)
def test_dates(text, found):
    day = read_date(text, "day")
    assert (day and (day.year, day.month, day.day)) == found


@pytest.mark.parametrize(("text", "second"), [("1706695200", 0), ("1706695200123", 0.123), ("Wed Jan 31 10:00:00 2024", 0)])
def test_moments_in_one_piece(text, second):
    day = read_date(text, "day")
    assert day.second is not None
    assert day.second % 60 == pytest.approx(second, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "second", "zone"),
    [
        ("10:00", 36_000, 0),
        ("10:00:05.250", 36_005.25, 0),
        ("10:00:05,5", 36_005.5, 0),
        ("12:30 AM", 1_800, 0),
        ("1:00\u202fPM", 46_800, 0),
        ("1:00 p. m.", 46_800, 0),
        ("下午1:00", 46_800, 0),
        ("午前0:10", 600, 0),
        ("午後0:10", 43_800, 0),
        ("10.05", 36_300, 0),
        ("10h05", 36_300, 0),
        ("100005Z", 36_005, 0),
        ("10:00:00+0130", 36_000, 5_400),
        ("10:00 UTC+01:00", 36_000, 3_600),
        ("24:00", None, 0),
        ("13:00 PM", None, 0),
    ],
)
def test_times(text, second, zone):
    found = read_time(text)
    assert (found and found.second) == second
    assert found is None or found.zone == zone


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("[10:00] <ann> hi", ["10:00"]),
        ("31 Jan 2024 10:00: hi", ["31 Jan 2024", "10:00"]),
        ("Sam 31 Jan 2024", ["31 Jan 2024"]),
        ("Sat 31 Jan 2024", ["Sat 31 Jan 2024"]),
        ("ann lee  1/31/2024 10:00 AM", ["1/31/2024", "10:00 AM"]),
        ("550e8400-e29b-41d4-a716-446655440000 10:00", ["10:00"]),
        ("12:[10:00] x", ["10:00"]),
        ("31/Jan/2024:10:00:00 +0000", ["31/Jan/2024", "10:00:00 +0000"]),
        ("20240131T100005Z x", ["20240131", "100005Z"]),
        ("31.1.2024 klo 10.05 - x", ["31.1.2024", "10.05"]),
        ("version 2.16.12 of 3", []),
    ],
)
def test_stamps_in_lines(line, found):
    assert [line[stamp.start : stamp.end] for stamp in find_stamps(line)] == found


@pytest.mark.parametrize(
    ("dates", "order", "ambiguous"),
    [
        (["03/04/24", "13/04/24"], "day", None),
        (["04/03/24", "04/13/24"], "month", None),
        # Days do not go back.
        (["31-01-24", "01-02-24"], "day", None),
        (["02/03/24", "03/03/24", "01/04/24"], "day", None),
        # Days of one log lie close together.
        (["03/04/24", "04/04/24", "05/04/24"], "day", None),
        (["04/03/24", "04/04/24", "04/05/24"], "month", None),
        (["24-01-30", "24-01-31", "24-02-01"], "year", None),
        (["03/04/24"], "month", "03/04/24"),
        (["04/04/24"], "month", None),
        (["31.12.23", "03.04.24"], "month", None),
    ],
)
def test_order_of_day_and_month(dates, order, ambiguous):
    found = DateOrder("auto")
    assert found.settle_log(dates) == ambiguous
    assert found.order == order


# --- patterns -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "line", "author", "text"),
    [
        ("{date} {time} | {author}: {text}", "2024-01-31 10:00 | Ann Lee: b: c", "Ann Lee", "b: c"),
        ("{time} {author}: {text}", "10:00   ann: hi", "ann", "hi"),
        ("{time} {author}: {text}", "10:00 ann:   hi", "ann", "  hi"),
        ("{time} {author}:  {text}", "10:00 ann:   hi", "ann", "hi"),
        ("{time} {author}: {text}", "10:00 ann:", "ann", ""),
        ("{skip} [{time}] <{author}> {text}", "#c [10:00] <@ann> <b> c", "ann", "<b> c"),
        ("{time} From {author}{? to {skip}}: {text}", "10:00 From ann to all: b: c", "ann", "b: c"),
        ("{time} From {author}{? to {skip}}: {text}", "10:00 From ann: b", "ann", "b"),
        (r"\{{time}\}\t{author}\t{text}", "{10:00}\tann\tb\tc", "ann", "b c"),
        ("{author} {date} {time}: {text}", "Ann Lee 31 Jan 2024 10:00: hi", "Ann Lee", "hi"),
        ("{time} - {author}: {text}", "10:00\u202f-\u00a0~\u202fAnn: hi", "Ann", "hi"),
        ("<m>{author}|{text}</m>", "<m>ann|hi</m>", "ann", "hi"),
    ],
)
def test_patterns(tmp_path, pattern, line, author, text):
    nodes, _ = log_of(tmp_path / "a.log", line + "\n", pattern=pattern)
    assert contents(nodes) == [("0", "", author, text)]


def test_several_patterns(tmp_path):
    pattern = "{time} {author}: {text}\n-- {system}"
    nodes, _ = log_of(tmp_path / "a.log", "10:00 ann: hi\n-- bob came\n10:01 bob: ho\n-- x\n", pattern=pattern)
    assert [(node.kind, node.author, node.text) for node in nodes] == [
        ("", "ann", "hi"),
        ("system", None, "bob came"),
        ("", "bob", "ho"),
        ("system", None, "x"),
    ]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("{time} {nick}: {text}", r"has the field \{nick\}; the fields are \{date\}, .*\{skip\}"),
        ("{time} {text}", r"needs one of \{author\} and \{system\}"),
        ("{system}", r"has no \{author\} in any of its lines"),
        ("{author}{text}", r"nothing between \{author\} and \{text\}"),
        ("{author}: {author}", r"has \{author\} twice"),
        ("{author}: {? x", "optional part '{[?]' without its '}'"),
        ("{author}}: {text}", r"has a '\}' without a '\{'"),
        ("{author: {text}", "has a '{' that opens nothing"),
        ("{author} {? a{? b}}: {text}", "optional part inside an optional part"),
        ("{skip} " * 9 + "{author}: {text}", "more than eight times"),
        ("\n", "is empty"),
    ],
)
def test_bad_patterns(tmp_path, pattern, message):
    with pytest.raises(RamifyError, match=message):
        log_of(tmp_path / "a.log", "10:00 ann: hi\n", pattern=pattern)


def test_pattern_that_matches_no_line(tmp_path):
    content = "\n2024-01-31 10:00 ! ann: hi\nhello\n2024-01-31 10:01 | ann said\nfourth\n"
    with pytest.raises(RamifyError) as raised:
        log_of(tmp_path / "a.log", content, pattern="{date} {time} | {author}: {text}")
    lines = str(raised.value).split("\n")
    assert "matches no line of" in lines[0]
    shown = [(lines[place], lines[place + 1]) for place in (1, 3, 5)]
    assert [line.split(": ", 1)[0] for line, _ in shown] == ["  line 2", "  line 3", "  line 4"]
    assert [line[mark.index("^") :] for line, mark in shown] == ["! ann: hi", "hello", "ann said"]
    assert [mark.split("expected ")[1] for _, mark in shown] == ["'| '", "a date", "{author}, followed by ': '"]


def test_long_lines_take_linear_time():
    (template,) = Pattern("{skip} {skip} {skip} [{time}] <{author}> {text}").templates
    started = time.process_time()
    for line in ("a " * 500_000, "a b c [10:00] <" + "x " * 500_000, "[" * 1_000_000):
        assert template.line.fullmatch(line) is None
    assert time.process_time() - started < 2


# --- inferred layouts -----------------------------------------------------------------------------------------------------

TEXTS = (
    "hi all|hello, how are you?|bob: did it work?|yes, thanks|see http://x.example/a: b|@ann what do you think?|I think so|ok"
    "|ann: the update fails|let me look|which version?|2.6.12|that is old|try the new one|will do|great!|anyone here?|brb"
    "|it says 10:30 in the log|where is it now|carol, can you check|- first point|lol|good night"
)
SAID = TEXTS.split("|")
NAMES = ["ann", "bob", "carol", "dave"]
BEFORE = [
    "",
    "#c ",
    "{n} ",
    "{n}: ",
    "3f2c{n:04x}-1111-2222-3333-44445555{n:04x} ",
    "{level} ",
    "[INFO] ",
    "a.example.net ",
    "chan|",
]
STAMPS = [
    "[%H:%M]",
    "%Y-%m-%d %H:%M:%S",
    "%d/%m/%y, %H:%M -",
    "(%d %b %Y %I:%M %p)",
    "%s",
    "{%H:%M:%S}",
    "%Y-%m-%dT%H:%M:%SZ |",
]
AUTHORS = ["<{}> ", "[{}] ", "{}: ", "{} | ", "{} - ", "{} » ", "@{}: ", "From {} to Everyone: ", "*{}* ", "{:>8} -> ", "{}\t"]
EVENTS = [None, "*** eve joined", "eve has joined the channel", "-!- eve [e@h] has joined #c", "--> eve (e@h) has joined #c"]


def written(before, stamp, author, event, seed):
    """The lines of a log in a layout, and what each of them holds."""
    chance, now = random.Random(seed), datetime(2024, 1, 30, 22, 50, tzinfo=UTC)
    lines, held = [], []
    for number in range(40):
        now += timedelta(seconds=chance.randrange(200))
        head = before.format(n=number + 1, level=("INFO", "WARN")[number % 3 == 0]) + now.strftime(stamp) + " "
        name, text = chance.choice(NAMES), chance.choice(SAID)
        lines.append(head + author.format(name) + text)
        held.append((name, text, now.timestamp() if "%S" in stamp or stamp == "%s" else now.timestamp() // 60 * 60))
        if event and number % 6 == 3:
            lines.append(head + event)
            held.append("eve")
        if number % 9 == 4:
            lines += ["", "a second line"]
            held += [None, None]
    return lines, held


@pytest.mark.parametrize("seed", range(60))
def test_layouts_are_inferred(tmp_path, seed):
    layouts = list(itertools.product(BEFORE, STAMPS, AUTHORS, EVENTS))
    before, stamp, author, event = random.Random(seed).choice(layouts)
    lines, held = written(before, stamp, author, event, seed)
    nodes, counts = log_of(tmp_path / "a.log", "\n".join(lines) + "\n")
    messages = [(number, *each) for number, each in enumerate(held) if isinstance(each, tuple)]
    found = [node for node in nodes if node.kind == ""]
    assert [int(node.id) for node in found] == [number for number, *_ in messages]
    for node, (number, name, text, when) in zip(found, messages, strict=True):
        assert node.author == name
        assert node.text == text + ("\n\na second line" if held[number + 1 : number + 2] == [None] else "")
        if "%d" in stamp or stamp == "%s":
            assert node.time == when
        else:
            assert node.time % 86_400 == when % 86_400
    events = [node for node in nodes if node.kind == "system"]
    assert [node.author for node in events] == ["eve"] * held.count("eve")
    assert not counts.skipped


@pytest.mark.parametrize("before", ["#c ", "{n} "])
def test_names_in_angle_brackets_need_no_times(tmp_path, before):
    lines = [before.format(n=number) + f"<{NAMES[number % 3]}> {text}" for number, text in enumerate(SAID)]
    nodes, _ = log_of(tmp_path / "a.log", "\n".join(lines))
    assert [(node.author, node.text, node.time) for node in nodes] == [
        (NAMES[number % 3], text, None) for number, text in enumerate(SAID)
    ]


def test_author_before_the_time(tmp_path):
    lines = "".join(f"{NAMES[number % 3]} [10:{number:02}]: {text}\n" for number, text in enumerate(SAID))
    nodes, _ = log_of(tmp_path / "a.log", lines + "*** [10:59] eve joined\n")
    assert [(node.author, node.text) for node in nodes[:-1]] == [(NAMES[n % 3], text) for n, text in enumerate(SAID)]
    assert (nodes[-1].kind, nodes[-1].author, nodes[-1].time) == ("system", "eve", at(1970, 1, 1, 10, 59))


def test_lines_that_name_a_day(tmp_path):
    content = (
        "Conversation with bob at 30 Jan 2024 09:00:00 on ann@x.example\n"
        "23:58 ann: hi\n23:59 bob: hello?\nThursday, February 1, 2024\n00:01 ann: it is late\n00:02 bob: you are right\n"
        "--- Day changed Fri Feb 02 2024\n10:00 ann: good morning\n"
    )
    nodes, counts = log_of(tmp_path / "a.log", content)
    assert [node.time for node in nodes if node.author] == [
        at(2024, 1, 30, 23, 58),
        at(2024, 1, 30, 23, 59),
        at(2024, 2, 1, 0, 1),
        at(2024, 2, 1, 0, 2),
        at(2024, 2, 2, 10),
    ]
    assert [node.id for node in nodes if node.kind == "system"] == ["0", "3", "6"]
    assert not counts.kept


def test_pattern_is_in_the_metadata(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("\n".join(written("#c ", "[%H:%M]", "{} | ", None, 1)[0]))
    (log,) = chat_log.logs([path], ReadCounts())
    assert log.meta == {"pattern": "#c [{time}] {author} | {text}"}
    assert readers.detect_format([path]) == "chat-log"
    # The pattern says as much as the inference.
    nodes = list(log.messages)
    assert list_logs([path], ReadCounts(), pattern=log.meta["pattern"]) == [nodes]


@pytest.mark.parametrize("author", ["{}: ", "* {}: ", "** {} ** ", "-{}- "])
def test_logs_that_irc_would_misread(tmp_path, author):
    """IRC's readers take such lines for lines of the channel, actions or notices."""
    path = tmp_path / "a.log"
    path.write_text("\n".join(line for line in written("", "[%H:%M]", author, None, 2)[0] if line not in ("", "a second line")))
    assert readers.detect_format([path]) == "chat-log"
    nodes = list_logs([path], ReadCounts())[0]
    assert {node.author for node in nodes} == set(NAMES)


def test_irc_without_times_leaves_times_alone(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("".join(f"<{NAMES[number % 3]}> [10:{number:02}] {text}\n" for number, text in enumerate(SAID)))
    assert irc.refuses(path, path.read_bytes())
    assert readers.detect_format([path]) == "chat-log"
    assert list_logs([path], ReadCounts())[0][1].time == at(1970, 1, 1, 10, 1)


# --- files that are no chats, or unclear ------------------------------------------------------------------------------------


def numbered(form, *rows):
    return "".join(form.format(*rows[number % len(rows)], n=number, m=number % 60) for number in range(30))


TALK = (("ann", "hi, how are you?"), ("bob", "I am fine, thanks"), ("ann", "you know me"))
NO_CHATS = {
    "table": "when;who;said\n" + numbered("2024-01-31 10:{m:02};{};{}\n", *TALK),
    "quoted table": numbered('"2024-01-31 10:{m:02}","{}","{}"\n', *TALK),
    "json lines": numbered('{{"time": "2024-01-31 10:{m:02}", "author": "{}", "text": "{}"}}\n', *TALK),
    "json": "[\n" + numbered('{{\n"time": "10:{m:02}",\n"author": "{}",\n"text": "{}"\n}},\n', *TALK),
    "sql": numbered("INSERT INTO m VALUES ({n},'2024-01-31 10:{m:02}','{}','{}');\n", *TALK),
    "prose": "It was a dark night. I said: hello, you. At 10:00 we left?\n“Who are you?” she said.\n" * 10,
    "code": Path(chat_log.__file__).read_text("utf-8"),
    "access log": numbered(
        '{} - {} [31/Jan/2024:10:{m:02}:00 +0000] "GET /{n} HTTP/1.1" 200 17\n', ("a.example", "bob"), *TALK
    ),
    "syslog": numbered(
        "Mar 14 09:{m:02}:00 host {}: {}\n", ("kernel", "usb 1-1: new"), ("systemd", "Started it"), ("dbus", "left")
    ),
    "logger": numbered("2024-01-31 10:{m:02}:00,1 [main] {} com.x.{} - is it ok?\n", ("INFO", "Bar"), ("WARN", "Baz")),
    "levels": numbered("[2024-01-31 10:{m:02}:00] {}: {}\n", ("INFO", "started"), ("WARN", "slow, are you there?")),
    "sensors": numbered("2024-01-31 10:{m:02} {}: {}\n", ("temperature", "20.1"), ("humidity", "44")),
    "build": numbered("10:{m:02}:01 {} | {}\n", ("build", "compiling"), ("test", "running 12 tests"), ("build", "linking")),
    "subtitles": numbered("{n}\n00:{m:02}:01,000 --> 00:{m:02}:04,000\n{}: {}\n\n", *TALK),
    "play": numbered("{}: {}\n", ("ROMEO", "But soft, what light?"), ("JULIET", "O Romeo, Romeo"), ("ROMEO", "Is it you?")),
    "screenplay": numbered("INT. HOUSE - DAY\n\n          {}\n     {}\n\n", ("ROMEO", "What light?"), ("JULIET", "Romeo")),
    "schedule": numbered("{}:00 - {}\n", ("9", "Keynote: The future?"), ("10", "Talk: You and I"), ("11", "Talk: How?")),
    "results": numbered("2024-01-{m:02} {} - {} 1:0\n", ("Ajax", "PSV"), ("PSV", "NEC"), ("Ajax", "NEC")),
    "folder": numbered("-rw-r--r-- 1 {} users 100 Jan 31 10:{m:02} file{n}.txt\n", ("ann",), ("bob",)),
    "moves": numbered("{n}. e4 {{[%clk 0:10:{m:02}]}} e5 {{[%clk 0:09:{m:02}]}}\n", ()),
    "markup": numbered("<p> hi, you?</p>\n<li> who?\n", ()),
    "mail": "From ann@x.example Wed Jan 31 10:00:00 2024\nFrom: Ann\nSubject: hi\n\nHow are you?\n\n" * 6,
    "one author": numbered("10:{m:02} ann: are you there? {n}\n", ()),
    "few lines": "10:00 ann: hi\n10:01 bob: hello\n",
    "blank": "\n \n",
}


@pytest.mark.parametrize("name", NO_CHATS)
def test_other_files_are_refused(tmp_path, name):
    path = tmp_path / "x.log"
    assert chat_log.refuses(path, NO_CHATS[name].encode()[: 1 << 16])
    path.write_text(NO_CHATS[name])
    try:
        found = readers.detect_format([path])
    except RamifyError:
        return
    assert found not in ("chat-log", "irc")


def test_refusal_shows_lines_and_the_remedy(tmp_path):
    with pytest.raises(RamifyError) as raised:
        log_of(tmp_path / "a.log", NO_CHATS["syslog"])
    message = str(raised.value)
    assert "a.log cannot be guessed: the pattern" in message
    assert "line 1: Mar 14 09:00:00 host kernel: usb 1-1: new" in message
    assert "With --pattern '{date} {time} host {author}: {text}' the messages would begin:" in message
    assert "  line 1: kernel: usb 1-1: new" in message


def test_two_readings_are_refused():
    """The name may be Ann or Ann Lee; nothing but a space parts it from the text."""
    lines = [f"[10:{number:02}] @{('Ann Lee', 'Bob')[number % 2]} {text}" for number, text in enumerate(SAID)]
    assert guess(lines).reason


@pytest.mark.parametrize("day", ["Wed 2024-01-31", "Mittwoch, 31. Januar 2024", "2024-01-31"])
def test_weekdays_belong_to_dates(day):
    lines = [f"[{day} 10:{number:02}] <{NAMES[number % 4]}> {text}" for number, text in enumerate(SAID)]
    assert guess(lines).source == "[{date} {time}] <{author}> {text}"


def test_speakers_are_not_those_who_are_spoken_to():
    lines = [
        f"[2024-01-31 10:{number:02}] <{NAMES[number % 4]}> {NAMES[(number + 1) % 4]}: {text}"
        if number % 5
        else f"[2024-01-31 10:{number:02}] <{NAMES[number % 4]}> {text}"
        for number, text in enumerate(SAID * 2)
    ]
    assert guess(lines).source == "[{date} {time}] <{author}> {text}"


# --- lines of the channel --------------------------------------------------------------------------------------------------

WITH_SYSTEM_LINES = {
    "marks": ("10:{m:02} {who}: {text}", "·· {who} came in", "and more"),
    "one mark": ("10:{m:02} {who}: {text}", "• {who} waves to all", "- and more"),
    "tags": ("[net] <{who}> {text}", "[bridge] link up, {m} ms\n[system] {who} joined", "  and more"),
    "frame": ("10:{m:02} | {who}: {text}", "-- {who} is called {who}_ now --", "-- {who}"),
    "verbs": ("({who}) 10:{m:02}: {text}", "{who} waves from the gate", "gates are open"),
    "margins": ("10:{m:02} > {who} > {text}", "the server restarts in {m} minutes", "    point {m}"),
    "scripts without spaces": ("[{who}] [10:{m:02}] {text}", "{who}님이 나갔습니다.", "나갔습니다"),
}


@pytest.mark.parametrize("name", WITH_SYSTEM_LINES)
def test_lines_of_the_channel_are_told_from_further_lines(tmp_path, name):
    said, told, more = WITH_SYSTEM_LINES[name]
    lines, kinds = [], []
    for minute in range(40):
        fields = {"m": minute, "who": NAMES[minute % 4], "text": SAID[minute % len(SAID)]}
        lines.append(said.format_map(fields))
        kinds.append("")
        if minute % 5 == 2:
            lines.append(more.format_map(fields))
        if minute % 5 == 3:
            lines += told.format_map(fields).split("\n")
            kinds += ["system"] * (told.count("\n") + 1)
    nodes, counts = log_of(tmp_path / "a.log", "\n".join(lines))
    assert [node.kind for node in nodes] == kinds
    assert counts.kept["continuation"] == 8


def test_text_below_a_heading_may_look_like_a_line_of_the_channel(tmp_path):
    texts = [*SAID, "*** what?", "=== stop ===", "--> look here"]
    lines = "".join(f"{NAMES[number % 3]} [10:{number:02}]\n{text}\n\n" for number, text in enumerate(texts))
    nodes, _ = log_of(tmp_path / "a.log", lines)
    assert [(node.kind, node.text) for node in nodes] == [("", text) for text in texts]


def test_lines_below_the_last_blank_line_are_a_footer(tmp_path):
    lines = "".join(f"10:{number:02} {NAMES[number % 3]}: {text}\n" for number, text in enumerate(SAID))
    nodes, counts = log_of(tmp_path / "a.log", lines + "\nRating: good\n")
    assert [(node.kind, node.text) for node in nodes[-2:]] == [("", SAID[-1]), ("system", "Rating: good")]
    assert (counts.kept, counts.skipped) == ({}, {"blank_line": 1})
    nodes, counts = log_of(tmp_path / "b.log", "10:00 ann: one\ntwo\n" + lines + "\nthree\n")
    assert (nodes[-1].text, counts.kept) == (f"{SAID[-1]}\n\nthree", {"continuation": 3})


@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ("10:{m:02} [@+{who}] {text}", "{time} [{?~}{?&}{?@}{?%}{?+}{author}] {text}"),
        ("<{who}> {text}     [10:{m:02}]", "<{author}> {text} [{time}]"),
        ("{who} [U{who}] @ 10:{m:02}: {text}", "{author} [{skip}] @ {time}: {text}"),
        ("10.{m:02} p.m. «{who}» - {text}", "{time} «{author}» - {text}"),
        ("11-17 10:{m:02} 【{who}】{text}", "{date} {time} 【{author}】{text}"),
        ("{who} <10:{m:02} Uhr> {text}", "{author} <{time} Uhr> {text}"),
        ("10:{m:02} INFO {who}: {text}", "{time} INFO {author}: {text}"),
        ("10:{m:02} [Main Thread/INFO] [chat]: <{who}> {text}", "{time} [{skip}] [chat]: <{author}> {text}"),
        ("10:{m:02} room@chat.example/{who}: {text}", "{time} room@chat.example/{author}: {text}"),
        ("10:{m:02} /{who}/ {text}", "{time} /{author}/ {text}"),
    ],
)
def test_patterns_are_inferred(form, pattern):
    names = ["ann", "bob", "carol lee", "dr. dave d. 🌻"] if "@+" not in form else NAMES
    lines = [
        form.format(m=number, who=names[number % 4], text=text).replace("@+", ("", "@", "+")[number % 3])
        for number, text in enumerate(SAID * 2)
    ]
    assert guess(lines).source == pattern


@pytest.mark.parametrize("more", ["also, my kite is back", "return 13", "dora left the room", "2 of 3"])
def test_further_lines_without_marks_and_authors_are_text(tmp_path, more):
    lines = [f"2024-01-31 10:{number:02} {NAMES[number % 3]}: {text}" for number, text in enumerate(SAID)]
    for place in (4, 9, 14):
        lines[place] += f"\nsee below\n{more}"
    nodes, _ = log_of(tmp_path / "a.log", "\n".join(lines))
    assert [node.text.split("\n")[1:] for node in nodes if "\n" in node.text] == [["see below", more]] * 3
    assert {node.kind for node in nodes} == {""}


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("[#room] {who} (10:{m:02}): {text}", "[#room] === zed is here"),
        (">> {who} @ 10:{m:02} > {text}", ">> --- zed set the topic: tea"),
        ("{m:05} {who} (10:{m:02}): {text}", "00099 === zed is gone"),
        ("(3f2c{m:04x}) {who} @ 10:{m:02}: {text}", "(3f2caaaa) --- zed is zed2"),
        ("10:{m:02} {who}: {text}", "[zed was removed by ann]"),
        ("10:{m:02} {who}: {text}", "zed has set the topic to tea"),
    ],
)
def test_lines_like_the_heads_of_messages_are_no_text(tmp_path, form, told):
    lines = [form.format(m=number, who=NAMES[number % 3], text=text) for number, text in enumerate(SAID)]
    lines[6] += "\nmore of it"
    nodes, _ = log_of(tmp_path / "a.log", "\n".join([*lines[:12], told, *lines[12:]]))
    assert [node.text for node in nodes if not node.kind] == [*SAID[:6], f"{SAID[6]}\nmore of it", *SAID[7:]]


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ("{who} at the desk 10:{m:02}\n{text}", "most names hold 'desk'"),
        ("10:{m:02}\t{who}\t{other}\t{text}", "column|author"),
        ("{mark} {who} 10:{m:02}: {text}", "leaves out messages"),
        ("10:{m:02} [{who} / {other}] {text}", "is not a name"),
    ],
)
def test_readings_that_take_more_or_less_than_the_name_are_impossible(form, reason):
    lines = "\n".join(
        form.format(m=number, who=NAMES[number % 3], other=NAMES[(number + 1) % 3], mark="→←"[number % 9 == 4], text=text)
        for number, text in enumerate(SAID)
    )
    found = guess(lines.split("\n"))
    read = [found.layout.read(line) for line in lines.split("\n")] if found.source else []
    assert found.reason or set(NAMES) >= {line.author for line in read if line and not line.kind}


def test_dates_whose_year_may_be_first_or_last(tmp_path):
    content = "".join(f"11-07-05 10:{number:02} {NAMES[number % 3]}: {text}\n" for number, text in enumerate(SAID))
    with pytest.raises(RamifyError, match=r"11-07-05 and all others may begin or end with the year.*dates=year"):
        log_of(tmp_path / "a.log", content)
    for dates, day in (("year", (2011, 7, 5)), ("month", (2005, 11, 7)), ("day", (2005, 7, 11))):
        assert log_of(tmp_path / "a.log", content, dates=dates)[0][0].time == at(*day, 10)


# --- three hundred layouts, and texts that are no chats -------------------------------------------------------------------


def read_unnamed(path, text):
    """The messages of a file whose format is not named; None if it is refused."""
    path.write_bytes(text.encode())
    try:
        reader = readers.find_format(readers.detect_format([path]))
    except RamifyError:
        return None
    if reader.yields == "posts":
        return []
    counts = ReadCounts()
    try:
        nodes = [node for tree in reader.records([path], counts) for node in tree.nodes]
    except RamifyError:
        return None
    if reader.name == "chat-log":
        lines = path.read_bytes().removesuffix(b"\n").count(b"\n") + 1
        assert counts.read + counts.kept["continuation"] == lines
        assert counts.read == len(nodes) + sum(counts.skipped.values())
    return nodes


def judged(folder, found):
    """The number of layouts that are read rightly, and the faults of the others that are read."""
    right, wrong = 0, []
    for layout in found:
        if (nodes := read_unnamed(folder / f"{layout.name}.txt", layout.text)) is not None:
            verdict = judge(layout, nodes)
            right += verdict.right
            wrong += [] if verdict.right else [str(verdict)]
    return right, wrong


def test_layouts_are_read_or_refused(tmp_path):
    """The reader was mended on these layouts, so the share says nothing of others. Every third one shows the same."""
    right, wrong = judged(tmp_path, layouts()[::3])
    assert not wrong
    assert right >= 0.97 * COUNT / 3


def test_layouts_of_the_second_set_are_read_or_refused(tmp_path):
    """The ten ambiguous ones may be refused."""
    right, wrong = judged(tmp_path, chat_layouts_second.layouts())
    assert not wrong
    assert right >= 75


def test_layouts_of_the_third_set_are_read_or_refused(tmp_path):
    """The set was written together with the reader."""
    right, wrong = judged(tmp_path, chat_layouts_third.layouts())
    assert not wrong
    assert right >= 133


def test_decoys_are_no_chats(tmp_path):
    texts = [*decoys(), *chat_layouts_second.decoys(), *chat_layouts_third.decoys()]
    verdicts = [judge_decoy(decoy, read_unnamed(tmp_path / f"{decoy.name}.txt", decoy.text)) for decoy in texts]
    assert [str(verdict) for verdict in verdicts if not verdict.right] == []


# --- exports of messengers ------------------------------------------------------------------------------------------------


def test_whatsapp(tmp_path):
    content = (
        "31.01.24, 10:00 - Nachrichten sind verschlüsselt. Tippe hier: mehr.\n"
        "31.01.24, 10:00 - Ann Lee hat die Gruppe „Ski“ erstellt\n"
        "31.01.24, 10:01 - Ann Lee: Hallo zusammen\n"
        "31.01.24, 10:02 - Bob: Hi!\nwie geht's?\n\n- gut: oder\n"
        "31.01.24, 10:03 - +49 170 1234567: <Medien ausgeschlossen>\n"
        "31.01.24, 10:04 - Ann Lee hat den Betreff zu „Ski: 2024“ geändert\n"
        "31.01.24, 10:05 - Ann Lee: gut, danke\n"
        "31.01.24, 10:06 - Bob: prima\n\n"
    )
    nodes, counts = log_of(tmp_path / "chat.txt", content)
    assert contents(nodes)[2:7] == [
        ("2", "", "Ann Lee", "Hallo zusammen"),
        ("3", "", "Bob", "Hi!\nwie geht's?\n\n- gut: oder"),
        ("7", "", "+49 170 1234567", "<Medien ausgeschlossen>"),
        ("8", "system", None, "Ann Lee hat den Betreff zu „Ski: 2024“ geändert"),
        ("9", "", "Ann Lee", "gut, danke"),
    ]
    assert [node.kind for node in nodes[:2]] == ["system"] * 2
    assert nodes[3].time == at(2024, 1, 31, 10, 2)
    assert (counts.kept, counts.skipped) == ({"continuation": 3, "no_author": 3}, {"blank_line": 1})
    assert counts.examples["no_author"][0].endswith("chat.txt, line 1")


def test_whatsapp_with_invisible_marks(tmp_path):
    content = "".join(
        f"\u200e[1/{day}/24, 10:0{minute}:05\u202fPM] {author}: \u200e{text}\n"
        for day, minute, author, text in [
            (30, 0, "Ann Lee", "hi, anyone?"),
            (30, 1, "~\u202fBob", "me!"),
            (31, 2, "Ann Lee", "image omitted"),
            (31, 3, "~\u202fBob", "@\u2068Ann Lee\u2069 ok"),
            (31, 4, "Ann Lee", "you left the skis: there"),
        ]
    )
    nodes, _ = log_of(tmp_path / "chat.txt", content)
    assert [(node.author, node.text) for node in nodes] == [
        ("Ann Lee", "hi, anyone?"),
        ("Bob", "me!"),
        ("Ann Lee", "image omitted"),
        ("Bob", "@Ann Lee ok"),
        ("Ann Lee", "you left the skis: there"),
    ]
    assert nodes[0].time == at(2024, 1, 30, 22, 0, 5)


def test_discord_chat_exporter(tmp_path):
    frame = "=" * 62
    content = (
        f"{frame}\nGuild: Birds\nChannel: text / seeds\n{frame}\n\n"
        "[31-Jan-24 10:00 AM] ann#0001\nhello there\n\n"
        "[31-Jan-24 10:01 AM] bob#0002\n@ann hi\n\nthird\n\n{Attachments}\nhttps://x.example/a.png\n\n{Reactions}\n👍 (2)\n\n"
        "[31-Jan-24 10:02 AM] ann#0001 (pinned)\nsee this\n\n{Embed}\nA page: of things\n\nmore\n\n"
        f"{frame}\nExported 3 message(s)\n{frame}\n"
    )
    nodes, counts = log_of(tmp_path / "a.txt", content)
    assert contents(nodes) == [
        ("5", "", "ann#0001", "hello there"),
        ("8", "", "bob#0002", "@ann hi\n\nthird\nhttps://x.example/a.png"),
        ("19", "", "ann#0001", "see this"),
    ]
    assert nodes[2].time == at(2024, 1, 31, 10, 2)
    of_discord = {name: counts.skipped[name] for name in ("frame", "mark", "reaction", "embed")}
    assert of_discord == {"frame": 7, "mark": 1, "reaction": 2, "embed": 3}
    assert readers.detect_format([tmp_path / "a.txt"]) == "chat-log"


EXPORTS = {
    "telegram": ("Ann Lee, [31.01.24 10:00]\nhello, are you there?\n\n", "Bob, [31.01.24 10:01]\nyes\nI am\n\n"),
    "signal": ("[2024-01-31 10:00] Ann Lee: hello, are you there?\n", "[2024-01-31 10:01] Bob: yes\nI am\n"),
    "skype": (
        "[31.01.2024 10:00:00] Ann Lee: hello, are you there?\n",
        "[31.01.2024 10:01:00 | Edited 10:09:00] Bob: yes\nI am\n",
    ),
    "teams": ("Ann Lee  1/31/2024 10:00 AM\nhello, are you there?\n", "Bob  1/31/2024 10:01 AM\nyes\nI am\n"),
    "zoom": (
        "10:00:00 From Ann Lee to Everyone:\n\thello, are you there?\n",
        "10:01:00 From Bob to Ann (Direct):\n\tyes\n\tI am\n",
    ),
    "pidgin": ("(10:00:00 AM) Ann Lee: hello, are you there?\n", "(10:01:00 AM) Bob: yes\nI am\n"),
}


ANSWERS = (("are you there?", "I am"), ("did it snow?", "it did not"), ("who is that?", "my brother"))


def export(name):
    """Six messages, two of each hour."""
    texts = "".join(EXPORTS[name])
    return "".join(
        texts.replace("10:", f"{hour:02}:").replace("are you there?", question).replace("I am", answer)
        for hour, (question, answer) in zip((8, 9, 10), ANSWERS, strict=True)
    )


@pytest.mark.parametrize("name", EXPORTS)
def test_exports(tmp_path, name):
    nodes, _ = log_of(tmp_path / "a.txt", export(name))
    assert [(node.author, node.text) for node in nodes] == [
        message for question, answer in ANSWERS for message in (("Ann Lee", f"hello, {question}"), ("Bob", f"yes\n{answer}"))
    ]
    assert [node.time % 86_400 for node in nodes[:2]] == [28_800, 28_860]
    has_date = name not in ("zoom", "pidgin")
    assert nodes[0].time // 86_400 == (at(2024, 1, 31) // 86_400 if has_date else 0)


def test_pidgin_actions(tmp_path):
    nodes, _ = log_of(tmp_path / "a.txt", export("pidgin") + "(10:02:00 AM) ***bob waves\n")
    assert (nodes[-1].kind, nodes[-1].author, nodes[-1].text) == ("action", "bob", "waves")


PLATES = (
    ("marta", "is anyone bringing plates?"),
    ("olu", "marta: I can, but no glasses"),
    ("marta", "thanks"),
    ("pia", "I have twelve: short ones"),
    ("olu", "yes please"),
    ("pia", "they are short"),
    ("marta", "short is fine"),
    ("olu", "two I think"),
)
REPORTED = {
    "psybnc": "2024-01-05-12-1{n}-10:#hut::{who}!{who}@h{n}.example PRIVMSG #hut :{text}",
    "IRCv3": "@time=2024-01-05T12:1{n}:10.000Z :{who}!~{who}@h.example PRIVMSG #hut :{text}",
    "IRCv3 with tags": "@time=2024-01-05T12:1{n}:10.000Z;account={who} :{who}!~{who}@h{n}.example PRIVMSG #hut :{text}",
    "Indonesian": "05/01/24 12.1{n} - {who}: {text}",
    "Arabic": "\u200f٥\u200f/١\u200f/٢٠٢٤, ١٢:١{n} م - {who}: {text}",
    "Persian": "2024/1/5،\u200f 12:1{n} ب.ظ. - {who}: {text}",
    "blanks": "[2024-01-05 12:1{n}] {who}: {text}  ",
    "a channel and blanks": "#hut 2024-01-05 [12:1{n}:10] <{who}> {text} ",
}


@pytest.mark.parametrize("name", REPORTED)
def test_layouts_that_people_reported(tmp_path, name):
    lines = [REPORTED[name].format(n=n, who=who, text=text) for n, (who, text) in enumerate(PLATES)]
    nodes, counts = log_of(tmp_path / "a.txt", "\n".join(lines), dates="day")
    assert readers.detect_format([tmp_path / "a.txt"]) == "chat-log"
    assert [(node.author, node.text.rstrip()) for node in nodes] == list(PLATES)
    assert [node.text.endswith(" ") for node in nodes] == ["blanks" in name] * len(PLATES)
    assert [node.time // 60 for node in nodes] == [at(2024, 1, 5, 12, 10 + n) // 60 for n in range(len(PLATES))]
    assert not counts.kept


HEADS = {
    "time below the name": "{who}\n1{n}:05\n{text}\n\n",
    "date and time below the name": "{who}\n05.03.2024 1{n}:05\n{text}\n\n",
    "time below the text": "{who}\n{text}\n1{n}:05\n\n",
    "time above the name": "Mar 5, 2024 1{n}:05:10\n{who}\n{text}\n\n",
    "captions": "00:1{n}:05.000 --> 00:1{n}:09.000\n{who}: {text}\n\n",
    "numbered captions": "{n}\n00:1{n}:05.000 --> 00:1{n}:09.000\n{who}: {text}\n\n",
    "captions with voices": "00:1{n}:05.000 --> 00:1{n}:09.000\n<v {who}>{text}</v>\n\n",
    "comma between times": "00:1{n}:05.000,00:1{n}:09.000\n{who}: {text}\n\n",
    "labels": "From: {who}\nTo: zoe\nDate: 05/03/2024 1{n}:05:00\nText: {text}\n--------\n",
    "labels above a text": "From: {who} (+49123)\nType: in\nSent: Tue, 5 Mar 2024 1{n}:05:00\nReceived: now\n\n{text}\n\n",
}


@pytest.mark.parametrize("name", HEADS)
def test_heads_of_several_lines(tmp_path, name):
    content = "".join(HEADS[name].format(n=n, who=who, text=text) for n, (who, text) in enumerate(PLATES))
    nodes, _ = log_of(tmp_path / "a.txt", content)
    assert readers.detect_format([tmp_path / "a.txt"]) == "chat-log"
    assert [(node.author, node.text) for node in nodes if not node.kind] == list(PLATES)
    lines = content.split("\n")
    assert all(node.author in "\n".join(lines[int(node.id) : int(node.id) + 3]) for node in nodes if not node.kind)
    assert all(node.time is not None and node.time % 60 in (0, 5, 10) for node in nodes if not node.kind)
    pattern = guess(lines).source
    given, _ = log_of(tmp_path / "b.txt", content, pattern=pattern)
    assert contents(given) == contents(nodes)


def test_texts_stand_above_their_names(tmp_path):
    content = "".join(f"{text}\n  -- {who}, 5 March 2024, 1{n}:05\n\n" for n, (who, text) in enumerate(PLATES))
    nodes, _ = log_of(tmp_path / "a.txt", content)
    assert [(node.author, node.text) for node in nodes] == list(PLATES)
    # A paragraph without a name may belong to the next one that has one.
    unsigned = content.replace("thanks\n", "thanks\n\nand bye\n").replace("yes please\n", "yes please\n\nnow\n")
    with pytest.raises(RamifyError, match="its texts stand above the names of their authors"):
        log_of(tmp_path / "b.txt", unsigned)


SPOKEN = {
    "Zoom in German": "1{n}:05:10 Von {who} an Alle:\n\t{text}\n",
    "says": "{who} says:\n {text}\n",
    "WeChat": "{who}：\n{text}\n\n",
    "a name with a bar": '<1{n}:05:10> "{who} | {who}": {text}\n',
    "last name first": "[3/5/24 1{n}:05] {who}, Kim\n{text}\n\n",
    "a game": '{who} asks, "{text}"\n',
    "another game": "{who} tells you '{text}'\n",
    "tiers": "*{who}:\t{text}\n",
    "text first": '"{text}" ({who}, 05.03.2024 1{n}:05)\n',
    "corner brackets": "1{n}時05分　{who}「{text}」\n",
    "values": 'ts=2024-03-05T1{n}:05:10 user={who} msg="{text}"\n',
    "an address": "Message from {who}@hut on tty{n} at 1{n}:05 ...\n{text}\nEOF\n\n",
    "QQ with names like files": "2024-03-05 1{n}:05:10 {who}.chen({n}17000{n})\n{text}\n\n",
    "a room and a name": "#hut/{who} (1{n}:05:10): {text}\n",
    "a receiver": "{who} > all [1{n}:05]: {text}\n",
    "a verb": "5 March 2024 at 1{n}:05 {who} kirjoitti: {text}\n",
    "the time before the date": "Kl. 1{n}.05 den 5. marts 2024 skrev {who}: {text}\n",
    "quoted values": 'ts=2024-03-05T1{n}:05:10 room=hut user="{who}" msg="{text}"\n',
    "columns without a head": "05.03.2024;1{n}:05;{who};{text}\n",
    "labels and rules": "From: {who}\nDate: 2024-03-05 1{n}:05:10\nText: {text}\n---\n",
    "seconds since the start": "( {n}s ) {who}: {text}\n",
    "a verb and quotes": "{who} says, '{text}'\n",
    "corner brackets and dates": "2024年3月5日 1{n}時05分 {who}「{text}」\n",
    "voices": "00:1{n}:05.000 --> 00:1{n}:08.000\n<v {who}>{text}\n\n",
    "boxes": ".- {who} -- 05.03.2024 1{n}:05 -.\n| {text}\n'------------------\n\n",
    "quoted below": "On 5 March 2024 at 1{n}:05, {who} wrote:\n> {text}\n\n",
    "name behind the text": "05.03.2024 1{n}:05   {text}   ({who})\n",
    "time since the launch": "T+00:1{n}:05 {who} // {text}\n",
    "tags": '<msg from="{who}" at="2024-03-05 1{n}:05:10">{text}</msg>\n',
    "a program, a level and a verb": "2024-03-05 1{n}:05:10,000 chat.room INFO {who} said: {text}\n",
    "quoted values without a head": '"05.03.2024";"1{n}:05";"{who}";"{text}"\n',
    "values of a tuple": "('2024-03-05 1{n}:05:10', '{who}', '{text}')\n",
    "a stamp behind the text": "{who}: {text} [2024-03-05 1{n}:05]\n",
    "an emphasised head": "**{who}** _2024-03-05 1{n}:05_  \n{text}\n\n",
    "envelopes": "Envelope from: “{who}” +49{n}\nTimestamp: 170962000000{n} (x)\nServer timestamps: x\nBody: {text}\n\n",
    "signs": "👤 {who} 🕑 05.03.2024 1{n}:05 💬 {text}\n",
    "a host": "2024-03-05 1{n}:05:10 {who}!~u@h{n}.example: {text}\n",
    "items with labels": '- from: {who}\n  at: 2024-03-05 1{n}:05:10\n  text: "{text}"\n',
    "padded labels": "Sender : {who}\nDate   : 5 Mar 2024\nTime   : 1{n}:05:10\nMessage: {text}\n\n",
    "labels on a line": "MSG 021{n}  FROM: {who}  TO: ALL  DATE: 04-13-91 1{n}:20\n{text}\n\n",
    "values and a number": 'ts=2024-03-05T1{n}:05:10Z room=hut user={who} seq={n} msg="{text}"\n',
    "a box": "|  {n} | 2024-03-05 1{n}:05:10 | {who:6} | {text:40} |\n",
    "a role": "--- Comment {n} by {who} (reporter) on 2024-03-05 1{n}:05:10 ---\n{text}\n\n",
    "guillemets": "2024-03-05 1{n}.05 »{text}« – {who}\n",
    "MSN in French": "{who} dit :\n   {text}\n",
    "statements": "INSERT INTO chat VALUES ({n}, '2024-03-05 1{n}:05:10', '{who}', '{text}');\n",
    "corner brackets alone": "{who}「{text}」\n",
    "speakers with ranges": "{who} [00:0{n}:00 - 00:0{n}:09]\n{text}\n\n",
    "a stamp in emphasis": "**{who}** _(2024-03-05 1{n}:05)_: {text}\n",
    "a bullet and an emphasised name": "- 1{n}:05 **{who}:** {text}\n",
    "a block in YAML": "- at: 2024-03-05 1{n}:05:10\n  by: {who}\n  text: |-\n    {text}\n",
    "a compact stamp": "20240305-1{n}0510 {who}: {text}\n",
    "a month in Greek": "{who} (5 Μαρτίου 2024, {n}:05 μ.μ.): {text}\n",
    "a date in Russian": "5 марта 2024 г., 1{n}:05\n{who}\n{text}\n\n",
    "an optional role": "1{n}:05 | (Moderator, Member (6 months)) {who}: {text}\n",
    "numbered lines": "  {n}  {who}: {text}\n",
}


@pytest.mark.parametrize("name", SPOKEN)
def test_layouts_of_programs(tmp_path, name):
    content = "".join(SPOKEN[name].format(n=n, who=who, text=text) for n, (who, text) in enumerate(PLATES))
    content += "%com:\tnods\n" if name == "tiers" else ""
    nodes, _ = log_of(tmp_path / "a.txt", content)
    assert readers.detect_format([tmp_path / "a.txt"]) == "chat-log"
    form = {"a name with a bar": "{0} | {0}", "last name first": "{0}, Kim", "QQ with names like files": "{0}.chen"}.get(
        name, "{0}"
    )
    assert [(node.author, node.text) for node in nodes if not node.kind] == [(form.format(who), text) for who, text in PLATES]


def test_one_odd_name_among_few_is_no_reason_to_refuse():
    for odd in ("pia@jabber.example.org", "Prof. Pia", "¡Olé!"):
        assert guess([f"[1{n}:05] {odd if who == 'pia' else who}: {text}" for n, (who, text) in enumerate(PLATES)]).reason == ""


@pytest.mark.parametrize(
    ("form", "more"), [("{who}\n\t{text}\n\n", ""), ("          {who}\n   {text}\n   so {n}\n\n", "\nso {n}")]
)
def test_texts_are_indented_below_names(tmp_path, form, more):
    said = [(who.upper(), text) for who, _, text in (line.partition(": ") for line in TALK)]
    content = "".join(form.format(who=who, text=text, n=n) for n, (who, text) in enumerate(said))
    nodes, _ = log_of(tmp_path / "a.txt", content)
    assert [(node.author, node.text) for node in nodes] == [
        (who, text + more.format(n=n)) for n, (who, text) in enumerate(said)
    ]


def test_a_title_with_a_date_is_no_head(tmp_path):
    said = "".join(f"{who}   0:{10 + n}\n{text}\n\n" for n, (who, text) in enumerate(PLATES))
    nodes, _ = log_of(tmp_path / "a.txt", f"A meeting\nFebruary 6, 2024, 9:00AM\n1h 12m\n\n{said}")
    assert [(node.author, node.text) for node in nodes if not node.kind] == list(PLATES)


def test_names_in_quotation_marks_may_begin_with_a_tag(tmp_path):
    said = [(f"[GER] {who}" if who == "olu" else who, text) for who, text in PLATES]
    nodes, _ = log_of(tmp_path / "a.txt", "".join(f'<1{n}:05:10> "{who}": {text}\n' for n, (who, text) in enumerate(said)))
    assert [(node.author, node.text) for node in nodes] == said


def test_labels_of_some_records_may_be_missing(tmp_path):
    forms = (
        "From: {who} (+49{n})\n{more}Sent: Tue, 5 Mar 2024 1{n}:05:00\nReceived: now\n\n{text}\n\n",
        "From: You\n{more}Sent: 5 Mar 2024 1{n}:05:00\n\n{text}\n\n",
    )
    said = [("You" if who == "olu" else who, text) for who, text in PLATES]
    content = "".join(
        forms[who == "You"].format(who=who, text=text, n=n, more="Type: x\n") for n, (who, text) in enumerate(said)
    )
    nodes, _ = log_of(tmp_path / "a.txt", content)
    assert [(node.author, node.text) for node in nodes if not node.kind] == said


def test_phone_numbers_share_a_part():
    lines = [f"05/03/2024 1{n}:05 +44 7700 90{len(who)}281: {text}" for n, (who, text) in enumerate(PLATES)]
    assert guess(lines).source == "{date} {time} {author}: {text}"


def test_quotation_marks_inside_quoted_texts_are_doubled(tmp_path):
    lines = [
        f"INSERT INTO t VALUES ({n}, '2024-03-05 1{n}:05:10', '{who}', '{text} isn''t it');"
        for n, (who, text) in enumerate(PLATES)
    ]
    nodes, _ = log_of(tmp_path / "a.sql", "\n".join(lines))
    assert [node.text for node in nodes] == [f"{text} isn't it" for _, text in PLATES]


@pytest.mark.parametrize("form", ["{who}  {time}\n{text}\n\n", "[{time}] {who}: {text}\n"])
def test_minutes_since_the_start_may_exceed_a_day(tmp_path, form):
    said = [*PLATES, *PLATES[::-1]]
    lines = [form.format(time=f"{9 * n}:05", who=who, text=text) for n, (who, text) in enumerate(said)]
    nodes, counts = log_of(tmp_path / "a.txt", "".join(lines))
    assert [(node.author, node.text, node.time) for node in nodes] == [(*each, 540 * n + 5) for n, each in enumerate(said)]
    assert not counts.kept["bad_time"]


def test_the_game_is_no_author(tmp_path):
    lines = [f"[ 2024.03.05 1{n}:05:10 ] {who} > {text}" for n, (who, text) in enumerate(PLATES)]
    lines[3:3] = [f"[ 2024.03.05 12:05:1{n} ] EVE System > Channel changed to Local {n}" for n in range(3)]
    nodes, _ = log_of(tmp_path / "a.txt", "\n".join(lines))
    assert [node.author for node in nodes if not node.kind] == [who for who, _ in PLATES]
    assert len(nodes) == len(lines)


def test_a_text_that_ends_with_a_time_is_no_head(tmp_path):
    said = [*PLATES, ("pia", "it has been down since 11:20"), ("olu", "since 11?")]
    nodes, _ = log_of(tmp_path / "a.txt", "".join(f"{who}  2:1{n} PM\n{text}\n" for n, (who, text) in enumerate(said)))
    assert [(node.author, node.text) for node in nodes] == said


@pytest.mark.parametrize(
    ("form", "end"), [("[1{n}:05] {who}: {text}", "--- session 3 ends ---"), ("1{n}:05 | {who}: {text}\n", "---\nMade at home")]
)
def test_lines_that_end_the_log_are_no_text(tmp_path, form, end):
    lines = [form.format(n=n, who=who, text=text) for n, (who, text) in enumerate(PLATES)]
    nodes, _ = log_of(tmp_path / "a.txt", "\n".join([*lines, end]))
    assert [(node.author, node.text) for node in nodes if not node.kind] == list(PLATES)


def test_columns_are_parted_by_several_spaces(tmp_path):
    said = [(f"{who} Lee", text) for who, text in PLATES]
    nodes, _ = log_of(
        tmp_path / "a.txt", "".join(f"05.03.2024  1{n}:05  {who:12}  {text}\n" for n, (who, text) in enumerate(said))
    )
    assert [(node.author, node.text) for node in nodes] == said


@pytest.mark.parametrize("blank", ["", "\n"])
def test_times_alone_continue_the_author_above(tmp_path, blank):
    lines, expected = [], []
    for n, (who, text) in enumerate(PLATES, 8):
        hour, half = (n - 1) % 12 + 1, "AM" if n < 12 else "PM"
        lines += [
            f"{who}\n  {hour}:50 {half}\n{text}\n{blank}",
            f"{hour}:59\nand {text}\n{blank}",
            f"{n % 12 + 1}:05\n{who}?\n{blank}",
        ]
        expected += [(who, text, 60 * n + 50), (who, f"and {text}", 60 * n + 59), (who, f"{who}?", 60 * n + 65)]
    nodes, _ = log_of(tmp_path / "2024-03-05.txt", "".join(lines))
    assert [(node.author, node.text, node.time % 86_400 // 60) for node in nodes] == expected


TALK = [
    f"{who}: {PLATES[n % 8][1]}{' again' * (n // 8)}{'?' * (n % 3 == 0)}"
    for n, who in enumerate(random.Random(0).choices(["marta", "olu", "pia"], k=24))
]


def test_talk_without_times_is_known_by_its_questions():
    assert guess(TALK).source == "{author}: {text}"
    assert not guess(TALK).reason
    assert "a play or a list looks the same" in guess([line.replace("?", "") for line in TALK]).reason
    in_turn = [f"{('marta', 'olu', 'pia')[n % 3]}: {line.partition(': ')[2]}" for n, line in enumerate(TALK)]
    assert "a play or a list looks the same" in guess(in_turn).reason
    assert "a play or a list looks the same" in guess(["EPISODE 1: THE SHED", *TALK]).reason


def test_bullets_before_names_mark_actions(tmp_path):
    said = "".join(f"[2024-03-05T1{n}:05:10] <{who}> {text}\n" for n, (who, text) in enumerate(PLATES))
    nodes, _ = log_of(tmp_path / "a.txt", said + "[2024-03-05T20:05:10] • olu: waves: bye\n[2024-03-05T20:06:10] • pia left\n")
    assert [(node.author, node.text, node.kind) for node in nodes[-2:-1]] == [("olu", "waves: bye", "action")]
    assert nodes[-1].kind == "system"


def test_the_count_of_a_databases_rows_is_no_text(tmp_path):
    head = "        time         | sender | message\n---------------------+--------+---------\n"
    said = "".join(f" 2024-03-05 1{n}:05:10 | {who} | {text}\n" for n, (who, text) in enumerate(PLATES))
    nodes, _ = log_of(tmp_path / "a.txt", f"{head}{said}({len(PLATES)} rows)\n")
    assert [(node.author, node.text) for node in nodes if not node.kind] == list(PLATES)


def test_further_lines_stand_behind_the_bars_of_their_table(tmp_path):
    said = "".join(f"1{n}:05 │ {who:<6} │ {text}\n      │        │ and {n} more\n" for n, (who, text) in enumerate(PLATES))
    nodes, _ = log_of(tmp_path / "a.txt", said)
    assert [node.text for node in nodes] == [f"{text}\nand {n} more" for n, (_, text) in enumerate(PLATES)]


def test_a_table_without_texts_is_no_log(tmp_path):
    items, remarks = ("Bolt M4", "Cable [2 m]", "Nut", "Lamp"), ("reorder", "label missing", "")
    rows = "".join(
        f"| {items[n % 4]} | {'ABC'[n % 3]}{n % 5} | {n * 17} | 2024-02-{n + 10} | {remarks[n % 3]} |\n" for n in range(20)
    )
    with pytest.raises(RamifyError, match="cannot be guessed"):
        log_of(tmp_path / "a.txt", f"| Item | Shelf | Qty | Checked | Remark |\n|------|-------|-----|----|----|\n{rows}")


def test_whatsapp_on_ios_begins_with_a_notice_of_its_own(tmp_path):
    said = "".join(f"[05.03.24, 1{n}:05:10] {who}: {text}\n" for n, (who, text) in enumerate(PLATES))
    nodes, _ = log_of(tmp_path / "a.txt", "[05.03.24, 10:00:00] Hut: \u200eNobody else reads this.\n" + said)
    assert (nodes[0].kind, nodes[0].author, nodes[0].text) == ("system", None, "Nobody else reads this.")
    assert [(node.author, node.text) for node in nodes[1:]] == list(PLATES)


@pytest.mark.parametrize(
    ("form", "title"),
    [
        ("{who} 10:1{n}\n{text}\n", "Notes of 5 March 2024\n\n"),
        ("{who}, 10:1{n} AM\n{text}\n\n", "Friday, July 5, 2024\n\n"),
        ("10:1{n}, {who}: „{text}”\n", "wtorek, 5 marca 2024 r.\n\n"),
        ("下午01:1{n}\t{who}\t{text}\n", "2024/03/05（週二）\n\n"),
    ],
)
def test_titles_and_days_are_no_messages(tmp_path, form, title):
    said = [form.format(n=n, who=who, text=text) for n, (who, text) in enumerate(PLATES)]
    nodes, _ = log_of(tmp_path / "a.txt", title + "".join(said[:4]) + title * ("Notes" not in title) + "".join(said[4:]))
    assert [(node.author, node.text.strip("„”")) for node in nodes if not node.kind] == list(PLATES)


def test_quotation_marks_around_several_lines_belong_to_the_layout(tmp_path):
    said = "".join(f"1{n}:05\t{who}\t{text}\n" for n, (who, text) in enumerate(PLATES))
    nodes, _ = log_of(tmp_path / "a.txt", f'{said}18:00\tolu\t"one\ntwo"\n18:01\tolu\t"three"\n')
    assert [node.text for node in nodes[-2:]] == ["one\ntwo", '"three"']


def test_a_line_below_a_long_transcript_is_a_footer(tmp_path):
    said = "".join(f"{NAMES[n % 3]}  0:{n:02}\n{text}\n\n" for n, text in enumerate(SAID))
    nodes, _ = log_of(tmp_path / "a.txt", said + "Written by a machine\n")
    assert [(node.kind, node.text) for node in nodes[-2:]] == [("", SAID[-1]), ("system", "Written by a machine")]


def test_words_for_the_halves_of_a_day(tmp_path):
    said = "".join(
        f"5.3.24, {n % 3 + 1}:05 e {half} - {who}: {text}\n"
        for n, ((who, text), half) in enumerate(zip(PLATES, ["paradites"] * 3 + ["pasdites"] * 5, strict=True))
    )
    nodes, _ = log_of(tmp_path / "a.txt", said)
    assert [(node.author, node.text) for node in nodes] == list(PLATES)
    assert [node.time // 3600 % 24 for node in nodes[2:4]] == [3, 13]


@pytest.mark.parametrize(
    "form", ["2024-03-0{n} {code:07x} {word}: {text} ({who})", "2024-03-05 10:0{n}:00 CET [76{n}5] {who}@db {word}:  {text}"]
)
def test_logs_of_commits_and_databases_are_no_chats(form):
    words = ("feat", "fix", "feat") if "code" in form else ("LOG", "ERROR", "LOG")
    lines = [
        form.format(n=n % 9, code=n * 7919 + 2**24, who=who, text=text, word=words[n % 3])
        for n, (who, text) in enumerate(PLATES * 4)
    ]
    assert guess(lines).reason


def test_line_export(tmp_path):
    content = (
        "[LINE] 山のトーク履歴\n保存日時：2021/10/20 09:00\n\n2021/10/14(木)\n"
        "15:34\t健太\t皿は誰が持ってくる？\n15:37\t美咲\t私が持っていく\n15:40\t健太\t了解\n\n2021/10/15(金)\n"
        "9:10\t翔\t何時から？\n9:11\t美咲\t2時\n9:12\t健太\t部屋は6時まで\n9:20\t翔が退出しました。\n"
    )
    nodes, _ = log_of(tmp_path / "a.txt", content)
    said = [(node.author, node.time) for node in nodes if not node.kind]
    assert [author for author, _ in said] == ["健太", "美咲", "健太", "翔", "美咲", "健太"]
    assert [time for _, time in said][2:4] == [at(2021, 10, 14, 15, 40), at(2021, 10, 15, 9, 10)]
    assert [node.text for node in nodes if node.kind][-1] == "翔が退出しました。"


def test_texts_that_begin_with_the_same_words_are_no_machines(tmp_path):
    words = ("Kivet ovat punaisia", "Talo palaa taas", "Talo on vanha", "Kissa nukkuu", "Kissa juoksi", "Kivet putosivat")
    lines = [f"[14.10.21 15:{n:02}] {('Ann', 'Ann', 'Bo', 'Cy', 'Ann', 'Bo')[n % 6]}: {words[n % 6]}" for n in range(24)]
    nodes, _ = log_of(tmp_path / "a.txt", "\n".join(lines))
    assert (len(nodes), {node.author for node in nodes}) == (24, {"Ann", "Bo", "Cy"})


@pytest.mark.parametrize("read", [chat_log.logs, irc.logs])
@pytest.mark.parametrize(
    ("name", "first", "kept"),
    [("a", "", {"no_day": 1}), ("2024-01-31", "", {}), ("a", "--- Day changed Wed Jan 31 2024\n", {})],
)
def test_times_without_a_day_are_said(tmp_path, read, name, first, kept):
    path = tmp_path / f"{name}.log"
    path.write_text(first + "".join(f"[1{n}:05] <{who}> {text}\n" for n, (who, text) in enumerate(PLATES)))
    counts = ReadCounts()
    messages = [node for log in read([path], counts) for node in log.messages]
    assert len(messages) == len(PLATES) + bool(first)
    assert counts.kept == kept
    assert all(first in example for example in counts.examples.get("no_day", []) for first in (str(path), "have no day"))


def test_dates_without_a_year_are_said_and_count_from_the_first(tmp_path):
    content = "".join(
        f"{31 if n < 4 else 1}.{12 if n < 4 else 1}. 23:5{n} {who}: {text}\n" for n, (who, text) in enumerate(PLATES)
    )
    nodes, counts = log_of(tmp_path / "a.txt", content)
    assert [node.time for node in nodes[3:5]] == [at(1970, 1, 1, 23, 53), at(1970, 1, 2, 23, 54)]
    assert counts.kept == {"no_year": 1}


LONG = ("a ", "[", ": ", "12:34 ", " ", "<a> ", "1/", "Jan 1 ", "bob joined ", "=", "-", "日")


@pytest.mark.parametrize("form", ["[{t}] <{w}> {x}", "{w} {t}\n{x}\n", "<{w}> {x} [{t}]", "{w} ({t}): {x}", "# {t} {w} > {x}"])
def test_long_lines_are_guessed_and_read_in_linear_time(tmp_path, form):
    lines = [form.format(t=f"10:{n:02}", w=NAMES[n % 3], x=text) for n, text in enumerate(SAID)]
    started = time.process_time()
    for piece in LONG:
        line = piece * (5_000 // len(piece))
        path = tmp_path / "a.log"
        path.write_text("\n".join([*lines, line, form.format(t="10:59", w="ann", x=line), f"10:59 {line}", f"{line} 10:59"]))
        assert chat_log.refuses(path, path.read_bytes()) in ("", "an IRC log")
        assert len(list_logs([path], ReadCounts())[0]) > len(SAID)
    assert time.process_time() - started < 5


# --- lines, links and files -------------------------------------------------------------------------------------------------

PATTERN = "{time} {author}: {text}"


def test_lines_that_begin_no_message(tmp_path):
    content = (
        "preface\n10:00 ann: hi\n  indented\n\n*** heading\n=== not of the channel\nbob joined the channel\nbob left the keys\n"
        "10:01 eve joined\n10:01 eve has left: bye\n10:02 *** : x\n10:02 system: x\n10:03 * ann waves\n10:04 bob: \n\n\n"
    )
    nodes, counts = log_of(tmp_path / "a.log", content, pattern=PATTERN)
    assert contents(nodes) == [
        ("0", "system", None, "preface"),
        ("1", "", "ann", "hi\n  indented"),
        ("4", "system", None, "*** heading\n=== not of the channel"),
        ("6", "system", "bob", "bob joined the channel\nbob left the keys"),
        ("8", "system", "eve", "eve joined"),
        ("9", "system", None, "eve has left: bye"),
        ("10", "system", None, "*** : x"),
        ("11", "system", None, "system: x"),
        ("12", "action", "ann", "waves"),
        ("13", "", "bob", ""),
    ]
    assert counts.skipped == {"blank_line": 3}
    assert counts.kept == {"unparsed": 1, "continuation": 3}
    assert counts.examples["continuation"][0].endswith("a.log, line 3")


def test_links_refer_to_lines(tmp_path):
    content = "10:00 ann: hi\nmore\n10:01 bob: ho\n\n10:02 ann: ha\nand\n10:03 bob: he\n"
    links = tmp_path / "a.annotation.txt"
    links.write_text("0 0 -\n1 2 -\n1 0 -\n3 5 -\n4 4 -\n")
    nodes, _ = log_of(tmp_path / "a.log", content, pattern=PATTERN)
    # Line 1 is part of the first message, and line 3, which is blank, belongs to the second.
    assert [(node.id, node.parents, node.self_link) for node in nodes] == [
        ("0", (), True),
        ("2", (0,), False),
        ("4", (1,), True),
        ("6", None, False),
    ]
    assert {node.parents for node in log_of(tmp_path / "a.log", content, pattern=PATTERN, annotations="none")[0]} == {None}
    links.write_text("0 9 -\n")
    with pytest.raises(RamifyError, match=r"links line 9, but .*a\.log has 7 lines"):
        log_of(tmp_path / "a.log", content, pattern=PATTERN)


def test_numbers_are_those_of_lines():
    assert readers.FORMATS["chat-log"].numbered


def test_ambiguous_dates_are_counted(tmp_path):
    form = "03/04/2024 10:00 - {}: {}\n"
    content = "".join(form.format(*row) for row in zip(NAMES * 5, SAID))
    nodes, counts = log_of(tmp_path / "a.log", content)
    assert nodes[0].time == at(2024, 3, 4, 10)
    assert counts.kept == {"open_date": 1}
    nodes, counts = log_of(tmp_path / "a.log", content, dates="day")
    assert (nodes[0].time, counts.kept) == (at(2024, 4, 3, 10), {})
    # The whole file decides, however late.
    nodes, counts = log_of(tmp_path / "a.log", content * 99 + "13/04/2024 10:00 - ann: hi\n")
    assert nodes[0].time == at(2024, 4, 3, 10)
    assert "open_date" not in counts.kept


def test_bad_times_are_counted(tmp_path):
    nodes, counts = log_of(tmp_path / "a.log", "10:00 ann: a\n25:00 bob: b\n9:00 ann: c\n", pattern=PATTERN)
    assert [node.time for node in nodes] == [36_000, 36_000, 32_400]
    assert counts.kept == {"bad_time": 1, "clock_back": 1}


def test_twelve_hour_clock(tmp_path):
    nodes, _ = log_of(tmp_path / "a.log", "11:59 ann: a\n12:59 bob: b\n1:00 ann: c\n", pattern=PATTERN)
    assert [node.time / 3600 for node in nodes] == pytest.approx([719 / 60, 779 / 60, 13])


def test_pattern_may_fit_late(tmp_path):
    nodes, counts = log_of(tmp_path / "a.log", "x\n" * 1_000 + "10:00 ann: hi\n", pattern=PATTERN)
    assert (len(nodes), nodes[-1].id, counts.kept["unparsed"]) == (1_001, "1000", 1_000)


def test_folder(tmp_path):
    (tmp_path / "a.txt").write_text(export("signal"))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.txt").write_text(export("telegram"))
    (tmp_path / "notes.txt").write_text(NO_CHATS["prose"])
    counts = ReadCounts()
    logs = [(log.name, len(list(log.messages))) for log in chat_log.logs([tmp_path], counts)]
    assert logs == [("a", 6), ("b", 6)]
    assert counts.skipped["not_a_log"] == 1
    assert chat_log.refuses(tmp_path, b"")
    (tmp_path / "notes.txt").unlink()
    assert readers.detect_format([tmp_path]) == "chat-log"
    with pytest.raises(RamifyError, match="no file in the folder"):
        list(chat_log.logs([tmp_path], ReadCounts(), pattern="{time}|{author}|{text}"))


def test_blank_lines_only(tmp_path):
    assert log_of(tmp_path / "a.log", "\n \n\n")[0] == []


def test_long_texts_are_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(chat_log, "MAX_TEXT", 10)
    nodes, counts = log_of(tmp_path / "a.log", "10:00 ann: hi\n12345\n123456\n10:01 bob: ho\n", pattern=PATTERN)
    assert [node.text for node in nodes] == ["hi\n12345", "ho"]
    assert counts.skipped == {"long_text": 1}


def test_unknown_encoding(tmp_path):
    with pytest.raises(RamifyError, match="encoding='utf-9' is invalid"):
        log_of(tmp_path / "a.log", "10:00 ann: hi\n", pattern=PATTERN, encoding="utf-9")


def test_encodings(tmp_path):
    content = export("signal").replace("Ann", "Änn")
    for encoding in ("utf-16", "utf-8-sig", "cp1252"):
        path = tmp_path / "a.log"
        path.write_bytes(content.encode(encoding))
        assert list_logs([path], ReadCounts())[0][0].author == "Änn Lee"


@pytest.mark.parametrize("pattern", ["", PATTERN])
def test_pipes_are_read_as_lines_arrive(pattern):
    given, taken = os.pipe()
    lines = [f"10:{number:02} {NAMES[number % 3]}: {text}\n" for number, text in enumerate(SAID)]
    os.write(taken, "".join(lines).encode())
    messages = next(chat_log.logs([Path(f"/dev/fd/{given}")], ReadCounts(), pattern=pattern)).messages
    # The last message may go on.
    assert [next(messages).id for _ in lines[1:]] == [str(number) for number in range(len(lines) - 1)]
    os.close(taken)
    assert [node.id for node in messages] == [str(len(lines) - 1)]
    os.close(given)


# --- published logs in other layouts ----------------------------------------------------------------------------------------


@pytest.mark.data
def test_published_logs_in_other_layouts(data_dir, tmp_path):
    """Real messages, written in another layout, are read back or refused."""
    chance, refused = random.Random(0), 0
    files = sorted(data_dir("ubuntu-irc").rglob("*.ascii.txt"))
    for number in range(24):
        (log,) = irc.logs([chance.choice(files)], ReadCounts(), annotations="none")
        nodes = [node for node in itertools.islice(log.messages, 1_000, 1_200) if node.kind == "" and node.author and node.text]
        before, stamp, author = chance.choice(BEFORE), chance.choice(STAMPS), chance.choice(AUTHORS[:-1])
        now, lines = datetime(2024, 1, 30, 22, 50, tzinfo=UTC), []
        for place, node in enumerate(nodes):
            now += timedelta(seconds=chance.randrange(100))
            lines.append(f"{before.format(n=place, level='INFO')}{now.strftime(stamp)} {author.format(node.author)}{node.text}")
        path = tmp_path / f"{number}.log"
        path.write_text("\n".join(lines))
        try:
            name = readers.detect_format([path])
        except RamifyError:
            refused += 1
            continue
        (read,) = readers.find_format(name).reads([path], ReadCounts())
        found = list(read.messages)
        assert [(node.author, node.text) for node in found] == [(node.author, node.text.replace("\t", " ")) for node in nodes]
    assert refused <= 1


@pytest.mark.data
def test_published_logs_are_left_to_irc(data_dir):
    for path in sorted((data_dir("ubuntu-irc") / "dev").glob("*.ascii.txt"))[::3]:
        assert chat_log.refuses(path, path.read_bytes()[: 1 << 16]) == "an IRC log"
