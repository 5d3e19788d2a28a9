"""Floors of labels: the most frequent class, and TF-IDF with logistic regression."""

import json
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge

import ramify
from fixtures import WORDS
from fixtures.labelled import labelled_store, sentences
from ramify.dataset import build
from ramify.errors import RamifyError
from ramify.inference.classify import held_out
from ramify.recipes import RECIPES
from ramify.report import write_report
from ramify.runs import RUNS, execute, read_run
from ramify.runs.labelled.floors import FloorRun, term_matrix, text_rows
from ramify.runs.seeds import execute_seeds, read_seeds

classify = RECIPES["classify"]
ONE = {"fit.strengths": "[2]", "fit.ngrams": "[1]"}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return labelled_store(sentences(120), tmp_path_factory.mktemp("labelled"))


def fitted(store, out, settings=None, **options):
    run = classify(str(store.path), **{"model": "tfidf", **options}).changed(settings or {})
    prepared, _ = execute(run, out, cpu=True)
    return prepared, ramify.load(out)


def score(model, out, store, split="dev"):
    return RUNS[model.kind].evaluate(model, str(out), store, split, {}).to_json()


def classes(rows, split):
    return Counter(row["label"] for row in rows if row["split"] == split)


@pytest.mark.parametrize(("second", "kind", "other"), [("0.0", "classes", "numbers"), ("0.5", "numbers", "classes")])
def test_training_says_how_numbers_are_read(tmp_path, second, kind, other):
    rows = "".join(f"ba {row},{('1.0', second, '')[row % 3]},{'dev' if row > 5 else 'train'}\n" for row in range(9))
    (tmp_path / "t.csv").write_text("text,label,split\n" + rows)
    store = build([tmp_path / "t.csv"], "labelled", tmp_path / "store")
    prepared = classify(str(store.path), model="majority").prepare(tmp_path / "run")
    assert f"; the labels are numbers, read as {kind} (--label-kind {other} reads them as {other})" in prepared.reads()
    assert prepared.task.config.classes == (("0", "1") if kind == "classes" else ())
    chosen = classify(str(store.path), model="majority", label_kind=other).prepare(tmp_path / "run")
    assert chosen.task.config.labels == other


def test_most_frequent_class(store, tmp_path):
    prepared, model = fitted(store, tmp_path / "run", model="majority")
    assert repr(model).startswith("<Classifier: Classification of majority, ")
    train, dev = classes(sentences(120), "train"), classes(sentences(120), "dev")
    (name, _), *_ = train.most_common()
    assert {model.predict(text).label for text in ("ba bo", "", "aa")} == {name}
    found = score(model, tmp_path / "run", store)
    assert found["value"] == found["majority"] == dev[name] / dev.total()
    shares = prepared.task.output.bias.softmax(0).tolist()
    expected = [train[each] / train.total() for each in prepared.task.config.classes]
    assert shares == pytest.approx(expected, abs=1e-6)
    assert sum(each.numel() for each in prepared.task.backbone.parameters()) == 0
    assert "and has no settings." in write_report(tmp_path / "run").read_text()


def test_tfidf_learns_and_is_saved(store, tmp_path):
    prepared, model = fitted(store, tmp_path / "run")
    found = score(model, tmp_path / "run", store, "test")
    assert found["value"] > 0.9 > found["majority"]
    run, record = read_run(tmp_path / "run")
    assert isinstance(run, FloorRun)
    assert (record["kind"], model.kind, record["fit"]["metric"]) == ("floor", "floor", "accuracy")
    assert record["text"]["classes"].keys() == {"bad", "good"}
    assert prepared.fitted.line() == f"fitted, dev accuracy {record['fit']['dev']:.4f}"
    files = {path.name for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "run.json"} <= files
    assert not any(name.endswith((".pkl", ".pickle", ".joblib", ".pt", ".bin")) for name in files)
    page = write_report(tmp_path / "run").read_text()
    assert "its accuracy is" in page
    assert "The dev split chose the best of these settings." in page


def test_weights_are_those_of_scikit_learn(store, tmp_path):
    prepared, model = fitted(store, tmp_path / "run", ONE)
    matrix = term_matrix(prepared.task.backbone, text_rows(prepared.train), learn=False)
    expected = LogisticRegression(C=2, max_iter=1000).fit(matrix, prepared.train.targets)
    view, labels = held_out(prepared.task, store, "test")
    shares = expected.predict_proba(term_matrix(prepared.task.backbone, text_rows(view), learn=False))
    model.task.temperature.fill_(1.0)
    answers = model.predict(store.texts(labels.nodes))
    found = [[answer.probabilities[name] for name in ("bad", "good")] for answer in answers]
    np.testing.assert_allclose(found, shares, atol=1e-4)


