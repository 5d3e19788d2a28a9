"""Runs as values: settings from text, JSON and back; and execution from a built data set to a model on disk."""

import inspect
import json
import os
import re
import shutil
import signal
from collections import Counter
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import ramify
from fixtures import bert_task, built, discussions, tokenizer, tree_task, words_task
from ramify import hub
from ramify.batching.views.streams import StreamConfig
from ramify.dataset.build import build
from ramify.errors import RamifyError
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.held_out import first_trees
from ramify.models.bert import BertConfig
from ramify.models.tree_mlm import TreeMLMConfig
from ramify.models.xlnet import XLNetConfig
from ramify.recipes import RECIPES
from ramify.runs import execute
from ramify.runs.comment_trees.run import CommentTreeRun
from ramify.runs.streams.run import StreamRun
from ramify.tensors import load_tensors
from ramify.tokenizer import Tokenizer
from ramify.training.config import PhaseSettings, TrainConfig
from ramify.training.metrics_log import read_metrics

PLAIN = CommentTreeRun(recipe="tree-mlm", data="somewhere", model=TreeMLMConfig())
TWO = replace(PLAIN, stages=(TrainConfig(steps=5), TrainConfig(steps=7)))

# --- settings from text -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("seed", "7", 7),
        ("init_decoder", "false", False),
        ("model.dim", "128", 128),
        ("model.vocab_size", "30_522", 30522),
        ("model.dropout", "1e-1", 0.1),
        ("model.pooling", "attn", "attn"),
        ("model.share_embeddings", "no", False),
        ("model.scale_embedding", "True", True),
        ("task.mask_split", "[0.5, 0.25, 0.25]", (0.5, 0.25, 0.25)),
        ("task.loss_norm", "step", "step"),
        ("input.context", "mismatched", "mismatched"),
        ("view.max_tree_size", "20", 20),
        ("view.pack", "0", False),
        ("tokenizer.kind", "bpe", "bpe"),
        ("dev.targets", "10", 10),
    ],
)
def test_settings(key, text, value):
    changed = PLAIN.changed({key: text})
    found = changed
    for name in key.split("."):
        found = getattr(found, name)
    assert found == value
    assert type(found) is type(value)
    # All other settings stay.
    head, _, rest = key.partition(".")
    other = replace(getattr(changed, head), **{rest: getattr(getattr(PLAIN, head), rest)}) if rest else getattr(PLAIN, head)
    assert replace(changed, **{head: other}) == PLAIN


def test_settings_of_stages():
    assert [stage.lr for stage in TWO.changed({"train.lr": "0.5"}).stages] == [0.5, 0.5]
    changed = TWO.changed({"stages.1.lr": "0.5", "stages.1.lr_scale": '[["cross", 2], ["out", 0.5]]'})
    assert changed.stages[0] == TWO.stages[0]
    assert changed.stages[1] == replace(TWO.stages[1], lr=0.5, lr_scale=(("cross", 2.0), ("out", 0.5)))
    assert TWO.changed({"train.freeze": "[]"}) == TWO
    assert TWO.changed({"train.freeze": '["a", "b"]'}).stages[0].freeze == ("a", "b")
    critic = TWO.changed({"stages.1.phases": '[{"name": "critic", "every": 2, "lr": 0.1, "betas": [0, 0.9]}]'})
    assert critic.stages[1].phases == (PhaseSettings("critic", every=2, lr=0.1, betas=(0, 0.9)),)
    assert critic.from_json(json.loads(json.dumps(critic.to_json()))) == critic


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("wings", "2", "there is no setting 'wings' here; the settings are recipe, data, model, task, stages"),
        ("dim", "2", r"dev, init_decoder\. Did you mean model\.dim\?"),
        ("model.wings", "2", "there is no setting 'wings' here; the settings are vocab_size, dim"),
        ("train.wings", "2", "there is no setting 'wings'"),
        ("train", "2", "this is a group of settings, not a setting"),
        ("seed.more", "2", "seed is a single value"),
        ("model", "big", r"one by one \(model\.…\)"),
        ("stages.2.lr", "1", r"has 2, counted from 0"),
        ("stages.one.lr", "1", r"which has 2"),
        ("model.dim", "wide", "is not a whole number"),
        ("model.dim", "1.5", "is not a whole number"),
        ("model.dropout", "much", "is not a number"),
        ("model.pooling", "median", "model.pooling=median is not one of mean, max, cls, attn, pooler"),
        ("view.pack", "perhaps", "is not true or false"),
        ("task.mask_split", "0.5 0.5", r"of the form \[number, number, number\]"),
        ("task.mask_split", '["a", 0.5, 0.5]', r"of the form \[number, number, number\]"),
        ("task.mask_split", "[0.5, 0.5]", r"of the form \[number, number, number\]"),
        ("task.mask_split", "1", r"of the form"),
        ("train.freeze", '"encoder"', r"of the form \[string, …\]"),
        ("train.lr_scale", '[["cross"]]', r"of the form \[\[string, number\], …\]"),
        ("train.betas", "[true, 0.5]", r"of the form \[number, number\]"),
        ("train.phases", '[{"lr": 1}]', r"is not a JSON list of the form \[PhaseSettings, …\]"),
        ("train.phases", '[{"name": "a", "wings": 1}]', r"is not a JSON list of the form \[PhaseSettings, …\]"),
        ("train.phases", '[{"name": "a", "every": 0}]', r"train\.phases: a: every must be at least 1"),
        # Errors that each config reports about its own values.
        ("model.dim", "255", r"model\.dim=255 must be a multiple"),
        ("model.max_tokens", "2", r"model\.max_tokens"),
        ("task.mask_rate", "0", r"task\.mask_rate"),
        ("train.budget", "0", r"train\.budget"),
        ("task.chunk_tokens", "0", r"task\.chunk_tokens must be at least 1, but is 0"),
        ("view.max_tree_size", "0", r"view\.max_tree_size must be at least 1"),
        ("seed", str(2**63), "seed=9223372036854775808 is out of range"),
        ("input.concatenate", "2", "concatenate must be at least 3 tokens"),
        ("seed", "-1", "seed=-1 is out of range"),
    ],
)
def test_refused_settings(key, text, message):
    with pytest.raises(RamifyError, match=message):
        TWO.changed({key: text})


