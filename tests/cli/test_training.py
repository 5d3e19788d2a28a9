"""`ramify train`: the files that it writes, the settings that it refuses, and the state after a kill or on a full disk."""

import json
import re
import shutil
import signal
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fixtures import built, discussion, uniform
from ramify.cli.progress import bar, progress_display
from ramify.errors import counted
from ramify.nn.linear import MIN_PRODUCTS
from ramify.tokenizer import Tokenizer
from ramify.training.metrics_log import read_average, read_metrics


def equal(one, other):
    one, other = load_file(one), load_file(other)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def records(out):
    """The metrics without the times."""
    return [{name: value for name, value in record.items() if name != "seconds"} for record in read_metrics(out)]


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def partial(folder):
    return [path for path in folder.rglob("*") if ".partial-" in path.name]


# --- a run that ends ----------------------------------------------------------------------------------------------------------


def test_files_of_a_run(trained, store):
    left = {path.name for path in trained.iterdir()} - {"tensorboard"}
    model = {"config.json", "model.safetensors", "tokenizer.json", "README.md"}
    assert left == model | {"run.json", "metrics.jsonl", "report.html", "best.safetensors", "checkpoints"}
    assert partial(trained) == []
    config = json.loads((trained / "config.json").read_text())
    assert (config["library_name"], config["model"]["name"], config["task"]["name"]) == ("ramify", "tree-mlm", "masked-lm")
    assert (config["model"]["dim"], config["model"]["encoder_layers"], config["model"]["decoder_layers"]) == (16, 1, 1)
    assert config["model"]["vocab_size"] == Tokenizer.load(trained).vocab_size == 80
    record = json.loads((trained / "run.json").read_text())
    weights = load_file(trained / "model.safetensors")
    assert record["data_hash"] == store.hash
    assert record["parameters"] == sum(tensor.numel() for name, tensor in weights.items() if name != "word_weight")
    assert record["run"]["stages"][0]["lr"] == 1e-2
    assert equal(trained / "model.safetensors", trained / "best.safetensors")
    assert (trained / "README.md").read_text().startswith("---\nlibrary_name: ramify\n")
    assert "tree-mlm on store" in (trained / "report.html").read_text()


def test_logged_metrics(trained):
    logged = read_metrics(trained)
    assert [record["step"] for record in logged] == [1, 2, 3, 4, 5, 6]
    assert [record["progress"] for record in logged] == pytest.approx([step / 6 for step in range(1, 7)])
    assert logged[-1]["dev_loss"] < logged[0]["loss"] - 0.2
    assert [step for step, record in enumerate(logged, 1) if "dev_loss" in record] == [6]


def test_printed_output(trained_with_output, store):
    out, err = trained_with_output
    last = read_metrics(out)[-1]
    best = last["dev_loss"]
    assert err.splitlines()[-3:] == [
        f"{out}: 6 steps, best dev loss {best:.4f} at step 6",
        f"report: {out / 'report.html'}",
        f"next: ramify evaluate {out} --data {store.path}",
    ]
    parts = ", ".join(f"{name.replace('_', ' ')} {last[name]:.4f}" for name in ("masked_lm", "own_words", "reply_words"))
    assert f"step       6  100%  loss {last['loss']:.4f} ({parts})  dev loss {best:.4f}" in err
    assert [line.removesuffix(" …") for line in err.splitlines() if line.endswith(" …")] == [
        *("reading texts for the tokenizer", "training the tokenizer", "encoding texts", "counting words"),
        *("counting an epoch", "first step"),
    ]
    assert re.search(r"data: [\d,]+ tokens in [\d,]+ texts; input\.max_tokens=64 cuts 0\.00% of them \(0, in 0 texts\)\n", err)


def test_a_run_in_epochs(ramify, recipe, tmp_path):
    out = tmp_path / "run"
    epochs = ("--set", "train.epochs=1")
    status, _, err = ramify(*recipe, "--out", out, *epochs)
    assert status == 2
    assert "--steps 6 and --set train.epochs=1 both define the length of training. Leave out one of the two." in err
    status, _, err = ramify(*recipe, "--out", out, *epochs, "--set", "train.steps=0")
    assert status == 0, err
    last = read_metrics(out)[-1]
    assert (last["epochs"], last["progress"]) == (1.0, 1.0)
    assert f"step {last['step']:>7}  100%  epoch 1.0  loss {last['loss']:.4f}" in err
    assert "The last stage has read its examples 1.0 times." in (out / "report.html").read_text()


