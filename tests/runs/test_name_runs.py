"""Runs with a memory of names: recipes and settings, resumed runs, starts from other models, stages, refused settings."""

import json
import os
import signal
from dataclasses import asdict

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import ramify
from fixtures import built
from fixtures.commands import call
from fixtures.nested import SMALL_RUN, books
from ramify.errors import RamifyError
from ramify.models.agent import AgentConfig
from ramify.models.name_memory import NameMemoryConfig
from ramify.recipes import RECIPES
from ramify.report import write_report
from ramify.runs import execute, read_run

SENTENCES = {
    **{key: value for key, value in SMALL_RUN.items() if not key.startswith(("model.", "view."))},
    **{"model.dims": "[8,12]", "model.max_children": "[6]", "model.encoder_cells": "[1]", "model.decoder_cells": "[1]"},
    **{"model.num_heads": "2", "model.names.questions": "3", "model.names.filters": "8"},
    **{"train.budget": "40", "train.evaluate_every": "2", "train.checkpoint_every": "1", "view.neighbours": "20"},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return built(books(12), tmp_path_factory.mktemp("data"), split=(0.6, 0.2, 0.2))


def sentences(store, steps=3, *, names=True, **settings):
    changed = {key.replace("__", "."): value for key, value in settings.items()}
    given = {key: value for key, value in SENTENCES.items() if names or "names" not in key}
    return RECIPES["agent-sentence"](str(store.path), steps=steps, names=names).changed(given | changed)


@pytest.fixture(scope="module")
def trained(store, tmp_path_factory):
    """Runs of sentences with and without a memory."""
    folder = tmp_path_factory.mktemp("runs")
    for name, names in (("with", True), ("without", False)):
        execute(sentences(store, names=names), folder / name, cpu=True)
    return folder


def test_recipes_and_settings(store):
    plain = RECIPES["agent-sentence"](str(store.path))
    assert plain.model.names is None
    assert plain.view.neighbours == 0
    for recipe, how in (("agent-sentence", {}), ("agent", {}), ("agent", {"joint": True})):
        run = RECIPES[recipe](str(store.path), names=True, **how)
        assert run.model.names == NameMemoryConfig()
        assert run.view.neighbours == 512
        assert type(run).from_json(json.loads(json.dumps(run.to_json()))) == run
    changed = plain.changed({"model.names": "{}", "view.neighbours": "100"})
    assert changed.model.names == NameMemoryConfig()
    assert plain.changed({"model.names.questions": "5"}).model.names == NameMemoryConfig(questions=5)
    both = plain.changed({"model.names": '{"filters": 8}', "model.names.questions": "5"})
    assert both.model.names == NameMemoryConfig(5, 8)
    assert RECIPES["agent-sentence"](str(store.path), names=True).changed({"model.names": "null"}).model.names is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yes", "model.names=yes is not null or a JSON object"),
        ('{"question": 3}', "is not null or a JSON object"),
        ('{"filters": 9}', "model.names.filters=9 must be a multiple of 8"),
    ],
)
def test_refused_settings(store, text, message):
    with pytest.raises(RamifyError, match=message):
        RECIPES["agent-sentence"](str(store.path)).changed({"model.names": text})


def test_a_memory_needs_neighbours(store, tmp_path):
    with pytest.raises(RamifyError, match=r"view\.neighbours=0 makes every sentence an example of its own"):
        execute(sentences(store, view__neighbours="0"), tmp_path / "run", cpu=True)


def test_a_trained_memory_is_saved_loaded_measured_and_reported(store, trained):
    run, _ = read_run(trained / "with")
    assert run.model.names == NameMemoryConfig(3, 8)
    model = ramify.load(trained / "with")
    assert model.task.name_memory is not None
    assert len(model.reconstruct("aa ae ai").nodes) == 1
    evaluated = model.kind
    assert evaluated == "nested-documents"
    page = write_report(trained / "with", split="test", comments=5).read_text()
    assert "Memory of names" in page
    assert "words hidden as a whole, nats per token, function words" in page
    assert "Memory of names" not in write_report(trained / "without", split="test", comments=5).read_text()
    encoder = model.encoder_only()
    assert encoder.task.name_memory is None
    assert np.array_equal(encoder.embed(["aa ae"]), model.embed(["aa ae"]))


