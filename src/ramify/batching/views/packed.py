"""Rows of running text in random order: BERT's sentence pairs, and RoBERTa's rows of full sentences."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ramify.batching.forest import Ints
from ramify.batching.running_text import RunningText
from ramify.batching.views.base import View
from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.progress import track
from ramify.tokenizer import Layout, Tokenizer

NEXT, RANDOM = 0, 1
"""BERT's labels of a second segment: it follows the first one in its document, or it is random. In ALBERT's, it is the one
before."""


class NothingToPairError(RamifyError):
    """A text of one sentence holds no second segment."""


@dataclass(frozen=True)
class PairConfig:
    """Sentence pairs, as BERT's `create_pretraining_data` draws them."""

    short_seq_prob: float = 0.1
    """Probability that a document is cut into chunks of another, random target length, as short as two tokens."""
    random_next: float = 0.5
    """Probability of a second segment that does not follow the first. A chunk of one sentence always gets a random one."""
    second: Literal["random", "order"] = "random"
    """The second segments that do not follow the first. random: those from elsewhere, as in BERT. order: those that precede it
    (sentence order; Lan et al. 2020, section 3.1)."""
    dupe_factor: int = 10
    """Number of differently drawn passes over the text. Further epochs repeat them."""

    def __post_init__(self) -> None:
        check_fields(self, "pairs.")
        for name in ("short_seq_prob", "random_next"):
            if not 0 <= getattr(self, name) <= 1:
                raise RamifyError(f"pairs.{name} is a probability and must be from 0 to 1, but is {getattr(self, name)}.")
        if self.dupe_factor < 1:
            raise RamifyError(f"pairs.dupe_factor must be at least 1, but is {self.dupe_factor}.")


@dataclass(frozen=True)
class PackConfig:
    """Rows of consecutive full sentences, as in RoBERTa."""

    cross_documents: bool = True
    """Whether a row goes on with the next document after a separator (RoBERTa's full-sentences), or ends with its document
    (doc-sentences)."""

    def __post_init__(self) -> None:
        check_fields(self, "packing.")


@dataclass(frozen=True)
class TextRow:
    """One row of tokens, special tokens included."""

    number: int
    ids: Ints
    special: NDArray[np.bool_]
    """Whether each token is a special one that the row adds to the text."""
    token_type_ids: Ints
    pair_label: int | None
    """NEXT or RANDOM; None for a row without a second segment."""


class TextRows(View[TextRow], ABC):
    """Rows of running text. Views that draw rows at random have other rows in every epoch."""

    text: RunningText
    tokenizer: Tokenizer

    @abstractmethod
    def lengths(self, epoch: int) -> Ints:
        """Number of tokens of each row of an epoch, special tokens included."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Counts of rows and of the tokens that they use, repeat and lose, in the first epoch."""

    @property
    def costs(self) -> Ints:
        return self.lengths(0)

    @property
    def weights(self) -> NDArray[np.float64]:
        return np.ones(len(self.costs))

    @property
    def sizes(self) -> Ints:
        return np.ones(len(self.costs), dtype=np.int64)

    @property
    def target_tokens(self) -> Ints:
        return self.costs


@dataclass(frozen=True)
class PairPass:
    """The rows of one pass: the borders of both segments in the text, and whether the second one is random."""

    borders: NDArray[np.int64]
    """[row, 4]: start and stop of the first segment, start and stop of the second."""
    random: NDArray[np.bool_]
    swapped: NDArray[np.bool_]
    """Whether the second segment is the one before the first."""
    cut: int
    """Number of tokens that truncation removes from the text in its own order; removed tokens of random segments do not
    count."""


