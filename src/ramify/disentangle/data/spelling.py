"""The words of a chat message, one by one."""

import re

from ramify.disentangle.data.names import Names

USER = "<user>"
"""Stands for any name of the channel."""

LINK = "<link>"

_WORD = re.compile(r"(?:https?://|www\.)\S+|\w+(?:[-.'_]\w+)*|\.{2,}|[^\w\s]")
_LINK = re.compile(r"(?:https?://|www\.)\S+")


def spelled(text: str, names: Names) -> list[str]:
    """The words of a message in lower case, punctuation apart, names as USER."""
    words = []
    for word in text.lower().split():
        name = names.find(word)
        if name is None and word.isalnum():
            words.append(word)
        elif name is None:
            words += [LINK if _LINK.match(part) else part for part in _WORD.findall(word)]
        else:
            start, _, end = word.partition(name)
            words += [*start, USER, *end]
    return words
