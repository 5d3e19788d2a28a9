"""The README, executed literally in a fresh folder and a fresh environment: `make demo`, then every other command.

It needs nothing but Python and make, so that `make test` can run it while another process sets up the environment of the tests.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
OF_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")


def blocks(language: str) -> list[str]:
    readme = (ROOT / "README.md").read_text("utf-8")
    return [body for info, body in re.findall(r"^```(.*?)\n(.*?)^```", readme, re.M | re.S) if info == language]


def commands() -> list[str]:
    """The `ramify` commands of the README, except those shown with a part left out."""
    return [line for block in blocks("") for line in block.splitlines() if line.startswith("ramify ")]


def copy_tracked_files(folder: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def run_all(folder: Path) -> None:
    """All commands but `make test` itself, which runs this."""
    copy_tracked_files(folder)
    # An outer make's options are not for the README's. Without compiled modules, every command would compile them again.
    environment = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
    environment |= {"PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": ""}

    def run(*words: str | Path) -> None:
        print("README:", *words, flush=True)
        subprocess.run(words, cwd=folder, env=environment, check=True, timeout=900)

    # The lengths of trainings and evaluations are shortened, nothing else.
    run("make", "demo", "DEMO=--steps 3 --draws 1")
    assert (folder / "runs/demo/report.html").stat().st_size > 10_000
    run(folder / ".venv/bin/python", "tests/readme_inputs.py")
    for line in commands():
        arguments = shlex.split(line)
        # Labelled texts are read a number of times. The few of the inputs take no longer than a step.
        if arguments[1] == "train" and arguments[2] != "classify":
            arguments += ["--steps", "1"]
        run(folder / ".venv/bin/ramify", *arguments[1:])
    assert (folder / "vectors.parquet").exists()
    assert (folder / "paragraphs.parquet").exists()
    assert "predicted" in (folder / "labelled.csv").read_text("utf-8")
    assert "dmesg" in (folder / "channel.html").read_text("utf-8")


if __name__ == "__main__":
    if not (ROOT / ".git").exists():
        sys.exit("The tracked files are not known here: this is no git checkout.")
    with TemporaryDirectory() as folder:
        run_all(Path(folder))