def test_evaluate_prints_the_measures(store, trained):
    evaluate = ["evaluate", str(trained / "with"), "--data", str(store.path), "--split", "all", "--rows", "5"]
    found = json.loads(call(*evaluate, "--json").stdout)
    assert {"hidden_word_accuracy.names", "hidden_word_loss.recurring", "name_gate_auroc"} < set(found["levels"]["token"])
    assert len(found["names"]["filters"]) == 1


def test_stopped_and_resumed_runs_are_equal_to_the_bit(store, tmp_path, trained):
    run, out = sentences(store), tmp_path / "run"

    def interrupt(record):
        if record["step"] == 1:
            os.kill(os.getpid(), signal.SIGINT)

    _, progress = execute(run, out, cpu=True, report=interrupt)
    assert 1 <= progress.step < 3
    execute(run, out, cpu=True, resume=True)
    one, other = (load_file(folder / "model.safetensors") for folder in (out, trained / "with"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_model_without_a_memory_is_continued_with_one(store, trained, tmp_path):
    settings = {"model.names.questions": "3", "model.names.filters": "8", "train.budget": "40", "view.neighbours": "20"}
    run = RECIPES["agent-sentence"](str(store.path), steps=1, init=str(trained / "without"), names=True).changed(settings)
    prepared, _ = execute(run, tmp_path / "run", cpu=True)
    before, after = (load_file(folder / "model.safetensors") for folder in (trained / "without", tmp_path / "run"))
    assert {name for name in after if name not in before} == {name for name in after if name.startswith("name_memory.")}
    assert prepared.task.name_memory.questions.shape == (3, 8)


def test_a_memory_is_kept_by_runs_that_start_from_it(store, trained, tmp_path):
    run = RECIPES["agent-sentence"](str(store.path), steps=1, init=str(trained / "with"))
    assert run.model.names == NameMemoryConfig(3, 8)
    assert run.view.neighbours == 512
    for text in ("null", '{"questions": 4, "filters": 8}'):
        with pytest.raises(RamifyError, match="is another memory of names than that of --init"):
            execute(run.changed({"model.names": text}), tmp_path / "refused", cpu=True)


ABOVE = {
    **{key: value for key, value in SMALL_RUN.items() if not key.startswith(("model.", "tokenizer."))},
    **{"train.budget": "20", "train.units": "4", "view.neighbours": "20", "view.whole_documents": "true"},
    "train.evaluate_every": "2",
}


def test_a_memory_is_frozen_with_the_tokens(store, trained, tmp_path):
    """In the stages of the levels above and of the decoder, which reads it."""
    run = RECIPES["agent"](str(store.path), steps=1, init=str(trained / "with")).changed(ABOVE)
    execute(run, tmp_path / "run", cpu=True)
    before, after = (load_file(folder / "model.safetensors") for folder in (trained / "with", tmp_path / "run"))
    memory = [name for name in before if name.startswith("name_memory.")]
    assert memory
    assert all(torch.equal(before[name], after[name]) for name in memory)
    assert any(not torch.equal(before[name], after[name]) for name in before if name.startswith("decoder.decoders.0."))


def test_a_memory_that_would_not_learn_is_refused(store, trained, tmp_path):
    run = RECIPES["agent"](str(store.path), steps=1, init=str(trained / "without"), names=True).changed(ABOVE)
    with pytest.raises(RamifyError, match="leaves the run no stage in which they learn"):
        execute(run, tmp_path / "run", cpu=True)


def test_settings_of_models_without_a_memory_are_read_as_ever(trained):
    config = json.loads((trained / "without" / "config.json").read_text())
    assert config["model"].pop("names") is None
    (trained / "without" / "config.json").write_text(json.dumps(config))
    assert ramify.load(trained / "without").task.name_memory is None
    assert asdict(AgentConfig())["names"] is None
