"""Mentions: the names of a channel's authors among the words of a message."""

import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from ramify.readers.chat import SYSTEM
from ramify.tree import Node

PUNCTUATION = string.punctuation
MAX_SHORT = 2
"""A name of at most so many letters counts as a mention only with `:` or `,` after it, or `@` before it."""

# Newcomers choose these as names, so that a count would let them pass.
_ALWAYS = "ubuntu kubuntu debian linux help"
_RELEASES = (
    "warty hoary breezy dapper edgy feisty gutsy hardy intrepid jaunty karmic lucid maverick natty oneiric precise quantal "
    "raring saucy trusty utopic vivid wily xenial yakkety zesty artful bionic"
)
"""Short names of Ubuntu releases, up to a little after the last of the logs on which words were counted."""
_COMMANDS = "away ban ignore invite join kick list me mode msg names nick notice part query quit topic whois whowas"
"""Commands to a channel's server, with or without a slash."""
_RESERVED = Path(__file__).with_name("reserved.txt")
_COMMON_RATIO = 100
_COMMON_COUNT = 100
_DISCRIMINATOR = re.compile(r"#\d{4}\Z")
"""The number behind a name of Discord: `ann#0042` is mentioned as `@ann`."""
# Old clients write the channel where a name would stand: "=== Topic (#ubuntu): …".
_CHANNEL_SIGNS = ("#", "&", "(")


@cache
def load_reserved_words() -> frozenset[str]:
    """Words that are also names of authors, but hardly ever mention them (`find_common_words` of a corpus)."""
    return frozenset(f"{_ALWAYS} {_RELEASES} {_COMMANDS} {_RESERVED.read_text('utf-8')}".split())


def find_common_words(messages: Iterable[Node]) -> list[str]:
    """Words used at least a hundred times, and a hundred times as often as an author of that name writes a message."""
    uses: Counter[str] = Counter()
    messages_by: Counter[str] = Counter()
    for message in messages:
        if message.author:
            messages_by.update(_list_forms(message.author.lower()))
        if message.kind != SYSTEM:
            uses.update(word.strip(PUNCTUATION) for word in message.text.lower().split())
    return sorted(
        word for word, count in uses.items() if word and count >= max(_COMMON_COUNT, _COMMON_RATIO * messages_by[word])
    )


class KnownNames:
    """The authors that a channel knows, in lower case: whole names, and names without the punctuation around them.

    A name of several words is known as one word, as `join_words` makes it; `join_names` finds it in a text. A name with a
    number, as on Discord, is also known without it, unless another author has the name without it or with another number.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._numbered: dict[str, str] = {}
        """The name with its number, by the name without it; "" if there are several."""
        self._longer: dict[str, set[tuple[str, ...]]] = {}
        """Names of several words, by the first word without punctuation before it."""

    def add(self, author: str) -> None:
        bare = _DISCRIMINATOR.sub("", author)
        name, key = join_words(author).lower(), join_words(bare).lower()
        if bare and bare != author:
            is_taken = key in self._known and key not in self._numbered
            if is_taken or self._numbered.setdefault(key, name) != name:
                self._numbered[key] = ""
            self._add(bare)
        elif key in self._numbered:
            self._numbered[key] = ""
        self._add(author)

    def _add(self, author: str) -> None:
        if len(words := author.lower().split()) > 1:
            self._longer.setdefault(words[0].lstrip(PUNCTUATION), set()).add(tuple(words))
            author = join_words(author)
        if not author.startswith(_CHANNEL_SIGNS) and not author.endswith(":"):
            forms = _list_forms(author.lower())
            self._known.update(name for name in forms if not name.isdigit() and name not in load_reserved_words())

    def join_names(self, text: str) -> str:
        """The text with each name of several words as one word, the longest that fits; otherwise the same text."""
        if not self._longer:
            return text
        words, start, joined = text.split(), 0, []
        while start < len(words):
            length = self._measure_name(words, start)
            joined.append(join_words(" ".join(words[start : start + length])))
            start += length
        return " ".join(joined)

    def _measure_name(self, words: Sequence[str], start: int) -> int:
        """Number of words of the name that starts there; 1 where no name of several words does."""
        lengths = [1]
        for name in self._longer.get(words[start].lower().lstrip(PUNCTUATION), ()):
            *middle, last = (word.lower() for word in words[start + 1 : start + len(name)]) if start + 1 < len(words) else ("",)
            if (*middle, last.rstrip(PUNCTUATION)) == (*name[1:-1], name[-1].rstrip(PUNCTUATION)):
                lengths.append(len(name))
        return max(lengths)

    def find_all(self, words: Sequence[str]) -> list[str]:
        """The names that the words mention, each once."""
        names = (self.find(word.lower()) for word in words)
        return list(dict.fromkeys(self._numbered.get(name) or name for name in names if name is not None))

    def find(self, word: str) -> str | None:
        """The name that a word in lower case mentions, with or without punctuation around it."""
        if len(word) > MAX_SHORT and word in self._known:
            return word
        if not word or (word[0] not in PUNCTUATION and word[-1] not in PUNCTUATION):
            return None  # there is no punctuation to strip
        for inner in _strip_gradually(word):
            if inner in self._known and (len(inner) > MAX_SHORT or _is_addressed(word, inner)):
                return inner
        return None


def join_words(name: str) -> str:
    return "_".join(name.split())


def _list_forms(name: str) -> set[str]:
    return {name, name.strip(PUNCTUATION)} - {""}


def _strip_gradually(word: str) -> Iterator[str]:
    """The word with ever less punctuation: first behind it, then before it."""
    while word and word[-1] in PUNCTUATION:
        word = word[:-1]
        yield word
    while word and word[0] in PUNCTUATION:
        word = word[1:]
        yield word


def _is_addressed(word: str, name: str) -> bool:
    start = word.index(name)
    return word[start + len(name) :].startswith((":", ",")) or word[:start].endswith("@")


def select_spoken_words(message: Node) -> list[str]:
    """The words of a message that may mention a user. In a line of the channel itself, the author is left out."""
    words = message.text.split()
    return words[2:] if message.kind == SYSTEM and words and words[0] == "===" else words
