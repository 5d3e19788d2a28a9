import json

import pytest

from ramify import dataset, readers
from ramify.errors import RamifyError
from ramify.readers import reddit_api
from ramify.readers.base import Policy, ReadCounts


def thing(kind, **data):
    return {"kind": kind, "data": data}


def listing(*children):
    return thing("Listing", after=None, children=list(children))


def comment(name, parent, body="words", replies="", author="ann", time=5.0):
    fields = {"body": body, "author": author, "created_utc": time, "replies": replies}
    return thing("t1", id=name, parent_id=parent, link_id="t3_post", **fields)


POST = thing(
    "t3", id="post", title="Cats &amp; dogs", selftext="", author="bob", created_utc=1.0, subreddit="pets", num_comments=5
)
ANSWER = [
    listing(POST),
    listing(
        comment(
            "a", "t3_post", "1 &lt; 2", listing(comment("b", "t1_a", time=9.0), thing("more", count=7, children=["x", "y"]))
        ),
        comment("c", "t3_post", author="[deleted]"),
        thing("more", count=0, children=[], id="_"),
    ),
]


def read(path, *values, **options):
    path.write_text("\n".join(json.dumps(value) for value in values), encoding="utf-8")
    counts = ReadCounts()
    rows = [row for batch in reddit_api.read([path], counts, policy=Policy(), **options) for row in batch.to_pylist()]
    assert counts.read == len(rows) + sum(counts.skipped.values())
    return rows, counts


def links(rows):
    return {row["id"]: row["parent"] for row in rows}


def test_answer(tmp_path):
    rows, counts = read(tmp_path / "a.json", ANSWER)
    assert links(rows) == {"post": None, "a": "post", "b": "a", "c": "post"}
    assert {row["tree"] for row in rows} == {"post"}
    assert [row["text"] for row in rows] == ["Cats & dogs", "1 < 2", "words", "words"]
    assert [row["author"] for row in rows] == ["bob", "ann", "ann", None]
    assert [row["time"] for row in rows] == [1.0, 5.0, 9.0, 5.0]
    assert json.loads(rows[0]["meta"]) == {"title": "Cats & dogs", "subreddit": "pets"}
    assert counts.kept == {"more": 2, "more_comments": 7}
    assert counts.skipped == {}


def test_answer_written_over_many_lines(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(ANSWER, indent=2), encoding="utf-8")
    rows = [row for batch in reddit_api.read([tmp_path / "a.json"], ReadCounts(), policy=Policy()) for row in batch.to_pylist()]
    assert links(rows) == {"post": None, "a": "post", "b": "a", "c": "post"}


def test_unescape_is_an_option(tmp_path):
    rows, _ = read(tmp_path / "a.json", ANSWER, unescape=False)
    assert rows[0]["text"] == "Cats &amp; dogs"
    with pytest.raises(RamifyError, match=r"the option unescape='no' is invalid. Expected true or false"):
        dataset.build([tmp_path / "a.json"], "reddit-api", tmp_path / "store", options={"unescape": "no"})


NESTED = {
    "id": "p",
    "title": "T",
    "selftext": "body",
    "replies": [{"id": "a", "body": "x", "replies": [{"id": "b", "body": "y"}]}, {"id": "c", "body": "z", "replies": ""}],
}
FLAT = {
    "name": "t3_p",
    "title": "T",
    "selftext": "[deleted]",
    "comments": [
        {"id": "b", "parent_id": "t1_a", "body": "y", "replies": None},
        {"id": "a", "parent_id": "t3_p", "body": "x", "replies": {"kind": "Listing", "data": {"children": ["b"]}}},
    ],
}


def test_submissions_with_their_comments_inside(tmp_path):
    rows, _ = read(tmp_path / "a.jsonl", NESTED, FLAT)
    assert links(rows[:4]) == {"p": None, "a": "p", "b": "a", "c": "p"}
    assert links(rows[4:]) == {"p": None, "a": "p", "b": "a"}
    assert [rows[0]["text"], rows[4]["text"]] == ["T\n\nbody", "T"]
    assert all(row["tree"] == "p" for row in rows)


def test_more_children_and_lone_listings(tmp_path):
    more = {"json": {"errors": [], "data": {"things": [comment("d", "t1_c"), comment("e", "t1_d")]}}}
    rows, _ = read(tmp_path / "a.jsonl", listing(POST, thing("t3", id="q", title="Q")), more)
    assert links(rows) == {"post": None, "q": None, "d": "c", "e": "d"}
    assert {row["tree"] for row in rows[2:]} == {"post"}


@pytest.mark.parametrize(
    "value",
    [
        "text",
        3,
        {"kind": "t5", "data": {"display_name": "pets"}},
        {"body": "no id"},
        {"id": "x", "body": "no tree"},
        {"title": "no id"},
    ],
)
def test_invalid_posts_are_counted(tmp_path, value):
    rows, counts = read(tmp_path / "a.jsonl", NESTED, value)
    assert len(rows) == 4
    assert counts.skipped == {"not_a_post": 1}
    assert counts.examples["not_a_post"][0].startswith(f"{tmp_path / 'a.jsonl'}, line 2: ")


def test_half_surrogate_pairs(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "p", "title": "x\\ud83d y \\ud83d\\ude00"}', encoding="utf-8")
    (batch,) = reddit_api.read([tmp_path / "a.jsonl"], ReadCounts(), policy=Policy())
    assert batch["text"][0].as_py() == "x\ufffd y \U0001f600"


def test_deep_replies(tmp_path):
    depth = 5_000
    opening = '{"id":"p","title":"T","replies":' + "".join(
        f'{{"kind":"Listing","data":{{"children":[{{"kind":"t1","data":{{"id":"c{i}","body":"x","replies":'
        for i in range(depth)
    )
    (tmp_path / "a.json").write_text(opening + '""' + "}}]}}" * depth + "}", encoding="utf-8")
    store = dataset.build([tmp_path / "a.json"], "reddit-api", tmp_path / "store")
    assert store.depth.max() == depth


def test_dump_and_api_give_the_same_data(tmp_path):
    (tmp_path / "api.json").write_text(json.dumps(ANSWER), encoding="utf-8")
    posts = [POST, *(child for child in ANSWER[1]["data"]["children"][:2])]
    posts.append(posts[1]["data"]["replies"]["data"]["children"][0])
    dump = "\n".join(json.dumps(post["data"] | {"replies": ""}) for post in posts)
    (tmp_path / "dump.jsonl").write_text(dump, encoding="utf-8")
    assert readers.detect_format([tmp_path / "api.json"]) == "reddit-api"
    one = dataset.build([tmp_path / "api.json"], "reddit-api", tmp_path / "one")
    other = dataset.build([tmp_path / "dump.jsonl"], "pushshift", tmp_path / "other")
    assert one.hash == other.hash