def test_earlier_names_of_settings_are_read_from_files_alone():
    run = StreamRun(recipe="xlnet", data="somewhere", model=XLNetConfig(), view=StreamConfig(streams=3, directions="forward"))
    record = run.to_json()
    assert StreamRun.from_json(record | {"view": {"rows": 3, "directions": "forward"}}) == StreamRun.from_json(record) == run
    with pytest.raises(RamifyError, match="damaged or from another version"):
        StreamRun.from_json(record | {"view": {"lines": 3}})
    with pytest.raises(RamifyError, match=r"no setting 'rows' here; the settings are streams.* Did you mean view\.streams\?"):
        run.changed({"view.rows": "4"})
    with pytest.raises(RamifyError, match=r"no setting 'rows' here; the settings are [^?]*$"):
        PLAIN.changed({"view.rows": "4"})


def test_later_settings_win():
    assert PLAIN.changed({"train.lr": "1", "stages.0.lr": "2"}).stages[0].lr == 2.0


# --- JSON ---------------------------------------------------------------------------------------------------------------------


CHANGES = {
    "streams": {
        "task.k": "7",
        "task.span_unit": "token",
        "task.permutation_block": "16",
        "model.max_distance": "100",
        "input.memory_reset": "never",
        "view.directions": "forward",
        "dev.rows": "20",
    },
    "elmo": {
        "task.sampled": "100",
        "model.restart": "0.5",
        "input.max_tokens": "64",
        "view.streams": "4",
        "dev.rows": "20",
    },
    "packed-text": {
        "model.position": "relative",
        "dev.mask_rate": "0.2",
        "task.mask_unit": "span",
        "task.max_predictions": "null",
        "model.embedding_dim": "64",
        "model.shared_layers": "true",
        "dev.rows": "20",
    },
    "generative": {
        "task.label_smoothing": "0.2",
        "model.dim": "96",
        "input.long": "truncate",
        "dev.examples": "20",
    },
    "nested-adversary": {
        "task.layers": "3",
        "task.levels": '["sentence"]',
        "task.alone": "[]",
        "task.max_norm": "null",
        "dev.texts": "4",
    },
    "nested-documents": {
        "task.without": '["coherence_sentence"]',
        "model.padding": "full",
        "input.overflow": "pack",
        "view.divisions": "level",
        "dev.tokens": "20",
    },
    "comment-trees": {
        "task.mask_split": "[1, 0, 0]",
        "model.pooling": "max",
        "input.rule": "nearest",
        "view.regime": "middle",
        "dev.draws": "2",
    },
    "disentanglement": {
        "task.objective": "binary",
        "decoding.decide": "link",
        "task.conversation_weight": "0",
        "model.years": "false",
        "input.window": "20",
        "view.block": "8",
        "tokenizer.min_count": "2",
        "dev.by": "cluster",
    },
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_json_round_trip(recipe):
    named = {"model": "bert"} if "model" in inspect.signature(RECIPES[recipe].function).parameters else {}
    run = RECIPES[recipe]("data/somewhere", seed=3, **named)
    settings = {"train.lr_scale": '[["cross", 0.5]]', "train.freeze": '["null"]'}
    settings |= CHANGES.get(recipe, CHANGES.get(run.name, {}))
    for each in (run, run.changed(settings)):
        assert type(run).from_json(json.loads(json.dumps(each.to_json()))) == each
    assert run.changed(settings) != run


def test_settings_of_one_part_are_checked_together():
    """The order of the settings is free."""
    run = RECIPES["links"]("data/somewhere")
    settings = {"task.objective": "binary", "decoding.decide": "link", "task.conversation_weight": "0"}
    assert run.changed(settings) == run.changed(dict(reversed(settings.items())))
    with pytest.raises(RamifyError, match=r"decoding\.decide"):
        run.changed({"task.objective": "binary", "task.conversation_weight": "0"})
    with pytest.raises(RamifyError, match=r"task\.conversation_weight"):
        run.changed({"task.objective": "binary", "decoding.decide": "link"})


def test_json_round_trip_of_stages_and_models():
    for run in (TWO, replace(TWO, model=BertConfig(dim=12, num_heads=3), init="x")):
        assert type(run).from_json(json.loads(json.dumps(run.to_json()))) == run
    assert TWO.to_json()["model"]["name"] == "tree-mlm"
    assert replace(TWO, model=BertConfig()).to_json()["model"]["name"] == "bert"


# --- execution ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return built(discussions(40, 9), tmp_path_factory.mktemp("data"))


SMALL = {
    "train.steps": "6",
    "train.target_tokens": "0",
    "train.budget": "300",
    "train.budget_unit": "tokens",
    "train.evaluate_every": "2",
    "train.checkpoint_every": "2",
    "train.log_every": "1",
    "train.lr": "0.01",
    "dev.targets": "20",
}
STILL = {"train__lr": "1e-12", "train__weight_decay": "0"}
"""Settings under which training moves no weight visibly."""

SIZES = {
    "tree-mlm": {
        "model.dim": "8",
        "model.num_heads": "2",
        "model.ffn_dim": "16",
        "model.encoder_layers": "1",
        "model.decoder_layers": "1",
    },
    "bert": {"model.dim": "8", "model.num_heads": "2", "model.ffn_dim": "16", "model.num_layers": "1"},
}


PAPER = {"tree-mlm": {"paper": True}, "bert": {"rows": "comments"}}
"""The design of the paper has fewer conditions, such as a context to learn from. Bert reads comments here."""


def small(store, recipe="tree-mlm", tokenizer_path=None, **settings):
    run = RECIPES[recipe](str(store.path), max_tokens=32, tokenizer=tokenizer_path or "", **PAPER[recipe])
    sizes = SIZES[recipe] | ({} if tokenizer_path else {"tokenizer.vocab_size": "90"})
    return run.changed({**SMALL, **sizes, **{key.replace("__", "."): value for key, value in settings.items()}})


def test_streams_have_no_mask_rate_on_dev():
    with pytest.raises(RamifyError, match=r"dev\.mask_rate=0\.15 belongs to masked language models.* Leave dev\.mask_rate out"):
        RECIPES["xlnet"]("somewhere").changed({"dev.mask_rate": "0.15"})


def test_leftovers_of_another_run_are_refused(store, tmp_path):
    run, out = small(store), tmp_path / "run"
    execute(run, out, cpu=True)
    for name in ("run.json", "config.json"):
        (out / name).unlink()
    for resume in (False, True):
        with pytest.raises(
            RamifyError, match=r"checkpoints, best\.safetensors, .*model\.safetensors, .* which would be overwritten"
        ):
            execute(run, out, cpu=True, resume=resume)


def test_saved_model_is_not_overwritten_by_training(store, tmp_path):
    """Training would replace its tokenizer long before its weights."""
    run = small(store)
    execute(run, tmp_path / "run", cpu=True)
    model = ramify.load(tmp_path / "run")
    hub.save(model, tmp_path / "saved")
    with pytest.raises(RamifyError, match=r"config\.json, model\.safetensors, .* which would be overwritten"):
        execute(run, tmp_path / "saved", cpu=True)


@pytest.mark.parametrize("recipe", ["tree-mlm", "bert"])
def test_execution(store, tmp_path, recipe):
    run, out = small(store, recipe), tmp_path / "run"
    prepared, progress = execute(run, out, cpu=True)
    assert progress.step == 6
    record = json.loads((out / "run.json").read_text())
    assert type(run).from_json(record["run"]) == run
    assert record["data_hash"] == store.hash
    assert record["parameters"] == sum(parameter.numel() for parameter in prepared.task.parameters())
    cut = prepared.forest.cut
    assert record["cut"] == {**cut, "share_over": cut["tokens_over"] / cut["tokens"]}
    assert record["without_tokens"] == int((prepared.forest.length == 0).sum()) > 0
    assert record["environment"]["processes"] == 1
    assert record["environment"]["torch"] == torch.__version__
    assert record["mean_step_weight"][0] > 0
    losses = [record["dev_loss"] for record in read_metrics(out) if "dev_loss" in record]
    assert len(losses) == 3
    assert progress.best == min(losses)

    # The folder holds the best model, ready for use.
    model = ramify.load(out)
    assert model.backbone.config == prepared.task.backbone.config
    assert model.input == run.input
    assert model.tokenizer.json == prepared.task.tokenizer.json
    trained, best = dict(prepared.task.named_parameters()), dict(model.task.named_parameters())
    assert all(torch.equal(trained[name], best[name]) for name in best)
    assert model.tokenizer.vocab_size <= 90


@pytest.mark.parametrize(
    "settings",
    [{}, {"model__output_attention": "true", "task__own_words": "0.3", "task__reply_words": "0.2", "task__masking": "content"}],
    ids=["paper", "additions"],
)
def test_interrupted_and_resumed_execution_is_the_same(store, tmp_path, capsys, settings):
    run = small(store, model__dropout="0.1", **settings)
    execute(run, tmp_path / "straight", cpu=True)

    def interrupt(record):
        if record["step"] == 2:
            os.kill(os.getpid(), signal.SIGINT)

    out = tmp_path / "stopped"
    _, progress = execute(run, out, cpu=True, report=interrupt)
    assert progress.step < 6
    assert not (out / "config.json").exists()
    capsys.readouterr()
    model = ramify.load(out)
    (said,) = capsys.readouterr().err.splitlines()
    assert f"of step {progress.best_step}, dev loss {progress.best:.4f}. Resume it with the command" in said
    best = load_tensors(out / "best.safetensors")
    assert all(torch.equal(tensor, best[name]) for name, tensor in hub.own_tensors(model.module).items())
    assert (model.kind, model.tokenizer.json) == ("comment-trees", (out / "tokenizer.json").read_text())
    record = json.loads((out / "run.json").read_text())
    for place, remedy in (
        (out, f"Resume it with: ramify train tree-mlm --out {out} --resume"),
        (tmp_path / "elsewhere", f"Resume it with the command that started it, --out {out} and --resume."),
    ):
        record["environment"]["command"] = f"ramify train tree-mlm --out {place}"
        (out / "run.json").write_text(json.dumps(record))
        with pytest.raises(RamifyError, match=rf"runs: stopped, straight\. Name one .* {re.escape(remedy)}$"):
            ramify.load(tmp_path)
    with pytest.raises(RamifyError, match=r"already holds a run\. Add --resume"):
        execute(run, out, cpu=True)
    with pytest.raises(RamifyError, match=r"other settings \(stages\.0\.lr was 0\.0"):
        execute(run.changed({"train.lr": "0.5"}), out, cpu=True, resume=True)
    (tmp_path / "moved").symlink_to(store.path)
    execute(replace(run, data=str(tmp_path / "moved")), out, cpu=True, resume=True)
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (out / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()


def weights_of(run, out, *, resume=False):
    execute(run, out, cpu=True, resume=resume)
    return (out / "model.safetensors").read_bytes()


@pytest.mark.parametrize(("name", "short", "long"), [("steps", 3, 6), ("epochs", 0.5, 1.0), ("target_tokens", 150, 300)])
def test_a_finished_run_goes_on(store, tmp_path, capsys, name, short, long):
    """Without a schedule that depends on the length, to the bits of a run that had the new length from the start."""
    (stage,) = small(store, train__schedule="constant", train__warmup="0", train__evaluate_every="0").stages
    length = {"steps": 0, "epochs": None, "target_tokens": 0}
    runs = [replace(small(store), stages=(replace(stage, **length | {name: value}),)) for value in (short, long)]
    straight = weights_of(runs[1], tmp_path / "straight")
    assert weights_of(runs[0], tmp_path / "run") != straight
    assert weights_of(runs[1], tmp_path / "run", resume=True) == straight
    assert "warning" not in capsys.readouterr().err
    logged = [[record["loss"] for record in read_metrics(tmp_path / name)] for name in ("straight", "run")]
    assert logged[0] == logged[1]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["run"]["stages"][0][name] == long


def test_a_longer_run_says_what_follows_the_length(store, tmp_path, capsys):
    run, out = small(store, train__steps="3"), tmp_path / "run"
    execute(run, out, cpu=True)
    with pytest.raises(RamifyError, match=r"train\.steps=2 is below the 3 that .* has behind it\. Set it to 3 or more"):
        execute(run.changed({"train.steps": "2"}), out, cpu=True, resume=True)

    def interrupt(record):
        os.kill(os.getpid(), signal.SIGINT)

    longer = run.changed({"train.steps": "6"})
    execute(longer, out, cpu=True, resume=True, report=interrupt)
    warning = "warning: stages.0 has another length than in its first 3 updates. The learning rate (train.schedule=linear, "
    assert warning in capsys.readouterr().err
    assert not (out / "config.json").exists(), "it has not finished"
    execute(longer, out, cpu=True, resume=True)
    assert warning not in capsys.readouterr().err
    rates = [record["lr"] for record in read_metrics(out)]
    assert rates[3:] == pytest.approx([longer.stages[0].lr * rest / 5.4 for rest in (3, 2, 1)])


def test_stages_that_have_ended_keep_their_length(store, tmp_path, capsys):
    run, out = small(store, train__evaluate_every="0"), tmp_path / "run"
    run = replace(run, stages=tuple(replace(stage, steps=2) for stage in (*run.stages, *run.stages)))
    execute(run, out, cpu=True)
    _, progress = execute(run.changed({"train.steps": "3"}), out, cpu=True, resume=True)
    assert progress.step == 5
    assert "stages.0 has ended, so its length stays as it was. stages.1 goes on." in capsys.readouterr().err
    assert [stage["steps"] for stage in json.loads((out / "run.json").read_text())["run"]["stages"]] == [2, 3]


@pytest.mark.parametrize(
    ("recipe", "settings", "length"),
    [
        (PLAIN, {"train.epochs": "2"}, (0, 2.0)),
        (PLAIN, {"stages.0.epochs": "2", "train.epochs": "3"}, (0, 3.0)),
        (replace(PLAIN, stages=(TrainConfig(steps=0, epochs=3.0),)), {"train.steps": "100"}, (100, None)),
        (PLAIN, {"train.epochs": "null"}, (2000, None)),
        (replace(PLAIN, stages=(TrainConfig(steps=0, epochs=3.0),)), {"train.steps": "0"}, (0, 3.0)),
    ],
)
def test_a_length_replaces_one_of_another_unit(recipe, settings, length):
    (stage,) = recipe.changed(settings).stages
    assert (stage.steps, stage.epochs) == length


def test_two_lengths_are_refused():
    with pytest.raises(RamifyError, match=r"train\.epochs=2\.0 and train\.steps=5 both define the length of training\. Set"):
        PLAIN.changed({"train.epochs": "2", "train.steps": "5"})


def test_context_limit_may_be_explicit(store, tmp_path):
    run = small(store)
    execute(run.changed({"input.max_context": str(run.input.max_tokens)}), tmp_path / "run", cpu=True)
    execute(run, tmp_path / "run", cpu=True, resume=True)


def test_normalization_per_step_is_refused_if_biased(store, tmp_path):
    pieces = {"view.regime": "middle", "view.max_tree_size": "4"}
    for settings in ({"view.regime": "threads_debiased"}, pieces | {"train.budget": "1"}):
        run = small(store).changed({"task.loss_norm": "step", **settings})
        with pytest.raises(RamifyError, match=r"Set task\.loss_norm=constant"):
            execute(run, tmp_path / "run", cpu=True)
        assert not (tmp_path / "run").exists()
    _, progress = execute(small(store).changed({"task.loss_norm": "step", **pieces}), tmp_path / "run", cpu=True)
    assert progress.step == 6


def test_resume_without_a_run_starts_one(store, tmp_path):
    _, progress = execute(small(store), tmp_path / "new", cpu=True, resume=True)
    assert progress.step == 6


def test_run_is_reproducible(store, tmp_path):
    for side in ("one", "two"):
        execute(small(store), tmp_path / side, cpu=True)
    execute(small(store).changed({"seed": "1"}), tmp_path / "other", cpu=True)
    one, two, other = ((tmp_path / side / "model.safetensors").read_bytes() for side in ("one", "two", "other"))
    assert one == two
    assert one != other


@pytest.mark.parametrize("context", ["none", "null", "parent", "root", "mismatched", "sibling-branch"])
def test_every_context_trains(store, tmp_path, context):
    _, progress = execute(small(store, input__context=context), tmp_path / "run", cpu=True)
    assert np.isfinite(progress.best)


@pytest.mark.parametrize("regime", ["naive", "threads", "threads_debiased", "middle"])
def test_every_regime_trains(store, tmp_path, regime):
    _, progress = execute(small(store, view__regime=regime, view__max_tree_size="4"), tmp_path / "run", cpu=True)
    assert np.isfinite(progress.best)


def test_damaged_best_weights_are_an_error(store, tmp_path):
    def damage(record):
        if record["step"] == 6:
            content = bytearray((tmp_path / "best.safetensors").read_bytes())
            content[-1] ^= 1
            (tmp_path / "best.safetensors").write_bytes(content)

    with pytest.raises(RamifyError, match=r"best\.safetensors does not hold the best weights, which were written at step 6"):
        execute(small(store), tmp_path, cpu=True, report=damage)
    assert not (tmp_path / "config.json").exists()


def test_resumed_run_continues_with_the_best_weights_of_its_checkpoint(store, tmp_path):
    run = small(store).changed({"train.evaluate_every": "1", "train.lr": "0.2"})
    _, straight = execute(run, tmp_path / "straight", cpu=True)
    assert straight.best_step < 6

    def interrupt(record):
        if record["step"] == straight.best_step + 1:
            os.kill(os.getpid(), signal.SIGINT)

    out = tmp_path / "stopped"
    execute(run, out, cpu=True, report=interrupt)
    # As if the run had written other weights after its last checkpoint.
    shutil.copy(sorted((out / "checkpoints").glob("step-*"))[-1] / "model.safetensors", out / "other")
    (out / "other").replace(out / "best.safetensors")
    execute(run, out, cpu=True, resume=True)
    assert (out / "model.safetensors").read_bytes() == (tmp_path / "straight" / "model.safetensors").read_bytes()


def test_given_tokenizer(store, tmp_path):
    tokenizer().save(tmp_path / "words.json")
    prepared, _ = execute(small(store, tokenizer_path=str(tmp_path / "words.json")), tmp_path / "run", cpu=True)
    assert prepared.task.tokenizer.hash == tokenizer().hash
    assert prepared.task.backbone.config.vocab_size == 61


def test_checkpoint_without_a_tokenizer_accepts_one(store, theirs, tmp_path):
    shutil.copytree(theirs, tmp_path / "bare", ignore=shutil.ignore_patterns("tokenizer*"))
    Tokenizer.load(theirs).save(tmp_path / "own.json")
    run = run_from(store, "bert", str(tmp_path / "bare"), tokenizer__path=str(tmp_path / "own.json"))
    assert run.prepare(tmp_path / "run").task.tokenizer.hash == Tokenizer.load(theirs).hash


@pytest.mark.parametrize("kept_as", ["tokenizer.json", "vocab.txt"])
def test_checkpoint_keeps_its_vocabulary(store, theirs, tmp_path, kept_as):
    pieces = Tokenizer.load(theirs)
    if kept_as == "vocab.txt":
        (Path(theirs) / "tokenizer.json").unlink()
        (Path(theirs) / "vocab.txt").write_text("\n".join(sorted(pieces.ids, key=pieces.ids.__getitem__)), "utf-8")
    pieces.save(tmp_path / "same.json")
    assert run_from(store, "bert", theirs, tokenizer__path=str(tmp_path / "same.json")).prepare(tmp_path / "run")
    Tokenizer.train(["aa ab ba be bo"] * 9, vocab_size=40).save(tmp_path / "other.json")
    run = run_from(store, "bert", theirs, tokenizer__path=str(tmp_path / "other.json"))
    with pytest.raises(RamifyError, match=r"other\.json lacks pieces of .* or numbers them differently"):
        run.prepare(tmp_path / "other")


@pytest.mark.parametrize("recipe", ["tree-mlm", "bert"])
def test_start_from_a_checkpoint(store, tmp_path, recipe):
    """Sizes, tokenizer and weights come from the checkpoint; free settings stay those of the run."""
    there = bert_task(dtype=torch.float32, task={"head": "bert"}, max_tokens=40, activation="relu")
    hub.export_hugging_face(MaskFiller(there), tmp_path / "there")
    run = small(store, recipe, **STILL, model__dropout="0.2").changed({"init": str(tmp_path / "there")})
    prepared, _ = execute(run, tmp_path / "run", cpu=True)
    own = prepared.task.backbone
    assert own.config == run.model
    assert (own.config.activation, own.config.dropout, own.config.max_tokens) == ("relu", 0.2, 32)
    assert prepared.task.tokenizer.pieces_hash == tokenizer().pieces_hash
    torch.testing.assert_close(own.embedding.weight, there.backbone.embedding.weight, rtol=0, atol=1e-6)
    stack = own.encoder if recipe == "tree-mlm" else own.stack
    for name, value in there.backbone.stack.state_dict().items():
        torch.testing.assert_close(stack.state_dict()[name], value, rtol=0, atol=1e-6)


@pytest.fixture
def theirs(tmp_path):
    """A BERT-family checkpoint of two layers that reads 40 tokens."""
    task = bert_task(dtype=torch.float32, task={"head": "bert"}, max_tokens=40)
    hub.export_hugging_face(MaskFiller(task), tmp_path / "theirs")
    return str(tmp_path / "theirs")


def run_from(store, recipe, init, options=None, **settings):
    """The run that `ramify train RECIPE --init … --set …` makes: the recipe sizes the model, then settings change it."""
    run = RECIPES[recipe](str(store.path), init=init, max_tokens=32, **(PAPER[recipe] if options is None else options))
    return run.changed(SMALL | {key.replace("__", "."): value for key, value in (STILL | settings).items()})


def test_pretrained_encoder_learns_more_slowly_than_new_layers(store, theirs, tmp_path):
    """While cross-attention is untrained, the gradient that reaches the encoder is noise."""
    stage = RECIPES["tree-mlm"](str(store.path), init=theirs).stages[0]
    assert (stage.lr, dict(stage.lr_scale)) == (3e-4, {"encoder": 0.1, r"\.cross\.|output_attention|_words": 3.0})
    task = run_from(store, "tree-mlm", theirs).prepare(tmp_path / "run").task
    assert all(layer.cross.out.weight.eq(0).all() for layer in task.backbone.decoder.layers)
    hub.save(MaskFiller(task), tmp_path / "saved")
    # A model that Ramify trained can already read its contexts.
    for init in (str(tmp_path / "saved"), ""):
        assert RECIPES["tree-mlm"](str(store.path), init=init, paper=True).stages[0].lr_scale == ()


def test_saved_model_goes_on_in_its_own_design(store, theirs, tmp_path):
    for paper, (own, other) in {True: ("has no", "Add --paper"), False: ("has", "Leave --paper out")}.items():
        run = RECIPES["tree-mlm"](str(store.path), init=theirs, max_tokens=32, paper=paper).changed(SMALL)
        saved = tmp_path / f"paper-{paper}"
        hub.save(MaskFiller(run.prepare(tmp_path / f"run-{paper}").task), saved)
        assert RECIPES["tree-mlm"](str(store.path), init=str(saved), paper=paper).model.output_attention is not paper
        with pytest.raises(RamifyError, match=f"{own} output attention, .*{other}"):
            RECIPES["tree-mlm"](str(store.path), init=str(saved), paper=not paper)


def test_additions_to_the_paper_start_fresh_beside_a_pretrained_encoder(store, theirs, tmp_path):
    """A checkpoint has no output attention and no bags of words. P starts at twice the identity; new layers learn faster."""
    run = RECIPES["tree-mlm"](str(store.path), init=theirs, max_tokens=32).changed(SMALL | {"train.steps": "1"})
    task = run.prepare(tmp_path / "before").task
    own = task.backbone
    double = 2 * torch.eye(8)
    assert own.config.output_attention
    assert torch.equal(own.output_attention.value.weight, double)
    assert torch.equal(task.reply_words.projection.weight, double)
    assert task.own_words.projection is own.output_attention.value
    assert task.own_words.weight is task.reply_words.weight is own.embedding.weight
    checkpoint = ramify.load(theirs).backbone
    for name, value in checkpoint.stack.state_dict().items():
        torch.testing.assert_close(own.encoder.state_dict()[name], value, rtol=0, atol=1e-6)
    torch.testing.assert_close(own.embedding.weight, checkpoint.embedding.weight, rtol=0, atol=1e-6)
    (pattern,) = (pattern for pattern, factor in run.stages[0].lr_scale if factor > 1)
    new = {name for name, _ in task.named_parameters() if re.search(pattern, name)}
    known = {f"backbone.{side}" for side in ("encoder", "decoder", "embedding", "null")} | {"head.bias"}
    assert new == {n for n, _ in task.named_parameters() if ".cross." in n or not n.startswith(tuple(known))}
    prepared, progress = execute(run, tmp_path / "run", cpu=True)
    assert progress.step == 1
    # The encoder learns from the first step on, although cross-attention starts at zero.
    bias = prepared.task.backbone.encoder.layers[0].ffn_norm.bias
    assert not torch.equal(bias, checkpoint.stack.layers[0].ffn_norm.bias)
    assert not torch.equal(prepared.task.backbone.output_attention.value.weight, double)


def test_decoder_may_have_fewer_layers_than_the_checkpoint(store, theirs, tmp_path):
    prepared, _ = execute(run_from(store, "tree-mlm", theirs, model__decoder_layers="1"), tmp_path / "run", cpu=True)
    own = prepared.task.backbone
    assert (own.config.encoder_layers, len(own.encoder.layers), len(own.decoder.layers)) == (2, 2, 1)
    table = own.state_dict()
    torch.testing.assert_close(
        table["decoder.layers.0.ffn_in.weight"], table["encoder.layers.0.ffn_in.weight"], rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        ("tree-mlm", {"model__dim": "16"}, r"needs model\.dim = 8 \(not 16\)"),
        # This holds for the defaults of a model without a checkpoint, too.
        ("tree-mlm", {"model__dim": "256", "model__ffn_dim": "1024"}, r"model\.dim = 8 \(not 256\), model\.ffn_dim = 16"),
        ("tree-mlm", {"model__encoder_layers": "1"}, r"model\.encoder_layers = 2 \(not 1\)"),
        ("tree-mlm", {"model__decoder_layers": "3"}, r"model\.decoder_layers=3 is above the 2 layers"),
        ("tree-mlm", {"model__norm": "pre"}, r"model\.norm = 'post' \(not 'pre'\)"),
        ("tree-mlm", {"model__max_tokens": "41"}, r"max_tokens=41 is above the 40 tokens"),
        ("bert", {"model__num_layers": "1"}, r"model\.num_layers = 2 \(not 1\)"),
        ("bert", {"model__position": "sinusoidal"}, r"model\.position = 'learned'"),
        ("bert", {"model__max_tokens": "41"}, r"max_tokens=41 is above the 40 tokens"),
        ("bert", {"init_decoder": "false"}, "init_decoder=false needs a tree-mlm run"),
    ],
)
def test_sizes_that_differ_from_the_checkpoint_are_refused(store, theirs, tmp_path, recipe, settings, message):
    with pytest.raises(RamifyError, match=message):
        execute(run_from(store, recipe, theirs, **settings), tmp_path / "run", cpu=True)
    assert not (tmp_path / "run").exists()


def test_only_the_encoder_may_be_initialized(store, theirs, tmp_path):
    settings = {"init_decoder": "false", "model__share_embeddings": "false", "model__decoder_layers": "3"}
    prepared, _ = execute(run_from(store, "tree-mlm", theirs, **settings), tmp_path / "run", cpu=True)
    own, checkpoint = prepared.task.backbone, ramify.load(theirs).backbone
    assert len(own.decoder.layers) == 3
    for name, value in checkpoint.stack.layers[0].state_dict().items():
        torch.testing.assert_close(own.encoder.layers[0].state_dict()[name], value, rtol=0, atol=1e-6)
        assert "weight" not in name or "norm" in name or not torch.allclose(own.decoder.layers[0].state_dict()[name], value)
    assert not torch.allclose(own.embedding.weight, checkpoint.embedding.weight)


# --- starting from a model that Ramify saved ----------------------------------------------------------------------------------

MAKE = {"tree-mlm": tree_task, "bert": bert_task}


@pytest.mark.parametrize("dtype", [None, torch.float16])
@pytest.mark.parametrize("recipe", MAKE)
def test_start_from_a_saved_model(store, tmp_path, recipe, dtype):
    """All weights, the config and the tokenizer are taken over; dropout may differ."""
    there = MAKE[recipe](dtype=torch.float32, max_tokens=40, activation="relu", pooling="attn", dropout=0.3)
    hub.save(MaskFiller(there), tmp_path / "there", dtype=dtype)
    prepared, _ = execute(run_from(store, recipe, str(tmp_path / "there"), model__dropout="0"), tmp_path / "run", cpu=True)
    assert prepared.task.backbone.config == replace(there.backbone.config, dropout=0.0)
    assert prepared.task.tokenizer.hash == there.tokenizer.hash
    before = dict(ramify.load(tmp_path / "there").task.named_parameters())
    for name, parameter in ramify.load(tmp_path / "run").task.named_parameters():
        torch.testing.assert_close(parameter, before[name], rtol=0, atol=1e-6)
    assert [*json.loads((tmp_path / "run" / "run.json").read_text())["weights_hash"]] == [str(tmp_path / "there")]
    with torch.no_grad():
        next(there.parameters()).add_(1)
    hub.save(MaskFiller(there), tmp_path / "there", dtype=dtype)
    run = run_from(store, recipe, str(tmp_path / "there"), model__dropout="0")
    with pytest.raises(RamifyError, match=r"there does not hold the weights that .*run was started with"):
        execute(run, tmp_path / "run", resume=True, cpu=True)


WORDS = {"task__own_words": "0.3", "task__reply_words": "0.2"}
NO_WORDS = dict.fromkeys(WORDS, "0")


@pytest.mark.parametrize("output_attention", [False, True])
def test_word_losses_may_be_added_to_a_saved_model(store, tmp_path, output_attention):
    """The saved weights stay; the new heads are fresh, except for a P that output attention has."""
    there = tree_task(dtype=torch.float32, output_attention=output_attention)
    hub.save(MaskFiller(there), tmp_path / "there")
    run = run_from(store, "tree-mlm", str(tmp_path / "there"), {"paper": not output_attention}, **WORDS)
    prepared, _ = execute(run, tmp_path / "run", cpu=True)
    own, before = prepared.task, dict(there.named_parameters())
    for name, parameter in own.named_parameters():
        expected = before.get(name, 2 * torch.eye(8) if name.endswith("projection.weight") else torch.zeros(61))
        torch.testing.assert_close(parameter, expected, rtol=0, atol=1e-6)
    fresh = {"own_words.bias", "reply_words.bias", "reply_words.projection.weight"}
    fresh |= set() if output_attention else {"own_words.projection.weight"}
    assert {name for name, _ in own.named_parameters()} - before.keys() == fresh


@pytest.mark.parametrize("settings", [{}, {"task__own_words": "0.3"}, {"task__reply_words": "0.3"}, WORDS], ids=str)
def test_word_losses_may_be_left_out_after_a_saved_model(store, tmp_path, settings):
    """Heads that the new run has continue from their saved weights, with the words of the new data; others are dropped."""
    there = words_task(dtype=torch.float32)
    hub.save(MaskFiller(there), tmp_path / "there")
    run = run_from(store, "tree-mlm", str(tmp_path / "there"), {}, **(NO_WORDS | settings))
    prepared, _ = execute(run, tmp_path / "run", cpu=True)
    own, before = prepared.task, dict(there.named_parameters())
    for name, parameter in own.named_parameters():
        torch.testing.assert_close(parameter, before[name], rtol=0, atol=1e-6)
    for name in ("own_words", "reply_words"):
        assert (getattr(own, name) is not None) == (f"task__{name}" in settings)
    assert hasattr(own, "word_weight") == bool(settings)
    if settings:
        assert not torch.equal(own.word_weight, there.word_weight)
        assert torch.equal(own.word_weight, ramify.load(tmp_path / "run").task.word_weight)


def test_words_are_counted_in_the_training_texts(store, tmp_path):
    """Whole texts count, however short the model reads them; those of dev and test do not."""
    tokenizer().save(tmp_path / "words.json")
    settings = {**WORDS, "task__frequent_word": "0.015", "input__max_tokens": "8"}
    task = small(store, tokenizer_path=str(tmp_path / "words.json"), **settings).prepare(tmp_path / "run").task
    words = [word for tree in store.trees(store.split("train")) for node in tree.nodes for word in node.text.split()]
    assert len(words) < sum(len(node.text.split()) for tree in store.trees(store.split("all")) for node in tree.nodes)
    shares = {word: count / len(words) for word, count in Counter(words).items()}
    for word, id in tokenizer().ids.items():
        share = shares.get(word, 0.0)
        expected = 0.0 if id in tokenizer().special_ids else min(1.0, 0.015 / max(share, 1e-9)) ** 0.5
        assert float(task.word_weight[id]) == pytest.approx(expected, rel=1e-6)
    assert 0 < sum(weight < 1 for weight in task.word_weight.tolist()) < len(task.word_weight)


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        ("tree-mlm", {"model__dim": "16"}, r"needs model\.dim = 8 \(not 16\)"),
        ("tree-mlm", {"model__output_attention": "true"}, r"model\.output_attention = False \(not True\)"),
        ("tree-mlm", {"model__decoder_layers": "1"}, r"model\.decoder_layers = 2 \(not 1\)"),
        ("tree-mlm", {"model__cross_init": "zero"}, r"model\.cross_init = 'normal'"),
        ("tree-mlm", {"task__head": "bert"}, r"task\.head = 'linear' \(not 'bert'\)"),
        ("tree-mlm", {"init_decoder": "false"}, "init_decoder=false needs"),
        ("tree-mlm", {"tokenizer__path": "other"}, "has its own tokenizer.*Leave --tokenizer out"),
        (
            "bert",
            {},
            r"holds a TreeMLM that Ramify saved; a Bert starts from a Bert that Ramify saved, or from a BERT-family checkpoint",
        ),
    ],
)
def test_settings_unlike_the_saved_model_are_refused(store, tmp_path, recipe, settings, message):
    hub.save(MaskFiller(tree_task(dtype=torch.float32)), tmp_path / "there")
    with pytest.raises(RamifyError, match=message):
        execute(run_from(store, recipe, str(tmp_path / "there"), **settings), tmp_path / "run", cpu=True)
    assert not (tmp_path / "run").exists()


