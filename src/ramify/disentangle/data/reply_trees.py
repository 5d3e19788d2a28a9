"""Reply trees read as logs: a post, and its comments as they came."""

import math
from collections.abc import Iterable
from dataclasses import replace

from ramify.disentangle.config import History
from ramify.disentangle.data.logs import Logs
from ramify.tree import Tree


def in_time_order(tree: Tree) -> Tree:
    """The tree's nodes by time, but none before what it answers.

    What is not later than its parent, or has no time, comes as if it had its parent's; equals keep the tree's order.
    """
    times: list[float] = []
    for node in tree.nodes:
        own = -math.inf if node.time is None else node.time
        times.append(max([own, *(times[parent] for parent in node.parents or ())]))
    order = sorted(range(len(tree)), key=times.__getitem__)
    place = {node: number for number, node in enumerate(order)}
    nodes = (tree.nodes[node] for node in order)
    moved = (replace(node, parents=node.parents and tuple(place[parent] for parent in node.parents)) for node in nodes)
    return Tree(tuple(moved), id=tree.id, meta=tree.meta)


def logs_of_replies(trees: Iterable[Tree], history: History) -> Logs:
    """Each tree as a log of one conversation. Its post has no link: there is nothing that it could answer."""
    return Logs.of(map(in_time_order, trees), history).without_starts()
