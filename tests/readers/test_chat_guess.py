"""Each format of chat exports is recognised among all formats."""

import json

import pytest

from ramify import readers
from ramify.errors import RamifyError

TS = "1700000001.000100"
SAMPLES = {
    "slack": [{"type": "message", "user": "U1", "text": 'say "body"', "ts": TS, "replies": [{"user": "U2", "ts": TS}]}],
    "discord": {
        "guild": {"id": "1", "name": "x"},
        "channel": {"id": "2", "type": "GuildTextChat", "name": "y"},
        "messages": [
            {"id": "3", "type": "Default", "timestamp": "2024-01-31T10:00:00+00:00", "content": "z", "author": {"id": "4"}}
        ],
    },
    "matrix": {
        "room_name": "x",
        "exported_by": "ann",
        "messages": [
            {"type": "m.room.message", "event_id": "$1", "sender": "@a:b", "origin_server_ts": 1, "content": {"body": "x"}}
        ],
    },
    "telegram": {"name": "x", "type": "private_group", "id": 1, "messages": [{"id": 1, "type": "message", "text": "x"}]},
    "chat-table": "author,time,text\nann,1,x\n",
    "slack-xml": '<slack>\n<team_domain>x</team_domain>\n<message conversation_id="1"><ts>1</ts></message></slack>',
    "table": "id,parent,tree,author,time,text\n1,,t,ann,1,x\n",
    "jsonl": {"id": "t", "nodes": [{"id": "1", "parent": None, "text": "x", "author": "ann", "time": 3}]},
}


@pytest.mark.parametrize("name", SAMPLES)
def test_formats_are_distinguished(tmp_path, monkeypatch, name):
    # The order of formats is free, except where the table notes that it matters: no format claims another's files.
    turned = dict(reversed(readers.FORMATS.items()))
    first, last = {"jsonl": turned.pop("jsonl")}, {"irc": turned.pop("irc")}
    for order in (readers.FORMATS, first | turned | last):
        monkeypatch.setattr(readers, "FORMATS", order)
        sample = SAMPLES[name]
        path = tmp_path / "sample"
        path.write_text(sample if isinstance(sample, str) else json.dumps(sample, indent=None if name == "jsonl" else 1))
        assert readers.detect_format([path]) == name


def test_foreign_run_json_is_not_a_data_set(tmp_path):
    (tmp_path / "dataset.json").write_text('{"by": "somebody else"}')
    (tmp_path / "a.log").write_text("[10:00] <ann> hi\n[10:01] <bob> ann: hi\n")
    with pytest.raises(RamifyError, match="The nearest formats reject it"):
        readers.detect_format([tmp_path])


def test_missing_logs_are_refused(tmp_path):
    with pytest.raises(RamifyError, match="there is no file or folder"):
        list(readers.read_logs(tmp_path / "absent", format="irc"))


def test_options_are_the_parameters_of_read():
    assert {name: readers.FORMATS[name].options for name in SAMPLES if readers.FORMATS[name].yields != "posts"} == {
        "slack": ["names"],
        "slack-xml": [],
        "discord": ["names"],
        "matrix": ["names"],
        "telegram": ["names"],
        "chat-table": ["columns", "delimiter", "quote", "order", "dates", "missing"],
        "jsonl": [],
    }


SOME = ("jsonl", "pushshift", "cmv-modes", "cmv-chains", "discord", "telegram", "table", "chat-table", "irc")


@pytest.mark.parametrize(
    ("name", "content", "looks", "nearest"),
    [
        ("novel.txt", "It was a dark night.\n\nThe end of it came soon.\n", "text", ["irc", "table", "chat-table"]),
        ("a.json", '{"body": "hi", "subreddit": "x", "topic": 3}\n', "JSON", ["pushshift"]),
        ("a.xml", "<?xml version='1.0'?><log/>", "XML or HTML", ["cmv-modes"]),
        ("a.csv", "a,b\n1,2\n", "a table", ["table", "chat-table", "irc"]),
        ("a.zip", "PK\x03\x04\0\0", "a ZIP archive", []),
        ("a.pdf", "%PDF-1.4\0\1", "a binary file", []),
    ],
)
def test_the_nearest_formats_say_why_they_reject_a_file(tmp_path, monkeypatch, name, content, looks, nearest):
    monkeypatch.setattr(readers, "FORMATS", {each: readers.FORMATS[each] for each in SOME})
    path = tmp_path / name
    path.write_text(content)
    for verbose in (False, True):
        with pytest.raises(RamifyError) as error:
            readers.detect_format([path], verbose=verbose)
        head, *reasons, last = str(error.value).split("\n")
        assert f"{name}. It looks like {looks}." in head
        names = [line.split()[0] for line in reasons]
        assert names == list(SOME) if verbose else len(names) == 3 and names[: len(nearest)] == nearest
        assert ("--verbose lists the other 6." in last) is not verbose
        assert ("If it is plain text, --format text reads it." in last) is (looks == "text")
        # Naming another format does not help where none is right: as a log, a novel would be read without an error.
        assert "Otherwise, Ramify has no format for it." in last
