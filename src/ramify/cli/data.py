"""`ramify data`: build, show, count and split data sets of trees."""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ramify.cli.shared import Json, guessed, options_of, pairs
from ramify.errors import RamifyError

if TYPE_CHECKING:
    from ramify.dataset import Store
    from ramify.dataset.build import Progress
    from ramify.tree import Indices

app = typer.Typer(help="Build, show, count and split data sets of trees.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="A data set built by `ramify data build`.")]

WHOLE_TREE_POLICIES = {"deleted", "empty", "duplicate_id"}
"""What concerns formats whose trees come with their structure."""
UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


@app.command()
def build(
    inputs: Annotated[list[Path], typer.Argument(help="Files, compressed or not, or folders of them.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")],
    format: Annotated[str | None, typer.Option(help="What the files are; guessed by default.")] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CASE=WHAT",
            help="deleted, empty = reattach|keep|drop|tree; orphan = root|drop; missing_parent = root|drop; "
            "cycle = drop|root; duplicate_id = first|last; two_roots = split|first|forest; missing_root = placeholder|drop. "
            "The first of each is the default.",
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Shares of train, dev and test, by tree.")] = "0.9,0.05,0.05",
    clean: Annotated[
        list[str] | None,
        typer.Option(
            help="quotes (quoted lines go), links (each becomes <link>), space (evened out, invisible characters go)."
        ),
    ] = None,
    near_duplicates: Annotated[
        Literal["exact", "minhash"] | None,
        typer.Option(
            help="Leave out texts equal but for case, space and links, or (from eight words on) sharing 80 % of 5-word runs."
        ),
    ] = None,
    drop_bots: Annotated[bool, typer.Option("--drop-bots", help="Leave out known bots and names that end in “bot”.")] = False,
    bot: Annotated[list[str] | None, typer.Option(help="A further bot to leave out (with --drop-bots).")] = None,
    anonymise: Annotated[bool, typer.Option("--anonymise", help="Replace authors by pseudonyms.")] = False,
    salt: Annotated[
        str, typer.Option(help="Secret of the pseudonyms: equal salts give equal names; drawn at random by default.")
    ] = "",
    min_nodes: Annotated[int, typer.Option(min=1, help="Leave out smaller trees.")] = 1,
    max_nodes: Annotated[int, typer.Option(min=0, help="Leave out larger trees (0 = none).")] = 0,
    min_depth: Annotated[int, typer.Option(min=0, help="Leave out trees that are nowhere so deep.")] = 0,
    column: Annotated[list[str] | None, typer.Option(metavar="OURS=THEIRS", help="Format table: which column is what.")] = None,
    option: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A further option of the format.")] = None,
    memory: Annotated[str, typer.Option(help="What may be held at a time, such as 512MB.")] = "512MB",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a data set that is there.")] = False,
    as_json: Json = False,
) -> None:
    """Turn files into a data set of trees: memory-mapped Arrow, split by tree, with a report of what was left out.

    Example: ramify data build RS_2019-01.zst RC_2019-01.zst --format pushshift --out data/reddit
    """
    from ramify import dataset, readers

    options = options_of(option)
    if column:
        options["columns"] = pairs(column, "--column")
    if bot and not drop_bots:
        raise RamifyError("--bot names further bots for --drop-bots: say that too.")
    if salt and not anonymise:
        raise RamifyError("--salt is for the pseudonyms of --anonymise: say that too.")
    policies = pairs(policy, "--policy")
    chosen = dataset.Policy.named(policies)
    format = format or guessed(inputs)
    known = readers.find(format)
    idle = policies.keys() - WHOLE_TREE_POLICIES if known.yields != "posts" and not known.takes_policy else ()
    if idle:
        print(
            f"note: the format {format!r} holds whole trees, whose posts are not joined: "
            f"the policies for {', '.join(sorted(idle))} change nothing",
            file=sys.stderr,
        )
    with _progress() as progress:
        store = dataset.build(
            inputs,
            format,
            out,
            policy=chosen,
            split=_shares(split),
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
            progress=progress,
            options=options,
        )
    if as_json:
        print(json.dumps(store.info, ensure_ascii=False))
    else:
        _print_counts(out, store.info)


@app.command()
def show(
    folder: Folder,
    tree: Annotated[str | None, typer.Option(help="The id of a tree; by default one of medium size.")] = None,
    max_nodes: Annotated[int, typer.Option(min=1, help="Nodes to draw.")] = 40,
) -> None:
    """Draw a tree.

    Example: ramify data show data/reddit --tree 5yarj
    """
    from ramify.cli.drawing import draw
    from ramify.dataset import Store

    store = Store.open(folder)
    number = _medium_tree(store.offsets, max_nodes) if tree is None else store.find_tree(tree)
    found = store.tree(number)
    deepest = store.depth[store.offsets[number] : store.offsets[number + 1]].max()
    print(f"tree {found.id}: {len(found):,} nodes, {deepest:,} deep")
    for name, value in found.meta.items():
        print(f"{name}: {value}")
    for line in draw(found, shutil.get_terminal_size((100, 24)).columns, max_nodes):
        print(line)


@app.command()
def stats(
    folder: Folder,
    as_json: Json = False,
    plot: Annotated[Path | None, typer.Option(help="Also draw depth, width and length: a .png, .svg or .pdf file.")] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Also count tokens, and those that are cut: a tokenizer.json, or a folder with one.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=3, help="With --tokenizer: the longest text, with special tokens.")] = 128,
) -> None:
    """Count trees and nodes, what was left out and why; measure depth, width and length.

    Example: ramify data stats data/reddit --plot shape.svg --tokenizer runs/reddit
    """
    from ramify.dataset import Store
    from ramify.dataset import statistics as shape

    store = Store.open(folder)
    counted = shape.statistics(store)
    if tokenizer is not None:
        counted["tokens"] = _tokens(store, tokenizer, max_tokens)
    if plot is not None:
        shape.plot(store, plot)
    if as_json:
        print(json.dumps(counted, ensure_ascii=False))
        return
    _print_counts(folder, counted)
    columns = ("mean", *(f"p{share * 100:.0f}" for share in shape.QUANTILES), "max")
    print(f"\n{'':34}" + "".join(f"{column:>10}" for column in columns))
    for name, title in shape.MEASURES.items():
        values = (counted[name].get(column, 0) for column in columns)
        print(
            f"{title:34}"
            + "".join(f"{value:>10,.1f}" if column == "mean" else f"{value:>10,.0f}" for column, value in zip(columns, values))
        )
    if tokenizer is not None:
        print(
            "\n{tokens:,} tokens in {texts:,} texts; with at most {max_tokens} a text (special tokens counted) {tokens_over:,} "
            "({share_over:.2%}) are cut, from {texts_over:,} texts".format_map(counted["tokens"])
        )


