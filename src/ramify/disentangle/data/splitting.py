"""Splitting chat messages into words."""

import re

from ramify.disentangle.data.names import KnownNames

USER = "<user>"
"""Replaces any name of the channel."""

LINK = "<link>"

_WORD = re.compile(r"(?:https?://|www\.)\S+|\w+(?:[-.'_]\w+)*|\.{2,}|[^\w\s]")
_LINK = re.compile(r"(?:https?://|www\.)\S+")


def split_words(text: str, names: KnownNames) -> list[str]:
    """The words of a message in lower case, with punctuation marks as words of their own and names as USER."""
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
