"""Splits that the data give, structures, and the levels and labels of data sets."""

import numpy as np
import pyarrow as pa
import pytest

from fixtures.questions import question_store, squad
from ramify.batching.text_input import TextInput
from ramify.batching.views.comment_trees import units
from ramify.dataset import build
from ramify.dataset.build import tree_hashes
from ramify.dataset.statistics import labels, levels, statistics
from ramify.dataset.store import SPLITS, Store
from ramify.errors import RamifyError
from ramify.tokenizer import Tokenizer
from ramify.tree import Node, Tree


def texts(count, **meta):
    return [Tree((Node(f"text number {n}", id="a"),), id=f"t{n}", meta=meta) for n in range(count)]


def document(name="book"):
    nodes = (
        Node(kind="document", id="0", label="The title"),
        Node(kind="chapter", parents=(0,), id="1", label="One"),
        Node(kind="paragraph", parents=(1,), id="2"),
        Node("It rains.", kind="sentence", parents=(2,), id="3", label="weather"),
        Node("It stops.", kind="sentence", parents=(2,), id="4", label="weather"),
        Node(kind="paragraph", parents=(1,), id="5"),
        Node("We go.", kind="sentence", parents=(5,), id="6", label="travel"),
    )
    return Tree(nodes, id=name)


def write(path, trees):
    path.write_text("".join(tree.to_json() + "\n" for tree in trees))
    return path


def split_of(store):
    return {tree: SPLITS[number] for number, name in enumerate(SPLITS) for tree in store.tree_ids(store.split(name))}


def test_metadata_gives_splits_before_the_hash(tmp_path):
    trees = [*texts(4, split="validation"), Tree((Node("x", id="a"),), id="free")]
    store = build([write(tmp_path / "a.jsonl", trees)], None, tmp_path / "a", split=(1, 0, 0))
    assert split_of(store) == {"t0": "dev", "t1": "dev", "t2": "dev", "t3": "dev", "free": "train"}
    told = []
    store = build([tmp_path / "a.jsonl"], "jsonl", tmp_path / "none", split=(0, 0, 1), split_by="none", tell=told.append)
    assert set(split_of(store).values()) == {"train"}
    (note,) = told
    assert note.startswith("note: --split 0,0,1 has no effect, because --split-by none gives the split of every tree.")
    assert note.endswith("To divide the trees by shares, leave out --split-by none.")


def test_dev_is_taken_out_of_the_train_trees_of_metadata(tmp_path):
    """Whatever the format: here, trees in JSON lines. Those without a split follow the same shares."""
    parts = {"train": texts(40, split="training"), "test": texts(4, split="test"), "free": texts(40)}
    trees = [Tree(tree.nodes, f"{name}/{tree.id}", tree.meta) for name, part in parts.items() for tree in part]
    path, told = write(tmp_path / "a.jsonl", trees), []
    store = build([path], "jsonl", tmp_path / "a", split=(0.6, 0.2, 0.2), tell=told.append)
    found = split_of(store)
    assert {name for name, split in found.items() if split == "test"} == {f"test/t{n}" for n in range(4)}
    assert all({found[f"{name}/t{n}"] for n in range(40)} == {"train", "dev"} for name in ("train", "free"))
    num_dev = len(store.split("dev"))
    assert any(f"takes dev out of train: {num_dev} trees of 80, by a share of 0.25." in line for line in told)
    with pytest.raises(RamifyError, match="remove `split` from the metadata of the trees, which mixes"):
        build([path], "jsonl", tmp_path / "b", fold="1/5")
    posts = tmp_path / "posts.csv"
    rows = []
    for number in range(44):
        split = "test" if number < 4 else "train"
        rows += [f"t{number},{number},,a post,{split}", f"t{number},{number}r,{number},a reply,"]
    posts.write_text("\n".join(["tree,id,parent,text,split", *rows]) + "\n")
    store = build([posts], "table", tmp_path / "posts", split=(0.6, 0.2, 0.2))
    assert {*store.tree_ids(store.split("test"))} == {"t0", "t1", "t2", "t3"}
    assert 0 < len(store.split("dev")) < 20


def test_shares_are_silent_unless_they_were_given(tmp_path):
    told = []
    build([write(tmp_path / "a.jsonl", texts(3, split="train"))], "jsonl", tmp_path / "a", tell=told.append)
    (note,) = told
    assert note.startswith("note: the splits dev and test are empty, because the data give the split of every tree.")
    assert note.endswith("remove `split` from the metadata of the trees.")


