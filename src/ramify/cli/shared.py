"""Options, parsing and a progress bar that several commands share."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from ramify.errors import in_words

if TYPE_CHECKING:
    from ramify.disentangle.inference.disentangler import Disentangler
    from ramify.tree import Tree

LINE_SECONDS = 30.0
"""Time between lines of progress where there is no terminal."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Device = Annotated[
    str,
    typer.Option(
        "--device", help="Device to compute on: cpu, cuda, cuda:1 …; auto takes the accelerator that torch finds, else cpu."
    ),
]
Precision = Annotated[
    Literal["fp32", "bf16"],
    typer.Option(help="bf16 is faster on GPUs and on CPUs with AMX or AVX-512 BF16; scores change slightly."),
]

Verbose = Annotated[
    bool, typer.Option("--verbose", help="If no format accepts the input, list the reasons of all formats, not of three.")
]

Deciding = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Disentanglement models: change how they decide, e.g. decoding.threshold=0 for one parent per message, or "
        "decoding.answers=others if authors do not answer themselves; repeatable.",
    ),
]


FormatName = Annotated[str | None, typer.Option(help="Format of the files. Default: guessed.")]

ColumnNames = Annotated[
    list[str] | None, typer.Option(metavar="OURS=THEIRS", help="Tables: the name of a column, e.g. text=body; repeatable.")
]

FormatOptions = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the format; repeatable.")]

LogPattern = Annotated[
    list[str] | None,
    typer.Option(
        "--pattern",
        metavar="PATTERN",
        help="Chat logs as text: the form of their lines, such as '{date} {time} | {author}: {text}'; repeatable for lines of "
        "other forms. Fields: date, time, author, text, system, skip; {?…} is an optional part. Default: inferred.",
    ),
]


def reader_options(option: list[str] | None, pattern: list[str] | None, column: list[str] | None) -> dict[str, Any]:
    """The options of a reader that `--option`, `--pattern` and `--column` give. `true` and `false` become booleans."""
    switch = {"true": True, "false": False}
    return (
        {name: switch.get(value, value) for name, value in pairs(option, "--option").items()}
        | ({"pattern": "\n".join(pattern)} if pattern else {})
        | ({"columns": pairs(column, "--column")} if column else {})
    )


def tell(line: str) -> None:
    """Print a line beside the output of a command."""
    print(line, file=sys.stderr)


def redecide(model: "Disentangler", settings: list[str] | None) -> "Disentangler":
    """The model with the decoding settings of `--set`."""
    if not settings:
        return model
    from ramify.disentangle.inference.disentangler import Disentangler
    from ramify.runs.disentanglement.run import redecided

    return Disentangler(model.task, redecided(model.decoding, settings_of(settings)))


def text_or_node(text: str | None, data: Path | None, node: str | None, tree: str | None) -> tuple["Tree | str", str | None]:
    """The text of `--text` (- is standard input), or the tree and node of `--data`, `--node` and `--tree`."""
    from ramify.errors import RamifyError
    from ramify.files import STANDARD

    if text is not None:
        if given := [name for name, value in (("--data", data), ("--node", node), ("--tree", tree)) if value is not None]:
            raise RamifyError(f"--text is a text of its own, but {given[0]} names a node. Leave out one of them.")
        return sys.stdin.read() if text == str(STANDARD) else text, None
    if data is None or node is None:
        missing = "--data" if data is None else "--node"
        raise RamifyError(f"Missing option '{missing}'. Name a node with --data and --node, or give a text with --text.")
    return _tree_with(node, data, tree), node


def _tree_with(node: str, data: Path, tree: str | None) -> "Tree":
    """The tree that holds a node, in a JSON lines file or a built data set."""
    import numpy as np

    from ramify.dataset.store import Store
    from ramify.errors import RamifyError
    from ramify.readers.jsonl import read_jsonl

    if data.is_dir():
        store = Store.open(data)
        nodes = store.find_all(node) if tree is None else [store.find(node, tree)]
        found = [store.tree(int(number)) for number in np.unique(store.tree_of(nodes))[:2]]
    else:
        trees = (each for each in read_jsonl(data) if tree is None or each.id == tree)
        found = list(
            islice((each for each in trees if any(candidate.id == node for candidate in each.nodes)), 2 if tree is None else 1)
        )
    if not found:
        raise RamifyError(
            f"--node {node!r} is not in {f'the tree {tree!r} of ' if tree else ''}{data}. Check the spelling of the id."
        )
    if len(found) > 1:
        first, second = (each.id for each in found)
        print(
            f"note: the trees {first!r} and {second!r} both hold a node {node!r}; the first is used. --tree chooses one.",
            file=sys.stderr,
        )
    return found[0]


