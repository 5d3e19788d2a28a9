"""`ramify attention`: the attention heads of a text."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ramify.cli.shared import Device, Json, check_beside, text_or_node, text_pipeline


def attention(
    run: Annotated[str, typer.Argument(help="A run, a saved model, a Hugging Face directory, a hub id, or tree-mlm-small.")],
    text: Annotated[str | None, typer.Option("--text", help="A text, in place of --data and --node.")] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="A JSON lines file of trees, or a built data set; - reads stdin.")
    ] = None,
    node: Annotated[str | None, typer.Option("--node", help="Id of the node of --data that is read.")] = None,
    tree: Annotated[
        str | None, typer.Option("--tree", help="Id of the tree, needed if several trees have such a node.")
    ] = None,
    context: Annotated[
        Literal["tree", "parent", "root", "none", "null"] | None,
        typer.Option(help="Context of the node. Default: as in training."),
    ] = None,
    layer: Annotated[int | None, typer.Option(min=1, help="Only this layer, counted from 1.")] = None,
    head: Annotated[int | None, typer.Option(min=1, help="Only this head, counted from 1.")] = None,
    order: Annotated[
        Literal["forward", "backward", "random"] | None,
        typer.Option(help="XLNet only: a factorization order. Default: each token is predicted from all others."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random order.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="HTML file to write; - writes to stdout.")] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Draw the attention heads of a text as an HTML page, which needs no network.

    Models of the BERT family have self-attention; tree-mlm also has attention to ancestors, and XLNet has two streams.

    Example: ramify attention tree-mlm-small --text "The tea is too [MASK]." --out heads.html

    Example: ramify attention runs/reddit --data trees.jsonl --node c42 --layer 2 --out heads.html

    Example: ramify attention runs/lm --text "The moon had not risen." --order random --json
    """
    import ramify
    from ramify.errors import RamifyError, counted
    from ramify.inference.permutation import PermutationPipeline
    from ramify.report.attention import write_attention

    if out is None and not as_json:
        raise RamifyError("there is nowhere to write. Name a page with --out, or add --json.")
    if as_json:
        check_beside(out, "--out")
    source, place = text_or_node(text, data, node, tree)
    model = text_pipeline(ramify.load(run, device=device), run)
    options: dict[str, Any] = {"context": context, "layer": layer, "head": head}
    if isinstance(model, PermutationPipeline):
        options |= {"order": order, "seed": seed}
    elif order is not None:
        raise RamifyError(f"--order {order} needs an XLNet with a query stream; {run} holds none. Leave --order out.")
    answer = model.attention(source, place, **options)
    if out is not None:
        texts = {"": source} if isinstance(source, str) else {each.id: each.text for each in source.nodes}
        write_attention(out, answer, run, texts)
        heads = sum(len(table["heads"]) for table in answer["attention"])
        print(f"{out}: {counted(heads, 'picture')} of heads", file=sys.stderr)
    if as_json:
        print(json.dumps({**answer, "attention": [_as_lists(table) for table in answer["attention"]]}, ensure_ascii=False))


def _as_lists(table: dict[str, Any]) -> dict[str, Any]:
    """A table whose weights are lists of numbers with six decimal places."""
    heads = [{**head, "weights": head["weights"].astype(float).round(6).tolist()} for head in table["heads"]]
    return {**table, "heads": heads}
