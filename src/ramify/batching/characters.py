"""Tokens as characters: the bytes of UTF-8 between marks, as in the published ELMo (Peters et al. 2018)."""

from collections.abc import Iterable

import numpy as np
from jaxtyping import UInt8
from numpy.typing import NDArray

from ramify.tokenizer import Tokenizer

LENGTH = 50
"""The number of characters of a token, with the marks of its beginning and end. Longer words are cut."""

PAD, WORD_START, WORD_END, TEXT_START, TEXT_END = 0x00, 0xFC, 0xFD, 0xFE, 0xFF
"""Bytes that UTF-8 never uses. A text starts and ends with a token of a single mark."""

Spellings = UInt8[NDArray, "word 50"]


def spell(words: Iterable[str]) -> Spellings:
    """The characters of words."""
    return _table(word.encode("utf-8", "replace") for word in words)


def vocabulary_spellings(tokenizer: Tokenizer) -> Spellings:
    """The characters of every token of a vocabulary: those of its spelling. CLS and SEP are the start and the end of a text."""
    spelled = [piece.encode("utf-8", "replace") for piece in tokenizer.pieces]
    for role, mark in (("cls", TEXT_START), ("sep", TEXT_END)):
        if (token_id := tokenizer.role_id(role)) is not None:
            spelled[token_id] = bytes([mark])
    return _table(spelled)


def is_cut(word: str) -> bool:
    """Whether a word has more characters than are read."""
    return len(word.encode("utf-8", "replace")) > LENGTH - 2


def _table(words: Iterable[bytes]) -> Spellings:
    rows = [bytes([WORD_START, *word[: LENGTH - 2], WORD_END]).ljust(LENGTH, bytes([PAD])) for word in words]
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, LENGTH).copy()
