import json
import tempfile
import zipfile
from pathlib import Path

import pytest
from chats import read
from hypothesis import given
from hypothesis import strategies as st
from junk import JUNK, altered

from ramify.errors import RamifyError
from ramify.readers import base, chat, slack
from ramify.readers.base import ReadCounts

USERS = [
    {"id": "U1", "name": "ann", "profile": {"display_name": "Ann", "real_name": "Ann Oak"}},
    {"id": "U2", "name": "bob", "real_name": "Bob Elm", "profile": {"display_name": ""}},
    {"id": "U3", "name": "ann2", "profile": {"display_name": "Ann"}},
]
CHANNELS = [{"id": "C1", "name": "kitchen", "topic": {"value": "Bread & more"}, "purpose": {"value": ""}}]


def ts(number):
    return f"{1_700_000_000 + number}.000100"


def message(number, text="", user="U1", **more):
    return {"type": "message", "user": user, "ts": ts(number), "text": text} | more


FIRST = [
    message(1, "Who has yeast?", thread_ts=ts(1), reply_count=2, replies=[{"user": "U2", "ts": ts(90_000)}]),
    message(2, "<@U2> joined", user="U2", subtype="channel_join"),
    message(3, "I do", user="U2", thread_ts=ts(1), parent_user_id="U1"),
]
SECOND = [
    message(90_001, "Thanks <@U2>", thread_ts=ts(1), subtype="thread_broadcast", root=FIRST[0]),
    message(90_000, "Two packets", user="U2", thread_ts=ts(1)),
]


def write(folder, days=None, users=USERS, channels=CHANNELS):
    for name, content in (("users.json", users), ("channels.json", channels)):
        if content is not None:
            folder.mkdir(exist_ok=True, parents=True)
            (folder / name).write_text(json.dumps(content), encoding="utf-8")
    days = {"kitchen/2023-11-14": FIRST, "kitchen/2023-11-15": SECOND} if days is None else days
    for day, messages in days.items():
        path = folder / f"{day}.json"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(messages if isinstance(messages, str) else json.dumps(messages), encoding="utf-8")
    return folder


def pack(folder, path, top=""):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*.json")):
            archive.write(file, f"{top}{file.relative_to(folder)}")
    return path


def one_day(tmp_path, *messages, **options):
    (tree,), counts = read(slack, write(tmp_path / "export", {"kitchen/2023-11-14": list(messages)}), **options)
    return tree, counts


def test_days_are_joined_and_replies_answer_the_first_message_of_their_thread(tmp_path):
    (tree,), counts = read(slack, write(tmp_path / "export"))
    assert (tree.id, tree.meta) == ("kitchen", {"topic": "Bread & more"})
    assert [(node.text, node.author, node.parents, node.kind) for node in tree.nodes] == [
        ("Who has yeast?", "Ann", None, ""),
        ("@Bob Elm joined", "Bob Elm", None, chat.SYSTEM),
        ("I do", "Bob Elm", (0,), ""),
        ("Two packets", "Bob Elm", (0,), ""),
        ("Thanks @Bob Elm", "Ann", (0,), ""),
    ]
    assert [node.id for node in tree.nodes] == [ts(1), ts(2), ts(3), ts(90_000), ts(90_001)]
    assert tree.nodes[0].time == 1_700_000_001.0001
    assert counts.kept == counts.skipped == {}


def test_forms_of_an_export(tmp_path):
    folder = write(tmp_path / "export")
    expected, _ = read(slack, folder)
    packed = pack(folder, tmp_path / "export.zip")
    wrapped = pack(folder, tmp_path / "wrapped.zip", "My team/")
    days = sorted((folder / "kitchen").iterdir())
    for paths in ([packed], [wrapped], [folder / "kitchen"], days, days[::-1]):
        assert read(slack, *paths)[0] == expected
        head = b"" if paths[0].is_dir() else paths[0].read_bytes()[: 1 << 16]
        assert not slack.refuses(paths[0], head)
    assert not slack.refuses(folder, b"")
    counts = ReadCounts()
    list(slack.logs([packed], counts))
    assert 0 < counts.bytes <= packed.stat().st_size


def test_single_day_file(tmp_path):
    days = {"kitchen/2023-11-14": FIRST}
    (tree,), _ = read(slack, write(tmp_path / "export", days, users=None, channels=None) / "kitchen" / "2023-11-14.json")
    assert (tree.id, tree.nodes[0].author, tree.nodes[1].text) == ("kitchen", "U1", "@U2 joined")
    whole = tmp_path / "garden.json"
    whole.write_text(json.dumps(FIRST))
    assert read(slack, whole)[0][0].id == "garden"


