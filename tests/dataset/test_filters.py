import numpy as np
import pyarrow as pa
import pytest

from ramify import Node, RamifyError, Tree
from ramify.dataset import Policy, build, filters


def store_of(folder, nodes, **options):
    path = folder / "trees.jsonl"
    path.write_text(Tree(tuple(nodes), id="t").to_json())
    return build([path], "jsonl", folder / "store", **options)


def test_bots(tmp_path):
    authors = ["ann", "AutoModerator", "TheBOT", "robotics_fan", None, "mine"]
    nodes = [
        Node("x", id=str(place), parents=(place - 1,) if place else (), author=author) for place, author in enumerate(authors)
    ]
    store = store_of(tmp_path, nodes, drop_bots=True, bots=["Mine"])
    assert store.column("author", range(3)).to_pylist() == ["ann", "robotics_fan", None]
    assert store.parent.tolist() == [-1, 0, 1]
    assert store.info["skipped"] == {"bot": 3}


def test_node_with_several_parents_outlives_them(tmp_path):
    """The first parent of a removed parent replaces it. Duplicate parents are merged."""
    nodes = [
        Node("root", id="r"),
        Node("a", id="a", parents=(0,), author="abot"),
        Node("b", id="b", parents=(0,)),
        Node("c", id="c", parents=(1, 2)),
        Node("d", id="d", parents=(0, 1)),
        Node("unknown", id="e", parents=None),
    ]
    tree = store_of(tmp_path, nodes, drop_bots=True).tree(0)
    assert [(node.id, node.parents) for node in tree.nodes] == [("r", ()), ("b", (0,)), ("c", (0, 1)), ("d", (0,)), ("e", None)]


def test_small_trees_are_removed_with_their_placeholder_roots(tmp_path):
    path = tmp_path / "posts.csv"
    path.write_text("id,parent,tree,text\n1,t,t,alone\n2,u,u,one\n3,2,u,two\n")
    store = build([path], "table", tmp_path / "store", min_nodes=3)
    assert store.tree_ids([0]) == ["u"]
    assert store.info["skipped"] == {"small_tree": 1}
    assert (store.info["nodes"], store.info["placeholders"]) == (2, 1)


def test_trees_may_be_bounded_by_size_and_depth(tmp_path):
    """The trees have (nodes, depth) star (3, 1), chain (4, 3), long (5, 4) and alone (1, 0)."""
    shapes = {"star": [None, 0, 0], "chain": [None, 0, 1, 2], "long": [None, 0, 1, 2, 3], "alone": [None]}
    rows = [
        f"{tree}{place},{'' if above is None else f'{tree}{above}'},{tree},words"
        for tree, shape in shapes.items()
        for place, above in enumerate(shape)
    ]
    path = tmp_path / "posts.csv"
    path.write_text("\n".join(["id,parent,tree,text", *rows]))

    def left(number, **bounds):
        store = build([path], "table", tmp_path / str(number), **bounds)
        return set(store.tree_ids(range(store.num_trees))), store.info["skipped"]

    assert left(0) == (set(shapes), {})
    assert left(1, min_nodes=3, max_nodes=4) == ({"star", "chain"}, {"small_tree": 1, "large_tree": 5})
    assert left(2, min_depth=3) == ({"chain", "long"}, {"shallow_tree": 4})
    assert left(3, min_nodes=2, max_nodes=4, min_depth=2)[0] == {"chain"}


def test_deleted_nodes_may_remove_their_tree(tmp_path):
    path = tmp_path / "posts.csv"
    rows = ["1,,t,post", "2,1,t,[deleted]", "3,2,t,words", "4,,u,post", "5,4,u,words", "6,,v,[removed]"]
    path.write_text("\n".join(["id,parent,tree,text", *rows]))
    store = build([path], "table", tmp_path / "store", policy=Policy(deleted="tree"))
    assert store.tree_ids(range(store.num_trees)) == ["u"]
    assert store.info["skipped"] == {"tree_with_deleted": 3, "tree_with_removed": 1}


def test_pseudonyms():
    names = pa.array(["ann", None, "bob", "ann"]).dictionary_encode()
    found = filters.pseudonyms(names, "salt").to_pylist()
    assert found == [found[0], None, found[2], found[0]]
    assert found[0] != found[2]
    assert len(found[0]) == len("user_") + 2 * filters.PSEUDONYM_BYTES
    assert filters.pseudonyms(names, "other").to_pylist()[0] != found[0]


def test_pseudonyms_without_a_salt_resist_guessing(tmp_path):
    nodes = [Node("x", id=str(place), parents=(0,) if place else (), author=name) for place, name in enumerate("aba")]
    found = []
    for name, options in (("1", {}), ("2", {}), ("3", {"salt": ""}), ("4", {"salt": "s"}), ("5", {"salt": "s"})):
        (tmp_path / name).mkdir()
        store = store_of(tmp_path / name, nodes, anonymise=True, **options)
        authors = store.column("author", range(3)).to_pylist()
        assert authors[0] == authors[2] != authors[1]
        assert "salt" not in store.info["options"]
        found.append(authors[0])
    assert len(set(found)) == 4
    assert found[3] == found[4]
    assert filters.pseudonyms(pa.array(["a"]).dictionary_encode(), "")[0].as_py() not in found


@pytest.mark.parametrize(
    ("name", "text", "cleaned"),
    [
        ("quotes", "> said before\n&gt; not this\nanswer > question\n  > again", "&gt; not this\nanswer > question\n"),
        (
            "links",
            "see https://example.org/a?b=c [here](http://x.y/z) or www.example.org",
            "see <link>, [here](<link>) or <link>".replace("<link>,", "<link>"),
        ),
        ("space", "  a\u200b b&#x200B;\u00a0\u2003c \n\n\n\n d&nbsp;e\t\tf ", "a b c\n\nd e f"),
    ],
)
def test_cleanings(name, text, cleaned):
    batch = pa.RecordBatch.from_pydict({"text": pa.array([text], pa.large_string())})
    assert filters.cleaned(batch, [name]).column("text").to_pylist() == [cleaned]
    assert filters.cleaned(batch, []) is batch
    with pytest.raises(RamifyError, match="there is no cleaning 'x'"):
        filters.check_cleanings([name, "x"])


def test_texts_emptied_by_cleaning_are_skipped(tmp_path):
    path = tmp_path / "posts.csv"
    path.write_text('id,parent,tree,text\n1,,t,root\n2,1,t,"> only a quotation"\n3,2,t,answer\n')
    store = build([path], "table", tmp_path / "store", clean=["quotes"])
    assert store.info["skipped"] == {"empty": 1}
    assert np.array_equal(store.parent, [-1, 0])
