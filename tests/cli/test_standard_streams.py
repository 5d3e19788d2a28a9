"""`-` is standard input and output in every command, and never the name of a file or folder."""

import io
import json
import sys
import typing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from fixtures import built, discussions
from ramify import Node, Tree
from ramify.cli import app
from ramify.cli.demo import CHECKPOINT
from ramify.cli.disentangle import LINKS
from ramify.dataset import Store
from ramify.files import KEPT_BYTES
from ramify.readers.jsonl import read_jsonl

LOG = "[10:00] <ann> hi bob\n[10:01] <bob> ann: hi\n"
PATH_LIKE = {"data", "init", "tokenizer", "model", "run", "unseen"}
"""Parameters that name files or folders although their type is text."""


def leaves(command, words=()):
    if not getattr(command, "commands", None):
        yield words, command
    for name, each in getattr(command, "commands", {}).items():
        yield from leaves(each, (*words, name))


def takes_path(parameter):
    kind = parameter.type_descriptor.annotation
    return kind is Path or Path in typing.get_args(kind) or parameter.name in PATH_LIKE


CASES = [
    (words, parameter.name)
    for words, command in leaves(typer.main.get_command(app))
    for parameter in command.params
    if takes_path(parameter)
]
RESULTS = {
    ("embed", "out"), ("disentangle", "out"), ("data export", "out"), ("tokenizer train", "out"),
    ("embed", "data"), ("disentangle", "logs"), ("data build", "inputs"), ("data split", "data"), ("data stats", "tokenizer"),
    ("evaluate links", "gold"), ("evaluate links", "predicted"),
}  # fmt: skip
"""(command, parameter) that - suits. The others refuse it; `fill-mask` finds no node in the input of this test."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with an input of every kind."""
    folder = tmp_path_factory.mktemp("inputs")
    built(discussions(6, 5), folder)
    (folder / "log.log").write_text(LOG)
    (folder / "links.txt").write_text("stdin:0 0 -\nstdin:0 1 -\n")
    return folder


def arguments(words, command, name, place):
    """A command line in which this parameter is -, and every other required one has a value that suits."""
    suits = {
        "model": LINKS if words[0] in ("disentangle", "train") else CHECKPOINT,
        "run": CHECKPOINT,
        "data": place / "store",
        "folder": place / "store",
        "folders": place / "store",
        "inputs": place / "trees.jsonl",
        "logs": place / "log.log",
        "gold": place / "links.txt",
        "predicted": place / "links.txt",
        "tokenizer": CHECKPOINT,
        "unseen": f"{LINKS}={place / 'store'}",
        "out": {"embed": "v.parquet", "disentangle": "o.txt", "tokenizer": "t.json"}.get(words[0], "out.jsonl"),
        "node": "t0.1",
        "max_tree_size": "4",
        "expression": "x * x",
        "values": "x=2",
        "init": CHECKPOINT,
        "text": "The tea is [MASK].",
        "vocab_size": 60,
    }
    line = []
    for parameter in command.params:
        if parameter.name != name and not parameter.required and parameter.name not in ("expression", "values"):
            continue
        value = "-" if parameter.name == name else suits[parameter.name]
        line += [value] if parameter.param_type_name == "argument" else [parameter.opts[0], value]
    if words == ("tokenizer", "train"):
        line += ["--vocab-size", 70]
    if name == "folders" or words == ("data", "build"):
        line += ["--overwrite"] if words == ("data", "build") else []
    return [*words, *line]


@pytest.fixture
def standard_bytes(ramify, monkeypatch):
    """Run a command with this text or these bytes as standard input; (exit status, bytes of stdout, stderr)."""

    def run(given, *line):
        data = given if isinstance(given, bytes) else given.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        # The fixture expects text on standard output, which may be a table in Parquet.
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        monkeypatch.setattr(sys, "stdout", out)
        status, _, err = ramify(*line)
        return status, out.buffer.getvalue(), err

    return run


@pytest.fixture
def standard(standard_bytes):
    def run(given, *line):
        status, out, err = standard_bytes(given, *line)
        return status, out.decode("utf-8", "replace"), err

    return run


@pytest.mark.parametrize(("words", "name"), CASES, ids=[f"{' '.join(words)}: {name}" for words, name in CASES])
def test_every_path(standard, place, tmp_path, monkeypatch, words, name):
    """A path that is - is read from standard input, written to standard output, or refused with status 2."""
    monkeypatch.chdir(tmp_path)
    command = dict(leaves(typer.main.get_command(app)))[words]
    given = {
        ("disentangle",): LOG,
        ("evaluate", "links"): (place / "links.txt").read_text(),
        ("data", "stats"): (CHECKPOINT / "tokenizer.json").read_text(),
    }.get(words, (place / "trees.jsonl").read_text())
    status, out, err = standard(given, *arguments(words, command, name, place))
    assert "Traceback" not in err
    assert not [path for path in tmp_path.rglob("*") if path.name.lstrip(".").startswith(("-", "partial--"))]
    if (" ".join(words), name) in RESULTS:
        assert status == 0, err
    else:
        assert (status, out) == (2, ""), err
        assert err.splitlines()[-1].startswith("error: "), err


