"""Questions and their passages as examples. A long passage has several rows, its windows (Devlin et al. 2019, section 4.2)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool
from numpy.typing import NDArray

from ramify.batching.encoder_input import Texts, num_rows
from ramify.batching.forest import Ints, ranges
from ramify.batching.views.base import FrozenView
from ramify.config import check_fields
from ramify.dataset.questions import Questions
from ramify.errors import RamifyError
from ramify.tokenizer import Layout, RowLayout, Tokenizer, UnknownTokens


@dataclass(frozen=True)
class QuestionInput:
    """The rows of questions and passages. The settings are saved with the model."""

    max_tokens: int = 384
    """Longest row, with its special tokens."""
    stride: int = 128
    """Tokens between the beginnings of two windows of a passage."""
    question_tokens: int = 64
    """Tokens that are read of a question."""
    layout: Layout = "bert"
    """The special tokens around the two texts."""
    order: Literal["question_first", "passage_first"] = "question_first"
    """passage_first: as XLNet reads them."""

    def __post_init__(self) -> None:
        check_fields(self, "input.")
        for name in ("stride", "question_tokens"):
            if getattr(self, name) < 1:
                raise RamifyError(f"input.{name} must be at least 1, but is {getattr(self, name)}.")
        if self.max_tokens < self.question_tokens + 8:
            raise RamifyError(
                f"input.max_tokens={self.max_tokens} leaves no room for a passage beside a question of up to "
                f"{self.question_tokens} tokens. Set input.question_tokens={max(1, self.max_tokens // 4)}, or raise "
                "input.max_tokens if the model reads longer rows."
            )

    @property
    def reads_above(self) -> bool:
        """Whether rows read nodes above their texts. A passage has none."""
        return False

    def room(self, layout: RowLayout, question_lengths: Ints) -> Ints:
        """The tokens of a passage that the row of each question holds."""
        return self.max_tokens - layout.num_special - len(layout.separator) - question_lengths

    def overlap(self, room: Ints) -> Ints:
        """The tokens that two consecutive windows share."""
        return np.maximum(room - self.stride, 0)


@dataclass(frozen=True)
class QuestionExample:
    """A question with its passage, without special tokens."""

    question: Ints
    passage: Ints
    lettered: Bool[NDArray, " token"]
    """Whether each token of the passage holds letters."""
    answer: tuple[int, int] | None
    """The first and the last token of the answer in the passage; None: there is none, or it is not known."""
    states: NDArray[np.float32] | None = None
    """[token, layer, dim]: the states of all tokens of its rows in a frozen model."""


@dataclass(frozen=True, eq=False)
class PassageTokens:
    """The tokens of passages, one passage after the other, and where each token begins and ends in its passage."""

    ids: Ints
    offsets: Ints
    """[passage + 1]: the tokens of passage p are offsets[p] to offsets[p + 1] - 1."""
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, passages: Sequence[str], tokenizer: Tokenizer) -> "PassageTokens":
        ids, lengths, starts, ends = tokenizer.encode_offsets(passages)
        return cls(ids, np.concatenate([[0], np.cumsum(lengths)]), starts, ends)

    @property
    def lettered(self) -> Bool[NDArray, " token"]:
        """Whether each token holds letters, as those of white space alone do not."""
        return self.starts < self.ends

    def covering(self, passage: int, start: int, end: int) -> tuple[int, int] | None:
        """The first and the last token that hold letters of a span; None if no token does."""
        begin, stop = self.offsets[passage], self.offsets[passage + 1]
        first = int(np.searchsorted(self.ends[begin:stop], start, side="right"))
        last = int(np.searchsorted(self.starts[begin:stop], end, side="left")) - 1
        return (first, last) if first <= last else None

    def characters(self, passage: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints]:
        """Where spans of tokens begin and end in the characters of their passages."""
        begin = self.offsets[passage]
        return self.starts[begin + first], self.ends[begin + last]


class QuestionView(FrozenView[QuestionExample]):
    """Questions with the windows of their passages. An example is a question with all its windows."""

    def __init__(
        self, questions: Questions, tokenizer: Tokenizer, layout: RowLayout, input: QuestionInput, *, learn: bool = False
    ) -> None:
        """With `learn`, questions that nothing can be learned from are left out. Raises `RamifyError` if none is left."""
        self.input = input
        tokens = PassageTokens.of(questions.passages, tokenizer)
        spans = [
            tokens.covering(int(passage), int(start), int(end)) if found else None
            for passage, (start, end), found in zip(questions.passage, questions.spans, questions.has_span, strict=True)
        ]
        self.unspelled = sum(span is None for span, found in zip(spans, questions.has_span, strict=True) if found)
        """Answers of which the tokenizer keeps no letter."""
        if learn:
            lost = np.array([span is None for span in spans], dtype=bool) & questions.has_span
            chosen = np.flatnonzero(questions.learnable & ~lost)
            if not len(chosen):
                notes = "; ".join(questions.counts.notes())
                raise RamifyError(
                    f"the data hold no question to learn from, of {questions.counts.questions:,} in the split train"
                    f"{notes and f' ({notes})'}. Choose other data."
                )
            questions, spans = questions.select(chosen), [spans[place] for place in chosen.tolist()]
        self.questions = questions
        self.tokens = tokens
        self._lettered = tokens.lettered
        self.answers = spans
        ids, lengths = tokenizer.encode_batch(questions.texts)
        self.long_questions = {place: int(lengths[place]) for place in np.flatnonzero(lengths > input.question_tokens).tolist()}
        """The number of tokens of each question of which the last ones are not read."""
        self._starts = np.cumsum(lengths) - lengths
        self._lengths = np.minimum(lengths, input.question_tokens)
        self._ids = ids
        self._passage_lengths = np.diff(tokens.offsets)[questions.passage]
        room = input.room(layout, self._lengths)
        self._windows = num_rows(self._passage_lengths, room, input.overlap(room))
        special = layout.num_special + len(layout.separator) + self._lengths
        self._costs = self._passage_lengths + (self._windows - 1) * input.overlap(room) + self._windows * special

    @property
    def vectors(self) -> Ints:
        return self._costs

    @property
    def is_fixed(self) -> bool:
        return True

    def content(self) -> Iterator[Ints]:
        yield from (self._ids, self._starts, self._lengths, self.tokens.ids, self.tokens.offsets, self.questions.passage)

    @property
    def costs(self) -> Ints:
        return self._costs

    @property
    def target_tokens(self) -> Ints:
        return self._costs

    @property
    def sizes(self) -> Ints:
        return self._windows

    @property
    def weights(self) -> NDArray[np.float64]:
        return self._windows.astype(np.float64)

    def example(self, number: int, epoch: int = 0) -> QuestionExample:
        begin, passage = self._starts[number], self.questions.passage[number]
        of_passage = slice(self.tokens.offsets[passage], self.tokens.offsets[passage + 1])
        return QuestionExample(
            self._ids[begin : begin + self._lengths[number]],
            self.tokens.ids[of_passage],
            self._lettered[of_passage],
            self.answers[number],
            self.features_of(number),
        )

    @property
    def question_ids(self) -> Ints:
        """The tokens that are read of all questions."""
        return self._ids[ranges(self._starts, self._starts + self._lengths)]

    @property
    def passage_tokens(self) -> Ints:
        """The number of tokens of the passage of each example."""
        return self._passage_lengths

    def passage(self, number: int) -> str:
        """The passage of an example."""
        return self.questions.passages[int(self.questions.passage[number])]

    def unknown(self, tokenizer: Tokenizer) -> UnknownTokens:
        """The unknown tokens of questions and passages, each counted once."""
        return tokenizer.unknown(np.concatenate([self.question_ids, self.tokens.ids]))


def joined(texts: Sequence[Ints]) -> Texts:
    """Texts, one after the other, with their lengths."""
    return np.concatenate([np.zeros(0, dtype=np.int64), *texts]), np.array([len(ids) for ids in texts], dtype=np.int64)
