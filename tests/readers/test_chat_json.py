import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from junk import altered

from ramify import readers
from ramify.errors import RamifyError
from ramify.readers import chat_json
from ramify.readers.base import ReadCounts
from ramify.readers.chat_json import PROGRAMS


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def read(*paths, **options):
    counts = ReadCounts()
    logs = {}
    for log in chat_json.logs(paths, counts, **options):
        logs[log.name] = list(log.messages)
    assert counts.read == sum(map(len, logs.values())) + sum(counts.skipped.values())
    return logs, counts


def said(messages):
    return [(node.id, node.author, node.text) for node in messages]


def broken(text):
    return text.encode("utf-8").decode("latin-1")


def sent(sender, time, text=None, **more):
    return {"sender_name": broken(sender), "timestamp_ms": time, "type": "Generic", **more} | (
        {} if text is None else {"content": broken(text)}
    )


def test_messenger_is_turned_and_mended(tmp_path):
    about = {"participants": [{"name": broken("Zoë")}], "title": broken("Töpfern"), "thread_path": "inbox/clay_1"}
    newer = [sent("Zoë", 5000, "🙂 ja"), sent("Ivo", 4000, photos=[{"uri": "a/b.jpg"}]), sent("Zoë", 3000, is_unsent=True)]
    older = [sent("Ivo", 2000, "Whÿ?"), sent("Ivo", 2000, "first of two"), sent("Ivo", 1000, "hi")]
    for number, messages in enumerate((newer, older), 1):
        write(tmp_path / "inbox" / "clay_1" / f"message_{number}.json", about | {"messages": messages})
    write(tmp_path / "inbox" / "autofill.json", {"a": 1})
    assert readers.detect_format([tmp_path]) == "chat-json"
    logs, counts = read(tmp_path)
    assert said(logs["Töpfern"]) == [
        ("0", "Ivo", "hi"), ("1", "Ivo", "first of two"), ("2", "Ivo", "Whÿ?"), ("3", "Zoë", "[deleted]"),
        ("4", "Ivo", "[photos]"), ("5", "Zoë", "🙂 ja"),
    ]  # fmt: skip
    assert counts.skipped == {"other_file": 1}
    assert counts.kept == {"mojibake": 3}
    # A name that is right stays as it is.
    right = about | {"title": "Zoë", "messages": [sent("Ivo", 1, "x") | {"content": "Ärger — ja"}]}
    logs, _ = read(write(tmp_path / "x" / "message_1.json", right))
    assert logs["Zoë"][0].text == "Ärger — ja"


def test_two_chats_of_one_name_are_two(tmp_path):
    for name in "ab":
        about = {"title": "Clay", "thread_path": f"inbox/{name}", "messages": [sent("Ivo", 1, name)]}
        write(tmp_path / name / "message_1.json", about)
    logs, _ = read(tmp_path)
    assert {name: said(messages)[0][2] for name, messages in logs.items()} == {"Clay": "a", "Clay (2)": "b"}


def test_encrypted_messenger(tmp_path):
    messages = [
        {"senderName": "Zoë", "text": "two", "timestamp": 2000, "isUnsent": False, "media": [], "type": "text"},
        {"senderName": "Ivo", "text": "", "timestamp": 1000, "isUnsent": False, "media": [{"uri": "x"}], "type": "media"},
    ]
    logs, counts = read(
        write(tmp_path / "Ivo_5.json", {"participants": ["Zoë", "Ivo"], "threadName": "Ivo_5", "messages": messages})
    )
    assert said(logs["Ivo_5"]) == [("0", "Ivo", "[media]"), ("1", "Zoë", "two")]
    assert counts.kept == {}


def google(name, topic, date, text=None, **more):
    return {
        "creator": {"name": "Wren", "email": "w@x"},
        "created_date": date,
        "topic_id": topic,
        "message_id": name,
        **more,
    } | ({} if text is None else {"text": text})


def test_google_chat(tmp_path):
    space = tmp_path / "Google Chat" / "Groups" / "Space AAA"
    messages = [
        google("s/t/t", "t", "Montag, 4. März 2024 um 08:00:00 UTC", "Which clay?"),
        google("s/t/b", "t", "Monday, March 4, 2024 at 8:01:00\u202fAM UTC", "Red."),
        google("s/u/u", "u", "Monday, March 4, 2024 at 12:02:00 PM UTC", message_state="DELETED"),
        google("s/v/v", "v", "montags", attached_files=[{"original_name": "kiln.png"}]),
    ]
    write(space / "messages.json", {"messages": messages})
    write(space / "group_info.json", {"name": "Kilns", "members": []})
    assert readers.detect_format([tmp_path]) == "chat-json"
    logs, counts = read(tmp_path)
    assert [(node.text, node.parents, node.time) for node in logs["Kilns"]] == [
        ("Which clay?", None, 1709539200.0), ("Red.", (0,), 1709539260.0), ("[deleted]", None, 1709553720.0),
        ("[kiln.png]", None, None),
    ]  # fmt: skip
    assert counts.kept == {"bad_time": 1}
    assert counts.skipped == {}


