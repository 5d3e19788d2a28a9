"""Texts whose words have tags, as examples: all pieces of a text, and the first piece of each word.

A word is predicted from its first piece (Devlin et al. 2019, section 5.3). Words that share a piece are predicted from the same
one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ramify.batching.characters import Lexicon
from ramify.batching.encoder_input import num_rows
from ramify.batching.forest import Ints
from ramify.batching.views.base import FrozenView
from ramify.dataset.token_tags import Words
from ramify.errors import RamifyError, counted
from ramify.progress import track
from ramify.tokenizer import RowLayout, Tokenizer, UnknownTokens

AT_ONCE = 1000
"""The number of texts that are encoded at a time."""


@dataclass(frozen=True)
class TaggedText:
    """A text without special tokens."""

    ids: Ints
    first: Ints
    """The first piece of each word."""
    tags: Ints | None
    """The number of each word's tag; None: the tags are not known."""
    types: Ints | None = None
    """The number of each word's spelling, for a model that reads it."""
    states: NDArray[np.float32] | None = None
    """[token, layer, dim]: the states of all tokens of its rows in a frozen model."""


@dataclass(frozen=True)
class TagCounts:
    """Counts of what a view reads, for run.json and for people."""

    texts: int
    words: int
    tokens: int
    """Tokens of all rows, special tokens included."""
    divided: int
    """Texts that are longer than a row. They have several."""
    shared: int
    """Words whose first piece is that of the word before, so that they are read alike."""


@dataclass(frozen=True, eq=False)
class WordPieces:
    """Encoded texts and the first piece of each of their words."""

    ids: list[Ints]
    first: list[Ints]
    lexicon: Lexicon | None
    """The characters of all tokens, if words that the vocabulary lacks have numbers of their own."""

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, texts: Sequence[str], words: Sequence[Words], *, open_words: bool = False
    ) -> "WordPieces":
        """Encode texts, whose words have these places.

        A word that the tokenizer drops, such as a control character, has the unknown token. Raises `RamifyError` for such a
        word if the tokenizer has no such token.
        """
        ids: list[Ints] = []
        first: list[Ints] = []
        lacking: dict[str, int] = {}
        for start in track("encoding texts", range(0, len(texts), AT_ONCE)):
            some = texts[start : start + AT_ONCE]
            flat, lengths, starts, ends = tokenizer.encode_offsets(some)
            if open_words:
                flat, _ = tokenizer.encode_open(some, lacking)
            stop = np.cumsum(lengths)
            for number, (text, its_words) in enumerate(zip(some, words[start : start + AT_ONCE], strict=True)):
                part = slice(int(stop[number] - lengths[number]), int(stop[number]))
                own, its_first, missing = _first_pieces(flat[part], starts[part], ends[part], its_words)
                for place in missing:
                    spelled = text[slice(*its_words[place].tolist())]
                    own[its_first[place]] = _unknown(tokenizer, spelled, lacking if open_words else None)
                ids.append(own)
                first.append(its_first)
        return cls(ids, first, Lexicon.of(tokenizer, tuple(lacking)) if open_words else None)

    def unknown(self, tokenizer: Tokenizer) -> UnknownTokens:
        """Count the tokens that the tokenizer cannot spell."""
        return tokenizer.unknown(np.concatenate([np.zeros(0, dtype=np.int64), *self.ids]))


class TaggedView(FrozenView[TaggedText]):
    """Texts with tagged words, one example each, however long."""

    def __init__(
        self,
        pieces: WordPieces,
        tags: Sequence[Ints] | None,
        layout: RowLayout,
        *,
        longest: int,
        overlap: int,
        types: Sequence[Ints] | None = None,
    ) -> None:
        """Rows have at most `longest` tokens, special ones included. Rows of one text share `overlap` tokens. `types` are
        numbers of the words' spellings."""
        self.pieces = pieces
        self.tags = tags
        self.types = types
        self.layout = layout
        self.longest = longest
        self.overlap = overlap
        lengths = np.array([len(ids) for ids in pieces.ids], dtype=np.int64)
        rows = num_rows(lengths, longest - layout.num_special, overlap)
        self._tokens = lengths + (rows - 1) * overlap + rows * layout.num_special
        self._rows = rows

    @property
    def vectors(self) -> Ints:
        return self._tokens

    @property
    def is_fixed(self) -> bool:
        return True

    def content(self) -> Iterator[Ints]:
        nothing = np.zeros(0, dtype=np.int64)
        yield from (np.concatenate([nothing, *self.pieces.ids]), self._tokens, np.array([self.longest, self.overlap]))

    @property
    def costs(self) -> Ints:
        return self._tokens

    @property
    def weights(self) -> NDArray[np.float64]:
        return np.ones(len(self._tokens))

    @property
    def sizes(self) -> Ints:
        return np.ones(len(self._tokens), dtype=np.int64)

    @property
    def target_tokens(self) -> Ints:
        return np.array([len(first) for first in self.pieces.first], dtype=np.int64)

    def counts(self) -> TagCounts:
        shared = sum(int((np.diff(first) == 0).sum()) for first in self.pieces.first)
        words = int(self.target_tokens.sum())
        return TagCounts(len(self), words, int(self._tokens.sum()), int((self._rows > 1).sum()), shared)

    def example(self, number: int, epoch: int = 0) -> TaggedText:
        tags, types = (None if of_texts is None else of_texts[number] for of_texts in (self.tags, self.types))
        return TaggedText(self.pieces.ids[number], self.pieces.first[number], tags, types, self.features_of(number))


def _first_pieces(ids: Ints, starts: Ints, ends: Ints, words: Words) -> tuple[Ints, Ints, list[int]]:
    """The pieces of a text, the first one of each word, and the words that have none. A place is made for each of these."""
    filled = np.flatnonzero(ends > starts)
    nearest = np.searchsorted(ends[filled], words[:, 0], "right")
    has_piece = nearest < len(filled)
    has_piece[has_piece] = starts[filled[nearest[has_piece]]] < words[has_piece, 1]
    first = np.append(filled, len(ids))[nearest].astype(np.int64)
    missing = np.flatnonzero(~has_piece)
    if len(missing):
        # Each place that is made moves all that follows.
        ids = np.insert(ids, first[missing], 0)
        first = first + np.cumsum(~has_piece) - ~has_piece
    return ids, first, missing.tolist()


def _unknown(tokenizer: Tokenizer, word: str, lacking: dict[str, int] | None) -> int:
    if tokenizer.unk_id is None:
        raise RamifyError(
            f"the tokenizer has no token for the word {word!r:.80} of {counted(len(word), 'character')}, and none for unknown "
            "words. Remove such words from the texts, or use another tokenizer."
        )
    return tokenizer.unk_id if lacking is None else lacking.setdefault(word, tokenizer.vocab_size + len(lacking))
