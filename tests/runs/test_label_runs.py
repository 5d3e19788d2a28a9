"""Runs on labelled texts: from any backbone to a model that predicts, beside floors."""

import json
import os
import signal
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import ramify
from fixtures import WORDS, built, discussions
from fixtures.labelled import BAD, GOOD, OTHERS, labelled_store, sentences, settings_for
from ramify.dataset.labels import has_labels
from ramify.errors import RamifyError
from ramify.inference.answers import TextLabel
from ramify.readers.base import Policy
from ramify.recipes import RECIPES
from ramify.recipes.backbones import SCRATCH
from ramify.report import write_report
from ramify.runs import execute
from ramify.runs.labelled.classification import ClassificationRun
from ramify.training.metrics_log import read_metrics
from ramify.tree import Node, Tree

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
    trained(store, out, model="bert", epochs=12.0, lr=0.02, patience=0)
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
    assert [*found] == ["metric", "value", "metrics", "majority", "count", "most_frequent"]
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


def test_trees_without_nodes(bert_run):
    model, tree = ramify.load(bert_run), Tree((Node("ba", parents=()),))
    for items, place in (([Tree(()), tree], 0), ([tree, Tree(())], 1)):
        with pytest.raises(RamifyError, match=f"tree {place} has no nodes"):
            model.predict(items)


def test_nodes_of_one_id_are_told_apart(bert_run):
    model, nodes = ramify.load(bert_run), (Node("ba", parents=(), id="x"),)
    assert [answer.id for answer in model.predict([Tree(nodes, "t1"), Tree(nodes, "t2")])] == ["t1/x", "t2/x"]
    assert [answer.id for answer in model.predict([Tree(nodes, "t1")])] == ["x"]


def test_one_start(store):
    with pytest.raises(RamifyError, match="neither --model nor --init is given"):
        classify(str(store.path))
    with pytest.raises(RamifyError, match="are both given"):
        classify(str(store.path), model="bert", init="x")
    with pytest.raises(RamifyError, match="--model gtp is neither one of bag, bert"):
        classify(str(store.path), model="gtp")


def test_dev_chooses_the_weights(store, bert_run):
    metrics = [record for record in read_metrics(bert_run) if "accuracy" in record]
    assert len(metrics) == 12
    assert {"dev_loss", "macro_f1", "matthews", "value_label", "constant_label"} <= metrics[0].keys()
    best = max(record["accuracy"] for record in metrics)
    assert score(ramify.load(bert_run), bert_run, store)["value"] == pytest.approx(best)


def changed_rows(change, count=120):
    rows = sentences(count)
    for place, row in enumerate(rows):
        change(place, row)
    return rows


QUICK = {"train.steps": "12", "train.epochs": "null", "train.evaluate_every": "4", "train.evaluate_unit": "updates"}


def quick(store, **options):
    run = classify(str(store.path), **{"model": "bert", **options})
    return run.changed(settings_for(run) | QUICK | {"train.checkpoint_every": "5", "train.log_every": "1"})


@pytest.mark.parametrize("options", [{}, {"model": "bilstm"}, {"mode": "features"}])
def test_a_killed_run_resumes_to_the_same_bits(store, bert_run, tmp_path, options):
    if "mode" in options:
        options = {"model": "", "init": str(bert_run), **options}
    run = quick(store, **options)
    execute(run, tmp_path / "straight", cpu=True)

    def interrupt(record):
        if record["step"] == 7:
            os.kill(os.getpid(), signal.SIGINT)

    execute(run, tmp_path / "stopped", cpu=True, report=interrupt)
    assert not (tmp_path / "stopped" / "config.json").exists()
    execute(run, tmp_path / "stopped", cpu=True, resume=True)
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("straight", "stopped"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    # Of features, all dev rows may be right, which determine no temperature.
    assert before["temperature"] != 1 or "mode" in options


def test_the_test_split_decides_nothing(store, tmp_path):
    def poison(place, row):
        if row["split"] == "test":
            row.update(text="ha ha ha " * 3, label=("bad", "good")[place % 2])

    other = labelled_store(changed_rows(poison), tmp_path / "poisoned")
    assert other.hash != store.hash
    for name, data in (("clean", store), ("poisoned", other)):
        execute(quick(data), tmp_path / name, cpu=True)
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("clean", "poisoned"))
    assert all(torch.equal(before[name], after[name]) for name in before)
    scores = [
        [{key: value for key, value in record.items() if key != "seconds"} for record in read_metrics(tmp_path / name)]
        for name in ("clean", "poisoned")
    ]
    assert scores[0] == scores[1]


