import tempfile
from pathlib import Path

import pytest
from chats import read
from hypothesis import given
from hypothesis import strategies as st

from ramify.readers import slack, slack_xml

HEAD = """<slack>
  <team_domain>bakers</team_domain>
  <channel_name>general</channel_name>
  <start_date>2018-01-01T00:00:00.5</start_date>
  <end_date>2018-06-01T00:00:00</end_date>
"""


def message(conversation, ts, user, text):
    return f'<message conversation_id="{conversation}">\n<ts>{ts}</ts><user>{user}</user><text>{text}</text>\n</message>\n'


MESSAGES = [
    message(1, "2018-01-02T10:00:00.250000", "Ann", "rye &amp;gt; wheat 🥖"),
    message(2, "2018-01-02T10:01:00.000000", "Bob", "&lt;@Ann&gt; see &lt;https://example.com|this&gt;"),
    message(1, "2018-01-02T10:00:30.000000", "", ""),
]


def write(path, messages=MESSAGES, end="</slack>"):
    path.write_text(HEAD + "".join(messages) + end, encoding="utf-8")
    return path


def test_channel(tmp_path):
    path = write(tmp_path / "a.xml")
    (tree,), counts = read(slack_xml, path)
    assert tree.id == "bakers/general"
    assert tree.meta == {"team": "bakers", "channel": "general", "start": "2018-01-01T00:00:00.5", "end": "2018-06-01T00:00:00"}
    assert [(node.id, node.author, node.text, node.parents, node.label) for node in tree.nodes] == [
        ("1", "Ann", "rye > wheat 🥖", None, {"conversation": "1"}),
        ("2", "Bob", "@Ann see this", None, {"conversation": "2"}),
        ("3", None, "", None, {"conversation": "1"}),
    ]
    assert tree.nodes[0].time == 1_514_887_200.25
    assert (counts.skipped, counts.kept) == ({}, {"clock_back": 1})
    assert not slack_xml.refuses(path, path.read_bytes())
    assert slack.refuses(path, path.read_bytes())


def test_years_of_one_channel(tmp_path):
    trees, _ = read(slack_xml, write(tmp_path / "a.xml"), write(tmp_path / "b.xml"))
    assert [tree.id for tree in trees] == ["bakers/general", "bakers/general/2018-01-01"]


@pytest.mark.parametrize(
    ("messages", "end", "kept"),
    [
        (MESSAGES, "", 3),
        ([*MESSAGES[:1], "<oops"], "</slack>", 1),
        ([], "<a></b>", 0),
        ([MESSAGES[0], MESSAGES[1][:30]], "", 1),
    ],
)
def test_malformed_files(tmp_path, messages, end, kept):
    trees, counts = read(slack_xml, write(tmp_path / "a.xml", messages, end))
    assert sum(map(len, trees)) == kept
    assert counts.skipped == {"bad_xml": 1}
    assert "a.xml, line" in counts.examples["bad_xml"][0]


def test_other_xml(tmp_path):
    (tmp_path / "a.xml").write_text('<posts><message conversation_id="1"/></posts>')
    assert read(slack_xml, tmp_path / "a.xml")[1].skipped == {"bad_xml": 1}
    assert slack_xml.refuses(tmp_path / "a.xml", (tmp_path / "a.xml").read_bytes())


def test_invalid_times_are_counted(tmp_path):
    (tree,), counts = read(slack_xml, write(tmp_path / "a.xml", [message(1, "noon", "Ann", "x")]))
    assert tree.nodes[0].time is None
    assert counts.kept == {"bad_time": 1}


PARTS = [*MESSAGES, "<message>", "</message>", "<ts>", "</ts>", "<text/>", "junk", "<user><b>x</b></user>", "&lt;", "&#xD800;"]


@given(st.lists(st.sampled_from(PARTS) | st.text(), max_size=6))
def test_junk_never_crashes(parts):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.xml"
        path.write_bytes((HEAD + "".join(parts) + "</slack>").encode("utf-8", "replace"))
        read(slack_xml, path)


@pytest.mark.data
def test_published_channels(data_dir):
    trees, counts = read(slack_xml, data_dir("slack-swe"))
    assert [len(tree) for tree in trees] == [16_057, 14_510, 6_757, 9_709, 5_706]
    assert len({tree.id for tree in trees}) == 5
    assert not counts.skipped
    assert not counts.kept
    assert all(node.label and node.author and node.text and node.time for tree in trees for node in tree.nodes)
