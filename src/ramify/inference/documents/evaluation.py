"""Held-out losses and measures of models of nested documents, with fixed draws."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ramify.batching.document_batch import DocumentBatch, DocumentCollator
from ramify.batching.forest import Ints, token_cache
from ramify.batching.levels import DocumentRows, LevelRows, Levels
from ramify.batching.samplers import dealt
from ramify.batching.views.documents import Documents
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted
from ramify.inference.documents.coherence import JudgedRows, intruder_measures, probing_measures
from ramify.inference.documents.decoded_text import decoded_sentence_measures
from ramify.inference.documents.floors import FittedFloors, before, fitted_on_others, fitted_on_training
from ramify.inference.documents.masked_children import masked_child_measures
from ramify.inference.documents.measures import Advance, HeldOut, Measure, Measures, counted_nodes, spread
from ramify.inference.documents.name_measures import NameReading, name_measures
from ramify.inference.documents.reconstruction import sentence_measures, upper_measures
from ramify.inference.documents.vectors import Vectors, encode_documents, read_documents
from ramify.inference.documents.words import Words, words_of
from ramify.metrics import vectors as vector_metrics
from ramify.nn.ragged import inverse, runs
from ramify.tasks.nested.task import NestedAutoencoder
from ramify.tokenizer import UnknownTokens

ROWS = 2_000
"""Rows, hidden children and judged children per level and measure, by default."""

DRAWN_TOKENS = 65_536
"""About so many tokens are read with the random draws of training; fewer if fewer rows are measured."""

DRAWN_BATCH = 8_192
"""Tokens of a batch with these draws, from which masked children are chosen and replaced ones are drawn."""

FITTED_TOKENS = 2_000_000
"""Baselines that read no vector are fitted on about so many tokens."""

COPIES = 8
"""Copies of a document that is longer than a batch, each with draws of its own."""

PARTS = 100
"""Steps of progress per stage of an evaluation."""

MORE_DOCUMENTS = 4
"""Other held-out documents that are candidates, if the split has a single document."""


def drawn_examples(
    task: NestedAutoencoder, view: Documents, collator: DocumentCollator, budget: int, examples: Ints, *, units: int, seed: int
) -> Iterator[DocumentBatch]:
    """Batches of some examples of a view, with fixed draws of masked and replaced children. A batch holds up to `budget`
    tokens, or else so many `units` of different documents (0: the budget decides)."""
    done = 0
    for numbers in _batches(view, examples, budget, units, seed):
        batch = collator([view.example(int(number)) for number in numbers]).to(task.device)
        yield task.draw(batch, seed + done)
        done += len(numbers)


def _batches(view: Documents, chosen: Ints, budget: int, units: int, seed: int) -> Iterator[Ints]:
    """The examples of each batch."""
    if not units:
        yield from (chosen[start:stop] for start, stop in runs(view.costs[chosen], budget))
        return
    whole = view.apart[chosen]
    divided = chosen[~whole]
    random = np.random.Generator(np.random.Philox(key=seed))
    yield from (divided[places] for places in dealt(view.trees[divided], units, random))
    yield from (chosen[place : place + 1] for place in np.flatnonzero(whole))


class LossSums:
    """Sums of losses, and their counts."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.counts: dict[str, float] = {}

    def add(self, counts: dict[str, float], losses: dict[str, Tensor]) -> None:
        for name, loss in losses.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(loss)
            self.counts[name] = self.counts.get(name, 0.0) + counts.get(name, 0.0)

    def means(self) -> dict[str, float]:
        return {name: total / self.counts[name] for name, total in self.sums.items() if self.counts[name]}


@dataclass(frozen=True)
class DocumentScores:
    """The measures of each level of a model, tokens included, and how they were made."""

    levels: dict[str, Measures]
    notes: list[str]
    documents: int
    unknown: UnknownTokens
    """The unknown ones among all tokens."""
    names: NameReading | None = None
    """The ways of the memory of names, if the model has one and its tokens are measured."""


