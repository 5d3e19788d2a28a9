"""`ramify embed`: write the vectors of all comments."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from ramify.cli.shared import Device, Precision, bar, text_pipeline


def embed(
    model: Annotated[str, typer.Argument(help="A run, a Hugging Face directory, a hub id, or tree-mlm-small.")],
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
    from ramify.errors import RamifyError, counted
    from ramify.inference.vectors import write_vectors
    from ramify.nn.precision import autocast

    kinds: dict[str, Literal["parquet", "npy"]] = {".parquet": "parquet", ".npy": "npy"}
    if format is None and out.suffix not in kinds:
        raise RamifyError(f"--out {out} does not end in .parquet or .npy. Choose one of these endings, or add --format.")
    loaded = text_pipeline(ramify.load(model, device=device), model)
    kind = format or kinds[out.suffix]
    with bar("embedding", None) as advance, autocast(loaded.device, precision):
        cut = write_vectors(loaded, data, out, kind, context, advance)
    left = f", none for {counted(cut['placeholders'], 'placeholder')}" if cut["placeholders"] else ""
    print(f"{out}: {counted(cut['vectors'], 'vector')} of size {loaded.dim}{left}", file=sys.stderr)
    if cut["texts_over"]:
        limit = loaded.input.max_tokens
        print(f"cut to {limit} tokens: {cut['texts_over']:,} of {counted(cut['texts'], 'text')}", file=sys.stderr)