def test_unfinished_run_is_refused_as_init(store, tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(RamifyError, match="has not finished"):
        RECIPES["tree-mlm"](str(store.path), init=str(tmp_path))


# --- errors are found before anything is written ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("train.freeze", '["wings"]', r"train\.freeze: no parameter matches the pattern 'wings'"),
        ("train.freeze", '["("]', r"train\.freeze: '\(' is not a regular expression \(missing"),
        ("train.lr_scale", '[["wings", 2]]', r"train\.lr_scale: no parameter matches the pattern 'wings'"),
        ("train.lr_scale", '[["*", 2]]', r"train\.lr_scale: '\*' is not a regular expression \(nothing"),
    ],
)
def test_bad_patterns(store, tmp_path, key, value, message):
    run = small(store).changed({key: value})
    for each in (run, replace(run, stages=(TrainConfig(steps=2, budget=300), *run.stages))):
        with pytest.raises(RamifyError, match=message):
            execute(each, tmp_path / "run", cpu=True)
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["README.md", "tokenizer.json", "report.html", "best.safetensors"])
def test_foreign_files_are_not_overwritten(store, tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(RamifyError, match=f"holds {name}, which would be overwritten"):
        execute(small(store), tmp_path, cpu=True)
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_resume_with_another_split_is_refused(store, tmp_path):
    """Its dev and test trees may be training trees of the run."""
    trees = list(store.trees(store.split("all")))
    lines = tmp_path / "trees.jsonl"
    lines.write_text("".join(tree.to_json() + "\n" for tree in trees))
    data = build([lines], "jsonl", tmp_path / "data", split=(0.8, 0.1, 0.1))
    run = small(data)
    execute(run, tmp_path / "run", cpu=True)
    again = build([lines], "jsonl", tmp_path / "data", split=(0.4, 0.3, 0.3), overwrite=True)
    assert again.hash == data.hash
    with pytest.raises(RamifyError, match="has another split than when"):
        execute(run, tmp_path / "run", cpu=True, resume=True)


def test_resume_keeps_the_tokenizer(store, tmp_path, monkeypatch):
    run, out = small(store), tmp_path / "run"
    execute(run, out, cpu=True)
    (out / "config.json").unlink()
    saved = []
    monkeypatch.setattr(Tokenizer, "save", lambda self, path: saved.append((out / "config.json").exists()))
    monkeypatch.setattr(hub, "save", lambda task, out: None)
    execute(run, out, cpu=True, resume=True)
    assert saved == []


@pytest.mark.parametrize("killed_at", ["run.json", "tokenizer.json"])
def test_kill_during_the_start_of_a_run(store, tmp_path, monkeypatch, killed_at):
    """The kill comes between the files that precede the first step. The same command then continues."""
    run, out = small(store), tmp_path / "run"

    def kill(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if killed_at == "run.json":
            patch.setattr(import_module("ramify.runs.execute"), "write_text", kill)
        else:
            patch.setattr(Tokenizer, "save", kill)
        with pytest.raises(KeyboardInterrupt):
            execute(run, out, cpu=True)
    execute(run, out, cpu=True, resume=True)
    execute(run, tmp_path / "straight", cpu=True)
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (out / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()


def test_texts_longer_than_the_positions_are_refused(store, tmp_path):
    with pytest.raises(RamifyError, match=r"model\.max_tokens=16 is too small"):
        execute(small(store, "bert", model__max_tokens="16"), tmp_path / "run", cpu=True)


def test_mismatched_vocabularies_are_refused(store, tmp_path):
    with pytest.raises(RamifyError, match=r"model\.vocab_size=50 is too small"):
        execute(small(store, model__vocab_size="50"), tmp_path / "run", cpu=True)


def test_data_without_training_trees_is_refused(tmp_path):
    store = built(discussions(2, 3), tmp_path, split=(0.0, 0.5, 0.5))
    with pytest.raises(RamifyError, match="no training trees"):
        execute(small(store), tmp_path / "run", cpu=True)
    assert not (tmp_path / "run").exists()


def test_data_without_dev_trees_trains_to_the_end(tmp_path):
    store = built(discussions(10, 5), tmp_path, split=(1.0, 0.0, 0.0))
    _, progress = execute(small(store), tmp_path / "run", cpu=True)
    assert (progress.step, progress.best_step) == (6, None)
    assert not (tmp_path / "run" / "best.safetensors").exists()
    assert ramify.load(tmp_path / "run").verbs == ("embed", "fill_mask", "score", "attention", "nearest")


def test_finished_run_loads_without_its_data(tmp_path):
    store = built(discussions(30, 5), tmp_path)
    execute(small(store), tmp_path / "run", cpu=True)
    shutil.rmtree(store.path)
    assert ramify.load(tmp_path / "run").embed(discussions(1, 3)).shape == (4, 8)


def test_dev_trees_are_the_first_with_enough_comments(store):
    own = bert_task().input.forest(store, tokenizer())
    trees = store.split("all")
    for targets in (1, 9, 10, 27):
        assert len(first_trees(own, trees, targets)) == -(-targets // 9)
    assert len(first_trees(own, trees, 10**9)) == len(trees)
    assert len(first_trees(own, trees[:0], 5)) == 0
