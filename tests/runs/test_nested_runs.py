"""Runs of nested documents: from a store to a model, resumed runs, schedules, missing levels, refused data."""

import json
import os
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import ramify
from fixtures import built
from fixtures.nested import SMALL_RUN, book, books, part, tree_of
from ramify.errors import RamifyError
from ramify.recipes import RECIPES
from ramify.report import write_report
from ramify.runs import execute, kind_for, read_run
from ramify.runs.nested_documents.run import NestedConfig, NestedDevConfig, NestedRun
from ramify.training.metrics_log import read_metrics

SMALL = SMALL_RUN | {
    "task.queue": "8",
    "train.steps": "6",
    "train.budget": "60",
    "train.evaluate_every": "3",
    "train.checkpoint_every": "2",
}
LONG = [[5, 2], [3, 3, 3], [4, 4], [5, 5, 5], [12], [5, 5]]
"""A document with more tokens than a batch, even if every word is one token."""


def trees():
    """Documents that fit into a batch, and every fourth that does not."""
    return [book(LONG, seed=number, name=f"long{number}") if number % 4 == 0 else tree for number, tree in enumerate(books(12))]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return built(trees(), tmp_path_factory.mktemp("data"), split=(0.5, 0.3, 0.2))


def small(store, recipe="agent", **settings):
    changed = {key.replace("__", "."): value for key, value in settings.items()}
    how = {"joint": True} if recipe == "agent" else {}
    return RECIPES[recipe](str(store.path), **how).changed({**SMALL, **changed})


def test_execution(store, tmp_path):
    run, out = small(store), tmp_path / "run"
    prepared, progress = execute(run, out, cpu=True)
    assert progress.step == 6
    assert read_run(out)[0] == run
    assert type(run).from_json(json.loads(json.dumps(run.to_json()))) == run
    record = json.loads((out / "run.json").read_text())
    assert list(record["levels"]) == ["sentence", "paragraph", "document"]
    assert record["levels"]["document"]["nodes"] == len(store.split("train"))
    assert record["tokens"] == len(prepared.levels.ids)
    assert "token" in prepared.reads()
    assert prepared.task.backbone.config.dims == (8, 12, 16, 16)
    metrics = read_metrics(out)
    assert len(metrics) == 6
    names = prepared.task.loss_names
    assert len(names) == 12
    for each in metrics:
        assert set(names) <= set(each)
        assert each["loss"] == pytest.approx(sum(each[name] for name in names))
        assert np.isfinite(each["loss"])
    measured = [each for each in metrics if "dev_loss" in each]
    assert len(measured) == 2
    assert measured[0]["dev_loss"] == pytest.approx(
        sum(value for name, value in measured[0].items() if name.startswith("dev_") and name != "dev_loss")
    )
    model = ramify.load(out)
    assert kind_for(model, str(out)) is NestedRun
    assert model.backbone.config.levels == ("sentence", "paragraph", "document")
    for name, tensor in model.task.state_dict().items():
        assert torch.isfinite(tensor.double()).all(), name
    assert "Learning curves" in write_report(out, evaluate=False).read_text("utf-8")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"task__upper": "two_phase", "model__dropout": "0.2"},
        {"model__decoder": "autoregressive", "input__overflow": "pack", "train__accumulate": "2"},
        {"task__schedule": "staged", "task__unlock_steps": "4", "task__freeze_below": "true"},
        {"model__padding": "full", "task__replacement": "other_document", "model__positions": "learned"},
    ],
    ids=str,
)
def test_stopped_and_resumed_runs_are_equal_to_the_bit(store, tmp_path, settings):
    """Weights, queues and logs, in a later epoch, too."""
    run = small(store, **({"train__steps": "8", "train__evaluate_every": "0"} | settings))
    execute(run, tmp_path / "straight", cpu=True)

    def interrupt(record):
        if record["step"] == 5:
            os.kill(os.getpid(), signal.SIGINT)

    out = tmp_path / "stopped"
    _, progress = execute(run, out, cpu=True, report=interrupt)
    assert 5 <= progress.step < 8
    assert progress.epoch >= 1
    prepared, _ = execute(run, out, cpu=True, resume=True)
    before, after = (load_file(folder / "model.safetensors") for folder in (tmp_path / "straight", out))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert before["queues.0.vectors"].abs().max() > 0
    assert int(before["queues.0.filled"]) == 8
    losses = [[record["loss"] for record in read_metrics(folder)] for folder in (tmp_path / "straight", out)]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 8
    assert prepared.task.training


