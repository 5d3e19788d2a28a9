"""Variants of runs on labels: numbers of training examples, which make a learning curve, and seeds of every label task."""

import json

import pytest

import ramify
from fixtures.commands import call, refusal
from fixtures.label_runs import label_run, label_stores
from fixtures.labelled import labelled_store, sentences
from ramify.errors import RamifyError
from ramify.recipes import RECIPES
from ramify.report import write_report
from ramify.runs.seeds import execute_curve, execute_seeds, read_seeds


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return label_stores(tmp_path_factory.mktemp("data"))


NODES = {
    "classify": lambda prepared: prepared.train.rows.text,
    "tag": lambda prepared: prepared.tagged.nodes,
    "answer": lambda prepared: prepared.train.questions.nodes,
    "choose": lambda prepared: prepared.labelled.sets.questions,
}


@pytest.mark.parametrize("task", [*NODES])
def test_fewer_examples_are_a_part_of_more(data, tmp_path, task):
    few, more, others = (
        {*NODES[task](label_run(task, data[task], settings=settings).prepare(tmp_path / str(number))).tolist()}
        for number, settings in enumerate(({"view.examples": "3"}, {"view.examples": "7"}, {"view.examples": "7", "seed": "1"}))
    )
    assert (len(few), len(more), len(others)) == (3, 7, 7)
    assert few < more
    assert more != others
    with pytest.raises(RamifyError, match=r"view\.examples=5000 is more than the [0-9]+ .*s of the training split\. Lower"):
        label_run(task, data[task], settings={"view.examples": "5000"}).prepare(tmp_path / "many")


def test_a_learning_curve(data, tmp_path):
    out = tmp_path / "run"
    words = ["train", "classify", "--data", data["classify"].path, "--model", "bag", "--epochs", 2, "--out", out]
    words += ["--set=model.dim=8", "--set=train.lr=0.05"]
    result = call(*words, "--examples", "24,6,12")
    assert " on 6, " in result.stderr
    assert " on 24 examples; this folder holds the model of " in result.stderr
    record = json.loads((out / "examples.json").read_text())
    assert [score["examples"] for score in record["scores"]] == [6, 12, 24]
    for score in record["scores"]:
        run = json.loads((out / score["folder"] / "run.json").read_text())
        assert run["run"]["view"]["examples"] == run["text"]["texts"] == score["examples"]
        found = call("evaluate", out / score["folder"], "--data", data["classify"].path, "--split", "dev", "--json").stdout
        assert json.loads(found)["value"] == pytest.approx(score["value"])
    assert max(score["value"] for score in record["scores"]) == next(
        score["value"] for score in record["scores"] if score["examples"] == record["best"]
    )
    assert json.loads((out / "run.json").read_text())["run"]["view"]["examples"] == record["best"]
    page = write_report(out).read_text()
    assert "Scores by number of examples" in page
    assert "training examples" in page
    assert ramify.load(out).predict("ba").label in ("bad", "good")
    assert "already holds a run on several numbers of examples. Add --resume" in refusal(*words, "--examples", "6,12")
    assert "holds a run on several numbers of examples. Add --examples" in refusal(*words, "--resume")
    assert "holds a run on several numbers of examples. Add --examples" in refusal(*words, "--seeds", 2)
    assert "--seeds 2 and --examples 6,12 are both given" in refusal(*words, "--seeds", 2, "--examples", "6,12")
    assert "--examples 6,x holds 'x', which is no number of examples" in refusal(*words, "--examples", "6,x")
    call(*words, "--examples", "24,6,12", "--resume")


def test_no_curve(data, tmp_path):
    run = label_run("classify", data["classify"])
    with pytest.raises(RamifyError, match=r"--examples 6 makes no curve\. Give at least two numbers"):
        execute_curve(run, tmp_path / "a", [6, 6], cpu=True)
    with pytest.raises(RamifyError, match=r"--examples 6,8 sets view\.examples=4, which is given, too"):
        execute_curve(run.changed({"view.examples": "4"}), tmp_path / "a", [6, 8], cpu=True)
    store = labelled_store([row | {"split": "train"} for row in sentences(40)], tmp_path / "data")
    for number, run in enumerate((label_run("classify", store), RECIPES["classify"](str(store.path), model="majority"))):
        with pytest.raises(RamifyError, match="--examples 6,8 chooses the best number of examples on dev, but"):
            execute_curve(run, tmp_path / str(number), [6, 8], cpu=True)


@pytest.mark.parametrize(("task", "model"), [("classify", "majority"), ("classify", "tfidf"), ("tag", "tfidf")])
def test_learning_curves_of_floors(data, tmp_path, task, model):
    store, out = data[task], tmp_path / "run"
    words = ["train", task, "--data", store.path, "--model", model, "--out", out]
    result = call(*words, "--examples", "6,12")
    assert " on 12 examples; this folder holds the model of " in result.stderr
    record = json.loads((out / "examples.json").read_text())
    for score in record["scores"]:
        alone = tmp_path / f"alone-{score['examples']}"
        call(*words[:-1], alone, "--set", f"view.examples={score['examples']}")
        found = json.loads((alone / "run.json").read_text())
        assert found["fit"]["dev"] == score["value"]
        assert found["fit"] == json.loads((out / score["folder"] / "run.json").read_text())["fit"]
    page = write_report(out).read_text()
    assert "Scores by number of examples" in page
    assert "<h2>Fit</h2>" in page
    call(*words, "--examples", "6,12", "--resume")
    assert json.loads((out / "examples.json").read_text()) == record


def test_curves_are_refused_before_anything_is_trained(data, tmp_path):
    out = tmp_path / "run"
    words = ["train", "classify", "--data", data["classify"].path, "--model", "tfidf", "--out", out, "--examples", "6,5000"]
    assert "view.examples=5000 is more than" in refusal(*words)
    assert not out.exists()


@pytest.mark.parametrize("model", ["cnn", "bilstm"])
def test_seeds_of_floors_that_are_trained(data, tmp_path, model):
    _, found = execute_seeds(label_run("classify", data["classify"], model=model), tmp_path / "run", 2, cpu=True)
    assert found == read_seeds(tmp_path / "run")
    weights = [ramify.load(tmp_path / "run" / score.folder).task.output.weight for score in found.scores]
    assert not weights[0].equal(weights[1])


@pytest.mark.parametrize("task", ["tag", "answer", "choose"])
def test_seeds_and_curves_of_other_tasks(data, tmp_path, task):
    store = data[task]
    prepared, found = execute_seeds(label_run(task, store), tmp_path / "seeds", 2, cpu=True)
    assert found == read_seeds(tmp_path / "seeds")
    assert found.best.value == max(score.value for score in found.scores)
    kind = type(prepared.run)
    for score in found.scores:
        folder = tmp_path / "seeds" / score.folder
        dev = kind.evaluate(ramify.load(folder), str(folder), store, "dev", {}).to_json()
        assert (dev["metric"], dev["value"]) == (found.metric, pytest.approx(score.value))
    assert f"{found.best.value - found.mean:+.4f} from the mean" in found.line()
    page = write_report(tmp_path / "seeds").read_text()
    assert "less the mean" in page
    assert "seed-1" in page
    _, curve = execute_curve(label_run(task, store), tmp_path / "curve", [4, 8], cpu=True)
    assert [score.examples for score in curve.scores] == [4, 8]
    assert "Scores by number of examples" in write_report(tmp_path / "curve").read_text()