def test_folds_divide_the_data(tmp_path):
    """The test splits of all folds are the data, and groups stay whole."""
    trees = [Tree((Node("x", id="a"),), id=f"t{n}", meta={"group": f"g{n // 2}"}) for n in range(80)]
    path = write(tmp_path / "a.jsonl", trees)
    tested = []
    for number in range(1, 5):
        split = split_of(build([path], None, tmp_path / str(number), fold=f"{number}/4"))
        tested += [tree for tree, name in split.items() if name == "test"]
        assert 0 < sum(name == "dev" for name in split.values()) < 24
        assert all(split[f"t{n}"] == split[f"t{n + 1}"] for n in range(0, 80, 2))
    assert sorted(tested) == sorted(tree.id for tree in trees)


def test_folds_of_few_trees_divide_them(tmp_path):
    """A test split may be empty then; it takes nothing from the others."""
    path = write(tmp_path / "a.jsonl", texts(5))
    tested = [
        tree
        for number in range(1, 4)
        for tree, name in split_of(build([path], None, tmp_path / str(number), fold=f"{number}/3")).items()
        if name == "test"
    ]
    assert sorted(tested) == [f"t{n}" for n in range(5)]


@pytest.mark.parametrize("fold", ["0/5", "6/5", "1", "1/1", "a/5", "1/101", "²/5"])
def test_folds_that_do_not_exist(tmp_path, fold):
    with pytest.raises(RamifyError, match=rf"--fold {fold!r} is not a part of the data\. Expected, say, 1/5 to 5/5"):
        build([write(tmp_path / "a.jsonl", texts(3))], None, tmp_path / "a", fold=fold)


def test_folds_and_other_splits(tmp_path):
    path = write(tmp_path / "a.jsonl", texts(3, split="train"))
    with pytest.raises(RamifyError, match=r"--fold 1/5 gives the shares of all splits, and so does --split\."):
        build([path], None, tmp_path / "a", fold="1/5", split=(1, 0, 0))
    with pytest.raises(RamifyError, match=r"and so does --split-by none\. Leave one out"):
        build([path], None, tmp_path / "a", fold="1/5", split_by="none")
    told = []
    build([path], None, tmp_path / "a", fold="1/5", tell=told.append)
    assert any(line.startswith("note: --fold 1/5 has no effect, because the data give the split") for line in told)


def test_tables_of_titles(tmp_path):
    trees = [Tree((Node("x", id="a"),), id=f"t{n}", meta={"title": "One" if n < 2 else "Two"}) for n in range(3)]
    path = write(tmp_path / "a.jsonl", [*trees, Tree((Node("x", id="a"),), id="free")])
    table = tmp_path / "titles.tsv"
    table.write_text("One\tdev\n*\ttrain\nt1\ttest\n")
    store = build([path], None, tmp_path / "a", split_by=str(table))
    assert split_of(store) == {"t0": "dev", "t1": "test", "t2": "train", "free": "train"}
    table.write_text("One\tdev\n")
    with pytest.raises(RamifyError, match=r"names no split for the tree 't2', nor for its title or group 'Two'\. Add it"):
        build([write(tmp_path / "b.jsonl", trees)], None, tmp_path / "b", split_by=str(table))


def test_an_unknown_split_is_refused(tmp_path):
    with pytest.raises(RamifyError, match=r"tree t0: the split 'later' does not exist"):
        build([write(tmp_path / "a.jsonl", texts(1, split="later"))], None, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_the_names_of_files_give_splits(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    trees = texts(3)
    for tree, name in zip(trees, ("train", "valid", "test"), strict=True):
        write(folder / f"news.{name}.jsonl", [tree])
    store = build([folder], None, tmp_path / "a", split_by="file")
    assert split_of(store) == {"t0": "train", "t1": "dev", "t2": "test"}
    write(folder / "rest.jsonl", texts(1))
    with pytest.raises(RamifyError, match=r"the name of .*rest.jsonl names no split"):
        build([folder], None, tmp_path / "b", split_by="file")


def test_the_names_of_files_give_splits_to_trees_without_a_root(tmp_path):
    for name, tree in (("train", "a"), ("dev", "b")):
        (tmp_path / f"{name}.csv").write_text(f"id,parent,tree,text\n1,{tree},{tree},hello there\n")
    store = build([tmp_path / "train.csv", tmp_path / "dev.csv"], "table", tmp_path / "a", split=(0, 0, 1), split_by="file")
    assert split_of(store) == {"a": "train", "b": "dev"}


@pytest.mark.parametrize(
    "content",
    [
        '{"t0": "train", "t1": "dev"}',
        '{"train": ["t0"], "dev": ["t1"]}',
        "id,split\nt0,train\nt1,val\n",
        "t0\ttrain\nt1\tdev\n",
    ],
)
def test_a_file_gives_splits(tmp_path, content):
    table = tmp_path / "splits"
    table.write_text(content)
    inputs = write(tmp_path / "a.jsonl", texts(2))
    assert split_of(build([inputs], None, tmp_path / "a", split_by=str(table))) == {"t0": "train", "t1": "dev"}
    write(tmp_path / "b.jsonl", texts(3))
    with pytest.raises(RamifyError, match="names no split for the tree 't2'"):
        build([tmp_path / "b.jsonl"], None, tmp_path / "b", split_by=str(table))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("t0,train\nt0,dev\n", "row 2: the tree 't0' is in train already"),
        ("t0,train,x\n", "row 1: 3 fields"),
        ("", "names no tree"),
        ("{", "not valid JSON"),
        ("t0,train\nt1,rest\n", "row 2: the split 'rest' does not exist"),
    ],
)
def test_a_faulty_file_of_splits(tmp_path, content, message):
    table = tmp_path / "splits"
    table.write_text(content)
    with pytest.raises(RamifyError, match=message):
        build([write(tmp_path / "a.jsonl", texts(2))], None, tmp_path / "a", split_by=str(table))


