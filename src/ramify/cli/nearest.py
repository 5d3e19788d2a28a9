"""`ramify nearest`: the nodes of a data set that are most like a text, or like one of its nodes."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ramify.cli.documents import Run, say_unknown
from ramify.cli.progress import bar
from ramify.cli.shared import Device, Json
from ramify.cli.verbs import check_can, in_json, offers

SHOWN = 100
"""Characters shown of a text."""


@offers("nearest")
def nearest(
    run: Run,
    data: Annotated[Path, typer.Option("--data", help="A data set built by `ramify data build`.")],
    level: str | None = None,
    query: Annotated[str | None, typer.Option("--query", help="A text, which is read as one node of the level.")] = None,
    node: Annotated[str | None, typer.Option("--node", help="Id of a node of the level, in place of --query.")] = None,
    tree: Annotated[str | None, typer.Option("--tree", help="Id of the node's document, if several have such a node.")] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(help="Vectors of the level that `ramify embed` wrote to a Parquet file, in place of encoding all nodes."),
    ] = None,
    k: int = 10,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Find the nodes of a level whose vectors have the greatest cosine with that of a text or of another node.

    All nodes of the level are encoded first, or read from --vectors; their vectors are held in memory.

    Example: ramify nearest runs/agent --data data/books --level paragraph --query "The ship went down." -k 5

    Example: ramify nearest runs/agent --data data/books --level paragraph --vectors paragraphs.parquet --query "A ship."

    Example: ramify nearest runs/agent --data data/books --level chapter --node 3 --tree emma --json
    """
    import ramify
    from ramify.batching.levels import check_documents
    from ramify.dataset.store import Store
    from ramify.errors import RamifyError, printable
    from ramify.inference.documents.index import find_node
    from ramify.report.html import shortened

    if (query is None) == (node is None):
        raise RamifyError("Name the passage with --query or with --node, and not with both.")
    if tree is not None and node is None:
        raise RamifyError(f"--tree {tree} is for --node. Leave it out.")
    model: Any = ramify.load(run, device=device)
    check_can(model, "nearest", run, {})
    model.level_number(level or model.levels[0])
    store = Store.open(data)
    check_documents(store)
    if query is not None and not query.strip():
        raise RamifyError("--query holds no text. Give some words.")
    asked: str | tuple[str, str] = query or ""
    if node is not None:
        number = find_node(store, level or model.levels[0], node, tree)
        asked = (store.tree_ids(store.tree_of([number]))[0], node)
    with bar("encoding" if vectors is None else "reading", None) as advance:
        index = model.index(store, level=level, vectors=vectors, progress=advance)
    if query is not None:
        ids = model.tokenizer.encode(query)
        say_unknown(model.tokenizer.unknown(ids), "--query")
    answer = model.nearest(asked, index, k=k)
    if as_json:
        print(in_json(answer))
        return
    for neighbour in answer.nearest:
        shown = shortened(printable(neighbour.text), SHOWN)
        print(f"{neighbour.score:.3f}  {printable(neighbour.tree)} {printable(neighbour.id)}: {shown}")