def test_permuted_labels_teach_nothing(tmp_path):
    labels = np.random.default_rng(1).permutation([row["label"] for row in sentences(400)])
    rows = [row | {"label": str(label)} for row, label in zip(sentences(400), labels, strict=True)]
    permuted = labelled_store(rows, tmp_path / "data")
    model = trained(permuted, tmp_path / "run", model="bert", epochs=4.0, lr=0.02, patience=0)
    found = score(model, tmp_path / "run", permuted, "test")
    # Three standard deviations of 80 coins.
    assert abs(found["value"] - 0.5) < 3 * 0.5 / np.sqrt(80)
    # Their temperature says so, too.
    assert max(max(answer.probabilities.values()) for answer in model.predict(["ba", "be", "ha", "aa"])) < 0.8


def test_class_weights(tmp_path):
    def rare(place, row):
        if row["label"] == "good" and place % 4:
            row.update(label="bad")

    store = labelled_store(changed_rows(rare), tmp_path / "data")
    plain, balanced = (
        trained(store, tmp_path / weights, model="bag", epochs=2.0, class_weights=weights) for weights in ("none", "balanced")
    )
    rates = [[answer.probabilities["good"] for answer in model.predict(["ba", "ha", "aa"])] for model in (plain, balanced)]
    assert np.mean(rates[1]) > np.mean(rates[0])


# --- several labels, numbers, pairs, trees ------------------------------------------------------------------------------


def test_several_labels(tmp_path):
    def several(place, row):
        row.update(label=[row["label"], *(["even"] if place % 2 == 0 else [])])

    store = trees_store([Tree((Node(row["text"], label=row["label"]),)) for row in changed_rows(several)], tmp_path)
    model = trained(store, tmp_path / "run", model="bag", epochs=1.0)
    answer = model.predict("ba aa")
    assert answer.probabilities.keys() == {"bad", "even", "good"}
    assert set(answer.to_json()["label"]) == {name for name, share in answer.probabilities.items() if share >= 0.5}
    found = score(model, tmp_path / "run", store)
    assert found["metric"] == "micro_f1"
    assert {"micro_f1", "macro_f1", "subset_accuracy"} == found["metrics"].keys()


def test_numbers(tmp_path):
    trees = [Tree((Node(row["text"], label=float(len(row["text"]))),)) for row in sentences(120)]
    store = trees_store(trees, tmp_path)
    model = trained(store, tmp_path / "run", model="bert", epochs=12.0, lr=0.01, patience=0)
    found = score(model, tmp_path / "run", store)
    assert found["metric"] == "pearson"
    assert found["value"] > 0.5
    assert found["majority"] == 0
    assert model.predict("ba be bi bo bu ca").to_json().keys() == {"id", "label"}
    assert model.predict("ba be bi bo bu ca").label > model.predict("ba").label


def trees_store(trees, folder):
    return built(trees, folder, split=(0.6, 0.2, 0.2))


def test_labels_of_replies_with_the_text_above(tmp_path):
    """The label of a reply is the word of the text above: only a model that reads it can know."""
    random = np.random.default_rng(0)
    trees = []
    for number in range(150):
        kind = int(random.integers(2))
        post, comment = (" ".join(random.choice(OTHERS, size=3)) for _ in range(2))
        reply = Node(comment, (0,), id=f"{number}.1", label={"kind": ("no", "yes")[kind]})
        trees.append(Tree((Node(f"{(BAD, GOOD)[kind][0]} {post}", (), id=f"{number}.0"), reply), id=f"t{number}"))
    store = trees_store(trees, tmp_path)
    with pytest.raises(RamifyError, match="--label FIELD: kind"):
        classify(str(store.path), model="bert")
    values = {}
    for context in ("none", "parent"):
        options = {"label": "kind", "context": context, "epochs": 10.0, "lr": 0.02, "patience": 0}
        model = trained(store, tmp_path / context, model="bert", **options)
        values[context] = score(model, tmp_path / context, store)["value"]
    assert values["parent"] > 0.9 > values["none"]
    answers = model.predict(trees[0])
    assert [answer.id for answer in answers] == ["0.0", "0.1"]
    with pytest.raises(RamifyError, match=r"was trained with input.context=parent, but no text of the texts"):
        model.predict("ba")
    alone = trees_store([Tree((Node("ba"),), id=f"t{number}") for number in range(9)], tmp_path / "alone")
    with pytest.raises(RamifyError, match=r"was trained with input.context=parent, but no text of"):
        model.predict_store(alone)


