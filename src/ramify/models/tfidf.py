"""Words and pairs of words, weighted by TF-IDF, each with a vector of its own: linear models of texts, fitted without training.

The vector of a row is Σ tfidf(term) · weight(term). The texts of a row have weights of their own, and norms of their own.
Special tokens and unknown words are no terms. With `overlap`, the cosine of the words of two texts is one more term. With
`reads=nothing`, the vector of every row is zero, as a model needs that always predicts the most frequent class.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ramify.batching.encoder_input import EncoderInput
from ramify.models.base import Checkpoint, Encoded, ModelConfig, Read, check_config, kept_positions
from ramify.models.linear_scores import LinearScores
from ramify.nn.attention import AttentionRecord
from ramify.nn.ragged import Rows
from ramify.tokenizer import Tokenizer


@dataclass(frozen=True)
class TfidfConfig(ModelConfig):
    """Settings of a TF-IDF model. The training data determine the sizes."""

    reads: Literal["words", "nothing"] = "words"
    """nothing: every text has the zero vector."""
    vocab_size: int = 0
    """0 = the tokenizer's."""
    num_bigrams: int = 0
    """Pairs of neighbouring words that are terms, too."""
    num_texts: int = 1
    """Texts of a row that have weights of their own."""
    overlap: bool = False
    """Whether the cosine of the words of the two texts of a row is a term, too."""
    dim: int = 1
    """Length of a term's vector: one number per class."""
    max_tokens: int = 4096
    """Longest row."""

    def __post_init__(self) -> None:
        check_config(self, num_bigrams=0)

    @property
    def num_terms(self) -> int:
        """The terms of one text."""
        return self.vocab_size + self.num_bigrams if self.reads == "words" else 0

    @property
    def num_weighted(self) -> int:
        """The terms of all texts of a row."""
        return self.num_texts * self.num_terms + self.overlap

    def build(self) -> "Tfidf":
        return Tfidf(self)

    def adapted_to(self, checkpoint: Checkpoint) -> "TfidfConfig":
        return checkpoint.saved_as(self)

    def for_vocabulary(self, size: int) -> Self:
        return replace(self, vocab_size=size)

    def initialize(self, backbone: "Tfidf", checkpoint: Checkpoint) -> None:
        checkpoint.fill(backbone, self, ())


class Terms(NamedTuple):
    """The terms of rows, each once per row, in the order of the rows."""

    row: Int[Tensor, " term"]
    term: Int[Tensor, " term"]
    """Numbers below `num_texts` · `num_terms`."""
    counts: Int[Tensor, " term"]


class Weighted(NamedTuple):
    """The terms of rows with their values, as the cells of a matrix."""

    row: Int[Tensor, " cell"]
    term: Int[Tensor, " cell"]
    """Numbers below `num_weighted`."""
    value: Float[Tensor, " cell"]


