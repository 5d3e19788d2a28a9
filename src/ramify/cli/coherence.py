"""`ramify coherence`: how well the parts of a document fit together."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ramify.cli.verbs import Asked, Form, Page, say_counts
from ramify.errors import counted, printable
from ramify.inference.answers import ChildCoherence

SHOWN = 90
"""Characters shown of a text."""

HELP = """Judge how well the children of each node of a document fit together: sentences of a paragraph, and so on upwards.

A score of 1 means that nothing looks replaced, 0 that everything does. A node has as many passes as children, so a book
takes minutes; most of them go to the tokens of its sentences, which --level paragraph,chapter,document leaves out. The page
draws the document's tree, coloured by coherence.

Example: ramify coherence runs/agent letter.txt --json

Example: ramify coherence runs/agent --data data/books --tree emma --level paragraph,chapter,document --out emma.html
"""


def draw(asked: Asked, path: Path) -> None:
    from ramify.report.vector_tree import write_vector_tree

    write_vector_tree(path, asked.items[0], asked.answer, asked.given["run"], asked.model.levels)


def lines(asked: Asked) -> Iterator[str]:
    from ramify.inference.documents.text import texts_of_nodes
    from ramify.report.html import shortened

    answer, (document,), top = asked.answer, asked.items, asked.given["top"]
    place = {node.id or str(number): number for number, node in enumerate(document.nodes)}
    scored = sorted((node for node in answer.nodes if node.score is not None), key=lambda node: node.score)
    for node in scored[:top]:
        text = printable(next(texts_of_nodes(document, [place[node.id]])))
        least = _least(node.children)
        yield f"{node.score:.3f}  {node.level} {printable(node.id)}{least}: {shortened(text, SHOWN)}"
    left = f"; {counted(len(scored) - top, 'more node')} not shown (--top, --json)" if len(scored) > top else ""
    without = len(answer.nodes) - len(scored)
    unscored = f"; {counted(without, 'node')} without children" if without else ""
    yield f"{counted(len(scored), 'node')} scored, the least coherent first{left}{unscored}"


def _least(children: Sequence[ChildCoherence] | None) -> str:
    """The child that fits least."""
    scores = [(child.score, child) for child in children or () if child.score is not None]
    if not scores:
        return ""
    score, least = min(scores, key=lambda pair: pair[0])
    name = least.id if least.id is not None else repr(least.token) if least.token is not None else "its only part"
    return f" (least: {printable(name)} {score:.2f})"


Top = Annotated[int, typer.Option(min=1, help="Number of nodes to print, the least coherent first (without --json).")]

FORM = Form(HELP, lines, extra={"top": (Top, 20)}, notes=say_counts, page=Page(draw), progress="judging")
