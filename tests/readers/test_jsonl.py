from pathlib import Path

from ramify import Node, Tree, dataset
from ramify.readers import jsonl
from ramify.readers.base import Report

TREE = Tree((Node("root", id="r"), Node("reply", parents=(0,), id="a", author="ann", label=[1])), id="t", meta={"title": "T"})


def test_round_trip_and_bad_lines(tmp_path):
    path = tmp_path / "trees.jsonl"
    path.write_text(f"{TREE.to_json()}\n\nnothing\n{TREE.to_json().replace('parent', 'parents')}\n{TREE.to_json()}\n")
    report = Report()
    assert list(jsonl.read([path], report)) == [TREE, TREE]
    assert report.read == 4 + report.skipped["bad_tree"]
    assert report.skipped == {"bad_tree": 1 + 2}
    assert f"{path}, line 3" in report.examples["bad_tree"][0]
    assert f"{path}, line 4" in report.examples["bad_tree"][1]


def test_a_tree_without_nodes_is_counted(tmp_path):
    path = tmp_path / "trees.jsonl"
    path.write_text(TREE.to_json() + '\n{"id": "e", "nodes": []}\n')
    report = Report()
    assert list(jsonl.read([path], report)) == [TREE, Tree((), id="e")]
    assert (report.read, report.skipped, report.kept) == (2, {}, {"empty_tree": 1})
    assert report.examples["empty_tree"] == [f"{path}, line 2: tree 'e' has no nodes"]


def test_a_half_surrogate_pair_does_not_end_a_build(tmp_path):
    path = tmp_path / "trees.jsonl"
    half = r'{"id": "u\ud83d", "meta": {"k": "\ud83d"}, "nodes": [{"id": "r", "text": "\uD83d", "label": ["\udE00"]}]}'
    path.write_text(f"{TREE.to_json()}\n{half}\n")
    store = dataset.build([path], "jsonl", tmp_path / "store")
    assert store.info["skipped"] == {}
    tree = store.tree(store.find_tree("u\ufffd"))
    assert (tree.meta, tree.nodes[0].text, tree.nodes[0].label) == ({"k": "\ufffd"}, "\ufffd", ["\ufffd"])


def test_matches():
    assert jsonl.matches(Path("x"), TREE.to_json().encode())
    assert jsonl.matches(Path("x"), b"\xef\xbb\xbf" + TREE.to_json().encode())
    assert jsonl.matches(Path("x"), b'\n{"id": "1", "meta": {"subreddit": "s", "title": "t"}, "nodes" : [')
    assert not jsonl.matches(Path("x"), b'{"id": "1", "text": "x"}\n{"nodes": []}')
    assert not jsonl.matches(Path("x"), b'{"id": "1", "nodes": 1}')
