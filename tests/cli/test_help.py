"""`--help` answers at once, without heavy imports, and has an example."""

import subprocess
import sys

import pytest
import typer

from ramify.cli import app

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
