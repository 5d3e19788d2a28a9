"""What trained models are used for: `ramify embed`, `fill-mask`, `report`, and `ramify tokenizer train`."""

import json
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ramify.cli.shared import Device, Json, Precision, bar, mask_filler, text_pipeline

if TYPE_CHECKING:
    from ramify.tree import Tree

tokenizer = typer.Typer(help="Train tokenizers.", no_args_is_help=True)


def report(
    run: Annotated[Path, typer.Argument(help="A run's folder, finished or not.")],
    data: Annotated[Path | None, typer.Option("--data", help="The data set to evaluate on; by default the run's own.")] = None,
    split: Annotated[Literal["train", "dev", "test", "all"], typer.Option(help="The trees to evaluate on.")] = "dev",
    draws: Annotated[int, typer.Option(min=1, help="Masks drawn for every comment.")] = 8,
    comments: Annotated[int, typer.Option(min=0, help="Only the first trees that hold so many comments (0 = all).")] = 0,
    evaluate: Annotated[bool, typer.Option("--evaluate/--no-evaluate", help="Evaluate and fill masks, or only draw.")] = True,
    device: Device = "auto",
) -> None:
    """Write a run's report.html anew: curves, loss by depth with and without context, filled masks, data and settings.

    Example: ramify report runs/reddit --data data/reddit --split test
    """
    from ramify.report import write_report

    with bar("evaluating", None) as advance:
        page = write_report(
            run, data, split=split, draws=draws, comments=comments, evaluate=evaluate, device=device, progress=advance
        )
    print(page, file=sys.stderr)


def embed(
    model: Annotated[str, typer.Argument(help="A run, a Hugging Face directory, or a hub id.")],
    data: Annotated[
        Path, typer.Option("--data", help="A data set built by `ramify data build`, or a JSON lines file of trees.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The file to write.")],
    context: Annotated[
        Literal["tree", "none"] | None,
        typer.Option(help="Given everything said above (tree), or the text alone (none). Default: as it was trained."),
    ] = None,
    format: Annotated[
        Literal["parquet", "npy"] | None,
        typer.Option(
            help="parquet: columns tree, id, vector; npy: the matrix, with ids beside it. Default: by the ending of --out."
        ),
    ] = None,
    device: Device = "auto",
    precision: Precision = "fp32",
) -> None:
    """A vector for every comment, streamed to a file: some fifty bytes a comment are held.

    Example: ramify embed runs/reddit --data data/reddit --out vectors.parquet --context tree
    """
    import ramify
    from ramify.errors import RamifyError
    from ramify.inference.vectors import write_vectors
    from ramify.nn.precision import autocast

    kinds: dict[str, Literal["parquet", "npy"]] = {".parquet": "parquet", ".npy": "npy"}
    if format is None and out.suffix not in kinds:
        raise RamifyError(f"{out}: vectors are written as .parquet or .npy. Choose one of these endings, or say --format.")
    loaded = text_pipeline(ramify.load(model, device=device), model)
    kind = format or kinds[out.suffix]
    with bar("embedding", None) as advance, autocast(loaded.device, precision):
        cut = write_vectors(loaded, data, out, kind, context, advance)
    print(f"{out}: {cut['vectors']:,} vectors of {loaded.dim} numbers", file=sys.stderr)
    if cut["texts_over"]:
        limit = loaded.input.max_tokens
        print(f"{cut['texts_over']:,} of {cut['texts']:,} texts were longer than {limit} tokens and were cut", file=sys.stderr)


def fill_mask(
    run: Annotated[str, typer.Argument(help="A run or a saved model.")],
    data: Annotated[Path, typer.Option("--data", help="A JSON lines file of trees, or a built data set.")],
    node: Annotated[str, typer.Option("--node", help="The id of the node whose text holds [MASK].")],
    tree: Annotated[str | None, typer.Option("--tree", help="The id of its tree, where node ids repeat.")] = None,
    context: Annotated[Literal["tree", "none", "parent", "null"] | None, typer.Option(help="What the node reads.")] = None,
    top_k: Annotated[int, typer.Option(min=1, help="Pieces shown for every mask.")] = 5,
    candidates: Annotated[str | None, typer.Option(help="Words to choose from, separated by commas.")] = None,
    joint: Annotated[bool, typer.Option(help="Also fill all masks together (beam search).")] = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Fill [MASK] in a comment, given what was said above it.

    Example: ramify fill-mask runs/reddit --data trees.jsonl --node c42 --context tree --json
    """
    import ramify
    from ramify.errors import RamifyError

    words = None if candidates is None else [word.strip() for word in candidates.split(",") if word.strip()]
    if words == []:
        raise RamifyError(f"--candidates takes words separated by commas; {candidates!r} holds none.")
    model = mask_filler(ramify.load(run, device=device), run)
    answer = model.fill_mask(find_tree(data, node, tree), node, top_k=top_k, context=context, candidates=words, joint=joint)
    if as_json:
        print(json.dumps(answer, ensure_ascii=False))
        return
    print(f"node {answer['node']}, given {answer['context']} ({len(answer['ancestors'])} nodes above)")
    for mask in answer["masks"]:
        guesses = "  ".join(f"{guess['token']} {guess['probability']:.3f}" for guess in mask["tokens"])
        print(f"  [{mask['position']}] {guesses}")
    for filled in answer.get("joint", []):
        print(f"  {filled['probability']:.4f}  {filled['text']}")


def find_tree(data: Path, node: str, tree: str | None) -> "Tree":
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
        found = list(islice((each for each in trees if any(own.id == node for own in each.nodes)), 2 if tree is None else 1))
    if not found:
        raise RamifyError(
            f"{data} holds no node {node!r}{f' in the tree {tree!r}' if tree else ''}. Check the spelling of the id."
        )
    if len(found) > 1:
        first, second = (each.id for each in found)
        print(
            f"note: the trees {first!r} and {second!r} both have a node {node!r}; the first is taken (--tree).", file=sys.stderr
        )
    return found[0]


@tokenizer.command("train")
def train_tokenizer(
    data: Annotated[Path, typer.Argument(help="A data set built by `ramify data build`.")],
    out: Annotated[Path, typer.Option("--out", help="The tokenizer.json to write.")],
    kind: Annotated[Literal["wordpiece", "bpe", "unigram"], typer.Option(help="The algorithm.")] = "wordpiece",
    vocab_size: Annotated[int, typer.Option(min=1, help="Pieces, special tokens included.")] = 16_384,
    lowercase: Annotated[bool, typer.Option(help="Fold case first.")] = True,
) -> None:
    """Train a tokenizer on the training split (on a uniform sample of at most 64 MiB of it).

    Example: ramify tokenizer train data/reddit --out tokenizer.json --kind bpe --vocab-size 32000
    """
    from ramify.dataset.store import Store
    from ramify.runs.comment_trees import TokenizerConfig
    from ramify.runs.comment_trees import train_tokenizer as train

    trained = train(Store.open(data), TokenizerConfig(kind=kind, vocab_size=vocab_size, lowercase=lowercase))
    trained.save(out)
    print(f"{out}: {trained.vocab_size:,} pieces", file=sys.stderr)