def evaluate_documents(
    task: NestedAutoencoder,
    store: Store,
    split: Split,
    *,
    rows: int = ROWS,
    most_tokens: int | None = None,
    levels: Sequence[str] | None = None,
    seed: int = 0,
    advance: Advance | None = None,
) -> DocumentScores:
    """Measure a model on the documents of a split: `num_steps` steps of progress, at most `rows` rows per level and measure.

    `most_tokens`: only the first documents, up to about so many tokens, but at least two. `levels`: only the nodes of these
    levels (None: all), with their vectors and with their children, which belong to the level below. Without the lowest level,
    nothing is measured with the draws of training, because those begin with tokens.
    Raises `RamifyError` if the split has no documents, the model lacks one of the levels, or the model is an encoder alone.
    """
    if task.config.encoder_only:
        raise RamifyError(
            "The model is an encoder without decoder, heads and checkers, so it has nothing to evaluate. Evaluate the run that "
            "it was taken from."
        )
    names = task.names
    measured = names[1:] if levels is None else levels
    if unknown := [name for name in measured if name not in names[1:]]:
        raise RamifyError(
            f"levels={','.join(measured)} names {', '.join(unknown)}, which the model does not have. Choose among "
            f"{', '.join(names[1:])}."
        )
    trees = store.evaluation_trees(split)
    if most_tokens is not None:
        trees = first_documents(store, task, trees, most_tokens)
    steps = Steps(advance or (lambda count: None))
    held, view, notes = held_out(task, store, split, trees, seed=seed, progress=steps.of)
    floors = fitted_floors(task, store, split, view.rows)
    notes.append(f"Baselines that read no vector are fitted on {floors.source}.")
    by_level: dict[str, Measures] = {name: {} for name in names}
    reading: NameReading | None = None
    with task.evaluating(), torch.no_grad():
        if names[1] in measured:
            tokens = max(1, round(DRAWN_TOKENS * min(1.0, rows / ROWS)))
            drawn = drawn_measures(held, view, floors, steps.of(tokens), most_tokens=tokens)
            for name, measures in drawn.items():
                by_level[name] |= measures
            if task.name_memory is not None:
                words = words_of(store, task.tokenizer, view.rows)
                found, reading = name_measures(held, task.name_memory, words, rows, lambda count: None)
                by_level[names[0]] |= found
                notes += left_out_words(words)
        for number, (child, name) in enumerate(pairwise(names)):
            if name not in measured:
                continue
            if number == 0:
                measures, remarks = sentence_measures(held, floors, rows, steps.of(rows))
                by_level[name] |= measures
                notes += remarks
            else:
                by_level[name] |= upper_measures(held, number, floors, rows, steps.of(rows))
                by_level[name] |= decoded_sentence_measures(held, number, floors, rows, steps.of(rows))
                by_level[child] |= masked_child_measures(held, number, rows, steps.of(rows))
            by_level[name] |= probing_measures(held, number, floors, rows, steps.of(4 * rows))
            if number > 0:
                by_level[name] |= intruder_measures(held, number, rows, lambda count: None)
            by_level[name] |= vector_measures(held.encoded.vectors[number]) | counts_of(held.level(number))
    steps.finish(num_steps(task))
    return DocumentScores(by_level, notes, len(trees), task.tokenizer.unknown(view.rows.ids), reading)


def left_out_words(words: Words) -> list[str]:
    """A note if words were not measured."""
    if not words.not_read:
        return []
    return [f"The words of {counted(words.not_read, 'sentence')} are not measured, because several nodes hold the text."]


def held_out(
    task: NestedAutoencoder,
    store: Store,
    split: Split,
    trees: Ints,
    *,
    seed: int = 0,
    progress: Callable[[int], Advance] | None = None,
) -> tuple[HeldOut, Documents, list[str]]:
    """Encode the documents that are measured, and others if there is only one; their examples; and notes for the reader.

    `progress` begins a stage of so many tokens.
    """
    view, collator = read_documents(task.backbone, task.tokenizer, task.input, store, trees)
    if not view.rows.ids.size:
        raise RamifyError(f"{store.path} has no text in the documents of the split {split!r}. Choose another split.")
    encoded = encode_documents(task.backbone, view, collator, progress(len(view.rows.ids)) if progress else None)
    if len(trees) > 1 or task.backbone.depth == 1:
        # Nothing is looked for on a model's highest level.
        return HeldOut(task, collator, encoded, None, seed), view, []
    others = np.setdiff1d(np.concatenate([store.split("dev"), store.split("test")]), trees)[:MORE_DOCUMENTS]
    if not len(others):
        note = "There is only one held-out document, so nothing is measured among nodes of other documents."
        return HeldOut(task, collator, encoded, None, seed), view, [note]
    more = encode_documents(task.backbone, *read_documents(task.backbone, task.tokenizer, task.input, store, others))
    note = "The split has one document, so candidates from other documents come from dev and test."
    return HeldOut(task, collator, encoded, more, seed), view, [note]


def first_documents(store: Store, task: NestedAutoencoder, trees: Ints, most_tokens: int) -> Ints:
    """The first documents that hold about so many tokens, but at least two."""
    starts = token_cache(store, task.tokenizer).starts
    tokens = np.cumsum(starts[store.offsets[trees + 1]] - starts[store.offsets[trees]])
    return trees[: max(2, int(np.searchsorted(tokens, most_tokens, side="right")))]


