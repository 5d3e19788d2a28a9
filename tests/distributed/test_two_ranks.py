"""Two ranks take the same step as one process over the same examples. Gradients are compared, not losses."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import two_ranks
from ranks import finish, on_two_ranks, ramify_under_torchrun, start
from ranks import ramify as ramify_command
from safetensors.torch import load_file
from torch.distributed import TCPStore
from two_ranks import CONFIG, KINDS, MAKE, SEED, setting

import ramify
from fixtures import UNDIVIDED, built, discussions, distance, masked, one_graph_over_chunks, size, view_of
from ramify.batching.samplers import TokenBudget
from ramify.tasks.base import MAIN
from ramify.training.metrics_log import read_metrics
from ramify.training.seeds import step_seed
from ramify.training.stage import Stage

pytestmark = pytest.mark.skipif("config.getoption('--rounding')", reason="the ranks round as this processor does")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
RAMIFY = str(Path(sys.executable).with_name("ramify"))


def environment():
    return os.environ | {"OMP_NUM_THREADS": "1"}


def torchrun(*arguments):
    done = subprocess.run([*TORCHRUN, *map(str, arguments)], env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done


def one_process(design, phases):
    """The gradient of every step of the first epoch: the examples of both ranks in one batch."""
    task, data = setting(design, phases)
    view, collate = view_of(task, data)
    steps = TokenBudget(view.costs, CONFIG.budget, seed=SEED, world_size=2).steps(0)
    divisors = dict.fromkeys(UNDIVIDED, Stage(CONFIG, view, collate).mean_step_weight(SEED, 2))
    found = []
    for first in range(0, len(steps), 2):
        numbers = np.concatenate(steps[first : first + 2])
        batch = masked(task, data, collate([view.example(int(number)) for number in numbers]))
        task.zero_grad(set_to_none=True)
        for named, _ in task.losses(batch, divisors, MAIN, None, None):
            torch.stack(list(named.values())).sum().backward()
        found.append({name: p.grad.clone() for name, p in task.named_parameters() if p.grad is not None})
    return found, len(steps), view


@pytest.fixture(scope="module")
def gradients(tmp_path_factory):
    """The folder of the reduced gradients of every kind of steps."""
    folder = tmp_path_factory.mktemp("gradients")
    on_two_ranks(folder, two_ranks.main, folder)
    return folder


@pytest.mark.parametrize("kind", ["one graph", "two phases"])
def test_reduced_gradients(gradients, kind):
    for design in MAKE:
        check_reduced_gradients(gradients / kind / design, *one_process(design, KINDS[kind][0]))


def check_reduced_gradients(folder, expected, steps, view):
    # The last step of the epoch has examples on rank 0 alone.
    assert steps % 2 == 1
    assert len(expected) >= 2
    ranks = [load_file(folder / f"rank-{rank}.safetensors") for rank in (0, 1)]
    for own in ranks:
        for number, gradient in enumerate(expected, 1):
            found = {name.partition(".")[2]: value for name, value in own.items() if name.startswith(f"{number}.")}
            assert found.keys() == gradient.keys()
            assert size(gradient) > 1e-3
            assert distance(found, gradient) < 1e-10
        # Counts are those of both ranks.
        assert int(own["progress"][0]) == CONFIG.steps
    logged = read_metrics(folder)
    assert logged[len(expected) - 1]["targets"] == int(view.sizes.sum())
    assert ranks[0]["progress"].tolist() == ranks[1]["progress"].tolist()


def test_two_phases_with_dropout(gradients):
    """The sum over ranks of one graph over each rank's chunks, from the ranks' generator states."""
    for design in MAKE:
        check_gradients_with_dropout(gradients / "dropout" / design, *setting(design, *KINDS["dropout"]))


def check_gradients_with_dropout(folder, task, data):
    task.train()
    view, collate = view_of(task, data)
    steps = TokenBudget(view.costs, CONFIG.budget, seed=SEED, world_size=2).steps(0)
    divisor = Stage(CONFIG, view, collate).mean_step_weight(SEED, 2)
    ranks = [load_file(folder / f"rank-{rank}.safetensors") for rank in (0, 1)]
    for step in range(len(steps) // 2):
        parts = []
        for rank in (0, 1):
            batch = masked(task, data, collate([view.example(int(number)) for number in steps[2 * step + rank]]))
            parts.append(one_graph_over_chunks(task, data, batch, step_seed(SEED, 2, step, rank, 0)))
        expected = {name: (parts[0][name] + parts[1][name]) / divisor for name in parts[0]}
        for own in ranks:
            found = {name: own[f"{step + 1}.{name}"] for name in expected}
            assert distance(found, expected) < 1e-10


SETTINGS = {
    "model.dim": 8,
    "model.num_heads": 2,
    "model.ffn_dim": 16,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "tokenizer.vocab_size": 90,
    "train.budget": 150,
    "train.log_every": 1,
    "train.evaluate_every": 20,
    "train.lr": 0.01,
}


def command(store, out, steps, *more):
    settings = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
    return ["train", "tree-mlm", "--data", store.path, "--out", out, "--steps", steps, *settings, *more]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return built(discussions(40, 9), tmp_path_factory.mktemp("data"))


OFTEN = ("--set", "train.checkpoint_every=3")


@pytest.fixture(scope="module")
def straight(store, tmp_path_factory):
    """The folder of a run that was never interrupted."""
    out = tmp_path_factory.mktemp("straight") / "run"
    torchrun(RAMIFY, *command(store, out, 40, *OFTEN))
    return out


def test_train_from_the_command_line(straight):
    assert json.loads((straight / "run.json").read_text())["environment"]["processes"] == 2
    logged = read_metrics(straight)
    assert [record["step"] for record in logged] == list(range(1, 41))
    assert ramify.load(straight).verbs == ("embed", "fill_mask", "score", "attention", "nearest")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--data", "nowhere"), "error: nowhere is not a Ramify data set"),
        (("--data", "nowhere", "--stepz", 3), "No such option: --stepz"),
    ],
)
def test_a_mistake_is_one_message(tmp_path, words, message):
    store, log = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False), tmp_path / "log"
    finish(start(log, ramify_under_torchrun, store.port, "train", "tree-mlm", *words, "--out", tmp_path / "run"), log, (2, 2))
    printed = log.read_text("utf-8")
    assert printed.count(message) == 1
    assert printed.count("rror: ") == 1
    assert "Traceback" not in printed


def test_interrupt_stops_all_ranks_after_the_same_step(store, tmp_path):
    """The signal reaches one rank alone. Neither rank waits for the other, and the last step is that of the checkpoint."""
    out, log = tmp_path / "run", tmp_path / "log"
    running = start(log, ramify_command, *command(store, out, 100_000))
    deadline = time.monotonic() + 120
    while len(read_metrics(out)) < 3:
        assert time.monotonic() < deadline
        assert all(rank.is_alive() for rank in running), log.read_text()
        time.sleep(0.05)
    os.kill(running[1].pid or 0, signal.SIGINT)
    finish(running, log, (130, 0))
    (checkpoint,) = (out / "checkpoints").glob("step-*")
    stopped = int(checkpoint.name.removeprefix("step-"))
    assert read_metrics(out)[-1]["step"] == stopped
    assert not (out / "config.json").exists()


def test_killed_ranks_resume_to_the_same_numbers(store, straight, tmp_path):
    killed, log = tmp_path / "killed", tmp_path / "log"
    running = start(log, ramify_command, *command(store, killed, 40, *OFTEN))
    deadline = time.monotonic() + 120
    while not list(killed.glob("checkpoints/step-*")):
        assert time.monotonic() < deadline
        assert all(rank.is_alive() for rank in running), log.read_text()
        time.sleep(0.01)
    for rank in running:
        rank.kill()
    finish(running, log, (-signal.SIGKILL, -signal.SIGKILL))
    assert not (killed / "config.json").exists()
    finish(start(log, ramify_command, *command(store, killed, 40, *OFTEN, "--resume")), log)
    assert (killed / "model.safetensors").read_bytes() == (straight / "model.safetensors").read_bytes()
