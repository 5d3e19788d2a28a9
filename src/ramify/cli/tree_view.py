"""Draw a tree as text, one node per line. A document is drawn as its outline."""

from collections import Counter
from collections.abc import Iterator

from ramify.errors import counted
from ramify.tree import DOCUMENT, Tree

MAX_INDENT = 24
"""Depth beyond which nodes are not indented further; their depth is printed instead."""


TEXT_LEVELS = ("paragraph", "sentence")
"""The levels of a document that its outline counts instead of drawing them."""


FRONT_MATTER = ("titlepage", "imprint", "copyright", "cover", "contents", "front_matter", "credits")
"""Reasons for which readers leave out what stands before the text of a document."""


def is_document(tree: Tree) -> bool:
    return bool(tree.nodes) and tree.nodes[0].kind == DOCUMENT


def outline(tree: Tree, width: int = 100, max_nodes: int | None = None) -> Iterator[str]:
    """Lines of at most `width` characters: the divisions of a document, each with its title and the counts of what it holds.

    The first line counts the nodes of every level.
    """
    levels = Counter(node.kind for node in tree.nodes[1:])
    yield ", ".join(_counted(count, kind) for kind, count in levels.items())
    counts: list[Counter[str]] = [Counter() for _ in tree.nodes]
    for index in range(len(tree) - 1, 0, -1):
        parent = int(tree.parent[index])
        counts[parent] += counts[index]
        counts[parent][tree.nodes[index].kind] += 1
    divisions = [index for index, node in enumerate(tree.nodes) if index and node.kind not in TEXT_LEVELS]
    titled = next((index for index in divisions if tree.nodes[index].label), 0)

    def untitled(index: int) -> str:
        """The name of a division without a title. What stands before the first title of a book was taken for front matter."""
        kind = tree.nodes[index].kind
        return f"(front matter, a {kind} without a title)" if index < titled else f"({kind})"

    for drawn, index in enumerate(divisions):
        if drawn == max_nodes:
            yield f"… {len(divisions) - drawn:,} more"
            return
        node = tree.nodes[index]
        held = ", ".join(_counted(counts[index][kind], kind) for kind in levels if counts[index][kind])
        indent = "  " * min(int(tree.depth[index]) - 1, MAX_INDENT)
        title = " ".join(str(node.label or node.text or untitled(index)).split())
        held = f"  {held}" if held else ""
        room = max(width - len(indent) - len(held), 1)
        line = indent + (title if len(title) <= room else title[: room - 1] + "…") + held
        yield line if len(line) <= width else line[: width - 1] + "…"


def _counted(count: int, kind: str) -> str:
    return f"{count:,} {kind}" if count == 1 else f"{count:,} {kind}s"


def draw(tree: Tree, width: int = 100, max_nodes: int | None = None) -> Iterator[str]:
    """Lines of at most `width` characters. A node stands below its first parent; an arrow names any other."""
    children: list[list[int]] = [[] for _ in tree.nodes]
    roots = []
    for index, node in enumerate(tree.nodes):
        if node.parents:
            children[node.parents[0]].append(index)
        else:
            roots.append(index)
    # (node, depth, prefix of its line, prefix of its children's lines)
    stack = [(root, 0, "", "") for root in reversed(roots)]
    drawn = 0
    while stack:
        index, depth, before, below = stack.pop()
        if drawn == max_nodes:
            yield f"… {counted(len(tree) - drawn, 'more node')}"
            return
        drawn += 1
        yield _line(tree, index, depth, before, width)
        last = len(children[index]) - 1
        for place in range(last, -1, -1):
            corner, bar = ("└─ ", "   ") if place == last else ("├─ ", "│  ")
            stack.append((children[index][place], depth + 1, below + corner, below + bar))


def _line(tree: Tree, index: int, depth: int, before: str, width: int) -> str:
    node = tree.nodes[index]
    if len(before) > 3 * MAX_INDENT:
        before = f"{'':{3 * MAX_INDENT - 3}}… {depth}: "
    author = node.author or (f"({node.kind})" if node.kind else "(unknown)")
    others = "".join(f" ↖{tree.nodes[parent].id or parent}" for parent in (node.parents or ())[1:])
    text = " ".join(node.text.split())
    line = f"{before}{author}{others}: {text}" if text else f"{before}{author}{others}"
    return line if len(line) <= width else line[: width - 1] + "…"
