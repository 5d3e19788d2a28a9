"""`ramify data export`: data sets out in every format, and in again as the same trees."""

import json
import subprocess
import sys
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import built, discussions, several_parents
from ramify import Node, Tree
from ramify.dataset import Policy, Store, build
from ramify.readers.jsonl import read_jsonl

KEEP = Policy(empty="keep")
FILES = ("jsonl", "csv", "parquet")

HARD = Tree(
    (
        Node('She said "tea",\nthen left.\r\n', id="p,1", author='a"b', time=1_730_227_065.123456),
        Node("", (0,), id='q"', author="", label="1", kind="x,y"),
        Node("\ttab; 'quote' | bar\n\n", (1,), id="r", time=-0.1, label={"stance": ["for", None], "n": 1.5}),
        Node("=1+1", (0,), id="ü", author=" spaced ", time=253402300799.0, label=0),
        Node("null", (3,), id="null", author="None", label='"quoted"', kind="null"),
        Node('one,two,three,"four",,,,,,,', (3,), id="7.0"),
    ),
    id='t,"1"',
    meta={"title": 'A "title",\nof two lines', "n": 1},
)


def exported(ramify, folders, out, *more):
    status, printed, err = ramify("data", "export", *folders, "--out", out, *more)
    assert (status, printed) == (0, ""), err
    return out


@pytest.mark.parametrize("kind", FILES)
def test_several_data_sets_become_one(ramify, tmp_path, kind):
    stores = [built(discussions(5, 9, seed=seed), tmp_path / str(seed)) for seed in (0, 100)]
    for store, prefix in zip(stores, "ab"):
        trees = [Tree(tree.nodes, id=f"{prefix}{tree.id}") for tree in store.trees()]
        built(trees, tmp_path / prefix)
    out = exported(ramify, [tmp_path / prefix / "store" for prefix in "ab"], tmp_path / f"both.{kind}")
    both = build([out], None, tmp_path / "both", policy=KEEP)
    assert sorted(both.tree_ids(range(10))) == sorted(f"{prefix}t{number}" for prefix in "ab" for number in range(5))


@pytest.mark.parametrize("kind", FILES)
def test_data_set_survives_export_and_build(ramify, tmp_path, kind):
    store = built([HARD, *discussions(8, 6)], tmp_path / "own")
    out = exported(ramify, [store.path], tmp_path / f"trees.{kind}")
    again = build([out], None, tmp_path / "again", policy=KEEP)
    assert again.hash == store.hash
    assert [tree.to_json() for tree in again.trees()] == [tree.to_json() for tree in store.trees()]
    assert HARD in list(again.trees())


@pytest.mark.parametrize("kind", FILES)
def test_log_survives_export_and_build(ramify, tmp_path, kind):
    """Messages keep their order, several parents, starts, and that their parents are unknown."""
    links = (None, (), (0,), (2, 0), None, (), (4,))
    log = Tree(tuple(Node(f"message {n}", each, id=str(n), time=1.0) for n, each in enumerate(links)), id="log")
    store = built([several_parents(log)], tmp_path / "own")
    assert store.structure == "log"
    out = exported(ramify, [store.path], tmp_path / f"log.{kind}")
    assert build([out], None, tmp_path / "again", policy=KEEP).hash == store.hash


@pytest.mark.parametrize("kind", [*FILES, "convokit"])
def test_placeholders_survive_export_and_build(ramify, tmp_path, kind):
    (tmp_path / "posts.csv").write_text("id,parent,tree,text\na,gone,t,one\nb,a,t,two\nr,,u,[deleted]\ns,r,u,three\n")
    store = build([tmp_path / "posts.csv"], "table", tmp_path / "own")
    assert (store.info["placeholders"], store.info["nodes"]) == (1, 4)
    out = exported(ramify, [store.path], tmp_path / f"out.{kind}", *(["--format", kind] if kind == "convokit" else []))
    again = build([out], None, tmp_path / "again")
    assert (again.hash, again.info["placeholders"], again.info["read"]) == (store.hash, 1, 4)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ['"', "\r\n", "\r", ",", "\0", "\ufeff"]
)


@st.composite
def threads(draw):
    ids = draw(st.lists(texts.filter(bool), min_size=1, max_size=5, unique=True))
    nodes = tuple(
        Node(
            text=draw(texts),
            parents=(draw(st.integers(0, place - 1)),) if place else (),
            id=name,
            author=draw(st.none() | texts),
            time=draw(st.none() | st.floats(-1e9, 2e11)),
            kind=draw(texts),
            label=draw(st.none() | texts | st.integers() | st.booleans() | st.lists(texts, max_size=2)),
        )
        for place, name in enumerate(ids)
    )
    return Tree(nodes, id=draw(texts.filter(bool)), meta=draw(st.dictionaries(texts, texts, max_size=1)))


@given(threads())
def test_any_text_survives_csv(tmp_path_factory, tree):
    from ramify.dataset.export import export
    from ramify.readers.base import ReadCounts
    from ramify.readers.nodes import read

    folder = tmp_path_factory.mktemp("csv")
    for kind in ("csv", "parquet"):
        export([Store.from_trees([tree])], folder / f"out.{kind}", kind)
        assert list(read([folder / f"out.{kind}"], ReadCounts(), policy=KEEP)) == [tree]


