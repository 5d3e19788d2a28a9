import codecs
import gzip
import io
import os
import sys
from calendar import timegm
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ramify import readers
from ramify.errors import RamifyError
from ramify.readers import annotation, base, irc
from ramify.readers.base import ReadCounts
from ramify.readers.dates import month
from ramify.readers.encodings import with_line_ends


def log_of(path, content, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return nodes_of([path], **options)


def nodes_of(paths, **options):
    counts = ReadCounts()
    nodes = [node for log in irc.logs(paths, counts, **options) for node in log.messages]
    assert counts.read == len(nodes) + sum(counts.skipped.values())
    # Most logs here have no day.
    counts.kept.pop("no_day", None)
    return nodes, counts


def contents(nodes):
    return [(node.kind, node.author, node.text) for node in nodes]


def at(*when):
    return float(timegm((*when, *[0] * (6 - len(when)))))


DAY = (2009, 3, 14)

# One short conversation, as each client writes it.
WRITTEN = {
    "ubuntu/2009-03-14.ascii.txt": (
        "=== wren [~w@nest.example]  has joined #birds\n"
        "[09:05] <wren> kestrel: did the kernel update work?\n"
        "[09:06]  * kestrel nods at the screen\n"
        "=== kestrel is now known as kes|away\n"
        "[09:07] -robin:#birds- free seeds\n"
        "[09:07] <kes|away>\n"
    ),
    "irssi/birds.log": (
        "--- Log opened Sat Mar 14 09:05:00 2009\n"
        "09:05 -!- wren [~w@nest.example] has joined #birds\n"
        "09:05 <@wren> kestrel: did the kernel update work?\n"
        "09:06  * kestrel nods at the screen\n"
        "09:06 -!- kestrel is now known as kes|away\n"
        "09:07 -robin:#birds- free seeds\n"
        "09:07 < kes|away> \n"
    ),
    "irssi-seconds/birds.log": (
        "--- Log opened Sat Mar 14 09:05:00 2009\n"
        "09:05:00 -!- wren [~w@nest.example] has joined #birds\n"
        "09:05:00 <+wren> kestrel: did the kernel update work?\n"
        "09:06:00  * kestrel nods at the screen\n"
        "09:06:00 -!- kestrel is now known as kes|away\n"
        "09:07:00 -robin:#birds- free seeds\n"
        "09:07:00 <@kes|away> \n"
    ),
    "weechat/irc.net.#birds.weechatlog": (
        "2009-03-14 09:05:00\t-->\twren (~w@nest.example) has joined #birds\n"
        "2009-03-14 09:05:00\t@wren\tkestrel: did the kernel update work?\n"
        "2009-03-14 09:06:00\t *\tkestrel nods at the screen\n"
        "2009-03-14 09:06:00\t--\tkestrel is now known as kes|away\n"
        "2009-03-14 09:07:00\t--\tNotice(robin) -> #birds: free seeds\n"
        "2009-03-14 09:07:00\tkes|away\t\n"
    ),
    "znc/#birds_20090314.log": (
        "[09:05:00] *** Joins: wren (~w@nest.example)\n"
        "[09:05:00] <wren> kestrel: did the kernel update work?\n"
        "[09:06:00] * kestrel nods at the screen\n"
        "[09:06:00] *** kestrel is now known as kes|away\n"
        "[09:07:00] -robin- free seeds\n"
        "[09:07:00] <kes|away> \n"
    ),
    "mirc/#birds.20090314.log": (
        "[09:05] * Joins: wren (w@nest.example)\r\n"
        "[09:05] <@wren> kestrel: did the kernel update work?\r\n"
        "[09:06] * kestrel nods at the screen\r\n"
        "[09:06] * kestrel is now known as kes|away\r\n"
        "[09:07] -robin:#birds- free seeds\r\n"
        "[09:07] <kes|away> \r\n"
    ),
    "hexchat/birds.log": (
        "**** BEGIN LOGGING AT Sat Mar 14 09:05:00 2009\n"
        "\n"
        "Mar 14 09:05:00 *\twren (~w@nest.example) has joined #birds\n"
        "Mar 14 09:05:00 <wren>\tkestrel: did the kernel update work?\n"
        "Mar 14 09:06:00 *\tkestrel nods at the screen\n"
        "Mar 14 09:06:00 *\tkestrel is now known as kes|away\n"
        "Mar 14 09:07:00 -robin/#birds-\tfree seeds\n"
        "Mar 14 09:07:00 <kes|away>\t\n"
    ),
    "xchat/2009-03-14": (
        "Mar 14 09:05:00 -->\twren (~w@nest.example) has joined #birds\n"
        "Mar 14 09:05:00 <wren>\tkestrel: did the kernel update work?\n"
        "Mar 14 09:06:00 *\tkestrel nods at the screen\n"
        "Mar 14 09:06:00 ---\tkestrel is now known as kes|away\n"
        "Mar 14 09:07:00 -robin-\tfree seeds\n"
        "Mar 14 09:07:00 <kes|away>\t\n"
    ),
    "supybot/birds.log": (
        "2009-03-14T09:05:00  *** wren has joined #birds\n"
        "2009-03-14T09:05:00  <wren> kestrel: did the kernel update work?\n"
        "2009-03-14T09:06:00  * kestrel nods at the screen\n"
        "2009-03-14T09:06:00  *** kestrel is now known as kes|away\n"
        "2009-03-14T09:07:00  -robin- free seeds\n"
        "2009-03-14T09:07:00  <kes|away>\n"
    ),
    "iso/birds.log": (
        "[2009-03-14 09:05:00] *** Joins: wren (~w@nest.example)\n"
        "[2009-03-14T09:05:00Z] <wren> kestrel: did the kernel update work?\n"
        "[2009-03-14 10:06:00+0100] * kestrel nods at the screen\n"
        "[2009-03-14 07:36:00.000 -01:30] *** kestrel is now known as kes|away\n"
        "[2009-03-14 09:07:00] -robin- free seeds\n"
        "[2009-03-14 09:07:00] <kes|away> \n"
    ),
    "twelve hours/20090314.log": (
        "[9:05 AM] *** Joins: wren (~w@nest.example)\n"
        "[09:05 am] <wren> kestrel: did the kernel update work?\n"
        "[09:06:00 AM] * kestrel nods at the screen\n"
        "[9:06:00a.m.] *** kestrel is now known as kes|away\n"
        "[9:07 AM] -robin- free seeds\n"
        "[9:07 AM] <kes|away> \n"
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_every_client_gives_the_same_log(tmp_path, name):
    nodes, counts = log_of(tmp_path / name, WRITTEN[name])
    assert counts.skipped == counts.kept == {}
    assert [node.id for node in nodes] == [str(number) for number in range(WRITTEN[name].count("\n"))]
    joins, *rest = nodes[-6:]
    assert (joins.kind, joins.author) == ("system", "wren")
    assert "wren" in joins.text
    assert not joins.text.startswith(("[", "0", "2", "M"))
    assert contents(rest[:2]) == [
        ("", "wren", "kestrel: did the kernel update work?"),
        ("action", "kestrel", "nods at the screen"),
    ]
    assert (rest[2].kind, rest[2].author) == ("system", "kes|away")
    assert [(kind, author, text.strip()) for kind, author, text in contents(rest[3:])] == [
        ("notice", "robin", "free seeds"),
        ("", "kes|away", ""),
    ]
    assert rest[0].time == at(*DAY, 9, 5)
    assert rest[1].time == at(*DAY, 9, 6)
    assert rest[4].time == at(*DAY, 9, 7)
    assert all(node.parents is None and not node.self_link for node in nodes)


@pytest.mark.parametrize("name", WRITTEN)
def test_every_client_is_recognised(tmp_path, name):
    log_of(tmp_path / name, WRITTEN[name])
    assert not irc.refuses(tmp_path / name, WRITTEN[name].encode())
    assert not irc.refuses(tmp_path / name, b"\xff\xfe" + WRITTEN[name].encode("utf-16-le"))


@pytest.mark.parametrize(
    "content",
    [
        "id,author,time,text\n1,wren,2009-03-14 09:05:00,hi\n",
        "time\tauthor\ttext\n" + "2009-03-14 09:05:00\twren\thi\n" * 20,
        '{"id": "1", "nodes": [{"text": "<wren> hi"}]}\n',
        '[{"author": "wren", "text": "[09:05] <robin> hi"}]\n',
        '<?xml version="1.0"?>\n<posts>\n  <row Id="1" />\n</posts>\n',
        "<p> one</p>\n<p> two</p>\n",
        "<ul>\n<li> one\n<li> two\n</ul>\n",
        "# Title\n\n* one item\n* other item\n\n=== Heading\n\n--- \n",
        "Plain prose, which says: nothing to anybody.\nAnd a second line of it.\n",
        "ann: hi\nbob: hello\n",
        "Mar 14 09:05:00 host sshd[1]: session opened\n",
        "[2009-03-14 09:05:00] INFO started\n[2009-03-14 09:05:01] WARN - slow\n",
        "2009-03-14 09:05:00 GET /index.html 200\n",
        "",
        "\n\n",
        "\x00\x01\x02",
    ],
)
def test_other_files_are_refused(tmp_path, content):
    assert irc.refuses(tmp_path / "x.log", content.encode())


def test_long_head_may_end_within_a_line(tmp_path):
    head = ("[09:05] <wren> hi\n" * 5_000).encode()[: 1 << 16]
    assert not irc.refuses(tmp_path / "x.log", head)


# --- lines ----------------------------------------------------------------------------------------------------------------


def test_system_lines_and_their_authors(tmp_path):
    nodes, counts = log_of(
        tmp_path / "a.log",
        "=== wren shrugs\n"
        "=== mode/#birds [+o wren]  by robin\n"
        "===\n"
        "[09:05] *** Parts: +wren (w@nest.example) (bye)\n"
        "[09:05] *** Quits: kes (k@nest.example) (gone)\n"
        "[09:05] *** robin sets mode: +o wren\n"
        "[09:05] *** kes was kicked by robin (no)\n"
        "[09:05] -!- robin changed the topic of #birds to: seeds\n"
        "[09:05] * @robin has quit IRC (gone)\n"
        "[09:05] * wren is now known as owl\n"
        "[09:05] * Now talking in #birds\n"
        "[09:05] * Disconnected\n"
        "[09:05] [Users #birds]\n"
        "[09:05] [@wren] [ kes  ] \n"
        "[09:05] *\n"
        "[09:05] <wren> hi\n",
    )
    authors = ["wren", "mode/#birds", None, "wren", "kes", "robin", "kes", "robin", "robin", "owl", *[None] * 5]
    assert [node.author for node in nodes[:-1]] == authors
    assert {node.kind for node in nodes[:-1]} == {"system"}
    assert [node.text for node in nodes[:4]] == [
        "=== wren shrugs",
        "=== mode/#birds [+o wren]  by robin",
        "===",
        "*** Parts: +wren (w@nest.example) (bye)",
    ]
    assert [node.time for node in nodes[:4]] == [None, None, None, at(1970, 1, 1, 9, 5)]
    assert counts.kept == {"unparsed": 1}
    assert counts.examples["unparsed"] == [f"{tmp_path / 'a.log'}, line 15"]


def test_actions_that_look_like_system_lines(tmp_path):
    """After two spaces, a star always marks an action."""
    nodes, _ = log_of(
        tmp_path / "a.log", "[09:05]  * wren is now known as\n[09:05] <wren> so\n[09:05] * wren has quit smoking\n"
    )
    assert contents(nodes) == [
        ("action", "wren", "is now known as"),
        ("", "wren", "so"),
        ("action", "wren", "has quit smoking"),
    ]


@pytest.mark.parametrize(
    ("written", "nick"),
    [
        *[("@op", "op"), ("+voice", "voice"), ("%half", "half"), ("&~%@x", "x"), (" none", "none"), ("pad  ", "pad")],
        *((nick, nick) for nick in ("*", "@", "the", "[x]{y}|^`_-", "Ann Lee", "山田🐦")),
    ],
)
def test_nicks(tmp_path, written, nick):
    nodes, _ = log_of(tmp_path / "a.log", f"09:05 <{written}> <b> is > a\n")
    assert contents(nodes) == [("", nick, "<b> is > a")]


def test_unparsed_lines_are_kept_and_counted(tmp_path):
    content = "[09:05] <wren> a list:\n  * one\n\n \t\n<p> two\n[09:06] something\n" + "[09:06] <robin> so?\n" * 2
    nodes, counts = log_of(tmp_path / "a.log", content)
    assert contents(nodes) == [
        ("", "wren", "a list:"),
        ("system", None, "  * one"),
        ("system", None, ""),
        ("system", None, "  "),
        ("system", None, "<p> two"),
        ("system", None, "[09:06] something"),
        *[("", "robin", "so?")] * 2,
    ]
    assert counts.kept == {"unparsed": 3}
    assert [node.time for node in nodes] == [at(1970, 1, 1, 9, 5)] * 6 + [at(1970, 1, 1, 9, 6)] * 2


def test_colours_and_control_codes_are_removed(tmp_path):
    nodes, counts = log_of(
        tmp_path / "a.log",
        "[09:05] <\x0305,12wr\x02en\x0f> \x0301red\x03 \x1d\x1e\x1funder\x11\x16 \x1b[1;31mansi\x1b[0m "
        "a\x00b\tc\rd\x0ce\x04FF00AAf\n"
        "\x1b[36m[09:06]\x1b[0m <robin> \x033 \x0312,\U0001f426 \x1b]\n",
    )
    assert contents(nodes) == [("", "wren", "red under ansi a b c d ef"), ("", "robin", " ,\U0001f426  ]")]
    assert counts.kept == {}


# --- time -----------------------------------------------------------------------------------------------------------------


def times(tmp_path, content, name="a.log"):
    nodes, counts = log_of(tmp_path / name, content)
    return [node.time for node in nodes], counts


def test_midnight_without_a_date(tmp_path):
    found, counts = times(tmp_path, "[23:59] <a> x\n[00:01] <a> x\n=== b\n[13:00] <a> x\n[00:30] <a> x\n")
    assert found == [at(1970, 1, day, *when) for day, *when in [(1, 23, 59), (2, 0, 1), (2, 0, 1), (2, 13), (3, 0, 30)]]
    assert counts.kept == {}


def test_clock_that_goes_back(tmp_path):
    found, counts = times(
        tmp_path, "[12:05] <a> x\n[12:04] <a> x\n[12:04] <a> x\n[00:04] <a> x\n[12:04] <a> x\n[00:03] <a> x\n"
    )
    assert found == [
        at(1970, 1, day, *when) for day, *when in [(1, 12, 5), (1, 12, 4), (1, 12, 4), (1, 0, 4), (1, 12, 4), (2, 0, 3)]
    ]
    assert counts.kept == {"clock_back": 2}
    assert counts.examples["clock_back"] == [f"{tmp_path / 'a.log'}, line {line}" for line in (2, 4)]


def test_day_changes_of_irssi(tmp_path):
    found, counts = times(
        tmp_path,
        "--- Log opened Sat Mar 14 22:10:30 2009\n"
        "22:10 <a> in the minute of the opening\n"
        "--- Day changed Sun Mar 15 2009\n"
        "22:00 <a> x\n"
        "00:01 <a> x\n"
        "--- Day changed Mon 16 Mar 2009\n"
        "00:02 <a> x\n"
        "--- Day changed Tue Mar 17 2009\n"
        "--- Log closed Tue Mar 17 01:00:00 2009\n"
        "--- Log opened Thu Okt 99 01:00:00 2009\n"
        "--- Log opened Sun Mar 1 02:00:00 2009\n"
        "02:00 <a> x\n",
    )
    assert found == [
        *[at(2009, 3, 14, 22, 10, 30)] * 2,
        *[at(2009, 3, 15), at(2009, 3, 15, 22)],
        *[at(2009, 3, 16, 0, 1)] * 2,
        *[at(2009, 3, 16, 0, 2), at(2009, 3, 17)],
        *[at(2009, 3, 17, 1)] * 2,
        *[at(2009, 3, 1, 2)] * 2,
    ]
    assert counts.kept == {"bad_time": 1, "clock_back": 1}


@pytest.mark.parametrize(
    ("word", "number"), [("Mar", 3), ("march", 3), ("Sept", 9), ("Sep", 9), ("marras", 0), ("Ma", 0), ("Mai", 5), ("août", 8)]
)
def test_months_have_names_of_many_languages(word, number):
    assert month(word) == number


def test_unknown_months_count_where_the_clock_stands_still(tmp_path):
    found, counts = times(tmp_path, "May 02 09:00 <a>\tx\nXyz 02 09:00 <a>\tx\n")
    assert found == [at(1970, 1, 1, 9)] * 2
    assert counts.kept == {"unknown_month": 1, "no_year": 1}


def test_months_without_a_year(tmp_path):
    found, counts = times(
        tmp_path, "Dec 31 23:59:59 <a>\tx\nJan 01 00:00:01 <a>\tx\nXyz 01 00:00:02 <a>\tx\nFeb 30 00:00:00 <a>\tx\n"
    )
    assert found == [at(1970, 1, 1, 23, 59, 59), at(1970, 1, 2, 0, 0, 1), *[at(1970, 1, 2, 0, 0, 2)] * 2]
    assert counts.kept == {"unknown_month": 1, "bad_time": 1, "no_year": 1}
    assert counts.examples["unknown_month"] == [f"{tmp_path / 'a.log'}, line 3"]
    found, _ = times(tmp_path, "**** BEGIN LOGGING AT Mon Feb 29 09:00:00 2016\n\nFeb 29 09:00:01 <a>\tx\n")
    assert found == [*[at(2016, 2, 29, 9)] * 2, at(2016, 2, 29, 9, 0, 1)]


@pytest.mark.parametrize(
    ("name", "day"),
    [
        ("2009-03-14_09.ascii.txt", DAY),
        ("#birds_20090314.log", DAY),
        ("2009/03/14/#birds.txt", DAY),
        ("2009-13-14.log", (1970, 1, 1)),
        ("x120090314.log", (1970, 1, 1)),
    ],
)
def test_day_in_the_file_name(tmp_path, name, day):
    assert times(tmp_path, "[09:05] <a> x\n", name)[0] == [at(*day, 9, 5)]


def test_twelve_hours_and_impossible_times(tmp_path):
    found, counts = times(
        tmp_path,
        "[12:00 AM] <a> x\n[12:00 PM] <a> x\n[11:59:60 p.m.] <a> x\n"
        "[13:00 PM] <a> x\n[13:00 PM] <a> x\n[24:00] <a> x\n[09:60] <a> x\n",
    )
    assert found == [at(1970, 1, 1), at(1970, 1, 1, 12), *[at(1970, 1, 2)] * 5]
    assert counts.kept == {"bad_time": 4}


@pytest.mark.parametrize("form", ["{}", "[{}]", "{}:"])
def test_dates_with_dots(tmp_path, form):
    lines = "".join(f"{form.format(when)} <a> x\n" for when in ("14.03.2009 09:05:00", "1.4.2009 0:05", "32.03.2009 09:05:00"))
    found, counts = times(tmp_path, lines)
    assert found == [at(*DAY, 9, 5), *[at(2009, 4, 1, 0, 5)] * 2]
    assert counts.kept == {"bad_time": 1}
    assert not irc.refuses(tmp_path / "a.log", lines.encode())


SLASHED = "03/04/2009 09:05 PM\ta\tx\n03/05/2009 09:05 PM\ta\tx\n"
"""A day apart if the month comes first, else a month."""


@pytest.mark.parametrize(
    ("rest", "options", "days", "kept"),
    [
        ("", {}, [(3, 4), (3, 5)], {}),
        ("", {"dates": "month"}, [(3, 4), (3, 5)], {}),
        ("", {"dates": "day"}, [(4, 3), (5, 3)], {}),
        ("03/13/2009 09:05 PM\ta\tx\n", {}, [(3, 4), (3, 5), (3, 13)], {}),
        ("13/05/2009 09:05 PM\ta\tx\n", {}, [(4, 3), (5, 3), (5, 13)], {}),
        # An impossible time leaves the clock where it was.
        ("13/05/2009 09:05 PM\ta\tx\n", {"dates": "month"}, [(3, 4), (3, 5), (3, 5)], {"bad_time": 1}),
        ("13/13/2009 09:05 PM\ta\tx\n", {}, [(3, 4), (3, 5), (3, 5)], {"bad_time": 1}),
    ],
)
def test_dates_with_slashes(tmp_path, monkeypatch, rest, options, days, kept):
    """The whole file is searched, however late the evidence comes."""
    monkeypatch.setattr(irc, "BLOCK_BYTES", 16)
    nodes, counts = log_of(tmp_path / "a.log", SLASHED + rest, **options)
    assert [node.time for node in nodes] == [at(2009, *day, 21, 5) for day in days]
    assert [node.author for node in nodes] == ["a"] * len(days)
    assert counts.kept == kept
    if "open_date" in kept:
        assert counts.examples["open_date"][0].startswith(f"{tmp_path / 'a.log'}: 03/04/2009 and all other dates are ambiguous")


def clock_of(tmp_path, *stamps, **options):
    nodes, counts = log_of(tmp_path / "a.log", "".join(f"[{stamp}] <a> x\n" for stamp in stamps), **options)
    return [node.time / 3600 for node in nodes], counts


def test_clock_of_twelve_hours(tmp_path):
    """Two rounds of the clock are a day; noon is not midnight."""
    day = [f"{hour or 12}:{minute}" for hour in range(12) for minute in ("00", "59")]
    found, counts = clock_of(tmp_path, *day, *day, *day)
    assert [time // 1 for time in found] == [hour for hour in range(36) for _ in range(2)]
    assert counts.kept == {}
    # A log may begin at any hour, and lines may be swapped.
    assert clock_of(tmp_path, "11:59", "12:01", "11:59", "12:59", "1:00", "12:59", "1:01")[0] == pytest.approx(
        [719 / 60, 721 / 60, 719 / 60, 779 / 60, 13, 779 / 60, 781 / 60]
    )
    found, counts = clock_of(tmp_path, "11:30", "1:30", "1:00", "11:00", "12:30", "2:00")
    assert (found, counts.kept) == ([11.5, 13.5, 13, 23, 24.5, 26], {"clock_back": 1})


@pytest.mark.parametrize(
    ("stamps", "hours"),
    [
        # One stamp shows that the day has 24 hours, or no stamp shows that the clock has twelve.
        (("12:59", "1:00", "0:30"), [12 + 59 / 60, 1, 0.5]),
        (("12:59", "1:00", "13:00"), [12 + 59 / 60, 1, 13]),
        (("12:30", "11:30", "12:30"), [12.5, 11.5, 12.5]),
        (("12:30 AM", "1:30 AM", "12:30 PM", "1:30 PM"), [0.5, 1.5, 12.5, 13.5]),
    ],
)
def test_other_clocks(tmp_path, stamps, hours):
    assert clock_of(tmp_path, *stamps)[0] == hours


def test_hours_by_option(tmp_path):
    assert clock_of(tmp_path, "12:30", "1:00", hours="12")[0] == [0.5, 1]
    assert clock_of(tmp_path, "12:30", "1:00", hours="24")[0] == [12.5, 1]


def test_twelve_hour_clock_with_given_dates(tmp_path):
    content = (
        "--- Log opened Sat Mar 14 22:10:30 2009\n10:10 <a> x\n12:05 <a> x\n"
        "--- Day changed Mon Mar 16 2009\n12:10 <a> x\n8:10 <a> x\n12:10 <a> x\n1:10 <a> x\n"
    )
    found, counts = times(tmp_path, content)
    assert found == [
        *[at(2009, 3, 14, 22, 10, 30)] * 2,
        at(2009, 3, 15, 0, 5),
        at(2009, 3, 16),
        *(at(2009, 3, 16, hour, 10) for hour in (0, 8, 12, 13)),
    ]
    assert counts.kept == {}


def test_fractions_of_seconds(tmp_path):
    assert times(tmp_path, "2009-03-14T09:05:00.250Z <a> x\n")[0] == [at(*DAY, 9, 5) + 0.25]


# --- dialects -------------------------------------------------------------------------------------------------------------


def test_no_times(tmp_path):
    content = "<wren> hi\n* kes waves\n*** robin has joined #birds\n<@kes>\nwren: hi\n"
    nodes, counts = log_of(tmp_path / "a.log", content)
    assert contents(nodes) == [
        ("", "wren", "hi"),
        ("action", "kes", "waves"),
        ("system", "robin", "*** robin has joined #birds"),
        ("", "kes", ""),
        ("system", None, "wren: hi"),
    ]
    assert {node.time for node in nodes} == {None}
    assert counts.kept == {"unparsed": 1}


def test_colon_dialect_by_option(tmp_path):
    content = "wren: hi\n[09:05] @kes: see http://nest.example\n(09:06:00 AM) robin: so?\n2009-03-14 09:07 wren:\n* kes waves\n"
    nodes, counts = log_of(tmp_path / "a.log", content, dialect="colon")
    assert contents(nodes) == [
        ("", "wren", "hi"),
        ("", "kes", "see http://nest.example"),
        ("", "robin", "so?"),
        ("", "wren", ""),
        ("action", "kes", "waves"),
    ]
    assert [node.time for node in nodes[:2]] == [None, at(1970, 1, 1, 9, 5)]
    assert nodes[-1].time == at(*DAY, 9, 7)
    assert counts.kept == {}


def test_file_may_mix_dialects(tmp_path):
    content = "[09:05] <wren> a\n" * 3 + "09:06 <@kes> b\n2009-03-14 09:07:00\trobin\tc\n2009-03-14T09:08:00 <owl> d\n<tit> e\n"
    nodes, counts = log_of(tmp_path / "a.log", content)
    assert [node.author for node in nodes] == ["wren"] * 3 + ["kes", "robin", "owl", None]
    assert counts.kept == {"unparsed": 1}
    nodes, counts = log_of(tmp_path / "a.log", content, dialect="irssi, plain")
    assert [node.author for node in nodes] == [None] * 3 + ["kes", None, None, "tit"]
    assert counts.kept == {"unparsed": 5}


def test_unknown_dialect_lists_the_dialects_tried(tmp_path):
    with pytest.raises(RamifyError) as raised:
        log_of(tmp_path / "a.log", "[09:05] <wren> hi\n\nwren: how\nkes: so\n")
    message = str(raised.value)
    assert "a.log fits no known dialect" in message
    assert "brackets   33% of lines fit, not line 3 ('wren: how')" in message
    assert "irssi       0% of lines fit, not line 1 ('[09:05] <wren> hi')" in message
    assert "--option dialect=NAME" in message
    assert all(name in message for name in irc.DIALECTS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dialect": "icq"}, r"dialect='icq' is invalid\. Expected auto or, .*brackets.*colon"),
        ({"dialect": ""}, "dialect='' is invalid"),
        ({"encoding": "utf-9"}, r"encoding='utf-9' is invalid\. Expected auto or the name of a Python encoding"),
        ({"encoding": "hex"}, "encoding='hex' is invalid"),
        ({"encoding": "idna"}, "encoding='idna' is invalid"),
    ],
)
def test_bad_options(tmp_path, options, message):
    with pytest.raises(RamifyError, match=message):
        log_of(tmp_path / "a.log", "[09:05] <wren> hi\n", **options)


# --- bytes ----------------------------------------------------------------------------------------------------------------


def test_mixed_encodings(tmp_path):
    lines = ["[09:05] <wren> naïve 🐦".encode(), "[09:05] <kes> naïve “so”".encode("cp1252"), b"[09:06] <robin> \x81\xff"]
    nodes, counts = log_of(tmp_path / "a.log", b"\n".join(lines))
    assert [node.text for node in nodes] == ["naïve 🐦", "naïve “so”", "\ufffdÿ"]
    assert counts.kept == {"encoding": 2}
    assert counts.examples["encoding"] == [f"{tmp_path / 'a.log'}, line {line}" for line in (2, 3)]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks(tmp_path, encoding):
    content = "[09:05] <wren> naïve 🐦\r\n\r\n[09:06] <ਊkes> so\r\n"
    nodes, counts = log_of(tmp_path / "a.log", content.encode(encoding))
    assert contents(nodes) == [("", "wren", "naïve 🐦"), ("system", None, ""), ("", "ਊkes", "so")]
    assert counts.kept == {}


@pytest.mark.parametrize("encoding", ["koi8-r", "shift_jis", "utf-7", "utf-16-le", "utf-8"])
def test_encoding_by_name(tmp_path, encoding):
    nodes, counts = log_of(tmp_path / "a.log", "[09:05] <wren> да\n\n[09:06] <kes> нет\n".encode(encoding), encoding=encoding)
    assert [node.text for node in nodes] == ["да", "", "нет"]
    assert counts.kept == {}


def test_wrong_encoding_by_name_is_counted(tmp_path):
    nodes, counts = log_of(tmp_path / "a.log", b"[09:05] <wren> \xff\n[09:05] <kes> so\n", encoding="ascii")
    assert [node.text for node in nodes] == ["\ufffd", "so"]
    assert counts.kept == {"encoding": 1}


def test_carriage_returns_and_the_last_line(tmp_path):
    nodes, _ = log_of(tmp_path / "a.log", b"[09:05] <wren> a\r\n[09:05] <wren> b\r\r\n\r\n[09:05] <wren> c\x85\xe2\x80\xa8\r")
    assert [node.text for node in nodes] == ["a", "b ", "", "c…â€¨"]
    assert [node.kind for node in nodes] == ["", "", "system", ""]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8"])
def test_lone_carriage_returns_in_other_encodings(tmp_path, encoding):
    nodes, _ = log_of(tmp_path / "a.log", "[09:05] <wren> naïve\r[09:06] <kes> ਊ\r".encode(encoding))
    assert contents(nodes) == [("", "wren", "naïve"), ("", "kes", "ਊ")]


def test_line_ends_split_between_chunks_count_once(tmp_path):
    """The first chunk from a pipe may end between the two characters."""

    class Pieces(io.RawIOBase):
        def __init__(self):
            self.pieces = [b"[09:05] <wren> a\r", b"\n[09:06] <kes> b\r\n", b""]

        def readable(self):
            return True

        def readinto(self, buffer):
            piece = self.pieces.pop(0)
            buffer[: len(piece)] = piece
            return len(piece)

    stream, _ = with_line_ends(io.BufferedReader(Pieces()), "auto")
    assert stream.read() == b"[09:05] <wren> a\r\n[09:06] <kes> b\r\n"


def test_pipes_are_decoded_without_waiting():
    """A pipe is not read until a whole block is full."""
    given, taken = os.pipe()
    os.write(taken, "[09:05] <wren> a\r\n".encode("utf-16"))
    with open(given, "rb") as pipe:
        stream, _ = with_line_ends(pipe, "auto")
        assert stream.readline() == b"[09:05] <wren> a\r\n"
        os.close(taken)


def test_lines_that_end_with_carriage_returns_only(tmp_path):
    content = b"[09:05] <wren> a\r[09:06] <kes> caf\xe9\r\r[09:07] <wren> c"
    assert not irc.refuses(tmp_path / "a.log", content)
    nodes, counts = log_of(tmp_path / "a.log", content)
    assert contents(nodes) == [("", "wren", "a"), ("", "kes", "café"), ("system", None, ""), ("", "wren", "c")]
    assert counts.kept == {"encoding": 1}


@pytest.mark.parametrize("content", ["\n", "\n\n \n", "\ufeff\n"])
def test_blank_lines_only(tmp_path, content):
    nodes, counts = log_of(tmp_path / "a.log", content)
    assert [node.kind for node in nodes] == ["system"] * content.count("\n")
    assert counts.kept == {}


def test_empty_and_absent_files(tmp_path):
    with pytest.raises(RamifyError, match=r"a\.log is empty"):
        log_of(tmp_path / "a.log", b"")
    assert log_of(tmp_path / "b.log", b"\xef\xbb\xbf")[0] == []


def test_one_line_and_one_speaker(tmp_path):
    assert contents(log_of(tmp_path / "a.log", "[09:05] <wren> hi")[0]) == [("", "wren", "hi")]
    nodes, _ = log_of(tmp_path / "a.log", "[09:05] <wren> hi\n" * 3)
    assert [(node.id, node.author) for node in nodes] == [("0", "wren"), ("1", "wren"), ("2", "wren")]


def test_long_line_keeps_its_number(tmp_path, monkeypatch):
    monkeypatch.setattr(irc, "blocks", partial(base.blocks, max_line_bytes=100))
    monkeypatch.setattr(irc, "BLOCK_BYTES", 64)
    nodes, counts = log_of(tmp_path / "a.log", f"[09:05] <wren> a\n[09:06] <kes> {'b' * 1000}\n[09:07] <wren> c\n")
    assert [(node.id, node.kind, node.text) for node in nodes] == [("0", "", "a"), ("1", "system", ""), ("2", "", "c")]
    assert counts.kept == {"too_long": 1}
    assert "line 2: longer than 100 bytes" in counts.examples["too_long"][0]


def test_log_is_streamed(tmp_path, monkeypatch):
    monkeypatch.setattr(irc, "BLOCK_BYTES", 1 << 10)
    path = tmp_path / "a.log"
    path.write_text("[09:05] <wren> hi\n" * 100_000)
    counts = ReadCounts()
    messages = next(irc.logs([path], counts)).messages
    next(messages)
    assert counts.read < 100
    assert sum(1 for _ in messages) == 99_999
    assert counts.read == 100_000


def test_memory_does_not_grow_with_the_log(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("".join(f"[{n // 3600 % 24:02}:{n // 60 % 60:02}] <wren{n % 97}> seed {n}\n" for n in range(200_000)))
    before = most = sys.getallocatedblocks()
    log = next(readers.find_format("irc").reads([path], ReadCounts()))
    for number, _ in enumerate(log.messages):
        if number % 5_000 == 0:
            most = max(most, sys.getallocatedblocks())
    assert number == 199_999
    # One block of lines and some more, but not one object per message.
    assert most - before < 100_000


CHUNKS = [
    b"[09:05] <wren> ",
    b"=== ",
    b"\n",
    b"\r\n",
    b"\n\n",
    b"\r",
    b" * ",
    b"\x1b[",
    b"\x03",
    b"9",
    b"<",
    b"> ",
    b"\xc3",
    b"\xe9",
]


@given(st.lists(st.sampled_from(CHUNKS) | st.binary(max_size=8)), st.integers(1, 64))
def test_lines_with_any_bytes_are_kept(tmp_path_factory, chunks, block):
    data = b"[09:05] <wren> hi\n" + b"".join(chunks)
    path = tmp_path_factory.mktemp("irc") / "a.log"
    lines = data.removesuffix(b"\n").split(b"\n")
    with pytest.MonkeyPatch.context() as patch:
        whole, counts = log_of(path, data, dialect="brackets")
        patch.setattr(irc, "BLOCK_BYTES", block)
        assert log_of(path, data, dialect="brackets") == (whole, counts)
    assert [node.id for node in whole] == [str(number) for number in range(len(lines))]
    for node, line in zip(whole, lines, strict=True):
        plain = line.removesuffix(b"\r")
        if plain.isascii() and plain.decode().isprintable():
            assert plain.decode().endswith(node.text)
            assert node.text == plain.decode() or node.author is not None or plain.startswith(b"[")
        assert not any(character < " " for character in node.text)


@given(st.binary())
@example(b"\0\0")
@example(b"\0\0a\0\0\0")
@example(b"a\0\r\0b\0")
@example(b"a\0\r\0")
@example(b"\r\0a\0\r\0")
def test_any_bytes_in_two_byte_encodings(data):
    data = codecs.BOM_UTF16_LE + data
    stream, encoding = with_line_ends(io.BufferedReader(io.BytesIO(data)), "auto")
    assert encoding == "utf-8"
    # Followed by two zeros, the mark is that of UTF-32.
    written = "utf-32" if data.startswith(codecs.BOM_UTF32_LE) else "utf-16"
    text = data.decode(written, "replace")
    # Without "\n", returns end lines. A single one at the end may be half of "\r\n".
    by_returns = "\r" in text[:-1] and "\n" not in text
    assert stream.read().decode() == (text.replace("\r", "\n") if by_returns else text)


# --- annotations ----------------------------------------------------------------------------------------------------------

LOG = "".join(f"[09:0{number}] <{nick}> line {number}\n" for number, nick in enumerate(["wren", "kes", "wren", "owl", "kes"]))


def annotated(tmp_path, links, name="2009-03-14.ascii.txt", **options):
    (tmp_path / f"{annotation.log_name(name)}.annotation.txt").write_text(links)
    return log_of(tmp_path / name, LOG, **options)


@pytest.mark.parametrize("name", ["2009-03-14.ascii.txt", "2009-03-14.raw.txt"])
def test_annotations_beside(tmp_path, name):
    nodes, counts = annotated(tmp_path, "1 1 -\n2 2 -\n1 2 -\n4 1 -\n3 4 -\n1 4 -\n", name)
    assert [(node.parents, node.self_link) for node in nodes] == [
        (None, False),
        ((), True),
        ((1,), True),
        (None, False),
        ((1, 3), False),
    ]
    assert counts.kept == {}
    nodes, _ = nodes_of([tmp_path / name], annotations="none")
    assert {node.parents for node in nodes} == {None}


def test_annotations_of_other_endings(tmp_path):
    (tmp_path / "birds.annotation.txt").write_text("birds:0 1 -\n")
    nodes, _ = log_of(tmp_path / "birds.log.gz", gzip.compress(LOG.encode()))
    assert [node.parents for node in nodes] == [None, (0,), None, None, None]


def test_links_to_missing_lines(tmp_path):
    with pytest.raises(
        RamifyError, match=r"annotation\.txt, line 3: links line 5, but .*ascii\.txt has 5 lines.*annotations=none"
    ):
        annotated(tmp_path, "1 1 -\n\n2 5 -\n")
    with pytest.raises(RamifyError, match=r"is read as the links of '2009-03-14', but it also names 'other'"):
        annotated(tmp_path, "1 1 -\nother:1 2 -\n")
    with pytest.raises(RamifyError, match=r"annotation\.txt, line 1: expected 'PARENT CHILD -'"):
        annotated(tmp_path, "x\n")


# --- files ----------------------------------------------------------------------------------------------------------------


def test_folder(tmp_path):
    for name in ["a.ascii.txt", "a.raw.txt", "a.tok.txt", "b.raw.txt", "sub/c.log"]:
        log_of(tmp_path / name, LOG)
    (tmp_path / "a.annotation.txt").write_text("0 1 -\n")
    (tmp_path / "d.log.gz").write_bytes(gzip.compress(LOG.encode()))
    assert not irc.refuses(tmp_path, b"")
    assert readers.list_files([tmp_path]) != []
    (tmp_path / "README.md").write_text("left out of the folder\n")
    (tmp_path / "index.html").write_text("# What is here\n\n* Logs\n")
    (tmp_path / "empty.log").touch()
    counts = ReadCounts()
    trees = [log.tree() for log in irc.logs([tmp_path], counts)]
    assert [tree.id for tree in trees] == ["a", "b", "d", "c"]
    assert counts.skipped == {"not_a_log": 2}
    assert counts.read == 5 * 4 + 2
    assert trees[0].nodes[1].parents == (0,)
    assert irc.refuses(tmp_path, b"")


def test_folder_without_logs(tmp_path):
    (tmp_path / "README.md").write_text("# What is here\n")
    assert irc.refuses(tmp_path, b"")
    with pytest.raises(RamifyError, match=r"no file in the folder .* looks like an IRC log"):
        list(irc.logs([tmp_path], ReadCounts()))


def test_quiet_days_are_logs(tmp_path):
    log_of(tmp_path / "20090314.log", "[09:05:00] *** Joins: wren (w@nest.example)\n")
    assert not irc.refuses(tmp_path, b"")


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["x.ascii.txt", "#y.log", "z.txt", "w.weechatlog", "v"], ["x", "#y", "z", "w", "v"]),
        (["x.raw.txt.bz2", "y.log.xz", "z.zst", ".log"], ["x", "y", "z", ".log"]),
        (["15/x.log", "16/x.log", "16/y.log"], ["15/x", "16/x", "y"]),
        (["1/15/x.log", "2/15/x.log"], ["1/15/x", "2/15/x"]),
    ],
)
def test_names_of_logs(tmp_path, files, names):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(LOG)
    found = list(irc.logs([tmp_path / name for name in files], ReadCounts()))
    assert [log.name for log in found] == names
    assert [log.where for log in found] == [str(tmp_path / name) for name in files]


def test_two_files_of_one_log(tmp_path):
    paths = [tmp_path / "x.ascii.txt", tmp_path / "x.raw.txt"]
    for path in paths:
        path.write_text(LOG)
    assert [log.name for log in irc.logs(paths, ReadCounts())] == [str(path) for path in paths]


# --- published logs -------------------------------------------------------------------------------------------------------


@pytest.mark.data
def test_published_logs(data_dir):
    folder = data_dir("ubuntu-irc") / "dev"
    assert not irc.refuses(folder, b"")
    counts = ReadCounts()
    trees = [log.tree() for log in irc.logs([folder], counts)]
    assert len(trees) == 10
    assert counts.read == sum(map(len, trees)) == 12_500
    assert counts.skipped == {}
    # Two logs have a clock of twelve hours without am and pm.
    assert counts.kept == {}
    targets = [node for tree in trees for node in tree.nodes if node.parents is not None]
    assert len(targets) == 2_500
    assert sum(len(node.parents or ()) + node.self_link for node in targets) == 2_607
    assert sum(node.self_link and not node.parents for node in targets) == 462
    system = [node for node in targets if node.kind == "system"]
    assert len(system) == 173
    assert sum(not node.self_link for node in system) == 7
    for tree in trees:
        content = (folder / f"{tree.id}.ascii.txt").read_text(encoding="utf-8")
        for node, line in zip(tree.nodes, content.split("\n"), strict=False):
            assert line.replace("\t", " ").endswith(node.text)


# --- events reported by clients -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoken", "author"),
    [
        ("wren (~w@nest.example) has joined", "wren"),
        ("wren has left", "wren"),
        ("wren (~w@nest.example) has left (seeds)", "wren"),
        ("wren (~w@nest.example) Quit (Ping timeout: 256 seconds)", "wren"),
        ("robin sets ban on *!*@crow.example", "robin"),
        ("robin removes channel keyword", "robin"),
        ("robin gives channel half-operator status to wren", "robin"),
        ("Channel #birds modes: +nt", None),
        ("Connecting to nest.example (6667)", None),
    ],
)
def test_one_star_before_events(tmp_path, spoken, author):
    log = f"Mar 14 09:05:00 <robin>\tseeds\nMar 14 09:05:01 *\t{spoken}\nMar 14 09:05:02 *\twren pecks\n"
    nodes, _ = log_of(tmp_path / "a.log", log)
    assert [node.kind for node in nodes] == ["", "system", "action"]
    assert nodes[1].author == author