def test_kinds_of_channels_and_several_exports(tmp_path):
    days = {"kitchen/2023-11-14": FIRST, "D9/2023-11-14": [message(1, "psst")], "C7/2023-11-14": [message(1, "secret")]}
    one = write(tmp_path / "one", days)
    (one / "groups.json").write_text(json.dumps([{"id": "C7", "name": "cellar"}]))
    (one / "dms.json").write_text(json.dumps([{"id": "D9", "members": ["U1", "U2"]}]))
    other = write(tmp_path / "other")
    trees, _ = read(slack, one, other)
    assert [tree.id for tree in trees] == ["cellar", "D9", "kitchen", "other/kitchen"]


@pytest.mark.parametrize(("names", "authors"), [("name", ["Ann", "Bob Elm", "ann2", "U9"]), ("id", ["U1", "U2", "U3", "U9"])])
def test_authors(tmp_path, names, authors):
    """Two accounts never share a name; accounts missing from users.json go by their id. Texts use the same names."""
    messages = [message(user, f"<@U{user}>", user=f"U{user}") for user in (1, 2, 3, 9)]
    tree, _ = one_day(tmp_path, *messages, names=names)
    assert [node.author for node in tree.nodes] == authors
    assert [node.text for node in tree.nodes] == [f"@{author}" for author in authors]


def test_messages_without_a_user(tmp_path):
    bots = [
        {"subtype": "bot_message", "bot_id": "B1", "username": "bridge: eve", "text": "x"},
        {"bot_id": "B2", "bot_profile": {"name": "Builder"}, "text": "x"},
        {"bot_id": "B3", "text": "x"},
        {"text": "x"},
        {"user": "U8", "user_profile": {"display_name": "Guest"}, "text": "x"},
    ]
    messages = [{"type": "message", "ts": ts(number)} | bot for number, bot in enumerate(bots)]
    assert [node.author for node in one_day(tmp_path, *messages)[0].nodes] == ["bridge: eve", "Builder", "B3", None, "Guest"]
    assert [node.author for node in one_day(tmp_path, *messages, names="id")[0].nodes] == ["B1", "B2", "B3", None, "U8"]


def test_replies_without_their_thread(tmp_path):
    tree, counts = one_day(tmp_path, message(2, "yes", thread_ts=ts(1)), message(3, "no"))
    assert [node.parents for node in tree.nodes] == [None, None]
    assert counts.kept == {"missing_thread": 1}
    assert counts.examples["missing_thread"][0].endswith("2023-11-14.json, message 1")


def test_stale_lists_of_replies(tmp_path):
    """Such lists name deleted replies, lack existing ones, or are the only sign of a reply."""
    replies = [{"ts": ts(5)}, {"user": "U2", "ts": ts(2)}, {"user": "U1"}, None]
    tree, counts = one_day(
        tmp_path, message(1, "?", replies=replies), message(2, "!", user="U2"), message(3, "x", replies="none")
    )
    assert [node.parents for node in tree.nodes] == [None, (0,), None]
    assert not counts.kept


def test_edits(tmp_path):
    changed = {"type": "message", "subtype": "message_changed", "ts": ts(9), "hidden": True}
    tree, counts = one_day(
        tmp_path,
        message(1, "teh bread"),
        changed
        | {"message": message(1, "the bread", edited={"user": "U1", "ts": ts(9)}), "previous_message": message(1, "teh bread")},
        message(2, "now", edited={"user": "U1", "ts": ts(8)}),
        changed | {"message": message(2, "then", edited={"user": "U1", "ts": ts(7)})},
        changed | {"message": message(3, "alone")},
        changed | {"message": "?"},
    )
    assert [(node.id, node.text, node.time) for node in tree.nodes] == [
        (ts(1), "the bread", 1_700_000_001.0001),
        (ts(2), "now", 1_700_000_002.0001),
        (ts(3), "alone", 1_700_000_003.0001),
        (ts(9), "", 1_700_000_009.0001),
    ]
    assert counts.skipped == {"edit": 2}


def test_deleted_messages_keep_their_place(tmp_path):
    tree, counts = one_day(
        tmp_path,
        message(1, "oops"),
        message(2, "This message was deleted.", user="USLACKBOT", subtype="tombstone", thread_ts=ts(2)),
        message(3, "why?", thread_ts=ts(2)),
        message(4, "hidden by rule", user="UREVOKEDU", subtype="ekm_access_denied"),
        {
            "type": "message",
            "subtype": "message_deleted",
            "ts": ts(9),
            "deleted_ts": ts(1),
            "previous_message": message(1, "oops"),
        },
        {"type": "message", "subtype": "message_deleted", "ts": ts(9), "deleted_ts": ts(77)},
    )
    assert [(node.text, node.author) for node in tree.nodes] == [
        ("[deleted]", "Ann"), ("[deleted]", None), ("why?", "Ann"), ("[deleted]", None),
    ]  # fmt: skip
    assert tree.nodes[2].parents == (1,)
    assert counts.skipped == {"deletion": 2}


