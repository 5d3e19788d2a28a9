"""Several seeds of a run: the best one on dev, mean and spread, and resumed ones."""

import json
import os
import signal
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import ramify
from fixtures.commands import call, refusal
from fixtures.labelled import labelled_store, sentences, settings_for
from ramify.errors import RamifyError
from ramify.recipes import RECIPES
from ramify.report import write_report
from ramify.runs import execute
from ramify.runs.labelled.classification import ClassificationRun
from ramify.runs.seeds import SeedScore, SeedScores, execute_seeds, read_seeds


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return labelled_store(sentences(80), tmp_path_factory.mktemp("labelled"))


def run_of(store):
    run = RECIPES["classify"](str(store.path), model="bag", epochs=2.0, lr=0.01)
    return run.changed(settings_for(run) | {"train.checkpoint_every": "1"})


@pytest.fixture(scope="module")
def seeds(store, tmp_path_factory):
    out = tmp_path_factory.mktemp("seeds") / "run"
    execute_seeds(run_of(store), out, 3, cpu=True)
    return out


def weights(folder):
    return load_file(folder / "model.safetensors")


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_folder_holds_the_best_seed(store, seeds):
    found = read_seeds(seeds)
    values = [score.value for score in found.scores]
    assert [score.folder for score in found.scores] == ["seed-0", "seed-1", "seed-2"]
    assert found.best.value == max(values)
    assert equal(weights(seeds), weights(seeds / found.best.folder))
    for score in found.scores:
        model = ramify.load(seeds / score.folder)
        dev = ClassificationRun.evaluate(model, str(seeds), store, "dev", {}).to_json()
        assert dev["value"] == pytest.approx(score.value)
    record = json.loads((seeds / "seeds.json").read_text())
    assert record["mean"] == pytest.approx(np.mean(values))
    assert record["spread"] == pytest.approx(np.std(values, ddof=1))
    assert json.loads((seeds / "run.json").read_text())["seeds"]["best"] == found.best.seed
    assert ramify.load(seeds).predict("ba").label in ("bad", "good")


def test_each_seed_is_a_run_of_its_own(store, seeds, tmp_path):
    run = run_of(store)
    execute(run.changed({"seed": "1"}), tmp_path / "alone", cpu=True)
    assert equal(weights(tmp_path / "alone"), weights(seeds / "seed-1"))
    assert not equal(weights(seeds / "seed-0"), weights(seeds / "seed-1"))


def test_interrupted_seeds_continue(store, seeds, tmp_path):
    out, steps = tmp_path / "run", []

    def interrupt(record):
        steps.append(record["step"])
        if len(steps) == 6:
            os.kill(os.getpid(), signal.SIGINT)

    assert execute_seeds(run_of(store), out, 3, display=lambda: nullcontext(interrupt), cpu=True) is None
    assert read_seeds(out) is None
    assert not (out / "config.json").exists()
    with pytest.raises(RamifyError, match=r"already holds seeds of a run. Add --resume"):
        execute_seeds(run_of(store), out, 3, cpu=True)
    _, found = execute_seeds(run_of(store), out, 3, resume=True, cpu=True)
    assert found == read_seeds(seeds)
    assert all(equal(weights(out / name), weights(seeds / name)) for name in ("seed-0", "seed-1", "seed-2", "."))


def test_the_smallest_loss_is_the_best():
    scores = tuple(SeedScore(seed, f"seed-{seed}", value, 1) for seed, value in enumerate((0.5, 0.2, 0.2)))
    assert SeedScores("dev_loss", False, scores).best.seed == 1
    assert SeedScores("accuracy", True, scores).best.seed == 0


def test_no_dev_split(tmp_path):
    rows = [row | {"split": "train"} for row in sentences(40)]
    with pytest.raises(RamifyError, match=r"--seeds 2 chooses the best seed on dev, but .* has no dev split"):
        execute_seeds(run_of(labelled_store(rows, tmp_path / "data")), tmp_path / "run", 2, cpu=True)
    assert not (tmp_path / "run").exists()


def test_the_command_and_the_report(store, tmp_path):
    words = ["train", "classify", "--data", store.path, "--model", "bag", "--epochs", 1, "--out", tmp_path / "run"]
    result = call(*words, "--seeds", 2, "--set=model.dim=8")
    assert "2 seeds: dev accuracy" in result.stderr
    assert "already holds seeds of a run" in refusal(*words, "--seeds", 2)
    assert "holds several seeds of a run. Add --seeds" in refusal(*words, "--resume")
    page = (write_report(tmp_path / "run")).read_text()
    assert "seed-0" in page
    assert "standard deviation" in page


def test_several_processes(store, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RamifyError, match="--seeds 2 trains in one process, but torchrun started 2"):
        execute_seeds(run_of(store), tmp_path / "run", 2, cpu=True)
