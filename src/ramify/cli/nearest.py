"""`ramify nearest`: the comments, or nodes of documents, that are most like a text or like one of them."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ramify.cli.documents import say_unknown
from ramify.cli.progress import bar
from ramify.cli.shared import Device, Json, once
from ramify.cli.verbs import check_can, in_json, offers

SHOWN = 100
"""Characters shown of a text."""


@offers("nearest")
def nearest(
    model: Annotated[str, typer.Argument(help="A run, a Hugging Face directory, a hub id, or tree-mlm-small.")],
    data: Annotated[
        Path,
        typer.Option("--data", help="A data set built by `ramify data build`, or a JSON lines file of trees; - reads stdin."),
    ],
    level: str | None = None,
    context: Literal["tree", "none"] | None = None,
    query: Annotated[
        list[str] | None, typer.Option("--query", help="A text, which is read as one comment, or as one node of the level.")
    ] = None,
    node: Annotated[str | None, typer.Option("--node", help="Id of a comment or node of --data, in place of --query.")] = None,
    tree: Annotated[str | None, typer.Option("--tree", help="Id of its tree, if several have such a node.")] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(
            help="Vectors that `ramify embed` wrote to a Parquet file, for the same model, data set, level and context, in "
            "place of encoding all nodes."
        ),
    ] = None,
    k: int = 10,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Find the comments whose vectors have the greatest cosine with that of a text or of another comment; in documents, the
    nodes of a level.

    All comments or nodes are encoded first, or read from --vectors; their vectors are held in memory. A text has no ancestors.

    Example: ramify nearest runs/reddit --data data/reddit --query "The tea was cold." -k 5

    Example: ramify nearest runs/reddit --data data/reddit --node c42 --context none --json

    Example: ramify nearest runs/reddit --data data/reddit --vectors vectors.parquet --node c42

    Example: ramify nearest runs/agent --data data/books --level paragraph --query "The ship went down."
    """
    import ramify
    from ramify.dataset.store import Store
    from ramify.errors import RamifyError, printable
    from ramify.inference.index import query_ids
    from ramify.models.base import reads_characters
    from ramify.readers.jsonl import read_jsonl
    from ramify.report.html import shortened

    text = once(query, "--query")
    if (text is None) == (node is None):
        raise RamifyError("Name the passage with --query or with --node, and not with both.")
    if tree is not None and node is None:
        raise RamifyError(f"--tree {tree} is for --node. Leave it out.")
    loaded: Any = ramify.load(model, device=device)
    check_can(loaded, "nearest", model, {"level": level, "context": context})
    if text is not None:
        ids = query_ids(loaded.tokenizer, text)
        if not reads_characters(loaded.backbone):
            say_unknown(loaded.tokenizer.unknown(ids), "--query")
    store = Store.open(data) if data.is_dir() else Store.from_trees(read_jsonl(data))
    nodes = loaded.searched(store, level)
    asked: str | tuple[str, str] = text or ""
    if node is not None:
        number = nodes.node[nodes.place(node, tree)]
        asked = (store.tree_ids(store.tree_of([number]))[0], node)
    with bar("encoding" if vectors is None else "reading", None) as advance:
        index = loaded.index(nodes, level=level, context=context, vectors=vectors, progress=advance)
    answer = loaded.nearest(asked, index, k=k)
    if as_json:
        print(in_json(answer))
        return
    for neighbour in answer.nearest:
        shown = shortened(printable(neighbour.text), SHOWN)
        author = f" by {printable(neighbour.author)}" if neighbour.author else ""
        print(f"{neighbour.score:.3f}  {printable(neighbour.tree)} {printable(neighbour.id)}{author}: {shown}")
