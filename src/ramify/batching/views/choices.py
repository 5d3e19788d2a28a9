"""Questions with choices as examples: one row of two texts per choice, what is given and what is chosen."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ramify.batching.forest import Ints
from ramify.batching.views.base import FrozenView
from ramify.config import check_fields
from ramify.dataset.choices import ChoiceSets
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.tokenizer import Layout, Tokenizer, UnknownTokens

GAP = re.compile("_+")
"""The place of a choice in a question with a gap (RACE), however long it is drawn."""

QUESTION, LEAD = "question", "sent2"
"""Metadata of a tree: COPA's kind of question, and the beginning of all endings in SWAG."""

Asked = Literal["connective", "text"]

ASKED: dict[Asked, dict[str, str]] = {
    "connective": {"cause": "because", "effect": "so"},
    "text": {"cause": "What was the cause of this?", "effect": "What happened as a result?"},
}
"""The words before a choice, by COPA's kind of question."""


@dataclass(frozen=True)
class ChoiceInput:
    """Input settings of models that choose. They are saved with the model, so that it is used as it was trained."""

    max_tokens: int = 128
    """Longest row, with special tokens. The longer of its two texts is cut first."""
    layout: Layout = "bert"
    """The special tokens around the two texts."""
    question: Asked = "connective"
    """The words that tell a row which of cause and effect COPA asks for. connective: because or so before the choice. text: a
    question."""

    def __post_init__(self) -> None:
        check_fields(self, "input.")

    @property
    def reads_above(self) -> bool:
        """Whether rows read nodes above their texts. Those of a question are its texts."""
        return False


def row_texts(store: Store, sets: ChoiceSets, question: Asked) -> tuple[list[list[str]], list[list[str]]]:
    """The first and the second text of the row of each choice of each question.

    The first text is the passage above the question, or without one the question itself. The second one is the choice. Behind
    a passage, the choice stands in the gap `_` of the question, or after it (RACE). What all endings begin with stands before
    them (SWAG), and so does what is asked for (COPA).
    """
    parent = np.asarray(store.parent, dtype=np.int64)
    asked = store.texts(sets.questions)
    above = parent[sets.questions]
    passages = iter(store.texts(above[above >= 0]))
    metas = store.metas(store.tree_of(sets.questions))
    firsts: list[list[str]] = []
    seconds: list[list[str]] = []
    for text, node, meta, choices in zip(asked, above.tolist(), metas, sets.choices, strict=True):
        options = store.texts(choices)
        if node >= 0:
            first = next(passages)
            before, *after = GAP.split(text, maxsplit=1)
            seconds.append([f"{before}{option}{after[0]}" if after else f"{text} {option}" for option in options])
        else:
            first = text
            lead = ASKED[question].get(str(meta.get(QUESTION)), str(meta.get(LEAD) or ""))
            seconds.append([f"{lead} {option}" if lead else option for option in options])
        firsts.append([first] * len(options))
    return firsts, seconds


@dataclass(frozen=True)
class ChoiceExample:
    """A question: the tokens of the two texts of the row of each choice, and the right one."""

    first: list[Ints]
    second: list[Ints]
    right: int | None
    """None: it is not known."""
    features: NDArray[np.float32] | None = None
    """[choice, layer, dim]: vectors of a frozen model, which stand for all tokens."""
    length: int = 0
    """The number of tokens that they stand for."""


@dataclass(frozen=True)
class ChoiceCounts:
    """Counts of what a view reads and cuts."""

    questions: int
    choices: int
    tokens: int
    """Tokens of all rows, special tokens included."""
    cut: int
    """Rows that cannot hold all tokens of their texts."""


class ChoiceView(FrozenView[ChoiceExample]):
    """Questions with their choices."""

    def __init__(
        self, store: Store, tokenizer: Tokenizer, sets: ChoiceSets, input: ChoiceInput, right: Ints | None, vocab_size: int
    ) -> None:
        """`right` is the place of the right choice of each question, if it is known."""
        self.layout = tokenizer.layout(input.layout, vocab_size)
        if self.layout.between is None:
            tokenizer.require(("sep",), f"rows of two texts in the layout {input.layout}")
        self.longest = input.max_tokens
        self.right = right
        firsts, seconds = row_texts(store, sets, input.question)
        self.sets = sets
        self._counts = np.array([len(choices) for choices in sets.choices], dtype=np.int64)
        self._starts = np.cumsum(self._counts) - self._counts
        # The first texts of a question are equal, so each is encoded once.
        once = _encoded(tokenizer, [texts[0] for texts in firsts])
        self._first = [part for part, count in zip(once, self._counts.tolist(), strict=True) for _ in range(count)]
        self._second = _encoded(tokenizer, [text for texts in seconds for text in texts])
        special = self.layout.num_special + len(self.layout.separator)
        if self.longest < special + 2:
            raise RamifyError(
                f"input.max_tokens={self.longest} leaves no room for two texts beside {special} special tokens. Raise "
                "input.max_tokens."
            )
        wanted = np.array([len(one) + len(two) for one, two in zip(self._first, self._second, strict=True)], dtype=np.int64)
        lengths = np.minimum(wanted + special, self.longest)
        self.cut = int((wanted + special > self.longest).sum())
        self._costs = np.add.reduceat(lengths, self._starts) if len(sets) else lengths
        self._texts = (*once, *self._second)

    def __len__(self) -> int:
        return len(self._counts)

    @property
    def vectors(self) -> Ints:
        return self._counts

    @property
    def is_fixed(self) -> bool:
        return True

    def content(self) -> Iterator[Ints]:
        nothing = np.zeros(0, dtype=np.int64)
        for parts in (self._first, self._second):
            yield np.concatenate([nothing, *parts])
            yield np.array([len(ids) for ids in parts], dtype=np.int64)
        yield self._counts

    @property
    def costs(self) -> Ints:
        return self._costs

    @property
    def weights(self) -> NDArray[np.float64]:
        return np.ones(len(self._counts))

    @property
    def sizes(self) -> Ints:
        """The choices of each question: each is a row that is scored."""
        return self._counts

    @property
    def target_tokens(self) -> Ints:
        return self._costs

    @property
    def counts(self) -> ChoiceCounts:
        return ChoiceCounts(len(self), int(self._counts.sum()), int(self._costs.sum()), self.cut)

    @property
    def prompt_tokens(self) -> Ints:
        """The number of tokens of the first text of each question's rows, before any is cut."""
        return np.array([len(self._first[start]) for start in self._starts.tolist()], dtype=np.int64)

    def unknown_pieces(self, tokenizer: Tokenizer) -> UnknownTokens:
        """The unknown tokens of all texts, each once."""
        return tokenizer.unknown(np.concatenate([np.zeros(0, dtype=np.int64), *self._texts]))

    def example(self, number: int, epoch: int = 0) -> ChoiceExample:
        rows = slice(self._starts[number], self._starts[number] + self._counts[number])
        right, features = None if self.right is None else int(self.right[number]), self.features_of(number)
        if features is not None:
            return ChoiceExample([], [], right, features, int(self._costs[number]))
        return ChoiceExample(self._first[rows], self._second[rows], right)


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Ints]:
    ids, lengths = tokenizer.encode_batch(texts)
    return np.split(ids, np.cumsum(lengths)[:-1]) if len(texts) else []