def test_nothing_but_the_output_is_on_standard_output(standard_bytes, place):
    """Counts, notes and progress are on standard error."""

    def shown(given, *words):
        status, out, err = standard_bytes(given, *words, "--out", "-")
        assert status == 0, err
        return out

    store = Store.open(place / "store")
    trees = (place / "trees.jsonl").read_bytes()
    lines = shown("", "data", "export", place / "store").decode().splitlines()
    assert lines == [tree.to_json() for tree in store.trees()]
    table = shown("", "data", "export", place / "store", "--format", "parquet")
    assert pq.read_table(pa.BufferReader(table)).to_pydict() == store.to_arrow().to_pydict()
    table = shown(trees, "embed", CHECKPOINT, "--data", "-", "--with", "text,parent")
    vectors = pq.read_table(pa.BufferReader(table))
    assert vectors.column_names == ["tree", "id", "text", "parent", "vector"]
    assert vectors["id"].to_pylist() == [node.id for tree in read_jsonl(place / "trees.jsonl") for node in tree.nodes]
    own = shown("", "tokenizer", "train", place / "store", "--vocab-size", 70)
    assert json.loads(own)["model"]
    for to, begins in (
        ("text", b"=== stdin"),
        ("annotation", b"stdin:0 0 -\n"),
        ("html", b"<!"),
        ("csv", b'"log","id","parent"'),
    ):
        assert shown(LOG, "disentangle", "-", "--to", to).startswith(begins)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("".join(tree.to_json() + "\n" for tree in discussions(3, 4)), "jsonl"),
        ("id,parent,tree,text\na,,t,hi\nb,a,t,ho\n", "table"),
        ('{"id": "a", "parent": null, "tree": "t", "text": "hi"}\n', "table"),
        ("author,time,text\nann,1,hi\nbob,2,ho\n", "chat-table"),
        (LOG, "irc"),
        ('{"id": "s", "title": "post", "selftext": "x", "author": "a", "created_utc": 1, "subreddit": "r"}\n', "pushshift"),
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_format_of_standard_input_is_guessed(standard, tmp_path, given, name, compressed):
    import bz2

    data = bz2.compress(given.encode()) if compressed else given
    status, _, err = standard(data, "data", "build", "-", "--out", tmp_path / "store")
    assert status == 0, err
    assert err.startswith(f"format: {name} (")
    (tmp_path / "file").write_text(given)
    assert standard("", "data", "build", tmp_path / "file", "--format", name, "--out", tmp_path / "again")[0] == 0
    store, again = Store.open(tmp_path / "store"), Store.open(tmp_path / "again")
    assert [tree.nodes for tree in store.trees()] == [tree.nodes for tree in again.trees()]
    assert store.info["inputs"] == [{"name": "-", "bytes": len(given if not compressed else data)}]


@pytest.mark.parametrize(
    ("given", "options", "tree"),
    [
        ("One text.\n", ["--format", "text"], "stdin/"),
        ("text\tlabel\ngood\t1\n", ["--format", "labelled"], "stdin/"),
        (LOG, [], "stdin"),
        ("author,time,text\nann,1,hi\n", ["--format", "chat-table"], "stdin"),
    ],
)
def test_trees_without_names_are_named_stdin(standard, tmp_path, monkeypatch, given, options, tree):
    """The name of the working folder tells nothing about standard input, and no file there belongs to it."""
    folder = tmp_path / "test"
    folder.mkdir()
    (folder / "stdin.annotation.txt").write_text("no annotation")
    monkeypatch.chdir(folder)
    status, _, err = standard(given, "data", "build", "-", *options, "--split", "1,0,0", "--out", tmp_path / "store")
    assert status == 0, err
    store = Store.open(tmp_path / "store")
    assert store.tree_ids([0])[0].startswith(tree)
    assert len(store.split("train")) == store.num_trees


def test_long_input_is_read_to_its_end(standard, tmp_path):
    """More than what is kept for guessing."""
    row = '{"id": "%d", "parent": null, "tree": "%d", "text": "' + "x" * 4000 + '"}\n'
    rows = 2 * KEPT_BYTES // 4000
    status, _, err = standard("".join(row % (n, n) for n in range(rows)), "data", "build", "-", "--out", tmp_path / "store")
    assert (status, Store.open(tmp_path / "store").num_trees) == (0, rows), err


