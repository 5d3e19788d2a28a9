import json
import tempfile
from pathlib import Path

import pytest
from chats import read
from hypothesis import given
from hypothesis import strategies as st
from junk import JUNK, altered

from ramify.readers import chat, telegram


def message(number, text="", sender="Ann", **more):
    return {
        "id": number,
        "type": "message",
        "date": f"2024-01-31T10:{number:02}:00",
        "date_unixtime": str(1_706_695_200 + 60 * number),
        "from": sender,
        "from_id": f"user-{sender}",
        "text": text,
        "text_entities": [],
    } | more


def service(number, action, actor="Bob", **more):
    about = {"id": number, "type": "service", "date": f"2024-01-31T10:{number:02}:00", "actor": actor, "actor_id": "user9"}
    return about | {"action": action, "text": ""} | more


MESSAGES = [
    service(1, "create_group", title="Walkers", members=["Ann", None, "Eve"]),
    message(2, "Hills?"),
    message(3, ["Yes, ", {"type": "bold", "text": "many"}, "! ⛰"], "Eve", reply_to_message_id=2),
]


def write(path, messages, name="Walkers", **more):
    path.parent.mkdir(exist_ok=True, parents=True)
    about = {"name": name, "type": "private_supergroup", "id": 77}
    path.write_text(json.dumps(about | {"messages": messages} | more, indent=1, ensure_ascii=False), encoding="utf-8")
    return path


def test_chat(tmp_path):
    path = write(tmp_path / "result.json", MESSAGES)
    (tree,), counts = read(telegram, path)
    assert (tree.id, tree.meta) == ("Walkers", {})
    assert [(node.id, node.text, node.author, node.parents, node.kind) for node in tree.nodes] == [
        ("1", "create group: Ann, Eve: Walkers", "Bob", None, chat.SYSTEM),
        ("2", "Hills?", "Ann", None, ""),
        ("3", "Yes, many! ⛰", "Eve", (1,), ""),
    ]
    assert [node.time for node in tree.nodes] == [1_706_695_260.0, 1_706_695_320.0, 1_706_695_380.0]
    assert counts.skipped == counts.kept == {}
    assert not telegram.refuses(path, path.read_bytes())


def test_all_chats_of_an_account(tmp_path):
    about = "Here is the data you requested. Telegram is free."
    names = ("Walkers", None, "Walkers")
    chats = [json.loads(write(tmp_path / "x.json", MESSAGES, name, id=77 + n).read_text()) for n, name in enumerate(names)]
    left = [{"type": "private_group", "id": 5, "messages": [message(1, "bye")]}, {"type": "private_group"}, 3]
    whole = {"about": about, "personal_information": {}, "chats": {"about": "x", "list": chats}, "left_chats": {"list": left}}
    path = tmp_path / "export" / "result.json"
    path.parent.mkdir()
    path.write_text(json.dumps(whole), encoding="utf-8")
    (path.parent / "files").mkdir()
    (path.parent / "files" / "sent.json").write_text("[3]")
    for given_ in (path, path.parent):
        trees, counts = read(telegram, given_)
        assert [(tree.id, len(tree)) for tree in trees] == [
            ("Walkers", 3), ("private_supergroup", 3), ("Walkers 79", 3), ("private_group", 1),
        ]  # fmt: skip
        assert counts.skipped == {"not_a_post": 2}
        assert not telegram.refuses(given_, b"" if given_.is_dir() else path.read_bytes())


def test_exports_of_one_chat_are_one_log(tmp_path):
    """Messages are in order of time, whatever the order of the files; duplicates are kept once."""
    early = [*MESSAGES, service(4, "topic_created", title="Boots"), message(5, "Which?", reply_to_message_id=4)]
    late = [
        message(2, "Hills?"),
        message(3, "Yes, few", "Eve", edited_unixtime="1706700000"),
        message(6, "Brown", reply_to_message_id=5),
    ]
    paths = [write(tmp_path / "late.json", late, "Hikers", type="public_supergroup"), write(tmp_path / "early.json", early)]
    # Ids of people and of groups are separate; an id without a kind may be any chat's.
    paths.append(write(tmp_path / "person.json", [message(2, "hi")], "Ann", type="personal_chat"))
    paths.append(write(tmp_path / "unknown.json", [message(2, "ho")], "Bob", id=None))
    trees, counts = read(telegram, *paths)
    assert {tree.id: [(node.id, node.text, node.parents) for node in tree.nodes] for tree in trees} == {
        "Hikers": [("1", "create group: Ann, Eve: Walkers", None), ("2", "Hills?", None), ("3", "Yes, few", (1,))],
        "Hikers/Boots": [("4", "topic created: Boots", None), ("5", "Which?", None), ("6", "Brown", (1,))],
        "Ann": [("2", "hi", None)],
        "Bob": [("2", "ho", None)],
    }
    assert counts.skipped == {"duplicate_id": 2}
    assert counts.examples["duplicate_id"] == [f"{paths[1]}, message 2", f"{paths[1]}, message 3"]


def test_authors(tmp_path):
    """A deleted account leaves its id; anonymous posts have neither id nor name."""
    messages = [
        message(1, "a", None, from_id="user5"),
        message(2, "b", None, from_id=None),
        message(3, "c", "Ann", from_id="user6"),
    ]
    path = write(tmp_path / "result.json", [*messages, message(4, "d", "Ann", from_id="user7")])
    assert [node.author for node in read(telegram, path)[0][0].nodes] == ["user5", None, "Ann", "user7"]
    assert [node.author for node in read(telegram, path, names="id")[0][0].nodes] == ["user5", None, "user6", "user7"]


