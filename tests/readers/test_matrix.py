import json
import tempfile
from pathlib import Path

import pytest
from chats import read
from hypothesis import given
from hypothesis import strategies as st
from junk import JUNK, altered

from ramify.errors import RamifyError
from ramify.readers import base, chat, matrix

ANN, BOB = "@ann:example.org", "@bob:example.org"


def event(number, content, sender=ANN, type="m.room.message", **more):
    return {
        "type": type,
        "room_id": "!barn:example.org",
        "sender": sender,
        "event_id": f"${number}",
        "origin_server_ts": (1_700_000_000 + number) * 1000,
        "content": content,
        "unsigned": {},
    } | more


def message(number, body, sender=ANN, **relation):
    content = {"msgtype": "m.text", "body": body}
    return event(number, content | ({"m.relates_to": relation} if relation else {}), sender)


def reply(number, to, body, sender=BOB):
    return message(number, body, sender, **{"m.in_reply_to": {"event_id": f"${to}"}})


def threaded(number, root, body, sender=BOB, to=None, falling_back=True):
    relation = {"rel_type": "m.thread", "event_id": f"${root}", "is_falling_back": falling_back}
    return message(number, body, sender, **relation, **({"m.in_reply_to": {"event_id": f"${to}"}} if to else {}))


def edit(number, of, body, sender=ANN):
    content = {
        "body": f"* {body}",
        "m.new_content": {"body": body},
        "m.relates_to": {"rel_type": "m.replace", "event_id": f"${of}"},
    }
    return event(number, content, sender)


def member(number, who, name, membership="join", **unsigned):
    content = {"membership": membership, "displayname": name}
    return event(number, content, who, "m.room.member", state_key=who, unsigned=unsigned)


def write(path, events, **about):
    whole = {"room_name": "Barn", "room_creator": "ann", "topic": "Hay", "export_date": "Monday", "exported_by": "ann"}
    path.write_text(json.dumps(whole | about | {"messages": events}, indent=2), encoding="utf-8")
    return path


def write_lines(path, events):
    path.write_text("".join(json.dumps(each) + "\n" for each in events), encoding="utf-8")
    return path


def one(tmp_path, *events, **options):
    (tree,), counts = read(matrix, write(tmp_path / "export.json", events), **options)
    return tree, counts


EVENTS = [member(1, ANN, "Ann"), member(2, BOB, None), message(3, "Rain? ☔"), reply(4, 3, f"> <{ANN}> Rain? ☔\n\nSoon")]


def test_export_of_element(tmp_path):
    path = write(tmp_path / "export.json", EVENTS)
    (tree,), counts = read(matrix, path)
    assert (tree.id, tree.meta) == ("Barn", {"topic": "Hay"})
    assert [(node.id, node.text, node.author, node.parents, node.kind) for node in tree.nodes] == [
        ("$1", "joined", "Ann", None, chat.SYSTEM),
        ("$2", "joined", "bob", None, chat.SYSTEM),
        ("$3", "Rain? ☔", "Ann", None, ""),
        ("$4", "Soon", "bob", (2,), ""),
    ]
    assert tree.nodes[2].time == 1_700_000_003.0
    assert counts.skipped == counts.kept == {}
    assert not matrix.refuses(path, path.read_bytes())


def test_raw_events(tmp_path):
    """JSON lines of several rooms, newest first as in servers' responses; or one such response."""
    other = [
        event(9, {"body": "moo"}, room_id="!shed:example.org"),
        event(8, {"name": "Shed"}, type="m.room.name", state_key="", room_id="!shed:example.org"),
    ]
    path = write_lines(tmp_path / "events.jsonl", [*EVENTS[::-1], *other])
    trees, counts = read(matrix, path)
    assert [(tree.id, [node.id for node in tree.nodes]) for tree in trees] == [
        ("!barn:example.org", ["$1", "$2", "$3", "$4"]),
        ("Shed", ["$9", "$8"]),
    ]
    assert trees[0].nodes[3].parents == (2,)
    assert counts.kept == {"clock_back": 1}
    answer = tmp_path / "answer.json"
    answer.write_text(json.dumps({"chunk": EVENTS, "start": "a", "end": "b"}))
    assert read(matrix, answer)[0][0].nodes == trees[0].nodes
    assert not any(matrix.refuses(each, each.read_bytes()) for each in (path, answer))


