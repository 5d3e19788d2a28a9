"""`ramify data`: build, inspect, export and split data sets of trees."""

import json
import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ramify.cli.progress import PlainProgress
from ramify.cli.shared import (
    ColumnNames,
    FormatName,
    FormatOptions,
    Json,
    LogPattern,
    Verbose,
    check_beside,
    file_kind,
    pairs,
    reader_options,
    tell,
)
from ramify.errors import RamifyError, counted, printable
from ramify.files import STANDARD

if TYPE_CHECKING:
    from ramify.dataset import Store
    from ramify.dataset.build import Progress
    from ramify.tree import Indices

app = typer.Typer(
    help="Build, inspect, export and split data sets of trees.\n\nExample: ramify data build dump.zst --out data/reddit",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(help="A data set built by `ramify data build`.")]

WHOLE_TREE_POLICIES = {"deleted", "empty", "duplicate_id"}
"""The policies that apply to formats whose trees come with their structure."""
DOUBTS = ("missing_label", "missing_author", "number_with_comma", "joined_label")
"""Reasons of labels and authors that may be meant otherwise. Their places name the option that reads them otherwise."""
WHOLE_FILES = ("other_file", "not_text", "not_a_book", "not_a_log")
"""Reasons why a file in a folder or archive is left out as a whole, so that a build names it."""

UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}

# --- options of `build` -------------------------------------------------------------------------------------------------

Inputs = Annotated[list[Path], typer.Argument(help="Files, compressed or not, or folders with them; - reads stdin.")]

OutFolder = Annotated[Path, typer.Option("--out", help="Folder to write.")]

Policies = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CASE=ACTION",
        help="Treatment of faulty posts; repeatable. deleted, empty = reattach|keep|drop|tree; orphan = root|drop; "
        "missing_parent = root|drop; cycle = drop|root; duplicate_id = first|last; two_roots = split|first|forest; "
        "missing_root = placeholder|drop. The first action of each case is its default.",
    ),
]

Shares = Annotated[str | None, typer.Option(help="Shares of trees in train, dev and test. Default: 0.9,0.05,0.05.")]

SplitBy = Annotated[
    str | None,
    typer.Option(
        metavar="none|file|FILE|COLUMN",
        help="Take the splits from the data. none: all trees in train; file: the names of the input files say train, dev "
        "or test; FILE: rows of a tree's id or title and its split, `*` for all others; COLUMN: a column of a table. Default: "
        "the trees' metadata, where they name a split, and otherwise --split.",
    ),
]

FoldName = Annotated[
    str | None,
    typer.Option(
        "--fold",
        metavar="K/N",
        help="Cross-validation: the K-th of N parts is test, a tenth is dev. Build N times, for 1/N to N/N.",
    ),
]

Unit = Annotated[
    Literal["document", "paragraph", "line"] | None, typer.Option(help="Format text: the part of a file that is one text.")
]

Levels = Annotated[
    str | None, typer.Option(help="Format book: the levels below the document, e.g. chapter,paragraph,sentence.")
]

Divisions = Annotated[
    Literal["flatten", "level"] | None,
    typer.Option(help="Format book: parts of a work are titles (flatten) or a level of their own."),
]

TextColumn = Annotated[str | None, typer.Option(help="Tables: the column with the text.")]

ChildrenKeys = Annotated[
    str | None,
    typer.Option(help="Nested posts as JSON: the keys of the answers to a post, such as comments,replies. Implies the format."),
]

PairColumn = Annotated[str | None, typer.Option(help="Labelled tables: the column with the second text of a pair.")]

LabelColumn = Annotated[str | None, typer.Option(help="Tables: the column with the label.")]

Cleanings = Annotated[
    list[str] | None,
    typer.Option(
        help="Clean the texts; repeatable. quotes: remove quoted lines; links: replace each link by `<link>`; space: "
        "normalise white space and remove invisible characters."
    ),
]

NearDuplicates = Annotated[
    Literal["exact", "minhash"] | None,
    typer.Option(
        help="Leave out repeated texts. exact: equal up to case, white space and links; minhash: at least 80 % of the "
        "five-word shingles in common, for texts of eight words or more."
    ),
]

