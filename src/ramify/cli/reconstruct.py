"""`ramify reconstruct`: the text that vectors of documents' nodes are decoded into."""

import json
from typing import Annotated, Any

import typer

from ramify.cli.documents import Data, File, Run, TreeId, document_pipeline, read_document, say_counts
from ramify.cli.shared import Device, Json, bar


def reconstruct(
    run: Run,
    file: File = None,
    level: Annotated[
        str | None, typer.Option(help="sentence, paragraph, chapter or document. Default: the lowest level of the model.")
    ] = None,
    data: Data = None,
    tree: TreeId = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Encode each node of a level of a document as one vector, and decode the vector down to text.

    Vectors are passed on from level to level as the decoders make them. Ends are predicted. The accuracy of a node counts the
    tokens that stand at their place, and divides by the number of true or predicted tokens, whichever is greater.

    Example: ramify reconstruct runs/agent letter.txt --level sentence --json

    Example: ramify reconstruct runs/agent --data data/books --tree emma --level chapter
    """
    import ramify

    model = document_pipeline(ramify.load(run, device=device), run, "reconstruct")
    model.level_number(level or model.levels[0])
    document = read_document(model, file, data, tree)
    total = sum(node.kind == (level or model.levels[0]) for node in document.nodes)
    with bar("decoding", total) as advance:
        answer = model.reconstruct(document, level=level, progress=advance)
    say_counts(answer, str(file or document.id))
    print(json.dumps(answer, ensure_ascii=False) if as_json else "\n".join(_lines(answer)))


def _lines(answer: dict[str, Any]) -> list[str]:
    from ramify.errors import counted, printable

    lines: list[str] = []
    for node in answer["nodes"]:
        accuracy = "" if node["token_accuracy"] is None else f"  {node['token_accuracy']:.1%} of tokens"
        rest = "" if node["complete"] else ", not all of it decoded"
        lines.append(f"{printable(node['id'])}{accuracy}, {counted(node['predicted_length'], 'token')} decoded{rest}")
        lines += [f"  text     {printable(node['text'])}", f"  decoded  {printable(node['reconstruction'])}"]
    known = [node["token_accuracy"] for node in answer["nodes"] if node["token_accuracy"] is not None]
    mean = f", {sum(known) / len(known):.1%} of tokens on average" if known else ""
    return [*lines, f"{counted(len(answer['nodes']), answer['level'])}{mean}"]
