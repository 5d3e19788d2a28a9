"""Read a graph from its arcs, such as `1-3, 1-5, 2-4`."""

import re

from ramify.autograd.errors import GraphError

MAX_NODES = 1000
"""Most nodes of a graph that is given by its arcs."""
ARC = re.compile(r"\s*(\w{1,20})(?:\s*(?:->|→|-)\s*(\w{1,20}))?\s*")


def read_arcs(text: str) -> dict[str, list[str]]:
    """The parents of each node. A name alone is a node without arcs; an arc that is given twice is doubled.

    Nodes are in the order of their numbers if all names are numbers, else in the order of the text.

    Raises:
        GraphError: the text does not consist of arcs, or has more than `MAX_NODES` nodes.
    """
    parents: dict[str, list[str]] = {}
    at = 0
    for piece in text.split(","):
        match = ARC.fullmatch(piece)
        if not match:
            shown = repr(piece.strip()[:40]) if piece.strip() else "the empty text"
            raise GraphError(
                f"{shown} at position {at + 1} is not an arc. Write PARENT-CHILD, such as 1-3, with commas between arcs, "
                "or a name alone for a node without arcs. Names have at most 20 letters and digits."
            )
        parent, child = match.groups()
        parents.setdefault(parent, [])
        if child:
            parents.setdefault(child, []).append(parent)
        if len(parents) > MAX_NODES:
            raise GraphError(f"the graph has more than {MAX_NODES:,} nodes. Give at most {MAX_NODES:,}.")
        at += len(piece) + 1
    if all(name.isdecimal() for name in parents):
        return dict(sorted(parents.items(), key=lambda item: int(item[0])))
    return parents
