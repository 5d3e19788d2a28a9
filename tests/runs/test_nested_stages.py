"""Runs with a frozen level: stages, vectors that are computed once, batches of units, starts from models of lower levels."""

import os
import shutil
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

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
