"""Two models of labels on the same examples: a paired bootstrap of their main metric, for every label task."""

import json

import numpy as np
import pytest

import ramify
from fixtures.commands import call, refusal
from fixtures.label_runs import label_run, label_stores
from fixtures.labelled import labelled_store, sentences
from ramify.dataset.build import build
from ramify.metrics.spans import score_tags
from ramify.runs import RUNS, execute
from ramify.tree import Node, Tree


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return label_stores(tmp_path_factory.mktemp("data"))


def trained(task, store, out, **options):
    execute(label_run(task, store, **options), out, cpu=True)
    return out


def scores(out, store, *words):
    return json.loads(call("evaluate", out, "--data", store.path, "--split", "dev", "--json", *words).stdout)


@pytest.mark.parametrize("task", ["classify", "tag", "answer", "choose"])
def test_two_models_on_the_same_examples(data, tmp_path, task):
    store = data[task]
    one, other = trained(task, store, tmp_path / "one"), trained(task, store, tmp_path / "two", model="cnn", lr=0.02)
    alone, second = scores(one, store), scores(other, store)
    both = scores(one, store, "--against", other)
    found = both.pop("against")
    assert both == alone
    assert found["model"] == str(other)
    assert found["value"] == second["value"]
    assert found["difference"] == pytest.approx(alone["value"] - second["value"])
    assert found["low"] <= found["difference"] <= found["high"]
    assert found["count"] == alone["count"]
    assert scores(other, store, "--against", one)["against"]["difference"] == pytest.approx(-found["difference"])
    words = ("evaluate", one, "--data", store.path, "--split", "dev")
    lines, plain = (call(*words, *more).stdout.splitlines() for more in (("--against", other), ()))
    assert [line for line in lines if line not in plain] == [lines[1]]
    assert "95 % interval" in lines[1]
    assert "paired bootstrap over" in lines[1]


def test_a_model_against_itself(data, tmp_path):
    out = trained("classify", data["classify"], tmp_path / "run")
    found = scores(out, data["classify"], "--against", out)["against"]
    assert (found["difference"], found["low"], found["high"], found["p"]) == (0, 0, 0, 1)


def test_units_are_drawn_as_a_whole():
    gold = [["a"], ["a"], ["b"], ["b"]]
    one, other = score_tags(gold, [["a"], ["a"], ["a"], ["b"]]), score_tags(gold, [["a"], ["b"], ["a"], ["a"]])
    # In both units, one of two texts is better, so every resample has the same difference.
    found = one.difference(other, "accuracy", units=np.array([5, 5, 9, 9]), resamples=4000)
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)
    # A resample of four texts holds neither of the two that differ with probability (1/2)^4.
    alone = one.difference(other, "accuracy", resamples=4000)
    assert alone.low < 0.5 < alone.high
    assert alone.p == pytest.approx(2 / 16, abs=0.03)
    with pytest.raises(ValueError, match="not about the same labels"):
        one.difference(score_tags([["b"], *gold[1:]], gold), "accuracy")


def test_questions_of_one_passage_are_one_unit(data, tmp_path):
    store = data["answer"]
    out = trained("answer", store, tmp_path / "run")
    model = ramify.load(out)
    scored = RUNS[model.kind].score(model, store, "dev", {})
    passages = len(np.unique(scored.trees))
    assert passages < len(scored.nodes)
    words = ("evaluate", out, "--data", store.path, "--split", "dev", "--against", out)
    assert f"paired bootstrap over {passages} trees" in call(*words).stdout


def test_other_tasks_and_labels_are_refused(data, tmp_path):
    store = data["classify"]
    out = trained("classify", store, tmp_path / "run")
    words = ("evaluate", out, "--data", store.path, "--split", "dev", "--against")
    tagger = trained("tag", data["tag"], tmp_path / "tagger")
    assert "holds a Tagger, not a model that predicts labels of texts. Choose another model." in refusal(*words, tagger)
    three = [row | {"label": ["bad", "good", "so-so"][place // 5 % 3]} for place, row in enumerate(sentences(60))]
    others = trained("classify", labelled_store(three, tmp_path / "three"), tmp_path / "others")
    model = ramify.load(others)
    scored = RUNS[model.kind].score(ramify.load(out), store, "dev", {})
    assert scored.labels == ("bad", "good")
    assert f"--against {others} knows the labels bad, good, so-so, but {out} knows bad, good. Compare" in refusal(
        *words, others
    )


def test_other_examples_are_refused(tmp_path):
    """One model reads the texts above, which half of the labelled texts lack."""
    file = tmp_path / "trees.jsonl"
    trees = []
    for number in range(24):
        label = "xy"[number // 2 % 2]
        nodes = (Node("ba", parents=(), label=label, id="a"), Node("be", (0,), label=label, id="b"))
        trees.append(Tree(nodes, f"t{number}", {"split": ("train", "dev")[number % 2]}))
    file.write_text("".join(tree.to_json() + "\n" for tree in trees))
    store = build([file], "jsonl", tmp_path / "store")
    one = trained("classify", store, tmp_path / "one", settings={"input.pair": "none"})
    other = trained("classify", store, tmp_path / "two", text="parent")
    message = refusal("evaluate", one, "--data", store.path, "--split", "dev", "--against", other)
    assert f"--against {other} reads 12 texts of the split, and {one} 24 texts, which are not the same. Compare" in message
