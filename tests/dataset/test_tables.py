"""Stores as tables, data frames and graphs."""

import math
import sys

import pytest

from fixtures import built, discussions
from ramify import Node, Tree
from ramify.dataset import Store, tables
from ramify.errors import RamifyError

THREAD = Tree(
    (
        Node("the post", id="p", author="ann", time=1.5, label="for"),
        Node("one", (0,), id="a", kind="comment", label="against"),
        Node("two", (1,), id="b", author="bob", time=2.0),
    ),
    id="t",
    meta={"title": "Trees"},
)
LOG = Tree((Node("hi", None, id="0"), Node("yo", (), id="1"), Node("both", (0, 1), True, id="2")), id="log")


def labelled(*labels):
    return Store.from_trees([Tree(tuple(Node(id=str(place), label=label) for place, label in enumerate(labels)), id="t")])


def test_rows_of_a_thread(tmp_path):
    table = built([THREAD], tmp_path, (0.0, 1.0, 0.0)).to_arrow()
    assert table.to_pydict() == {
        "tree": ["t"] * 3,
        "split": ["dev"] * 3,
        "id": ["p", "a", "b"],
        "parent": [None, "p", "a"],
        "depth": [0, 1, 2],
        "author": ["ann", None, "bob"],
        "time": [1.5, None, 2.0],
        "kind": ["", "comment", ""],
        "label": ["for", "against", None],
        "text": ["the post", "one", "two"],
        "meta": ['{"title": "Trees"}'] * 3,
    }


def test_rows_of_a_log_keep_all_parents():
    table = Store.from_trees([LOG, THREAD]).to_arrow()
    assert table["parents"].to_pylist() == [None, [], ["0", "1"], [], ["p"], ["a"]]
    assert table["parent"].to_pylist() == [None, None, "0", None, "p", "a"]
    assert table["self_link"].to_pylist() == [False, False, True, False, False, False]
    assert table["meta"].to_pylist() == [None] * 3 + ['{"title": "Trees"}'] * 3
    assert table["split"].null_count == 6


@pytest.mark.parametrize(
    ("labels", "read"),
    [
        ((1, None, 2), [1, None, 2]),
        ((1, 2.5), [1.0, 2.5]),
        ((True, False), [True, False]),
        (("1", "a"), ["1", "a"]),
        (("a", 1), ['"a"', "1"]),
        ((1, True), ["1", "true"]),
        (({"a": 1}, [1]), ['{"a": 1}', "[1]"]),
        ((2**70, 1), [str(2**70), "1"]),
        ((None,), [None]),
    ],
)
def test_labels_of_one_type_are_values_and_others_json(labels, read):
    found = labelled(*labels).to_arrow()["label"].to_pylist()
    assert (found, [type(value) for value in found]) == (read, [type(value) for value in read])


def test_batches_are_bounded_by_rows_and_by_bytes(monkeypatch):
    store = Store.from_trees(discussions(5, 20))
    whole = store.to_arrow().to_pydict()
    monkeypatch.setattr(tables, "BATCH_ROWS", 30)
    monkeypatch.setattr(tables, "BATCH_BYTES", 200)
    batches = list(tables.batches(store, tables.column_names([store])))
    assert len(batches) > 10
    assert max(map(len, batches)) <= 30
    assert store.to_arrow().to_pydict() == whole


def test_data_frames_equal_the_table(tmp_path):
    store = built([THREAD, *discussions(4, 6)], tmp_path)
    rows = store.to_arrow().to_pylist()
    frame = store.to_pandas()
    missing = frame.astype(object).where(frame.notna(), None)
    assert missing.to_dict("records") == rows
    assert store.to_polars().to_dicts() == rows
    replies = frame.merge(frame, left_on=["tree", "parent"], right_on=["tree", "id"])
    assert len(replies) == store.info["comments"]


def test_lists_of_parents_reach_the_data_frames():
    store = Store.from_trees([LOG])
    assert [None if each is None else list(each) for each in store.to_pandas()["parents"]] == [None, [], ["0", "1"]]
    assert store.to_polars()["parents"].to_list() == [None, [], ["0", "1"]]


def test_graph_leads_from_parents_to_children():
    networkx = pytest.importorskip("networkx")
    store = Store.from_trees([LOG, THREAD])
    graph = store.to_networkx("t")
    assert networkx.is_arborescence(graph)
    assert list(graph.edges) == [("p", "a"), ("a", "b")]
    assert graph.graph == {"id": "t", "split": None, "meta": {"title": "Trees"}}
    assert graph.nodes["a"] == {"text": "one", "depth": 1, "kind": "comment", "label": "against"}
    assert sorted(store.to_networkx(0).in_edges("2")) == [("0", "2"), ("1", "2")]
    assert store.to_networkx(0).nodes["2"]["self_link"] is True
    with pytest.raises(RamifyError, match="no tree 'x'"):
        store.to_networkx("x")
    with pytest.raises(RamifyError, match="no tree number 2"):
        store.to_networkx(2)


@pytest.mark.parametrize("name", ["pandas", "polars", "networkx"])
def test_missing_library_is_named_with_its_extra(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RamifyError, match=rf"Store\.to_{name} needs {name}\. Install it with: pip install 'ramify\[{name}\]'"):
        getattr(Store.from_trees([THREAD]), f"to_{name}")(*([0] if name == "networkx" else []))


def test_empty_text_and_nan_free_times():
    row = Store.from_trees([Tree((Node("", id="x"),), id="t")]).to_arrow().to_pylist()[0]
    assert (row["text"], row["time"]) == ("", None)
    assert not any(isinstance(value, float) and math.isnan(value) for value in row.values())
