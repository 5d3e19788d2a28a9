"""Linear models of words among their neighbours, fitted without training: the score of each word from sparse features.

The features of a word are the words around it (without their case), and the shapes of these. If rows hold two texts, the words
of the second one have further features, as in the linear model of Rajpurkar et al. (2016, section 5.2): which words of the
first text stand around them, weighted by their rarity, and pairs of a frequent word of the first text and their own shape.
With `reads=place`, the two scores of a word say how far it stands from the first and from the last word of a fixed span.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ramify.batching.encoder_input import EncoderInput
from ramify.batching.forest import Ints, ranges
from ramify.errors import RamifyError
from ramify.models.base import Checkpoint, Encoded, ModelConfig, Read, check_config, kept_positions
from ramify.models.linear_scores import LinearScores
from ramify.nn.attention import AttentionRecord
from ramify.nn.pooling import row_sums
from ramify.tokenizer import Tokenizer

REACHES = (0, 2, 8, 32)
"""Words of the first text are counted up to so many words before and behind a word of the second one."""

SHAPES = ("other", "lower", "title", "upper", "digits", "number", "mark")
"""The shapes of words. number: digits among other characters; other: special tokens, and letters of mixed case."""


@dataclass(frozen=True)
class WordWindowConfig(ModelConfig):
    """Settings of a linear model of words. The training data determine the sizes."""

    reads: Literal["words", "place"] = "words"
    """place: nothing but the place of a word in its text."""
    vocab_size: int = 0
    """0 = the tokenizer's."""
    window: int = 1
    """Neighbours on each side."""
    num_asked: int = 0
    """Frequent words of the first text that form pairs with the shape of a word."""
    num_texts: int = 1
    """Texts of a row. The words of the last one are scored."""
    dim: int = 2
    """The scores of a word."""
    max_tokens: int = 4096
    """Longest row."""

    def __post_init__(self) -> None:
        check_config(self, num_asked=0, window=0)
        if self.num_texts not in (1, 2):
            raise RamifyError(f"model.num_texts={self.num_texts} is neither 1 nor 2. Leave it out: the task determines it.")

    @property
    def num_features(self) -> int:
        """The features of a word: words and shapes in the window, words of the first text in reach, and pairs."""
        if self.reads == "place":
            return 0
        lexical = (2 * self.window + 1) * (self.vocab_size + len(SHAPES))
        return lexical + (self.num_texts == 2) * (2 * len(REACHES) - 1 + self.num_asked * len(SHAPES))

    def build(self) -> "WordWindow":
        return WordWindow(self)

    def adapted_to(self, checkpoint: Checkpoint) -> "WordWindowConfig":
        return checkpoint.saved_as(self)

    def for_vocabulary(self, size: int) -> Self:
        return replace(self, vocab_size=size)

    def initialize(self, backbone: "WordWindow", checkpoint: Checkpoint) -> None:
        checkpoint.fill(backbone, self, ())


class Features(NamedTuple):
    """The features of words, as the cells of a matrix."""

    token: Int[Tensor, " cell"]
    feature: Int[Tensor, " cell"]
    value: Float[Tensor, " cell"]


