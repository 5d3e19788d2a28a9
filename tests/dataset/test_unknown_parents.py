import json
from dataclasses import replace

import pytest

from ramify import RamifyError
from ramify.dataset import Policy, build

TALK = [("r", None, "t"), ("c1", "r", "t"), ("c2", "c1", "t"), ("c3", "c2", "t")]


def table(path, rows, names="id,parent,tree,text"):
    lines = (",".join("" if value is None else str(value) for value in (*row, f"text of {row[0]}")) for row in rows)
    path.write_text("\n".join([names, *lines]) + "\n")
    return path


def posts(count, parent):
    return [(f"p{n}", None if n % 10 == 0 else parent(n), f"t{n // 10}") for n in range(count)]


@pytest.mark.parametrize(
    "spelled",
    [
        lambda parent: f"t4_{parent}",
        lambda parent: f"post-{parent}",
        lambda parent: parent.upper(),
        lambda parent: f" {parent}",
    ],
)
@pytest.mark.parametrize("length", [2, 4])
def test_misspelled_parents_are_refused_in_the_smallest_table(tmp_path, spelled, length):
    rows = [(name, parent and spelled(parent), tree) for name, parent, tree in TALK[:length]]
    with pytest.raises(
        RamifyError, match=r"The cause is the spelling of ids: a parent is '.*[rR]', and a post is 'r'"
    ) as caught:
        build([table(tmp_path / "posts.csv", [*rows])], "table", tmp_path / "out")
    assert f"{length - 1} of {length - 1} replies answer a post that is not in their tree" in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("names", ["id,parent,tree,text", "id,parent_id,link_id,body"])
def test_prefixes_of_reddit(tmp_path, names):
    rows = [("c1", "t3_s", "t3_s"), ("c2", "t1_c1", "t3_s"), ("c3", "t1_c2", "t3_s")]
    store = build([table(tmp_path / "posts.csv", rows, names)], None, tmp_path / "out")
    assert store.depth.tolist() == [0, 1, 2, 3]


def test_wrong_columns_are_refused(tmp_path):
    by_number = posts(40, lambda n: 7_000 + n - 1)
    with pytest.raises(RamifyError, match=r"36 of 36 replies answer a post .* parents refer to another column than the id"):
        build([table(tmp_path / "id.csv", by_number)], "table", tmp_path / "out")
    by_tree = [(name, parent, name) for name, parent, _ in posts(40, lambda n: f"p{n - 1}")]
    with pytest.raises(RamifyError, match=r"a reply in the tree 'p.*' answers 'p.*' in the tree 'p.*--column tree=NAME"):
        build([table(tmp_path / "tree.csv", by_tree)], "table", tmp_path / "out")


@pytest.mark.parametrize("memory", [64 << 20, 2_000])
def test_result_does_not_depend_on_the_parts(tmp_path, memory):
    path = table(tmp_path / "posts.csv", posts(400, lambda n: f"t4_p{n - 1}"))
    with pytest.raises(RamifyError, match="360 of 360 replies answer a post that is not in their tree"):
        build([path], "table", tmp_path / "out", memory=memory)


def test_unknown_parents_that_prove_nothing(tmp_path):
    few = table(tmp_path / "few.csv", posts(10, lambda n: f"gone{n}"))
    store = build([few], "table", tmp_path / "few")
    assert store.info["kept"] == {"orphan": 9}
    # A seventh of the parents is known.
    some = table(tmp_path / "some.csv", posts(70, lambda n: f"p{n - 1}" if n % 7 == 1 else f"gone{n}"))
    assert build([some], "table", tmp_path / "some").info["kept"]["orphan"] == 54
    # Replies to the tree need no post.
    direct = table(tmp_path / "direct.csv", [(f"c{n}", "t", "t") for n in range(30)])
    assert build([direct], "table", tmp_path / "direct").info["kept"] == {"placeholder_roots": 1}


def test_sample_of_the_posts_is_read_if_the_policy_says_what_to_do(tmp_path):
    path = table(tmp_path / "posts.csv", posts(40, lambda n: f"gone{n}"))
    with pytest.raises(RamifyError, match=r"a sample of the posts .*--policy orphan=drop"):
        build([path], "table", tmp_path / "out")
    store = build([path], "table", tmp_path / "out", policy=replace(Policy(), orphan="drop"))
    assert store.num_nodes == 4
    assert store.info["skipped"] == {"orphan": 36}


def test_dumps_may_hold_parts_of_discussions(tmp_path):
    lines = [
        {"id": f"c{n}", "link_id": f"t3_s{n}", "parent_id": f"t1_b{n}", "author": "ann", "created_utc": n, "body": "words"}
        for n in range(50)
    ]
    (tmp_path / "RC").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert build([tmp_path / "RC"], "pushshift", tmp_path / "out").info["kept"]["orphan"] == 50


def test_real_samples_are_believed(data_dir, tmp_path):
    for name, format in (("pushshift-2006", "pushshift"), ("cmv-adhominem", "cmv-chains")):
        inputs = sorted(data_dir(name).glob("R*")) or sorted(data_dir(name).glob("*.tar*"))
        assert build(inputs, format, tmp_path / name).num_nodes
