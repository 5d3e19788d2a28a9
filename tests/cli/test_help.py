"""`--help` answers at once: it imports nothing heavy."""

import subprocess
import sys

import pytest

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
