"""Options and their parsing, which several commands share."""

import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

if TYPE_CHECKING:
    from ramify.disentangle.inference.disentangler import Disentangler
    from ramify.tree import Tree

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


def once(values: list[str] | None, option: str) -> str | None:
    """The value of an option that commands take once. They declare it as repeatable, because otherwise the last value would
    silently replace the others. Raises `RamifyError` for several values."""
    from ramify.errors import RamifyError

    if values and len(values) > 1:
        shown = " and as ".join(f"{value[:40]!r}" for value in values[:2])
        raise RamifyError(f"{option} is given {len(values)} times, as {shown}, but is one text. Run the command once per text.")
    return values[0] if values else None


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


def read_sources(file: Path | None, text: str | None) -> list[str]:
    """The lines of FILE (- is standard input), or --text. Prints how many lines had to be repaired."""
    from ramify.errors import RamifyError, counted
    from ramify.files import STANDARD
    from ramify.readers.base import ReadCounts
    from ramify.readers.parallel import lines_of

    if file is None and text is None:
        raise RamifyError("Missing argument 'FILE'. Name a file with one text per line, or give a text with --text.")
    if file is not None and text is not None:
        raise RamifyError(f"FILE {file} and --text both give texts. Leave out one of them.")
    if text is not None:
        return [sys.stdin.read().strip() if text == str(STANDARD) else text]
    assert file is not None
    counts = ReadCounts()
    lines = list(lines_of(file, counts))
    faults = (
        (counts.kept["encoding"], "not in UTF-8, read as Windows-1252", "encoding"),
        (counts.skipped["too_long"], "too long, read as empty", "too_long"),
    )
    for count, fault, reason in faults:
        if count:
            tell(f"note: {counted(count, 'line')} {fault}; the first is {counts.examples[reason][0]}")
    return lines


def question_and_passage(question: str | None, passage: Path | None) -> tuple[str, str]:
    """The question of `--question`, and the text of the file of `--passage` (- is standard input)."""
    from ramify.errors import RamifyError
    from ramify.readers.base import Held, open_bytes

    if question is None or passage is None:
        missing = "--question" if question is None else "--passage"
        raise RamifyError(f"Missing option '{missing}'. Ask a question with --question, and name the text with --passage FILE.")
    with open_bytes(passage) as stream:
        data = Held("holds a passage of", "Cut it into shorter files.").read(stream, passage)
    try:
        return question, data.decode("utf-8")
    except UnicodeDecodeError:
        tell(f"note: {passage} is not in UTF-8, and is read as Windows-1252")
        return question, data.decode("cp1252", "replace")


def _tree_with(node: str, data: Path, tree: str | None) -> "Tree":
    """The tree that holds a node, in a JSON lines file or a built data set."""
    import numpy as np

    from ramify.dataset.store import Store
    from ramify.errors import RamifyError
    from ramify.readers.jsonl import read_jsonl

    if data.is_dir():
        store = Store.open(data)
        nodes = store.find_all(node) if tree is None else [store.find(node, tree)]
        holding = [store.tree(int(number)) for number in np.unique(store.tree_of(nodes))[:2]]
    else:
        trees = (read for read in read_jsonl(data) if tree is None or read.id == tree)
        trees = (read for read in trees if any(candidate.id == node for candidate in read.nodes))
        holding = list(islice(trees, 2 if tree is None else 1))
    if not holding:
        raise RamifyError(
            f"--node {node!r} is not in {f'the tree {tree!r} of ' if tree else ''}{data}. Check the spelling of the id."
        )
    if len(holding) > 1:
        first, second = (held.id for held in holding)
        print(
            f"note: the trees {first!r} and {second!r} both hold a node {node!r}; the first is used. --tree chooses one.",
            file=sys.stderr,
        )
    return holding[0]


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

    values: dict[str, str] = {}
    for name, value in parted(texts, option, expected):
        if name in values:
            raise RamifyError(f"{option} {name} is given twice, as {values[name]!r} and as {value!r}. Leave one out.")
        values[name] = value
    return values


