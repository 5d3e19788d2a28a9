"""Plain text as documents, and the text of documents' nodes."""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from ramify.batching.forest import Ints
from ramify.batching.levels import Levels
from ramify.readers.sentences import sentences
from ramify.tree import DOCUMENT, Node, Tree

SENTENCE, PARAGRAPH = "sentence", "paragraph"

PASSAGE_WORDS = 100
"""Words of a passage: few enough for the rows of small language models."""

_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")


def as_document(text: str, names: Sequence[str], level: int) -> Tree:
    """A document in which one node of a level holds a text.

    `names` are the levels, from the lowest. On a level above paragraphs, blank lines end paragraphs.
    """
    nodes = [Node(kind=DOCUMENT)]
    below = names[:level]
    if names[level] != DOCUMENT:
        nodes.append(Node(parents=(0,), kind=names[level]))
    top = len(nodes) - 1
    for block in _BLANK_LINES.split(text.strip()) if PARAGRAPH in below else [text]:
        parent = top
        if PARAGRAPH in below and block.strip():
            nodes.append(Node(parents=(top,), kind=PARAGRAPH))
            parent = len(nodes) - 1
        words = " ".join(block.split())
        if SENTENCE in below:
            parts = sentences(words) if words else []
            nodes += [Node(sentence, parents=(parent,), kind=SENTENCE) for sentence in parts]
        else:
            nodes[parent] = Node(words, parents=nodes[parent].parents, kind=nodes[parent].kind)
    return Tree(tuple(nodes))


def separator(names: Sequence[str], level: int) -> str:
    """The white space between two neighbours of a level: a blank line, but a space between sentences."""
    return " " if names[level] == SENTENCE else "\n\n"


def texts_of_nodes(tree: Tree, numbers: Sequence[int]) -> Iterator[str]:
    """The text of each of these nodes and its descendants. Blank lines separate paragraphs and whatever lies above them."""
    sizes = tree.subtree_sizes
    for number in numbers:
        text, before = "", ""
        for node in tree.nodes[number : number + int(sizes[number])]:
            if node.kind != SENTENCE:
                before = "\n\n"
            if node.text:
                text += (before if text else "") + node.text
                before = " " if node.kind == SENTENCE else "\n\n"
        yield text


def passages(tree: Tree, words: int = PASSAGE_WORDS) -> list[str]:
    """The text of a document in passages of at most about so many words, none of which crosses the border of a paragraph. A
    longer node with text is a passage of its own."""
    found: list[list[str]] = []
    last, length = None, 0
    for number, node in enumerate(tree.nodes):
        if not node.text:
            continue
        paragraph = int(tree.parent[number]) if node.kind == SENTENCE else None
        own = len(node.text.split())
        if paragraph is None or paragraph != last or length + own > words:
            found.append([])
            length = 0
        found[-1].append(node.text)
        last, length = paragraph, length + own
    return [" ".join(passage) for passage in found]


def token_bounds(levels: Levels, level: int) -> Ints:
    """Node i of a level holds the tokens `bounds[i]` to `bounds[i + 1] - 1`."""
    bounds = np.arange(len(levels.levels[level].counts) + 1)
    for below in reversed(levels.levels[: level + 1]):
        bounds = below.offsets[bounds]
    return bounds