def test_copies_and_shared_times(tmp_path):
    """A broadcast reply is in the thread and in the channel; programs that truncate times give two messages the same time."""
    tree, counts = one_day(
        tmp_path,
        message(1, "root"),
        message(2, "both", thread_ts=ts(1)),
        message(2, "both", subtype="thread_broadcast"),
        message(3, "one"),
        message(3, "two", user="U2"),
        message(3, "three"),
    )
    assert [(node.id, node.text, node.parents) for node in tree.nodes] == [
        (ts(1), "root", None),
        (ts(2), "both", (0,)),
        (ts(3), "one", None),
        (f"{ts(3)}/2", "two", None),
        (f"{ts(3)}/3", "three", None),
    ]
    assert (counts.skipped, counts.kept) == ({"duplicate_id": 1}, {"shared_id": 2})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<@U1> and <@U2|robert> and <@U9|guest> and <@U8>", "@Ann and @Bob Elm and @guest and @U8"),
        ("see <#C1|kitchen> or <#C2>", "see #kitchen or #C2"),
        ("<!here> <!channel|channel> <!subteam^S1|@bakers> <!everyone>", "@here @channel @bakers @everyone"),
        ("<!date^1700000000^{date}|Nov 14>", "Nov 14"),
        ("<https://example.com/a?b=1&amp;c=2> <https://example.com|the page>", "https://example.com/a?b=1&c=2 the page"),
        ("<mailto:ann@example.com|ann@example.com>", "ann@example.com"),
        ("a &lt;b&gt; &amp;amp; c", "a <b> &amp; c"),
        ("1 < 2 > 0 <b> &copy; 🥖", "1 < 2 > 0 <b> &copy; 🥖"),
    ],
)
def test_marks(tmp_path, text, expected):
    assert one_day(tmp_path, message(1, text))[0].nodes[0].text == expected


def test_messages_without_text(tmp_path):
    section = {
        "type": "rich_text_section",
        "elements": [
            {"type": "text", "text": "ask "},
            {"type": "user", "user_id": "U2"},
            {"type": "text", "text": " at "},
            {"type": "link", "url": "https://example.com"},
            {"type": "emoji", "name": "bread"},
        ],
    }
    listed = {
        "type": "rich_text_list",
        "elements": [{"type": "rich_text_section", "elements": [{"type": "text", "text": "one"}]}],
    }
    more = [{"type": "section", "text": {"type": "mrkdwn", "text": "by <@U1>"}}, {"type": "divider"}]
    tree, _ = one_day(
        tmp_path,
        message(1, files=[{"title": "Loaf", "name": "loaf.png"}, {"name": "rye.png"}, {"mode": "tombstone"}]),
        message(2, blocks=[{"type": "rich_text", "elements": [section, listed]}, *more]),
        message(3, attachments=[{"fallback": "not this", "title": "Build", "text": "passed &amp; done"}, {"fallback": "this"}]),
        message(4, text=None),
        message(5, blocks=[{"type": ["odd"]}], attachments={}, files="x"),
    )
    assert [node.text for node in tree.nodes] == [
        "[Loaf]\n[rye.png]",
        "ask @Bob Elm at https://example.com:bread:\none\nby @Ann",
        "Build\npassed & done\nthis",
        "",
        "",
    ]


def test_invalid_messages_are_counted(tmp_path):
    days = {
        "kitchen/2023-11-14": [3, {"text": "no time"}, message(1, "x") | {"ts": "noon"}, message(2, "y")],
        "kitchen/2023-11-15": "[{",
    }
    (tree,), counts = read(slack, write(tmp_path / "export", days))
    assert [node.text for node in tree.nodes] == ["y"]
    assert counts.skipped == {"not_a_post": 3, "bad_json": 1}
    assert counts.examples["not_a_post"][0].endswith('2023-11-14.json, message 1: not an object with a time "ts"')
    assert "2023-11-15.json" in counts.examples["bad_json"][0]


def encrypted(path):
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := data.find(mark, at + 1)) >= 0:
            data[at + offset] |= 1
    path.write_bytes(data)


def truncated(path):
    path.write_bytes(path.read_bytes()[:-30])


def damaged(path):
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("kitchen/2023-11-14.json").header_offset
    data[start + 60 : start + 90] = bytes(30)
    path.write_bytes(data)


