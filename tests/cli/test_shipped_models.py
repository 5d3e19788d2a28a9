"""The names of the models that ship with Ramify work wherever a model is expected."""

import json
import os

import pyarrow.parquet as pq
import pytest

import ramify as package
from fixtures import built, channel
from ramify import Node, RamifyError, Tree
from ramify.inference.fill_mask import MaskFiller
from ramify.sample import LINKS, MODELS


@pytest.fixture
def trees_path(tmp_path):
    path = tmp_path / "trees.jsonl"
    path.write_text(Tree((Node("The cat sat.", id="1"), Node("On a [MASK].", (0,), id="2")), id="t").to_json() + "\n")
    return path


def test_text_commands_take_a_name(ramify, trees_path, tmp_path):
    status, out, err = ramify("fill-mask", "tree-mlm-small", "--data", trees_path, "--node", "2", "--json")
    assert status == 0, err
    assert json.loads(out)["masks"][0]["tokens"]
    status, _, err = ramify("embed", "tree-mlm-small", "--data", trees_path, "--out", tmp_path / "v.parquet")
    assert status == 0, err
    assert len(pq.read_table(tmp_path / "v.parquet")) == 2
    status, _, err = ramify("fill-mask", "links", "--data", trees_path, "--node", "2")
    assert (status, "links cannot fill masks; it supports disentangle, follow" in err) == (2, True)


def test_evaluate_takes_a_name_that_is_also_a_command(ramify, tmp_path):
    store = built([channel(60, 1)], tmp_path)
    status, by_name, err = ramify("evaluate", "links", "--data", store.path, "--split", "all", "--json")
    assert status == 0, err
    assert ramify("evaluate", LINKS, "--data", store.path, "--split", "all", "--json")[1] == by_name
    status, _, err = ramify("evaluate", "links", "--gold", tmp_path / "none")
    assert status == 2
    assert "--predicted" in err


def test_disentangle_takes_a_name(ramify, tmp_path):
    log = tmp_path / "a.log"
    log.write_text("[10:00] <ann> hi\n[10:01] <bob> ann: hello\n")
    shown = [
        ramify("disentangle", log, "--out", tmp_path / "out.jsonl", *model)[0] or (tmp_path / "out.jsonl").read_text()
        for model in ((), ("--model", "links"))
    ]
    assert shown[0] == shown[1]
    status, _, err = ramify("disentangle", log, "--out", tmp_path / "out.jsonl", "--model", "tree-mlm-small")
    assert (status, "--model tree-mlm-small cannot disentangle logs; it supports embed" in err) == (2, True)


def test_python_takes_a_name():
    assert isinstance(package.load("tree-mlm-small"), MaskFiller)
    assert package.load("links").verbs == ("disentangle", "follow")


def test_unknown_names_list_the_models(ramify, trees_path):
    with pytest.raises(RamifyError, match=r"models that ship with Ramify \(links and tree-mlm-small\)"):
        package.load("tree-mlm-large")
    status, _, err = ramify("fill-mask", "trees", "--data", trees_path, "--node", "2")
    assert status == 2
    assert all(name in err for name in MODELS)


def test_a_folder_precedes_a_shipped_model_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("links")
    with pytest.raises(RamifyError, match=r"links holds no config\.json"):
        package.load("links")
