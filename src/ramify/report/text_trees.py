"""Documents as trees on an HTML page: each node with its coherence, the words that copyediting changed, and perhaps its
nearest neighbour."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from importlib.resources import files
from itertools import chain
from pathlib import Path

from ramify.errors import RamifyError, counted
from ramify.inference.answers import Copyedited, CopyeditedVersion, GeneratedTexts, GeneratedVersion, NodeCoherence
from ramify.report.html import HtmlSection, shortened, text
from ramify.report.page import write_page
from ramify.tree import Tree

MAX_SHOWN = 20_000
"""Most nodes per page; more would overload a browser."""

NEIGHBOUR_CHARS = 160
"""Characters shown of a neighbour's text."""

MAX_INDENT = 8
"""Depth beyond which nodes are not indented further."""

HOW = (
    "Each line is a node, and lies below the node that holds it. The number is its coherence: how well its children fit "
    "together, from 0 to 1, as the model's own checkers judge it."
)


@dataclass(frozen=True)
class DrawnTree:
    """A document to draw."""

    title: str
    document: Tree
    nodes: Sequence[NodeCoherence]
    other: Tree | None = None
    """Another version of the document: words that it lacks at the node with the same id are marked."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """A line below some nodes, by their ids."""


def write_copyedited(path: Path, answer: Copyedited, model: str) -> None:
    """Write a self-contained page about the answer of `copyedit`. Raises `RamifyError` if it would hold too many nodes."""
    before, after = answer.before, answer.after
    trees = [
        DrawnTree(f"{name}: {_scores(version)}", version.document, version.nodes, other.document)
        for name, version, other in (("Before", before, after), ("After", after, before))
    ]
    title = shortened(str((before.document.nodes[0].label if before.document.nodes else "") or before.document.id), 120)
    lead = f"{model} changed {answer.change_rate:.1%} of the tokens. Words that the other version lacks are marked."
    write_trees(path, kind="A copyedited document", title=title or "(no title)", lead=lead, rows=[trees])


def write_generated(path: Path, answer: GeneratedTexts, model: str) -> None:
    """Write a self-contained page about the answer of `generate`, which holds versions. Raises `RamifyError` as above."""
    rows = []
    for generated in answer.texts:
        names = ("As it is",) if len(generated.versions) == 1 else ("Before copyediting", "After copyediting")
        versions = list(zip(names, generated.versions, strict=True))
        rows.append(
            [
                DrawnTree(name, version.document, version.nodes, other.document, _neighbours(version))
                for (name, version), (_, other) in zip(versions, versions[::-1], strict=True)
            ]
        )
    title = counted(len(answer.texts), f"generated {answer.level}")
    lead = f"{model} made these texts from noise. Below each node is the training text of the greatest cosine with it."
    write_trees(path, kind="Generated documents", title=title, lead=lead, rows=rows)


def _neighbours(version: GeneratedVersion) -> dict[str, str]:
    return {
        name: f"nearest, {found.score:.2f}: {found.tree} {found.id}: {shortened(found.text, NEIGHBOUR_CHARS)}"
        for name, found in version.neighbours.items()
    }


def write_trees(path: Path, *, kind: str, title: str, lead: str, rows: Sequence[Sequence[DrawnTree]]) -> None:
    """Write a self-contained page of trees. Each row is a section with versions side by side. All arguments are text."""
    shown = sum(len(tree.document) for tree in chain.from_iterable(rows))
    if shown > MAX_SHOWN:
        raise RamifyError(
            f"the page would hold {counted(shown, 'node')}, which is too much for a browser (at most {MAX_SHOWN:,}). Print "
            "JSON, or choose shorter documents."
        )
    style = files("ramify.report").joinpath("text_trees.css").read_text("utf-8").strip()
    sections = [
        HtmlSection(
            "Texts" if len(rows) == 1 else f"Text {number}", f'<div class="versions">{"".join(map(_tree, trees))}</div>'
        )
        for number, trees in enumerate(rows, 1)
    ]
    write_page(path, kind=kind, title=title, lead=f"<style>{style}</style><p>{text(lead)} {text(HOW)}</p>", sections=sections)


def _scores(version: CopyeditedVersion) -> str:
    parts = ["coherence –" if version.coherence is None else f"coherence {version.coherence:.3f}"]
    if version.perplexity is not None:
        parts.append(f"perplexity {version.perplexity:,.1f}")
    return ", ".join(parts)


def _tree(tree: DrawnTree) -> str:
    scores = {node.id: node.score for node in tree.nodes}
    others = {} if tree.other is None else {node.id: node.text for node in tree.other.nodes}
    depth = tree.document.depth
    items = []
    for number, node in enumerate(tree.document.nodes):
        name = node.id or str(number)
        own = _words(node.text, others.get(name) if tree.other is not None else node.text)
        score = scores.get(name)
        badge = "" if score is None else f'<span class="score" style="--score:{score:.3f}">{score:.2f}</span>'
        note = f"<small>{text(tree.notes[name])}</small>" if name in tree.notes else ""
        label = f"<b>{text(node.label)}</b> " if node.label else ""
        items.append(
            f'<li style="--depth:{min(int(depth[number]), MAX_INDENT)}"><span class="name">{text(node.kind or "node")} '
            f'{text(name)}</span>{badge}<span class="words">{label}{own}</span>{note}</li>'
        )
    return f'<article class="text-tree"><h3>{text(tree.title)}</h3><ol>{"".join(items)}</ol></article>'


def _words(own: str, other: str | None) -> str:
    """A text in which the words that another text lacks are marked; None: there is no such text, so all are."""
    if own == other:
        return text(own)
    words, parts = own.split(), []
    for is_shared, start, stop in _runs(words, (other or "").split()):
        part = text(" ".join(words[start:stop]))
        parts.append(part if is_shared else f"<mark>{part}</mark>")
    return " ".join(parts)


def _runs(words: Sequence[str], others: Sequence[str]) -> Iterator[tuple[bool, int, int]]:
    """Runs of words that both texts have, or that the first alone has."""
    for kind, start, stop, _, _ in SequenceMatcher(None, words, others, autojunk=False).get_opcodes():
        if stop > start:
            yield kind == "equal", start, stop
