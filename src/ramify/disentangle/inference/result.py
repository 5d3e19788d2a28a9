"""A disentangled log: links and conversations of its messages."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.disentangle.data.channel import Ints
from ramify.disentangle.inference.decode import Parents
from ramify.errors import RamifyError
from ramify.metrics.conversations import find_conversations
from ramify.readers.annotation import Links
from ramify.tree import Node, Tree


@dataclass(frozen=True)
class Disentangled:
    """A log with predicted links."""

    tree: Tree
    """The log's messages, each with its parents, the likeliest first: none where it starts a conversation (where it does that
    besides, it has a `self_link`)."""
    probability: Float[NDArray, " message"]
    """The probability of the first parent of each message, or of a start where it has none."""
    conversation: Ints
    """[message]: its conversation. Conversations are numbered from 0 as they start."""

    def conversations(self) -> list[Tree]:
        """Each conversation as a tree, rooted at the message that starts it, with one parent per message: its first.

        `label` of a node holds the probability of that parent and, as `also`, the ids of further parents, beside what it held
        before: its own fields, or `label` where it was no dictionary. Values of an earlier run are replaced.
        """
        labelled = (
            replace(node, parents=node.parents and node.parents[:1], label=self._label(node, float(probability)))
            for node, probability in zip(self.tree.nodes, self.probability)
        )
        parts = split_log(Tree(tuple(labelled), id=self.tree.id), self.conversation)
        return [replace(part, meta={"log": self.tree.id, **self.tree.meta}) for part in parts]

    def _label(self, node: Node, probability: float) -> Any:
        also = [self.tree.nodes[each].id for each in (node.parents or ())[1:]]
        before = node.label if isinstance(node.label, dict) else {} if node.label is None else {"label": node.label}
        before = {name: value for name, value in before.items() if name not in ("probability", "also")}
        return before | {"probability": round(probability, 4)} | ({"also": also} if also else {})

    def links(self) -> Links:
        """(parent, child) of every message; a message that starts a conversation is its own parent."""
        pairs = [
            (parent, child)
            for child, node in enumerate(self.tree.nodes)
            for parent in ((*(node.parents or ()), child) if node.self_link or not node.parents else node.parents)
        ]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def to_log(messages: Tree | Sequence[Node], keep_replies: bool = False) -> Tree:
    """A log from messages in the order of the channel."""
    if isinstance(messages, Tree):
        return messages
    messages = tuple(messages)
    if other := [type(each).__name__ for each in messages if not isinstance(each, Node)]:
        raise RamifyError(f"Messages are ramify.Node, not {other[0]}: Node(text, author=…, time=…).")
    # A node has no parents unless it says otherwise.
    if keep_replies and len(messages) > 1 and not any(node.parents != () or node.self_link for node in messages):
        raise RamifyError(
            "keep_replies=True keeps the parents that messages have, but none of these has any, so all of them would start "
            "conversations. Give messages whose parents are unknown parents=None, or pass a Tree."
        )
    return Tree(messages)


def add_links(
    log: Tree, parents: Parents, probability: Float[NDArray, " message"], *, keep_replies: bool = False
) -> Disentangled:
    """The log with predicted links; with `keep_replies`, a message whose own `parents` are not None keeps these."""
    if keep_replies:
        for number, node in enumerate(log.nodes):
            if node.parents is not None:
                parents[number] = (*node.parents, number) if node.self_link and node.parents else node.parents
                probability[number] = 1.0
    nodes = (
        replace(node, parents=tuple(parent for parent in own if parent != number), self_link=number in own)
        for number, (node, own) in enumerate(zip(log.nodes, parents, strict=True))
    )
    tree = Tree(tuple(nodes), id=log.id, meta=log.meta)
    # Numbered in the order in which conversations start.
    component = find_conversations(_list_links(tree), np.arange(len(tree)))
    _, first, place = np.unique(component, return_index=True, return_inverse=True)
    return Disentangled(tree, probability, np.argsort(np.argsort(first))[place])


def split_log(log: Tree, conversation: Ints) -> list[Tree]:
    """The log's conversations, each as a tree."""
    members: list[list[int]] = [[] for _ in range(int(conversation.max(initial=-1)) + 1)]
    for message, number in enumerate(conversation.tolist()):
        members[number].append(message)
    trees = []
    for number, own in enumerate(members):
        place = {message: index for index, message in enumerate(own)}
        nodes = (
            replace(node, parents=node.parents and tuple(place[parent] for parent in node.parents))
            for node in (log.nodes[message] for message in own)
        )
        trees.append(Tree(tuple(nodes), id=conversation_id(log, number)))
    return trees


def conversation_id(log: Tree, number: int) -> str:
    """The id of a conversation, which is unique among the conversations of all logs."""
    return f"{log.id}/{number}"


def _list_links(log: Tree) -> Links:
    """(parent, child) of all messages with a parent."""
    links = [(parent, child) for child, node in enumerate(log.nodes) for parent in node.parents or ()]
    return np.array(links, dtype=np.int64).reshape(-1, 2)


def split_by_gold(log: Tree) -> list[Tree]:
    """The gold conversations of a log, each as a log without times: a channel without cross-talk. Conversations of one message
    are left out."""
    number = find_conversations(_list_links(log), np.arange(len(log)))
    untimed = Tree(tuple(replace(node, time=None) for node in log.nodes), id=log.id)
    return [part for part in split_log(untimed, number) if len(part) > 1]
