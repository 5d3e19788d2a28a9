"""`ramify embed`: write the vectors of all comments, or of all nodes of a level of documents."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ramify.cli.documents import say_left_out, say_unknown
from ramify.cli.progress import bar
from ramify.cli.shared import Device, Precision, file_kind
from ramify.cli.verbs import check_can, offers
from ramify.errors import RamifyError, counted
from ramify.inference.verbs import LEVELS

if TYPE_CHECKING:
    from ramify.inference.documents.pipeline import AnyDocumentPipeline
    from ramify.inference.vectors import Kind


@offers("embed")
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
    level: str | None = None,
    context: Literal["tree", "none"] | None = None,
    format: Annotated[
        Literal["parquet", "npy"] | None,
        typer.Option(
            help="parquet: columns tree, id, vector (with --level also level and pieces); npy: the matrix, ids in a second "
            "file. Default: by the ending of --out; parquet on stdout."
        ),
    ] = None,
    device: Device = "auto",
    precision: Precision = "fp32",
) -> None:
    """Write a vector for every comment, or for every node of a level of documents.

    Vectors are streamed; about fifty bytes per comment stay in memory, or one document. A document's node that was cut into
    pieces has their mean.

    Example: ramify embed runs/reddit --data data/reddit --out vectors.parquet --context tree

    Example: ramify embed runs/reddit --data data/reddit --out vectors.parquet --with text,author,time,parent,depth,label

    Example: ramify embed runs/agent --data data/books --level paragraph --out paragraphs.parquet
    """
    import ramify
    from ramify.inference.vectors import write_vectors
    from ramify.nn.precision import autocast

    kinds: dict[str, Kind] = {"-": "parquet", ".parquet": "parquet", ".npy": "npy"}
    kind = format or file_kind(out, kinds, "--format")
    columns = [name.strip() for name in beside.split(",") if name.strip()]
    loaded: Any = ramify.load(model, device=device)
    check_can(loaded, "embed", model, {"level": level, "context": context})
    if LEVELS in loaded.abilities:
        if level is None:
            raise RamifyError(f"{model} is a model of nested documents. Choose --level {' or '.join(loaded.levels)}.")
        with autocast(loaded.device, precision):
            _level(loaded, data, out, kind, level, columns)
        return
    with bar("embedding", None) as advance, autocast(loaded.device, precision):
        cut = write_vectors(loaded, data, out, kind, context, advance, columns)
    left = f", none for {counted(cut['placeholders'], 'placeholder')}" if cut["placeholders"] else ""
    print(f"{out}: {counted(cut['vectors'], 'vector')} of size {loaded.dim}{left}", file=sys.stderr)
    if cut["texts_over"]:
        limit = loaded.max_tokens
        print(f"cut to {limit} tokens: {cut['texts_over']:,} of {counted(cut['texts'], 'text')}", file=sys.stderr)


def _level(model: "AnyDocumentPipeline", data: Path, out: Path, kind: "Kind", level: str, columns: Sequence[str]) -> None:
    """Write the vectors of a level, and print the counts of all that happened to its nodes."""
    from ramify.inference.documents.table import write_level
    from ramify.tokenizer import UnknownTokens

    with bar("embedding", None) as advance:
        totals = write_level(model, data, out, kind, level, advance, columns)
    print(f"{out}: {counted(totals.vectors, 'vector')} of size {model.dim_of(level)}", file=sys.stderr)
    if totals.cut:
        print(f"cut into several rows, whose vectors are averaged: {counted(totals.cut, level)}", file=sys.stderr)
    if totals.documents_without:
        print(f"note: {counted(totals.documents_without, 'document')} without any {level}", file=sys.stderr)
    if totals.filled:
        print(f"note: no row for {totals.filled:,} places where a {level} is missing above other nodes", file=sys.stderr)
    for name, count in totals.flattened.items():
        print(f"note: {counted(count, name)} in no level of the model; the text belongs to the nodes around", file=sys.stderr)
    say_unknown(UnknownTokens(totals.unknown, totals.tokens), str(data))
    say_left_out(totals.left_out)