def settings_of(settings: list[str] | None) -> dict[str, str]:
    """The settings that `--set` gives."""
    given = pairs(settings, "--set", "KEY=VALUE, such as train.steps=2000")
    return {name: value.strip() for name, value in given.items()}


Kind = TypeVar("Kind")


def file_kind(out: Path, kinds: Mapping[str, Kind], option: str = "") -> Kind:
    """The kind of file to write. `kinds`: ending of its name, or - for standard output -> kind. `option` names the kind, if
    there is such an option."""
    from ramify.errors import RamifyError
    from ramify.files import STANDARD

    if out == STANDARD:
        return kinds[str(out)]
    endings = [ending for ending in kinds if ending != str(STANDARD)]
    ending = next((ending for ending in endings if out.name.lower().endswith(ending)), None)
    if ending is None:
        raise RamifyError(
            f"--out {out} does not end in {' or '.join(endings)}, so the kind of file is unknown. Choose one of these endings"
            f"{option and f', or add {option}'}."
        )
    return kinds[ending]


def check_beside(path: Path | None, option: str) -> None:
    """Raise if a further output of a command that prints its results would go to standard output, too."""
    from ramify.errors import RamifyError
    from ramify.files import STANDARD

    if path == STANDARD:
        raise RamifyError(f"{option} - would mix with the results on standard output. Name a file.")


def check_out(out: Path, sources: Iterable[Path] = ()) -> None:
    """Raise before any work is done if the file `--out` cannot be written, or is one of the files that are read."""
    from ramify.errors import RamifyError

    if out.is_dir():
        raise RamifyError(f"--out {out} is a folder. Name a file to write to.")
    for source in sources:
        if out.exists() and source.is_file() and out.is_file() and out.samefile(source):
            raise RamifyError(f"--out {out} is also an input. Choose another file to write to.")


def beside(source: Path | None, ending: str) -> Path:
    """The file that a command writes without `--out`: that of this ending beside a file or folder, or in the current folder if
    there is none. Raises `RamifyError` if it exists and is no page that Ramify wrote earlier."""
    from ramify.errors import RamifyError
    from ramify.files import is_page

    if source is None or is_stream(source):
        out = Path(ending.removeprefix("."))
    else:
        from ramify.readers.names import unpacked

        first = source if source.name not in ("", "..") else source.resolve()
        name = unpacked(first.name)
        out = first.with_name(f"{name if first.is_dir() else PurePath(name).stem}{ending}")
    if out.exists() and not (out.is_file() and is_page(out)):
        raise RamifyError(
            f"{out} exists, and would be overwritten. Name the file to write with --out, or remove this one first."
        )
    return out


def is_stream(source: Path) -> bool:
    """Whether an input is standard input, a pipe or a device, beside which no file can stand."""
    from ramify.files import STANDARD

    in_system = source.parts[:2] in (("/", "dev"), ("/", "proc"))
    return source == STANDARD or in_system or (source.exists() and not source.is_dir() | source.is_file())


PageOut = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="HTML page about the answer. Default: a page beside the input, named after it and the command; with --json, none.",
    ),
]


def check_page(out: Path | None, source: Path | None, *, is_alone: bool) -> None:
    """Raise before any work is done if the page `--out` cannot be written. `is_alone`: nothing else goes to standard output."""
    from ramify.files import STANDARD

    if out is None or (is_alone and out == STANDARD):
        return
    check_beside(out, "--out")
    check_out(out, [] if source is None else [source])


def draw_page(out: Path | None, source: Path | None, command: str, draw: Callable[[Path], None], *, needed: bool) -> None:
    """Draw the page about an answer into `--out` or `beside` the input, and print its name. One that is neither asked for nor
    `needed` is left out if it cannot be drawn, and a note says why."""
    from ramify.errors import RamifyError

    try:
        page = out or beside(source, f".{command}.html")
        draw(page)
    except RamifyError as error:
        if out is not None or needed:
            raise
        tell(f"note: no page: {error}")
    else:
        tell(f"page: {page}")