def test_corpus_of_convokit_reads_back(ramify, tmp_path):
    store = built(map(with_own_ids, [*discussions(8, 6), replace(HARD, nodes=HARD.nodes[:1] + HARD.nodes[3:4])]), tmp_path)
    out = exported(ramify, [store.path], tmp_path / "corpus", "--format", "convokit")
    assert build([out], "convokit", tmp_path / "again", policy=KEEP).hash == store.hash


def with_own_ids(tree):
    """The tree with ids of nodes that differ between trees, as ConvoKit requires."""
    return replace(tree, nodes=tuple(replace(node, id=f"{tree.id}-{node.id}") for node in tree.nodes))


def test_corpus_of_convokit_holds_no_log(ramify, tmp_path):
    log = built([Tree((Node("a", None, id="0"), Node("b", None, id="1")), id="log")], tmp_path / "log")
    status, _, err = ramify("data", "export", log.path, "--format", "convokit", "--out", tmp_path / "corpus")
    assert status == 2
    assert "--format convokit holds reply trees with one root" in err
    assert "Use --format jsonl, csv or parquet" in err
    assert not (tmp_path / "corpus").exists()


def test_folder_for_datasets(ramify, tmp_path):
    """The layout that `datasets.load_dataset(folder)` reads: Parquet by split, and a card that lists the files."""
    store = built([HARD, *discussions(30, 3)], tmp_path / "own", (0.5, 0.5, 0.0))
    out = exported(ramify, [store.path], tmp_path / "folder", "--format", "datasets")
    files = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    assert files == ["README.md", "data/train-00000-of-00001.parquet", "data/validation-00000-of-00001.parquet"]
    card = (out / "README.md").read_text()
    assert card.startswith(
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: data/train-*.parquet\n"
    )
    parts = [pq.read_table(out / name) for name in files[1:]]
    assert {name for part in parts for name in part["split"].unique().to_pylist()} == {"train", "dev"}
    rows = sorted((row for part in parts for row in part.to_pylist()), key=lambda row: (row["tree"], row["depth"], row["id"]))
    assert rows == sorted(store.to_arrow().to_pylist(), key=lambda row: (row["tree"], row["depth"], row["id"]))
    status, _, err = ramify("data", "export", store.path, "--format", "datasets", "--out", out)
    assert status == 2
    assert "exists and is not an empty folder" in err


def test_labels_for_datasets_have_their_type(ramify, tmp_path):
    store = built(
        [Tree((Node("a", id="0", label=1),), id="t"), Tree((Node("b", id="0", label=0),), id="u")], tmp_path, (1, 0, 0)
    )
    out = exported(ramify, [store.path], tmp_path / "folder", "--format", "datasets")
    assert sorted(pq.read_table(out / "data/train-00000-of-00001.parquet")["label"].to_pylist()) == [0, 1]


def test_letters_of_a_title_survive_export_and_build(ramify, tmp_path):
    (tmp_path / "RS").write_text('{"id": "s1", "title": "café ☕", "selftext": "", "author": "a", "created_utc": 1}\n')
    store = build([tmp_path / "RS"], "pushshift", tmp_path / "own")
    for kind in FILES:
        out = exported(ramify, [store.path], tmp_path / f"trees.{kind}")
        assert build([out], None, tmp_path / f"again {kind}").hash == store.hash


def test_splits_are_kept_on_demand(ramify, tmp_path):
    store = built(discussions(20, 3), tmp_path / "own", (0.3, 0.3, 0.4))
    out = exported(ramify, [store.path], tmp_path / "trees.csv")
    status, _, err = ramify("data", "build", out, "--split-by", "split", "--policy", "empty=keep", "--out", tmp_path / "again")
    assert status == 0, err
    again = Store.open(tmp_path / "again")
    assert {name: sorted(again.tree_ids(again.split(name))) for name in ("train", "dev", "test")} == {
        name: sorted(store.tree_ids(store.split(name))) for name in ("train", "dev", "test")
    }


@pytest.mark.parametrize("kind", FILES)
def test_failed_export_leaves_nothing(ramify, tmp_path, kind):
    store = built(discussions(2, 3), tmp_path / "own")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    status, _, err = ramify("data", "export", store.path, damaged, "--out", tmp_path / f"out.{kind}")
    assert status == 2
    assert "is not a Ramify data set" in err
    assert not list(tmp_path.glob("*out.*"))


def test_ending_tells_the_format(ramify, tmp_path):
    store = built(discussions(2, 3), tmp_path / "own")
    status, _, err = ramify("data", "export", store.path, "--out", tmp_path / "trees.xlsx")
    assert status == 2
    assert "does not end in .jsonl or .csv or .parquet, so the kind of file is unknown" in err
    out = exported(ramify, [store.path], tmp_path / "trees.data", "--format", "jsonl")
    assert [tree.id for tree in read_jsonl(out)] == [tree.id for tree in store.trees()]


def test_reader_of_standard_output_may_stop(tmp_path):
    """`| head -1` ends the export without a message."""
    store = built(discussions(200, 50), tmp_path / "own")
    command = f"{sys.executable} -c 'from ramify.cli import main; main()' data export {store.path} --out - | head -1"
    found = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert json.loads(found.stdout)["id"] == store.tree_ids([0])[0]
    assert "Traceback" not in found.stderr
    assert "error" not in found.stderr