def test_names(tmp_path):
    events = [
        member(1, ANN, "Ann"),
        member(2, "@ann:example.com", "Ann"),
        message(3, "x"),
        message(4, "y", "@ann:example.com"),
        member(5, ANN, "Annie", prev_content={"membership": "join"}),
        member(6, ANN, None, "leave"),
        event(7, {"name": "Barn"}, type="m.room.name", state_key=""),
        message(8, "z", "@bob:example.org"),
        message(9, "w", "@bob:example.com"),
        message(10, "v", None),
    ]
    tree, _ = one(tmp_path, *events)
    assert [node.author for node in tree.nodes[2:]] == ["Ann", "ann", "Ann", "Ann", "Ann", "bob", "@bob:example.com", None]
    assert [node.text for node in tree.nodes[4:7]] == ["goes by Annie", "left", "m.room.name: Barn"]
    assert [node.author for node in one(tmp_path, *events, names="id")[0].nodes[2:4]] == [ANN, "@ann:example.com"]


def test_threads(tmp_path):
    """The fallback that a thread gives to clients without threads is not a reply."""
    tree, counts = one(
        tmp_path,
        message(1, "root"),
        threaded(2, 1, "first", to=1),
        threaded(3, 1, "second", to=2),
        threaded(4, 1, "to the first", to=2, falling_back=False),
        threaded(5, 77, "of another time"),
    )
    assert [node.parents for node in tree.nodes] == [None, (0,), (0,), (1,), None]
    assert counts.kept == {"missing_parent": 1}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (f"> <{ANN}> one\n> two\n\nanswer\n\n> kept", "answer\n\n> kept"),
        (f"> * <{ANN}> waves\n\nhello", "hello"),
        (f"> <{ANN}> only", ""),
        ("> a quotation of one's own\n\nanswer", "> a quotation of one's own\n\nanswer"),
        ("plain", "plain"),
    ],
)
def test_quotations_before_a_reply(tmp_path, body, text):
    assert one(tmp_path, message(1, "x"), reply(2, 1, body))[0].nodes[1].text == text
    assert one(tmp_path, message(1, body))[0].nodes[0].text == body


def test_edits(tmp_path):
    bundled = message(6, "old", BOB)
    bundled["unsigned"] = {"m.relations": {"m.replace": edit(9, 6, "new", BOB)}}
    tree, counts = one(
        tmp_path,
        message(1, "a"),
        edit(5, 1, "c"),
        edit(4, 1, "b"),
        edit(7, 1, "not yours", BOB),
        bundled,
        edit(8, 77, "alone"),
    )
    assert [(node.id, node.text) for node in tree.nodes] == [("$1", "c"), ("$6", "new"), ("$77", "alone")]
    assert counts.skipped == {"edit": 2, "bad_edit": 1}


def test_redactions(tmp_path):
    gone = event(2, {}, unsigned={"redacted_because": {"type": "m.room.redaction"}})
    tree, counts = one(
        tmp_path,
        message(1, "secret"),
        gone,
        reply(3, 1, "what?"),
        event(4, {"reason": "x"}, type="m.room.redaction", redacts="$1"),
        event(5, {"redacts": "$99"}, type="m.room.redaction"),
        event(6, {}, type="m.room.redaction"),
    )
    assert [(node.text, node.parents) for node in tree.nodes] == [("[deleted]", None), ("[deleted]", None), ("what?", (0,))]
    assert counts.skipped == {"deletion": 3}


def test_kinds_of_events(tmp_path):
    tree, counts = one(
        tmp_path,
        event(1, {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "x"}, type="m.room.encrypted"),
        event(2, {"msgtype": "m.bad.encrypted", "body": "** Unable to decrypt **"}),
        event(3, {"msgtype": "m.image", "body": "barn.png"}),
        event(4, {"org.matrix.msc1767.text": "When?"}, type="org.matrix.msc3381.poll.start"),
        event(5, {"m.relates_to": {"rel_type": "m.annotation", "event_id": "$3", "key": "👍"}}, type="m.reaction"),
        event(6, {"x": 1}, type="m.poll.response"),
        event(7, {"x": 1}, type="org.example.custom"),
        event(8, {"reason": "x"}, type="m.call.hangup"),
    )
    assert [(node.text, node.kind) for node in tree.nodes] == [
        ("", ""), ("", ""), ("barn.png", ""), ("When?", ""), ("m.call.hangup", chat.SYSTEM),
    ]  # fmt: skip
    assert counts.kept == {"undecryptable": 2}
    assert counts.skipped == {"reaction": 1, "vote": 1, "not_a_post": 1}