def test_data_without_any_text_above(store, tmp_path):
    """Where some texts have none above, they are counted; where none has, a model with a context is refused."""
    with pytest.raises(RamifyError, match=r"input.context=parent reads the texts above .* none of the labelled texts of the"):
        quick(store, context="parent").prepare(tmp_path)
    trees = [
        Tree((Node("ba aa", id="0", label="no"), Node("he ab", (0,), id="1", label="yes")), id=f"t{number}")
        for number in range(40)
    ]
    both = trees_store(trees, tmp_path / "both")
    model, out = trained(both, tmp_path / "run", model="bag", context="parent"), tmp_path / "run"
    prepared = classify(str(both.path), model="bag", context="parent").prepare(tmp_path / "prepared")
    texts = prepared.facts()["text"]
    assert 2 * texts["alone"] == texts["texts"]
    assert f"{texts['alone']} without a text above, read alone" in prepared.reads()
    with pytest.raises(RamifyError, match=r"input.context=parent reads the texts above .*split dev, has any"):
        score(model, out, store)


@pytest.mark.parametrize("mode", ["finetune", "features"])
@pytest.mark.parametrize("context", ["parent", "tree", "mismatched"])
def test_vectors_of_the_nodes_above(tmp_path, context, mode):
    trees = []
    for number, tree in enumerate(discussions(30, 5)):
        nodes = tuple(replace(node, label=("a", "b")[place % 2]) for place, node in enumerate(tree.nodes))
        trees.append(Tree(nodes, id=f"t{number}"))
    store = trees_store(trees, tmp_path)
    options = {"context": context, "context_as": "vectors", "epochs": 1.0}
    if mode == "features":
        trained(store, tmp_path / "start", model="tree-mlm", **options)
        model = trained(store, tmp_path / "run", init=str(tmp_path / "start"), mode=mode, **options)
        assert len([*(tmp_path / "run").glob("features-*")]) == (0 if context == "mismatched" else 2)
    else:
        model = trained(store, tmp_path / "run", model="tree-mlm", **options)
    assert len(model.predict(trees[:2])) == len(trees[0]) + len(trees[1])
    assert 0 <= score(model, tmp_path / "run", store)["value"] <= 1


def test_pairs(tmp_path):
    rows = [
        {"text": text, "text_pair": pair, "label": ("differ", "same")[text[:2] == pair[:2]], "id": str(number)}
        for number, (text, pair) in enumerate((text, pair) for text in WORDS[:8] for pair in WORDS[:8])
    ]
    store = labelled_store(rows, tmp_path / "pairs")
    model = trained(store, tmp_path / "run", model="bilstm", epochs=1.0)
    assert model.input.pair == "parent"
    assert model.predict(("aa", "ae")).label in ("differ", "same")
    with pytest.raises(RamifyError, match="reads pairs of texts"):
        model.predict("aa")
    single = labelled_store(sentences(40), tmp_path / "single")
    with pytest.raises(RamifyError, match=r"no labelled text has a text above it, which the model reads"):
        score(model, tmp_path / "run", single)
    run = classify(str(single.path), model="bilstm")
    with pytest.raises(RamifyError, match=r"input.pair=parent needs the text above .* second column"):
        run.changed({"input.pair": "parent"}).prepare(tmp_path / "new")


# --- bad input ------------------------------------------------------------------------------------------------------------


def test_a_class_that_only_dev_has(tmp_path):
    def unseen(place, row):
        if row["split"] == "dev" and place % 3 == 0:
            row.update(label="new")

    store = labelled_store(changed_rows(unseen), tmp_path / "data")
    with pytest.raises(RamifyError, match="the labels hold 1 class that the training data lack: new"):
        quick(store).prepare(tmp_path / "run")


def test_a_single_class(tmp_path):
    store = labelled_store(changed_rows(lambda place, row: row.update(label="good")), tmp_path / "data")
    with pytest.raises(RamifyError, match=r"all 72 labels of the training split are 'good', so there is nothing to learn"):
        classify(str(store.path), model="bert")


def test_labels_of_two_kinds(tmp_path):
    trees = [Tree((Node(row["text"], label=(1, "good")[place % 2]),)) for place, row in enumerate(sentences(40))]
    with pytest.raises(RamifyError, match="the labels are of two kinds"):
        classify(str(trees_store(trees, tmp_path).path), model="bert")


