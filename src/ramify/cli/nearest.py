"""`ramify nearest`: the nodes of a data set that are most like a text, or like one of its nodes."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ramify.cli.documents import Run, any_document_pipeline, say_unknown
from ramify.cli.shared import Device, Json, bar

SHOWN = 100
"""Characters shown of a text."""


def nearest(
    run: Run,
    data: Annotated[Path, typer.Option("--data", help="A data set built by `ramify data build`.")],
    level: Annotated[
        str | None, typer.Option(help="sentence, paragraph, chapter or document. Default: the lowest level of the model.")
    ] = None,
    query: Annotated[str | None, typer.Option("--query", help="A text, which is read as one node of the level.")] = None,
    node: Annotated[str | None, typer.Option("--node", help="Id of a node of the level, in place of --query.")] = None,
    tree: Annotated[str | None, typer.Option("--tree", help="Id of the node's document, if several have such a node.")] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(help="Vectors of the level that `ramify embed` wrote to a Parquet file, in place of encoding all nodes."),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of nodes.")] = 10,
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
    from ramify.inference.document_index import find_node
    from ramify.report.html import shortened

    if (query is None) == (node is None):
        raise RamifyError("Name the passage with --query or with --node, and not with both.")
    if tree is not None and node is None:
        raise RamifyError(f"--tree {tree} is for --node. Leave it out.")
    model = any_document_pipeline(ramify.load(run, device=device), run)
    model.level_number(level or model.levels[0])
    store = Store.open(data)
    check_documents(store)
    if query is not None and not query.strip():
        raise RamifyError("--query holds no text. Give some words.")
    if node is not None:
        find_node(store, level or model.levels[0], node, tree)
    with bar("encoding" if vectors is None else "reading", None) as advance:
        index = model.index(store, level=level, vectors=vectors, progress=advance)
    if query is not None:
        ids = model.tokenizer.encode(query)
        say_unknown(sum(each == model.tokenizer.unk_id for each in ids), len(ids), "--query")
        found = model.nearest(query, index, k=k)
    else:
        assert node is not None
        place = index.place(node, tree)
        found = index.nearest(index.vectors[place], k, place)
    if as_json:
        print(json.dumps({"level": index.level, "nearest": found}, ensure_ascii=False))
        return
    for each in found:
        shown = shortened(printable(each["text"]), SHOWN)
        print(f"{each['score']:.3f}  {printable(each['tree'])} {printable(each['id'])}: {shown}")
