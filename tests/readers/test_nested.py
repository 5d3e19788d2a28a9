import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from junk import altered

from ramify import dataset, readers
from ramify.errors import RamifyError
from ramify.readers import nested
from ramify.readers.base import ReadCounts
from ramify.readers.json_fields import beginnings
from ramify.readers.nested_layouts import LAYOUTS


def read(path, *values, name="posts.json", **options):
    file = path / name
    text = "\n".join(map(json.dumps, values)) if len(values) > 1 else json.dumps(values[0], indent=1)
    file.write_text(text, encoding="utf-8")
    counts = ReadCounts()
    rows = [row for batch in nested.read([file], counts, **options) for row in batch.to_pylist()]
    assert counts.read == len(rows) + sum(counts.skipped.values())
    return rows, counts


def edges(rows):
    return [(row["tree"], row["id"], row["parent"]) for row in rows]


def texts(rows):
    return {row["id"]: row["text"] for row in rows}


def status(name, answers, text, author="wren", **more):
    return {"id": name, "in_reply_to_id": answers, "content": text, "created_at": "2024-03-01T09:00:00Z",
            "account": {"acct": author}, **more}  # fmt: skip


HACKER = {
    "id": 70, "type": "story", "author": "wren", "created_at_i": 1709283600, "title": "Kilns &amp; glazes", "text": None,
    "children": [
        {"id": 71, "type": "comment", "author": "ivo", "created_at_i": 1709283700, "text": "<p>Which &lt;clay&gt;?<p>And when?",
         "children": [{"id": 72, "type": "comment", "author": None, "created_at_i": 1709283800, "text": None,
                       "children": [{"id": 73, "type": "comment", "author": "una", "created_at_i": 1709283900, "text": "Red.",
                                     "children": []}]}]},
        {"id": 74, "type": "comment", "author": "kai", "created_at_i": 1709283910, "text": "", "children": []},
    ],
}  # fmt: skip
TOPIC = {
    "id": 300, "title": "Firing a kiln",
    "post_stream": {
        "posts": [
            {"id": 9001, "username": "wren", "created_at": "2024-03-01T09:00:00.000Z", "cooked": "<p>How <b>hot</b>?</p>",
             "post_number": 1, "reply_to_post_number": None, "topic_id": 300},
            {"id": 9002, "username": "ivo", "created_at": "2024-03-01T09:01:00.000Z", "cooked": "<p>Cone 6.</p>",
             "raw": "Cone *6*.", "post_number": 2, "reply_to_post_number": None, "topic_id": 300},
            {"id": 9005, "username": "una", "created_at": "2024-03-01T09:02:00.000Z", "cooked": "<p>No.</p>",
             "post_number": 4, "reply_to_post_number": 2, "topic_id": 300},
            {"id": 9006, "username": "kai", "created_at": "2024-03-01T09:03:00.000Z", "cooked": "<p>spam</p>", "hidden": True,
             "post_number": 5, "reply_to_post_number": 4, "topic_id": 300},
        ],
        "stream": [9001, 9002, 9003, 9005, 9006, 9007],
    },
}  # fmt: skip


def lemmy(name, path, text, **more):
    post = {"id": 12, "name": "Kilns", "body": "Which one?", "published": "2024-03-01T09:00:00Z"}
    comment = {"id": name, "post_id": 12, "content": text, "path": path, "published": "2024-03-01T09:00:00Z", **more}
    return {"comment": comment, "creator": {"name": "ivo"}, "post": post}


def thread(name, text, *answers, total=None):
    def snippet(words):
        return {"textOriginal": words, "authorDisplayName": "@wren", "publishedAt": "2024-03-01T09:00:00Z", "videoId": "v"}

    return {
        "kind": "youtube#commentThread",
        "id": name,
        "snippet": {"videoId": "v", "topLevelComment": {"id": name, "snippet": snippet(text)},
                    "totalReplyCount": len(answers) if total is None else total},
        "replies": {"comments": [{"kind": "youtube#comment", "id": f"{name}.{n}", "snippet": snippet(each) | {"parentId": name}}
                                 for n, each in enumerate(answers)]},
    }  # fmt: skip