class Tfidf(LinearScores):
    """A linear model of terms."""

    config: TfidfConfig
    is_word: Bool[Tensor, " vocab"]
    bigrams: Int[Tensor, " bigram"]
    """Pairs of words as first · vocab_size + second, in ascending order."""
    idf: Float[Tensor, " term"]
    """0 for terms that no training text has."""

    def __init__(self, config: TfidfConfig) -> None:
        super().__init__()
        self.config = config
        terms = config.num_texts * config.num_terms
        self.weight = nn.Parameter(torch.zeros(config.num_weighted, config.dim))
        self.register_buffer("is_word", torch.ones(config.vocab_size, dtype=torch.bool))
        self.register_buffer("bigrams", torch.zeros(config.num_bigrams, dtype=torch.int64))
        self.register_buffer("idf", torch.ones(terms))

    @property
    def title(self) -> str:
        return "Tfidf" if self.config.reads == "words" else "majority"

    def encode_rows(
        self, rows: EncoderInput, *, layers: bool = False, read: Read = "all", record: AttentionRecord | None = None
    ) -> Encoded:
        """The state of a word is its share of the row's vector before the norm; pairs of words have none."""
        ids = self.in_texts(rows)
        states = self.idf.new_zeros(len(ids), self.config.dim)
        if self.config.reads == "words":
            is_word = self.is_word[ids % self.config.vocab_size]
            term = self._words(ids[is_word])
            states = states.index_copy(0, is_word.nonzero()[:, 0], self.idf[term, None] * self.weight[term])
        kept = kept_positions(rows.rows, rows.rows, layers=layers, read=read)
        if kept is None:
            return Encoded(rows.rows, (states,), ids)
        return Encoded(kept.rows, (states.index_select(0, kept.index),), ids.index_select(0, kept.index))

    def vector(self, encoded: Encoded) -> Float[Tensor, "row vector_dim"]:
        assert encoded.ids is not None
        cells = self.weighted(self.terms(encoded.ids, encoded.rows))
        products = cells.value[:, None] * self.weight[cells.term]
        return products.new_zeros(len(encoded.rows), self.config.dim).index_add(0, cells.row, products)

    def in_texts(self, rows: EncoderInput) -> Int[Tensor, " total"]:
        """The tokens of rows as text · vocab_size + id."""
        if rows.token_types is None or self.config.num_texts == 1:
            return rows.ids
        return rows.token_types * self.config.vocab_size + rows.ids

    def terms(self, ids: Int[Tensor, " total"], rows: Rows) -> Terms:
        """The terms of rows whose tokens are as `in_texts` gives them."""
        vocab, per_text = self.config.vocab_size, self.config.num_terms
        row = torch.repeat_interleave(torch.arange(len(rows), device=ids.device), rows.lengths, output_size=rows.total)
        if self.config.reads == "nothing":
            return Terms(row[:0], row[:0], row[:0])
        is_word = self.is_word[ids % vocab]
        place, found = self.bigram_places(ids, row)
        terms = torch.cat([self._words(ids[is_word]), (ids[place] // vocab) * per_text + vocab + found])
        total = self.config.num_texts * per_text
        keys, counts = torch.unique(torch.cat([row[is_word], row[place]]) * total + terms, return_counts=True)
        return Terms(keys // total, keys % total, counts)

    def pairs(
        self, ids: Int[Tensor, " total"], row: Int[Tensor, " total"]
    ) -> tuple[Int[Tensor, " pair"], Int[Tensor, " pair"]]:
        """The places of words that another word of the same text follows, and the two words as one number."""
        vocab = self.config.vocab_size
        is_word = self.is_word[ids % vocab]
        follows = is_word[:-1] & is_word[1:] & (row[:-1] == row[1:]) & (ids[:-1] // vocab == ids[1:] // vocab)
        place = follows.nonzero()[:, 0]
        return place, (ids[place] % vocab) * vocab + ids[place + 1] % vocab

    def bigram_places(
        self, ids: Int[Tensor, " total"], row: Int[Tensor, " total"]
    ) -> tuple[Int[Tensor, " known"], Int[Tensor, " known"]]:
        """The places where a known pair of words begins, and the numbers of the pairs."""
        place, keys = self.pairs(ids, row)
        if not self.config.num_bigrams:
            return place[:0], place[:0]
        found = torch.searchsorted(self.bigrams, keys).clamp(max=self.config.num_bigrams - 1)
        known = self.bigrams[found] == keys
        return place[known], found[known]

    def values(self, terms: Terms) -> Float[Tensor, " term"]:
        """TF-IDF of terms: (1 + log count) · idf, divided by the norm of the text (Salton and Buckley 1988)."""
        values = (1 + terms.counts.to(self.idf.dtype).log()) * self.idf[terms.term]
        texts, per_text = self.config.num_texts, max(1, self.config.num_terms)
        text = terms.row * texts + terms.term // per_text
        squares = values.new_zeros(int(text.max()) + 1 if len(text) else 0).index_add(0, text, values**2)
        return values / squares[text].sqrt().clamp(min=torch.finfo(values.dtype).tiny)

    def weighted(self, terms: Terms) -> Weighted:
        """Terms with their TF-IDF and, with `overlap`, the sum over words of the products of that in the first and in the
        second text."""
        values = self.values(terms)
        if not self.config.overlap:
            return Weighted(terms.row, terms.term, values)
        vocab, per_text = self.config.vocab_size, self.config.num_terms
        keys = terms.row * vocab + terms.term % per_text
        one, other = ((terms.term // per_text == text) & (terms.term % per_text < vocab) for text in (0, 1))
        # Terms are in ascending order of rows, texts and words, so that the keys of either text are, too.
        found = torch.searchsorted(keys[one], keys[other]).clamp(max=max(0, int(one.sum()) - 1))
        both = keys[one][found] == keys[other] if one.any() else found.to(torch.bool)
        row, value = terms.row[other][both], values[one][found[both]] * values[other][both]
        term = torch.full_like(row, self.config.num_weighted - 1)
        return Weighted(*(torch.cat(pair) for pair in ((terms.row, row), (terms.term, term), (values, value))))

    @torch.no_grad()
    def learn_words(self, tokenizer: Tokenizer) -> None:
        """All tokens but special ones are words."""
        self.is_word.fill_(True)
        self.is_word[tokenizer.special_ids] = False

    @torch.no_grad()
    def learn_frequencies(self, terms: Int[Tensor, " term"], rows: int) -> None:
        """Set ln((1 + rows) / (1 + frequency)) + 1 from the terms of so many rows, each once per row, as scikit-learn does."""
        frequency = torch.bincount(terms, minlength=len(self.idf)).double()
        self.idf.copy_(torch.where(frequency > 0, ((1 + rows) / (1 + frequency)).log() + 1, 0.0))

    def _words(self, ids: Int[Tensor, " word"]) -> Int[Tensor, " word"]:
        """The terms of words."""
        vocab = self.config.vocab_size
        return (ids // vocab) * self.config.num_terms + ids % vocab