def test_actions(tmp_path):
    """Actions may be in threads, like other messages."""
    tree, _ = one_day(
        tmp_path,
        message(1, "Tea?"),
        message(2, "nods", subtype="me_message"),
        message(3, "puts the kettle on", subtype="me_message", thread_ts=ts(1)),
        {"type": "message", "subtype": "message_changed", "ts": ts(4), "message": message(2, "shrugs", subtype="me_message")},
    )
    assert [(node.kind, node.text, node.parents) for node in tree.nodes] == [
        ("", "Tea?", None), ("action", "shrugs", None), ("action", "puts the kettle on", (0,)),
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_file_in_an_archive(tmp_path):
    """Appending to an archive does this. Unpacking keeps the last copy, and so does the reader."""
    path = pack(write(tmp_path / "export"), tmp_path / "export.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("kitchen/2023-11-14.json", json.dumps([message(1, "Who has salt?")]))
        archive.writestr("users.json", json.dumps([{"id": "U1", "name": "annie"}]))
    (tree,), counts = read(slack, path)
    assert (tree.nodes[0].text, tree.nodes[0].author) == ("Who has salt?", "annie")
    assert counts.skipped == {"doubled_file": 1}
    assert counts.examples["doubled_file"] == [f"{path}: kitchen/2023-11-14.json: only the last file of this name is read"]


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (encrypted, r"export\.zip is encrypted \(users\.json\).*Unpack it with its password"),
        (truncated, r"export\.zip is not a complete ZIP file .*Download the export again"),
        (damaged, r"export\.zip is damaged \(kitchen/2023-11-14\.json: .*Download the export again"),
    ],
)
def test_bad_archives(tmp_path, harm, message):
    path = pack(write(tmp_path / "export"), tmp_path / "export.zip")
    harm(path)
    assert not slack.refuses(path, path.read_bytes())
    with pytest.raises(RamifyError, match=message):
        read(slack, path)


def test_held_bytes_are_bounded(tmp_path, monkeypatch):
    """The unpacked size counts, however small the archive; and no file escapes the archive, whatever its name."""
    days = {"kitchen/2023-11-14": [message(1, "a" * 100_000)]}
    path = pack(write(tmp_path / "export", days), tmp_path / "export.zip", "../../evil/")
    before = sorted(tmp_path.rglob("*"))
    assert len(read(slack, path)[0][0]) == 1
    assert sorted(tmp_path.rglob("*")) == before
    monkeypatch.setattr(base, "MAX_HELD_BYTES", 50_000)
    with pytest.raises(RamifyError, match=r"export\.zip holds for one channel more than .* Export a shorter period"):
        read(slack, path)


def test_other_folders_and_archives_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme.txt", "hello")
    folder = write(tmp_path / "logs", {"app/2024-01-31": [{"level": "info", "message": "started"}]}, None, None)
    assert slack.refuses(tmp_path / "other.zip", (tmp_path / "other.zip").read_bytes())
    assert slack.refuses(folder, b"")
    assert slack.refuses(Path("x.json"), b'[{"type": "message", "timestamp": "1700000000.000100"}]')
    with pytest.raises(RamifyError, match=r"other\.zip is not a Slack export: there is no channels\.json in it"):
        read(slack, tmp_path / "other.zip")


def test_descriptive_files_may_be_missing_but_not_damaged(tmp_path):
    folder = write(tmp_path / "export", users=None, channels=None)
    assert read(slack, folder)[0][0].nodes[0].author == "U1"
    (folder / "users.json").write_text("[{")
    with pytest.raises(RamifyError, match=r"users\.json is not valid JSON .* remove it to read without it"):
        read(slack, folder)


def test_half_surrogate_pairs(tmp_path):
    half = "\ud83d"
    channels = [{"name": "kitchen", "topic": {"value": half}}]
    (tree,), _ = read(
        slack, write(tmp_path / "export", {"kitchen/2023-11-14": [message(1, half, user=half)]}, channels=channels)
    )
    assert (tree.nodes[0].text, tree.nodes[0].author, tree.meta) == ("\ufffd", "\ufffd", {"topic": "\ufffd"})


WHOLE = [
    message(1, "x", thread_ts=ts(1), subtype="", replies=[{"ts": ts(2)}], edited={"ts": ts(3)}, bot_id="B1", username="bot"),
    message(2, "", thread_ts=ts(1), blocks=[{"type": "text", "text": "a"}], attachments=[{"text": "b"}], files=[{"name": "c"}]),
    {"type": "message", "subtype": "message_changed", "ts": ts(4), "message": message(1, "y", subtype="tombstone")},
    {"type": "message", "subtype": "message_deleted", "ts": ts(5), "deleted_ts": ts(2)},
]


@given(st.lists(altered(WHOLE), max_size=6), st.lists(altered(USERS), max_size=3), JUNK)
def test_junk_never_crashes(messages, users, channels):
    with tempfile.TemporaryDirectory() as folder:
        trees, _ = read(slack, write(Path(folder) / "export", {"kitchen/2023-11-14": messages}, users, [channels]))
        for tree in trees:
            tree.to_json().encode()