@pytest.mark.parametrize(
    ("stamps", "time", "bad"),
    [
        ({"date": "2024-01-31T10:00:00", "date_unixtime": "soon"}, 1_706_695_200.0, 0),
        ({"date": None, "date_unixtime": "soon"}, None, 1),
        ({"date": "noon", "date_unixtime": "soon", "edited": "never"}, None, 1),
        ({"date": "noon", "date_unixtime": "1706695200"}, 1_706_695_200.0, 0),
        ({"date": None, "date_unixtime": None}, None, 0),
    ],
    ids=str,
)
def test_odd_times(tmp_path, stamps, time, bad):
    (tree,), counts = read(telegram, write(tmp_path / "result.json", [message(1, "hi") | stamps]))
    assert (tree.nodes[0].time, counts.kept["bad_time"]) == (time, bad)


def test_replies_to_messages_elsewhere(tmp_path):
    messages = [
        message(2, "a"),
        message(3, "b", reply_to_message_id=1),
        message(4, "c", reply_to_message_id=2, reply_to_peer_id="channel5"),
        message(5, "d", reply_to_message_id=9),
    ]
    (tree,), counts = read(telegram, write(tmp_path / "result.json", messages))
    assert [node.parents for node in tree.nodes] == [None] * 4
    assert counts.kept == {"missing_parent": 3}


def test_topics_are_logs(tmp_path):
    messages = [
        message(1, "general"),
        service(2, "topic_created", title="Boots"),
        message(3, "Which?", reply_to_message_id=2),
        service(4, "topic_created", title="Maps"),
        message(5, "Paper", reply_to_message_id=4),
        message(6, "Brown", reply_to_message_id=3),
        message(7, "more general", reply_to_message_id=1),
    ]
    trees, counts = read(telegram, write(tmp_path / "result.json", messages))
    assert {tree.id: [(node.id, node.parents) for node in tree.nodes] for tree in trees} == {
        "Walkers": [("1", None), ("7", (0,))],
        "Walkers/Boots": [("2", None), ("3", None), ("6", (1,))],
        "Walkers/Maps": [("4", None), ("5", None)],
    }
    assert trees[1].meta == {"topic": "Boots"}
    assert not counts.kept


def test_rings_of_replies(tmp_path):
    messages = [
        service(1, "topic_created", title="x"),
        message(2, "a", reply_to_message_id=3),
        message(3, "b", reply_to_message_id=2),
    ]
    trees, counts = read(telegram, write(tmp_path / "result.json", messages))
    assert [[node.parents for node in tree.nodes] for tree in trees] == [[None], [None, (0,)]]
    assert counts.kept == {"late_parent": 1}


def test_texts(tmp_path):
    messages = [
        message(1, "", text_entities=[{"type": "plain", "text": "new form"}]),
        message(2, photo="photos/1.jpg"),
        message(3, file="files/route.gpx", media_type=None),
        message(4, file="(File not included. Change data exporting settings to download.)", media_type="voice_message"),
        message(5, media_type="sticker", sticker_emoji="🥾"),
        message(6, poll={"question": "When?", "answers": []}),
        message(7, location_information={"latitude": 1}),
        message(8, "look", photo="photos/2.jpg", forwarded_from="Eve"),
        {"id": 9, "type": "unsupported"},
        message(10, "changed", edited="2024-02-01T10:00:00"),
        message(10, "before"),
    ]
    (tree,), counts = read(telegram, write(tmp_path / "result.json", messages))
    assert [node.text for node in tree.nodes] == [
        "new form", "[photo]", "[route.gpx]", "[voice message]", "🥾", "When?", "[location information]", "look", "", "changed",
    ]  # fmt: skip
    assert [node.label for node in tree.nodes if node.label] == [{"forwarded_from": "Eve"}]
    assert (tree.nodes[8].time, counts.kept, counts.skipped) == (None, {"unsupported": 1}, {"duplicate_id": 1})


def test_invalid_messages_are_counted(tmp_path):
    path = write(tmp_path / "result.json", [3, {"text": "no id"}, message(1, "x")])
    (tmp_path / "broken.json").write_text('{"name": ')
    (tree,), counts = read(telegram, path, tmp_path / "broken.json")
    assert len(tree) == 1
    assert counts.skipped == {"not_a_post": 2, "bad_json": 1}


def test_other_formats_are_refused(tmp_path):
    for other in (
        {"type": "message", "id": 3, "text": "x"},
        {"name": "x", "type": "channel", "id": 1, "messages": []},
        {"about": "x"},
    ):
        assert telegram.refuses(Path("x.json"), json.dumps(other).encode())
    assert telegram.refuses(tmp_path, b"")


WHOLE = [
    *MESSAGES,
    service(4, "topic_created", title="x"),
    message(5, [], poll={"question": "x"}, file="a/b", forwarded_from="Eve"),
]


@given(st.lists(altered(WHOLE), max_size=6), JUNK, st.booleans())
def test_junk_never_crashes(messages, name, nested):
    with tempfile.TemporaryDirectory() as folder:
        about = {"name": name, "messages": messages}
        path = Path(folder) / "result.json"
        path.write_text(json.dumps({"chats": {"list": [about, name]}} if nested else about), encoding="utf-8")
        trees, _ = read(telegram, path)
        for tree in trees:
            tree.to_json().encode()
