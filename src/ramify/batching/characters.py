"""Tokens as characters: the bytes of UTF-8 between marks, as in the published ELMo (Peters et al. 2018)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

from ramify.batching.movable import Movable, moved
from ramify.nn.ragged import on_device
from ramify.tokenizer import Role, Tokenizer

LENGTH = 50
"""The number of characters of a token, with the marks of its beginning and end. Longer words are cut."""

PAD, WORD_START, WORD_END, TEXT_START, TEXT_END = 0x00, 0xFC, 0xFD, 0xFE, 0xFF
"""Bytes that UTF-8 never uses. A text starts and ends with a token of a single mark."""

MARKED: tuple[tuple[Role, int], ...] = (("cls", TEXT_START), ("sep", TEXT_END))
"""The special tokens that are marks of a text. Others are spelled like words."""

Spellings = UInt8[NDArray, "word 50"]


def spell(words: Iterable[str]) -> Spellings:
    """The characters of words."""
    return _table(word.encode("utf-8", "replace") for word in words)


def vocabulary_spellings(tokenizer: Tokenizer) -> Spellings:
    """The characters of every token of a vocabulary: those of its spelling. CLS and SEP are the start and the end of a text."""
    spelled = [piece.encode("utf-8", "replace") for piece in tokenizer.pieces]
    for role, mark in MARKED:
        if (token_id := tokenizer.role_id(role)) is not None:
            spelled[token_id] = bytes([mark])
    return _table(spelled)


@dataclass(frozen=True)
class Lexicon:
    """The characters of the tokens of a text: those of the vocabulary, and behind them the words that it lacks."""

    spellings: Spellings
    vocab_size: int
    unk_id: int | None
    """The token that stands for a word that the vocabulary lacks; None: it lacks none."""
    num_cut: int
    """Number of lacking words that are longer than the characters that are read."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, words: Sequence[str]) -> "Lexicon":
        """`words` are those that the vocabulary lacks, in the order of their numbers."""
        spellings = np.concatenate([vocabulary_spellings(tokenizer), spell(words)])
        num_cut = sum(len(word.encode("utf-8", "replace")) > LENGTH - 2 for word in words)
        return cls(spellings, tokenizer.vocab_size, tokenizer.unk_id, num_cut)

    def in_vocabulary(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ids with the unknown token for each lacking word."""
        return ids if self.unk_id is None else np.where(ids < self.vocab_size, ids, self.unk_id)


@dataclass(frozen=True)
class Characters(Movable):
    """The characters of tokens. A batch repeats its frequent words, so a spelling is there once."""

    spellings: UInt8[Tensor, "spelling character"]
    index: Int[Tensor, "*tokens"]
    """The spelling of each token."""

    @classmethod
    def of(cls, characters: UInt8[NDArray, "*tokens character"]) -> "Characters":
        """Characters of tokens, found on the host, because a device would have to say how many spellings there are."""
        *tokens, length = characters.shape
        # Sorted as bytes.
        words = np.ascontiguousarray(characters).view(f"V{length}").reshape(-1)
        spellings, index = np.unique(words, return_inverse=True)
        table = spellings.view(np.uint8).reshape(-1, length)
        return cls(torch.from_numpy(table), torch.from_numpy(index.reshape(tokens)))

    @property
    def of_tokens(self) -> UInt8[Tensor, "total character"]:
        """The characters of every token on one axis."""
        return self.spellings.index_select(0, self.index.flatten())

    def to(self, device: torch.device | str) -> "Characters":
        return moved(self, device)

    def placed(self, places: Int[Tensor, " total"], total: int, others: UInt8[NDArray, " character"]) -> "Characters":
        """The characters of `total` tokens: these at `places`, and those of the same spelling elsewhere."""
        spelling = on_device(others, places.device)[None]
        index = places.new_zeros(total).index_copy_(0, places, self.index + 1)
        return Characters(torch.cat([spelling, self.spellings]), index)


def _table(words: Iterable[bytes]) -> Spellings:
    rows = [bytes([WORD_START, *word[: LENGTH - 2], WORD_END]).ljust(LENGTH, bytes([PAD])) for word in words]
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, LENGTH).copy()
