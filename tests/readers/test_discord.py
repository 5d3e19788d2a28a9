import json
import tempfile
from pathlib import Path

import pytest
from chats import read
from hypothesis import given
from hypothesis import strategies as st
from junk import JUNK, altered

from ramify.errors import RamifyError
from ramify.readers import base, chat, discord

ANN = {"id": "11", "name": "ann_oak", "discriminator": "0000", "nickname": "Ann", "isBot": False}
BOB = {"id": "12", "name": "bob", "discriminator": "0000", "nickname": "Bob", "isBot": False}
CHANNEL = {"id": "900", "type": "GuildTextChat", "categoryId": "1", "category": "Talk", "name": "garden", "topic": "Plants"}


def message(number, content="", author=ANN, type="Default", **more):
    return {
        "id": str(number),
        "type": type,
        "timestamp": f"2024-01-31T10:{number:02}:00.123+00:00",
        "timestampEdited": None,
        "isPinned": False,
        "content": content,
        "author": author,
        "attachments": [],
        "embeds": [],
        "stickers": [],
        "mentions": [],
    } | more


def reply(number, to, content="", author=BOB, channel="900"):
    reference = {"type": "Default", "messageId": str(to), "channelId": channel, "guildId": "1"}
    return message(number, content, author, "Reply", reference=reference)


def export(messages, **channel):
    guild = {"id": "1", "name": "Allotment", "iconUrl": "https://example.com/icon.png"}
    range_ = {"after": None, "before": None}
    about = {"guild": guild, "channel": CHANNEL | channel, "dateRange": range_, "exportedAt": "2024-02-01T00:00:00+00:00"}
    return about | {"messages": messages, "messageCount": len(messages)}


def write(path, messages, **channel):
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps(export(messages, **channel), indent=2), encoding="utf-8")
    return path


MESSAGES = [
    message(1, "slugs 🐌"),
    message(2, "hello", BOB),
    reply(3, 1, "beer traps"),
    message(4, "Pinned a message.", type="ChannelPinnedMessage"),
]


def test_channel(tmp_path):
    path = write(tmp_path / "garden.json", MESSAGES)
    (tree,), counts = read(discord, path)
    assert (tree.id, tree.meta) == ("garden", {"guild": "Allotment", "topic": "Plants"})
    assert [(node.id, node.text, node.author, node.parents, node.kind) for node in tree.nodes] == [
        ("1", "slugs 🐌", "Ann", None, ""),
        ("2", "hello", "Bob", None, ""),
        ("3", "beer traps", "Bob", (0,), ""),
        ("4", "Pinned a message.", "Ann", None, chat.SYSTEM),
    ]
    assert tree.nodes[0].time == 1_706_695_260.123
    assert counts.skipped == counts.kept == {}
    assert not discord.refuses(path, path.read_bytes())


@pytest.mark.parametrize(
    "kind",
    ["RecipientAdd", "RecipientRemove", "Call", "ChannelNameChange", "GuildMemberJoin", "ThreadCreated", "8", "24"],
)
def test_system_messages(tmp_path, kind):
    pointing = message(2, "Started a thread.", type=kind, reference={"messageId": "1", "channelId": "900"})
    (tree,), _ = read(discord, write(tmp_path / "a.json", [message(1, "x"), pointing]))
    assert (tree.nodes[1].kind, tree.nodes[1].parents) == (chat.SYSTEM, None)


def test_names(tmp_path):
    twin = {"id": "13", "name": "ann_elm", "nickname": "Ann"}
    messages = [message(1, "x"), message(2, "y", twin), message(3, "z", {"name": "ghost"}), message(4, "w", None)]
    path = write(tmp_path / "a.json", messages)
    assert [node.author for node in read(discord, path)[0][0].nodes] == ["Ann", "ann_elm", "ghost", None]
    assert [node.author for node in read(discord, path, names="id")[0][0].nodes] == ["11", "13", "ghost", None]


def test_unnamed_channel_takes_the_name_of_its_file(tmp_path):
    path = write(tmp_path / "garden (part 2).json", MESSAGES, name=None)
    (tree,), _ = read(discord, path)
    assert tree.id == "garden (part 2)"


def test_references_other_than_replies(tmp_path):
    forward = message(
        2, reference={"type": "Forward", "messageId": "1", "channelId": "900"}, forwardedMessage={"content": "old news"}
    )
    crossposted = message(3, "news", reference={"messageId": "1", "channelId": "77"})
    command = message(4, "done", type="20", reference={"messageId": "1", "channelId": "900"})
    (tree,), counts = read(discord, write(tmp_path / "a.json", [message(1, "x"), forward, crossposted, command]))
    assert [(node.text, node.parents) for node in tree.nodes] == [
        ("x", None), ("old news", None), ("news", None), ("done", (0,)),
    ]  # fmt: skip
    assert not counts.kept


def test_partial_exports(tmp_path):
    (tree,), counts = read(
        discord, write(tmp_path / "a.json", [reply(3, 1, "yes"), reply(4, 3, "no"), message(5, type="Reply")])
    )
    assert [node.parents for node in tree.nodes] == [None, (0,), None]
    assert counts.kept == {"missing_parent": 1}
    assert counts.examples["missing_parent"] == [f"{tmp_path / 'a.json'}, message 1"]