def test_prediction_needs_no_scikit_learn(store, tmp_path, monkeypatch):
    _, model = fitted(store, tmp_path / "run", ONE)
    expected = model.predict("ba bo aa")
    for name in [name for name in sys.modules if name.split(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert ramify.load(tmp_path / "run").predict("ba bo aa") == expected
    fitted(store, tmp_path / "majority", model="majority")
    with pytest.raises(RamifyError, match=r"^--model tfidf needs sklearn\. Install it with: pip install 'ramify\[sklearn\]'$"):
        fitted(store, tmp_path / "other", ONE)
    assert not (tmp_path / "other" / "run.json").exists()


def test_dev_chooses_the_settings(store, tmp_path):
    prepared, model = fitted(store, tmp_path / "run", {"fit.strengths": "[0.0001, 30]", "fit.ngrams": "[1, 2]"})
    tried = prepared.fit["tried"]
    assert [(each["ngrams"], each["strength"]) for each in tried] == [(1, 0.0001), (1, 30), (2, 0.0001), (2, 30)]
    assert prepared.fit["dev"] == max(each["dev"] for each in tried) > min(each["dev"] for each in tried)
    assert score(model, tmp_path / "run", store)["value"] == prepared.fit["dev"]


def test_nothing_of_the_test_split_is_read(tmp_path):
    rows = sentences(80)
    poisoned = [row | ({"text": f"zz {row['text']} zz", "label": "bad"} if row["split"] == "test" else {}) for row in rows]
    one, other = (
        fitted(labelled_store(each, tmp_path / name), tmp_path / name / "run") for name, each in (("a", rows), ("b", poisoned))
    )
    assert one[0].fit == other[0].fit
    for name, value in one[1].task.state_dict().items():
        assert torch.equal(value, other[1].task.state_dict()[name]), name


def test_without_a_dev_split(tmp_path):
    rows = [row for row in sentences(60) if row["split"] == "train"]
    prepared, _ = fitted(labelled_store(rows, tmp_path), tmp_path / "run")
    assert prepared.fitted.line() == "fitted, no dev score: the dev split holds nothing to score"
    assert (prepared.fit["ngrams"], prepared.fit["strength"]) == (2, 4.0)


def test_three_classes(tmp_path):
    rows = sentences(150)
    for place, row in enumerate(rows):
        if place % 3 == 0:
            row |= {"label": "odd", "text": f"{row['text']} {WORDS[40]}"}
    store = labelled_store(rows, tmp_path)
    _, model = fitted(store, tmp_path / "run")
    assert score(model, tmp_path / "run", store, "test")["value"] > 0.9
    _, model = fitted(store, tmp_path / "majority", model="majority")
    assert sum(model.predict("ba").probabilities.values()) == pytest.approx(1)


def test_several_classes(tmp_path):
    """A class that no training text has, or every one, has no weights."""
    trees = []
    for number, row in enumerate(sentences(90)):
        label = [row["label"], "all", *(["odd"] if WORDS[11] in row["text"].split() else [])]
        nodes = [{"id": "0", "text": row["text"], "label": label}]
        trees.append({"id": str(number), "nodes": nodes, "meta": {"split": row["split"]}})
    file = tmp_path / "trees.jsonl"
    file.write_text("".join(json.dumps(tree) + "\n" for tree in trees))
    store = ramify.dataset.build([file], "jsonl", tmp_path / "store")
    prepared, model = fitted(store, tmp_path / "run")
    assert prepared.task.config.classes == ("all", "bad", "good", "odd")
    assert score(model, tmp_path / "run", store, "test")["metrics"]["micro_f1"] > 0.9
    assert "all" in model.predict("").label
    _, model = fitted(store, tmp_path / "majority", model="majority")
    assert "all" in model.predict("ba").label


def test_numbers(tmp_path):
    rows = sentences(120)
    for row in rows:
        row["label"] = 100 + (50.5 if row["label"] == "good" else -10) + len(row["text"].split())
    store = labelled_store(rows, tmp_path)
    prepared, model = fitted(store, tmp_path / "run", ONE)
    found = score(model, tmp_path / "run", store, "test")
    assert (found["metric"], found["value"] > 0.9) == ("pearson", True)
    assert "probabilities" not in model.predict("ba bo").to_json()
    targets = prepared.train.targets
    expected = Ridge(alpha=0.5).fit(
        term_matrix(prepared.task.backbone, text_rows(prepared.train), learn=False), targets / targets.std()
    )
    weights = prepared.task.backbone.weight[:, 0].detach().numpy()
    np.testing.assert_allclose(weights, expected.coef_, atol=1e-3)
    _, model = fitted(store, tmp_path / "majority", model="majority")
    assert model.predict("ba").label == pytest.approx(targets.mean())


def pairs(count=120):
    """The second text alone decides the label."""
    rows = []
    for row, other in zip(sentences(count), sentences(count, seed=1), strict=True):
        rows.append({"text": row["text"], "text_pair": other["text"], "label": other["label"], "split": row["split"]})
    return rows


def test_pairs_and_parents(tmp_path):
    """A model that reads the first text alone learns nothing."""
    store = labelled_store(pairs(), tmp_path)
    prepared, model = fitted(store, tmp_path / "pairs", ONE)
    assert prepared.task.backbone.config.num_texts == 2
    assert score(model, tmp_path / "pairs", store, "test")["value"] > 0.85
    assert model.predict(("ba", "aa")).label == model.predict(("aa", "aa")).label
    prepared, model = fitted(store, tmp_path / "parents", ONE, text="parent")
    assert prepared.task.backbone.config.num_texts == 1
    assert score(model, tmp_path / "parents", store, "test")["value"] < 0.75
    prepared, model = fitted(store, tmp_path / "context", ONE | {"input.pair": "none"}, context="parent")
    assert prepared.task.backbone.config.num_texts == 2
    assert score(model, tmp_path / "context", store, "test")["value"] > 0.85


def test_balanced_classes(tmp_path):
    rows = [row for place, row in enumerate(sentences(200)) if row["label"] == "good" or place % 4 == 0]
    store = labelled_store(rows, tmp_path)
    shares = []
    for weights in ("none", "balanced"):
        _, model = fitted(store, tmp_path / weights, ONE, class_weights=weights)
        model.task.temperature.fill_(1.0)
        shares.append(model.predict("").probabilities["bad"])
    assert shares[0] < 0.3 < shares[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"mode": "features"},
            r"--mode features has no effect on --model tfidf, which is fitted in closed form\. Leave --mode",
        ),
        ({"epochs": 3.0}, r"--epochs 3\.0 has no effect on --model tfidf"),
        ({"init": "x"}, "--model tfidf and --init x are both given"),
    ],
)
def test_options_of_training_are_refused(store, options, message):
    with pytest.raises(RamifyError, match=message):
        classify(str(store.path), model="tfidf", **options)


