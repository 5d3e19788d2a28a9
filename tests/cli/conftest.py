"""A fixture that runs commands, and a small run that is trained once."""

import os
import resource
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO

import pytest
import torch

from fixtures import built, chain, discussion, uniform
from fixtures.processes import Command
from ramify.cli import main

SETTINGS = (
    *("model.dim=16", "model.num_heads=2", "model.ffn_dim=32", "model.encoder_layers=1", "model.decoder_layers=1"),
    *("tokenizer.vocab_size=80", "train.budget=400", "train.lr=1e-2", "train.log_every=1"),
)


@contextmanager
def own_threads():
    """Give torch its number of threads back, which `demo` sets for its process."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@pytest.fixture
def ramify(capsys, monkeypatch):
    """Run a command, perhaps where no file grows beyond so many kilobytes; (exit status, stdout, stderr)."""
    # The command changes the allocator of the whole process, which all tests share.
    monkeypatch.setattr("ramify.cli.keep_pages", lambda: None)

    def run(*arguments, kilobytes=None):
        monkeypatch.setattr(sys, "argv", ["ramify", *map(str, arguments)])
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 1024 if kilobytes else soft, hard))
        try:
            with pytest.raises(SystemExit) as left, own_threads():
                main()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        shown = capsys.readouterr()
        return left.value.code, shown.out, shown.err

    return run


@pytest.fixture(scope="session")
def ramify_once():
    """Run a command for several tests; (exit status, stdout, stderr)."""

    def run(*arguments):
        out, err = StringIO(), StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr("ramify.cli.keep_pages", lambda: None)
            patch.setattr(sys, "argv", ["ramify", *map(str, arguments)])
            with pytest.raises(SystemExit) as left, own_threads():
                main()
        return left.value.code, out.getvalue(), err.getvalue()

    return run


@pytest.fixture(scope="session")
def in_place_of():
    """Let a file be standard input (0) or output (1), also for those who open /dev/stdin or /dev/stdout."""

    @contextmanager
    def in_place_of(descriptor, file):
        kept = os.dup(descriptor)
        os.dup2(file.fileno(), descriptor)
        try:
            yield
        finally:
            os.dup2(kept, descriptor)
            os.close(kept)

    return in_place_of


@pytest.fixture(scope="session")
def start():
    """Start a command in a process of its own."""
    return Command


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """Trees of every depth that evaluations distinguish."""
    trees = (discussion((chain if n % 2 else uniform)(24, n), seed=n, name=f"t{n}") for n in range(32))
    return built(trees, tmp_path_factory.mktemp("data"), (0.5, 0.2, 0.3))


@pytest.fixture(scope="session")
def recipe(store):
    """All arguments but --out of the command that trains `trained`."""
    settings = (part for setting in SETTINGS for part in ("--set", setting))
    return ["train", "tree-mlm", "--data", store.path, "--steps", 6, *settings]


@pytest.fixture(scope="session")
def trained_with_output(ramify_once, recipe, tmp_path_factory):
    """The folder of a run and the output of its training."""
    out = tmp_path_factory.mktemp("trained") / "run"
    status, printed, err = ramify_once(*recipe, "--out", out)
    assert (status, printed) == (0, ""), err
    return out, err


@pytest.fixture(scope="session")
def trained(trained_with_output):
    """The folder of a run, which tests must not change."""
    return trained_with_output[0]
