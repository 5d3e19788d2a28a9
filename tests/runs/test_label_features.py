"""The vectors of a frozen model: computed once, kept in the folder of the run, and never mistaken for others."""

import numpy as np
import pytest
import torch

import ramify
from fixtures import bert_task
from fixtures.label_runs import encoded_rows, saved_encoder
from fixtures.labelled import labelled_store, sentences
from ramify import hub
from ramify.batching.labelled_batch import LabelledCollator
from ramify.errors import RamifyError
from ramify.inference.fill_mask import MaskFiller
from ramify.recipes import RECIPES
from ramify.runs import execute


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return labelled_store(sentences(60), tmp_path_factory.mktemp("labelled"))


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return saved_encoder(tmp_path_factory.mktemp("start"))


@pytest.fixture
def encoded(monkeypatch):
    """The numbers of rows of all calls of the frozen encoder."""
    return encoded_rows(monkeypatch)


def run_of(store, start, **settings):
    run = RECIPES["classify"](str(store.path), init=start, mode="features", epochs=3.0, lr=0.01)
    return run.changed({"input.max_tokens": "16", **{key.replace("__", "."): text for key, text in settings.items()}})


def test_each_text_is_encoded_once(store, start, tmp_path, encoded, near):
    out = tmp_path / "run"
    prepared, _ = execute(run_of(store, start), out, cpu=True)
    assert sum(encoded) == len(prepared.train) + len(prepared.held_out)
    folders = sorted(out.glob("features-*"))
    assert len(folders) == 2
    # The task has seen what the backbone says of each text.
    fresh = run_of(store, start).prepare(tmp_path / "other")
    batch = LabelledCollator.of(fresh.train.rows)([fresh.train.example(number) for number in range(len(fresh.train))])
    expected = fresh.task.row_layers(batch.input).numpy()
    near(prepared.train.features[batch.order], expected)
    assert prepared.train.features.shape == (36, 3, 8)


def test_a_second_run_reads_them(store, start, tmp_path, encoded):
    from ramify.runs.labelled.base import SEEDS

    (tmp_path / SEEDS).write_text("{}")
    execute(run_of(store, start), tmp_path / "seed-0", cpu=True)
    encoded.clear()
    execute(run_of(store, start, seed="1"), tmp_path / "seed-1", cpu=True)
    assert encoded == []
    assert len([*tmp_path.glob("features-*")]) == 2


def test_others_are_computed_anew(store, start, tmp_path, encoded):
    from ramify.runs.labelled.base import SEEDS

    (tmp_path / SEEDS).write_text("{}")
    execute(run_of(store, start), tmp_path / "seed-0", cpu=True)
    other = bert_task(dtype=torch.float32)
    with torch.no_grad():
        next(iter(other.backbone.stack.parameters())).add_(1e-3)
    hub.save(MaskFiller(other), tmp_path / "start")
    others = (
        run_of(store, str(tmp_path / "start")),
        run_of(store, start, input__max_tokens="9"),
        run_of(store, start, task__head="first"),
        run_of(store, start, task__head="last"),
    )
    for number, run in enumerate(others, 1):
        encoded.clear()
        execute(run, tmp_path / f"other-{number}", cpu=True)
        assert sum(encoded) == 48


def test_a_damaged_file(store, start, tmp_path):
    out = tmp_path / "run"
    execute(run_of(store, start), out, cpu=True)
    file = next(out.glob("features-*")) / "features.npy"
    np.save(file, np.zeros((2, 3, 8), dtype=np.float32))
    again = run_of(store, start).prepare(out)
    with pytest.raises(RamifyError, match=r"is damaged .*Remove this folder"):
        again.begin()


def test_no_dropout_in_the_frozen_model(store, tmp_path):
    hub.save(MaskFiller(bert_task(dtype=torch.float32, dropout=0.5)), tmp_path / "start")
    prepared = run_of(store, str(tmp_path / "start"), task__head="pooler").prepare(tmp_path / "run")
    task = prepared.task.train()
    batch = prepared.collator([prepared.train.example(number) for number in range(4)])
    states = [task._states(batch.input, "all").last for _ in range(2)]
    assert torch.equal(*states)
    assert task.backbone.training
    with torch.no_grad():
        dropped = [task.backbone.encode_rows(batch.input).last for _ in range(2)]
    assert not torch.equal(*dropped)


def test_predictions_need_no_kept_vectors(store, start, tmp_path):
    execute(run_of(store, start), tmp_path / "run", cpu=True)
    model = ramify.load(tmp_path / "run")
    one, other = model.predict(["ba aa", "be"]), [model.predict("ba aa"), model.predict("be")]
    for together, alone in zip(one, other, strict=True):
        assert together.probabilities == pytest.approx(alone.probabilities, abs=1e-6)