def test_hacker_news(tmp_path):
    rows, counts = read(tmp_path, HACKER)
    assert edges(rows) == [("70", "70", None), ("70", "71", "70"), ("70", "72", "71"), ("70", "73", "72"), ("70", "74", "70")]
    assert texts(rows) == {
        "70": "Kilns & glazes", "71": "Which <clay>?\n\nAnd when?", "72": "[deleted]", "73": "Red.", "74": ""
    }  # fmt: skip
    assert rows[0]["meta"] == '{"title": "Kilns & glazes"}'
    assert rows[1]["meta"] is None
    assert [row["author"] for row in rows] == ["wren", "ivo", None, "una", "kai"]
    assert counts.skipped == {}
    assert readers.detect_format([tmp_path / "posts.json"]) == "nested"
    store = dataset.build([tmp_path / "posts.json"], None, tmp_path / "store")
    assert {node.id: node.parents for node in store.tree(0).nodes} == {"70": (), "71": (0,), "73": (1,)}
    assert store.info["skipped"] == {"deleted": 1, "empty": 1}


def test_items_of_hacker_news_find_their_trees(tmp_path):
    rows, counts = read(
        tmp_path,
        {"id": 3, "type": "comment", "by": "una", "time": 1709283900, "parent": 2, "text": "It&#x27;s red"},
        {"id": 1, "type": "story", "by": "wren", "time": 1709283600, "title": "Kilns", "kids": [2]},
        {"id": 2, "type": "comment", "time": 1709283700, "parent": 1, "deleted": True},
        {"id": 9, "type": "comment", "by": "kai", "time": 1709283700, "parent": 8, "text": "of a story elsewhere"},
        {"id": 5, "type": "comment", "by": "kai", "time": 1709283700, "parent": 5, "text": "of itself"},
        {"id": 6, "type": "comment", "by": "kai", "time": 1709283700, "parent": 7, "text": "round"},
        {"id": 7, "type": "comment", "by": "kai", "time": 1709283700, "parent": 6, "text": "and round"},
    )
    assert [tree for tree, name, _ in edges(rows) if name in "123"] == ["1", "1", "1"]
    assert [edge for edge in edges(rows) if edge[1] == "9"] == [("8", "9", "8")]
    assert [edge for edge in edges(rows) if edge[1] == "5"] == [("5", "5", None)]
    assert len({tree for tree, name, _ in edges(rows) if name in "67"}) == 1
    assert counts.kept == {"own_parent": 1}
    assert texts(rows)["3"] == "It's red"
    assert texts(rows)["2"] == "[deleted]"


def test_discourse(tmp_path):
    rows, counts = read(tmp_path, TOPIC)
    assert edges(rows) == [("300", "1", None), ("300", "2", "1"), ("300", "4", "2"), ("300", "5", "4")]
    assert texts(rows) == {"1": "Firing a kiln\n\nHow hot?", "2": "Cone *6*.", "4": "No.", "5": "[removed]"}
    assert counts.kept == {"more": 1, "more_comments": 2}


def test_lemmy_numbers_posts_and_comments_apart(tmp_path):
    comments = [lemmy(12, "0.12", "a comment"), lemmy(15, "0.12.15", "its answer"), lemmy(16, "0.16", "gone", deleted=True)]
    rows, counts = read(tmp_path, {"comments": comments})
    assert edges(rows) == [
        ("12", "12", None), ("12", "12/comment", "12"), ("12", "15", "12/comment"), ("12", "16", "12")
    ]  # fmt: skip
    assert texts(rows)["12"] == "Kilns\n\nWhich one?"
    assert texts(rows)["16"] == "[deleted]"
    assert counts.read == 4


