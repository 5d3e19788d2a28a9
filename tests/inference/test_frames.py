"""Data frames: a vector for every row, in their order; and never vectors of the names of columns."""

from collections import deque

import numpy as np
import pyarrow as pa
import pytest

from fixtures import discussions, tree_task
from fixtures.label_tasks import labels
from fixtures.letters import pipeline
from ramify import Node, RamifyError, Tree
from ramify.dataset.frames import trees_of_rows
from ramify.dataset.store import Store
from ramify.disentangle.inference.result import to_log
from ramify.inference.classify import Classifier
from ramify.inference.fill_mask import MaskFiller

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")

TEXTS = ["aa ab", "be", "", "co aa"]
FRAMES = {
    "pandas": pandas.DataFrame,
    "pandas with an index": lambda columns: pandas.DataFrame(columns, index=range(7, 7 + len(next(iter(columns.values()))))),
    "pandas, categories": lambda columns: pandas.DataFrame(columns).astype({"body": "category"}),
    "polars": polars.DataFrame,
    "pyarrow": pa.table,
    "pyarrow, two chunks": lambda columns: pa.concat_tables([pa.table(columns).slice(0, 1), pa.table(columns).slice(1)]),
}


@pytest.fixture(scope="module")
def model():
    return MaskFiller(tree_task())


@pytest.fixture(params=FRAMES.values(), ids=FRAMES)
def frame_of(request):
    return request.param


def test_a_vector_for_every_row(model, frame_of):
    frame = frame_of({"number": [4, 3, 2, 1], "body": TEXTS})
    assert np.array_equal(model.embed(frame, text="body"), model.embed(TEXTS))


def test_a_frame_without_a_chosen_column_is_refused(model, frame_of):
    frame = frame_of({"number": [4, 3, 2, 1], "body": TEXTS})
    documents = pipeline()
    for verb, call in {"embed": model.embed, "index": documents.index, "coherence": documents.coherence}.items():
        with pytest.raises(RamifyError, match=rf"{verb} got a \w+ with the columns number, body\."):
            call(frame)
    with pytest.raises(RamifyError, match=r"Name the column of texts \(text=\)"):
        model.embed(frame)
    with pytest.raises(RamifyError, match="not a"):
        model.fill_mask(frame)
    with pytest.raises(RamifyError, match="disentangle takes messages"):
        to_log(frame)


def test_columns_of_a_frame_are_lists_of_texts(model):
    for frame in (pandas.DataFrame({"body": TEXTS}), polars.DataFrame({"body": TEXTS}), pa.table({"body": TEXTS})):
        assert np.array_equal(model.embed(frame["body"]), model.embed(TEXTS))


def test_missing_texts_are_empty(model):
    frame = pandas.DataFrame({"body": ["aa", None, "be"]})
    assert np.array_equal(model.embed(frame, text="body"), model.embed(["aa", "", "be"]))
    assert model.embed(frame[:0], text="body").shape == (0, model.backbone.config.dim)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_rows_are_nodes_of_trees(model, kind):
    """In any order, with ids that are unique in each tree: the vectors of the trees, in the order of the rows."""
    trees = list(discussions(5, 9))
    store = Store.from_trees(trees)
    table = store.to_arrow()
    shuffled = np.random.default_rng(0).permutation(len(table))
    frame = {"arrow": lambda: table, "pandas": store.to_pandas, "polars": store.to_polars}[kind]()
    frame = frame.take(shuffled) if kind != "polars" else frame[shuffled.tolist()]
    vectors = model.embed(frame, text="text", id="id", parent="parent", tree="tree")
    np.testing.assert_allclose(vectors, model.embed(trees)[shuffled], atol=1e-6)
    assert not np.allclose(vectors, model.embed(frame, text="text"), atol=1e-3)


def test_trees_of_rows():
    """Numbers as pandas writes them, a reply above its parent, and several ways to name no parent."""
    frame = pandas.DataFrame({"id": [3, 1, 2, 4], "to": [1.0, None, 1.0, None], "body": ["c", "a", "b", "d"]})
    trees, rows = trees_of_rows(pa.Table.from_pandas(frame), {"text": "body", "id": "id", "parent": "to"})
    assert trees == [
        Tree((Node("a", (), id="1"), Node("c", (0,), id="3"), Node("b", (0,), id="2"))),
        Tree((Node("d", (), id="4"),)),
    ]
    assert rows.tolist() == [1, 0, 2, 3]