def test_mean_of_checkpoints_is_saved(ramify, recipe, tmp_path):
    out = tmp_path / "run"
    status, _, err = ramify(*recipe, "--out", out, "--set", "train.checkpoint_every=2", "--set", "train.average=2")
    assert status == 0, err
    four, six = (load_file(out / f"checkpoints/step-0000000{step}/model.safetensors") for step in (4, 6))
    for name, tensor in load_file(out / "model.safetensors").items():
        torch.testing.assert_close(tensor, (four[name] + six[name]) / 2, rtol=1e-5, atol=1e-7)
    mean, best = read_average(out), read_metrics(out)[-1]["dev_loss"]
    assert mean["averaged"] == [4, 6]
    line = f"best dev loss {best:.4f} at step 6; saved: the mean of 2 checkpoints, dev loss {mean['dev_loss']:.4f}"
    assert f"{out}: 6 steps, {line}\n" in err


def test_progress_shows_the_metric_that_chooses_the_weights(capsys):
    record = {"step": 20, "progress": 0.25, "loss": 1.5, "seconds": 1.0, "target_tokens": 100, "metric": "dev_link_f1"}
    record |= {"parts": [], "meters": [], "stages": 1}
    with progress_display() as report:
        report(record | {"dev_link_f1": 71.25, "dev_loss": 0.5})
        report(record)
    assert capsys.readouterr().err == "step      20   25%  loss 1.5000  dev link f1 71.2500  100 tokens/s\n"


