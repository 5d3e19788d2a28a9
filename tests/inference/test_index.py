"""The nearest comments: an index of vectors, computed or read from a file."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from fixtures import bert_task, built, discussions, tree_task
from fixtures.letters import pipeline as documents
from ramify import Node, Tree
from ramify.dataset import build
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.inference.embed import EmbeddingPipeline
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.vectors import write_vectors

ASKED = Tree(
    (
        Node("ba be bi", id="post", author="ann"),
        Node("ce da", (0,), id="above"),
        Node("ha hi gu", (0,), id="between"),
        Node("ce da", (2,), id="below", author="bob"),
    ),
    id="asked",
)


@pytest.fixture(scope="module")
def model():
    return MaskFiller(tree_task(dtype=torch.float32).eval())


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return built([ASKED, *discussions(5, 6)], tmp_path_factory.mktemp("data"))


def written(model, store, file, context=None):
    write_vectors(model, store.path, file, "parquet", context, lambda count: None)
    return file


@pytest.mark.parametrize("context", ["tree", "none", None])
def test_nearest_comments_have_the_greatest_cosine(model, store, context):
    index = model.index(store, context=context)
    vectors = model.embed(list(store.trees()), context=context)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    place = index.nodes.place("below")
    expected = np.delete(vectors @ vectors[place], place)
    answer = model.nearest(("asked", "below"), index, k=1000)
    assert answer.level is None
    np.testing.assert_allclose([each.score for each in answer.nearest], np.sort(expected)[::-1], atol=1e-5)
    assert ("asked", "below") not in {(each.tree, each.id) for each in answer.nearest}


def test_equal_texts_are_neighbours_and_a_text_has_its_own_answers(model, store):
    index = model.index(store, context="none")
    (first,) = model.nearest(("asked", "below"), index, k=1).nearest
    assert (first.tree, first.id, first.text, first.author) == ("asked", "above", "ce da", None)
    assert first.score == pytest.approx(1, abs=1e-5)
    answer, other = model.nearest(["ce da", "ba be bi"], index, k=2)
    assert [each.id for each in answer.nearest] == ["above", "below"]
    assert other.nearest[0].author == "ann"
    assert list(answer.to_json()) == ["nearest"]
    assert [list(each) for each in answer.to_json()["nearest"]] == [
        ["tree", "id", "score", "text"],
        ["tree", "id", "score", "text", "author"],
    ]


def test_texts_and_trees_are_searched_in_memory():
    model = MaskFiller(bert_task(dtype=torch.float32).eval())
    index = model.index(["ce da", ASKED, "ha hi"])
    assert len(index) == 2 + len(ASKED)
    answer = model.nearest("ha hi", index, k=1)
    assert answer.nearest[0].text == "ha hi"


def test_placeholders_are_not_searched(model, tmp_path):
    (tmp_path / "posts.csv").write_text("id,parent,tree,text\na,gone,t,ba\nb,a,t,ce\nr,,u,da\n")
    store = build([tmp_path / "posts.csv"], "table", tmp_path / "store")
    index = model.index(store)
    assert len(index) == 3 == store.num_nodes - 1
    (placeholder,) = store.ids(np.flatnonzero(store.is_placeholder(np.arange(4))))
    with pytest.raises(RamifyError, match=f"node '{placeholder}' is no comment, but a placeholder. Choose a comment"):
        index.nodes.place(placeholder)
    read = model.index(store, vectors=written(model, store, tmp_path / "v.parquet"))
    assert np.array_equal(read.vectors, index.vectors)


@pytest.mark.parametrize("context", ["tree", "none", None])
def test_a_file_replaces_encoding(model, store, tmp_path, context, monkeypatch):
    expected = model.index(store, context=context)
    file = written(model, store, tmp_path / "v.parquet", context)
    monkeypatch.setattr(EmbeddingPipeline, "vectors_of", None)
    assert np.array_equal(model.index(store, context=context, vectors=file).vectors, expected.vectors)
    if context is None:  # the default is the context of training
        assert len(model.index(store, context="tree", vectors=file)) == len(expected)


def test_a_file_of_something_else_is_refused(model, store, tmp_path):
    file = written(model, store, tmp_path / "v.parquet", "none")
    with pytest.raises(RamifyError, match="has the vectors of context none, not tree"):
        model.index(store, vectors=file)
    other = MaskFiller(tree_task(ffn_dim=24, dtype=torch.float32).eval())
    with pytest.raises(RamifyError, match="was written by another model"):
        other.index(store, context="none", vectors=file)
    for data in (built(discussions(3, 4), tmp_path / "other"), Store.from_trees(store.trees())):
        with pytest.raises(RamifyError, match="was not written from"):
            model.index(data, context="none", vectors=file)
    table = pq.read_table(file)
    pq.write_table(table.slice(1), file)
    with pytest.raises(RamifyError, match="does not hold exactly one row for each comment"):
        model.index(store, context="none", vectors=file)
    pq.write_table(table.replace_schema_metadata(None), file)
    with pytest.raises(RamifyError, match=r"is not a complete Parquet file of vectors .* \(context none\)"):
        model.index(store, context="none", vectors=file)
    with pytest.raises(RamifyError, match="is no file"):
        model.index(store, vectors=tmp_path / "none.parquet")


def test_questions_without_an_answer_are_refused(model, store):
    index = model.index(store)
    for query in ("", " \n"):
        with pytest.raises(RamifyError, match="holds no text"):
            model.nearest(query, index)
    for trees in ([], [Tree((), id="empty")]):
        with pytest.raises(RamifyError, match="the data holds no comment"):
            model.index(trees)
    with pytest.raises(RamifyError, match="has no node 'nobody'; it has 4 nodes"):
        model.nearest(("asked", "nobody"), index)
    with pytest.raises(RamifyError, match="level='sentence' needs a model of nested documents"):
        model.index(store, level="sentence")
    with pytest.raises(RamifyError, match="context='tree' needs a model of comments or texts"):
        documents().index([ASKED], context="tree")
    with pytest.raises(RamifyError, match="needs a model that reads ancestors"):
        MaskFiller(bert_task().eval()).index(store, context="tree")
    with pytest.raises(RamifyError, match="Search an index of this model"):
        MaskFiller(tree_task(dim=32).eval()).nearest("ba", index)
