"""Runs on labelled texts: from any backbone to a model that predicts, beside floors."""

import json
from collections import Counter

import pytest
import torch

import ramify
from fixtures.labelled import labelled_store, sentences, settings_for
from ramify.errors import RamifyError
from ramify.inference.answers import TextLabel
from ramify.recipes import RECIPES
from ramify.recipes.backbones import SCRATCH
from ramify.runs import execute
from ramify.runs.labelled.classification import ClassificationRun
from ramify.training.metrics_log import read_metrics

classify = RECIPES["classify"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return labelled_store(sentences(120), tmp_path_factory.mktemp("labelled"))


def trained(store, out, *, settings=None, **options):
    run = classify(str(store.path), **options)
    run = run.changed(settings_for(run, **(settings or {})))
    execute(run, out, cpu=True)
    return ramify.load(out)


def score(model, out, store, split="dev"):
    return ClassificationRun.evaluate(model, str(out), store, split, {}).to_json()


@pytest.fixture(scope="module")
def bert_run(store, tmp_path_factory):
    out = tmp_path_factory.mktemp("bert") / "run"
    trained(store, out, model="bert", epochs=12.0, lr=0.02)
    return out


@pytest.mark.parametrize("name", SCRATCH)
def test_every_model_from_scratch_and_as_features(store, tmp_path, name):
    model = trained(store, tmp_path / "run", model=name, epochs=1.0)
    assert isinstance(model.predict("aa ae"), TextLabel)
    weights = {key: value.clone() for key, value in model.backbone.state_dict().items()}
    again = trained(store, tmp_path / "features", init=str(tmp_path / "run"), mode="features", epochs=1.0, lr=0.01)
    assert again.task.mix is not None
    assert again.task.mix.gamma != 1
    for key, value in again.backbone.state_dict().items():
        assert torch.equal(value, weights[key]), key


def test_it_learns(store, bert_run):
    found = score(ramify.load(bert_run), bert_run, store)
    gold = Counter(row["label"] for row in sentences(120) if row["split"] == "dev")
    assert [*found] == ["metric", "value", "metrics", "majority", "count"]
    assert found["metric"] == "accuracy"
    assert found["value"] == found["metrics"]["accuracy"] > 0.9
    train = Counter(row["label"] for row in sentences(120) if row["split"] == "train").most_common(1)[0][0]
    assert found["majority"] == pytest.approx(gold[train] / found["count"])
    assert found["count"] == sum(gold.values())


def test_the_answer(bert_run):
    model = ramify.load(bert_run)
    one = model.predict("ba bo aa")
    both = model.predict(["ba bo aa", ""])
    assert [answer.id for answer in both] == ["0", "1"]
    assert both[0].probabilities == pytest.approx(one.probabilities, abs=1e-6)
    assert sum(one.probabilities.values()) == pytest.approx(1)
    assert max(one.probabilities, key=lambda name: one.probabilities[name]) == one.label
    assert json.loads(json.dumps(one.to_json())) == {"id": "0", "label": one.label, "probabilities": one.probabilities}


def test_one_start(store):
    with pytest.raises(RamifyError, match="neither --model nor --init is given"):
        classify(str(store.path))
    with pytest.raises(RamifyError, match="are both given"):
        classify(str(store.path), model="bert", init="x")
    with pytest.raises(RamifyError, match="--model gtp is not one of bag, bert"):
        classify(str(store.path), model="gtp")


def test_dev_chooses_the_weights(store, bert_run):
    metrics = [record for record in read_metrics(bert_run) if "accuracy" in record]
    assert len(metrics) == 12
    assert {"dev_loss", "macro_f1", "matthews", "value_label", "constant_label"} <= metrics[0].keys()
    best = max(record["accuracy"] for record in metrics)
    assert score(ramify.load(bert_run), bert_run, store)["value"] == pytest.approx(best)
