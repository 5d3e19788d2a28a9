"""The demonstrations of `docs/bert.md` print what the page shows."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ramify.cli import app

PAGE = (Path(__file__).parents[1] / "docs/bert.md").read_text("utf-8")
CODE, PRINTED = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", PAGE, re.S).groups()
FILLED = re.search(r"```\n((?:ramify fill-mask tree-mlm-small .*\n)+)```\n\n```\n(.*?)```", PAGE, re.S)


def test_the_data_builder(capsys):
    exec(CODE, {})
    assert capsys.readouterr().out == PRINTED
    assert "[CLS] the dog [MASK] [SEP] the cat [MASK] away [SEP]\n['barked', 'ran'] [0]" in PRINTED


def test_printed_distributions():
    commands, printed = FILLED.groups()
    found = "".join(
        CliRunner().invoke(app, [*shlex.split(line)[1:], "--device", "cpu"]).stdout for line in commands.splitlines()
    )
    # Probabilities may differ in the last digit from machine to machine.
    assert re.sub(r"\d\.\d+", "#", found) == re.sub(r"\d\.\d+", "#", printed)
    for one, two in zip(re.findall(r"\d\.\d+", found), re.findall(r"\d\.\d+", printed), strict=True):
        assert float(one) == pytest.approx(float(two), abs=0.002)
