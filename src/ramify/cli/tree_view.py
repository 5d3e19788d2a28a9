"""Draw a tree as text, one node per line."""

from collections.abc import Iterator

from ramify.tree import Tree

MAX_INDENT = 24
"""Depth beyond which nodes are not indented further; their depth is printed instead."""


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
            yield f"… {len(tree) - drawn:,} more nodes"
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