def test_the_queue_decides_later_steps(store, tmp_path):
    """A run that resumed without its queues would not be the same."""
    found = []
    for size in ("8", "0"):
        execute(small(store, task__queue=size, train__evaluate_every="0"), tmp_path / size, cpu=True)
        found.append([record["reconstruction_paragraph"] for record in read_metrics(tmp_path / size)])
    assert found[0][0] == found[1][0]
    assert found[0] != found[1]


def test_long_documents_have_examples_of_their_own(store, tmp_path):
    run = small(store)
    view = run.prepare(tmp_path).stage(0).view
    apart = [example for example in view.examples if example.apart]
    assert 0 < len(apart) < len(store.split("train"))
    assert view.target_tokens.sum() == run.prepare(tmp_path).facts()["tokens"]
    without = small(store, view__whole_documents="false").prepare(tmp_path).stage(0).view
    assert not any(example.apart for example in without.examples)


@pytest.mark.parametrize("freeze", ["true", "false"])
@pytest.mark.parametrize("upper", ["detached", "two_phase"])
def test_staged_runs_train_on_long_documents(store, tmp_path, freeze, upper):
    """Batches of which no level learns change nothing, and the dev loss covers all levels from the start."""
    settings = {"task__schedule": "staged", "task__unlock_steps": "4", "task__freeze_below": freeze, "task__upper": upper}
    run = small(store, **settings, train__steps="12", train__evaluate_every="4", train__checkpoint_every="0")
    execute(run, tmp_path / "run", cpu=True)
    metrics = read_metrics(tmp_path / "run")
    for place, record in enumerate(metrics):
        unlocked = min(3, 1 + place // 4)
        learn = {name for name in ("sentence", "paragraph", "document") if record[f"reconstruction_{name}"]}
        allowed = ["sentence", "paragraph", "document"][:unlocked]
        assert learn <= set(allowed[-1:] if freeze == "true" else allowed)
    assert all(
        record[f"dev_reconstruction_{name}"] > 0
        for record in metrics
        if "dev_loss" in record
        for name in ("sentence", "document")
    )
    for name, begins in (("sentence", 0), ("paragraph", 4), ("document", 8)):
        assert any(record[f"reconstruction_{name}"] for record in metrics[begins : begins + 4])


def test_a_run_starts_from_another(store, tmp_path):
    execute(small(store), tmp_path / "first", cpu=True)
    second = RECIPES["agent"](str(store.path), joint=True, init=str(tmp_path / "first"))
    first = ramify.load(tmp_path / "first")
    assert second.model.dims == first.backbone.config.dims
    prepared = second.prepare(tmp_path / "none")
    saved = load_file(tmp_path / "first" / "model.safetensors")
    assert all(torch.equal(parameter, saved[name]) for name, parameter in prepared.task.named_parameters() if name in saved)
    assert saved["queues.0.vectors"].shape == (8, 12)
    # Its queues hold nodes of other data, so they begin anew.
    assert [(len(queue), len(queue.vectors)) for queue in prepared.task.queues] == [(0, 1024)] * 2


STAGED = {"task.schedule": "staged", "task.plateau": "0.01", "task.unlock_steps": "1"}


@pytest.mark.parametrize(("before", "afterwards"), [({}, [STAGED]), (STAGED, [{}, STAGED])])
def test_levels_of_a_run_from_another_begin_with_the_lowest(store, tmp_path, before, afterwards):
    execute(small(store, **before), tmp_path / "first", cpu=True)
    for after in afterwards:
        second = RECIPES["agent"](str(store.path), joint=True, init=str(tmp_path / "first")).changed(after)
        task = second.prepare(tmp_path / "none").task.train()
        assert task.active == ((0, 1) if after else (0, 3))


def test_sentences_alone(store, tmp_path):
    run = small(
        store,
        "agent-sentence",
        model__dims="[8,12]",
        model__max_children="[6]",
        model__encoder_cells="[1]",
        model__decoder_cells="[1]",
    )
    prepared, _ = execute(run, tmp_path / "run", cpu=True)
    assert prepared.task.names == ("token", "sentence")
    facts = prepared.facts()
    assert list(facts["levels"]) == ["sentence"]
    assert facts["levels"]["sentence"]["cut"] > 0
    # Levels above are left out, and named.
    assert set(facts["flattened"]) == {"document", "paragraph"}
    assert "flattened" in prepared.reads()


def test_documents_with_other_levels(tmp_path):
    """A part, a level that is missing in some books, a preface, empty paragraphs, and text of a chapter: all are counted."""
    whole = [
        tree_of(
            "aa ae ai",
            part(
                "part",
                part("chapter", part("paragraph", "aa", "ae"), part("paragraph")),
                part("chapter", part("paragraph", "aw")),
            ),
            part("chapter", part("paragraph", "ba be bi bo bu by bw"), text="ai"),
            name=f"d{number}",
        )
        for number in range(3)
    ] + [tree_of("aa ba ca", name="short"), tree_of(part("paragraph", "aa"), name="none")]
    store = built(whole, tmp_path / "data", split=(1.0, 0.0, 0.0))
    run = small(store, tokenizer__vocab_size="40")
    prepared, progress = execute(run, tmp_path / "run", cpu=True)
    assert progress.best is None
    facts = prepared.facts()
    assert facts["flattened"] == {"part": 3}
    assert {name: level["filled"] for name, level in facts["levels"].items()} == {
        "sentence": 3,
        "paragraph": 7,
        "chapter": 5,
        "document": 0,
    }
    assert "fill a missing level" in prepared.reads()
    assert "3 parts flattened" in prepared.reads()
    with_parts = small(
        store,
        view__divisions="level",
        tokenizer__vocab_size="40",
    )
    prepared = with_parts.prepare(tmp_path / "parts")
    assert prepared.facts()["flattened"] == {}
    assert prepared.task.backbone.config.dims == (8, 12, 16, 16, 16, 16)
    assert prepared.task.names == ("token", "sentence", "paragraph", "chapter", "part", "document")


def test_divisions_without_an_order_are_flattened(tmp_path):
    """A part in a book and a book in a part are no levels, but their sentences are."""
    tree = tree_of(part("part", part("book", "aa ae ai")), part("book", part("part", "ba be")))
    store = built([tree], tmp_path / "data", split=(1.0, 0.0, 0.0))
    prepared = small(store, tokenizer__vocab_size="40").prepare(tmp_path / "flat")
    assert prepared.task.names == ("token", "sentence", "document")
    assert prepared.facts()["flattened"] == {"part": 2, "book": 2}
    with pytest.raises(RamifyError, match=r"no order.*view\.divisions=flatten"):
        small(store, view__divisions="level", tokenizer__vocab_size="40").prepare(tmp_path / "level")


def test_a_store_without_dev_documents_trains_and_says_so(tmp_path):
    store = built(books(6), tmp_path / "data", split=(1.0, 0.0, 0.0))
    run = small(store)
    assert run.notes() == [f"{store.path} has no dev documents, so no dev loss is computed and the last weights are kept."]
    _, progress = execute(run, tmp_path / "run", cpu=True)
    assert progress.best is None


# --- refusals -----------------------------------------------------------------------------------------------------------------


def test_other_data_are_refused(sample, tmp_path):
    replies = built(sample, tmp_path / "replies")
    with pytest.raises(RamifyError, match=r"holds replies, not documents\. Build documents with"):
        small(replies).prepare(tmp_path / "run")


def test_data_without_training_documents_or_text_are_refused(tmp_path):
    none = built(books(4), tmp_path / "none", split=(0.0, 0.5, 0.5))
    with pytest.raises(RamifyError, match=r"has no training trees\. Build it with a larger share"):
        small(none).prepare(tmp_path / "run")
    notes = built([tree_of(part("note", text="aa ae"), name=name) for name in "abc"], tmp_path / "notes", split=(1, 0, 0))
    with pytest.raises(RamifyError, match=r"has the levels .*note.*, but none of sentence\. Set model\.levels"):
        small(
            notes,
            "agent-sentence",
            **{f"model__{name}": "[1]" for name in ("encoder_cells", "decoder_cells")},
            model__dims="[8,12]",
            model__max_children="[6]",
        ).prepare(tmp_path / "run")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NestedConfig(document_draws=0), r"view\.document_draws must be at least 1, but is 0"),
        (lambda: NestedDevConfig(tokens=0), r"dev\.tokens must be at least 1, but is 0"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(RamifyError, match=message):
        make()
