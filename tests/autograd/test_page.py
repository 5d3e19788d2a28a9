"""The page on backpropagation: the engine computes every answer on it."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

from ramify.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "backpropagation.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_answers_in_python(capsys):
    text = "".join(body for language, body in BLOCKS if language == "python")
    examples = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    assert len(examples.examples) > 40
    runner = doctest.DocTestRunner()
    runner.run(examples)
    assert runner.summarize(verbose=False).failed == 0, capsys.readouterr().out


COMMANDS = [
    command.split("\n", 1)
    for language, body in BLOCKS
    if language == "console"
    for command in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]
]


@pytest.mark.parametrize(("line", "expected"), COMMANDS, ids=[line for line, _ in COMMANDS])
def test_answers_of_commands(line, expected, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ramify.cli.keep_pages", lambda: None)
    monkeypatch.setattr("sys.argv", shlex.split(line))
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 0
    shown = capsys.readouterr()
    found = shown.out + shown.err
    if expected.endswith("…\n"):
        assert found.startswith(expected.removesuffix("…\n"))
    else:
        assert found == expected
