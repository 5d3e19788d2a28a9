"""The pages describe the package: computed numbers, quoted commands, settings, counted reasons, named tests."""

import inspect
import json
import re
import shlex
import sys
import tomllib
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import get_args, get_type_hints
from xml.etree import ElementTree

import pytest
import typer
from typer.core import TyperCommand, TyperGroup

from ramify.cli import app
from ramify.cli.evaluate import RunOrCommand
from ramify.dataset.filters import CLEANINGS
from ramify.disentangle.config import DecodingConfig
from ramify.readers import FORMATS
from ramify.readers.base import Policy
from ramify.recipes import RECIPES
from ramify.recipes.backbones import SCRATCH
from ramify.runs.disentanglement.run import redecided
from ramify.tree import Tree

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
CONTENT = {page.name: page.read_text("utf-8") for page in PAGES}


@pytest.fixture(scope="module")
def figures():
    sys.path.insert(0, str(DOCS))
    try:
        import figures
    finally:
        sys.path.remove(str(DOCS))
    return figures


@pytest.fixture(scope="module")
def generated(figures, tmp_path_factory):
    """The output of building the pages."""
    folder = tmp_path_factory.mktemp("generated")
    figures.write(folder)
    return folder


# --- computed values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("regime", "encoder", "decoder", "paper"),
    [
        ({"regime": "naive"}, 22, 10, 32),
        ({"regime": "threads"}, 22, 22, 32),
        ({"regime": "threads", "threads_over": "leaves"}, 13, 13, 18),
        ({"regime": "threads_debiased"}, 22, 22, 32),
        ({"regime": "tree"}, 6, 10, 11),
    ],
)
def test_runs_of_the_worked_example(figures, regime, encoder, decoder, paper):
    found = figures.counts(figures.W, **regime)
    assert (found.encoder, found.decoder, found.paper) == (encoder, decoder, paper)


@pytest.mark.parametrize(
    ("options", "encoder", "pieces"),
    [
        ({"max_tree_size": 10}, 6, "– : a b c d e f g h i j"),
        ({"max_tree_size": 5}, 7, "– : j f g h i; – : a b d e c"),
        ({"max_tree_size": 5, "pack": False}, 8, "– : a b d e c; – : f g h i; – : j"),
        ({"max_tree_size": 4}, 10, "– : j; – : f g h i; – : a c; a : b d e"),
        ({"max_tree_size": 4, "pack": False}, 10, "– : f g h i; – : j; – : a b d e; a : c"),
        ({"max_tree_size": 3}, 14, "– : j; – : f g h; h : i; – : a c; a : b d; a b : e"),
        ({"max_tree_size": 1}, 10, "; ".join(f"– : {name}" for name in "abcdefghij")),
        ({"max_tree_size": 1, "bound": "soft", "pack": False}, 13, "– : j; – : a c; a : b d; a b : e; – : f g h i"),
        ({"max_tree_size": 2, "bound": "soft", "pack": False}, 13, "– : j; – : a c; a : b d; a b : e; – : f g h i"),
        ({"max_tree_size": 3, "bound": "soft", "pack": False}, 13, "– : j; – : a c; a : b d; a b : e; – : f g h i"),
        ({"max_tree_size": 4, "bound": "soft", "pack": False}, 10, "– : f g h i; – : j; – : a b d e; a : c"),
    ],
)
def test_pieces_of_the_worked_example(figures, options, encoder, pieces):
    options = {"regime": "middle", **options}
    found = figures.counts(figures.W, **options)
    assert (found.encoder, found.decoder, found.units) == (encoder, 10, pieces.count(";") + 1)
    named = {as_sets(figures.piece_name(unit)) for unit in figures.epoch(figures.W, **options)}
    assert named == {as_sets(piece) for piece in pieces.split(";")}


def as_sets(piece: str) -> tuple[str, frozenset[str]]:
    context, _, targets = piece.partition(":")
    return context.strip(), frozenset(targets.split())


def test_weights_of_an_epoch(figures):
    """Each comment counts once, except in `threads` and in pieces that repeat comments."""
    often = {name: figures.epoch_weights(figures.W, **regime)[1:] for name, regime in figures.WEIGHTED.items()}
    biased = ("threads, all", "threads, leaves", "middle, seed")
    assert all((weights == 1).all() == (name not in biased) for name, weights in often.items())
    assert figures.as_fraction(1 / 3) == "1/3"


def test_tables(figures):
    assert rows_of(figures.multiplicity_table())["threads over all comments"] == list("5413131121")
    assert rows_of(figures.multiplicity_table())["threads over leaves"] == list("3112111111")
    assert [row[1:] for row in rows_of(figures.ternary_table()).values()][-4:] == [
        ["40", "27"],
        ["13", "9"],
        ["4", "3"],
        ["1", "1"],
    ]
    for name, (_, *numbers) in list(rows_of(figures.closed_forms_table()).items())[2:]:
        assert numbers[0::2] == numbers[1::2], name