def test_a_column_that_the_format_lacks(tmp_path):
    with pytest.raises(RamifyError, match=r"--split-by fold is neither an existing file .* has no columns"):
        build([write(tmp_path / "a.jsonl", texts(2))], None, tmp_path / "a", split_by="fold")


def test_structures(tmp_path):
    reply = Tree((Node("a", id="0"), Node("b", parents=(0,), id="1")), id="r")
    log = Tree((Node("a", id="0"), Node("b", parents=None, id="1")), id="l")
    for trees, structure in (
        (texts(2), "texts"),
        ([*texts(2), reply], "replies"),
        ([*texts(2), reply, log], "log"),
        ([document()], "document"),
    ):
        store = build([write(tmp_path / "in.jsonl", trees)], None, tmp_path / "a", overwrite=True)
        assert store.structure == structure == Store.from_trees(trees).structure
        assert statistics(store)["structure"] == structure
    with pytest.raises(RamifyError, match="mixes documents with other trees"):
        build([write(tmp_path / "in.jsonl", [document(), reply])], None, tmp_path / "b")


def test_levels_labels_and_containers(tmp_path):
    store = build([write(tmp_path / "in.jsonl", [document()])], None, tmp_path / "a")
    assert store.tree(0).nodes == document().nodes
    assert store.info["skipped"] == {}
    assert levels(store) == {"document": 1, "chapter": 1, "paragraph": 2, "sentence": 3}
    assert labels(store) == {"weather": 2, "travel": 1}


def test_labels_that_are_numbers():
    def of(values):
        return labels(Store.from_trees([Tree((Node("x", id="0", label=value),), id=str(n)) for n, value in enumerate(values)]))

    assert of([1, 0, 1, None]) == {"1": 2, "0": 1}
    assert of([1.5, 2.5, 5.0]) == {"count": 3, "mean": 3.0, "min": 1.5, "max": 5.0}
    assert of(list(range(200))) == {"count": 200, "mean": 99.5, "min": 0, "max": 199}
    assert of([True, "yes"]) == {"true": 1, "yes": 1}
    assert of([{"answers": ["a"]}, {"answers": []}]) == {"count": 2, "different": 2}
    assert of([None]) == {}


def test_targets_of_texts_and_documents():
    tokenizer = Tokenizer.train(["text number it rains stops we go 0 1 2 3"], vocab_size=60)
    for trees, expected in ((texts(3), [[0], [1], [2]]), ([document()], [[3, 4, 6]])):
        forest = TextInput(max_tokens=16).forest(trees, tokenizer)
        parts = units(forest, range(len(trees)))
        assert [parts.targets[parts.part(n)].tolist() for n in range(len(parts))] == expected


def named(count, *, low, high, **meta):
    """Texts whose ids have hashes between two shares of all hashes, in the order of the hashes."""
    names = [f"name{number}" for number in range(40 * count)]
    shares = tree_hashes(pa.array(names)) / 2.0**64
    inside = [names[number] for number in np.argsort(shares) if low <= shares[number] < high]
    return [Tree((Node("a text", id="a"),), id=name, meta=meta) for name in inside[:count]]