class WordWindow(LinearScores):
    """The state of a word of the last text is its scores; that of any other token is `outside`."""

    config: WordWindowConfig
    word: Int[Tensor, " vocab"]
    """The number of each token's spelling in lower case."""
    shape: Int[Tensor, " vocab"]
    asked: Int[Tensor, " asked"]
    """The frequent words of the first texts, in ascending order."""
    rarity: Float[Tensor, " vocab"]
    """The inverse document frequency of each word among the second texts."""
    span: Int[Tensor, "2"]
    """With reads=place: the places of the first and the last word."""
    outside: Float[Tensor, ""]

    def __init__(self, config: WordWindowConfig) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.zeros(config.num_features, config.dim))
        self.register_buffer("word", torch.arange(config.vocab_size))
        self.register_buffer("shape", torch.zeros(config.vocab_size, dtype=torch.int64))
        self.register_buffer("asked", torch.zeros(config.num_asked, dtype=torch.int64))
        self.register_buffer("rarity", torch.ones(config.vocab_size))
        self.register_buffer("span", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("outside", torch.zeros(()))

    def encode_rows(
        self, rows: EncoderInput, *, layers: bool = False, read: Read = "all", record: AttentionRecord | None = None
    ) -> Encoded:
        states = self._places(rows) if self.config.reads == "place" else self._scores(rows)
        kept = kept_positions(rows.rows, rows.rows, layers=layers, read=read)
        if kept is None:
            return Encoded(rows.rows, (states,))
        return Encoded(kept.rows, (states.index_select(0, kept.index),))

    def vector(self, encoded: Encoded) -> Float[Tensor, "row vector_dim"]:
        return row_sums(encoded.last, encoded.rows)

    def _scores(self, rows: EncoderInput) -> Float[Tensor, "total dim"]:
        cells = self.features(rows)
        states = self.outside.expand(rows.rows.total, self.config.dim).clone()
        states[self._tensor(_tokens(rows, -1))] = 0
        return states.index_add(0, cells.token, cells.value[:, None] * self.weight[cells.feature])

    def _places(self, rows: EncoderInput) -> Float[Tensor, "total dim"]:
        tokens = _tokens(rows, -1)
        begin, stop = rows.spans[:, -1].T
        place = ranges(rows.offsets[:, -1], rows.offsets[:, -1] + stop - begin)
        states = self.outside.expand(rows.rows.total, self.config.dim).clone()
        states[self._tensor(tokens)] = -(self._tensor(place)[:, None] - self.span).abs().to(states.dtype)
        return states

    def features(self, rows: EncoderInput) -> Features:
        """The features of the words of the last texts."""
        config, lexical = self.config, 2 * self.config.window + 1
        tokens = _tokens(rows, -1)
        ends = np.cumsum(rows.rows.host_lengths)
        row = np.repeat(np.arange(len(ends)), rows.spans[:, -1, 1] - rows.spans[:, -1, 0])
        begins = (ends - rows.rows.host_lengths)[row]
        word, shape = self.word[rows.ids], self.shape[rows.ids]
        parts: list[tuple[Tensor, Tensor, Tensor]] = []

        def add(token: Tensor, feature: Tensor, value: Tensor | None = None) -> None:
            parts.append((token, feature, self.rarity.new_ones(len(token)) if value is None else value))

        for number, shift in enumerate(range(-config.window, config.window + 1)):
            inside = (tokens + shift >= begins) & (tokens + shift < ends[row])
            here = self._tensor(tokens[inside])
            add(here, number * config.vocab_size + word[here + shift])
            add(here, lexical * config.vocab_size + number * len(SHAPES) + shape[here + shift])
        if config.num_texts == 2:
            first = lexical * (config.vocab_size + len(SHAPES))
            here = self._tensor(tokens)
            for number, value in enumerate(self._in_reach(rows, tokens, row, word)):
                add(here[value > 0], torch.full_like(here[value > 0], first + number), value[value > 0])
            token, asked = self._pairs(rows, tokens, row, word)
            add(token, first + 2 * len(REACHES) - 1 + asked * len(SHAPES) + shape[token])
        return Features(*map(torch.cat, zip(*parts, strict=True)))

    def _in_reach(
        self, rows: EncoderInput, tokens: Ints, row: Ints, word: Int[Tensor, " total"]
    ) -> list[Float[Tensor, " word"]]:
        """The rarities of the first text's words that stand at each word, before it, and behind it, as shares of the sum of all
        rarities of the first text."""
        vocab, asked = self.config.vocab_size, self._tensor(_tokens(rows, 0))
        of_row = self._tensor(np.repeat(np.arange(len(rows.spans)), rows.spans[:, 0, 1] - rows.spans[:, 0, 0]))
        keys = torch.unique(of_row * vocab + word[asked])
        total = self.rarity.new_zeros(len(rows.spans)).index_add(0, keys // vocab, self.rarity[keys % vocab])
        own, here = self._tensor(row), self._tensor(tokens)
        matches = torch.isin(own * vocab + word[here], keys)
        shares = matches * self.rarity[word[here]] / total[own].clamp(min=1e-6)
        sums = torch.cat([shares.new_zeros(1, dtype=torch.float64), shares.double().cumsum(0)])
        sizes = np.bincount(row, minlength=len(rows.spans))
        stop = np.cumsum(sizes)
        place, least, most = np.arange(len(tokens)), (stop - sizes)[row], stop[row]

        def between(begin: Ints, end: Ints) -> Float[Tensor, " word"]:
            return (sums[self._tensor(end)] - sums[self._tensor(begin)]).to(shares.dtype)

        found = [shares]
        for near, far in pairwise(REACHES):
            found.append(between(np.maximum(least, place - far), np.maximum(least, place - near)))
            found.append(between(np.minimum(most, place + 1 + near), np.minimum(most, place + 1 + far)))
        return found

    def _pairs(
        self, rows: EncoderInput, tokens: Ints, row: Ints, word: Int[Tensor, " total"]
    ) -> tuple[Int[Tensor, " pair"], Int[Tensor, " pair"]]:
        """Each word with each frequent word of the first text of its row, once."""
        count = max(1, self.config.num_asked)
        first = _tokens(rows, 0)
        of_row = np.repeat(np.arange(len(rows.spans)), rows.spans[:, 0, 1] - rows.spans[:, 0, 0])
        asked, known = self.asked.cpu().numpy(), word.cpu().numpy()[first]
        place = np.minimum(np.searchsorted(asked, known), count - 1)
        is_asked = asked[place] == known if len(asked) else np.zeros(len(known), dtype=bool)
        pairs = np.unique(of_row[is_asked] * count + place[is_asked])
        sizes = np.bincount(row, minlength=len(rows.spans))
        begin = np.cumsum(sizes) - sizes
        of_pair = pairs // count
        chosen = ranges(begin[of_pair], begin[of_pair] + sizes[of_pair])
        return self._tensor(tokens[chosen]), self._tensor(np.repeat(pairs % count, sizes[of_pair]))

    def _tensor(self, numbers: Ints | Bool[np.ndarray, " number"]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(numbers)).to(self.word.device)

    @torch.no_grad()
    def learn_spellings(self, tokenizer: Tokenizer) -> None:
        """Words that differ in their case alone become one, and shapes are those of the spellings."""
        pieces = tokenizer.pieces
        _, first, number = np.unique([piece.lower() for piece in pieces], return_index=True, return_inverse=True)
        shapes = np.array([SHAPES.index(shape_of(piece)) for piece in pieces], dtype=np.int64)
        special = tokenizer.special_ids
        words = first[number].astype(np.int64)
        words[special], shapes[special] = special, SHAPES.index("other")
        self.word.copy_(torch.from_numpy(words))
        self.shape.copy_(torch.from_numpy(shapes))


def shape_of(word: str) -> str:
    """One of `SHAPES`."""
    if word.isdigit():
        return "digits"
    if any(letter.isdigit() for letter in word):
        return "number"
    if not any(letter.isalnum() for letter in word):
        return "mark"
    tests = (("lower", str.islower), ("title", str.istitle), ("upper", str.isupper))
    return next((name for name, holds in tests if holds(word)), "other")


def _tokens(rows: EncoderInput, text: int) -> Ints:
    """The tokens of one text of each row."""
    begins = np.cumsum(rows.rows.host_lengths) - rows.rows.host_lengths
    return ranges(begins + rows.spans[:, text, 0], begins + rows.spans[:, text, 1])