def test_mastodon_keeps_a_missing_first_post(tmp_path):
    context = {
        "ancestors": [],
        "descendants": [status("21", "20", "<p>Red.</p>"), status("22", "21", "x", spoiler_text="clay")],
    }
    rows, _ = read(tmp_path, context)
    assert edges(rows) == [("20", "21", "20"), ("20", "22", "21")]
    assert texts(rows) == {"21": "Red.", "22": "clay\n\nx"}
    store = dataset.build([tmp_path / "posts.json"], None, tmp_path / "store")
    assert [node.id for node in store.tree(0).nodes] == ["20", "21", "22"]
    (tmp_path / "first.json").write_text(json.dumps(status("20", None, "<p>Which clay?</p>")))
    store = dataset.build([tmp_path / "posts.json", tmp_path / "first.json"], None, tmp_path / "both")
    assert store.tree(0).nodes[0].text == "Which clay?"


def test_an_archive_of_mastodon(tmp_path):
    notes = [("1", None, "<p>first</p>"), ("2", "1", "<p>second</p>")]
    items = [
        {"type": "Create", "actor": "https://x/ann", "object": {"id": name, "inReplyTo": above, "content": text}}
        for name, above, text in notes
    ]
    rows, counts = read(tmp_path, {"orderedItems": [*items, {"type": "Announce", "object": "https://y/3"}]})
    assert edges(rows) == [("1", "1", None), ("1", "2", "1")]
    assert counts.skipped == {"bad_row": 1}


def test_youtube(tmp_path):
    rows, counts = read(tmp_path, {"items": [thread("Uga", "Which clay?", "red", total=7), thread("Ugb", "Nice.")]})
    assert edges(rows) == [("Uga", "Uga", None), ("Uga", "Uga.0", "Uga"), ("Ugb", "Ugb", None)]
    assert counts.kept == {"more": 1, "more_comments": 6}
    assert json.loads(rows[0]["meta"]) == {"video": "v"}
    flat = [each["replies"]["comments"][0] for each in (thread("Uga", "", "red"),)]
    rows, _ = read(tmp_path, {"items": flat})
    assert edges(rows) == [("Uga", "Uga.0", "Uga")]
    rows, _ = read(
        tmp_path,
        {"cid": "Uga", "text": "Which clay?", "time": "2 years ago", "author": "@wren", "votes": "0", "replies": "1"},
        {"cid": "Uga.1", "text": "red", "time": "1 year ago", "author": "@ivo", "votes": "0", "time_parsed": 1709283600.5},
    )
    assert edges(rows) == [("Uga", "Uga", None), ("Uga", "Uga.1", "Uga")]
    assert [row["time"] for row in rows] == [None, 1709283600.5]


def test_comments_of_yt_dlp_stand_behind_much_else(tmp_path):
    comments = [
        {"id": "Uga", "text": "Which clay?", "author": "@wren", "parent": "root", "timestamp": 1709283600},
        {"id": "Uga.1", "text": "red", "author": "@ivo", "parent": "Uga", "timestamp": 1709283700},
    ]
    info = {"id": "v", "title": "Kilns", "formats": [{"url": "x" * 1000}] * 100, "comments": comments}
    rows, _ = read(tmp_path, info, name="kilns.info.json")
    assert edges(rows) == [("Uga", "Uga", None), ("Uga", "Uga.1", "Uga")]
    assert json.loads(rows[0]["meta"]) == {"title": "Kilns", "video": "v"}
    assert readers.detect_format([tmp_path / "kilns.info.json"]) == "nested"