def test_zulip(tmp_path):
    def message(number, sender, topic, text):
        return {
            "id": number,
            "sender": sender,
            "recipient": 7,
            "subject": topic,
            "content": text,
            "date_sent": 1709539200.0 + number,
        }

    reply = "@_**Wren|10** [said](https://z.example/#narrow/channel/3-clay/topic/kilns/near/1):\n```quote\nWhich?\n```\nRed."
    lost = reply.replace("near/1)", "near/99)")
    messages = [
        message(1, 10, "kilns", "Which?"),
        message(2, 11, "kilns", reply),
        message(3, 11, "glaze", "Hm."),
        message(4, 12, "kilns", lost),
    ]
    write(tmp_path / "messages-000001.json", {"zerver_message": messages, "zerver_usermessage": []})
    write(tmp_path / "realm.json", {
        "zerver_userprofile": [{"id": 10, "full_name": "Wren"}, {"id": 11, "full_name": "Ivo"}],
        "zerver_stream": [{"id": 3, "name": "clay"}], "zerver_recipient": [{"id": 7, "type": 2, "type_id": 3}, {"id": []}],
    })  # fmt: skip
    assert readers.detect_format([tmp_path]) == "chat-json"
    logs, counts = read(tmp_path)
    assert {name: [(node.id, node.author, node.parents) for node in messages] for name, messages in logs.items()} == {
        "clay/kilns": [("1", "Wren", None), ("2", "Ivo", (0,)), ("4", "12", None)], "clay/glaze": [("3", "Ivo", None)],
    }  # fmt: skip
    assert counts.kept == {"missing_parent": 1}
    api = {"id": 5, "sender_full_name": "Wren", "timestamp": 1709539200, "subject": "kilns", "display_recipient": "clay",
           "stream_id": 3, "content": "<p>a &lt; b</p>", "content_type": "text/html"}  # fmt: skip
    logs, _ = read(write(tmp_path / "api" / "x.json", {"result": "success", "messages": [api]}))
    assert said(logs["clay/kilns"]) == [("5", "Wren", "a < b")]


def test_mattermost(tmp_path):
    posts = [
        {"team": "t", "channel": "clay", "user": "wren", "message": "Which?", "create_at": 1709539200000,
         "replies": [{"user": "ivo", "message": "Red.", "create_at": 1709539205000}, 7]},
        {"team": "t", "channel": "clay", "user": "una", "message": "joined", "create_at": 1709539201000,
         "type": "system_join_channel"},
    ]  # fmt: skip
    direct = {"channel_members": ["ivo", "wren"], "user": "ivo", "message": "psst", "create_at": 1709539200000}
    records = [{"type": "version", "version": 1}, *({"type": "post", "post": post} for post in posts),
               {"type": "direct_post", "direct_post": direct}]  # fmt: skip
    path = tmp_path / "import.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    assert readers.detect_format([path]) == "chat-json"
    logs, counts = read(path)
    assert [(node.id, node.text, node.parents, node.kind) for node in logs["t/clay"]] == [
        ("0", "Which?", None, ""), ("1", "joined", None, "system"), ("2", "Red.", (0,), "")
    ]  # fmt: skip
    assert said(logs["ivo, wren"]) == [("0", "ivo", "psst")]
    assert readers.detect_format([tmp_path]) == "chat-json"
    assert read(tmp_path)[0].keys() == logs.keys()
    assert counts.skipped == {"frame": 1, "bad_row": 1}
    thread = {
        "b": {
            "id": "b",
            "user_id": "u",
            "channel_id": "c",
            "root_id": "a",
            "create_at": 2000,
            "delete_at": 0,
            "message": "Red.",
        },
        "a": {
            "id": "a",
            "user_id": "v",
            "channel_id": "c",
            "root_id": "",
            "create_at": 1000,
            "delete_at": 5,
            "message": "Which?",
        },
    }
    logs, _ = read(write(tmp_path / "x.json", {"order": ["b", "a"], "posts": thread}))
    assert [(node.id, node.text, node.parents) for node in logs["c"]] == [("a", "[deleted]", None), ("b", "Red.", (0,))]


