"""The words of documents, their tokens, and classes of words: names, words that recur, and others."""

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ramify.batching.forest import Ints, ranges
from ramify.batching.levels import DocumentRows
from ramify.dataset.store import Store
from ramify.inference.word_classes import COMMON
from ramify.tokenizer import Tokenizer

WORD = re.compile(r"[^\W\d_]+")

CLASSES = ("names", "recurring", "new", "function_words")
"""names: types that occur at least `FREQUENT` times in their document and are capitalised in at least `CAPITALISED` of the
cases where they do not begin a sentence. function_words: words of the most frequent pieces. recurring and new: other words that
occur, or do not occur, in another sentence of the document. A name that occurs in one sentence is new."""

FREQUENT, CAPITALISED = 5, 0.9

SHORTEST = 2
"""Letters of a name. English capitalises the word `I` everywhere."""


@dataclass(frozen=True)
class Words:
    """The words of some documents in reading order. Words that lie in two rows are left out."""

    first: Ints
    """The first token of each word, among all tokens."""
    count: Ints
    """The number of tokens of each word."""
    row: Ints
    """The lowest row of each word."""
    node: Ints
    """The sentence of each word (see `LevelRows.node_of_row`)."""
    tree: Ints
    type: Ints
    """A number for each type of each document. Types are written in small letters."""
    spellings: tuple[str, ...]
    """The spelling of each type, by its number."""
    capitalised: NDArray[np.bool_]
    begins: NDArray[np.bool_]
    """Whether a word is the first of its sentence."""
    common: NDArray[np.bool_]
    """Whether each piece of a word is one of the most frequent pieces."""
    not_read: int
    """Sentences whose words are unknown, because their tokens come from several nodes of the data."""

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def sentences_of_type(self) -> Ints:
        """The number of sentences in which each type occurs."""
        pairs = np.unique(np.stack([self.type, self.node], 1), axis=0)
        return np.bincount(pairs[:, 0], minlength=len(self.spellings))

    @cached_property
    def is_name(self) -> NDArray[np.bool_]:
        """Whether a word is a name, however often sentences have it."""
        inside, size = ~self.begins, len(self.spellings)
        number = np.bincount(self.type, minlength=size)
        away = np.bincount(self.type[inside], minlength=size)
        large = np.bincount(self.type[inside & self.capitalised], minlength=size)
        long = np.array([len(spelling) >= SHORTEST for spelling in self.spellings], dtype=bool)
        return ((number >= FREQUENT) & (away > 0) & (large >= CAPITALISED * away) & long)[self.type]

    @cached_property
    def classes(self) -> Ints:
        """The place in `CLASSES` of each word."""
        again = self.sentences_of_type[self.type] > 1
        other = np.where(self.common, 3, np.where(again, 1, 2))
        return np.where(self.is_name, np.where(again, 0, 2), other)

    def tokens(self, chosen: NDArray[np.bool_] | Ints) -> Ints:
        """The tokens of some words, one word after the other."""
        return ranges(self.first[chosen], self.first[chosen] + self.count[chosen])


def words_of(store: Store, tokenizer: Tokenizer, rows: DocumentRows, common: int = COMMON) -> Words:
    """The words of the sentences of some documents."""
    level = rows.levels[0]
    nodes, offsets = level.level, level.level.offsets
    row_of_token = np.full(len(rows.ids), -1)
    row_of_token[level.held_children] = level.child_row
    frequent = np.zeros(tokenizer.vocab_size, dtype=bool)
    frequent[np.argsort(-np.bincount(rows.ids, minlength=tokenizer.vocab_size), kind="stable")[:common]] = True
    texts = store.column("text", nodes.node[nodes.stored]).to_pylist()
    ids, lengths, starts, ends = tokenizer.encode_offsets([text or "" for text in texts])
    place = np.cumsum(lengths) - lengths
    found: list[tuple[int, int, bool, bool]] = []
    types: dict[tuple[int, str], int] = {}
    numbers: list[int] = []
    not_read = int((~nodes.stored & (nodes.counts > 0)).sum())
    columns = (np.flatnonzero(nodes.stored).tolist(), texts, place.tolist(), lengths.tolist())
    for node, text, begin, length in zip(*columns, strict=True):
        own = slice(int(offsets[node]), int(offsets[node + 1]))
        if not np.array_equal(rows.ids[own], ids[begin : begin + length]):
            not_read += 1
            continue
        tree, first_word = int(nodes.tree[node]), True
        piece_starts, piece_ends = starts[begin : begin + length], ends[begin : begin + length]
        for match in WORD.finditer(text or ""):
            # Pieces of white space alone are empty.
            inside = (piece_starts < match.end()) & (piece_ends > match.start()) & (piece_ends > piece_starts)
            held = np.flatnonzero(inside)
            if len(held):
                token = own.start + int(held[0])
                found.append((token, int(held[-1] - held[0]) + 1, match[0][0].isupper(), first_word))
                numbers.append(types.setdefault((tree, match[0].casefold()), len(types)))
            first_word = False
    table = np.array([each[:2] for each in found], dtype=np.int64).reshape(-1, 2)
    first, count = table[:, 0], table[:, 1]
    row = row_of_token[first]
    kept = (row >= 0) & (row == row_of_token[first + count - 1])
    flags = np.array([each[2:] for each in found], dtype=bool).reshape(-1, 2)
    rare = np.concatenate([[0], np.cumsum(~frequent[rows.ids])])
    return Words(
        first=first[kept],
        count=count[kept],
        row=row[kept],
        node=level.node_of_row[row[kept]],
        tree=level.tree[row[kept]],
        type=np.array(numbers, dtype=np.int64)[kept],
        spellings=tuple(spelling for _, spelling in types),
        capitalised=flags[kept, 0],
        begins=flags[kept, 1],
        common=(rare[first + count] == rare[first])[kept],
        not_read=not_read,
    )
