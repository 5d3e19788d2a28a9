import gzip
import json
from pathlib import Path

import pytest
import zstandard

from ramify import Node, RamifyError, Tree, dataset
from ramify.readers import jsonl
from ramify.readers.base import Policy, Report

TREE = Tree((Node("root", id="r"), Node("reply", parents=(0,), id="a", author="ann", label=[1])), id="t", meta={"title": "T"})


def read(path, **policies):
    report = Report()
    trees = list(jsonl.read([path], report, policy=Policy(**policies)))
    assert report.read == sum(map(len, trees)) + sum(report.skipped.values())
    return trees, report


def line(*nodes, **more):
    return json.dumps({"id": "t", "nodes": [{"text": "", **node} for node in nodes], **more}) + "\n"


def test_round_trip_and_lines_that_are_no_trees(tmp_path):
    path = tmp_path / "trees.jsonl"
    path.write_text(f'{TREE.to_json()}\n\nnothing\n{{"nodes": 3}}\n{TREE.to_json()}\n')
    trees, report = read(path)
    assert trees == [TREE, TREE]
    assert report.skipped == {"bad_json": 1, "bad_tree": 1}
    assert f"{path}, line 3" in report.examples["bad_json"][0]
    assert f"{path}, line 4" in report.examples["bad_tree"][0]


def test_a_tree_without_nodes_is_counted(tmp_path):
    path = tmp_path / "trees.jsonl"
    path.write_text(TREE.to_json() + '\n{"id": "e", "nodes": []}\n')
    trees, report = read(path)
    assert (trees, report.skipped, report.kept) == ([TREE], {}, {"empty_tree": 1})
    assert report.examples["empty_tree"] == [f"{path}, line 2: tree 'e' has no nodes"]


def test_what_cannot_be_a_node_costs_that_node_alone(tmp_path):
    path = tmp_path / "trees.jsonl"
    nodes = [
        {"id": "r", "text": "root"},
        3,
        {"text": "no id"},
        {"id": "a", "parent": "r", "text": 5},
        {"id": "b", "parent": "a", "text": "below", "time": "noon"},
    ]
    path.write_text(json.dumps({"id": "t", "nodes": nodes}))
    trees, report = read(path)
    assert trees == [Tree((Node("root", id="r"), Node("below", parents=(0,), id="b")), id="t")]
    assert (report.skipped, report.kept) == ({"not_a_post": 3}, {"bad_time": 1, "orphan": 1})
    assert f"{path}, line 1: tree 't', node 'a': \"text\" must be a string" in report.examples["not_a_post"][2]


def test_nodes_before_their_parents(tmp_path):
    path = tmp_path / "trees.jsonl"
    path.write_text(line({"id": "c", "parent": "b"}, {"id": "b", "parent": "a"}, {"id": "a"}, {"id": "d", "parent": "a"}))
    (tree,), report = read(path)
    assert [node.id for node in tree.nodes] == ["a", "b", "c", "d"]
    assert tree.parent.tolist() == [-1, 0, 1, 0]
    assert not report.kept


def test_chats_may_have_several_roots_and_parents(tmp_path):
    """`parents` says that several are meant: no policy for reply trees parts them, nor does export and build."""
    path = tmp_path / "trees.jsonl"
    chat = Tree((Node("a", id="a"), Node("b", id="b"), Node("c", (0, 1), id="c"), Node("d", None, id="d")), id="t")
    roots = Tree((Node("a", id="a"), Node("b", id="b"), Node("c", (1,), id="c")), id="u")
    path.write_text(f"{chat.to_json()}\n{roots.to_json()}\n")
    assert read(path, two_roots="first")[0] == [chat, roots]
    broken = {"id": "d", "parents": ["c", "gone"]}, {"id": "a", "parents": []}, {"id": "b", "parents": []}
    path.write_text(line(*broken, {"id": "c", "parents": ["b", "a", "b"]}, {"id": "e", "parents": None}))
    (tree,), report = read(path)
    assert [(node.id, node.parents) for node in tree.nodes] == [("a", ()), ("b", ()), ("c", (1, 0)), ("d", (2,)), ("e", None)]
    assert report.kept == {"bad_relation": 1}


def test_rings_in_rings(tmp_path):
    """Thousands of them, and what hangs on two at once."""
    path = tmp_path / "trees.jsonl"
    pairs = [node for n in range(3000) for node in ({"id": f"x{n}", "parent": f"y{n}"}, {"id": f"y{n}", "parent": f"x{n}"})]
    path.write_text(line({"id": "low", "parents": ["y0", "y1"]}, *pairs, {"id": "r"}))
    (tree,), report = read(path, cycle="root")
    assert (len(tree), report.kept) == (6002, {"cycle": 3000})
    assert {tree.nodes[above].id for above in tree.nodes[tree.index("low")].parents} == {"y0", "y1"}
    (tree,), report = read(path)
    assert (len(tree), report.skipped) == (1, {"cycle": 6001})


def test_made_up_roots_survive_export_and_build_uncounted(tmp_path):
    path = tmp_path / "trees.jsonl"
    path.write_text(line({"id": "a", "parent": "gone", "text": "a"}, {"id": "b", "parent": "a", "text": "b"}))
    first = dataset.build([path], "jsonl", tmp_path / "first")
    assert (first.info["placeholders"], first.info["nodes"], first.info["kept"]["orphan"]) == (1, 2, 1)
    path.write_text("".join(tree.to_json() + "\n" for tree in first.trees()))
    again = dataset.build([path], "jsonl", tmp_path / "again")
    assert again.hash == first.hash
    assert [again.info[name] for name in ("placeholders", "nodes", "read")] == [1, 2, 2]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
def test_read_jsonl(tmp_path, pack):
    path = tmp_path / "trees.jsonl"
    other = Tree((Node("a\x1cb\x85c\u2028d\ne", id="0"),), id="t")
    path.write_bytes(pack(f"{TREE.to_json()}\n{other.to_json()}\n\n".encode()))
    assert list(jsonl.read_jsonl(path)) == [TREE, other]
    path.write_bytes(pack(f"{TREE.to_json()}\nnonsense\n".encode()))
    reader = jsonl.read_jsonl(path)
    assert next(reader) == TREE
    with pytest.raises(RamifyError, match=r"trees\.jsonl, line 2: not valid JSON"):
        next(reader)


def test_read_jsonl_needs_a_tree(tmp_path):
    path = tmp_path / "trees.jsonl"
    with pytest.raises(RamifyError, match="cannot be read: No such file"):
        list(jsonl.read_jsonl(path))
    path.write_text("")
    with pytest.raises(RamifyError, match="is empty"):
        list(jsonl.read_jsonl(path))
    path.write_text("\n\n")
    with pytest.raises(RamifyError, match="holds no tree"):
        list(jsonl.read_jsonl(path))


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
