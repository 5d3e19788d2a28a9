"""Measures of a memory of names: hidden words with and without the bank, gates, and questions that find names."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ramify.batching.document_batch import NUM_MARKS, Banks, LevelBatch
from ramify.batching.forest import Ints, ranges
from ramify.inference.documents.document_banks import DocumentBanks
from ramify.inference.documents.measures import BATCH_SLOTS, Advance, HeldOut, Measure, Measures, mean, spread
from ramify.inference.documents.words import CLASSES, Words
from ramify.metrics.ranking import auroc, sign_flip
from ramify.models.name_memory import NameMemory
from ramify.nn.ragged import runs

BANKS = ("own", "nothing", "other_document")
"""The banks with which hidden words are predicted: that of the other sentences, none, and that of another document."""
OWN, NOTHING, OTHER = range(len(BANKS))

GATED = 20_000
"""About so many words are judged by the ignore gate."""

TOP, RARE = 5, 3
"""Tokens that a filter is shown with. A token counts if the words that are judged hold it so many times."""


@dataclass(frozen=True)
class HiddenWords:
    """Predictions of words all of whose tokens are hidden, with each of `BANKS`."""

    word: Ints
    nats: Float[NDArray, "bank word"]
    """The mean cross-entropy of a word's tokens. NaN with a bank that does not exist: a model without a memory has none."""
    right: Float[NDArray, "bank word"]
    """1 where every token is right."""


def hidden_words(held: HeldOut, words: Words, chosen: Ints, advance: Advance = lambda count: None) -> HiddenWords:
    """Hide some words, which are in reading order, one at a time, and predict them."""
    level, task = held.level(0), held.task
    child = np.empty(len(held.rows.ids), dtype=np.int64)
    # The number of each token among the children of its row.
    firsts = np.cumsum(level.children) - level.children
    child[level.held_children] = np.arange(len(level.held_children)) - firsts[level.child_row]
    nats, right = np.full((2, len(BANKS), len(chosen)), math.nan)
    rows, banks = words.row[chosen], held.banks
    others = None if banks is None else _Others(banks, np.unique(words.tree[chosen]))
    none, mask = np.zeros(0, dtype=np.int64), NUM_MARKS + task.tokenizer.mask_id
    with torch.no_grad(), task.evaluating():
        for start, stop in runs(held.collator.num_slots(0)[rows], BATCH_SLOTS):
            batch = held.collator.level(0, rows[start:stop], none, none)
            # Rows of a batch are sorted by length, and equal rows keep their order.
            row = np.argsort(batch.source, kind="stable")
            number = words.count[chosen[start:stop]]
            first = (np.cumsum(batch.counts) - batch.counts)[row] + child[words.first[chosen[start:stop]]]
            masked = batch.child_slot[torch.from_numpy(ranges(first, first + number))]
            labels = batch.slots[masked].to(task.device)
            slots = batch.slots.index_fill(0, masked, mask)
            of_word = np.repeat(np.arange(stop - start), number)
            read = _banks_of(banks, others, batch, words.tree[chosen[start:stop]], row)
            found = _predicted(held, batch.to(task.device), slots.to(task.device), masked.to(task.device), labels, read)
            for place, (losses, is_right) in found.items():
                nats[place, start:stop] = np.bincount(of_word, losses) / number
                right[place, start:stop] = np.bincount(of_word, is_right) == number
            advance(stop - start)
    return HiddenWords(chosen, nats, right)


class _Others:
    """For each of some documents: the bank of the next one. A single document has none."""

    def __init__(self, banks: DocumentBanks, trees: Ints) -> None:
        self.trees = trees
        whole = banks.of_whole_documents(trees) if len(trees) > 1 else None
        self.banks = None if whole is None else whole.at(torch.from_numpy(np.roll(np.arange(len(trees)), -1)))

    def of(self, trees: Ints) -> Banks | None:
        if self.banks is None:
            return None
        return self.banks.at(torch.from_numpy(np.searchsorted(self.trees, trees)))


def _banks_of(
    banks: DocumentBanks | None, others: _Others | None, batch: LevelBatch, trees: Ints, row: Ints
) -> dict[int, Banks | None]:
    """The banks of a batch's rows, by their places in `BANKS`. `trees` are those of the words, and `row` are their rows."""
    if banks is None or others is None:
        return {NOTHING: None}
    own = banks.of_rows(batch.source)
    read: dict[int, Banks | None] = {OWN: own, NOTHING: own.without_answers()}
    of_row = np.empty(len(row), dtype=np.int64)
    of_row[row] = trees
    other = others.of(of_row)
    return read if other is None else read | {OTHER: other}


def _predicted(
    held: HeldOut, batch: LevelBatch, slots: Tensor, masked: Tensor, labels: Tensor, read: Mapping[int, Banks | None]
) -> dict[int, tuple[NDArray[Any], NDArray[Any]]]:
    """The cross-entropy of each hidden token, and whether it is the likeliest, with each of some banks."""
    task = held.task
    encoder = task.backbone.encoder(0)
    items = encoder.items(None)
    states = encoder.states(items, slots, batch.rows)
    found = {}
    for place, banks in read.items():
        after = task.read_names(0, states, batch.rows, None if banks is None else banks.to(task.device))
        predictions = task.predictor(0)(after, items, slots, batch.rows, masked, None)
        losses, best = task.mlm_head.measure(predictions, labels)
        found[place] = (losses.double().cpu().numpy(), (best == labels).cpu().numpy())
    return found


