"""What a frozen model says of tags, questions and choices: computed once, kept within a bound, and equal to computing anew."""

import json

import numpy as np
import pytest
import torch

import ramify
from fixtures.label_runs import encoded_rows, label_run, label_stores, saved_encoder
from ramify.dataset.build import build
from ramify.errors import RamifyError
from ramify.inference.label_pipeline import example_batches
from ramify.runs import execute
from ramify.tree import Node, Tree

TASKS = ("tag", "answer", "choose")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return label_stores(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return saved_encoder(tmp_path_factory.mktemp("start"))


@pytest.fixture
def encoded(monkeypatch):
    """The numbers of rows of all calls of the frozen encoder."""
    return encoded_rows(monkeypatch)


def run_of(data, task, start, **options):
    settings = {"input.max_tokens": "16", "train.budget": "8"} | options.pop("settings", {})
    return label_run(task, data[task], init=start, mode="features", epochs=3.0, lr=0.01, settings=settings, **options)


def all_rows(prepared):
    return sum(
        len(collator([view.example(number)]).input.rows) for view, collator in prepared.views for number in range(len(view))
    )


@pytest.mark.parametrize("task", TASKS)
def test_each_row_is_encoded_once(data, start, tmp_path, encoded, task):
    out, run = tmp_path / "run", run_of(data, task, start)
    fresh = run.prepare(tmp_path / "fresh")
    prepared, _ = execute(run, out, cpu=True)
    assert sum(encoded) == all_rows(fresh)
    assert len([*out.glob("features-*")]) == 2
    # The same batches, computed anew, have the same states to the bit.
    for (kept, collator), (view, _) in zip(prepared.views, fresh.views, strict=True):
        assert view.features is None
        for numbers, batch in example_batches(view, collator):
            own = np.concatenate([np.asarray(kept.features_of(number)) for number in numbers])[collator.places(batch)]
            assert np.array_equal(own, fresh.task.kept_layers(batch.input).numpy())
    record = json.loads((out / "run.json").read_text())["vectors"]
    size = sum(file.stat().st_size for file in out.glob("features-*/features.npy"))
    assert record["how"] == "kept"
    # The header of a file is at most 128 bytes.
    assert record["gib"] * 2**30 == pytest.approx(size, abs=2 * 128 + 600)
    encoded.clear()
    execute(run.changed({"seed": "1"}), tmp_path / "other", cpu=True)
    assert sum(encoded) == all_rows(fresh)


@pytest.mark.parametrize("task", TASKS)
def test_above_the_bound_they_are_computed_anew(data, start, tmp_path, encoded, task):
    kept, _ = execute(run_of(data, task, start), tmp_path / "kept", cpu=True)
    encoded.clear()
    anew = run_of(data, task, start, settings={"task.keep_gib": "0"})
    prepared, _ = execute(anew, tmp_path / "anew", cpu=True)
    assert not [*(tmp_path / "anew").glob("features-*")]
    assert sum(encoded) > 3 * all_rows(prepared)
    record = json.loads((tmp_path / "anew" / "run.json").read_text())["vectors"]
    assert record["how"] == "more than task.keep_gib, so computed anew in every epoch"
    assert "GiB: more than task.keep_gib, so computed anew" in prepared.reads()
    # Other batches round otherwise.
    weights = [model.task.output.weight for model in map(ramify.load, (tmp_path / "kept", tmp_path / "anew"))]
    assert torch.allclose(*weights, atol=1e-3)
    assert kept.views[0][0].features is not None
    with pytest.raises(RamifyError, match="must not be negative"):
        run_of(data, task, start, settings={"task.keep_gib": "-1"})


def test_contexts_that_are_drawn_anew_keep_nothing(start, tmp_path):
    trees = []
    for number in range(24):
        label = "xy"[number // 2 % 2]
        nodes = (Node("ba", parents=(), label=label, id="a"), Node("be", (0,), label=label, id="b"))
        trees.append(Tree(nodes, f"t{number}", {"split": ("train", "dev")[number % 2]}))
    file = tmp_path / "trees.jsonl"
    file.write_text("".join(tree.to_json() + "\n" for tree in trees))
    data = {"classify": build([file], "jsonl", tmp_path / "store")}
    run = run_of(data, "classify", start, settings={"input.context": "mismatched", "input.pair": "none"})
    prepared, _ = execute(run, tmp_path / "run", cpu=True)
    assert not [*(tmp_path / "run").glob("features-*")]
    assert "computed anew in every epoch, because their contexts are drawn anew" in prepared.reads()


def test_fine_tuning_keeps_nothing(data, start, tmp_path):
    run = label_run("tag", data["tag"], init=start, settings={"input.max_tokens": "16"})
    prepared, _ = execute(run, tmp_path / "run", cpu=True)
    assert prepared.facts()["vectors"] == {}
    assert "frozen" not in prepared.reads()