@pytest.mark.parametrize("key", ["train.lr=1", "stages.0.lr=1", "model.dim=4", "task.head=mean", "task.dropout=0.2"])
def test_settings_of_training_are_refused(store, key):
    name, value = key.split("=")
    with pytest.raises(RamifyError, match=rf"--set {key} has no effect on a floor"):
        classify(str(store.path), model="tfidf").changed({name: value})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("fit.ngrams", "[3]", r"fit\.ngrams=\[3\] does not hold lengths of terms alone"),
        ("fit.ngrams", "[]", r"fit\.ngrams=\[\]"),
        ("fit.strengths", "[0]", r"fit\.strengths=\[0(\.0)?\] does not hold positive numbers alone"),
        ("fit.min_count", "0", r"fit\.min_count must be at least 1, but is 0"),
    ],
)
def test_settings_of_the_fit(store, key, value, message):
    with pytest.raises(RamifyError, match=message):
        classify(str(store.path), model="tfidf").changed({key: value})


def test_a_finished_floor_is_fitted_again_by_resume(store, tmp_path):
    _, model = fitted(store, tmp_path / "run", ONE)
    run = classify(str(store.path), model="tfidf").changed(ONE)
    with pytest.raises(RamifyError, match="already holds a run"):
        execute(run, tmp_path / "run", cpu=True)
    execute(run, tmp_path / "run", resume=True, cpu=True)
    assert ramify.load(tmp_path / "run").predict("ba") == model.predict("ba")


def test_seeds_are_refused(store, tmp_path):
    run = classify(str(store.path), model="majority")
    with pytest.raises(RamifyError, match=r"--seeds 3 has no effect on a model that is fitted in closed form"):
        execute_seeds(run, tmp_path / "run", 3, cpu=True)
    _, found = execute_seeds(run.changed({"view.examples": "20"}), tmp_path / "some", 2, cpu=True)
    assert read_seeds(tmp_path / "some") == found
    read = [json.loads((tmp_path / "some" / f"seed-{seed}" / "run.json").read_text())["text"] for seed in range(2)]
    assert [each["texts"] for each in read] == [20, 20]
    assert read[0] != read[1]


