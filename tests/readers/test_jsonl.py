import gzip
import json
from pathlib import Path

import pytest
import zstandard

from ramify import Node, RamifyError, Tree, dataset
from ramify.readers import jsonl
from ramify.readers.base import Policy, ReadCounts

TREE = Tree((Node("root", id="r"), Node("reply", parents=(0,), id="a", author="ann", label=[1])), id="t", meta={"title": "T"})


def read(path, **policies):
    counts = ReadCounts()
    trees = list(jsonl.read([path], counts, policy=Policy(**policies)))
    assert counts.read == sum(map(len, trees)) + sum(counts.skipped.values())
    return trees, counts


def line(*nodes, **more):
    return json.dumps({"id": "t", "nodes": [{"text": "", **node} for node in nodes], **more}) + "\n"


def test_round_trip_and_invalid_lines(tmp_path):
    path = tmp_path / "trees.jsonl"
    path.write_text(f'{TREE.to_json()}\n\nnothing\n{{"nodes": 3}}\n{TREE.to_json()}\n')
    trees, counts = read(path)
    assert trees == [TREE, TREE]
    assert counts.skipped == {"bad_json": 1, "bad_tree": 1}
    assert f"{path}, line 3" in counts.examples["bad_json"][0]
    assert f"{path}, line 4" in counts.examples["bad_tree"][0]


def test_tree_without_nodes_is_counted(tmp_path):
    path = tmp_path / "trees.jsonl"
    path.write_text(TREE.to_json() + '\n{"id": "e", "nodes": []}\n')
    trees, counts = read(path)
    assert (trees, counts.skipped, counts.kept) == ([TREE], {}, {"empty_tree": 1})
    assert counts.examples["empty_tree"] == [f"{path}, line 2: tree 'e' has no nodes"]


def test_invalid_node_skips_that_node_only(tmp_path):
    path = tmp_path / "trees.jsonl"
    nodes = [
        {"id": "r", "text": "root"},
        3,
        {"text": "no id"},
        {"id": "a", "parent": "r", "text": 5},
        {"id": "b", "parent": "a", "text": "below", "time": "noon"},
        {"id": "c", "parent": "r", "text": "late", "time": float("inf")},
    ]
    path.write_text(json.dumps({"id": "t", "nodes": nodes}))
    trees, counts = read(path)
    assert trees == [
        Tree((Node("root", id="r"), Node("below", parents=(0,), id="b"), Node("late", parents=(0,), id="c")), id="t")
    ]
    assert (counts.skipped, counts.kept) == ({"not_a_post": 3}, {"bad_time": 2, "orphan": 1})
    assert f"{path}, line 1: tree 't', node 'a': \"text\" must be a string" in counts.examples["not_a_post"][2]


def test_nodes_before_their_parents(tmp_path):
    path = tmp_path / "trees.jsonl"
    path.write_text(line({"id": "c", "parent": "b"}, {"id": "b", "parent": "a"}, {"id": "a"}, {"id": "d", "parent": "a"}))
    (tree,), counts = read(path)
    assert [node.id for node in tree.nodes] == ["a", "b", "c", "d"]
    assert tree.parent.tolist() == [-1, 0, 1, 0]
    assert not counts.kept


def test_chats_may_have_several_roots_and_parents(tmp_path):
    """`parents` allows several parents: no policy for reply trees, export or build drops any."""
    path = tmp_path / "trees.jsonl"
    chat = Tree((Node("a", id="a"), Node("b", id="b"), Node("c", (0, 1), id="c"), Node("d", None, id="d")), id="t")
    roots = Tree((Node("a", id="a"), Node("b", id="b"), Node("c", (1,), id="c")), id="u")
    path.write_text(f"{chat.to_json()}\n{roots.to_json()}\n")
    assert read(path, two_roots="first")[0] == [chat, roots]
    # No message answers a later one: such relations are dropped, and nothing else is.
    path.write_text(
        line(
            {"id": "d", "parents": ["c", "gone"]},
            {"id": "a", "parents": []},
            {"id": "b", "parents": ["b", "a"]},
            {"id": "c", "parents": ["b", "a", "b", None, "d"]},
            {"id": "e", "parents": None},
            {"id": "f", "parents": ["e", "z"]},
        )
    )
    (tree,), counts = read(path)
    parents = [(node.id, node.parents) for node in tree.nodes]
    assert parents == [("d", ()), ("a", ()), ("b", (1,)), ("c", (2, 1, 0)), ("e", None), ("f", (4,))]
    assert counts.kept == {"bad_relation": 4, "orphan": 1}
    (tree,), counts = read(path, orphan="drop")
    assert [node.id for node in tree.nodes] == ["a", "b", "c", "e", "f"]
    assert tree.nodes[2].parents == (1, 0)
    assert counts.skipped == {"orphan": 1}


def test_thousands_of_rings(tmp_path):
    path = tmp_path / "trees.jsonl"
    pairs = [node for n in range(3000) for node in ({"id": f"x{n}", "parent": f"y{n}"}, {"id": f"y{n}", "parent": f"x{n}"})]
    path.write_text(line({"id": "low", "parent": "y0"}, *pairs, {"id": "r"}))
    (tree,), counts = read(path, cycle="root")
    assert (len(tree), counts.kept) == (6002, {"cycle": 3000})
    assert tree.nodes[tree.parent[tree.index("low")]].id == "y0"
    (tree,), counts = read(path)
    assert (len(tree), counts.skipped) == (1, {"cycle": 6001})


@pytest.mark.parametrize("time", ["noon", "", [], {}])
def test_odd_times(tmp_path, time):
    path = tmp_path / "trees.jsonl"
    path.write_text(line({"id": "r", "time": time, "text": None}))
    (tree,), counts = read(path)
    assert (tree.nodes[0].time, tree.nodes[0].text, counts.kept) == (None, "", {"bad_time": 1})


