"""Runs with a frozen level: stages, vectors that are computed once, batches of units, starts from models of lower levels."""

import os
import shutil
import signal
from itertools import pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import ramify
from fixtures import built
from fixtures.nested import books
from ramify.batching.document_batch import Role
from ramify.errors import RamifyError
from ramify.recipes import RECIPES
from ramify.runs import execute
from ramify.runs.nested_documents import stages
from ramify.training.metrics_log import read_metrics

SMALL = {
    "model.dims": "[8,12,16,16,16]",
    "model.max_children": "[6,4,5,4]",
    "model.encoder_cells": "[1,1,1,1]",
    "model.decoder_cells": "[1,1,1,1]",
    "model.num_heads": "2",
    "tokenizer.vocab_size": "80",
    # Unigram training is not repeatable.
    "tokenizer.kind": "wordpiece",
    "view.document_draws": "2",
    "train.budget": "20",
    "train.units": "4",
    "train.log_every": "1",
    "train.evaluate_every": "2",
    "train.checkpoint_every": "1",
    "dev.tokens": "60",
}


@pytest.fixture
def store(tmp_path):
    return built(books(16), tmp_path / "data", split=(0.7, 0.2, 0.1))


@pytest.fixture(scope="module")
def sentences(tmp_path_factory):
    """A trained model of sentences alone."""
    folder = tmp_path_factory.mktemp("sentences")
    store = built(books(16), folder / "data", split=(0.7, 0.2, 0.1))
    settings = {key: value for key, value in SMALL.items() if not key.startswith(("model.", "view.")) and key != "train.units"}
    sizes = {"dims": "[8,12]", "max_children": "[6]", "encoder_cells": "[1]", "decoder_cells": "[1]", "num_heads": "2"}
    run = RECIPES["agent-sentence"](str(store.path), steps=3)
    execute(run.changed(settings | {f"model.{name}": size for name, size in sizes.items()}), folder / "run", cpu=True)
    return folder / "run"


def small(store, init="", *, steps=2, **settings):
    given = {**SMALL, **{key.replace("__", "."): value for key, value in settings.items()}}
    if init:
        given = {key: value for key, value in given.items() if not key.startswith(("model.", "tokenizer."))}
    return RECIPES["agent"](str(store.path), init=str(init) if init else "", steps=steps).changed(given)


def moved(before, after):
    """The names of the tensors that two checkpoints do not share."""
    return {name for name in after if name not in before or not torch.equal(before[name], after[name])}


def test_each_stage_teaches_its_part(store, tmp_path):
    run, out = small(store), tmp_path / "run"
    prepared, progress = execute(run, out, cpu=True)
    assert prepared.roles == (Role.LOWEST, Role.ABOVE, Role.DECODER, Role.ALL)
    assert progress.step == 8
    metrics = read_metrics(out)
    names = set(prepared.task.loss_names)
    of_tokens = {"reconstruction_sentence", "mlm_token", "coherence_sentence", "autoencoder_sentence", "length_sentence"}
    for record in metrics:
        stage = (record["step"] - 1) // 2
        nonzero = {name for name in names if record.get(name)}
        expected = (of_tokens, names - of_tokens, {"reconstruction_sentence", "length_sentence"}, names)[stage]
        assert nonzero <= expected
        assert nonzero or stage == 1
    assert all(np.isfinite(record["loss"]) for record in metrics)
    assert any(record["mlm_sentence"] for record in metrics[2:4])
    model = ramify.load(out)
    assert model.task.config.frozen == "sentence"
    assert model.backbone.encoder(0).token_skip.is_fitted
    for name, tensor in model.task.state_dict().items():
        assert torch.isfinite(tensor.double()).all(), name


def test_each_stage_changes_its_parameters_alone(store, tmp_path):
    """What is frozen has the same bits at the end of a stage, weight decay or not."""
    run = small(store, steps=2, train__weight_decay="0.5", train__checkpoint_every="2")
    out, weights = tmp_path / "run", []

    def keep(record):
        if record["step"] % 2 == 0 and record["step"]:
            weights.append({name: tensor.clone() for name, tensor in prepared[0].task.state_dict().items()})

    prepared = []
    execute(run, out, cpu=True, begin=prepared.append, report=keep)
    task = prepared[0].task
    above, decoder, everything = (moved(*pair) for pair in pairwise(weights))
    parameters = {name for name, _ in task.named_parameters()}
    assert all(task.level_of(name) >= 1 or "token_skip" in name for name in above)
    assert {"backbone.encoders.0.token_skip.table.weight", "backbone.encoders.0.token_skip.mean"} <= above
    assert decoder & parameters == {name for name in parameters if task.decodes(name) and task.level_of(name) == 0}
    assert "backbone.encoders.0.compressor.weight_ih_l0" in everything or any(
        "encoders.0.compressor" in name for name in everything
    )