@pytest.mark.parametrize(
    ("columns", "named", "message"),
    [
        ({"body": TEXTS}, {"text": "txt"}, r"text='txt' is not the name of one column\. The columns are body"),
        ({"body": [1, 2]}, {"text": "body"}, "text='body' is a column of int64, not of texts"),
        ({"body": TEXTS}, {"text": "body", "id": "body"}, "id='body' is of no use without the ids of parents"),
        ({"body": TEXTS}, {"text": "body", "parent": "body"}, "parent='body' names ids, and the column of ids"),
        ({"body": ["a", "b"], "id": [1, 1], "to": [None, 1]}, {"parent": "to"}, "id='id' holds '1' twice"),
        ({"body": ["a", "b"], "id": [1, None], "to": [None, 1]}, {"parent": "to"}, "id='id' has rows without an id"),
        ({"body": ["a", "b"], "id": [1, 2], "to": [None, 7]}, {"parent": "to"}, "parent='to' names '7' in row 1"),
        ({"body": ["a", "b"], "id": [1, 2], "to": [2, 1]}, {"parent": "to"}, "form a cycle"),
    ],
)
def test_unsuitable_columns_are_refused(model, columns, named, message):
    given = {"text": "body", "id": "id"} | named if "to" in columns else named
    with pytest.raises(RamifyError, match=message):
        model.embed(pa.table(columns), **given)


def test_columns_of_other_things_are_refused(model):
    with pytest.raises(RamifyError, match="text='body' names a column of a data frame, but embed got a list"):
        model.embed(TEXTS, text="body")
    for data in ({"body": TEXTS}, polars.DataFrame({"body": TEXTS}).lazy(), 3):
        with pytest.raises(RamifyError, match="embed takes trees and strings, not"):
            model.embed(data)
    with pytest.raises(RamifyError, match="has no form in Arrow"):
        model.embed(pandas.DataFrame({"body": ["a", 1]}), text="body")


def test_frames_of_texts_have_vectors_of_a_level(frame_of):
    model = pipeline()
    frame = frame_of({"body": ["Ann.", "It rains. Ann."]})
    for level in ("sentence", "paragraph"):
        assert np.array_equal(
            model.embed(frame, level=level, text="body"), model.embed(["Ann.", "It rains. Ann."], level=level)
        )


# --- labels of texts ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def classifier():
    made, _ = labels(["bad", "good", "bad", "good"], classes=("bad", "good"))
    return Classifier(made)


@pytest.mark.parametrize(
    "several",
    [np.array, pandas.Series, lambda texts: polars.Series("body", texts), lambda texts: pa.chunked_array([texts]), deque],
)
def test_labels_of_lists_arrays_and_columns(classifier, several):
    texts = ["aa ab", "be", "co aa"]
    assert classifier.predict(several(texts)) == classifier.predict(texts)
    assert [answer.id for answer in classifier.predict(several(texts))] == ["0", "1", "2"]


def test_labels_of_whole_frames_are_refused(classifier, frame_of):
    with pytest.raises(RamifyError, match=r'predict got a \w+ with the columns number, body\. Pass frame\["NAME"\]\.'):
        classifier.predict(frame_of({"number": [4, 3, 2, 1], "body": TEXTS}))
    with pytest.raises(RamifyError, match=r'Pass frame\["text"\]\.'):
        classifier.predict(frame_of({"text": TEXTS, "body": TEXTS}))


@pytest.mark.ill_typed
@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"text": "aa"}, "a dict"),
        ({"aa", "be"}, "a set"),
        (b"aa", "a bytes"),
        (bytearray(b"aa"), "a bytearray"),
        (np.array([["aa"]]), "a ndarray"),
        (iter(["aa"]), "a list_iterator"),
        (None, "a NoneType"),
    ],
)
def test_labels_of_things_without_an_order_are_refused(classifier, data, kind):
    with pytest.raises(RamifyError, match=rf"predict takes an item .* or a list of items, not {kind}\. Pass a list"):
        classifier.predict(data)
