"""The tree of a document's nodes as an HTML page, coloured by coherence: a strip per level, and the chosen node in detail."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ramify.errors import RamifyError, counted
from ramify.inference.answers import Coherence
from ramify.report.html import HtmlSection, shortened, text
from ramify.report.page import write_page
from ramify.tree import Tree

KIND = "Coherence of a document"
"""The line above the title."""

MAX_SHOWN = 100_000
"""Most nodes per page; more would overload a browser."""

MAX_TOKENS = 300_000
"""Most tokens whose scores a page holds."""

TAIL = 0.05
"""The share of a level's scores beyond either end of its colours."""

_HOW = (
    "<p>Each strip is a level, from the document above to its sentences below; a node is as wide as its text is long, and lies "
    "below the node that holds it. Colours run from orange (the least coherent nodes of a level) to blue. “Inside” is how well "
    "a node's children fit together, and “fits” how well it fits among its siblings. Click a node, or choose it in the list, "
    "to enlarge it and to read it; click the top strip, or press Escape, to return to the node around it.</p>"
)


def write_vector_tree(path: Path, document: Tree, answer: Coherence, model: str, levels: Sequence[str]) -> None:
    """Write a self-contained page about the answer of `DocumentPipeline.coherence`.

    `levels` are those of the model, from the lowest. Raises `RamifyError` if the page would hold too many nodes.
    """
    shown = [number for number, node in enumerate(document.nodes) if node.kind in levels]
    if len(shown) > MAX_SHOWN:
        raise RamifyError(
            f"the page would hold {len(shown):,} nodes, which is too much for a browser (at most {MAX_SHOWN:,}). Print JSON, "
            "or choose a shorter document."
        )
    templates = files("ramify.report")
    style, script = (templates.joinpath(f"vector_tree.{kind}").read_text("utf-8").strip() for kind in ("css", "js"))
    # A "<" inside of a script could end it.
    data = json.dumps(_data(document, answer, shown, levels), ensure_ascii=False).replace("<", "\\u003c")
    title = shortened(str(document.nodes[0].label or document.id), 120) if document.nodes else ""
    section = HtmlSection(
        "Levels",
        f'{_HOW}<style>{style}</style><div class="vector-tree"><div class="choice" role="group" aria-label="Colour"></div>'
        '<p class="ranges"></p><nav class="path" aria-label="Nodes around the chosen one"></nav>'
        '<canvas class="strips" role="img" aria-label="A strip per level; the list below has the same nodes"></canvas>'
        '<p class="pointed" aria-live="polite"></p><article class="chosen"></article></div>'
        # The script comes after the elements that it uses.
        f'<script type="application/json" id="vector-tree">{data}</script><script>{script}</script>',
    )
    scored = sum(node.score is not None for node in answer.nodes)
    lead = f"<p>{text(model)} judges {counted(scored, 'node')} of {text(document.id or 'a document')}.</p>"
    write_page(path, kind=KIND, title=title or "(no title)", lead=lead, sections=[section])


def _data(document: Tree, answer: Coherence, shown: Sequence[int], levels: Sequence[str]) -> dict[str, Any]:
    """The nodes in reading order, and for each level the scores at the ends of its colours."""
    ids = [node.id or str(number) for number, node in enumerate(document.nodes)]
    place = {number: row for row, number in enumerate(shown)}
    judgements = {node.id: node for node in answer.nodes}
    fits = {child.id: child.score for node in answer.nodes for child in node.children or () if child.id}
    num_tokens = sum(child.token is not None for node in answer.nodes for child in node.children or ())
    words = np.array([len(node.text) for node in document.nodes], dtype=np.int64)
    ends = np.concatenate([[0], np.cumsum(words)])
    sizes = document.subtree_sizes
    nodes = []
    for number in shown:
        node = document.nodes[number]
        record: dict[str, Any] = {
            "id": ids[number],
            "level": levels.index(node.kind),
            "parent": _above(document, number, place),
            "start": int(ends[number]),
            "stop": int(ends[number + int(sizes[number])]),
        }
        judgement = judgements.get(ids[number])
        scores = {"score": judgement and judgement.score, "fit": fits.get(ids[number])}
        record |= {name: round(value, 4) for name, value in scores.items() if value is not None}
        if node.label is not None:
            record["title"] = shortened(str(node.label), 200)
        if node.text:
            record["text"] = node.text
        if judgement and num_tokens <= MAX_TOKENS and node.text:
            tokens = [child for child in judgement.children or () if child.token is not None]
            record["tokens"] = [[child.token, child.score and round(child.score, 2)] for child in tokens]
        nodes.append(record)
    return {
        "levels": list(levels),
        "ranges": {name: [_range(nodes, name, level) for level in range(len(levels))] for name in ("score", "fit")},
        "nodes": nodes,
    }


def _above(document: Tree, number: int, place: Mapping[int, int]) -> int | None:
    """The place of the nearest node above that is shown."""
    above = int(document.parent[number])
    while above >= 0 and above not in place:
        above = int(document.parent[above])
    return place.get(above)


def _range(nodes: Sequence[Mapping[str, Any]], name: str, level: int) -> list[float] | None:
    scores = [node[name] for node in nodes if node["level"] == level and name in node]
    return [float(end) for end in np.quantile(scores, [TAIL, 1 - TAIL]).round(4)] if scores else None
