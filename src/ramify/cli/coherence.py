"""`ramify coherence`: how well the parts of a document fit together."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ramify.cli.documents import Data, File, Run, TreeId, document_pipeline, levels_of, read_document, say_counts
from ramify.cli.shared import Device, Json, bar, check_beside
from ramify.errors import RamifyError

if TYPE_CHECKING:
    from ramify.tree import Tree

SHOWN = 90
"""Characters shown of a text."""


def coherence(
    run: Run,
    file: File = None,
    level: Annotated[
        list[str] | None,
        typer.Option("--level", help="Judge the nodes of this level only; repeatable. Default: all levels of the model."),
    ] = None,
    data: Data = None,
    tree: TreeId = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Also draw the document's tree, coloured by coherence, as an HTML page.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of nodes to print, the least coherent first (without --json).")] = 20,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Judge how well the children of each node of a document fit together: sentences of a paragraph, paragraphs of a chapter …

    A score of 1 means that nothing looks replaced, 0 that everything does. A node has as many passes as children, so a book
    takes minutes; most of them go to the tokens of its sentences, which --level paragraph,chapter,document leaves out.

    Example: ramify coherence runs/agent letter.txt --json

    Example: ramify coherence runs/agent --data data/books --tree emma --level paragraph,chapter,document --out emma.html
    """
    import ramify
    from ramify.report.vector_tree import write_vector_tree

    check_beside(out, "--out")
    if out is not None and file is not None and out.exists() and file.exists() and out.samefile(file):
        raise RamifyError(f"--out {out} is also the input. Choose another file for the page.")
    model = document_pipeline(ramify.load(run, device=device), run, "judge coherence")
    levels = levels_of(level)
    for name in levels or ():
        model.level_number(name)
    document = read_document(model, file, data, tree)
    with bar("judging", None) as advance:
        answer = model.coherence(document, levels=levels, progress=advance)
    say_counts(answer, str(file or document.id))
    if out is not None:
        write_vector_tree(out, document, answer, run, model.levels)
        print(out, file=sys.stderr)
    print(json.dumps(answer, ensure_ascii=False) if as_json else "\n".join(_lines(answer, document, top)))


def _lines(answer: dict[str, Any], document: "Tree", top: int) -> list[str]:
    from ramify.errors import counted, printable
    from ramify.inference.document_text import texts_of_nodes
    from ramify.report.html import shortened

    place = {node.id or str(number): number for number, node in enumerate(document.nodes)}
    scored = sorted((each for each in answer["nodes"] if each["score"] is not None), key=lambda each: each["score"])
    lines = []
    for node in scored[:top]:
        text = printable(next(texts_of_nodes(document, [place[node["id"]]])))
        least = _least(node["children"])
        lines.append(f"{node['score']:.3f}  {node['level']} {printable(node['id'])}{least}: {shortened(text, SHOWN)}")
    left = f"; {counted(len(scored) - top, 'more node')} not shown (--top, --json)" if len(scored) > top else ""
    without = len(answer["nodes"]) - len(scored)
    unscored = f"; {counted(without, 'node')} without children" if without else ""
    return [*lines, f"{counted(len(scored), 'node')} scored, the least coherent first{left}{unscored}"]


def _least(children: list[dict[str, Any]] | None) -> str:
    """The child that fits least."""
    from ramify.errors import printable

    known = [each for each in children or () if each["score"] is not None]
    if not known:
        return ""
    least = min(known, key=lambda each: each["score"])
    name = least["id"] if least["id"] is not None else repr(least["token"]) if "token" in least else "its only part"
    return f" (least: {printable(name)} {least['score']:.2f})"
