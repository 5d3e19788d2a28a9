"""Each format returns every message of a channel, or counts what it leaves out."""

import json
import tempfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

import pytest
from chats import read
from hypothesis import given
from hypothesis import strategies as st

from ramify import readers


class Said(NamedTuple):
    nick: str
    text: str
    time: int


# Nicks that are words, clocks that stop, jump and go back, texts that look like lines of a log or marks of a format.
NICKS = st.sampled_from(["ann", "the", "so", "PING", "bob|away", "[x]", "🦉", "山田", "None", "0"])
TEXTS = st.one_of(
    st.text(st.characters(blacklist_categories=("Cc", "Cs", "Zl", "Zp")), max_size=12),
    st.sampled_from(
        ["", " ", "👍🏽", "ann: hi", "=== bob has joined", "[09:05] <bob> hi", "naïve \u200b", '{"id": 1}', "a,b;c|d"]
    ),
)
MESSAGES = st.lists(
    st.builds(Said, NICKS, TEXTS, st.integers(1_500_000_000, 1_700_000_000) | st.just(1_600_000_000)), min_size=1
)


def stamp(message):
    return f"{datetime.fromtimestamp(message.time, UTC):%Y-%m-%dT%H:%M:%S}"


def irc(path, messages):
    lines = [f"{stamp(message)}  <{message.nick}> {message.text}" for message in messages]
    path.write_bytes("\n".join(lines).encode())


def mixed(path, messages):
    """Two encodings, with colours, and without a line end at the last line."""
    lines = [f"\x0304{stamp(message)}\x0f  <{message.nick}> \x02{message.text}\x02" for message in messages]
    path.write_bytes(b"\r\n".join([*(line.encode() for line in lines), b"\xff\xe9"]))


def slack(path, messages):
    records = [
        {"type": "message", "user": each.nick, "ts": f"{each.time}.{place:06}", "text": each.text}
        for place, each in enumerate(messages)
    ]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("channels.json", "[]")
        archive.writestr("kitchen/2020-01-01.json", json.dumps(records))


def slack_xml(path, messages):
    records = (
        f'<message conversation_id="1"><ts>{stamp(each)}</ts><user>{each.nick}</user><text>{escape(each.text)}</text></message>'
        for each in messages
    )
    path.write_text(f"<slack>\n<team_domain>x</team_domain>\n{''.join(records)}</slack>", encoding="utf-8")


def discord(path, messages):
    records = [
        {"id": str(place), "type": "Default", "timestamp": stamp(each), "content": each.text, "author": {"name": each.nick}}
        for place, each in enumerate(messages)
    ]
    path.write_text(json.dumps({"guild": {"id": "1"}, "channel": {"id": "2"}, "messages": records}))


def matrix(path, messages):
    records = (
        {
            "type": "m.room.message",
            "event_id": f"${place}",
            "sender": each.nick,
            "origin_server_ts": each.time * 1000,
            "content": {"msgtype": "m.text", "body": each.text},
        }
        for place, each in enumerate(messages)
    )
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records))


def telegram(path, messages):
    records = [
        {"id": place, "type": "message", "date_unixtime": str(each.time), "from": each.nick, "text": each.text}
        for place, each in enumerate(messages)
    ]
    path.write_text(json.dumps({"name": "x", "type": "private_group", "id": 1, "messages": records}))


def chat_table(path, messages):
    rows = ({"author": each.nick, "time": stamp(each), "text": each.text} for each in messages)
    path.write_text("".join(f"{json.dumps(each)}\n" for each in rows))


def chat_json(path, messages):
    records = [
        {"id": place, "sender_full_name": each.nick, "timestamp": each.time, "subject": "x", "content": each.text}
        for place, each in enumerate(messages)
    ]
    path.write_text(json.dumps({"messages": records}))


def slackdump(path, messages):
    records = [
        {"type": "message", "user": each.nick, "ts": f"{each.time}.{place:06}", "text": each.text}
        for place, each in enumerate(messages)
    ]
    path.write_text(json.dumps({"channel_id": "C1", "messages": records}))


WRITERS = {
    "irc": (irc, mixed), "slack": (slack,), "slack-xml": (slack_xml,), "discord": (discord,), "matrix": (matrix,),
    "telegram": (telegram,), "chat-table": (chat_table,), "chat-json": (chat_json,), "slackdump": (slackdump,),
}  # fmt: skip
BY_TIME = ("slack", "slackdump", "discord", "telegram", "chat-json")
PLACES = {
    "slack": lambda own: own[11:],
    "slackdump": lambda own: own[11:],
    "slack-xml": lambda own: int(own) - 1,
    "matrix": lambda own: own[1:],
}
"""The place of each message in the files above, by its id."""


def test_every_format_of_logs_is_tested():
    # Lines of any layout may continue a message: `test_chat_log.py` counts them.
    assert WRITERS.keys() | {"chat-log"} == {name for name, format in readers.FORMATS.items() if format.yields == "logs"}


@pytest.mark.parametrize(("name", "write"), [(name, write) for name, writers in WRITERS.items() for write in writers])
@given(messages=MESSAGES)
def test_every_message_is_returned(name, write, messages):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        write(path, messages)
        trees, counts = read(readers.find_format(name).load(), path)
        refused = readers.find_format(name).load().refuses(path, path.read_bytes())
    (tree,) = trees
    further = 1 if write is mixed else 0
    assert counts.read == len(tree) == len(messages) + further
    assert counts.skipped == {}
    is_table = name == "chat-table"
    assert counts.kept.keys() <= {
        "clock_back",
        "missing_author" if is_table else "",
        *(("encoding", "unparsed") if further else ()),
    }
    if name in BY_TIME:
        assert not counts.kept
    for number, node in enumerate(tree.nodes[: len(messages)]):
        # Rooms may be turned round, as their events come newest first, and tables number their rows.
        place = number if is_table else int(PLACES.get(name, str)(node.id))
        message = messages[place]
        # Blank fields count as absent, and so does a missing value of a table.
        assert node.text.strip() == message.text.strip()
        assert node.author == (None if is_table and message.nick == "None" else message.nick)
        assert node.time is not None
        assert int(node.time) == message.time
    # An unnamed file whose authors are mostly numbers is no chat log to be recognised.
    numbers = sum(not any(map(str.isalpha, message.nick)) for message in messages) * 2 > len(messages)
    assert further or not refused or (numbers and "take numbers for names" in refused)