def test_threads(tmp_path):
    """In a forum the first message has the thread's id; elsewhere a message represents its counterpart in the parent
    channel."""
    forum = [message(10, "My beans"), message(11, "nice"), reply(12, 11, "thanks", channel="10")]
    (tree,), _ = read(discord, write(tmp_path / "forum.json", forum, id="10", type="GuildPublicThread", name="beans"))
    assert [node.parents for node in tree.nodes] == [(), (0,), (1,)]
    starter = message(20, type="21", reference={"messageId": "5", "channelId": "900"})
    (tree,), counts = read(
        discord, write(tmp_path / "thread.json", [starter, message(21, "so"), reply(22, 21)], id="5", type="GuildPublicThread")
    )
    assert [node.parents for node in tree.nodes] == [None, (0,), (1,)]
    (tree,), _ = read(discord, write(tmp_path / "cut.json", [message(21, "so")], id="6", type="GuildPrivateThread"))
    assert tree.nodes[0].parents is None
    assert not counts.kept


def test_partitions_of_a_channel_are_one_log(tmp_path):
    """The order of the names is free, and parts may overlap."""
    folder = tmp_path / "export"
    write(
        folder / "garden [part 10].json",
        [reply(3, 1, "three"), message(4, "four", timestampEdited="2024-02-01T00:00:00+00:00")],
    )
    write(folder / "garden [part 2].json", [message(1, "one"), message(2, "two"), message(4, "for")])
    write(folder / "shed.json", [message(1, "elsewhere")], id="901", name="garden")
    (folder / "garden.json_Files").mkdir()
    (folder / "garden.json_Files" / "sent.json").write_text('{"not": "ours"}')
    assert not discord.refuses(folder, b"")
    trees, counts = read(discord, folder)
    assert [(tree.id, [node.text for node in tree.nodes]) for tree in trees] == [
        ("garden", ["one", "two", "three", "four"]),
        ("Allotment/garden", ["elsewhere"]),
    ]
    assert trees[0].nodes[2].parents == (0,)
    assert (counts.skipped, counts.kept) == ({"duplicate_id": 1}, {})


def test_newest_first(tmp_path):
    (tree,), counts = read(discord, write(tmp_path / "a.json", [reply(3, 2, "c"), reply(2, 1, "b"), message(1, "a")]))
    assert [(node.text, node.parents) for node in tree.nodes] == [("a", None), ("b", (0,)), ("c", (1,))]
    assert not counts.kept


def test_reply_earlier_than_its_parent(tmp_path):
    (tree,), counts = read(discord, write(tmp_path / "a.json", [reply(1, 2, "b"), reply(2, 2, "a")]))
    assert [node.parents for node in tree.nodes] == [None, ()]
    assert counts.kept == {"late_parent": 1, "own_parent": 1}


def test_messages_without_content(tmp_path):
    messages = [
        message(1, attachments=[{"fileName": "bean.png", "url": "x"}, {"fileName": "pea.png"}]),
        message(2, embeds=[{"title": "Seeds", "description": "On sale"}, {"title": ""}]),
        message(3, stickers=[{"name": "Wave"}]),
        message(4),
    ]
    (tree,), _ = read(discord, write(tmp_path / "a.json", messages))
    assert [node.text for node in tree.nodes] == ["[bean.png]\n[pea.png]", "Seeds\nOn sale", "[Wave]", ""]


def test_unformatted_marks(tmp_path):
    messages = [message(1, "<@12> <@!12> <@99> <:bean:77> <a:dig:78> <3", mentions=[BOB])]
    assert read(discord, write(tmp_path / "a.json", messages))[0][0].nodes[0].text == "@Bob @Bob @99 :bean: :dig: <3"


def test_invalid_messages_are_counted(tmp_path):
    path = write(tmp_path / "a.json", [3, message(1, "x"), {"content": "no id"}])
    other = tmp_path / "b.json"
    other.write_text('{"messages": 3}\n{bad\n')
    (tree,), counts = read(discord, path, other)
    assert len(tree) == 1
    assert counts.skipped == {"not_a_post": 3, "bad_json": 1}


def test_held_bytes_are_bounded(tmp_path, monkeypatch):
    one, two = (write(tmp_path / f"{name}.json", MESSAGES) for name in "ab")
    monkeypatch.setattr(base, "MAX_HELD_BYTES", one.stat().st_size + 100)
    read(discord, one)
    with pytest.raises(RamifyError, match=r"b\.json and the parts before it have more than"):
        read(discord, one, two)


def test_other_formats_are_refused(tmp_path):
    for other in (
        {"messages": [message(1)]},
        {"guild": {"id": "1"}, "messages": []},
        {"name": "x", "type": "personal_chat", "id": 1},
    ):
        assert discord.refuses(Path("x.json"), json.dumps(other).encode())
    assert discord.refuses(tmp_path, b"")


WHOLE = [
    *MESSAGES,
    message(5, attachments=[{"fileName": "x"}], embeds=[{"title": "x"}], mentions=[BOB], forwardedMessage={"content": "y"}),
    message(6, "<@12>", mentions=[BOB], type="21"),
]


@given(
    st.lists(altered(WHOLE), max_size=6),
    st.sampled_from([{}, {"type": "GuildPublicThread", "id": "1"}]) | altered([CHANNEL]),
    JUNK,
)
def test_junk_never_crashes(messages, channel, guild):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        path.write_text(json.dumps(export(messages) | {"channel": channel, "guild": guild}), encoding="utf-8")
        trees, _ = read(discord, path)
        for tree in trees:
            tree.to_json().encode()
