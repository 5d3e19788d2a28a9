"""Reply trees as logs: a post, and its comments in the order of time."""

import math
from collections.abc import Iterable
from dataclasses import replace

from ramify.disentangle.config import ChatInput
from ramify.disentangle.data.logs import Logs
from ramify.tree import Tree


def sort_by_time(tree: Tree) -> Tree:
    """The tree's nodes in the order of time, and every parent before its children.

    A node that has no time, or is not later than its parent, sorts as if it had its parent's time. Equals keep the tree's
    order.
    """
    times: list[float] = []
    for node in tree.nodes:
        time = -math.inf if node.time is None else node.time
        times.append(max([time, *(times[parent] for parent in node.parents or ())]))
    order = sorted(range(len(tree)), key=times.__getitem__)
    place = {node: number for number, node in enumerate(order)}
    nodes = (tree.nodes[node] for node in order)
    moved = (replace(node, parents=node.parents and tuple(place[parent] for parent in node.parents)) for node in nodes)
    return Tree(tuple(moved), id=tree.id, meta=tree.meta)


def build_reply_logs(trees: Iterable[Tree], input: ChatInput) -> Logs:
    """Each tree as a log of one conversation. Its post has no link, because it has no possible parent."""
    return Logs.build(map(sort_by_time, trees), input).drop_starts()