def word_measures(words: Words, hidden: HiddenWords) -> Measures:
    """The loss and the share of right words of each class. Baseline: nothing is read; `others`: another document's bank.
    Chance: the most frequent name of a document is always named.

    The p-value is that of the difference from the baseline, over documents.
    """
    measures: Measures = {}
    for number, name in enumerate(CLASSES):
        own = words.classes[hidden.word] == number
        tree = words.tree[hidden.word[own]]
        chance = _commonest(words, hidden.word[own]) if number == 0 else math.nan
        for kind, values, fixed in (("loss", hidden.nats, math.nan), ("accuracy", hidden.right, chance)):
            one, nothing, other = values[:, own]
            measures[f"hidden_word_{kind}.{name}"] = Measure(
                mean(one),
                mean(nothing),
                fixed,
                int(own.sum()),
                sign_flip(one - nothing, tree) if len(one) and not np.isnan(one).any() else math.nan,
                {"other_document": mean(other)},
                {"tree": tree, "own": one, "nothing": nothing, "other_document": other},
            )
    return measures


def _commonest(words: Words, chosen: Ints) -> float:
    """The share of some words that are the most frequent name of their document."""
    names = np.flatnonzero(words.classes == 0)
    counts = np.bincount(words.type[names], minlength=len(words.spellings))
    best = {int(tree): int(counts[words.type[names[words.tree[names] == tree]]].max()) for tree in np.unique(words.tree[names])}
    first: dict[int, int] = {}
    for word in names.tolist():
        if counts[words.type[word]] == best[int(words.tree[word])]:
            first.setdefault(int(words.tree[word]), int(words.type[word]))
    return mean(np.array([first[int(words.tree[word])] == words.type[word] for word in chosen.tolist()]))


# --- gates and questions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Filters:
    """The choices of the ignore gate's filters: for each group, and each of its filters, tokens with their mean share."""

    groups: tuple[tuple[tuple[tuple[str, float], ...], ...], ...]

    def to_json(self) -> list[list[list[dict[str, Any]]]]:
        return [
            [[{"token": token, "share": round(share, 4)} for token, share in each] for each in group] for group in self.groups
        ]


@dataclass(frozen=True)
class Example:
    """The gates of a sentence, and the questions that find the names of its document."""

    tokens: tuple[str, ...]
    ignore: Float[NDArray, " token"]
    """The ignore gate of each token: the share of it that is written."""
    update: Float[NDArray, " token"]
    """The update gate of each token, when the sentence reads the other sentences."""
    names: tuple[str, ...]
    found: Float[NDArray, "name question"]
    """The attention of each question to the tokens of a name, mean over the sentences that have the name."""


@dataclass(frozen=True)
class NameReading:
    """The ways of a model's memory of names with some documents."""

    filters: Filters
    example: Example | None
    """None if no document has a name."""


@dataclass
class Gated:
    """The ignore gate's values and choices of the tokens of some rows."""

    token: list[Ints] = field(default_factory=list)
    """The places of the tokens, among all tokens."""
    value: list[NDArray[np.float64]] = field(default_factory=list)
    choices: list[NDArray[np.float32]] = field(default_factory=list)

    @cached_property
    def tokens(self) -> Ints:
        return np.concatenate(self.token) if self.token else np.zeros(0, dtype=np.int64)


def gated_tokens(held: HeldOut, memory: NameMemory, rows: Ints) -> Gated:
    """Open the ignore gate to the tokens of some rows, which are in ascending order."""
    gated, none = Gated(), np.zeros(0, dtype=np.int64)
    encoder = held.task.backbone.encoder(0)
    with torch.no_grad(), held.task.evaluating():
        for start, stop in runs(held.collator.num_slots(0)[rows], BATCH_SLOTS):
            batch = held.collator.level(0, rows[start:stop], none, none)
            places = np.concatenate([held.children_of(0, row) for row in batch.source.tolist()])
            on_device = batch.to(held.task.device)
            states = encoder.states(encoder.items(None), on_device.slots, on_device.rows)
            states = states.index_select(0, on_device.child_slot)
            gated.token.append(places)
            gated.value.append(memory.ignore_gate(states).double().cpu().numpy())
            gated.choices.append(memory.ignore_gate.choices(states).float().cpu().numpy())
    return gated


def gate_measures(words: Words, is_name: NDArray[np.bool_], gated: Gated) -> Measures:
    """The AUROC of the ignore gate for tokens of names against those of other words. `is_name`: whether each word is one."""
    value = np.concatenate(gated.value) if gated.value else np.zeros(0)
    name, other = (np.isin(gated.tokens, words.tokens(chosen)) for chosen in (is_name, ~is_name))
    return {"name_gate_auroc": Measure(auroc(value[name], value[other]), math.nan, 0.5, int(name.sum()))}