def parted(texts: list[str] | None, option: str, expected: str = "NAME=VALUE") -> list[tuple[str, str]]:
    """The (name, value) pairs of a repeatable option, in order."""
    from ramify.errors import RamifyError

    for text in texts or []:
        if "=" not in text:
            raise RamifyError(f"{option} {text} has no equals sign; expected {expected}.")
    return [(name.strip(), value) for name, _, value in (text.partition("=") for text in texts or [])]


def pairs(texts: list[str] | None, option: str, expected: str = "NAME=VALUE") -> dict[str, str]:
    """`parted` as a dictionary. Raises if a name is given twice."""
    from ramify.errors import RamifyError

    found: dict[str, str] = {}
    for name, value in parted(texts, option, expected):
        if name in found:
            raise RamifyError(f"{option} {name} is given twice, as {found[name]!r} and as {value!r}. Leave one out.")
        found[name] = value
    return found


def settings_of(settings: list[str] | None) -> dict[str, str]:
    """The settings that `--set` gives."""
    given = pairs(settings, "--set", "KEY=VALUE, such as train.steps=2000")
    return {name: value.strip() for name, value in given.items()}


Kind = TypeVar("Kind")


def file_kind(out: Path, kinds: Mapping[str, Kind], option: str) -> Kind:
    """The kind of file to write. `kinds`: ending of its name, or - for standard output -> kind. `option` names the kind."""
    from ramify.errors import RamifyError
    from ramify.files import STANDARD

    if out == STANDARD:
        return kinds[str(out)]
    endings = [ending for ending in kinds if ending != str(STANDARD)]
    ending = next((ending for ending in endings if out.name.lower().endswith(ending)), None)
    if ending is None:
        raise RamifyError(
            f"--out {out} does not end in {' or '.join(endings)}, so the kind of file is unknown. Choose one of these endings, "
            f"or add {option}."
        )
    return kinds[ending]


def check_beside(path: Path | None, option: str) -> None:
    """Raise if a further output of a command that prints its results would go to standard output, too."""
    from ramify.errors import RamifyError
    from ramify.files import STANDARD

    if path == STANDARD:
        raise RamifyError(f"{option} - would mix with the results on standard output. Name a file.")


class TimeLeft:
    """An estimate of the time to the end of some work, by the pace since the first call."""

    def __init__(self) -> None:
        self._start: tuple[float, float] | None = None

    def estimate(self, share: float) -> str:
        """The time left in words, now that this share is done; "" while there is no pace. A smaller share than before starts
        again."""
        now = time.monotonic()
        if self._start is None or share < self._start[1]:
            self._start = (now, share)
        began, first = self._start
        return in_words((now - began) * (1 - share) / (share - first)) if first < share else ""


class PlainProgress:
    """A line on stderr every `LINE_SECONDS`, for work that is watched through a log file and not on a terminal."""

    def __init__(self) -> None:
        self._printed = time.monotonic()
        self._left = TimeLeft()

    def update(self, what: str, done: int, total: int | None) -> None:
        left = self._left.estimate(done / total) if total else ""
        now = time.monotonic()
        if now - self._printed >= LINE_SECONDS:
            self._printed = now
            share = f"{done / total:.0%}" if total else f"{done:,} done"
            print(f"{what}: {share}{left and f', {left} left'}", file=sys.stderr, flush=True)


@contextmanager
def bar(what: str, total: int | None) -> Iterator[Any]:
    """A progress bar on stderr if that is a terminal, else lines. Yields a function that advances it."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if console.is_terminal:
        with Progress(console=console) as progress:
            row = progress.add_task(what, total=total)
            yield lambda count: progress.advance(row, count)
        return
    plain, done = PlainProgress(), 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        plain.update(what, done, total)

    yield advance
