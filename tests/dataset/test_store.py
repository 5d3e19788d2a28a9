import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

from ramify import Node, RamifyError, Tree
from ramify.dataset import Store, build

CHAT = Tree(
    (
        Node("hello", id="m1", author="ann", time=1.0, kind="message"),
        Node("hi", parents=(0,), id="m2", author="bob", time=2.0, self_link=True, label={"links": [1, 2]}),
        Node("both of you", parents=(0, 1), id="m3"),
        Node("who knows", parents=None, id="m4"),
    ),
    id="chat",
    meta={"channel": "#talk", "topic": None},
)
DEBATE = Tree(
    (Node("question", id="r"), Node("answer", parents=(0,), id="a"), Node("reply", parents=(1,), id="b")), id="debate"
)


@pytest.fixture(params=["memory", "built", "unpickled"])
def store(request, tmp_path):
    if request.param == "memory":
        return Store.from_trees([CHAT, DEBATE])
    path = tmp_path / "trees.jsonl"
    path.write_text(f"{DEBATE.to_json()}\n{CHAT.to_json()}\n")
    store = build([path], "jsonl", tmp_path / "store")
    return pickle.loads(pickle.dumps(store)) if request.param == "unpickled" else store


def test_trees_are_restored(store):
    assert [store.tree(store.find_tree(tree.id)) for tree in (CHAT, DEBATE)] == [CHAT, DEBATE]
    assert {tree.id for tree in store.trees()} == {"chat", "debate"}
    assert [tree.id for tree in store.trees([1])] == store.tree_ids([1])


def test_numbers(store):
    chat, debate = store.find_tree("chat"), store.find_tree("debate")
    start = int(store.offsets[chat])
    assert (store.num_trees, store.num_nodes) == (2, 7)
    assert np.diff(store.offsets)[[chat, debate]].tolist() == [4, 3]
    assert [pair for pair in (store.edges - start).tolist() if 0 <= pair[0] < 4] == [[1, 0], [2, 0], [2, 1]]
    assert store.annotated[start : start + 4].tolist() == [True, True, True, False]
    assert store.depth[start : start + 4].tolist() == [0, 1, 1, 0]
    assert store.tree_of(range(7)).tolist() == sorted([chat] * 4 + [debate] * 3)


def test_texts_and_columns_of_nodes(store):
    nodes = [store.find("b"), store.find("m1"), store.find("m2", "chat"), store.find("b", "debate")]
    assert store.ids(nodes) == ["b", "m1", "m2", "b"]
    assert store.texts(nodes) == ["reply", "hello", "hi", "reply"]
    assert store.column("author", nodes).to_pylist() == [None, "ann", "bob", None]
    assert store.texts([]) == []
    assert [text for texts in store.text_batches(2) for text in texts] == store.texts(range(7))
    assert store.metas([store.find_tree("chat"), store.find_tree("debate")]) == [{"channel": "#talk", "topic": None}, {}]


def test_two_parents_are_refused_if_one_is_expected(store):
    with pytest.raises(RamifyError, match="tree 'chat', node 'm3' has several parents"):
        _ = store.parent


def test_parent():
    assert Store.from_trees([DEBATE, Tree(()), DEBATE]).parent.tolist() == [-1, 0, 1, -1, 3, 4]


def test_ids_shared_by_several_trees(store):
    assert store.find("a", "debate") == store.find("a")
    twice = Store.from_trees([CHAT, DEBATE, replace(DEBATE, id="again")])
    assert twice.find("a", "again") == 4 + 3 + 1
    assert twice.find_all("a").tolist() == [twice.find("a", "debate"), twice.find("a", "again")]
    assert twice.find("a") == twice.find("a", "debate")
    with pytest.raises(RamifyError, match="no node 'zz' among"):
        twice.find("zz")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda store: store.find("nobody"), "no node 'nobody' among 7 nodes"),
        (lambda store: store.find("m1", "debate"), "tree 'debate' has no node 'm1'"),
        (lambda store: store.find_tree("nothing"), "no tree 'nothing' among 2 trees. Ids look like '"),
        (lambda store: store.tree(2), "no tree number 2"),
        pytest.param(
            lambda store: store.split("valid"),
            "no split 'valid'. The splits are train, dev, test and all",
            marks=pytest.mark.ill_typed,
        ),
    ],
)
def test_missing_nodes_are_refused(store, ask, message):
    with pytest.raises(RamifyError, match=message):
        ask(store)


def test_splits_are_parts_of_all(store):
    parts = [store.split(name) for name in ("train", "dev", "test")]
    assert store.split("all").tolist() == [0, 1]
    assert sorted(np.concatenate(parts).tolist()) == ([0, 1] if store.path else [])


def test_run_in_the_same_folder(tmp_path):
    (tmp_path / "trees.jsonl").write_text(DEBATE.to_json())
    build([tmp_path / "trees.jsonl"], "jsonl", tmp_path / "both")
    (tmp_path / "both" / "run.json").write_text("{}")
    assert Store.open(tmp_path / "both").num_nodes == 3
    (tmp_path / "both" / "dataset.json").unlink()
    with pytest.raises(RamifyError, match="is a run, not a data set"):
        Store.open(tmp_path / "both")


def test_other_folders_are_refused_as_stores(tmp_path):
    with pytest.raises(RamifyError, match=r"is not a Ramify data set.* ramify data build"):
        Store.open(tmp_path)
    with pytest.raises(RamifyError, match="is not a Ramify data set"):
        Store.open(tmp_path / "absent")
    (tmp_path / "dataset.json").write_text('{"some": "thing"}')
    with pytest.raises(RamifyError, match="is not a Ramify data set"):
        Store.open(tmp_path)
    (tmp_path / "dataset.json").write_text('{"version": 99}')
    with pytest.raises(RamifyError, match="has version 99 of the format; this Ramify reads version 2"):
        Store.open(tmp_path)


@pytest.mark.parametrize(
    ("key", "message"),
    [("files", "store is damaged"), *((key, f"it lacks {key}") for key in ("skipped", "splits", "hash"))],
)
def test_incomplete_description_is_refused(tmp_path, key, message):
    (tmp_path / "trees.jsonl").write_text(DEBATE.to_json())
    build([tmp_path / "trees.jsonl"], "jsonl", tmp_path / "store")
    file = tmp_path / "store" / "dataset.json"
    info = json.loads(file.read_text())
    del info[key]
    file.write_text(json.dumps(info))
    with pytest.raises(RamifyError, match=message):
        Store.open(tmp_path / "store")


def test_damaged_store_is_refused(tmp_path):
    path = tmp_path / "trees.jsonl"
    path.write_text(DEBATE.to_json())
    build([path], "jsonl", tmp_path / "store")
    nodes = tmp_path / "store" / json.loads((tmp_path / "store" / "dataset.json").read_text())["files"][0]
    whole = nodes.read_bytes()
    nodes.write_bytes(whole.replace(DEBATE.nodes[0].text.encode(), b"\xff" * len(DEBATE.nodes[0].text)))
    with pytest.raises(RamifyError, match="store is damaged"):
        Store.open(tmp_path / "store").tree(0)
    nodes.write_bytes(whole[:100])
    with pytest.raises(RamifyError, match="store is damaged"):
        Store.open(tmp_path / "store")
    nodes.unlink()
    with pytest.raises(RamifyError, match="store is damaged"):
        Store.open(tmp_path / "store")
