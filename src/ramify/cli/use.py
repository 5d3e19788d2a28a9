"""Commands on trained models: `ramify embed`, `fill-mask` and `report`; and `ramify tokenizer train`."""

import json
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ramify.cli.shared import Device, Json, Precision, bar, mask_filler, text_pipeline

if TYPE_CHECKING:
    from ramify.tree import Tree

tokenizer = typer.Typer(
    help="Train tokenizers.\n\nExample: ramify tokenizer train data/reddit --out tokenizer.json", no_args_is_help=True
)


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a run, finished or not.")],
    data: Annotated[Path | None, typer.Option("--data", help="Data set to evaluate on. Default: the run's own.")] = None,
    split: Annotated[Literal["train", "dev", "test", "all"], typer.Option(help="Split to evaluate on.")] = "dev",
    draws: Annotated[int, typer.Option(min=1, help="Number of mask draws per comment.")] = 8,
    comments: Annotated[int, typer.Option(min=0, help="Evaluate only the first trees, up to this many comments (0: all).")] = 0,
    evaluate: Annotated[
        bool,
        typer.Option("--evaluate/--no-evaluate", help="Evaluate the model and fill masks, or draw only the training curves."),
    ] = True,
    device: Device = "auto",
) -> None:
    """Write the report.html of a run: curves, scores, examples, data and settings.

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
    out: Annotated[Path, typer.Option("--out", help="File to write.")],
    context: Annotated[
        Literal["tree", "none"] | None,
        typer.Option(help="Context of a comment: its ancestors (tree) or nothing (none). Default: as in training."),
    ] = None,
    format: Annotated[
        Literal["parquet", "npy"] | None,
        typer.Option(
            help="parquet: columns tree, id, vector; npy: the matrix, ids in a second file. Default: by the extension of --out."
        ),
    ] = None,
    device: Device = "auto",
    precision: Precision = "fp32",
) -> None:
    """Write a vector for every comment. Vectors are streamed; about fifty bytes per comment stay in memory.

    Example: ramify embed runs/reddit --data data/reddit --out vectors.parquet --context tree
    """
    import ramify
    from ramify.errors import RamifyError
    from ramify.inference.vectors import write_vectors
    from ramify.nn.precision import autocast

    kinds: dict[str, Literal["parquet", "npy"]] = {".parquet": "parquet", ".npy": "npy"}
    if format is None and out.suffix not in kinds:
        raise RamifyError(f"--out {out} does not end in .parquet or .npy. Choose one of these endings, or add --format.")
    loaded = text_pipeline(ramify.load(model, device=device), model)
    kind = format or kinds[out.suffix]
    with bar("embedding", None) as advance, autocast(loaded.device, precision):
        cut = write_vectors(loaded, data, out, kind, context, advance)
    print(f"{out}: {cut['vectors']:,} vectors of size {loaded.dim}", file=sys.stderr)
    if cut["texts_over"]:
        limit = loaded.input.max_tokens
        print(f"{cut['texts_over']:,} of {cut['texts']:,} texts had more than {limit} tokens and were cut", file=sys.stderr)


def fill_mask(
    run: Annotated[str, typer.Argument(help="A run or a saved model.")],
    data: Annotated[Path, typer.Option("--data", help="A JSON lines file of trees, or a built data set.")],
    node: Annotated[str, typer.Option("--node", help="Id of the node whose text holds [MASK].")],
    tree: Annotated[
        str | None, typer.Option("--tree", help="Id of the tree, needed if several trees have such a node.")
    ] = None,
    context: Annotated[
        Literal["tree", "none", "parent", "null"] | None, typer.Option(help="Context of the node. Default: as in training.")
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, help="Number of tokens to show per mask.")] = 5,
    candidates: Annotated[str | None, typer.Option(help="Words to choose from, separated by commas.")] = None,
    joint: Annotated[bool, typer.Option(help="Also fill all masks jointly, by beam search.")] = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Fill [MASK] in a comment, given its ancestors.

    Example: ramify fill-mask runs/reddit --data trees.jsonl --node c42 --context tree --json
    """
    import ramify
    from ramify.errors import RamifyError

    words = None if candidates is None else [word.strip() for word in candidates.split(",") if word.strip()]
    if words == []:
        raise RamifyError(f"--candidates {candidates!r} holds no words. Separate words by commas.")
    model = mask_filler(ramify.load(run, device=device), run)
    answer = model.fill_mask(find_tree(data, node, tree), node, top_k=top_k, context=context, candidates=words, joint=joint)
    if as_json:
        print(json.dumps(answer, ensure_ascii=False))
        return
    print(f"node {answer['node']}, context {answer['context']} ({len(answer['ancestors'])} ancestors)")
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


@tokenizer.command("train")
def train_tokenizer(
    data: Annotated[Path, typer.Argument(help="A data set built by `ramify data build`.")],
    out: Annotated[Path, typer.Option("--out", help="The tokenizer.json to write.")],
    kind: Annotated[Literal["wordpiece", "bpe", "unigram"], typer.Option(help="Tokenization algorithm.")] = "wordpiece",
    vocab_size: Annotated[int, typer.Option(min=1, help="Size of the vocabulary, special tokens included.")] = 16_384,
    lowercase: Annotated[bool, typer.Option(help="Lowercase texts first.")] = True,
) -> None:
    """Train a tokenizer on the training split, or on a uniform sample of 64 MiB if it is larger.

    Example: ramify tokenizer train data/reddit --out tokenizer.json --kind bpe --vocab-size 32000
    """
    from ramify.dataset.store import Store
    from ramify.runs.comment_trees import TokenizerConfig
    from ramify.runs.comment_trees import train_tokenizer as train

    trained = train(Store.open(data), TokenizerConfig(kind=kind, vocab_size=vocab_size, lowercase=lowercase))
    trained.save(out)
    print(f"{out}: {trained.vocab_size:,} pieces", file=sys.stderr)
