"""`ramify embed`: write the vectors of all comments."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from ramify.cli.shared import Device, Precision, bar, file_kind, text_pipeline


def embed(
    model: Annotated[str, typer.Argument(help="A run, a Hugging Face directory, a hub id, or tree-mlm-small.")],
    data: Annotated[
        Path,
        typer.Option("--data", help="A data set built by `ramify data build`, or a JSON lines file of trees; - reads stdin."),
    ],
    out: Annotated[Path, typer.Option("--out", help="File to write; - writes to stdout.")],
    beside: Annotated[
        str,
        typer.Option(
            "--with",
            metavar="COLUMN,…",
            help="Columns to write beside the vectors, separated by commas: split, parent, depth, author, time, kind, label "
            "(as JSON) and text.",
        ),
    ] = "",
    context: Annotated[
        Literal["tree", "none"] | None,
        typer.Option(help="Context of a comment: its ancestors (tree) or nothing (none). Default: as in training."),
    ] = None,
    format: Annotated[
        Literal["parquet", "npy"] | None,
        typer.Option(
            help="parquet: columns tree, id, vector; npy: the matrix, ids in a second file. Default: by the ending of --out; "
            "parquet on stdout."
        ),
    ] = None,
    device: Device = "auto",
    precision: Precision = "fp32",
) -> None:
    """Write a vector for every comment. Vectors are streamed; about fifty bytes per comment stay in memory.

    Example: ramify embed runs/reddit --data data/reddit --out vectors.parquet --context tree

    Example: ramify embed runs/reddit --data data/reddit --out vectors.parquet --with text,author,time,parent,depth,label
    """
    import ramify
    from ramify.errors import counted
    from ramify.inference.vectors import Kind, write_vectors
    from ramify.nn.precision import autocast

    kinds: dict[str, Kind] = {"-": "parquet", ".parquet": "parquet", ".npy": "npy"}
    kind = format or file_kind(out, kinds, "--format")
    columns = [name.strip() for name in beside.split(",") if name.strip()]
    loaded = text_pipeline(ramify.load(model, device=device), model)
    with bar("embedding", None) as advance, autocast(loaded.device, precision):
        cut = write_vectors(loaded, data, out, kind, context, advance, columns)
    left = f", none for {counted(cut['placeholders'], 'placeholder')}" if cut["placeholders"] else ""
    print(f"{out}: {counted(cut['vectors'], 'vector')} of size {loaded.dim}{left}", file=sys.stderr)
    if cut["texts_over"]:
        limit = loaded.max_tokens
        print(f"cut to {limit} tokens: {cut['texts_over']:,} of {counted(cut['texts'], 'text')}", file=sys.stderr)