def _tokens(store: "Store", tokenizer: Path, max_tokens: int) -> dict[str, Any]:
    """How many tokens there are, and how many lie past the longest text."""
    from ramify.batching.forest import Forest, share_over
    from ramify.tokenizer import Tokenizer

    cut = Forest.open(store, Tokenizer.load(tokenizer), max_tokens).cut
    return {**cut, "share_over": share_over(cut), "max_tokens": max_tokens}


@app.command()
def export(
    folders: Annotated[list[Path], typer.Argument(help="Data sets built by `ramify data build`.")],
    out: Annotated[Path, typer.Option("--out", help="The JSON lines file to write, one tree a line.")],
) -> None:
    """Write data sets out as JSON lines of trees: to read them elsewhere, or to build one data set from several.

    Example: ramify data export data/reddit data/forum --out both.jsonl
    """
    from ramify.dataset import Store
    from ramify.files import replacing

    stores = [Store.open(folder) for folder in folders]
    with replacing(out) as scratch, open(scratch, "w", encoding="utf-8") as file:
        for store in stores:
            file.writelines(tree.to_json() + "\n" for tree in store.trees())
    print(f"{out}: {sum(store.num_trees for store in stores):,} trees", file=sys.stderr)


@app.command("split")
def split_trees(
    data: Annotated[Path, typer.Argument(help="A data set built by `ramify data build`, or a JSON lines file of trees.")],
    max_tree_size: Annotated[int, typer.Option("--max-tree-size", help="Comments in a piece, at most (M).")],
    pack: Annotated[bool, typer.Option("--pack/--no-pack", help="Sibling subtrees share a piece while they fit.")] = True,
    bound: Annotated[
        Literal["strict", "soft"], typer.Option(help="strict cuts paths longer than M; soft keeps them, and exceeds M.")
    ] = "strict",
    weighting: Annotated[
        Literal["once", "share", "seed"],
        typer.Option(help="Predict a comment in one piece (once), or in all that hold it, weighted by its share, or by 1."),
    ] = "once",
    as_json: Json = False,
) -> None:
    """Cut trees into bounded pieces: with --json a line a piece, its context (ids, root to parent, without the post), its
    targets and their weights; without, a summary.

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
        print(f"{trees:,} trees, {pieces:,} pieces of at most {largest:,} comments")
        print(f"{targets:,} targets, {context:,} context comments ({context / max(pieces, 1):.1f} a piece)")


def _structures(data: Path) -> Iterator[tuple[str, str, "Indices", list[str]]]:
    """(what messages call the tree, tree id, parents, node ids) of every tree of a built data set or a JSON lines file."""
    from ramify.dataset import Store
    from ramify.readers.jsonl import numbered_trees
    from ramify.tree import NO_PARENT

    if data.exists() and not data.is_dir():
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
    """The first of the trees that come nearest to filling a screen."""
    import numpy as np

    return int(np.argmin(np.abs(np.diff(offsets) - max_nodes / 2)))


def _print_counts(folder: Path, counted: dict[str, Any]) -> None:
    print(f"{folder}: {counted['trees']:,} trees, {counted['nodes']:,} nodes, {counted['comments']:,} of them comments")
    for name, split in counted["splits"].items():
        print(f"  {name:5} {split['trees']:>10,} trees {split['nodes']:>12,} nodes")
    for name, title in (("skipped", "left out"), ("kept", "mended")):
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in counted[name].items() if count)
        print(f"{title}: {reasons or 'nothing'}")
    print(f"{counted['read']:,} posts were read; content hash {counted['hash'][:16]}")


# --- values of options --------------------------------------------------------------------------------------------------


def _shares(text: str) -> Sequence[float]:
    try:
        return [float(share) for share in text.split(",")]
    except ValueError:
        raise RamifyError(f"--split takes three shares, such as 0.9,0.05,0.05, not {text!r}.") from None


def _bytes(text: str) -> int:
    number, unit = text[:-2], text[-2:].upper()
    try:
        size = int(float(number) * UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise RamifyError(f"--memory takes a positive number and KB, MB or GB, such as 512MB, not {text!r}.")
    return size


@contextmanager
def _progress() -> Iterator["Progress"]:
    """Bytes read, nodes written and posts a second, on stderr where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = ("{task.description}", BarColumn(), TaskProgressColumn(), "{task.fields[posts]:,} posts", TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        rows = {}

        def tell(stage: str, done: int, total: int, posts: int) -> None:
            if stage not in rows:
                rows[stage] = bars.add_task(stage, posts=0)
            bars.update(rows[stage], completed=done, total=total, posts=posts)

        yield tell
