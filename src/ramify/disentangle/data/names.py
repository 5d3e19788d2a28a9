"""Who is spoken to: the names of a channel's people among the words of a message."""

import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from ramify.readers.chat import SYSTEM
from ramify.tree import Node

PUNCTUATION = string.punctuation
SHORT = 2
"""Names of so many letters are only taken for names where `:` or `,` follows, or `@` stands before."""

# Newcomers choose these for a name, so that counting would let them pass.
_ALWAYS = "ubuntu kubuntu debian linux help"
_RELEASES = (
    "warty hoary breezy dapper edgy feisty gutsy hardy intrepid jaunty karmic lucid maverick natty oneiric precise quantal "
    "raring saucy trusty utopic vivid wily xenial yakkety zesty artful bionic"
)
"""What Ubuntu's are called for short, to a little after the last of the logs on which words were counted."""
_COMMANDS = "away ban ignore invite join kick list me mode msg names nick notice part query quit topic whois whowas"
"""What people tell a channel's server, slash or no slash."""
_RESERVED = Path(__file__).with_name("reserved.txt")
_TOO_COMMON = 100
_OFTEN = 100
# What old clients say of a channel, in the place where a name stands: "=== Topic (#ubuntu): …".
_CHANNEL_SIGNS = ("#", "&", "(")


@cache
def reserved() -> frozenset[str]:
    """Words that are somebody's name as well, but hardly ever mean them (`common_words` of a corpus)."""
    return frozenset(f"{_ALWAYS} {_RELEASES} {_COMMANDS} {_RESERVED.read_text('utf-8')}".split())


def common_words(messages: Iterable[Node]) -> list[str]:
    """Words said a hundred times, and a hundred times as often as somebody of that name says anything."""
    said: Counter[str] = Counter()
    speaks: Counter[str] = Counter()
    for message in messages:
        if message.author:
            speaks.update(_spellings(message.author.lower()))
        if message.kind != SYSTEM:
            said.update(word.strip(PUNCTUATION) for word in message.text.lower().split())
    return sorted(word for word, count in said.items() if word and count >= max(_OFTEN, _TOO_COMMON * speaks[word]))


class Names:
    """The people that a channel has heard of, in lower case: whole names, and names without punctuation around them.

    A name of several words is known as one word, as `as_one_word` has it; `joined` finds it in a text.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._longer: dict[str, set[tuple[str, ...]]] = {}
        """Names of several words, by the first without punctuation before it."""

    def add(self, author: str) -> None:
        if len(words := author.lower().split()) > 1:
            self._longer.setdefault(words[0].lstrip(PUNCTUATION), set()).add(tuple(words))
            author = as_one_word(author)
        if not author.startswith(_CHANNEL_SIGNS) and not author.endswith(":"):
            self._known.update(name for name in _spellings(author.lower()) if not name.isdigit() and name not in reserved())

    def joined(self, text: str) -> str:
        """The text with names of several words as one word each, the longest that fits; else as it is."""
        if not self._longer:
            return text
        words, place, found = text.split(), 0, []
        while place < len(words):
            length = self._length(words, place)
            found.append(as_one_word(" ".join(words[place : place + length])))
            place += length
        return " ".join(found)

    def _length(self, words: Sequence[str], place: int) -> int:
        """Of the name that stands there, in words; 1 where none of several words does."""
        fitting = [1]
        for name in self._longer.get(words[place].lower().lstrip(PUNCTUATION), ()):
            *middle, last = (word.lower() for word in words[place + 1 : place + len(name)]) if place + 1 < len(words) else ("",)
            if (*middle, last.rstrip(PUNCTUATION)) == (*name[1:-1], name[-1].rstrip(PUNCTUATION)):
                fitting.append(len(name))
        return max(fitting)

    def among(self, words: Sequence[str]) -> list[str]:
        """The names of those whom the words speak to or of, each once."""
        found = (self.find(word.lower()) for word in words)
        return list(dict.fromkeys(name for name in found if name is not None))

    def find(self, word: str) -> str | None:
        """The name that a word in lower case is, but for punctuation around it."""
        if len(word) > SHORT and word in self._known:
            return word
        if not word or (word[0] not in PUNCTUATION and word[-1] not in PUNCTUATION):
            return None  # there is nothing to take off
        for inner in _inner(word):
            if inner in self._known and (len(inner) > SHORT or _called(word, inner)):
                return inner
        return None


def as_one_word(name: str) -> str:
    return "_".join(name.split())


def _spellings(name: str) -> set[str]:
    return {name, name.strip(PUNCTUATION)} - {""}


def _inner(word: str) -> Iterator[str]:
    """The word with less and less punctuation: first of what stands behind it, then of what stands before."""
    while word and word[-1] in PUNCTUATION:
        word = word[:-1]
        yield word
    while word and word[0] in PUNCTUATION:
        word = word[1:]
        yield word


def _called(word: str, name: str) -> bool:
    start = word.index(name)
    return word[start + len(name) :].startswith((":", ",")) or word[:start].endswith("@")


def spoken_words(message: Node) -> list[str]:
    """The words of a message that may name somebody: not those that say who does something."""
    words = message.text.split()
    return words[2:] if message.kind == SYSTEM and words and words[0] == "===" else words