def num_steps(task: NestedAutoencoder) -> int:
    """The steps of progress of an evaluation."""
    return PARTS * 4 * task.backbone.depth


class Steps:
    """One measure of progress for several stages, each of which counts its own items."""

    def __init__(self, advance: Advance) -> None:
        self.advance = advance
        self.done = 0
        self.stages = 0

    def of(self, total: int) -> Advance:
        """Begin a stage of about so many items, which completes the one before."""
        self.finish(PARTS * self.stages)
        start, self.stages = self.done, self.stages + 1
        seen = 0

        def advance(count: int) -> None:
            nonlocal seen
            seen += count
            reached = start + min(PARTS, PARTS * seen // max(1, total))
            self.advance(reached - self.done)
            self.done = reached

        return advance

    def finish(self, reached: int) -> None:
        """Complete the stages before so many steps."""
        self.advance(reached - self.done)
        self.done = reached


def fitted_floors(task: NestedAutoencoder, store: Store, split: Split, rows: DocumentRows) -> FittedFloors:
    """Baselines without vectors, from the training documents if others are evaluated and there are any."""
    train = store.split("train")
    size, sizes = task.tokenizer.vocab_size, task.backbone.config
    if split in ("train", "all") or not len(train):
        return fitted_on_others(rows, size)
    starts = token_cache(store, task.tokenizer).starts
    tokens = int((starts[store.offsets[train + 1]] - starts[store.offsets[train]]).sum())
    train = train[spread(len(train), max(1, round(len(train) * min(1.0, FITTED_TOKENS / max(1, tokens)))))]
    fitted = DocumentRows.of(Levels.open(store, task.tokenizer, sizes.levels, train), sizes.max_children, task.input.overflow)
    return fitted_on_training(fitted, FITTED_TOKENS, size, len(rows.levels[0]))


def vector_measures(vectors: Vectors) -> Measures:
    """The variety of the vectors of a level."""
    count = len(vectors)
    return {
        "spread": Measure(vector_metrics.spread(vectors), math.nan, math.nan, count),
        "effective_rank": Measure(vector_metrics.effective_rank(vectors), math.nan, math.nan, count),
    }


def counts_of(level: LevelRows) -> Measures:
    """Numbers of rows and nodes that other measures leave out or treat apart."""
    _, inverse_, occurrences = np.unique(level.content, return_inverse=True, return_counts=True)
    rows, nodes = len(level), len(level.num_rows)
    return {
        "duplicates": counted_nodes(int((occurrences[inverse_] > 1).sum()), rows),
        "only_children": counted_nodes(int((level.children == 1).sum()), rows),
        "empty": counted_nodes(int((level.children == 0).sum()), rows),
        "cut": counted_nodes(level.num_cut, nodes),
        "packed": counted_nodes(level.num_packed, nodes),
        "children_left_out": counted_nodes(level.left_out, level.num_below),
    }


# --- with the draws of training -------------------------------------------------------------------------------------------


@contextmanager
def in_own_terms(task: NestedAutoencoder) -> Iterator[None]:
    """Give every loss its own unit: nats per prediction, or a mean square, of all levels, without weights."""
    config = task.config
    task.config = replace(
        config,
        foreign=1.0 if config.foreign else 0.0,
        **dict.fromkeys(("reconstruction", "mlm", "coherence", "autoencoder"), 1.0),
        **dict.fromkeys(("vector_distance", "label_smoothing"), 0.0),
        per_class=False,
        balanced=False,
        autoencoder_until=1.0,
        autoencoder_distance="squared",
    )
    share, task.share_done = task.share_done, 0.0
    try:
        yield
    finally:
        task.config, task.share_done = config, share


def drawn_batches(held: HeldOut, view: Documents, most_tokens: int) -> Iterator[tuple[DocumentBatch, Tensor | None, int]]:
    """Batches of the examples of a view, up to about so many tokens and evenly spaced, then documents that are longer than a
    batch, with the vectors of the children; and the number of tokens."""
    apart = np.array([example.apart for example in view.examples], dtype=bool)
    whole = np.flatnonzero(~apart)
    share = min(1.0, most_tokens / max(1, int(view.target_tokens[whole].sum())))
    chosen = whole[spread(len(whole), max(1, round(share * len(whole))))]
    for start, stop in runs(view.costs[chosen], DRAWN_BATCH):
        batch = held.collator([view.example(int(number)) for number in chosen[start:stop]])
        yield batch, None, batch.num_tokens
    for number in np.flatnonzero(apart).tolist():
        example = view.example(number)
        batch, rows = document_batch(
            held, view.unit, example.start, example.stop, example.document_start, example.document_stop
        )
        yield batch, torch.from_numpy(held.encoded.vectors[view.unit][rows]), 0


def document_batch(
    held: HeldOut, unit: int, start: int, stop: int, document_start: int, document_stop: int
) -> tuple[DocumentBatch, Ints]:
    """Copies of a document's own rows, and the rows of the level below in the order of the batch's vectors."""
    units = np.arange(start, stop)
    every = np.arange(held.level(unit).num_below if unit else 0)
    part = held.collator.level(unit, units, every, every)
    rank = inverse(part.source - start)
    documents = np.repeat(np.arange(document_start, document_stop), COPIES)
    top = held.collator.level(unit + 1, documents, units, rank)
    return DocumentBatch((top,), unit + 1, (DocumentBatch((part,), unit, (), 0),), 0), part.source


def drawn_measures(
    held: HeldOut, view: Documents, floors: FittedFloors, advance: Advance, *, most_tokens: int = DRAWN_TOKENS
) -> dict[str, Measures]:
    """Losses, masked tokens and the checker's error, with masked and replaced children as in training."""
    task, sums = held.task, LossSums()
    tokens, coherence = MaskedTokens(), [JudgedRows() for _ in range(task.backbone.depth)]
    with in_own_terms(task):
        for number, (clean, vectors, size) in enumerate(drawn_batches(held, view, most_tokens)):
            if held.banks is not None and clean.lowest == 0:
                clean = replace(clean, banks=held.banks.of_rows(clean.levels[0].source))
            batch = task.draw(clean.to(task.device), held.seed + number)
            children = None if vectors is None else vectors.to(task.device)
            ones = dict.fromkeys(task.loss_names, 1.0)
            sums.add(task.counts(batch, "main"), task.level_losses(batch, children, ones))
            for place, (rows, draws) in enumerate(zip(batch.levels, batch.draws, strict=True)):
                level = batch.lowest + place
                encoded = task.encode(batch, place, children)
                if level == 0:
                    # A token that is shown unchanged needs no prediction.
                    hidden = draws.hides(rows)
                    masked = draws.masked[hidden]
                    labels = rows.slots.index_select(0, masked)
                    _, best = task.mlm_head.measure(task.masked_states(encoded, draws)[hidden], labels)
                    tokens.add(batch, masked.cpu().numpy(), best.cpu().numpy(), floors)
                shares, _ = task.replaced_children(level, encoded.items, draws.replaced_slots, rows.rows, draws.segments)
                marked = np.full(len(rows.counts), math.nan)
                if draws.segments is not None:
                    is_marked = draws.segments.index_select(0, rows.child_slot).cpu().numpy()
                    marked = np.bincount(
                        rows.child_row.cpu().numpy(), is_marked.astype(np.float64), minlength=len(rows.counts)
                    ).astype(np.float64)
                coherence[level].add(shares.double().cpu().numpy(), draws.share.cpu().numpy(), marked, rows.counts)
                children = encoded.parents
            advance(size)
    measures: dict[str, Measures] = {name: {} for name in task.names}
    for name, value in sums.means().items():
        kind, _, level = name.partition("_")
        measures[level][f"{kind}_loss"] = Measure(value, math.nan, math.nan, round(sums.counts[name]))
    measures[task.names[0]]["mlm_accuracy"] = tokens.measure()
    for level, rows in enumerate(coherence):
        measures[task.names[level + 1]]["coherence_mse"] = rows.measure()
    return measures


class MaskedTokens:
    """Predictions of masked tokens, and those of the baselines."""

    def __init__(self) -> None:
        self.count = 0
        self.right = np.zeros(3)
        """The number of right predictions of the model, of the trigram model, and of the commonest token."""

    def add(self, batch: DocumentBatch, masked: Ints, best: Ints, floors: FittedFloors) -> None:
        rows = batch.levels[0]
        slots, place = rows.slots.cpu().numpy(), rows.rows.positions.cpu().numpy()
        one, two = before(slots, place, 1)[masked], before(slots, place, 2)[masked]
        row = np.searchsorted(np.cumsum(rows.rows.host_lengths), masked, side="right")
        fold, labels = floors.fold[rows.source[row]], slots[masked]
        self.count += len(masked)
        self.right[0] += (best == labels).sum()
        for number, floor in enumerate(floors.floors):
            chosen = fold == number
            self.right[1] += (floor.after(two, one) == labels)[chosen].sum()
            self.right[2] += (labels[chosen] == floor.commonest_token).sum()

    def measure(self) -> Measure:
        if not self.count:
            return Measure(math.nan, math.nan, math.nan, 0)
        model, trigram, commonest = (self.right / self.count).tolist()
        return Measure(model, trigram, commonest, self.count)