class SentencePairs(TextRows):
    """Rows `[CLS] A [SEP] B [SEP]`, as BERT's `create_pretraining_data` makes them.

    Sentences of one document fill a chunk up to the target length. A random number of them, at least one, becomes A. B is the
    rest of the chunk, or as many sentences from a random place in another document; the next chunk then begins with the unused
    rest. Too long a pair loses tokens of its longer segment, at the front or the back at random. A text of a single document
    has random segments from elsewhere in it. The seed and the epoch determine all draws.
    """

    def __init__(
        self,
        text: RunningText,
        tokenizer: Tokenizer,
        max_tokens: int,
        config: PairConfig | None = None,
        *,
        layout: Layout = "bert",
        seed: int = 0,
    ) -> None:
        """`max_tokens` is the length of a row. Raises `NothingToPairError` for a text of one sentence."""
        tokenizer.require(("cls", "sep"), "sentence pairs")
        self.text = text
        self.tokenizer = tokenizer
        self.config = config or PairConfig()
        self.layout = tokenizer.layout(layout)
        self.seed = seed
        special = self.layout.num_special + len(self.layout.separator)
        self.room = max_tokens - special
        if self.room < 2:
            raise RamifyError(f"input.max_tokens={max_tokens} is too short for two segments. Set it to at least {special + 2}.")
        if len(text.sentences) < 3:
            raise NothingToPairError(
                "the text holds a single sentence, so there is no second segment for sentence pairs. Add text, or train on "
                "rows of full sentences (ramify train roberta)."
            )
        self._drawn = (0, draw_pairs(text, self.room, self.config, self._random(0)))

    def _random(self, number: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(np.random.SeedSequence((self.seed, number))))

    def drawn(self, epoch: int) -> PairPass:
        """The rows of an epoch."""
        number = epoch % self.config.dupe_factor
        if self._drawn[0] != number:
            self._drawn = (number, draw_pairs(self.text, self.room, self.config, self._random(number)))
        return self._drawn[1]

    def lengths(self, epoch: int) -> Ints:
        borders = self.drawn(epoch).borders
        return (
            borders[:, 1] - borders[:, 0] + borders[:, 3] - borders[:, 2] + self.layout.num_special + len(self.layout.separator)
        )

    def example(self, number: int, epoch: int = 0) -> TextRow:
        rows = self.drawn(epoch)
        start, middle, second, stop = rows.borders[number].tolist()
        one, other = (self.text.ids[part].astype(np.int64) for part in (slice(start, middle), slice(second, stop)))
        ids, types = self.layout.wrap_pair(one, other), self.layout.types_of(len(one), len(other))
        special = np.ones(len(ids), dtype=bool)
        first = len(self.layout.before)
        second = first + len(one) + len(self.layout.separator)
        special[first : first + len(one)] = special[second : second + len(other)] = False
        return TextRow(number, ids, special, types, RANDOM if rows.random[number] or rows.swapped[number] else NEXT)

    def facts(self) -> dict[str, Any]:
        rows = self.drawn(0)
        lengths = (rows.borders[:, 1::2] - rows.borders[:, ::2]).sum(1)
        second = rows.borders[:, 3] - rows.borders[:, 2]
        drawn = int(second[rows.random].sum())
        return {
            "rows": len(rows.random),
            "tokens": self.text.num_tokens,
            "tokens_used": int(lengths.sum()) - drawn,
            "tokens_cut": rows.cut,
            "tokens_drawn": drawn,
            "random_next": int(rows.random.sum()),
            **({"swapped": int(rows.swapped.sum())} if self.config.second == "order" else {}),
        }


def draw_pairs(text: RunningText, room: int, config: PairConfig, random: np.random.Generator) -> PairPass:
    """Draw the sentence pairs of one pass. A row's two segments have at most `room` tokens."""
    borders = text.sentences
    rows: list[tuple[int, int, int, int]] = []
    randoms: list[bool] = []
    swaps: list[bool] = []
    cut = 0

    def reaching(first: int, length: int, stop: int) -> int:
        """The sentence before which at least `length` tokens from `first` on have been read, at most `stop`."""
        return min(stop, int(np.searchsorted(borders, borders[first] + length)))

    documents = text.documents
    edges = zip(documents.tolist(), documents[1:].tolist())
    for number, (first, stop) in enumerate(track("drawing sentence pairs", edges, len(documents) - 1)):
        target = room
        if random.random() < config.short_seq_prob:
            target = int(random.integers(2, room + 1))
        start = first
        while start < stop:
            end = reaching(start, target, stop)
            middle = start + (int(random.integers(1, end - start)) if end - start > 1 else 1)
            # A text that is one chunk has no other place to draw from.
            elsewhere = len(documents) > 2 or stop - first > end - start
            by_chance = config.second == "random"
            is_random = elsewhere and (end - start == 1 or (by_chance and random.random() < config.random_next))
            is_swapped = not by_chance and end - start > 1 and random.random() < config.random_next
            if is_random:
                second, bound = _elsewhere(documents, number, start, end, random)
                last = reaching(second, max(1, target - int(borders[middle] - borders[start])), bound)
            else:
                second, last = middle, end
            ours, theirs = (int(borders[start]), int(borders[middle])), (int(borders[second]), int(borders[last]))
            if is_swapped:
                ours, theirs = theirs, ours
            from_first, from_second = _excess(ours[1] - ours[0], theirs[1] - theirs[0], room)
            rows.append((*_truncated(*ours, from_first, random), *_truncated(*theirs, from_second, random)))
            randoms.append(is_random)
            swaps.append(is_swapped)
            cut += from_first + (0 if is_random else from_second)
            start = middle if is_random else end
    segments = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return PairPass(segments, np.array(randoms, dtype=bool), np.array(swaps, dtype=bool), cut)


