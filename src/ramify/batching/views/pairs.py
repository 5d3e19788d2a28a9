"""Texts that are predicted token by token: pairs of a text and its answer or translation, and rows of running text, whole or
corrupted."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ramify.batching.forest import Ints, ranges, token_cache
from ramify.batching.running_text import RunningText
from ramify.batching.views.base import View
from ramify.batching.views.packed import PackConfig, pack
from ramify.batching.views.span_corruption import SpanCounts, corrupted, divided, longest_text
from ramify.config import check_fields
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError
from ramify.tokenizer import TextLayout, Tokenizer, UnknownTokens, sentinel_piece


@dataclass(frozen=True)
class PairInput:
    """The tokens of the texts that a generative model reads."""

    max_tokens: int = 128
    """Tokens of the longest text that is predicted, its end included."""
    max_source_tokens: int = 128
    """Tokens of the longest source, its end included."""
    long: Literal["leave_out", "truncate"] = "leave_out"
    """Pairs with a longer text. leave_out: nothing is learned from them. truncate: the last tokens of the text are left out,
    and a truncated target has no end. Held-out losses always truncate."""
    source: Literal["parent", "corrupted"] = "parent"
    """The source of a text, for models that read one. parent: the text that it answers or translates. corrupted: running text
    with sentinels in place of spans, which are predicted (T5; Raffel et al. 2020, section 3.1.4)."""
    noise_rate: float = 0.15
    """With source=corrupted: the share of the tokens that are in spans."""
    mean_span: float = 3.0
    """With source=corrupted: the mean number of tokens of a span."""
    layout: TextLayout = "t5"
    """The special tokens around a text whose vector is asked for: those after a source, or around a predicted text."""
    begin: bool = True
    """Whether the token before each text of training is also put before a prompt of `generate`. Training does not depend on
    it, and a text that is predicted from a source always begins with it."""

    def __post_init__(self) -> None:
        check_fields(self, "input.")
        for name in ("max_tokens", "max_source_tokens"):
            if getattr(self, name) < 3:
                raise RamifyError(f"input.{name} must be at least 3, a token and its marks, but is {getattr(self, name)}.")
        if not 0 < self.noise_rate < 1:
            raise RamifyError(f"input.noise_rate must be above 0 and below 1, but is {self.noise_rate:g}.")
        if self.mean_span < 1:
            raise RamifyError(f"input.mean_span must be at least 1, but is {self.mean_span:g}.")


@dataclass(frozen=True)
class Pair:
    """A text that is predicted, and the text that it is predicted from, without special tokens."""

    target: Ints
    source: Ints | None = None
    """None: the target is predicted from its own beginning alone."""
    ends: bool = True
    """Whether the text ends where the target does. If not, no end is predicted, and the last token is not read."""

    @property
    def num_predicted(self) -> int:
        return len(self.target) + self.ends


@dataclass(frozen=True)
class PairCounts:
    """Counts of what a view reads and leaves out, for run.json and for people."""

    examples: int
    tokens: int
    """Tokens that are predicted, ends of texts included."""
    source_tokens: int = 0
    """Tokens of the sources, their ends included."""
    empty: int = 0
    """Pairs that are left out because one of their texts has no tokens."""
    long: int = 0
    """Pairs with a text that is too long (`PairInput.long`)."""


class NothingToPredictError(RamifyError):
    """A split holds texts, but none that a model could learn to predict."""


class GenerativeView(View[Pair], ABC):
    """Texts that a generative model predicts."""

    @property
    @abstractmethod
    def counts(self) -> PairCounts: ...

    @abstractmethod
    def unknown(self, tokenizer: Tokenizer) -> UnknownTokens:
        """Count the tokens that the tokenizer cannot spell."""

    @property
    def weights(self) -> NDArray[np.float64]:
        return self.target_tokens.astype(np.float64)

    @property
    def sizes(self) -> Ints:
        return np.ones(len(self), dtype=np.int64)


class Pairs(GenerativeView):
    """Every text of a split with the text that it answers or translates: each node that has a parent, and its parent."""

    def __init__(self, store: Store, tokenizer: Tokenizer, split: Split, input: PairInput) -> None:
        """Raises `NothingToPredictError` if the split holds no pair that can be read."""
        tokenized = token_cache(store, tokenizer)
        child, parent = store.edges.T
        inside = np.isin(store.tree_of(child), store.split(split))
        child, parent = child[inside], parent[inside]
        lengths = np.diff(tokenized.starts)
        filled = (lengths[child] > 0) & (lengths[parent] > 0)
        over = filled & ((lengths[child] >= input.max_tokens) | (lengths[parent] >= input.max_source_tokens))
        kept = filled & ~over if input.long == "leave_out" else filled
        if not kept.any():
            raise NothingToPredictError(_no_pairs(store, split, len(child), int(over.sum()), input))
        self.child, self.parent = child[kept], parent[kept]
        """The nodes of the store that are predicted, and those that they are predicted from."""
        self._ids, self._starts = tokenized.ids, tokenized.starts
        self._ends = lengths[self.child] < input.max_tokens
        self._target = np.minimum(lengths[self.child], input.max_tokens)
        self._source = np.minimum(lengths[self.parent], input.max_source_tokens - 1)
        self._empty, self._long = int((~filled).sum()), int(over.sum())

    @property
    def target_tokens(self) -> Ints:
        return self._target + self._ends

    @property
    def costs(self) -> Ints:
        return self.target_tokens + self._source + 1

    @property
    def counts(self) -> PairCounts:
        sources = int(self._source.sum()) + len(self)
        return PairCounts(len(self), int(self.target_tokens.sum()), sources, self._empty, self._long)

    def example(self, number: int, epoch: int = 0) -> Pair:
        return Pair(
            self._text(int(self.child[number]), int(self._target[number])),
            self._text(int(self.parent[number]), int(self._source[number])),
            ends=bool(self._ends[number]),
        )

    def sources(self, numbers: Ints) -> list[Ints]:
        """The tokens of the sources of some examples."""
        nodes, lengths = self.parent[numbers].tolist(), self._source[numbers].tolist()
        return [self._text(node, length) for node, length in zip(nodes, lengths, strict=True)]

    def unknown(self, tokenizer: Tokenizer) -> UnknownTokens:
        # A text that several texts answer is read once for each.
        nodes, lengths = np.append(self.parent, self.child), np.append(self._source, self._target)
        return tokenizer.unknown(self._ids[ranges(self._starts[nodes], self._starts[nodes] + lengths)])

    def _text(self, node: int, length: int) -> Ints:
        start = int(self._starts[node])
        return self._ids[start : start + length].astype(np.int64)


def _no_pairs(store: Store, split: Split, pairs: int, long: int, input: PairInput) -> str:
    name = store.path or "the data"
    if long:
        return (
            f"input.max_tokens={input.max_tokens} and input.max_source_tokens={input.max_source_tokens} leave out all pairs of "
            f"the split {split!r} of {name}. Raise them, or set input.long=truncate."
        )
    if pairs:
        return f"{name} has no pair of the split {split!r} in which both texts have words. Choose other data."
    return (
        f"{name} holds no text in the split {split!r} that answers or translates another. Build pairs with `ramify data build "
        "--format parallel`, or choose discussions, or another split."
    )


class TextRows(GenerativeView):
    """Rows of running text: as many consecutive full sentences as fit, each row from its own beginning.

    The end of a document is predicted, and the next document follows it in the same row.
    """

    def __init__(self, store: Store, tokenizer: Tokenizer, split: Split, input: PairInput) -> None:
        """Raises `RamifyError` if the split has no text."""
        self.text = RunningText.open(store, tokenizer, split)
        self._end = tokenizer.stop_id
        # Room for the end of a document that ends with the row.
        self._start, self._stop = pack(self.text, input.max_tokens - 1, PackConfig())
        ends = self.text.document_ends
        self._first = np.searchsorted(ends, self._start, side="right")
        self._last = np.searchsorted(ends, self._stop, side="right")

    @property
    def target_tokens(self) -> Ints:
        return self._stop - self._start + self._last - self._first

    @property
    def costs(self) -> Ints:
        return self.target_tokens

    @property
    def counts(self) -> PairCounts:
        return PairCounts(len(self), int(self.target_tokens.sum()))

    def example(self, number: int, epoch: int = 0) -> Pair:
        start, stop = int(self._start[number]), int(self._stop[number])
        ends = self.text.document_ends[self._first[number] : self._last[number]] - start
        is_end = len(ends) > 0 and int(ends[-1]) == stop - start
        ids = self.text.ids[start:stop].astype(np.int64)
        return Pair(np.insert(ids, ends[:-1] if is_end else ends, self._end), ends=is_end)

    def unknown(self, tokenizer: Tokenizer) -> UnknownTokens:
        return tokenizer.unknown(self.text.ids)


class CorruptedText(GenerativeView):
    """Rows of running text with sentinels in place of random spans, and the spans as targets.

    A row holds as many consecutive full sentences of a document as fit. The seed, the epoch and the number of a row determine
    its spans, so every epoch has other ones.
    """

    def __init__(self, store: Store, tokenizer: Tokenizer, split: Split, input: PairInput, seed: int = 0) -> None:
        """Raises `NothingToPredictError` if the split has no text of two tokens, and another `RamifyError` if the tokenizer has
        too few sentinels."""
        room = longest_text(input.noise_rate, input.mean_span, input.max_source_tokens, input.max_tokens)
        if room < 2:
            raise RamifyError(
                f"input.max_tokens={input.max_tokens} leaves no room for a token between two sentinels and for the end. Set it "
                "to at least 4."
            )
        self.text = RunningText.open(store, tokenizer, split)
        start, stop = pack(self.text, room, PackConfig(cross_documents=False))
        filled = stop - start > 1
        if not filled.any():
            raise NothingToPredictError(
                f"{store.path or 'the data'} has no text of two tokens in the split {split!r}, of which one could be "
                "predicted. Choose another split, or other data."
            )
        self._start, self._stop = start[filled], stop[filled]
        self.spans = SpanCounts.of(self._stop - self._start, input.noise_rate, input.mean_span)
        self.sentinels = tokenizer.sentinels
        if (needed := int(self.spans.spans.max()) + 1) > len(self.sentinels):
            raise RamifyError(
                f"input.source=corrupted with input.max_source_tokens={input.max_source_tokens} needs {needed} sentinels "
                f"({sentinel_piece(0)}, {sentinel_piece(1)} …), but the tokenizer has {len(self.sentinels)}. Take one that has "
                "more, such as that of a T5 or one that the run trains; or lower input.max_source_tokens."
            )
        self.seed = seed

    @property
    def target_tokens(self) -> Ints:
        return self.spans.target + 1

    @property
    def costs(self) -> Ints:
        return self.target_tokens + self.spans.source + 1

    @property
    def counts(self) -> PairCounts:
        return PairCounts(len(self), int(self.target_tokens.sum()), int(self.spans.source.sum()) + len(self))

    def example(self, number: int, epoch: int = 0) -> Pair:
        random = np.random.Generator(np.random.Philox(np.random.SeedSequence((self.seed, epoch, number))))
        ids = self.text.ids[self._start[number] : self._stop[number]].astype(np.int64)
        noise, spans = int(self.spans.noise[number]), int(self.spans.spans[number])
        noise_lengths, kept_lengths = divided(noise, spans, random), divided(len(ids) - noise, spans, random)
        source, target = corrupted(ids, kept_lengths, noise_lengths, self.sentinels)
        return Pair(target, source)

    def unknown(self, tokenizer: Tokenizer) -> UnknownTokens:
        return tokenizer.unknown(self.text.ids)


def generative_view(
    store: Store, tokenizer: Tokenizer, split: Split, input: PairInput, *, sources: bool, seed: int = 0
) -> GenerativeView:
    """The texts of a split that a model predicts: from their sources, or from their own beginnings alone. `seed` is that of
    random draws, if there are any."""
    if input.source == "corrupted":
        if not sources:
            raise RamifyError(
                "input.source=corrupted needs a model that reads a source, but this one has no encoder. Set "
                "input.source=parent, or train t5."
            )
        return CorruptedText(store, tokenizer, split, input, seed)
    return Pairs(store, tokenizer, split, input) if sources else TextRows(store, tokenizer, split, input)