def test_github(tmp_path):
    issue = {"number": 8, "title": "Kiln", "body": "too hot", "author": {"login": "wren"}, "createdAt": "2024-03-01T09:00:00Z",
             "url": "https://github.com/o/r/issues/8",
             "comments": [{"id": 8, "body": "open it", "author": {"login": "ivo"}}]}  # fmt: skip
    rows, _ = read(tmp_path, issue)
    assert edges(rows) == [("o/r#8", "8", None), ("o/r#8", "8/comment", "8")]
    assert [row["author"] for row in rows] == ["wren", "ivo"]
    answer = {"id": "c2", "body": "thanks", "author": None}
    comment = {"id": "c1", "bodyText": "open it", "author": {"login": "ivo"}, "replies": {"nodes": [answer]}}
    talk = {"number": 3, "title": "Kiln", "body": "too hot", "comments": {"edges": [{"node": comment}]}}
    rows, counts = read(tmp_path, {"data": {"repository": {"discussions": {"nodes": [talk]}}}})
    assert edges(rows) == [("3", "3", None), ("3", "c1", "3"), ("3", "c2", "c1")]
    assert counts.skipped == {}
    pull = issue | {"reviews": [{"id": "v", "body": "looks good", "submittedAt": "2024-03-01T09:05:00Z"}]}
    rows, _ = read(tmp_path, pull)
    assert (edges(rows)[-1], rows[-1]["time"]) == (("o/r#8", "v", "8"), 1709283900)
    (tmp_path / "line.json").write_text(json.dumps({"data": {"repository": {"discussion": talk}}}))
    assert readers.detect_format([tmp_path / "line.json"]) == "nested"
    loose = {"id": 5, "html_url": "https://github.com/o/r/issues/8#issuecomment-5", "user": {"login": "una"}, "body": "done",
             "issue_url": "https://api.github.com/repos/o/r/issues/8"}  # fmt: skip
    (tmp_path / "comments.json").write_text(json.dumps([loose]))
    (tmp_path / "issues.json").write_text(json.dumps([issue | {"comments": 1}]))
    store = dataset.build([tmp_path / "comments.json", tmp_path / "issues.json"], None, tmp_path / "store")
    assert [(node.id, node.parents) for node in store.tree(0).nodes] == [("8", ()), ("5", (0,))]


def test_an_archive_of_bdfr_is_no_dump(tmp_path):
    def comment(name, *replies, **more):
        return {"author": "DELETED", "id": name, "submission": "k1", "body": f"R&amp;B {name}", "parent_id": "t3_k1",
                "created_utc": 1709283600, "replies": list(replies), **more}  # fmt: skip

    post = {"title": "Kilns", "name": "t3_k1", "subreddit": "clay", "selftext": "", "upvote_ratio": 1, "id": "k1",
            "author": "wren", "pinned": False, "created_utc": 1709283500,
            "comments": [comment("a", comment("b", comment("c", body="[removed]")))]}  # fmt: skip
    rows, _counts = read(tmp_path, post)
    assert edges(rows) == [("k1", "k1", None), ("k1", "a", "k1"), ("k1", "b", "a"), ("k1", "c", "b")]
    assert texts(rows) == {"k1": "Kilns", "a": "R&amp;B a", "b": "R&amp;B b", "c": "[removed]"}
    assert rows[1]["author"] is None
    assert readers.detect_format([tmp_path / "posts.json"]) == "nested"


OWN = {
    "story": {"uid": "s", "content_html": "<p>Which <i>clay</i>?</p>", "by": {"login": "wren"},
              "replies": [{"uid": "a", "content_html": "red", "replies": []}, {"content_html": "no id", "replies": None}]}
}["story"]  # fmt: skip


def test_any_names(tmp_path):
    rows, _counts = read(tmp_path, OWN, children="replies", columns={"text": "content_html", "id": "uid", "author": "by.login"})
    assert edges(rows) == [("s", "s", None), ("s", "a", "s"), ("s", "s/1", "s")]
    assert texts(rows)["s"] == "Which clay?"
    assert rows[0]["author"] == "wren"
    rows, _ = read(tmp_path, OWN, children="replies", columns={"text": "content_html"}, html=False)
    assert [row["id"] for row in rows] == ["posts/1", "posts/1/2", "posts/1/3"]
    assert rows[0]["text"] == "<p>Which <i>clay</i>?</p>"
    inputs = readers.open_inputs([tmp_path / "posts.json"], options={"children": "replies", "text": "content_html"})
    assert inputs.format.name == "nested"
    assert inputs.options["columns"] == {"text": "content_html"}
    assert sum(batch.num_rows for batch in inputs.records()) == 3


def test_named_columns_keep_the_layout_of_a_known_site(tmp_path):
    rows, _ = read(tmp_path, HACKER, columns={"author": "type"})
    assert [row["author"] for row in rows] == ["story", "comment", "comment", "comment", "comment"]
    assert edges(rows) == edges(read(tmp_path, HACKER)[0])