@pytest.mark.parametrize("time", [1_600_000_000_000, "1600000000", "2020-09-13T12:26:40Z"])
def test_times_of_other_formats(tmp_path, time):
    path = tmp_path / "trees.jsonl"
    path.write_text(line({"id": "r", "time": time}))
    (tree,), counts = read(path)
    assert (tree.nodes[0].time, counts.kept) == (1.6e9, {})


def test_invalid_metadata_is_dropped(tmp_path):
    path = tmp_path / "trees.jsonl"
    path.write_text(line({"id": "r"}, {"id": "a", "parent": "r"}, meta=["x"]))
    (tree,), counts = read(path)
    assert (len(tree), tree.meta, counts.kept) == (2, {}, {"bad_meta": 1})


def test_tree_without_an_id_is_not_a_parent(tmp_path):
    path = tmp_path / "trees.jsonl"
    path.write_text(json.dumps({"nodes": [{"id": "1"}, {"id": "7", "parent": 0}, {"id": "8", "parent": "1"}]}))
    (tree,), counts = read(path, orphan="drop")
    assert (tree.id, [node.id for node in tree.nodes], counts.skipped) == ("0", ["1", "8"], {"orphan": 1})


def test_duplicate_placeholder_root_is_counted_at_most_once(tmp_path):
    path = tmp_path / "trees.jsonl"
    root = {"id": "p", "kind": "placeholder"}
    path.write_text(line(root, {"id": "q", "parent": "p", "text": "q"}, root, {"id": "q", "parent": "p", "text": "again"}))
    for which in ("first", "last"):
        store = dataset.build([path], "jsonl", tmp_path / which, policy=Policy(duplicate_id=which))
        assert (store.info["read"], store.info["nodes"], store.info["skipped"]) == (2, 1, {"duplicate_id": 1})


def test_cleaning_of_placeholders_keeps_the_counts(tmp_path):
    path = tmp_path / "trees.jsonl"
    path.write_text(line({"id": "p", "kind": "placeholder", "text": ">quoted"}, {"id": "q", "parent": "p", "text": "q"}))
    info = dataset.build([path], "jsonl", tmp_path / "store", clean=["quotes"]).info
    assert info["read"] == info["nodes"] + sum(info["skipped"].values()) == 2


def test_parts_of_a_discussion_stay_in_one_split(tmp_path):
    """Posts, lines, and lines exported from posts give the same store."""
    rows = [
        {"id": own, "parent": parent, "tree": f"t{n}", "text": own}
        for n in range(60)
        for own, parent in (("r", None), ("a", "r"), ("z", None), ("y", "z"), ("k", None))
    ]
    table, lines = tmp_path / "rows.jsonl", tmp_path / "trees.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    stores = [dataset.build([table], "table", tmp_path / "posts", split=(0.5, 0.25, 0.25))]
    lines.write_text(
        "".join(json.dumps({"id": f"t{n}", "nodes": [row for row in rows if row["tree"] == f"t{n}"]}) + "\n" for n in range(60))
    )
    stores.append(dataset.build([lines], "jsonl", tmp_path / "lines", split=(0.5, 0.25, 0.25)))
    lines.write_text("".join(tree.to_json() + "\n" for tree in reversed(list(stores[0].trees()))))
    stores.append(dataset.build([lines], "jsonl", tmp_path / "again", split=(0.5, 0.25, 0.25)))
    assert len({store.hash for store in stores}) == 1
    for store in stores:
        assert store.num_trees == 180
        where = {}
        for name in ("train", "dev", "test"):
            for tree in store.trees(store.split(name)):
                where.setdefault(tree.id.split("/")[0], set()).add(name)
        assert all(len(names) == 1 for names in where.values())


def test_placeholder_roots_survive_export_and_build_uncounted(tmp_path):
    path = tmp_path / "trees.jsonl"
    # A node has the tree's own id, so the root needs another.
    path.write_text(line({"id": "t", "parent": "gone", "text": "a"}, {"id": "b", "parent": "t", "text": "b"}))
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
    path.write_text("id,parent,text\n1,,x\n")
    with pytest.raises(
        RamifyError, match=r"neither a data set nor JSON lines of trees\. .*: ramify data build .*trees\.jsonl --out"
    ):
        list(jsonl.read_jsonl(path))


def test_half_surrogate_pair_does_not_stop_a_build(tmp_path):
    path = tmp_path / "trees.jsonl"
    half = r'{"id": "u\ud83d", "meta": {"k": "\ud83d"}, "nodes": [{"id": "r", "text": "\uD83d", "label": ["\udE00"]}]}'
    path.write_text(f"{TREE.to_json()}\n{half}\n")
    store = dataset.build([path], "jsonl", tmp_path / "store")
    assert store.info["skipped"] == {}
    tree = store.tree(store.find_tree("u\ufffd"))
    assert (tree.meta, tree.nodes[0].text, tree.nodes[0].label) == ({"k": "\ufffd"}, "\ufffd", ["\ufffd"])


def test_matches():
    assert not jsonl.refuses(Path("x"), TREE.to_json().encode())
    assert not jsonl.refuses(Path("x"), b"\xef\xbb\xbf" + TREE.to_json().encode())
    assert not jsonl.refuses(Path("x"), b'\n{"id": "1", "meta": {"subreddit": "s", "title": "t"}, "nodes" : [')
    assert jsonl.refuses(Path("x"), b'{"id": "1", "text": "x"}\n{"nodes": []}')
    assert jsonl.refuses(Path("x"), b'{"id": "1", "nodes": 1}')