def test_day_is_not_a_nick(tmp_path):
    log = "--- Log opened Sat Mar 14 09:05:00 2009\n09:05 <wren> hi\n--- Day changed Sun Mar 15 2009\n00:01 <wren> ho\n"
    nodes, _ = log_of(tmp_path / "a.log", log)
    assert [node.author for node in nodes] == [None, "wren", None, "wren"]


def test_lines_out_of_order_at_midnight(tmp_path):
    log = "".join(f"[{when}] <wren> hi\n" for when in ("23:59:58", "00:00:01", "23:59:59", "00:00:02", "23:50:00"))
    nodes, counts = log_of(tmp_path / "a.log", log)
    first = nodes[0].time
    assert [node.time - first for node in nodes[:4]] == [0, 3, 1, 4]
    assert counts.kept["clock_back"] == 1 + (nodes[4].time < nodes[3].time)


def test_dialect_without_a_matching_line(tmp_path):
    with pytest.raises(RamifyError, match=r"a\.log fits no known dialect"):
        log_of(tmp_path / "a.log", "[15/11/2004 12:00:01] <wren> hi\n", dialect="brackets")


def test_token_files_beside_a_log(tmp_path):
    log = tmp_path / "day.ascii.txt"
    log.write_text("[10:00] <ann> It's me!\n=== bob joined\n")
    with pytest.raises(RamifyError, match=r"there is no .*day\.tok\.txt"):
        nodes_of([log], tokens="beside")
    (tmp_path / "day.tok.txt").write_text("<s> it 's me ! </s>\n<s> = = = </s>\n")
    nodes, _ = nodes_of([log], tokens="beside")
    assert [node.label for node in nodes] == [{"tokens": "it 's me !"}, {"tokens": "= = ="}]
    (tmp_path / "day.tok.txt").write_text("<s> it 's me ! </s>\n")
    with pytest.raises(RamifyError, match="different numbers of lines"):
        nodes_of([log], tokens="beside")
    with pytest.raises(RamifyError, match="beside or none"):
        readers.open_inputs([log], "irc", {"tokens": "official"})