def test_posts_of_any_names_inside_other_values(tmp_path):
    value = {"ok": True, "users": [{"name": "wren"}], "thread": {"id": "s", "said": "a", "replies": [{"id": "b", "said": "c"}]}}
    rows, counts = read(tmp_path, value, children="replies", columns={"text": "said"})
    assert edges(rows) == [("s", "s", None), ("s", "b", "s")]
    assert counts.skipped == {"bad_row": 1}
    rows, _ = read(tmp_path, value, columns={"text": "said"})
    assert edges(rows) == [("s", "s", None), ("s", "b", "s")]


NESTED = {"id": "p", "text": "Which clay?", "comments": [{"id": "c", "text": "red"}]}


@pytest.mark.parametrize("value", [
    [{"id": "r", "text": "or white"}], {"r": {"text": "or white"}}, {"total": 1, "nodes": [{"body": "or white"}]},
    {"pages": [[{"content": "or white"}]]},
])  # fmt: skip
def test_posts_in_a_second_field_are_not_left_unread(tmp_path, value):
    posts = NESTED | {"comments": NESTED["comments"] + [{"text": "no", "answers": value}]}
    with pytest.raises(RamifyError, match=r"'answers' of a post holds .* comments,answers, .* comments,-answers"):
        read(tmp_path, posts, children="comments")
    rows, _ = read(tmp_path, posts, children="comments,answers")
    assert (len(rows), rows[-1]["text"], rows[-1]["parent"]) == (4, "or white", rows[-2]["id"])
    rows, counts = read(tmp_path, posts, children="comments,-answers")
    assert (len(rows), counts.skipped) == (3, {"unread_posts": 1})


def test_what_is_attached_to_a_post_is_no_post(tmp_path):
    more = {
        "reactions": [{"content": "+1"}],
        "attachments": [{"text": "a link"}],
        "author": {"name": "wren", "badges": [{"text": "old"}]},
        "seen": [],
    }
    rows, counts = read(tmp_path, NESTED | more, children="comments")
    assert (len(rows), counts.skipped) == (2, {})
    rows, counts = read(tmp_path, HACKER | {"related": [{"text": "x", "more": [{"text": "y"}]}]})
    assert (len(rows), counts.skipped) == (5, {"unread_posts": 2})


def test_answers_to_an_object_without_a_text_are_counted(tmp_path):
    value = {"id": "q", "question": "Which clay?", "answers": [{"id": 2, "text": "red"}]}
    for children in ("answers", "others"):
        rows, counts = read(tmp_path, value, children=children, columns={"text": "text"})
        assert (len(rows), counts.skipped) == (1, {"bad_row": 1})
    assert "--column title=question" in counts.examples["bad_row"][0]
    rows, counts = read(tmp_path, value, children="answers", columns={"title": "question"})
    assert (edges(rows), texts(rows)["q"]) == ([("q", "q", None), ("q", "2", "q")], "Which clay?")
    assert counts.skipped == {}
    assert len(read(tmp_path, {"total": 1, "answers": value["answers"]}, children="answers")[1].skipped) == 0


@pytest.mark.parametrize("value", [
    {"uid": 1, "message": "Which?", "answers": [{"message": "red", "notes": {"n": {"cooked": "or white"}}}]},
    {"ok": True, "list": [{"question": "Which?", "answers": [{"text": "red", "notes": [{"body": "or white"}]}]}]},
])  # fmt: skip
def test_the_refusal_of_an_unknown_site_names_its_fields(tmp_path, value):
    path = tmp_path / "posts.json"
    path.write_text(json.dumps(value))
    with pytest.raises(RamifyError, match=r'nested +posts .* in "answers", "notes"; read them with --children answers,notes\n'):
        readers.detect_format([path])
    rows, _ = read(tmp_path, value, children="answers,notes")
    assert [row["text"] for row in rows][-2:] == ["red", "or white"]


def test_flat_posts_of_any_names(tmp_path):
    values = [{"k": 2, "said": "red", "under": 1}, {"k": 1, "said": "Which clay?", "under": None}]
    rows, _ = read(tmp_path, *values, columns={"id": "k", "text": "said", "parent": "under"})
    assert edges(rows) == [("1", "2", "1"), ("1", "1", None)]


