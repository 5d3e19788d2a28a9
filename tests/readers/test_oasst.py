import json

import pytest

from ramify import dataset, readers
from ramify.readers import oasst
from ramify.readers.base import ReadCounts


def message(name, role, *replies, **more):
    return {"message_id": name, "role": role, "text": f"text of {name}", "lang": "en", "replies": list(replies), **more}


PROMPT = message(
    "p",
    "prompter",
    message("a", "assistant", message("c", "prompter"), rank=1, synthetic=True, model_name="m"),
    message("b", "assistant", message("d", "prompter"), rank=0, deleted=True),
    synthetic=False,
    created_date="2023-02-05T14:23:50+00:00",
)
RECORD = {"message_tree_id": "p", "tree_state": "ready", "prompt": PROMPT}


def read(path, *records):
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    counts = ReadCounts()
    rows = [row for batch in oasst.read([path], counts) for row in batch.to_pylist()]
    assert counts.read == len(rows) + sum(counts.skipped.values())
    return rows, counts


def test_tree(tmp_path):
    rows, counts = read(tmp_path / "trees.jsonl", RECORD)
    assert [(row["id"], row["parent"]) for row in rows] == [("p", None), ("a", "p"), ("c", "a"), ("b", "p"), ("d", "b")]
    assert [row["kind"] for row in rows] == ["prompter", "assistant", "prompter", "assistant", "prompter"]
    assert [row["time"] for row in rows][:2] == [1675607030.0, None]
    assert [row["text"] for row in rows] == ["text of p", "text of a", "text of c", "[deleted]", "text of d"]
    assert json.loads(rows[1]["label"]) == {"rank": 1, "lang": "en", "synthetic": True, "model_name": "m"}
    assert json.loads(rows[3]["label"]) == {"rank": 0, "lang": "en"}
    assert [row["meta"] for row in rows] == ['{"tree_state": "ready"}', None, None, None, None]
    assert counts.skipped == {}
    assert readers.detect_format([tmp_path / "trees.jsonl"]) == "oasst"


def test_policy_for_deleted_messages(tmp_path):
    read(tmp_path / "trees.jsonl", RECORD)
    store = dataset.build([tmp_path / "trees.jsonl"], None, tmp_path / "store")
    tree = store.tree(0)
    assert {node.id: node.parents for node in tree.nodes} == {"p": (), "a": (0,), "c": (1,), "d": (0,)}
    assert tree.nodes[1].label == {"rank": 1, "lang": "en", "synthetic": True, "model_name": "m"}
    assert store.info["skipped"] == {"deleted": 1}


def test_invalid_messages_are_counted(tmp_path):
    broken = message("p", "prompter", {"text": "no id", "replies": [message("x", "assistant")]}, 7)
    rows, counts = read(tmp_path / "trees.jsonl", {"message_tree_id": "p", "prompt": broken}, {"message_id": "flat"}, [3])
    assert [(row["id"], row["parent"]) for row in rows] == [("p", None), ("x", "p")]
    assert counts.skipped == {"not_a_post": 4}


@pytest.mark.data
def test_published_trees(data_dir):
    counts = ReadCounts()
    (path,) = data_dir("oasst").rglob("*.jsonl")
    rows = [row for batch in oasst.read([path], counts) for row in batch.to_pylist()]
    assert len(rows) == counts.read == 1_167
    assert len({row["tree"] for row in rows}) == sum(row["parent"] is None for row in rows) == 100
    assert sum(json.loads(row["label"]).get("synthetic", False) for row in rows) == 22
