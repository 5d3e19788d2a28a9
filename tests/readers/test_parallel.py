"""Parallel texts: pairs of files, their splits, and files that do not fit together."""

import gzip

import pytest
import zstandard

from ramify.dataset.build import build
from ramify.errors import RamifyError

EN, DE = "one\ntwo\nthree\n", "eins\nzwei\ndrei\n"


@pytest.fixture
def files(tmp_path):
    """Writes files by name, compressed as their names say."""

    def write(**texts):
        paths = []
        for name, text in texts.items():
            path = tmp_path / name.replace("_", ".")
            pack = {".gz": gzip.compress, ".zst": zstandard.compress}.get(path.suffix, bytes)
            path.write_bytes(pack(text.encode()))
            paths.append(path)
        return paths

    return write


def texts(store, split):
    trees = [store.tree(int(number)) for number in store.split(split)]
    return sorted(tuple(node.text for node in tree.nodes) for tree in trees)


def test_a_tree_for_each_pair_and_splits_from_the_names(files, tmp_path):
    paths = files(train_en_gz=EN, train_de_gz=DE, val_en_zst="four\n", val_de_zst="vier\n", test_en="five\n", test_de="fünf\n")
    store = build(paths, "parallel", tmp_path / "data")
    assert texts(store, "train") == [("one", "eins"), ("three", "drei"), ("two", "zwei")]
    assert texts(store, "dev") == [("four", "vier")]
    assert texts(store, "test") == [("five", "fünf")]
    tree = store.tree(store.find_tree("train.en.gz/0000000002"))
    assert [(node.kind, node.parents) for node in tree.nodes] == [("source", ()), ("target", (0,))]
    assert store.structure == "replies"


def test_splits_can_be_assigned(files, tmp_path):
    paths = files(train_en=EN, train_de=DE, val_en="four\n", val_de="vier\n")
    store = build(paths, "parallel", tmp_path / "data", split=(0.5, 0.5, 0), options={"val": "test", "train": "shares"})
    assert texts(store, "test") == [("four", "vier")]
    assert texts(store, "train")
    assert texts(store, "dev")


def test_shares_that_decide_on_no_pair_are_noted_with_a_remedy(files, tmp_path):
    paths = files(train_en=EN, train_de=DE, val_en="four\n", val_de="vier\n")
    told = []
    build(paths, "parallel", tmp_path / "data", split=(0.8, 0.1, 0.1), tell=told.append)
    remedy = "give --option train=shares --option val=shares --option test=shares."
    given = f"because the data give the split of every tree. To divide the trees by shares, {remedy}"
    assert told == [f"note: --split 0.8,0.1,0.1 has no effect, {given}"]
    told = []
    shares = dict.fromkeys(("train", "val", "test"), "shares")
    store = build(paths, "parallel", tmp_path / "shares", split=(0.5, 0.25, 0.25), options=shares, tell=told.append)
    assert told == []
    assert len(store.split("test")) > 0


def test_pairs_of_opposite_directions_are_refused(files, tmp_path):
    english, german, others, other_sources = files(train_en=EN, train_de=DE, val_de="vier\n", val_en="four\n")
    with pytest.raises(RamifyError, match=r"val\.de and \S+val\.en are paired in the opposite direction of \S+train\.en and"):
        build([english, german, others, other_sources], "parallel", tmp_path / "data")


def test_files_without_a_split_in_their_names_are_divided_by_shares(files, tmp_path):
    store = build(files(a_en=EN, a_de=DE), "parallel", tmp_path / "data", split=(1, 0, 0))
    assert len(store.split("train")) == 3


def test_pairs_with_an_empty_side_are_left_out_and_listed(files, tmp_path):
    store = build(files(train_en="one\n\nthree\n", train_de="eins\nzwei\n  \n"), "parallel", tmp_path / "data")
    assert texts(store, "train") == [("one", "eins")]
    assert store.info["skipped"] == {"empty_side": 4}
    assert store.info["read"] == store.info["nodes"] + 4
    where = store.info["examples"]["empty_side"]
    assert [place.rpartition("/")[2] for place in where] == ["train.en, line 2: no source", "train.de, line 3: no target"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"train_en": EN, "train_de": DE + "vier\nfünf\n"}, r"train\.en has 3 lines, but .*train\.de has 5\."),
        ({"train_en": EN + "four\n", "train_de": DE}, r"train\.en has 4 lines, but .*train\.de has 3\."),
        ({"train_en": EN, "train_de": DE, "val_en": EN}, r"got 3 files: .*val\.en\. Name the missing file"),
        ({"train_en": EN, "val_de": DE}, "say train and dev"),
    ],
)
def test_files_that_do_not_fit_together(files, tmp_path, names, message):
    with pytest.raises(RamifyError, match=message):
        build(files(**names), "parallel", tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_folder_and_an_unknown_split_are_refused(files, tmp_path):
    paths = files(train_en=EN, train_de=DE)
    with pytest.raises(RamifyError, match="is a folder, but the order of the files"):
        build([tmp_path], "parallel", tmp_path / "data")
    with pytest.raises(RamifyError, match=r"option val='held'.*Expected train, dev, test or shares"):
        build(paths, "parallel", tmp_path / "data", options={"val": "held"})