def rows_of(table: str) -> dict[str, list[str]]:
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]
    return {first: rest for first, *rest in rows}


def test_drawings_are_well_formed_and_self_contained(figures):
    for name, draw in figures.DRAWINGS.items():
        drawing = draw()
        content = drawing.svg()
        root = ElementTree.fromstring(content)
        assert root.find("{http://www.w3.org/2000/svg}title") is not None, name
        assert not re.search(r"href|url\(|@import|font-family", content), name
        for box in root.iter("{http://www.w3.org/2000/svg}rect"):
            x, y, width, height = (float(box.get(each, "nan")) for each in ("x", "y", "width", "height"))
            assert 0 <= x <= x + width <= drawing.width, name
            assert 0 <= y <= y + height <= drawing.height, name


def test_every_drawing_and_table_is_in_a_page(figures):
    """Every drawing and table that pages show is computed, and every computed one is shown."""
    text = CONTENT["tree_mlm.md"] + CONTENT["backpropagation.md"]
    assert set(re.findall(r"\{drawing\} ([\w-]+)", text)) == set(figures.DRAWINGS)
    assert set(re.findall(r"_generated/([\w-]+)\.md", text)) == set(figures.TABLES)


# --- quoted commands ----------------------------------------------------------------------------------------------------

FENCED = re.compile(r"^```(.*?)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def quoted_lines(page: str) -> list[str]:
    """The lines of blocks of commands, continued lines joined."""
    blocks = [body for language, body in FENCED.findall(CONTENT[page]) if language in ("", "bash", "console", "sh", "text")]
    return [line.strip() for body in blocks for line in body.replace("\\\n", " ").splitlines()]


COMMANDS = [
    (page, line[line.index("ramify ") :].split("  #")[0])
    for page in CONTENT
    for line in quoted_lines(page)
    if re.match(r"(\$ )?(ramify |torchrun .*ramify )", line)
]
MENTIONED = [
    (page, mention)
    for page, content in CONTENT.items()
    for mention in re.findall(r"`(?:torchrun [^`]*?)?(ramify [^`]+)`", FENCED.sub("", content))
]


# Of its own: a command that is asked without those above it keeps other options of help.
WHOLE_COMMAND = typer.main.get_command(app)


def find(words: list[str]) -> tuple[TyperCommand | TyperGroup, list[str]]:
    """The command or group of commands that the words name, and the remaining words."""
    command = WHOLE_COMMAND
    while isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        words = command.named(words) if isinstance(command, RunOrCommand) else words
        found = command.commands.get(words[0])
        assert isinstance(found, TyperCommand | TyperGroup), f"there is no command {words[0]!r} in {command.name}"
        command, words = found, words[1:]
    assert isinstance(command, TyperCommand | TyperGroup)
    return command, words


def parse(line: str) -> None:
    """Check names, options, values of options and required arguments; nothing is run."""
    command, words = find(shlex.split(line)[1:])
    assert isinstance(command, TyperCommand), f"{line}: this is a group of commands"
    command.make_context(command.name, words)


def test_commands_are_found():
    """The patterns find commands in every page about using them."""
    assert {page for page, _ in COMMANDS} >= {"README.md", "index.md", "data.md", "training.md", "tree_mlm.md"}
    assert len(COMMANDS) > 40


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_quoted_command_parses(page, line):
    parse(line)


@pytest.mark.parametrize(
    "line",
    [
        "ramify dance",
        "ramify data",
        "ramify data split trees.jsonl",
        "ramify data split trees.jsonl --max-tree-size many",
        "ramify data split trees.jsonl --max-tree-size 5 --bound loose",
        "ramify evaluate runs/reddit --data data/reddit --contexts tree",
    ],
)
def test_wrong_commands_do_not_parse(line):
    """The control: the checks above can fail."""
    with pytest.raises(Exception, match=r"dance|group|max.tree.size|integer|loose|contexts"):
        parse(line)


@pytest.mark.parametrize(("page", "mention"), MENTIONED)
def test_mentioned_command_exists(page, mention):
    """A mention in a sentence may leave out arguments."""
    command, words = find([word for word in mention.split()[1:] if word not in ("…", "RECIPE")])
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known


def settings_of(line: str) -> dict[str, str]:
    words = shlex.split(line)
    pairs = [value for option, value in pairwise(words) if option == "--set"]
    return dict(pair.split("=", 1) for pair in pairs)


@pytest.mark.parametrize(("page", "line"), [(page, line) for page, line in COMMANDS if "--set " in line])
def test_quoted_settings_are_accepted(page, line):
    verb, recipe = shlex.split(line)[1:3]
    if verb != "train":
        assert redecided(DecodingConfig(), settings_of(line)) != DecodingConfig()
        return
    words = shlex.split(line)
    start = {"model": words[words.index("--model") + 1]} if "--model" in words else {}
    run = RECIPES[recipe]("data", **start)
    assert run.changed(settings_of(line)) != run


# --- names in pages -----------------------------------------------------------------------------------------------------


def test_register_names_tests_that_exist():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", CONTENT["reconstructed.md"])
    assert len(named) > 40
    for file, name in named:
        assert f"def {name}(" in (ROOT / file).read_text("utf-8"), f"{file}::{name}"


def test_explanations_name_tests_that_exist():
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", CONTENT["tree_mlm.md"]):
        assert f"def {name}(" in tests


FILES = ("model.safetensors", "tokenizer.json")


@cache
def _runs_of(recipe):
    """Runs of a recipe on some data: of a recipe for any model, one with each."""
    recipe = RECIPES[recipe]
    if "model" not in inspect.signature(recipe.function).parameters:
        return [recipe("data")]
    return [recipe("data", model=name) for name in SCRATCH]


@pytest.mark.parametrize(
    "page", ["reconstructed.md", "tree_mlm.md", "training.md", "permutation.md", "nested_documents.md", "transformer.md"]
)
def test_switches_exist(page):
    """Every `part.field` in a page is a setting of some recipe, and the values next to it are accepted."""
    pattern = (
        r"`((?:model|task|input|input|decoding|view|train|tokenizer|dev)\.\w+)(?: ?= ?([^`]+))?`(?: = ((?:`\w+`(?:, )?)+))?"
    )
    found = [match for match in re.findall(pattern, CONTENT[page]) if match[0] not in FILES]
    assert found
    for key, value, values in found:
        part, field = key.split(".")
        runs = chain.from_iterable(map(_runs_of, RECIPES))
        owners = [run.stages[0] if part == "train" else getattr(run, part, None) for run in runs]
        owners = [owner for owner in owners if hasattr(owner, field)]
        assert owners, key
        named = {each for each in (value, *re.findall(r"`(\w+)`", values)) if each}
        # A type such as `str | None` has no list of values.
        hints = [get_args(get_type_hints(type(owner))[field]) for owner in owners]
        choices = [[choice for choice in hint if isinstance(choice, str)] for hint in hints]
        assert any(not each or named <= set(each) for each in choices), key


def test_policies_are_documented():
    """One row per case: the default in the second column, the others in the third."""
    rows = re.findall(r"^\| `(\w+)`: .*? \| (.*?) \| (.*?) \|$", CONTENT["data.md"], re.MULTILINE)
    named = {case: [re.findall(r"`(\w+)`", cell) for cell in cells] for case, *cells in rows}
    kinds = get_type_hints(Policy)
    assert named.keys() == kinds.keys()
    for case, (default, others) in named.items():
        assert default == [getattr(Policy(), case)]
        assert {*default, *others} == set(get_args(kinds[case])), case


def test_counted_reasons_are_documented():
    folders = [ROOT / "src/ramify" / part for part in ("readers", "dataset")]
    sources = [path.read_text("utf-8") for folder in folders for path in folder.rglob("*.py")]
    calls = r'(?:skip|repair|_remove|drop_subtrees|blank_roots)(?:\(\s*|\[)"(\w+)"|without\(\{"(\w+)"'
    reasons = {name for source in sources for pair in re.findall(calls, source) for name in pair if name}
    assert {"bad_json", "reattached", "cycle", "bot", "placeholder_roots"} <= reasons
    described = set(re.findall(r"`(\w+)`", CONTENT["data.md"]))
    assert reasons <= described, f"data.md does not say what {', '.join(sorted(reasons - described))} means"


def test_formats_and_cleanings_are_documented():
    for name in FORMATS:
        assert re.search(rf"^{name}\n: ", CONTENT["data.md"], re.MULTILINE), name
    for name in CLEANINGS:
        assert re.search(rf"^\| `{name}` \| ", CONTENT["data.md"], re.MULTILINE), name


@pytest.mark.parametrize("page", CONTENT)
def test_quoted_json_is_json(page):
    for language, body in FENCED.findall(CONTENT[page]):
        if language == "json":
            record = json.loads(body)
            assert "nodes" not in record or len(Tree.from_json(body)) == len(record["nodes"])


@pytest.mark.parametrize("page", CONTENT)
def test_links_between_files_resolve(page, generated):
    folder = ROOT if page == "README.md" else DOCS
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)", CONTENT[page]):
        written = generated / target.removeprefix("_generated/") if target.startswith("_generated/") else folder / target
        assert written.exists(), target


def test_docs_extra_is_pinned():
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]["docs"]
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints/pins.txt").read_text("utf-8").splitlines()}
    assert {re.split("[<>=]", requirement)[0] for requirement in extra} <= pinned


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_line_of_a_paragraph_begins_with_a_comment(page):
    """Markdown ends the paragraph there."""
    lines = CONTENT[page.name].split("\n")
    assert [line for above, line in pairwise(lines) if line.startswith("<!-- row") and above.strip()] == []