def test_actions(tmp_path):
    emote = event(1, {"msgtype": "m.emote", "body": "waves"})
    tree, _ = one(tmp_path, emote, edit(2, 1, "waves twice"), reply(3, 1, f"> * <{ANN}> waves twice\n\nhello"))
    assert [(node.kind, node.text, node.author) for node in tree.nodes] == [
        ("action", "waves twice", "ann"), ("", "hello", "bob"),
    ]  # fmt: skip


def test_invalid_events_are_counted(tmp_path):
    path = write_lines(tmp_path / "events.jsonl", [3, {"content": {}}, message(1, "x") | {"event_id": None}, message(2, "y")])
    path.write_text(path.read_text() + "{bad\n")
    (tree,), counts = read(matrix, path)
    assert [node.text for node in tree.nodes] == ["y"]
    assert counts.skipped == {"not_a_post": 3, "bad_json": 1}
    assert counts.examples["not_a_post"][0].startswith(f"{path}, line 1: ")


def test_clocks_of_servers_differ(tmp_path):
    """The room's order counts, unless an answer precedes its parent."""
    tree, counts = one(tmp_path, message(5, "a"), message(3, "b"), reply(6, 3, "c"))
    assert [node.text for node in tree.nodes] == ["a", "b", "c"]
    assert counts.kept == {"clock_back": 1}


def test_held_bytes_are_bounded(tmp_path, monkeypatch):
    path = write_lines(tmp_path / "events.jsonl", EVENTS)
    monkeypatch.setattr(base, "MAX_HELD_BYTES", 100)
    with pytest.raises(RamifyError, match=r"events\.jsonl and the files before it hold more than .* fewer events per file"):
        read(matrix, path)


def test_files_of_one_room_are_one_log(tmp_path):
    """Messages are in order of time, whatever the order of the files; duplicates are kept once."""
    sealed = event(4, {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "x"}, BOB, "m.room.encrypted")
    late = write(tmp_path / "late.json", [member(9, BOB, "Bob"), sealed, message(5, "c"), reply(6, 3, "d")], topic="Straw")
    early = write_lines(tmp_path / "early.jsonl", [*EVENTS[:3], reply(4, 3, "b"), message(5, "c"), edit(7, 3, "a")])
    other = write(tmp_path / "other.json", [message(1, "moo") | {"room_id": "!shed:example.org"}])
    unknown = write(tmp_path / "unknown.json", [{**message(1, "?"), "room_id": None}])
    trees, counts = read(matrix, late, early, other, unknown)
    assert [(tree.id, tree.meta["topic"]) for tree in trees] == [
        ("Barn", "Straw"), ("Barn (other)", "Hay"), ("Barn (unknown)", "Hay"),
    ]  # fmt: skip
    assert [(node.id, node.text, node.author, node.parents) for node in trees[0].nodes] == [
        ("$1", "joined", "Ann", None), ("$2", "joined", "Bob", None), ("$3", "a", "Ann", None),
        ("$4", "b", "Bob", (2,)), ("$5", "c", "Ann", None), ("$6", "d", "Bob", (2,)), ("$9", "joined", "Bob", None),
    ]  # fmt: skip
    assert counts.skipped == {"duplicate_id": 2, "edit": 1}
    assert counts.kept == {"undecryptable": 1}


def test_other_formats_are_refused():
    for other in ({"room_name": "x", "messages": []}, {"sender": "x", "content": "y", "event_id": "$1"}):
        assert matrix.refuses(Path("x.json"), json.dumps(other).encode())


WHOLE = [*EVENTS, threaded(5, 3, "x", to=4), edit(6, 3, "y"), event(7, {}, type="m.room.redaction", redacts="$3")]


@given(st.lists(altered(WHOLE), max_size=6), JUNK, st.booleans())
def test_junk_never_crashes(events, name, lines):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "export.json"
        written = write_lines(path, events or [name]) if lines else write(path, events, room_name=name, topic=name)
        trees, _ = read(matrix, written)
        for tree in trees:
            tree.to_json().encode()


def test_response_with_newest_events_first(tmp_path):
    path = write_lines(tmp_path / "events.jsonl", [event(number, {"body": f"word {number}"}) for number in (4, 3, 2, 1)])
    (tree,), counts = read(matrix, path)
    assert [node.id for node in tree.nodes] == ["$1", "$2", "$3", "$4"]
    assert counts.kept == {}
