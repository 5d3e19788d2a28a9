import json
from pathlib import Path

import pytest

from ramify.dataset import build
from ramify.readers import pushshift, reddit
from ramify.readers.base import Policy, ReadCounts

COMMENT = {"id": "c1", "link_id": "t3_s1", "parent_id": "t3_s1", "author": "ann", "created_utc": 100, "body": "hello"}
SUBMISSION = {"id": "s1", "title": "A title", "selftext": "Its body", "author": "bob", "created_utc": "90", "subreddit": "talk"}


def read(tmp_path, *records, **policies):
    path = tmp_path / "RC"
    path.write_bytes(b"".join(each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n" for each in records))
    counts = ReadCounts()
    rows = [row for batch in pushshift.read([path], counts, policy=Policy(**policies)) for row in batch.to_pylist()]
    assert counts.read == len(rows) + counts.skipped.total()
    return rows, counts


def test_comment_and_submission(tmp_path):
    rows, _ = read(tmp_path, COMMENT, COMMENT | {"id": "c2", "parent_id": "t1_c1", "author": "[deleted]"}, SUBMISSION)
    by_id = {row["id"]: row for row in rows}
    assert by_id["c1"] == {
        "id": "c1", "parent": "s1", "tree": "s1", "author": "ann", "time": 100.0, "kind": None, "text": "hello", "meta": None,
        "or_parent": None,
    }  # fmt: skip
    assert (by_id["c2"]["parent"], by_id["c2"]["author"]) == ("c1", None)
    root = by_id["s1"]
    assert (root["parent"], root["tree"], root["time"], root["text"]) == (None, "s1", 90.0, "A title\n\nIts body")
    assert json.loads(root["meta"]) == {"title": "A title", "subreddit": "talk"}


@pytest.mark.parametrize(
    ("title", "body", "text"),
    [
        ("Title", "[deleted]", "Title"),
        ("Title", "[removed]", "Title"),
        ("Title", "", "Title"),
        ("Title", None, "Title"),
        ("A &amp; B", "x &lt; y", "A & B\n\nx < y"),
        ("[deleted by user]", "[removed]", "[deleted by user]"),
        ("", "[deleted]", "[deleted]"),
    ],
)
def test_text_of_a_submission(tmp_path, title, body, text):
    rows, _ = read(tmp_path, SUBMISSION | {"title": title, "selftext": body})
    assert rows[0]["text"] == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("a &gt; b &amp;&amp; c &lt; d", "a > b && c < d"),
        ("&amp;gt; typed", "&gt; typed"),
        ("A&B &#x27;C&#39; &eacute;", "A&B 'C' é"),
        ("&amp;#x200B;", "&#x200B;"),
        (None, ""),
    ],
)
def test_entities_are_unescaped_once(tmp_path, body, text):
    rows, _ = read(tmp_path, COMMENT | {"body": body})
    assert rows[0]["text"] == text


@pytest.mark.parametrize(
    ("field", "value", "column", "expected"),
    [
        ("parent_id", 1296, "parent", "100"),
        ("parent_id", 1296, "or_parent", "1296"),
        ("parent_id", "", "parent", "s1"),
        ("parent_id", None, "parent", "s1"),
        ("parent_id", "c9", "parent", "c9"),
        ("link_id", 46655, "tree", "zzz"),
        ("link_id", "s1", "tree", "s1"),
        ("id", 35, "id", "z"),
        ("created_utc", "1.5", "time", 1.5),
        ("created_utc", 1.5, "time", 1.5),
        ("created_utc", None, "time", None),
        ("created_utc", 1600000000500, "time", 1600000000.5),
        ("created_utc", "yesterday", "time", None),
        ("created_utc", 10**400, "time", None),
        ("author", None, "author", None),
        ("author", 7, "author", None),
    ],
)
def test_fields_of_other_types(tmp_path, field, value, column, expected):
    rows, counts = read(tmp_path, COMMENT, COMMENT | {field: value})
    assert rows[1][column] == expected
    assert counts.kept["bad_time"] == (column == "time" and expected is None and value is not None)