def _elsewhere(documents: Ints, document: int, start: int, end: int, random: np.random.Generator) -> tuple[int, int]:
    """A random sentence of another document, and the end of that document. In a text of one document: a sentence outside the
    chunk `[start, end)`, and the sentence at which the chunk or the text ends what follows it."""
    others = len(documents) - 2
    if others:
        other = int(random.integers(others))
        other += other >= document
        return int(random.integers(documents[other], documents[other + 1])), int(documents[other + 1])
    place = int(random.integers(int(documents[-1]) - (end - start)))
    return (place, start) if place < start else (place + end - start, int(documents[-1]))


def _excess(first: int, second: int, room: int) -> tuple[int, int]:
    """Number of tokens to remove from two segments, one at a time, always from the longer one (the second if they are
    equal)."""
    over = max(0, first + second - room)
    alone = min(over, abs(first - second))
    both = over - alone
    if first > second:
        return alone + both // 2, both - both // 2
    return both // 2, alone + both - both // 2


def _truncated(start: int, stop: int, excess: int, random: np.random.Generator) -> tuple[int, int]:
    """The segment without some tokens, each removed at the front or the back with equal probability."""
    front = int(random.binomial(excess, 0.5)) if excess else 0
    return start + front, stop - (excess - front)


class FullSentences(TextRows):
    """Rows `[CLS] text [SEP]` of consecutive full sentences, as many as fit: every token once per epoch (Liu et al. 2019).

    A row may continue with the next document, after another SEP. A sentence longer than a row is cut in pieces. All epochs have
    the same rows.
    """

    def __init__(
        self,
        text: RunningText,
        tokenizer: Tokenizer,
        max_tokens: int,
        config: PackConfig | None = None,
        *,
        layout: Layout = "bert",
    ) -> None:
        tokenizer.require(("cls", "sep"), "rows of full sentences")
        self.text = text
        self.tokenizer = tokenizer
        self.config = config or PackConfig()
        self.layout = tokenizer.layout(layout)
        self.room = max_tokens - self.layout.num_special
        if self.room < 1:
            raise RamifyError(
                f"input.max_tokens={max_tokens} leaves no room for text. Set it to at least {self.layout.num_special + 1}."
            )
        self.starts, self.stops = pack(text, self.room, self.config)
        self.document_ends = text.document_ends

    def lengths(self, epoch: int) -> Ints:
        first, last = self._inside(self.starts, self.stops)
        return self.stops - self.starts + last - first + self.layout.num_special

    def _inside(self, start: Any, stop: Any) -> tuple[Any, Any]:
        """The first document that ends inside a row, before its end, and the first one after these."""
        ends = self.document_ends
        return np.searchsorted(ends, start, side="right"), np.searchsorted(ends, stop, side="left")

    def example(self, number: int, epoch: int = 0) -> TextRow:
        start, stop = int(self.starts[number]), int(self.stops[number])
        first, last = self._inside(start, stop)
        inside = self.document_ends[first:last] - start
        text = self.text.ids[start:stop].astype(np.int64)
        before, after = len(self.layout.before), len(self.layout.after)
        ids = self.layout.wrap(np.insert(text, inside, self.tokenizer.sep_id))
        special = np.zeros(len(ids), dtype=bool)
        special[:before] = True
        special[len(ids) - after :] = True
        special[before + inside + np.arange(len(inside))] = True
        return TextRow(number, ids, special, np.zeros(len(ids), dtype=np.int64), None)

    def facts(self) -> dict[str, Any]:
        used = int((self.stops - self.starts).sum())
        long = int((np.diff(self.text.sentences) > self.room).sum())
        return {"rows": len(self.starts), "tokens": self.text.num_tokens, "tokens_used": used, "sentences_cut": long}


def pack(text: RunningText, room: int, config: PackConfig) -> tuple[Ints, Ints]:
    """The starts and stops of rows in the text. A row's sentences and the separators between documents have at most `room`
    tokens."""
    pieces = -(-np.diff(text.sentences) // room)
    sentence = np.repeat(np.arange(len(pieces)), pieces)
    within = np.arange(len(sentence)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    border = np.append(text.sentences[sentence] + within * room, text.num_tokens)
    document = np.searchsorted(text.documents, sentence, side="right") - 1
    # The number of tokens up to the end of each piece, with a separator before every new document.
    filled = border[1:] + document
    ends = np.searchsorted(document, document, side="right")
    rows = [0]
    while rows[-1] < len(filled):
        first = rows[-1]
        stop = int(np.searchsorted(filled, border[first] + document[first] + room, side="right"))
        rows.append(stop if config.cross_documents else min(stop, int(ends[first])))
    edges = border[rows]
    return edges[:-1], edges[1:]
