"""What trained models are used for: `ramify evaluate`, `embed`, `fill-mask`, and `ramify tokenizer train`."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from ramify.tasks.masked_lm import MaskedLM
    from ramify.tree import Tree

tokenizer = typer.Typer(help="Train tokenizers.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Device = Annotated[
    str,
    typer.Option("--device", help="Where to compute: cpu, cuda, cuda:1 …; auto is the accelerator that torch finds, else cpu."),
]
Precision = Annotated[
    Literal["fp32", "bf16"],
    typer.Option(help="bf16 is faster where the processor has it (GPUs, CPUs with AMX or AVX-512 BF16); scores move a little."),
]


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run or a saved model.")],
    data: Annotated[Path, typer.Option("--data", help="A data set built by `ramify data build`.")],
    context: Annotated[
        Literal["tree", "none", "parent", "wrong", "null"] | None,
        typer.Option(
            help="What a comment reads: its ancestors, nothing, its parent, another tree's ancestors, or the learned "
            "null row. Default: as the model was trained."
        ),
    ] = None,
    split: Annotated[Literal["train", "dev", "test", "all"], typer.Option(help="The trees to evaluate on.")] = "test",
    draws: Annotated[int, typer.Option(min=1, help="Masks drawn for every comment, by the hash of its id.")] = 8,
    mask_rate: Annotated[float | None, typer.Option(help="Share of tokens that is masked. Default: as in training.")] = None,
    save: Annotated[Path | None, typer.Option(help="Keep the sums by tree (.npz), for paired comparisons.")] = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    as_json: Json = False,
) -> None:
    """Held-out loss in nats per masked token, perplexity and accuracy, also by depth. The masks are the same for every model.

    Example: ramify evaluate runs/reddit --data data/reddit --context none --json
    """
    from ramify.dataset.store import Store
    from ramify.errors import RamifyError
    from ramify.evaluate import evaluate as score
    from ramify.nn.precision import autocast
    from ramify.run import discussions

    task = _masked_lm(str(run), device)
    store = Store.open(data)
    trees = store.held(split)
    forest = task.forest(store)
    view, collator = discussions(task, forest, trees, seen=context)
    with bar("evaluating", int(view.sizes.sum())) as advance, autocast(task.device, precision):
        scores = score(task, view, collator, trees, draws=draws, mask_rate=mask_rate, progress=advance)
    if save is not None:
        scores.save(save)
    summary = scores.summary()
    if not summary["count"]:
        raise RamifyError(f"no comment of {data} ({split}) has a token that could be masked.")
    if as_json:
        print(json.dumps(summary))
        return
    print(f"{'depth':>6} {'loss':>8} {'accuracy':>9} {'masked tokens':>14}")
    for depth, row in [("all", summary), *summary["by_depth"].items()]:
        print(f"{depth:>6} {row['loss']:>8.4f} {row['accuracy']:>9.2%} {row['count']:>14,}")
    rate = mask_rate or task.config.mask_rate
    print(f"perplexity {summary['perplexity']:.2f}; {rate:.0%} of the tokens masked, {draws} draw(s)")


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
        Literal["tree", "none"] | None, typer.Option(help="Given everything said above (tree), or the text alone (none).")
    ] = None,
    format: Annotated[
        Literal["parquet", "npy"] | None,
        typer.Option(help="parquet: columns tree, id, vector; npy: the matrix, with ids beside it."),
    ] = None,
    device: Device = "auto",
    precision: Precision = "fp32",
) -> None:
    """A vector for every comment, streamed to a file: any corpus size.

    Example: ramify embed runs/reddit --data data/reddit --out vectors.parquet --context tree
    """
    import ramify
    from ramify.nn.precision import autocast
    from ramify.vectors import write_vectors

    loaded = ramify.load(model, device=device)
    kind = format or ("npy" if out.suffix == ".npy" else "parquet")
    with bar("embedding", None) as advance, autocast(loaded.device, precision):
        cut = write_vectors(loaded, data, out, kind, context, advance)
    print(f"{out}: {cut['vectors']:,} vectors of {loaded.backbone.embedding.embedding_dim} numbers", file=sys.stderr)
    if cut["texts_over"]:
        limit = loaded.reading.max_tokens
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
    from ramify.errors import RamifyError

    words = None if candidates is None else [word.strip() for word in candidates.split(",") if word.strip()]
    if words == []:
        raise RamifyError(f"--candidates takes words separated by commas; {candidates!r} holds none.")
    task = _masked_lm(run, device)
    answer = task.fill_mask(find_tree(data, node, tree), node, top_k=top_k, context=context, candidates=words, joint=joint)
    if as_json:
        print(json.dumps(answer, ensure_ascii=False))
        return
    print(f"node {answer['node']}, given {answer['context']} ({len(answer['ancestors'])} nodes above)")
    for mask in answer["masks"]:
        guesses = "  ".join(f"{guess['token']} {guess['probability']:.3f}" for guess in mask["tokens"])
        print(f"  [{mask['position']}] {guesses}")
    for filled in answer.get("joint", []):
        print(f"  {filled['probability']:.4f}  {filled['text']}")


def _masked_lm(source: str, device: str) -> "MaskedLM":
    import ramify
    from ramify.errors import RamifyError
    from ramify.tasks.masked_lm import MaskedLM

    task = ramify.load(source, device=device)
    if not isinstance(task, MaskedLM):
        raise RamifyError(f"{source} holds no masked language model; it can {', '.join(task.verbs)}.")
    return task


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
    from ramify.run import TokenizerConfig
    from ramify.run import train_tokenizer as train

    trained = train(Store.open(data), TokenizerConfig(kind=kind, vocab_size=vocab_size, lowercase=lowercase))
    trained.save(out)
    print(f"{out}: {trained.vocab_size:,} pieces", file=sys.stderr)


@contextmanager
def bar(what: str, total: int | None) -> Iterator[Any]:
    """A progress bar on stderr, where that is a terminal; yields a function that advances it."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        row = progress.add_task(what, total=total)
        yield lambda count: progress.advance(row, count)
