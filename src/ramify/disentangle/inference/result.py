"""A disentangled log: links and conversations of its messages."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.dataset.frames import ArrowStream
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.inference.decode import Parents
from ramify.disentangle.posterior import RecordedLinks
from ramify.errors import RamifyError
from ramify.inference.answers import Conversations
from ramify.metrics.conversations import find_conversations
from ramify.readers.annotation import Links
from ramify.tree import Node, Tree

Message = Node | tuple[str | None, str]
"""A message in a sequence: a node, or its author and its text."""


@dataclass(frozen=True)
class Disentangled(Conversations):
    """A log with its links: those that it records, and predicted ones for all other messages."""

    tree: Tree
    """The log's messages, each with its parents, the likeliest first: none where it starts a conversation (where it does that
    besides, it has a `self_link`)."""
    probability: Float[NDArray, " message"]
    """The probability of the first parent of each message, or of a start where it has none."""
    conversation: Ints
    """[message]: its conversation. Conversations are numbered from 0 as they start."""
    recorded: frozenset[int] = frozenset()
    """The messages whose links the log records; their probability is 1."""

    def count_links(self) -> tuple[int, int]:
        """The numbers of recorded and of predicted links from a message to an earlier one."""
        total = sum(len(node.parents or ()) for node in self.tree.nodes)
        recorded = sum(len(self.tree.nodes[message].parents or ()) for message in self.recorded)
        return recorded, total - recorded

    def to_json(self) -> dict[str, Any]:
        """The conversations as trees, each as a line of Ramify's JSON lines format has it."""
        return {"conversations": [json.loads(tree.to_json()) for tree in self.conversations()]}

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
        also = [self.tree.nodes[parent].id for parent in (node.parents or ())[1:]]
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


def to_message(message: Message) -> Node:
    """A message of a sequence as a node. `()` becomes None: a node has no parents unless it says otherwise."""
    if isinstance(message, tuple) and len(message) == 2 and isinstance(message[1], str):
        author, text = message
        if author is None or isinstance(author, str):
            return Node(text, None, author=author)
    if not isinstance(message, Node):
        raise TypeError(
            f"A message is a ramify.Node(text, author=…, time=…), not {type(message).__name__}. A pair (author, text) will do, "
            "too."
        )
    return replace(message, parents=None) if message.parents == () and not message.self_link else message


def to_log(messages: Tree | Iterable[Message]) -> Tree:
    """A log from messages in the order of the channel. Those of a sequence record a link if they have parents, and a start if
    they have a `self_link`."""
    if isinstance(messages, Tree):
        return messages
    if isinstance(messages, ArrowStream):
        raise RamifyError(
            f"disentangle takes messages, not the columns of a {type(messages).__name__}. Pass pairs, such as "
            "zip(frame['author'], frame['text'])."
        )
    try:
        return Tree(tuple(map(to_message, messages)))
    except TypeError as error:
        raise RamifyError(str(error)) from None


def find_recorded(log: Tree) -> RecordedLinks:
    """The links that a log records: all parents that are not None, where `()` is a start.

    A log in which no message has parents or a `self_link` records nothing, even if they are all `()`, as by default.
    """
    if all(node.parents == () and not node.self_link for node in log.nodes):
        return {}
    return {
        number: (*node.parents, number) if node.self_link or not node.parents else node.parents
        for number, node in enumerate(log.nodes)
        if node.parents is not None
    }


def add_links(log: Tree, parents: Parents, probability: Float[NDArray, " message"], recorded: RecordedLinks) -> Disentangled:
    """The log with predicted links, and its own where they are `recorded`."""
    for number, recorded_parents in recorded.items():
        parents[number] = () if recorded_parents == (number,) else recorded_parents
        probability[number] = 1.0
    nodes = (
        replace(
            node, parents=tuple(parent for parent in message_parents if parent != number), self_link=number in message_parents
        )
        for number, (node, message_parents) in enumerate(zip(log.nodes, parents, strict=True))
    )
    tree = Tree(tuple(nodes), id=log.id, meta=log.meta)
    # Numbered in the order in which conversations start.
    component = find_conversations(_list_links(tree), np.arange(len(tree)))
    _, first, place = np.unique(component, return_index=True, return_inverse=True)
    return Disentangled(tree, probability, np.argsort(np.argsort(first))[place], frozenset(recorded))


def split_log(log: Tree, conversation: Ints) -> list[Tree]:
    """The log's conversations, each as a tree."""
    members: list[list[int]] = [[] for _ in range(int(conversation.max(initial=-1)) + 1)]
    for message, number in enumerate(conversation.tolist()):
        members[number].append(message)
    trees = []
    for number, messages in enumerate(members):
        place = {message: index for index, message in enumerate(messages)}
        nodes = (
            replace(node, parents=node.parents and tuple(place[parent] for parent in node.parents))
            for node in (log.nodes[message] for message in messages)
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
