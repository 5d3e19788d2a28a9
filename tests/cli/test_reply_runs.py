"""Parents of comments in reply trees, from `ramify train` to `ramify evaluate`."""

import json

import numpy as np
import pytest
import torch

from fixtures import bert_task, built, chat_store, discussion, reddit
from ramify import hub
from ramify.errors import RamifyError
from ramify.inference.fill_mask import MaskFiller
from ramify.recipes import RECIPES
from ramify.runs import execute
from ramify.training.metrics_log import read_metrics


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    trees = [discussion(reddit(9, seed), seed=seed, name=f"t{seed}") for seed in range(24)]
    return built(trees, tmp_path_factory.mktemp("trees"), (0.5, 0.25, 0.25))


@pytest.fixture(scope="module")
def init(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert") / "bert"
    task = bert_task(dtype=torch.float32, task={"head": "bert"}, max_tokens=128)
    hub.export_hugging_face(MaskFiller(task), folder)
    return folder


@pytest.fixture(scope="module")
def trained_with_output(ramify_once, store, init, tmp_path_factory):
    """The folder of a run and the output of its training."""
    out = tmp_path_factory.mktemp("replies") / "run"
    settings = [part for each in ("train.log_every=1", "model.dim=8", "model.ffn_dim=16") for part in ("--set", each)]
    options = ("--steps", 3, "--fine-steps", 2, "--window", 6, *settings)
    status, printed, err = ramify_once("train", "mht", "--data", store.path, "--init", init, "--out", out, *options)
    assert (status, printed) == (0, ""), err
    assert {"reading logs …", "encoding texts …", "encoding messages …", "first step …"} <= {*err.splitlines()}
    return out, err


def test_training_on_reply_trees_ranks_and_skips_distant_parents(trained_with_output, store):
    out, err = trained_with_output
    assert f"next: ramify evaluate {out} --data {store.path}" in err
    record = json.loads((out / "run.json").read_text())
    assert record["run"]["task"]["objective"] == "ranking"
    train = list(store.trees(store.split("train")))
    far = sum(int((np.arange(len(tree)) - tree.parent > 6)[1:].sum()) for tree in train)
    assert record["messages"] == sum(map(len, train))
    assert record["messages_with_links"] == record["messages"] - len(train)
    assert record["beyond_window"] == far > 0
    last = read_metrics(out)[-1]
    assert last["dev_loss"] < 20
    best = max(record.get("dev_graph_accuracy", 0.0) for record in read_metrics(out))
    assert f"best dev graph accuracy {best:.4f} at step" in err
    history = "the model read the gold parents of earlier messages"
    assert f", where {history}\n" in err
    page = (out / "report.html").read_text()
    assert f"On dev {history}." in page
    assert "comments whose parent is found (graph accuracy)" in page
    assert "rule: previous" in page
    assert "accuracy on dev, percent" in page


SCORES = ["graph_accuracy", "graph_accuracy_without_first", "conv_accuracy"]


def test_evaluate_json_has_all_fields(ramify, trained_with_output, store):
    found = {}
    for options in ((), ("--history", "predicted"), ("--beam", 2)):
        status, out, err = ramify(
            "evaluate", trained_with_output[0], "--data", store.path, "--json", "--device", "cpu", *options
        )
        assert (status, err) == (0, "")
        found[options] = json.loads(out)
        told_too = ["history", "conversations", "comments", "beyond_window", "intervals", "baselines"]
        assert list(found[options]) == [*SCORES, *told_too]
    assert [each["history"] for each in found.values()] == ["gold", "predicted", "predicted"]
    gold, predicted, _ = found.values()
    assert gold["conv_accuracy"] == predicted["conv_accuracy"]
    assert gold["baselines"] == predicted["baselines"]
    assert list(gold["baselines"]) == ["first", "previous"]
    trees = list(store.trees(store.split("test")))
    assert (gold["conversations"], gold["comments"]) == (len(trees), sum(map(len, trees)) - len(trees))
    right = sum(int((tree.parent[1:] == 0).sum()) for tree in trees)
    assert gold["baselines"]["first"]["graph_accuracy"] == pytest.approx(100 * right / gold["comments"])
    for name, (low, high) in gold["intervals"].items():
        assert low <= gold[name] <= high


def test_evaluate_readable_output(ramify, trained_with_output, store):
    status, out, err = ramify("evaluate", trained_with_output[0], "--data", store.path, "--device", "cpu")
    assert (status, err) == (0, "")
    assert "95 % intervals over conversations" in out
    assert [line.split("  ")[0].strip() for line in out.splitlines() if line.strip().startswith("previous")] == [
        f"previous {name.replace('_', ' ')}" for name in SCORES
    ]
    assert "further back than the model looks, counted as wrong" in out
    assert out.endswith("the model read the gold parents of earlier messages\n")


def test_recipe_in_python_fits_reply_trees(store, init, tmp_path):
    """As the command does: a recipe's run has the settings that its data set determines, and later changes win."""
    run = RECIPES["mht"](str(store.path), init=str(init), steps=2, fine_steps=0, window=6)
    assert (run.task.objective, run.decoding.decide) == ("ranking", "link")
    prepared, progress = execute(run.changed({"model.dim": "8", "model.ffn_dim": "16"}), tmp_path / "run", cpu=True)
    assert progress.step == 2
    assert prepared.run.task.objective == "ranking"
    assert run.changed({"task.objective": "listwise"}).task.objective == "listwise"


@pytest.mark.parametrize("folder", ["nowhere", "empty", "damaged"])
def test_data_that_do_not_exist_yet_are_missed_in_training(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / folder).mkdir(exist_ok=True) if folder == "damaged" else None
    (tmp_path / "damaged" / "trees.arrow").write_bytes(b"") if folder == "damaged" else None
    run = RECIPES["links"](str(tmp_path / folder))
    assert run.task.objective == "listwise"
    with pytest.raises(RamifyError, match="is not a Ramify data set"):
        execute(run, tmp_path / "run", cpu=True)


def test_unsuitable_settings_are_refused(ramify, trained_with_output, store, init, tmp_path):
    for option in ("--protocol=chunk50", "--no-starts"):
        status, _, err = ramify("evaluate", trained_with_output[0], "--data", store.path, option, "--device", "cpu")
        assert status != 0
        assert f"{option.partition('=')[0]} does not apply to" in err
        assert "reply trees, not chat logs" in err
    run = RECIPES["mht"](str(store.path), init=str(init))
    for objective in ("listwise", "binary"):
        with pytest.raises(RamifyError, match=rf"task\.objective={objective} does not fit the reply trees"):
            execute(run.changed({"task.objective": objective}), tmp_path / objective, cpu=True)


def test_features_need_their_option(ramify, store, init, tmp_path):
    settings = ("--data", store.path, "--init", init, "--out", tmp_path / "run", "--set", "model.features=head")
    status, _, err = ramify("train", "mht", *settings)
    assert (status, err.startswith("error: --set model.features=head")) == (2, True)
    assert "--features" in err
    assert not (tmp_path / "run").exists()


def test_conversation_model_only_ranks_on_reply_trees(store):
    run = RECIPES["links"](str(store.path))
    assert (run.task.objective, run.decoding.decide, run.decoding.threshold) == ("ranking", "link", 0.0)
    with pytest.raises(RamifyError, match=r"decoding\.threshold"):
        RECIPES["feature-model"](str(store.path)).changed({"decoding.threshold": "0.4"})


def test_chat_logs_keep_their_objective_and_may_be_ranked(tmp_path):
    logs = chat_store(tmp_path / "logs", logs=6, number=60)
    run = RECIPES["feature-model"](str(logs.path), steps=4)
    assert run.adapt_to_data() == run
    settings = {"task.objective": "ranking", "train.log_every": "1", "model.hidden": "8", "model.dim": "4"}
    execute(run.changed(settings), tmp_path / "run", cpu=True)
    # A message that starts a conversation has no rank. It is not trained on and causes no infinite loss.
    assert all(record["loss"] < 20 for record in read_metrics(tmp_path / "run"))