def test_discord_package(tmp_path):
    messages = [{"ID": 9, "Timestamp": "2024-03-04 08:01:00", "Contents": "Red.", "Attachments": ""},
                {"ID": 8, "Timestamp": "2024-03-04 08:00:00", "Contents": "", "Attachments": "https://c.example"}]  # fmt: skip
    write(tmp_path / "messages" / "c5" / "messages.json", messages)
    write(tmp_path / "messages" / "c5" / "channel.json", {"id": "5", "name": "clay", "guild": {"id": "1", "name": "Kilns"}})
    write(tmp_path / "messages" / "index.json", {"5": "clay"})
    write(tmp_path / "account" / "user.json", {"username": "wren"})
    assert readers.detect_format([tmp_path]) == "chat-json"
    logs, counts = read(tmp_path)
    assert said(logs["Kilns/clay"]) == [("8", "wren", "https://c.example"), ("9", "wren", "Red.")]
    assert counts.skipped == {"other_file": 1}  # not the files that names are taken from
    assert counts.examples["other_file"] == [f"{tmp_path / 'messages' / 'index.json'}"]


@pytest.mark.parametrize("has_json", [False, True])
def test_older_discord_package(tmp_path, has_json):
    rows = 'ID,Timestamp,Contents,Attachments\r\n9,2022-03-04 08:01:00.5+00:00,"Red,\nsaid ""I""",\r\n7,2022\r\n6,a,b,c,d\r\n'
    older = tmp_path / "messages" / "c5" / "messages.csv"
    write(older.parent / "channel.json", {"id": "5", "name": "clay"})
    older.write_bytes(f"{rows}8,2022-03-04 08:00:00+00:00,,https://c.example\r\n".encode())
    write(tmp_path / "account" / "user.json", {"username": "wren"})
    if has_json:
        messages = [{"ID": 3, "Timestamp": "2024-03-04 08:01:00", "Contents": "Blue.", "Attachments": ""}]
        write(tmp_path / "messages" / "c6" / "messages.json", messages)
    assert readers.detect_format([tmp_path]) == readers.detect_format([older]) == "chat-json"
    logs, counts = read(tmp_path)
    assert said(logs["clay"]) == [("8", "wren", "https://c.example"), ("9", "wren", 'Red,\nsaid "I"')]
    assert said(logs.get("c6", ())) == ([("3", "wren", "Blue.")] if has_json else [])
    assert counts.skipped == {"bad_row": 2}
    older.write_bytes(f'{rows}8,2022-03-04 08:00:00+00:00,"never closed\r\n'.encode())
    with pytest.raises(RamifyError, match=r"messages\.csv, line 6: unexpected end of data"):
        read(tmp_path)


def test_wrong_values_are_counted(tmp_path):
    messages = [
        sent("Ivo", 1, "x"),
        7,
        {"sender_name": "Ivo"},
        sent("Ivo", 2) | {"content": [1]},
        sent("Ivo", {"a": 1}, "when?"),
    ]
    logs, counts = read(write(tmp_path / "message_1.json", {"title": "Clay", "messages": messages}))
    assert [node.text for node in logs["Clay"]] == ["x", "when?"]
    assert counts.skipped == {"bad_row": 3}
    assert counts.kept == {"bad_time": 1}
    assert any("no timestamp_ms" in where for where in counts.examples["bad_row"])
    with pytest.raises(RamifyError, match="holds no messages of a known program"):
        read(write(tmp_path / "y.json", {"a": 1}))
    with pytest.raises(RamifyError, match="program='nope'"):
        read(tmp_path / "y.json", program="nope")


def test_doubled_messages(tmp_path):
    one = google("s/t/t", "t", "Monday, 4 March 2024 at 08:00:00 UTC", "Which clay?")
    logs, counts = read(
        write(tmp_path / "a" / "messages.json", {"messages": [one, one, one | {"text": "Other", "creator": {"name": "Una"}}]})
    )
    assert [node.id for node in logs["a"]] == ["s/t/t", "s/t/t/2"]
    assert counts.skipped == {"duplicate_id": 1}


SAMPLES = [
    {"messages": [sent("a", 1, "x")]},
    {"messages": [google("a", "b", "c", "d")]},
    {"posts": {"a": {"id": "b"}}, "order": []},
    {"ID": 1, "Timestamp": "2024", "Contents": "x"},
    {"post": {"user": "a", "create_at": 1, "replies": [{}]}, "type": "post"},
]


@given(value=altered(SAMPLES), name=st.sampled_from(sorted(PROGRAMS)))
def test_no_value_is_fatal(value, name):
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "x.json", value)
        read(path, program=name)
        chat_json.refuses(path, path.read_bytes()[:90])
