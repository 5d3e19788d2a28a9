"""Shared parts of the readers of chat logs.

A log is a sequence of messages in the order of the channel. Their reply links may be unknown.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ramify.tree import Node, Tree

SYSTEM = "system"
"""The kind of a message from the channel itself: a join, a part, a change of names, a new day."""

ACTION = "action"
"""The kind of a message that describes an action of its author: `/me waves`. Its text is "waves"."""

TOKENS = "tokens"
"""The key in a message's label for its words as tokenized by the data set, separated by spaces."""


@dataclass(frozen=True)
class Log:
    """A channel's messages. They can be read once, and only before the next log is requested.

    A message's `parents` are places of earlier messages of the log: `()` if it is known to start a conversation, `None` if
    its parent is unknown. Ids are unique within the log. `where` is the log's file.
    """

    name: str
    messages: Iterator[Node]
    meta: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""
    names_parents: bool = True
    """Whether messages may have parents."""

    def tree(self) -> Tree:
        """The whole log, in memory."""
        return Tree(tuple(self.messages), id=self.name, meta=self.meta)
