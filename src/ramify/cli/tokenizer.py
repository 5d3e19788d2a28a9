"""`ramify tokenizer`: train tokenizers."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from ramify.cli.progress import progress_display

app = typer.Typer(
    help="Train tokenizers.\n\nExample: ramify tokenizer train data/reddit --out tokenizer.json", no_args_is_help=True
)


@app.command("train")
def train(
    data: Annotated[Path, typer.Argument(help="A data set built by `ramify data build`.")],
    out: Annotated[Path, typer.Option("--out", help="The tokenizer.json to write; - writes to stdout.")],
    kind: Annotated[Literal["wordpiece", "bpe", "unigram", "word"], typer.Option(help="Tokenization algorithm.")] = "wordpiece",
    vocab_size: Annotated[int, typer.Option(min=1, help="Size of the vocabulary, special tokens included.")] = 16_384,
    lowercase: Annotated[bool, typer.Option(help="Lowercase texts first.")] = True,
) -> None:
    """Train a tokenizer on the training split, or on a uniform sample of 64 MiB if it is larger.

    Example: ramify tokenizer train data/reddit --out tokenizer.json --kind bpe --vocab-size 32000
    """
    from ramify.dataset.store import Store
    from ramify.errors import counted
    from ramify.runs.tokenizers import TokenizerConfig, train_tokenizer

    with progress_display():
        trained = train_tokenizer(Store.open(data), TokenizerConfig(kind=kind, vocab_size=vocab_size, lowercase=lowercase))
    trained.save(out)
    print(f"{out}: {counted(trained.vocab_size, 'piece')}", file=sys.stderr)