@pytest.mark.parametrize(
    ("given", "words", "message"),
    [
        ("", ["data", "build", "-"], "standard input is empty"),
        ("x", ["data", "build", "-", "-"], "- is given twice"),
        (
            LOG,
            ["data", "build", "-", "--format", "convokit"],
            "a ConvoKit corpus cannot be read from standard input, because it",
        ),
        (LOG, ["data", "build", "-", "--format", "stackexchange"], "a Stack Exchange site cannot be read from standard input"),
        ("[]", ["data", "build", "-", "--format", "slack"], "a Slack export cannot be read from standard input"),
        (
            b"PAR1" + bytes(9),
            ["data", "build", "-"],
            "Parquet cannot be read from standard input, because its end is read first",
        ),
        (
            b"PK\3\4" + bytes(26) + b"mimetypeapplication/epub+zip",
            ["data", "build", "-"],
            "an EPUB cannot be read from standard input",
        ),
        (LOG, ["data", "build", "-", "--split-by", "-"], "--split-by - cannot be read from standard input"),
        (LOG, ["disentangle", "-", "-", "--format", "irc"], "- is given twice"),
        (LOG, ["evaluate", "links", "--gold", "-", "--predicted", "-"], "- is given twice"),
    ],
)
def test_refused_input(standard, tmp_path, monkeypatch, given, words, message):
    monkeypatch.chdir(tmp_path)
    status, out, err = standard(given, *words, *([] if words[0] == "evaluate" else ["--out", "out.txt"]))
    assert (status, out) == (2, "")
    assert message in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["data", "build", "x"], ["data", "export", "x", "--format", "convokit"], ["demo"]])
@pytest.mark.parametrize("out", ["-", "-/deeper"])
def test_folder_is_never_standard_output(standard, place, tmp_path, monkeypatch, words, out):
    monkeypatch.chdir(tmp_path)
    inputs = {"build": place / "trees.jsonl", "export": place / "store"}
    line = [inputs[words[1]] if word == "x" else word for word in words]
    status, printed, err = standard("", *line, "--out", out)
    assert (status, printed) == (2, "")
    assert "- is standard output, but a folder is written here. Name a folder." in err
    assert list(tmp_path.iterdir()) == []


def test_second_reading_beyond_the_kept_beginning_is_refused(monkeypatch):
    from ramify.errors import RamifyError
    from ramify.files import StandardInput

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bytes(KEPT_BYTES + 1))))
    first = StandardInput()
    assert len(first.read(100)) == 100
    assert len(StandardInput().read(100)) == 100
    assert len(first.readall()) == KEPT_BYTES + 1 - 100
    with pytest.raises(RamifyError, match="standard input can be read only once"):
        StandardInput()


def test_standard_input_that_is_kept_is_read_any_number_of_times(monkeypatch):
    from ramify.files import StandardInput

    content = bytes(range(256)) * (KEPT_BYTES // 200)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    beginning = StandardInput().read(100)
    StandardInput.keep()
    assert StandardInput().readall() == StandardInput().readall() == content
    assert content.startswith(beginning)


@pytest.mark.parametrize("format", ["labelled", "table"])
def test_tables_beyond_the_kept_beginning(standard, tmp_path, format):
    """Their quotation marks and the type of their labels are decided by all rows, before the rows are read."""
    words = "works " * (KEPT_BYTES // 1000)
    rows = "".join(f'p{n}\t\tp{n}\tit "works" {words}\t{n}\n' for n in range(200))
    status, _, err = standard(
        "id\tparent\ttree\ttext\tlabel\n" + rows, "data", "build", "-", "--format", format, "--out", tmp_path / "out"
    )
    assert status == 0, err
    store = Store.open(tmp_path / "out")
    assert (store.num_trees, {type(node.label) for tree in store.trees() for node in tree.nodes}) == (200, {int})


def test_closed_streams_are_named(monkeypatch):
    from ramify.errors import RamifyError
    from ramify.files import STANDARD, StandardInput, write_text

    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(RamifyError, match="standard input is closed"):
        StandardInput()
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(RamifyError, match="standard output is closed"):
        write_text(STANDARD, "text")


def test_no_source_names_the_devices_of_one_system():
    """`-` works where there is no /dev/stdin."""
    import ramify

    for path in Path(ramify.__file__).parent.rglob("*.py"):
        text = path.read_text()
        assert "/dev/stdin" not in text, path
        assert ".rename(" not in text, f"{path}: os.replace also replaces files on Windows"


def test_masks_of_a_tree_on_standard_input_are_filled(standard):
    tree = Tree((Node("how is the weather", id="p"), Node("it is [MASK] today", (0,), id="a")), id="t")
    status, out, err = standard(tree.to_json(), "fill-mask", CHECKPOINT, "--data", "-", "--node", "a", "--json")
    assert status == 0, err
    assert len(json.loads(out)["masks"]) == 1


def test_text_on_standard_input_is_shown_with_its_masks(standard):
    status, out, err = standard("it is [MASK] today", "fill-mask", CHECKPOINT, "--text", "-")
    assert status == 0, err
    assert out.splitlines()[0] == "it is [MASK] today"


def test_text_without_tokens_has_no_likelihood(standard):
    status, _, err = standard("", "score", CHECKPOINT, "--text", "-")
    assert (status, "the text '' has no tokens" in err) == (2, True), err
    tree = Tree((Node("how is the weather", id="p"), Node("", (0,), id="a")), id="t")
    status, _, err = standard(tree.to_json(), "score", CHECKPOINT, "--data", "-", "--node", "a")
    assert (status, "the text of node 'a' has no tokens" in err) == (2, True), err