DropBots = Annotated[bool, typer.Option("--drop-bots", help="Leave out known bots and authors whose names end in “bot”.")]

Bots = Annotated[list[str] | None, typer.Option(help="With --drop-bots: another author to leave out; repeatable.")]

Anonymise = Annotated[bool, typer.Option("--anonymise", help="Replace authors' names by pseudonyms.")]

Salt = Annotated[
    str,
    typer.Option(
        help="With --anonymise: secret from which pseudonyms follow; the same salt gives the same ones. Default: random."
    ),
]

MinNodes = Annotated[int, typer.Option(min=1, help="Leave out trees with fewer nodes.")]

MaxNodes = Annotated[int, typer.Option(min=0, help="Leave out trees with more nodes (0: no limit).")]

MinDepth = Annotated[int, typer.Option(min=0, help="Leave out trees of smaller depth (top-level comments: depth 1).")]

MemoryBound = Annotated[str, typer.Option(help="Memory bound, e.g. 512MB.")]

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing data set.")]

# --- commands -----------------------------------------------------------------------------------------------------------


@app.command()
def build(
    inputs: Inputs,
    out: OutFolder,
    format: FormatName = None,
    pattern: LogPattern = None,
    policy: Policies = None,
    split: Shares = None,
    split_by: SplitBy = None,
    fold: FoldName = None,
    unit: Unit = None,
    levels: Levels = None,
    divisions: Divisions = None,
    text: TextColumn = None,
    text_pair: PairColumn = None,
    children: ChildrenKeys = None,
    label: LabelColumn = None,
    clean: Cleanings = None,
    near_duplicates: NearDuplicates = None,
    drop_bots: DropBots = False,
    bot: Bots = None,
    anonymise: Anonymise = False,
    salt: Salt = "",
    min_nodes: MinNodes = 1,
    max_nodes: MaxNodes = 0,
    min_depth: MinDepth = 0,
    column: ColumnNames = None,
    option: FormatOptions = None,
    memory: MemoryBound = "512MB",
    overwrite: Overwrite = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Build a data set of trees from files: memory-mapped, split by tree, with counts of everything left out.

    Example: ramify data build RS_2019-01.zst RC_2019-01.zst --format pushshift --out data/reddit
    """
    from ramify import dataset

    _check_needed(f"--bot {bot[0]}" if bot else "", "--drop-bots", drop_bots)
    _check_needed("--salt" if salt else "", "--anonymise", anonymise)
    if split_by == str(STANDARD):
        raise RamifyError("--split-by - cannot be read from standard input. Name a file, or a column of the table.")
    policies = pairs(policy, "--policy")
    named = {"text": text, "text_pair": text_pair, "label": label, "children": children}
    named |= {"unit": unit, "levels": levels, "divisions": divisions}
    options = reader_options(option, pattern, column) | {name: value for name, value in named.items() if value is not None}
    with _progress() as progress:
        store = dataset.build(
            inputs,
            format,
            out,
            policy=dataset.Policy.named(policies),
            split=None if split is None else _shares(split),
            split_by=split_by,
            fold=fold,
            clean=clean or [],
            near_duplicates=near_duplicates,
            drop_bots=drop_bots,
            bots=bot or [],
            anonymise=anonymise,
            salt=salt,
            min_nodes=min_nodes,
            max_nodes=max_nodes,
            min_depth=min_depth,
            memory=_bytes(memory),
            overwrite=overwrite,
            options=options,
            verbose=verbose,
            progress=progress,
            tell=tell,
        )
    _print_notes(store.info, policies.keys())
    if as_json:
        print(json.dumps(store.info, ensure_ascii=False))
    else:
        _print_counts(out, store.info)


def _check_needed(option: str, needed: str, given: bool) -> None:
    """Raise if an option is given without the one that it needs. An empty option is not given."""
    if option and not given:
        raise RamifyError(f"{option} needs {needed}. Add {needed}, or leave {option} out.")


@app.command()
def show(
    folder: Folder,
    tree: Annotated[str | None, typer.Option(help="Id of the tree. Default: a tree of medium size.")] = None,
    max_nodes: Annotated[int, typer.Option(min=1, help="Maximum number of nodes to draw.")] = 40,
) -> None:
    """Draw a tree as text. A document is drawn as its outline: the titles of its divisions, and what they hold.

    Example: ramify data show data/reddit --tree 5yarj
    """
    from ramify.cli.tree_view import FRONT_MATTER, draw, is_document, outline
    from ramify.dataset import Store

    store = Store.open(folder)
    number = _medium_tree(store.offsets, max_nodes) if tree is None else store.find_tree(tree)
    chosen = store.tree(number)
    deepest = store.depth[store.offsets[number] : store.offsets[number + 1]].max()
    print(f"tree {chosen.id}: {counted(len(chosen), 'node')}, {deepest:,} deep")
    for name, value in chosen.meta.items():
        print(f"{name}: {value}")
    if is_document(chosen) and (left := {name: count for name, count in store.info["skipped"].items() if name in FRONT_MATTER}):
        taken = ", ".join(f"{name} {count:,}" for name, count in left.items())
        print(f"left out as front matter{' of all documents' if store.num_trees > 1 else ''}: {taken}")
        for name in left if store.num_trees == 1 else ():
            for place in store.info["examples"].get(name, ()):
                print(f"  {name}: {printable(place)}")
    lines = outline if is_document(chosen) else draw
    for line in lines(chosen, shutil.get_terminal_size((100, 24)).columns, max_nodes):
        print(line)


@app.command()
def stats(
    folder: Folder,
    as_json: Json = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Also plot depth, width and length into a .png, .svg or .pdf file.")
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            help="Tokenizer (a tokenizer.json or its folder; - reads stdin) with which to count tokens, and those past "
            "--max-tokens."
        ),
    ] = None,
    max_tokens: Annotated[
        int, typer.Option(min=3, help="With --tokenizer: longest text in tokens, special tokens included.")
    ] = 128,
) -> None:
    """Count trees, nodes and posts left out, and measure depth, width and length.

    Example: ramify data stats data/reddit --out shape.svg --tokenizer runs/reddit
    """
    from ramify.dataset import Store
    from ramify.dataset import statistics as shape

    check_beside(out, "--out")
    store = Store.open(folder)
    counts = shape.statistics(store)
    if tokenizer is not None:
        counts["tokens"] = _tokens(store, tokenizer, max_tokens)
    if out is not None:
        shape.plot(store, out)
        tell(f"plot: {out}")
    if as_json:
        print(json.dumps(counts, ensure_ascii=False))
        return
    _print_counts(folder, counts)
    for name in shape.BY_NAME:
        if counts[name]:
            print(f"{name}: {', '.join(f'{key} {_shown(value)}' for key, value in counts[name].items())}")
    columns = ("mean", *(f"p{share * 100:.0f}" for share in shape.QUANTILES), "max")
    print(f"\n{'':34}" + "".join(f"{column:>10}" for column in columns))
    for name, title in shape.MEASURES.items():
        values = (counts[name].get(column, 0) for column in columns)
        print(
            f"{title:34}"
            + "".join(f"{value:>10,.1f}" if column == "mean" else f"{value:>10,.0f}" for column, value in zip(columns, values))
        )
    if tokenizer is not None:
        cut = counts["tokens"]
        print(
            f"\n{counted(cut['tokens'], 'token')} in {counted(cut['texts'], 'text')}; a limit of {max_tokens} per text "
            f"(special tokens included) cuts {cut['tokens_over']:,} ({cut['share_over']:.2%}) from "
            f"{counted(cut['texts_over'], 'text')}"
        )


def _tokens(store: "Store", tokenizer: Path, max_tokens: int) -> dict[str, Any]:
    """Counts of all tokens, and of those past `max_tokens`."""
    from ramify.batching.forest import Forest, share_over
    from ramify.tokenizer import Tokenizer

    cut = Forest.open(store, Tokenizer.load(tokenizer), max_tokens).cut
    return {**cut, "share_over": share_over(cut), "max_tokens": max_tokens}


@app.command("export")
def export_trees(
    folders: Annotated[list[Path], typer.Argument(help="Data sets built by `ramify data build`.")],
    out: Annotated[
        Path, typer.Option("--out", help="File to write, or folder for convokit and datasets; - writes a file to stdout.")
    ],
    format: Annotated[
        Literal["jsonl", "csv", "parquet", "convokit", "datasets"] | None,
        typer.Option(
            help="jsonl: one tree per line; csv, parquet: one row per node; convokit: a corpus folder; datasets: a folder for "
            "Hugging Face `load_dataset`. Default: by the ending of --out; jsonl on stdout."
        ),
    ] = None,
) -> None:
    """Write data sets to read them elsewhere, or to build one data set from several.

    `ramify data build` reads jsonl, csv, parquet and convokit back to the same trees.

    Example: ramify data export data/reddit data/forum --out both.jsonl

    Example: ramify data export data/reddit --out reddit.parquet

    Example: ramify data export data/reddit --format datasets --out reddit-datasets

    Example: ramify data export data/reddit --format csv --out - | head
    """
    from ramify.dataset import Store
    from ramify.dataset.export import Format, export

    kinds: dict[str, Format] = {"-": "jsonl", ".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet"}
    kind = format or file_kind(out, kinds, "--format")
    stores = [Store.open(folder) for folder in folders]
    export(stores, out, kind)
    print(f"{out}: {counted(sum(store.num_trees for store in stores), 'tree')}", file=sys.stderr)


@app.command("split")
def split_trees(
    data: Annotated[
        Path, typer.Argument(help="A data set built by `ramify data build`, or a JSON lines file of trees; - reads stdin.")
    ],
    max_tree_size: Annotated[int, typer.Option("--max-tree-size", help="Maximum number of comments per piece (M).")],
    pack: Annotated[bool, typer.Option("--pack/--no-pack", help="Put sibling subtrees into one piece while they fit.")] = True,
    bound: Annotated[
        Literal["strict", "soft"], typer.Option(help="strict: cut paths longer than M; soft: keep them whole.")
    ] = "strict",
    weighting: Annotated[
        Literal["once", "share", "seed"],
        typer.Option(
            help="Predict each comment in one piece (once), or in every piece that holds it, weighted by share or by 1 (seed)."
        ),
    ] = "once",
    as_json: Json = False,
) -> None:
    """Cut trees into pieces of bounded size and print a summary.

    With --json, print one line per piece: its context (ids from root to parent, without the post), targets and weights.

    Example: ramify data split trees.jsonl --max-tree-size 60 --json
    """
    from ramify.tree import split

    trees = pieces = targets = context = largest = 0
    for name, tree_id, parent, ids in _structures(data):
        trees += 1
        for piece in split(parent, max_tree_size, pack=pack, bound=bound, weighting=weighting, name=name):
            pieces += 1
            targets += len(piece.targets)
            context += len(piece.context)
            largest = max(largest, len(piece.targets) + len(piece.context))
            if as_json:
                line = {
                    "tree": tree_id,
                    "context": [ids[node] for node in piece.context],
                    "targets": [ids[node] for node in piece.targets],
                    "weights": piece.weights,
                }
                print(json.dumps(line, ensure_ascii=False))
    if not as_json:
        print(f"{counted(trees, 'tree')}, {counted(pieces, 'piece')} of at most {counted(largest, 'comment')}")
        print(f"{counted(targets, 'target')}, {counted(context, 'context comment')} ({context / max(pieces, 1):.1f} per piece)")


def _structures(data: Path) -> Iterator[tuple[str, str, "Indices", list[str]]]:
    """(name for messages, tree id, parents, node ids) of every tree of a built data set or a JSON lines file."""
    from ramify.dataset import Store
    from ramify.readers.jsonl import numbered_trees
    from ramify.tree import NO_PARENT

    if data == STANDARD or (data.exists() and not data.is_dir()):
        for line, tree in numbered_trees(data):
            try:
                parent = tree.parent
            except RamifyError as error:
                raise RamifyError(f"{data}, line {line}: {error}") from None
            yield f"{data}, line {line}: tree {tree.id!r}", tree.id, parent, [node.id for node in tree.nodes]
        return
    store = Store.open(data)
    for number, tree_id in enumerate(store.tree_ids(range(store.num_trees))):
        start, stop = store.offsets[number : number + 2].tolist()
        parent = store.parent[start:stop]
        local = parent - start
        local[parent == NO_PARENT] = NO_PARENT
        yield f"{data}: tree {tree_id!r}", tree_id, local, store.ids(range(start, stop))


def _medium_tree(offsets: "Indices", max_nodes: int) -> int:
    """The first of the trees whose size is closest to half of `max_nodes`."""
    import numpy as np

    return int(np.argmin(np.abs(np.diff(offsets) - max_nodes / 2)))


def _print_notes(info: dict[str, Any], policies: Collection[str]) -> None:
    """Print, on stderr, policies without effect, columns and files that nothing read, and splits that would be empty."""
    from ramify.dataset.splits import FILLED
    from ramify.readers import find_format

    reader = find_format(info["format"])
    idle = set(policies) - WHOLE_TREE_POLICIES if reader.yields != "posts" and not reader.takes_policy else ()
    if idle:
        tell(
            f"note: --policy {', '.join(sorted(idle))} has no effect, because the format {reader.name!r} holds whole trees, "
            "whose posts are not joined"
        )
    names = (
        "a column with --column OURS=THEIRS" if "columns" in reader.options else "columns with --text, --text-pair or --label"
    )
    for path, columns in info["unread_columns"].items():
        tell(f"note: {path}: unused columns: {', '.join(columns)}. Name {names}.")
    for where in info["examples"].get(FILLED, []):
        tell(f"note: {where}, because no hash falls into its share")
    for reason in DOUBTS:
        for place in info["examples"].get(reason, [])[:1]:
            more = info["kept"][reason] - 1
            tell(f"note: {place}{f' ({more:,} more)' if more else ''}")
    for reason in WHOLE_FILES:
        places = info["examples"].get(reason, [])
        for place in places:
            tell(f"note: not read: {place}")
        if more := info["skipped"].get(reason, 0) - len(places):
            tell(f"note: not read: {more:,} more ({reason})")


def _print_counts(folder: Path, counts: dict[str, Any]) -> None:
    from ramify.dataset.statistics import NOUNS, content

    tree, node = NOUNS[counts["structure"]]
    print(f"{folder}: {content(counts)}")
    for name, split in counts["splits"].items():
        nodes = f" {counted(split['nodes'], 'node'):>18}" if tree != node else ""
        print(f"  {name:5} {counted(split['trees'], tree):>16}{nodes}")
    for name, title in (("skipped", "left out"), ("kept", "repaired")):
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in counts[name].items() if count)
        print(f"{title}: {reasons or 'nothing'}")
    print(f"{counted(counts['read'], node)} read; content hash {counts['hash'][:16]}")


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


# --- values of options --------------------------------------------------------------------------------------------------


def _shares(text: str) -> Sequence[float]:
    try:
        return [float(share) for share in text.split(",")]
    except ValueError:
        raise RamifyError(f"--split {text} is not a list of shares. Give three, such as 0.9,0.05,0.05.") from None


def _bytes(text: str) -> int:
    number, unit = text[:-2], text[-2:].upper()
    try:
        size = int(float(number) * UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise RamifyError(f"--memory {text} is not a size. Give a positive number with KB, MB or GB, such as 512MB.")
    return size


@contextmanager
def _progress() -> Iterator["Progress"]:
    """A bar per stage of a build, on stderr if that is a terminal, else lines. Yields a function that updates it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        plain = PlainProgress()
        yield lambda stage, done, total, posts: plain.update(stage, done, total)
        return
    columns = ("{task.description}", BarColumn(), TaskProgressColumn(), "{task.fields[posts]:,} posts", TimeElapsedColumn())
    with Progress(*columns, console=console) as bars:
        rows = {}

        def tell(stage: str, done: int, total: int, posts: int) -> None:
            if stage not in rows:
                rows[stage] = bars.add_task(stage, posts=0)
            bars.update(rows[stage], completed=done, total=total, posts=posts)

        yield tell