def test_invalid_posts_are_counted(tmp_path):
    rows, counts = read(
        tmp_path,
        COMMENT,
        b"\n",
        b"{broken\n",
        b"[1, 2]\n",
        {"id": "x", "about": "something else"},
        COMMENT | {"id": None},
        b'{"id":"c3","link_id":"t3_s1","body":"bytes \xff and \\ud83d half a pair"}\n',
        b"\x00" * 50,
    )
    assert [row["text"] for row in rows] == ["hello", "bytes ÿ and \ufffd half a pair"]
    assert counts.skipped == {"bad_json": 3, "not_a_post": 2}
    assert counts.kept["odd_json"] == 1
    assert [example.split(":")[0].rsplit(", ", 1)[1] for example in counts.examples["bad_json"]] == [
        "line 3",
        "line 4",
        "line 8",
    ]
    assert [example.split(":")[0].rsplit(", ", 1)[1] for example in counts.examples["not_a_post"]] == ["line 5", "line 6"]


def test_deeply_nested_records_are_skipped(tmp_path):
    post = {"id": "p", "title": "t", "selftext": "", "subreddit": "s", "author": "u", "created_utc": 0}
    reply = {"id": "a", "link_id": "t3_p", "parent_id": "t3_p", "author": "u", "created_utc": 1, "body": "b"}
    deep = json.dumps(reply | {"id": "b"})[:-1] + ', "media": ' + "[" * 5000 + "]" * 5000 + "}"
    path = tmp_path / "dump.jsonl"
    path.write_text("\n".join([json.dumps(post), deep, json.dumps(reply)]))
    store = build([path], "pushshift", tmp_path / "out")
    assert store.num_nodes == 2
    assert store.info["skipped"] == {"bad_json": 1}


def test_missing_parents(tmp_path):
    orphan = COMMENT | {"id": "c2", "parent_id": None}
    rows, counts = read(tmp_path, SUBMISSION, COMMENT, orphan)
    assert [row["parent"] for row in rows] == [None, "s1", "s1"]
    assert (counts.kept, counts.examples["missing_parent"]) == (
        {"missing_parent": 1},
        [f"{tmp_path / 'RC'}, line 3: comment c2"],
    )
    rows, counts = read(tmp_path, SUBMISSION, orphan, COMMENT, missing_parent="drop")
    assert ([row["id"] for row in rows], counts.skipped) == (["s1", "c1"], {"missing_parent": 1})


@pytest.mark.parametrize(("parent", "expected"), [(36, "10"), (11, "11"), (10, "a"), (13, "s1")])
def test_numbers_as_parents(tmp_path, parent, expected):
    """The number that Reddit encodes in base 36, if it is there; otherwise the number itself."""
    path = tmp_path / "RC"
    comments = [COMMENT | {"id": own} for own in ("10", "11", "a")] + [COMMENT | {"id": "c", "parent_id": parent}]
    path.write_text("".join(json.dumps(post) + "\n" for post in [SUBMISSION, *comments]))
    store = build([path], "pushshift", tmp_path / "store")
    tree = store.tree(0)
    assert tree.nodes[tree.parent[tree.index("c")]].id == expected
    assert store.info["kept"].get("orphan", 0) == (expected == "s1")


def test_base36():
    assert [reddit.base36(number) for number in (0, 35, 36, 46655)] == ["0", "z", "10", "zzz"]


def test_matches(tmp_path):
    assert not pushshift.refuses(Path("x"), json.dumps(COMMENT).encode() + b"\n{")
    assert not pushshift.refuses(Path("x"), json.dumps(SUBMISSION).encode())
    assert pushshift.refuses(tmp_path, b"")
    (tmp_path / "RC_2005-12.zst").touch()
    assert not pushshift.refuses(tmp_path, b"")


@pytest.mark.data
def test_original_monthly_files(data_dir):
    """2 GiB windows, bzip2, and times as strings."""
    counts = ReadCounts()
    batches = list(pushshift.read([data_dir("pushshift-2006")], counts, policy=Policy()))
    assert counts.read == sum(map(len, batches)) == 13_836 + 572
    assert not counts.skipped
    assert all(batch.column("time").null_count == 0 for batch in batches)