@pytest.mark.parametrize("after", [3, 6, 10])
def test_stopped_and_resumed_runs_are_equal_to_the_bit(store, tmp_path, after):
    """In every stage, and with the vectors that are kept."""
    run = small(store, steps=3, train__evaluate_every="0", model__dropout="0.2")
    execute(run, tmp_path / "straight", cpu=True)
    out = tmp_path / "stopped"

    def interrupt(record):
        if record["step"] == after:
            os.kill(os.getpid(), signal.SIGINT)

    _, progress = execute(run, out, cpu=True, report=interrupt)
    assert after <= progress.step < 12
    execute(run, out, cpu=True, resume=True)
    before, again = (load_file(folder / "model.safetensors") for folder in (tmp_path / "straight", out))
    assert before.keys() == again.keys()
    assert not moved(before, again)
    losses = [[record["loss"] for record in read_metrics(folder)] for folder in (tmp_path / "straight", out)]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 12


def kept(store):
    return sorted(store.path.glob("vectors-*"))


def test_vectors_are_computed_once_and_not_for_another_model(store, tmp_path, sentences):
    def train(name, init=sentences):
        execute(small(store, init, steps=1, seed="1" if name == "other" else "0"), tmp_path / name, cpu=True)

    train("first")
    # Of train and dev.
    folders = kept(store)
    assert len(folders) == 2
    times = [(folder / "vectors.npy").stat().st_mtime_ns for folder in folders]
    train("second")
    assert kept(store) == folders
    assert [(folder / "vectors.npy").stat().st_mtime_ns for folder in folders] == times
    other = tmp_path / "init"
    shutil.copytree(sentences, other)
    tensors = load_file(other / "model.safetensors")
    tensors["backbone.encoders.0.states.segments"] += 1
    save_file(tensors, other / "model.safetensors", {"format": "pt"})
    train("third", other)
    assert len(kept(store)) == 4


def test_vectors_of_other_data_are_refused(store, tmp_path, sentences):
    execute(small(store, sentences, steps=1), tmp_path / "first", cpu=True)
    one, other = kept(store)
    shutil.rmtree(one)
    shutil.copytree(other, one)
    with pytest.raises(RamifyError, match=rf"{one.name} is damaged \(it holds vectors of other data or of another model\)"):
        execute(small(store, sentences, steps=1), tmp_path / "second", cpu=True)


def test_a_start_from_sentences(store, tmp_path, sentences):
    """Their weights are taken, and options and levels that they lack are fresh."""
    run = small(store, sentences)
    assert (run.model.dims[:2], run.model.max_children[0], run.model.token_skip) == ((8, 12), 6, True)
    prepared = run.prepare(tmp_path / "none")
    assert prepared.roles == (Role.ABOVE, Role.DECODER, Role.ALL)
    saved = load_file(sentences / "model.safetensors")
    own = prepared.task.state_dict()
    assert all(torch.equal(own[name], tensor) for name, tensor in saved.items())
    assert prepared.task.names == ("token", "sentence", "paragraph", "document")
    _, progress = execute(run, tmp_path / "run", cpu=True)
    assert progress.step == 6
    later = load_file(tmp_path / "run" / "model.safetensors")
    assert moved(saved, later)


def test_the_best_weights_are_those_of_the_last_stage(store, tmp_path):
    """Dev losses of stages that teach different parts are not compared."""
    _, progress = execute(small(store, steps=2), tmp_path / "run", cpu=True)
    assert progress.best_step is not None
    assert progress.best_step > 6


def test_roles():
    every = (Role.LOWEST, Role.ABOVE, Role.DECODER, Role.ALL)
    assert stages.roles(None, "", 3) == (Role.ALL,) * 3
    assert stages.roles("sentence", "", 4) == every
    assert stages.roles("sentence", "", 2) == every[:2]
    assert stages.roles("sentence", "somewhere", 1) == (Role.ABOVE,)
    with pytest.raises(RamifyError, match=r"task\.frozen=sentence has 3 stages \(above, decoder, all\), but the run has 4"):
        stages.roles("sentence", "somewhere", 4)


# --- refusals -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frozen", "init_levels", "message"),
    [
        ("line", None, r"task\.frozen=line is no level of the model\. Its levels are sentence, paragraph, document"),
        ("document", None, r"task\.frozen=document is the highest level, so no level would learn"),
        ("paragraph", ("sentence",), r"task\.frozen=paragraph is no level of the model in --init, which has sentence\."),
    ],
)
def test_levels_that_cannot_be_frozen(frozen, init_levels, message):
    with pytest.raises(RamifyError, match=message):
        stages.frozen_levels(frozen, ("sentence", "paragraph", "document"), init_levels)


def test_a_start_from_other_levels_is_refused(store, sentences):
    run = RECIPES["agent"](str(store.path))
    with pytest.raises(RamifyError, match=r"has the levels sentence, but the model has line, document\. Start from"):
        type(run)(recipe="agent", data="", model=run.model.with_levels(("line", "document"))).sized(str(sentences))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"task__queue": "8"},
            r"task\.queue=8 adds candidates from earlier weights to batches of train\.units=4.*Set task\.queue=0",
        ),
        ({"train__units": "100"}, r"train\.units=100 is more than the \d+ units of the training documents"),
        ({"task__replacement": "other_document"}, r"task\.replacement=other_document finds no other document"),
    ],
)
def test_settings_that_do_not_fit(store, tmp_path, settings, message):
    with pytest.raises(RamifyError, match=message):
        execute(small(store, **settings), tmp_path / "run", cpu=True)
    assert not (tmp_path / "run" / "run.json").exists()
