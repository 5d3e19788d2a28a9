"""The README: its commands in a fresh folder and a fresh environment, and the output that it prints."""

import contextlib
import doctest
import io
import shlex

import pytest

from ramify.cli import main
from readme_commands import ROOT, blocks, commands, run_all


@pytest.mark.slow
@pytest.mark.alone
def test_readme_in_a_fresh_environment(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("the tracked files are not known here: this is no git checkout")
    run_all(tmp_path)


@pytest.mark.parametrize("session", blocks("console"), ids=lambda session: session.split()[2])
def test_printed_output_of_commands(session, monkeypatch, capfd, tmp_path):
    """A console block holds one command, its output, and the name of its page."""
    command, printed = session.removeprefix("$ ").split("\n", 1)
    for entry in ROOT.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", shlex.split(command))
    with contextlib.suppress(SystemExit):
        main()
    out, err = capfd.readouterr()
    pages = [line for line in err.splitlines() if line.startswith("page: ")]
    assert [*out.strip().splitlines(), *pages] == printed.strip().splitlines()


def test_printed_output_of_python(monkeypatch):
    monkeypatch.chdir(ROOT)
    (example,) = blocks("python")
    session = doctest.DocTestParser().get_doctest(example, {}, "README", "README.md", 0)
    report = io.StringIO()
    doctest.DocTestRunner().run(session, out=report.write)
    assert len(session.examples) > 3
    assert report.getvalue() == ""


def test_every_command_is_recognised():
    assert [line.split()[1] for line in commands()] == [
        *("data", "data", "train", "evaluate", "evaluate", "embed", "fill-mask"),
        *("data", "train", "predict"),
        *("data", "train", "score", "generate", "train", "embed", "nearest", "disentangle"),
    ]