def published(tmp_path, name, rows):
    (tmp_path / name).mkdir()
    for split in ("train", "dev"):
        (tmp_path / name / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    store = build([tmp_path / name], "labelled", tmp_path / "store")
    _, model = fitted(store, tmp_path / "run", ONE)
    return score(model, tmp_path / "run", store), read_run(tmp_path / "run")[1]


def test_metric_of_the_data_set(tmp_path):
    rows = [{"sentence": row["text"], "label": int(row["label"] == "good"), "idx": n} for n, row in enumerate(sentences(40))]
    found, record = published(tmp_path, "cola", rows)
    assert found["metric"] == record["fit"]["metric"] == "matthews"
    assert found["value"] == found["metrics"]["matthews"] > found["majority"] == 0


def test_f1_of_the_published_class(tmp_path):
    """Its number is 0, because names are in order of their letters."""
    rows = [
        {"sentence1": row["text"], "sentence2": row["text"], "label": int(number % 4 == 0), "idx": number}
        for number, row in enumerate(sentences(40))
    ]
    found, record = published(tmp_path, "mrpc", rows)
    assert (found["metric"], record["run"]["task"]["positive"]) == ("f1", "equivalent")
    assert found["majority"] == 0
    assert found["metrics"]["accuracy"] >= 0.75


def test_metrics_of_groups(tmp_path):
    rows = sentences(40)
    passages = [
        {
            "passage": {
                "text": "ba",
                "questions": [
                    {"question": "bo", "idx": question, "answers": [
                        {"text": row["text"], "idx": place, "label": int(row["label"] == "good")}
                        for place, row in enumerate(rows[4 * number + 2 * question :][:2])
                    ]}
                    for question in range(2)
                ],
            },
            "idx": number,
        }
        for number in range(10)
    ]  # fmt: skip
    found, _ = published(tmp_path, "multirc", passages)
    assert found["metric"] == "f1"
    right = found["metrics"]["exact_match"]
    assert 0.5 < right <= found["metrics"]["accuracy"] <= 1
    assert (20 * right) % 1 == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("model", ["tfidf", "bag"])
def test_fewer_examples_are_a_part_of_more(store, tmp_path, model):
    def nodes(count, seed=0):
        run = classify(str(store.path), model=model, seed=seed).changed({"view.examples": count})
        return set(run.prepare(tmp_path / f"{count}-{seed}").train.rows.text.tolist())

    few, some, whole = nodes("10"), nodes("30"), nodes("null")
    assert (len(few), len(some), len(whole)) == (10, 30, 72)
    assert few < some < whole
    assert nodes("10") == few != nodes("10", seed=1)
    with pytest.raises(RamifyError, match=r"view\.examples=73 is more than the 72 labelled texts of the training split"):
        nodes("73")
    with pytest.raises(RamifyError, match=r"view\.examples must be at least 1, but is 0"):
        nodes("0")


def test_other_texts_do_not_change_the_examples(tmp_path):
    rows = sentences(60)
    store, larger = (labelled_store(rows[:count], tmp_path / str(count)) for count in (50, 60))

    def texts(store):
        run = classify(str(store.path), model="majority").changed({"view.examples": "12"})
        return set(store.texts(run.prepare(tmp_path / store.hash).train.rows.text))

    assert len(texts(store) & texts(larger)) > 8


def test_examples_of_one_class(store, tmp_path):
    prepared, model = fitted(store, tmp_path / "run", {"view.examples": "1"})
    assert prepared.facts()["text"]["texts"] == 1
    assert model.predict("ba").label == model.predict("aa").label


def test_kinds_of_labels(tmp_path):
    rows = [row | {"label": len(row["text"].split())} for row in sentences(60)]
    store = labelled_store(rows, tmp_path)
    kinds = {kind: fitted(store, tmp_path / kind, ONE, label_kind=kind)[1] for kind in ("auto", "classes", "numbers")}
    assert [kinds[kind].task.config.labels for kind in kinds] == ["classes", "classes", "numbers"]
    assert isinstance(kinds["numbers"].predict("ba").label, float)
    assert "predicts a number; can predict" in repr(kinds["numbers"])
    assert score(kinds["numbers"], tmp_path / "numbers", store)["metric"] == "pearson"
    with pytest.raises(RamifyError, match="label_kind=several does not fit the labels, such as"):
        fitted(store, tmp_path / "several", label_kind="several")
