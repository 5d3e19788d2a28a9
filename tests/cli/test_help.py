"""`--help` answers at once, without heavy imports, and has an example."""

import subprocess
import sys

import pytest
import typer

import ramify as package
from ramify.cli import app
from ramify.sample import MODELS

SCRIPT = """
import contextlib, io, sys
from ramify.cli import main
sys.argv = ["ramify", *sys.argv[1:]]
said = io.StringIO()
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(said):
    main()
assert "Usage" in said.getvalue(), said.getvalue()
print(*sorted({"torch", "numpy", "pyarrow", "scipy", "matplotlib", "transformers"} & sys.modules.keys()))
"""


@pytest.mark.parametrize(
    "words", [[], ["train"], ["train", "mht"], ["train", "reranker"], ["evaluate", "run"], ["data", "build"]]
)
def test_help_imports_nothing_heavy(words):
    command = [sys.executable, "-c", SCRIPT, *words, "--help"]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.split() == []


def commands(command, words=("ramify",)):
    yield words, command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, (*words, name))


def test_every_help_has_an_example():
    found = dict(commands(typer.main.get_command(app)))
    assert {("ramify",), ("ramify", "data"), ("ramify", "train", "mht"), ("ramify", "evaluate", "run")} <= found.keys()
    for words, command in found.items():
        assert command.help is not None, words
        assert "\nExample: ramify " in command.help, words


def test_h_is_help_in_every_command(ramify):
    for words in dict(commands(typer.main.get_command(app))):
        status, shown, _ = ramify(*words[1:], "-h")
        assert (status, "Usage" in shown) == (0, True), words


def test_shipped_models_are_listed(ramify):
    _, shown, _ = ramify("--help")
    assert all(name in shown for name in MODELS)
    assert MODELS.keys() == {"links", "tree-mlm-small"}
    assert all((folder / "config.json").exists() for folder in MODELS.values())


def test_dir_lists_the_public_names():
    listing = subprocess.run(
        [sys.executable, "-c", "import ramify, sys; print(*dir(ramify)); assert 'torch' not in sys.modules"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert {*package.__all__, "__doc__"} <= {*listing}
    assert all(name in package.__all__ or name.startswith("__") for name in listing)