@pytest.fixture
def clock(monkeypatch):
    """The time that progress displays read, which tests set."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("ramify.cli.progress.time.monotonic", lambda: clock.now)
    return clock


def test_time_left_is_shown_without_a_terminal(capsys, clock):
    record = {"loss": 1.5, "seconds": 1.0, "target_tokens": 100, "metric": "dev_loss", "parts": [], "meters": [], "stages": 2}
    with progress_display() as report:
        # A resumed run begins where it was stopped; a new stage begins at zero.
        for step, share in ((500, 0.5), (505, 0.505), (600, 0.6), (1000, 1.0), (1001, 0.001), (1011, 0.011)):
            report(record | {"step": step, "progress": share})
            clock.now += 60
    left = [line.partition("tokens/s")[2] for line in capsys.readouterr().err.splitlines()]
    assert left == ["", "  8 min 0 s of this stage left", "", "", "  1 h 38 min of this stage left"]


@pytest.mark.parametrize(("total", "shown"), [(200, "20%, 5 min 20 s left"), (None, "40 done")])
def test_long_work_prints_lines_without_a_terminal(capsys, clock, total, shown):
    """A line every half minute, from the first half minute on."""
    with bar("evaluating", total) as advance:
        for seconds in (1, 40, 20):
            clock.now += seconds
            advance(20)
    assert capsys.readouterr().err == f"evaluating: {shown}\n"
    with bar("evaluating", total) as advance:
        clock.now += 20
        advance(total or 20)
    assert capsys.readouterr().err == ""


def test_a_stopped_run_reports_what_it_printed(start, recipe, tmp_path):
    """Steps that are not logged otherwise (train.log_every) are not lost."""
    out = tmp_path / "run"
    changes = {6: 100_000, "train.log_every=1": "train.log_every=1000000"}
    process = start(*(changes.get(word, word) for word in recipe), "--out", out, "--set", "train.evaluate_every=0")
    before = []
    for line in process.stderr:
        before.append(line)
        if line.startswith("step"):
            process.send_signal(signal.SIGINT)
            break
    _, rest = process.communicate()
    assert process.returncode == 130, (before, rest)
    stopped = int(re.search(r"stopped at step (\d+)", rest)[1])
    assert [record["step"] for record in read_metrics(out)] == [stopped]
    page = (out / "report.html").read_text("utf-8")
    assert f"tokens of predicted comments in {counted(stopped, 'update')}." in page
    assert "has not logged a step" not in page


def test_collapsed_encoder_gives_a_warning(ramify, recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("ramify.runs.comment_trees.run.COLLAPSED", 1.1)
    out = tmp_path / "run"
    status, _, err = ramify(*recipe, "--out", out, "--steps", 1)
    spread = read_metrics(out)[-1]["context_spread"]
    assert status == 0
    assert f"warning: the encoder's vectors vary by only {spread:.2%} of their energy between texts" in err


def test_chat_logs_give_a_warning(ramify, recipe, tmp_path):
    """Half of the messages of each log have no known parent."""
    logs = [discussion([-1, -1, 0, 1], seed=number, name=f"log{number}") for number in range(24)]
    data = built(logs, tmp_path / "data", (0.5, 0.5, 0.0)).path
    command = [str(data) if part == recipe[3] else part for part in recipe]
    status, _, err = ramify(*command, "--out", tmp_path / "run", "--steps", 1)
    assert status == 0, err
    assert f"warning: {data} holds chat logs. 50% of the messages have no known parent" in err


def test_dev_trees_that_are_bare_posts(ramify, recipe, tmp_path):
    bare = {f"t{number}": discussion([-1], seed=number, name=f"t{number}") for number in range(24)}
    shares = (0.5, 0.5, 0.0)
    probe = built(bare.values(), tmp_path / "probe", shares)
    trained = probe.tree_ids(probe.split("train"))
    assert 0 < len(trained) < 24
    full = {name: discussion(uniform(12, number), seed=number, name=name) for number, name in enumerate(trained)}
    data, out = built((bare | full).values(), tmp_path / "data", shares).path, tmp_path / "run"
    command = [str(data) if part == recipe[3] else part for part in recipe]
    status, _, err = ramify(*command, "--out", out, "--steps", 1)
    assert status == 0, err
    assert f"{out}: 1 steps, no dev score: the dev split holds nothing to score" in err
    assert "no trees in the split &#x27;dev&#x27; that hold a comment" in (out / "report.html").read_text()
    for split in ("dev", "test"):
        status, _, err = ramify("evaluate", out, "--data", data, "--split", split)
        assert status == 2
        there = f"trees: {len(trained)} in train, {24 - len(trained)} in dev, 0 in test"
        assert f"no trees in the split {split!r} that hold a comment ({there})" in err


# --- refusals -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "already holds a run. Add --resume to continue it, or choose another --out"),
        (["--resume", "--seed", 1], "was started with other settings (seed). Resume it with the same command"),
        (["--resume", "--set", "model.pooling=max"], "was started with other settings (model)"),
    ],
)
def test_folder_with_a_run_is_refused(ramify, recipe, trained, more, message):
    before = contents(trained)
    status, out, err = ramify(*recipe, "--out", trained, *more)
    assert (status, out) == (2, "")
    assert err.startswith(f"error: --out {trained} ")
    assert message in err
    assert contents(trained) == before


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.wings=2", "--set model.wings: there is no setting 'wings' here; the settings are vocab_size, dim, "),
        ("wings=2", "--set wings: there is no setting 'wings' here; the settings are recipe, data, model, "),
        ("model.dim=wide", "--set model.dim=wide is not a whole number."),
        ("train.lr=fast", "--set train.lr=fast is not a number."),
        ("view.pack=perhaps", "--set view.pack=perhaps is not true or false."),
        ("model.pooling=median", "--set model.pooling=median is not one of mean, max, cls, attn, pooler."),
        ("train.betas=[1]", "--set train.betas=[1] is not a JSON list of the form [number, number]."),
        ("model.dim=15", "model.dim=15 must be a multiple of model.num_heads=4."),
        ("model.dim", "--set model.dim has no equals sign; expected KEY=VALUE, such as train.steps=2000."),
        ('train.freeze=[".*"]', "train.freeze: the patterns ['.*'] leave no parameter that could learn."),
        ("train.lr=nan", "train.lr must be of the form number, not nan."),
        ("train.clip=-1", "train.clip must not be negative, but is -1."),
    ],
)
def test_refused_settings(ramify, store, tmp_path, setting, message):
    status, out, err = ramify("train", "tree-mlm", "--data", store.path, "--out", tmp_path / "run", "--set", setting)
    assert (status, out) == (2, "")
    # Names of activities may precede the message.
    *before, last = err.splitlines()
    assert last.startswith(f"error: {message}")
    assert all(line.endswith(" …") for line in before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["tree-mlm", "--data", "nowhere"], "nowhere is not a Ramify data set"),
        (["tree-mlm"], "Missing option '--data'"),
        (["nothing", "--data", "nowhere"], "No such command 'nothing'"),
    ],
)
def test_mistakes(ramify, tmp_path, monkeypatch, command, message):
    monkeypatch.chdir(tmp_path)
    status, out, err = ramify("train", *command, "--out", "run")
    assert (status, out) == (2, "")
    assert message in err
    assert list(tmp_path.iterdir()) == []


# --- kills --------------------------------------------------------------------------------------------------------------------

DIM, FFN, STEPS = 256, 1280, 10
"""Sizes at which torch uses the processor's own matrix products, if it has any."""


