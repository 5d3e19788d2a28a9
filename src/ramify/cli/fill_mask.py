"""`ramify fill-mask`: fill the masks in a comment."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from ramify.cli.shared import Device, Json, filling_pipeline, text_or_node


def fill_mask(
    run: Annotated[str, typer.Argument(help="A run, a saved model, or tree-mlm-small.")],
    data: Annotated[
        Path | None, typer.Option("--data", help="A JSON lines file of trees, or a built data set; - reads stdin.")
    ] = None,
    node: Annotated[str | None, typer.Option("--node", help="Id of the node of --data whose text holds [MASK].")] = None,
    text: Annotated[str | None, typer.Option("--text", help="A text that holds [MASK], in place of --data and --node.")] = None,
    tree: Annotated[
        str | None, typer.Option("--tree", help="Id of the tree, needed if several trees have such a node.")
    ] = None,
    context: Annotated[
        Literal["tree", "parent", "root", "none", "null"] | None,
        typer.Option(help="Context of the node. Default: as in training."),
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, help="Number of tokens to show per mask.")] = 5,
    candidates: Annotated[str | None, typer.Option(help="Words to choose from, separated by commas.")] = None,
    joint: Annotated[bool, typer.Option(help="Also fill all masks jointly, by beam search.")] = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Fill [MASK] in a comment, given its ancestors, or in a text.

    Example: ramify fill-mask runs/reddit --data trees.jsonl --node c42 --context tree --json

    Example: ramify fill-mask runs/bert --text "the man went to the [MASK]"
    """
    import ramify
    from ramify.errors import RamifyError, counted

    words = None if candidates is None else [word.strip() for word in candidates.split(",") if word.strip()]
    if words == []:
        raise RamifyError(f"--candidates {candidates!r} holds no words. Separate words by commas.")
    source, place = text_or_node(text, data, node, tree)
    model = filling_pipeline(ramify.load(run, device=device), run)
    answer = model.fill_mask(source, place, top_k=top_k, context=context, candidates=words, joint=joint)
    if as_json:
        print(json.dumps(answer, ensure_ascii=False))
        return
    ancestors = counted(len(answer["ancestors"]), "ancestor")
    print(text if text is not None else f"node {answer['node']}, context {answer['context']} ({ancestors})")
    for mask in answer["masks"]:
        guesses = "  ".join(f"{guess['token']} {guess['probability']:.3f}" for guess in mask["tokens"])
        print(f"  [{mask['position']}] {guesses}")
    for filled in answer.get("joint", []):
        print(f"  {filled['probability']:.4f}  {filled['text']}")