def filters_of(held: HeldOut, gated: Gated) -> Filters:
    """The tokens with the greatest mean share of each filter."""
    tokenizer = held.task.tokenizer
    pieces, piece, counts = np.unique(held.rows.ids[gated.tokens], return_inverse=True, return_counts=True)
    choices = np.concatenate(gated.choices) if gated.choices else np.zeros((0, 1, 1), dtype=np.float32)
    groups = []
    often = np.flatnonzero(counts >= min(RARE, counts.max(initial=0)))
    for group in range(choices.shape[1]):
        filters = []
        for each in range(choices.shape[2]):
            share = np.bincount(piece, choices[:, group, each].astype(np.float64), minlength=len(pieces)) / np.maximum(
                counts, 1
            )
            best = often[np.argsort(-share[often], kind="stable")[:TOP]]
            filters.append(tuple((tokenizer.token(int(pieces[at])), float(share[at])) for at in best.tolist()))
        groups.append(tuple(filters))
    return Filters(tuple(groups))


NAMES = 10
"""Names of a document whose questions are shown."""


def example_of(held: HeldOut, memory: NameMemory, words: Words) -> Example | None:
    """The document with most names: its most frequent ones, and the sentence that has most of them."""
    names = np.flatnonzero(words.classes == 0)
    if not len(names) or held.banks is None:
        return None
    tree = int(np.bincount(words.tree[names]).argmax())
    names = names[words.tree[names] == tree]
    types, counts = np.unique(words.type[names], return_counts=True)
    shown = types[np.argsort(-counts, kind="stable")[:NAMES]]
    rows = np.unique(words.row[names])
    sizes = np.bincount(np.searchsorted(rows, words.row[names]))
    sentence = int(rows[sizes.argmax()])
    found = np.zeros((len(shown), len(memory.questions)))
    chosen = names[np.isin(words.type[names], shown)]
    for place, weights in _written(held, memory, np.unique(words.row[chosen])).items():
        for word in chosen[words.row[chosen] == place].tolist():
            first = int(np.searchsorted(held.children_of(0, place), words.first[word]))
            at = np.arange(first, first + int(words.count[word]))
            found[shown == words.type[word]] += weights[:, at].sum(1) / counts[types == words.type[word]]
    none = np.zeros(0, dtype=np.int64)
    batch = held.collator.level(0, np.array([sentence]), none, none).to(held.task.device)
    encoder = held.task.backbone.encoder(0)
    with torch.no_grad(), held.task.evaluating():
        states = encoder.states(encoder.items(None), batch.slots, batch.rows)
        ignore = memory.ignore_gate(states).index_select(0, batch.child_slot)
        _, update = memory.asked(states, batch.rows, held.banks.of_rows(batch.source).to(held.task.device))
        update = update.index_select(0, batch.child_slot)
    tokenizer = held.task.tokenizer
    tokens = tuple(tokenizer.token(int(each)) for each in held.rows.ids[held.children_of(0, sentence)])
    return Example(
        tokens,
        ignore.double().cpu().numpy(),
        update.double().cpu().numpy(),
        tuple(words.spellings[number].title() for number in shown.tolist()),
        found,
    )


def _written(held: HeldOut, memory: NameMemory, rows: Ints) -> dict[int, Float[NDArray, "question child"]]:
    """The attention of the questions to the children of some rows, which are in ascending order."""
    encoder, none = held.task.backbone.encoder(0), np.zeros(0, dtype=np.int64)
    found: dict[int, Float[NDArray, "question child"]] = {}
    with torch.no_grad(), held.task.evaluating():
        for start, stop in runs(held.collator.num_slots(0)[rows], BATCH_SLOTS):
            batch = held.collator.level(0, rows[start:stop], none, none).to(held.task.device)
            states = encoder.states(encoder.items(None), batch.slots, batch.rows)
            record: list[Tensor] = []
            memory.write(states, batch.rows, batch.is_child, record)
            is_child = batch.is_child.cpu().numpy()
            starts = np.cumsum(batch.rows.host_lengths) - batch.rows.host_lengths
            for row, weights in enumerate(record):
                own = is_child[starts[row] : starts[row] + batch.rows.host_lengths[row]]
                found[int(batch.source[row])] = weights[0].double().cpu().numpy()[:, : len(own)][:, own]
    return found


def name_measures(held: HeldOut, memory: NameMemory, words: Words, most: int, advance: Advance) -> tuple[Measures, NameReading]:
    """The measures of at most `most` hidden words of each class, and how the memory works."""
    chosen = [np.flatnonzero(words.classes == number) for number in range(len(CLASSES))]
    every = np.sort(np.concatenate([each[spread(len(each), most)] for each in chosen]))
    measures = word_measures(words, hidden_words(held, words, every, advance))
    rows = np.unique(words.row)
    share = min(1.0, GATED / max(1, len(words)))
    gated = gated_tokens(held, memory, rows[spread(len(rows), max(1, round(share * len(rows))))])
    measures |= gate_measures(words, words.is_name, gated)
    return measures, NameReading(filters_of(held, gated), example_of(held, memory, words))
