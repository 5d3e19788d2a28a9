"""What readers of chat logs share. A log is a run of messages in the order of the channel; who answers whom may be unknown."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ramify.tree import Node, Tree

SYSTEM = "system"
"""The kind of a message that the channel itself says: somebody joined, left, goes by another name; a new day."""

ACTION = "action"
"""The kind of a message that says what its author does: `/me waves`. Its text is "waves"."""

TOKENS = "tokens"
"""In a message's label: its words, with spaces between them, as somebody else told them apart."""


@dataclass(frozen=True)
class Log:
    """A channel's messages, to be read once and before the next log is asked for.

    A message's `parents` are places of earlier messages of the log: `()` where it is known to start a conversation, `None`
    where nobody said what it answers. Ids differ within the log. `where` is the file that it comes from.
    """

    name: str
    messages: Iterator[Node]
    meta: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""

    def tree(self) -> Tree:
        """The whole log, held at once."""
        return Tree(tuple(self.messages), id=self.name, meta=self.meta)
