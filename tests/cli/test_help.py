"""`--help` answers at once, without heavy imports, and has an example."""

import subprocess
import sys

import typer

import ramify as package
from ramify.cli import app
from ramify.sample import MODELS

SCRIPT = """
import sys
from ramify.cli import main
for words in sys.argv[1:]:
    sys.argv = ["ramify", *words.split(), "--help"]
    print(f"{words}:")
    try:
        main()
    except SystemExit as left:
        assert left.code == 0, words
heavy = "torch numpy pyarrow matplotlib tokenizers safetensors accelerate transformers huggingface_hub scipy sklearn jaxtyping"
print(*(name for name in heavy.split() if name in sys.modules))
"""

WORDS = ("", "train", "train tree-mlm", "train mht", "evaluate", "evaluate run", "embed", "fill-mask", "report", "data build")


def test_help_imports_nothing_heavy():
    command = [sys.executable, "-c", SCRIPT, *WORDS, "tokenizer train", "train reranker"]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert found.splitlines()[-1] == ""
    assert found.count("Usage") == len(WORDS) + 2
    for word in ("data", "train", "tokenizer", "evaluate", "embed", "fill-mask", "report", "--resume", "--set", "--node"):
        assert word in found


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
