"""Vectors of whole corpora in a file equal the rows of `embed`."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from fixtures import built, discussion, discussions, tree_task
from ramify import Node, Tree
from ramify.dataset import build
from ramify.errors import RamifyError
from ramify.inference import vectors
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.vectors import write_vectors


@pytest.fixture(scope="module")
def model():
    return MaskFiller(tree_task(dtype=torch.float32).eval())


@pytest.fixture(scope="module")
def trees():
    return [*discussions(7, 5), discussion([-1, 0], lengths=[3, 60], name="long")]


@pytest.fixture
def data(request, trees, tmp_path):
    """The same trees as a JSON lines file, or as a data set."""
    store = built(trees, tmp_path)
    return tmp_path / "trees.jsonl" if request.param == "jsonl" else store.path


def in_order(data, trees):
    if data.is_dir():
        from ramify.dataset.store import Store

        return list(Store.open(data).trees())
    return trees


@pytest.mark.parametrize("data", ["jsonl", "store"], indirect=True)
@pytest.mark.parametrize("context", ["tree", "none", None])
def test_parquet(model, trees, data, tmp_path, context, monkeypatch):
    monkeypatch.setattr(vectors, "TREES", 3)
    counted = []
    totals = write_vectors(model, data, tmp_path / "v.parquet", "parquet", context, counted.append)
    table = pq.read_table(tmp_path / "v.parquet")
    ordered = in_order(data, trees)
    assert table.column_names == ["tree", "id", "vector"]
    assert table["tree"].to_pylist() == [tree.id for tree in ordered for _ in tree.nodes]
    assert table["id"].to_pylist() == [node.id for tree in ordered for node in tree.nodes]
    found = np.array(table["vector"].to_pylist(), dtype=np.float32)
    np.testing.assert_allclose(found, model.embed(ordered, context=context), rtol=0, atol=1e-5)
    texts = sum(bool(node.text) for tree in ordered for node in tree.nodes)
    assert totals == {"vectors": 44, "placeholders": 0, "texts": texts, "texts_over": 1, "tokens_over": 30}
    assert sum(counted) == 44


def test_placeholder_roots_have_no_vectors(model, tmp_path):
    (tmp_path / "posts.csv").write_text("id,parent,tree,text\na,gone,t,one\nb,a,t,two\nr,,u,root\n")
    store = build([tmp_path / "posts.csv"], "table", tmp_path / "store")
    assert store.num_nodes == store.info["nodes"] + 1 == 4
    totals = write_vectors(model, store.path, tmp_path / "v.parquet", "parquet", None, lambda count: None)
    assert sorted(pq.read_table(tmp_path / "v.parquet")["id"].to_pylist()) == ["a", "b", "r"]
    assert totals["vectors"] == 3


@pytest.mark.parametrize("data", ["jsonl", "store"], indirect=True)
def test_npy(model, trees, data, tmp_path):
    write_vectors(model, data, tmp_path / "v.npy", "npy", "tree", lambda count: None)
    ordered = in_order(data, trees)
    found = np.load(tmp_path / "v.npy")
    np.testing.assert_allclose(found, model.embed(ordered), rtol=0, atol=1e-5)
    names = (tmp_path / "v.npy.ids.tsv").read_text().splitlines()
    assert names == [f"{tree.id}\t{node.id}" for tree in ordered for node in tree.nodes]


def test_npy_names_rows_by_any_id(model, tmp_path):
    file = tmp_path / "trees.jsonl"
    file.write_text(
        Tree((Node("a", id="tab\there"), Node("b", (0,), id="new\r\nline"), Node("c", (0,), id="back\\n")), id="t").to_json()
    )
    write_vectors(model, file, tmp_path / "v.npy", "npy", None, lambda count: None)
    names = (tmp_path / "v.npy.ids.tsv").read_text().split("\n")
    assert names == ["t\ttab\\there", "t\tnew\\r\\nline", "t\tback\\\\n", ""]


def test_failed_run_leaves_nothing(model, tmp_path, trees):
    file = tmp_path / "bad.jsonl"
    file.write_text(trees[0].to_json() + "\n{nonsense\n")
    for kind in ("parquet", "npy"):
        with pytest.raises(RamifyError, match="line 2"):
            write_vectors(model, file, tmp_path / f"out.{kind}", kind, None, lambda count: None)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.jsonl"]
    with pytest.raises(RamifyError, match="does not exist"):
        write_vectors(model, file, tmp_path / "no" / "v.npy", "npy", None, lambda count: None)