@pytest.fixture(scope="module")
def large(store):
    settings = {
        "model.dim": DIM,
        "model.ffn_dim": FFN,
        "model.encoder_layers": 1,
        "model.decoder_layers": 1,
        "tokenizer.vocab_size": 100,
        "view.regime": "tree",
        "train.budget": 1024,
        "train.budget_unit": "target_tokens",
        "train.log_every": 1,
        "train.evaluate_every": 4,
        "train.checkpoint_every": 3,
        "dev.targets": 20,
    }
    changes = (part for key, value in settings.items() for part in ("--set", f"{key}={value}"))
    return ["train", "tree-mlm", "--data", store.path, "--steps", STEPS, *changes]


def check_locked(ramify, command, out, link):
    """Two processes that resume at once would mix their lines of metrics."""
    link.symlink_to(out)
    for options in (("--out", out, "--resume"), ("--out", link, "--resume"), ("--out", out)):
        status, _, err = ramify(*command, *options)
        assert status == 2, err
        assert err == (f"error: {out} is being trained by another process. Wait until it ends, or choose another --out.\n")


@pytest.mark.skipif("config.getoption('--rounding')", reason="the processes that it starts round as this processor does")
def test_killed_run_resumes_to_the_same_bits(start, ramify, large, tmp_path):
    """Killed between two checkpoints, resumed, asked to stop, and resumed again. Meanwhile others are refused."""
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    status, _, err = ramify(*large, "--out", straight)
    assert status == 0, err
    for number, step, ended in ((signal.SIGKILL, 4, -signal.SIGKILL), (signal.SIGTERM, 7, 130)):
        process = start(*large, "--out", killed, "--resume")
        while len(read_metrics(killed)) < step:
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.005)
        if number == signal.SIGKILL:
            process.send_signal(signal.SIGSTOP)
            check_locked(ramify, large, killed, tmp_path / "link")
        process.send_signal(number)
        _, err = process.communicate()
        assert process.returncode == ended, err
        assert step <= len(read_metrics(killed)) < STEPS
        assert not (killed / "config.json").exists()
    assert "continue with the same command and --resume" in err
    status, _, err = ramify(*large, "--out", killed, "--resume")
    assert status == 0, err
    assert equal(killed / "model.safetensors", straight / "model.safetensors")
    assert equal(killed / "best.safetensors", straight / "best.safetensors")
    assert records(killed) == records(straight)
    assert len(records(killed)) == STEPS
    assert partial(killed) == []
    tokens = np.diff([0, *(record["target_tokens"] for record in records(killed))])
    assert tokens.min() * DIM * FFN >= MIN_PRODUCTS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed", "link", "straight"]


# --- a full disk --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [1, 100], ids=["checkpoint", "best weights"])
def test_full_disk_while_training(ramify, recipe, tmp_path, every):
    out = tmp_path / "run"
    status, _, err = ramify(*recipe, "--out", out, "--set", f"train.checkpoint_every={every}", kilobytes=16)
    lines = [line for line in err.splitlines() if not line.startswith(("data: ", "step ")) and not line.endswith(" …")]
    assert status == 2, err
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert partial(out) == []
    assert not (out / "config.json").exists()


def test_full_disk_at_the_end(ramify, recipe, trained, tmp_path):
    """Training is complete, but the model does not fit on the disk. Once there is room, --resume writes it."""
    out = tmp_path / "run"
    shutil.copytree(trained, out)
    for name in ("config.json", "model.safetensors", "README.md"):
        (out / name).unlink()
    status, _, err = ramify(*recipe, "--out", out, "--resume", kilobytes=16)
    assert status == 2, err
    assert re.fullmatch(r"(?:.* …\n)*data: .*\nerror: .*\n", err)
    assert partial(out) == []
    assert not (out / "config.json").exists()
    status, _, err = ramify(*recipe, "--out", out, "--resume")
    assert status == 0, err
    for name in ("config.json", "model.safetensors", "README.md", "metrics.jsonl"):
        assert (out / name).read_bytes() == (trained / name).read_bytes()
