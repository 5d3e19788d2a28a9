"""The README, executed literally in a fresh folder and a fresh environment: `make demo`, then every other command."""

import contextlib
import doctest
import io
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import zstandard

from ramify.cli import main
from ramify.readers.jsonl import read_jsonl

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "src/ramify/sample/discussions.jsonl"


def blocks(language: str) -> list[str]:
    readme = (ROOT / "README.md").read_text("utf-8")
    return [body for info, body in re.findall(r"^```(.*?)\n(.*?)^```", readme, re.M | re.S) if info == language]


def commands() -> list[str]:
    """The `ramify` commands of the README, except those shown with a part left out."""
    return [line for block in blocks("") for line in block.splitlines() if line.startswith("ramify ")]


def write_dump(folder: Path) -> None:
    """Our sample as a Pushshift dump with the README's file names, and a tree with a masked comment."""
    submissions, comments = [], []
    for tree in read_jsonl(SAMPLE):
        names = [f"{'t3' if index == 0 else 't1'}_{node.id.replace('.', '')}" for index, node in enumerate(tree.nodes)]
        for index, node in enumerate(tree.nodes):
            post = {"id": names[index][3:], "author": node.author, "created_utc": int(node.time or 0), "subreddit": "sample"}
            if not node.parents:
                title, _, body = node.text.partition("\n\n")
                submissions.append(post | {"title": title, "selftext": body})
            else:
                comments.append(post | {"link_id": names[0], "parent_id": names[node.parents[0]], "body": node.text})
    for name, posts in (("RS_2019-04.zst", submissions), ("RC_2019-04.zst", comments)):
        lines = "".join(json.dumps(post) + "\n" for post in posts)
        (folder / name).write_bytes(zstandard.ZstdCompressor().compress(lines.encode()))
    masked = {
        "id": "t",
        "nodes": [{"id": "p", "parent": None, "text": "Bread"}, {"id": "c42", "parent": "p", "text": "I [MASK] it."}],
    }
    (folder / "trees.jsonl").write_text(json.dumps(masked) + "\n")
    (folder / "channel.log").write_text("[10:00] <ann> where is the kernel log?\n[10:01] <bob> ann: dmesg shows it\n")


def write_books(folder: Path) -> None:
    """Twenty short books of the sample's texts."""
    trees = list(read_jsonl(SAMPLE))
    (folder / "books").mkdir()
    for number, pair in enumerate(zip(trees[::2], trees[1::2])):
        chapters = ("\n\n".join(node.text for node in tree.nodes) for tree in pair)
        text = "\n\n".join(f"## Chapter {place}\n\n{chapter}" for place, chapter in enumerate(chapters, start=1))
        (folder / "books" / f"book-{number}.md").write_text(f"# Book {number}\n\n{text}\n", "utf-8")


@pytest.mark.slow
def test_readme_in_a_fresh_environment(tmp_path):
    """All commands but `make test` itself, which runs this test."""
    if not (ROOT / ".git").exists():
        pytest.skip("the tracked files are not known here: this is no git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name)
    # The lengths of trainings and evaluations are shortened, nothing else.
    subprocess.run(["make", "demo", "DEMO=--steps 3 --draws 1"], cwd=tmp_path, check=True, timeout=900)
    assert (tmp_path / "runs/demo/report.html").stat().st_size > 10_000
    write_dump(tmp_path)
    write_books(tmp_path)
    for line in commands():
        arguments = shlex.split(line)
        if arguments[1] == "train":
            arguments += ["--steps", "1"]
        subprocess.run([tmp_path / ".venv/bin/ramify", *arguments[1:]], cwd=tmp_path, check=True, timeout=300)
    assert (tmp_path / "vectors.parquet").exists()
    assert (tmp_path / "paragraphs.parquet").exists()
    assert "dmesg" in (tmp_path / "channel.html").read_text("utf-8")


@pytest.mark.parametrize("session", blocks("console"), ids=lambda session: session.split()[2])
def test_printed_output_of_commands(session, monkeypatch, capfd):
    """A console block holds one command and its output."""
    command, printed = session.removeprefix("$ ").split("\n", 1)
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", shlex.split(command))
    with contextlib.suppress(SystemExit):
        main()
    assert capfd.readouterr().out.strip() == printed.strip()


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
        *("data", "train", "score", "generate", "train", "embed", "nearest", "disentangle"),
    ]