def test_wrong_values_are_counted(tmp_path):
    broken = HACKER | {"children": [7, None,
                                    {"id": 75, "text": {"a": 1}, "children": [{"id": 76, "text": "x", "children": "y"}]},
                                    {"text": "no id", "children": []}, {"odd": 1}]}  # fmt: skip
    rows, counts = read(tmp_path, broken)
    assert edges(rows) == [("70", "70", None), ("70", "76", "70")]
    assert counts.skipped == {"bad_row": 6}
    assert any("TypeError: its text is of the type dict" in where for where in counts.examples["bad_row"])
    rows, counts = read(tmp_path, HACKER | {"created_at_i": [1]})
    assert counts.kept == {"bad_time": 1}


def test_doubled_ids_and_missing_parents_are_left_to_the_policies(tmp_path):
    comments = [lemmy(15, "0.15", "one"), lemmy(15, "0.15", "two"), lemmy(17, "0.16.17", "orphan")]
    read(tmp_path, {"comments": comments})
    store = dataset.build([tmp_path / "posts.json"], None, tmp_path / "store")
    assert [(node.id, node.parents) for node in store.tree(0).nodes] == [("12", ()), ("15", (0,)), ("17", (0,))]
    assert store.info["skipped"] == {"duplicate_id": 1}
    assert store.info["kept"]["orphan"] == 1


def test_deep_nesting(tmp_path):
    depth = 5_000
    text = '{"id":0,"created_at_i":1,"title":"x","children":['
    text += "".join(f'{{"id":{n},"created_at_i":1,"text":"x","children":[' for n in range(1, depth)) + "]}" * depth
    (tmp_path / "deep.json").write_text(text)
    assert readers.detect_format([tmp_path / "deep.json"]) == "nested"
    rows = [row for batch in nested.read([tmp_path / "deep.json"], ReadCounts()) for row in batch.to_pylist()]
    assert len(rows) == depth
    assert rows[-1]["parent"] == str(depth - 2)


def test_options_are_checked(tmp_path):
    with pytest.raises(RamifyError, match="layout='nope'"):
        read(tmp_path, HACKER, layout="nope")
    with pytest.raises(RamifyError, match="names no part of a post"):
        read(tmp_path, HACKER, children="children", columns={"body": "text"})
    with pytest.raises(RamifyError, match="children=' , '"):
        read(tmp_path, HACKER, children=" , ")
    with pytest.raises(RamifyError, match="holds no posts of a known site"):
        read(tmp_path, {"a": 1})
    rows, _ = read(tmp_path, HACKER, layout="hacker-news")
    assert len(rows) == 5


@given(value=altered([HACKER, TOPIC, {"comments": [lemmy(1, "0.1", "x")]}, {"items": [thread("a", "b", "c")]}]), data=st.data())
def test_no_value_is_fatal(tmp_path_factory, value, data):
    name = data.draw(st.sampled_from(sorted(LAYOUTS)))
    path = tmp_path_factory.mktemp("junk") / "x.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    counts = ReadCounts()
    rows = [row for batch in nested.read([path], counts, layout=name) for row in batch.to_pylist()]
    assert counts.read == len(rows) + sum(counts.skipped.values())
    nested.refuses(path, path.read_bytes()[:100])


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_beginnings_of_values(cut):
    text = json.dumps([{"a": 'x, "y"] ', "b": [1, {"c": None}]}, {"d": "\\"}])
    (value,) = beginnings(text[:cut].encode())
    assert isinstance(value, list)
    assert value == [] or value[0].items() <= {"a": 'x, "y"] ', "b": value[0].get("b")}.items()
    assert beginnings(b"\xef\xbb\xbf" + text.encode()) == [json.loads(text)]
    assert beginnings(b'{"a": 1}\n{"b": 2}\n{"c": ') == [{"a": 1}, {"b": 2}]
    assert beginnings(b"plain, text") == []
    assert beginnings(b"]") == []