@pytest.mark.parametrize("memory", [512 << 20, 1 << 12], ids=["in memory", "in parts"])
def test_splits_that_no_hash_falls_into_take_the_nearest_trees(tmp_path, memory):
    trees = named(20, low=0, high=0.9)
    store = build([write(tmp_path / "a.jsonl", trees[::-1])], None, tmp_path / "a", memory=memory)
    *train, dev, test = (tree.id for tree in trees)
    assert split_of(store) == dict.fromkeys(train, "train") | {dev: "dev", test: "test"}
    assert store.info["splits"] == {
        "train": {"trees": 18, "nodes": 18},
        "dev": {"trees": 1, "nodes": 1},
        "test": {"trees": 1, "nodes": 1},
    }
    assert store.info["kept"] == {"filled_split": 2}
    assert store.info["examples"]["filled_split"] == [f"dev takes the tree {dev!r}", f"test takes the tree {test!r}"]
    # A tree that falls into a split replaces the one that filled it.
    (later,) = named(1, low=0.95, high=1)
    store = build([write(tmp_path / "b.jsonl", [*trees, later])], None, tmp_path / "b", memory=memory)
    assert split_of(store) == dict.fromkeys([*train, dev], "train") | {test: "dev", later.id: "test"}


def test_the_nearest_tree_may_lie_on_either_side_of_an_empty_split(tmp_path):
    below, above = named(3, low=0.2, high=0.4), named(4, low=0.8, high=1)
    inputs = write(tmp_path / "in.jsonl", [*below, *above])
    for shares, moved in (((0.45, 0.1, 0.45), below[-1]), ((0.6, 0.1, 0.3), above[0])):
        store = build([inputs], None, tmp_path / "a", split=shares, overwrite=True)
        assert [tree for tree, split in split_of(store).items() if split == "dev"] == [moved.id]
    store = build([write(tmp_path / "in.jsonl", above)], None, tmp_path / "a", split=(0.5, 0.5, 0), overwrite=True)
    assert split_of(store) == {above[0].id: "train"} | dict.fromkeys((tree.id for tree in above[1:]), "dev")
    # As many trees as splits with a share are enough.
    store = build([write(tmp_path / "in.jsonl", above[:2])], None, tmp_path / "a", split=(0.5, 0.5, 0), overwrite=True)
    assert split_of(store) == {above[0].id: "train", above[1].id: "dev"}


def test_a_group_moves_as_a_whole(tmp_path):
    together = [Tree((Node("a text", id="a"),), id=f"t{number}", meta={"group": "g"}) for number in range(3)]
    limit = float(tree_hashes(pa.array(["g"]))[0] / 2.0**64) + 1e-6
    others = named(6, low=0, high=0.9 * limit)
    reply = Tree((Node("a", id="0"), Node("b", parents=(0,), id="1")), id="r", meta={"group": "g"})
    store = build([write(tmp_path / "a.jsonl", [*others, *together, reply])], None, tmp_path / "a", split=(limit, 1 - limit, 0))
    assert {tree for tree, split in split_of(store).items() if split == "dev"} == {"r", *(tree.id for tree in together)}
    assert store.info["splits"]["dev"] == {"trees": 4, "nodes": 5}


def test_splits_stay_empty_where_the_data_give_them_or_trees_are_few(tmp_path):
    given, few = named(5, low=0, high=0.9, split="train"), named(2, low=0, high=0.9)
    table = tmp_path / "splits"
    table.write_text("".join(f"{tree.id}\ttrain\n" for tree in given))
    plain = [Tree(tree.nodes, id=tree.id) for tree in given]
    for trees, options in (
        (given, {}),
        (few, {}),
        ([*given, *few], {}),
        (plain, {"split_by": "none"}),
        (plain, {"split_by": str(table)}),
        (plain, {"split": (1, 0, 0)}),
    ):
        store = build([write(tmp_path / "in.jsonl", trees)], None, tmp_path / "a", overwrite=True, **options)
        assert ({*split_of(store).values()}, store.info["kept"]) == ({"train"}, {})


def test_the_remedy_that_a_note_names_divides_a_file_of_questions(tmp_path):
    """The name of the file says dev."""
    told: list[str] = []
    file = {"dev": squad(40, 0)}
    whole = question_store(tmp_path / "whole", file, tell=told.append)
    assert [len(whole.split(name)) > 0 for name in SPLITS] == [False, True, False]
    (note,) = (line for line in told if "empty" in line)
    assert note.endswith("To divide the trees by shares, give --split, such as --split 0.7,0.15,0.15.")
    told.clear()
    divided = question_store(tmp_path / "divided", file, tell=told.append, split=(0.7, 0.15, 0.15))
    assert all(len(divided.split(name)) for name in SPLITS)
    assert not [line for line in told if "has no effect" in line or "empty" in line]
    # Several splits in the names of the files: shares have no effect without the option.
    both = {"train": squad(40, 1), "dev": squad(4, 2)}
    question_store(tmp_path / "both", both, tell=told.append, split=(0.4, 0.3, 0.3))
    (note,) = (line for line in told if "has no effect" in line)
    assert note.endswith("give --option split=none.")
    divided = question_store(tmp_path / "option", both, options={"split": "none"}, split=(0.4, 0.3, 0.3))
    assert all(len(divided.split(name)) for name in SPLITS)