def test_empty_texts_are_counted_and_read(tmp_path, capsys):
    def empty(place, row):
        if place % 10 == 0:
            row.update(text=" ")

    store = labelled_store(changed_rows(empty), tmp_path / "data", policy=Policy(empty="keep"))
    prepared = quick(store).prepare(tmp_path / "run")
    count = sum(row["text"] == " " and row["split"] == "train" for row in changed_rows(empty))
    assert prepared.facts()["text"]["empty"] == count
    assert f"{count} without a token, read as special tokens alone" in prepared.reads()
    model = trained(store, tmp_path / "model", model="bag", epochs=1.0)
    assert sum(model.predict("").probabilities.values()) == pytest.approx(1)


def test_settings_that_do_not_fit(store):
    run = classify(str(store.path), model="bert")
    with pytest.raises(RamifyError, match=r"--set init=x cannot choose the model"):
        run.changed({"init": "x"})
    with pytest.raises(RamifyError, match=r"dev.metric=pearson is not a metric of these labels. Choose accuracy"):
        run.changed(settings_for(run) | {"dev.metric": "pearson"}).prepare(store.path / "nowhere").metric  # noqa: B018
    with pytest.raises(RamifyError, match=r"input.context_as=vectors needs a model that reads vectors"):
        classify(str(store.path), model="bert", context="tree", context_as="vectors").prepare(store.path / "nowhere")


def test_the_loss_may_choose_the_weights(store, tmp_path):
    model = trained(store, tmp_path, model="bag", epochs=2.0, settings={"dev.metric": "dev_loss"})
    assert score(model, tmp_path, store)["metric"] == "accuracy"
    assert "dev accuracy" in write_report(tmp_path).read_text()


# --- reports --------------------------------------------------------------------------------------------------------------


def test_the_report(store, bert_run):
    page = write_report(bert_run).read_text()
    for title in ("Held-out scores", "Confusions", "Scores by class", "Calibration", "Scores by length", "Learning curves"):
        assert f"<h2>{title}</h2>" in page
    assert "Scores by depth" not in page
    assert "without reading" in page
    assert "dev accuracy" in page


def test_wrong_examples_are_escaped(tmp_path):
    def hostile(place, row):
        row.update(text=f"<script>alert({place})</script> {row['text']}")
        if row["split"] == "dev":
            row.update(label={"good": "bad", "bad": "good"}[row["label"]])

    store = labelled_store(changed_rows(hostile), tmp_path / "data")
    trained(store, tmp_path / "run", model="bert", epochs=8.0, lr=0.02, patience=0)
    page = write_report(tmp_path / "run").read_text()
    assert "<h2>Most wrong</h2>" in page
    assert "&lt;script&gt;alert(" in page
    assert "<script>alert(" not in page


@pytest.mark.parametrize("kind", ["several", "numbers", "many"])
def test_reports_of_other_labels(tmp_path, kind):
    labels = {
        "several": lambda row, place: [row["label"], *(["even"] if place % 2 else [])],
        "numbers": lambda row, place: float(len(row["text"])),
        "many": lambda row, place: f"class {place % 12}",
    }
    trees = []
    for place, row in enumerate(sentences(150)):
        label = labels[kind](row, place)
        trees.append(Tree((Node("", id=f"{place}.0"), Node(row["text"], (0,), id=f"{place}.1", label=label)), id=str(place)))
    store = trees_store(trees, tmp_path)
    trained(store, tmp_path / "run", model="bag", epochs=1.0)
    page = write_report(tmp_path / "run").read_text()
    assert "<h2>Held-out scores</h2>" in page
    assert ("<h2>Confusions</h2>" in page) == (kind == "many")
    assert ("Shares of the texts of each right class" in page) == (kind == "many")
    assert ("<h2>Scores by class</h2>" in page) == (kind != "numbers")


def test_a_dev_split_without_labels_is_no_dev_split(tmp_path):
    rows = [row if row["split"] == "train" else row | {"label": None} for row in sentences(30)]
    store = labelled_store(rows, tmp_path)
    assert has_labels(store, "train")
    assert not has_labels(store, "dev")
    run = classify(str(store.path), model="bag", epochs=1)
    _, progress = execute(run.changed(settings_for(run)), tmp_path / "run", cpu=True)
    assert progress.best is None
