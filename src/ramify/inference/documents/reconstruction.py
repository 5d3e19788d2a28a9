"""Measures of reconstruction: children from a vector, with predicted ends and without knowledge of their number."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ramify.batching.document_batch import CONT, EOS, JOIN, NUM_MARKS
from ramify.batching.forest import Ints
from ramify.inference.documents.decoding import ROWS, DecodedRow, decode_children
from ramify.inference.documents.floors import FittedFloors
from ramify.inference.documents.measures import Advance, HeldOut, Measure, Measures, mean, spread
from ramify.inference.documents.members import member_measures
from ramify.metrics.ranking import rank, sign_flip

BINS = ((1, 5), (6, 10), (11, 20), (21, 31), (32, 63), (64, 127))
"""Ranges of the number of tokens of a sentence. A further range holds longer ones."""

RETRIEVED = 2_000
"""Greatest number of children per level that are looked for among all nodes."""


@dataclass(frozen=True)
class Written:
    """Rows as they are, and as they were written."""

    true: Sequence[Ints]
    predicted: Sequence[Ints]
    """Predicted slots, up to and with the end mark if there is one."""

    @property
    def right(self) -> Ints:
        """The number of true places of each row with the right slot. Places after the predicted end are wrong."""
        return np.array([_equal(one, other) for one, other in zip(self.true, self.predicted, strict=True)], dtype=np.int64)

    @property
    def lengths(self) -> Ints:
        return np.array([len(slots) for slots in self.true], dtype=np.int64)

    @property
    def exact(self) -> NDArray[np.bool_]:
        pairs = zip(self.true, self.predicted, strict=True)
        return np.array([np.array_equal(one, other) for one, other in pairs], dtype=bool)

    @property
    def ends(self) -> NDArray[np.bool_]:
        """Whether each row's first end mark is at the place of the true one."""
        pairs = zip(self.true, self.predicted, strict=True)
        return np.array([first_end(one) == first_end(other) for one, other in pairs], dtype=bool)

    def accuracy(self) -> float:
        return float(self.right.sum() / self.lengths.sum()) if self.lengths.sum() else math.nan


def _equal(one: Ints, other: Ints) -> int:
    size = min(len(one), len(other))
    return int((one[:size] == other[:size]).sum())


def first_end(slots: Ints) -> int:
    """The place of the first end mark, or the number of places."""
    ends = np.flatnonzero((slots == EOS) | (slots == CONT))
    return int(ends[0]) if len(ends) else len(slots)


def closed(row: DecodedRow) -> Ints:
    """The slots of a decoded row, with its end mark."""
    return np.append(row.slots, CONT if row.continues else EOS) if row.ended else row.slots


def corpus_bleu(texts: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU-4 in percent. Raises `ImportError` without sacrebleu."""
    import sacrebleu

    return float(sacrebleu.corpus_bleu(list(texts), [list(references)], force=True).score)


NO_BLEU = "BLEU is left out, because sacrebleu is not installed (pip install sacrebleu)."


def sentence_measures(held: HeldOut, floors: FittedFloors, most: int, advance: Advance) -> tuple[Measures, list[str]]:
    """Tokens from the vectors of at most `most` of the lowest rows, and notes for the reader.

    All measures are also given by the number of tokens.
    """
    level = held.level(0)
    rows = spread(len(level), most)
    predicted = decoded_sentences(held, rows, advance)
    measures: Measures = {}
    for suffix, chosen in _bins(level.children[rows]).items():
        by_name = sentence_measures_of(held, floors, rows[chosen], [predicted[row] for row in chosen])
        measures |= {name + suffix: measure for name, measure in by_name.items()}
    return measures, [] if has_bleu() else [NO_BLEU]


def decoded_sentences(held: HeldOut, rows: Ints, advance: Advance) -> list[Ints]:
    """The slots of some of the lowest rows, with their end marks, decoded from their own vectors. Each row is decoded once."""
    unknown = np.array([row for row in rows.tolist() if row not in held.sentences], dtype=np.int64)
    for start in range(0, len(unknown), ROWS):
        chosen = unknown[start : start + ROWS]
        banks = None if held.banks is None else held.banks.of_rows(chosen)
        decoded = decode_children(held.task, 0, held.encoded.vectors[0][chosen], None, banks)
        held.sentences.update(zip(chosen.tolist(), map(closed, decoded), strict=True))
        advance(len(chosen))
    return [held.sentences[row] for row in rows.tolist()]


def has_bleu() -> bool:
    """Whether BLEU can be computed."""
    try:
        corpus_bleu(["a"], ["a"])
    except ImportError:
        return False
    return True


def sentence_measures_of(held: HeldOut, floors: FittedFloors, rows: Ints, predicted: Sequence[Ints]) -> Measures:
    """The tokens that were written for some of the lowest rows, which are in ascending order, beside baselines that read none
    of their vectors. A written row holds its end mark, if it has one."""
    true = held.true_slots(0, rows)
    row_floors = [floors.of(row) for row in rows.tolist()]
    by_model = Written(true, predicted)
    by_trigram = Written(true, [floor.trigram(slots) for floor, slots in zip(row_floors, true, strict=True)])
    by_place = Written(true, [floor.by_place for floor in row_floors])
    common = Written(true, [np.full(len(slots), floor.commonest) for floor, slots in zip(row_floors, true, strict=True)])
    usual = np.array([floor.lengths[0] for floor in row_floors], dtype=np.int64) == held.level(0).children[rows]
    return _of_rows((by_model, by_trigram, by_place, common), usual, _text(held) if has_bleu() else None)


def _bins(lengths: Ints) -> dict[str, Ints]:
    """The rows of each range of lengths, by a suffix of the measure's name."""
    bins = {"": np.arange(len(lengths))}
    last = BINS[-1][1]
    for low, high in (*BINS, (last + 1, int(lengths.max(initial=0)))):
        chosen = np.flatnonzero((lengths >= low) & (lengths <= high))
        if len(chosen):
            bins[f".{low}-{high}" if low <= last else f".over-{last}"] = chosen
    return bins


def _of_rows(systems: Sequence[Written], usual: NDArray[np.bool_], text: Callable[[Ints], str] | None) -> Measures:
    model, trigram, place, common = systems
    count = len(model.true)
    measures = {
        "token_accuracy": Measure(
            model.accuracy(),
            trigram.accuracy(),
            common.accuracy(),
            int(model.lengths.sum()),
            others={"commonest_per_place": place.accuracy()},
        ),
        "exact_match": Measure(mean(model.exact), mean(trigram.exact), mean(common.exact), count),
        "right_ends": Measure(mean(model.ends), mean(trigram.ends), mean(usual), count),
    }
    if text is not None and count:
        references = [text(slots) for slots in model.true]
        scores = [corpus_bleu([text(slots) for slots in system.predicted], references) for system in systems]
        measures["bleu"] = Measure(scores[0], scores[1], scores[3], count, others={"commonest_per_place": scores[2]})
    return measures


def _text(held: HeldOut) -> Callable[[Ints], str]:
    tokenizer = held.task.tokenizer

    def text(slots: Ints) -> str:
        slots = slots[: first_end(slots)]
        return tokenizer.decode((slots[slots >= NUM_MARKS] - NUM_MARKS).tolist())

    return text


# --- above the tokens -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Decoded:
    """A decoded row above the tokens, beside the true one."""

    row: int
    children: Ints
    """The true children: rows of the level below."""
    places: Ints
    """The place of each child in the row."""
    right: NDArray[np.bool_]
    """Whether each child's place holds a candidate of its content."""
    right_end: bool
    odds: NDArray[np.float64]
    """The share of candidates that are right for each child."""
    common: NDArray[np.bool_]
    """Whether each child has the commonest content of the document."""
    queries: NDArray[np.float32]
    is_child: NDArray[np.bool_]
    """Whether each place before the predicted end holds a child, and no mark."""


def upper_measures(held: HeldOut, number: int, floors: FittedFloors, most: int, advance: Advance) -> Measures:
    """Children from the vectors of at most `most` rows of a level above the lowest.

    Candidates are the vectors of the children's level in the row's document, and the queue.
    """
    level = held.level(number)
    having = np.flatnonzero(level.children)
    rows = having[spread(len(having), most)]
    decoded: list[_Decoded] = []
    for tree in np.unique(level.tree[rows]).tolist():
        decoded += _of_document(held, number, rows[level.tree[rows] == tree], tree, advance)
    usual = np.array([floors.floors[0].lengths[number] == len(row.children) for row in decoded], dtype=bool)
    joined = {
        name: np.concatenate([getattr(row, name) for row in decoded]) if decoded else np.zeros(0)
        for name in ("right", "common", "odds")
    }
    places = held.task.backbone.config.max_children[number]
    ends = np.array([row.right_end for row in decoded], dtype=bool)
    measures = {
        "child_accuracy": Measure(mean(joined["right"]), mean(joined["common"]), mean(joined["odds"]), len(joined["right"])),
        "right_ends": Measure(mean(ends), mean(usual), 1 / places, len(ends)),
    }
    written = {row.row: row.queries[: len(row.is_child)][row.is_child] for row in decoded}
    return measures | _retrieval(held, number, decoded) | member_measures(held, number, written, most)


def _of_document(held: HeldOut, number: int, rows: Ints, tree: int, advance: Advance) -> list[_Decoded]:
    below, queue = held.level(number - 1), held.task.queue(number)
    inside = np.flatnonzero(below.tree == tree)
    kept = len(queue)
    candidates = np.concatenate([held.encoded.vectors[number - 1][inside], queue.vectors[:kept].float().cpu().numpy()])
    content = np.concatenate([below.content[inside], queue.content[:kept].cpu().numpy()])
    values, occurrences = np.unique(below.content[inside], return_counts=True)
    commonest = values[occurrences.argmax()]
    known, copies = np.unique(content, return_counts=True)
    true = held.true_slots(number, rows)
    decoded_rows = []
    for start in range(0, len(rows), ROWS):
        chosen = rows[start : start + ROWS]
        decoded = decode_children(held.task, number, held.encoded.vectors[number][chosen], candidates)
        for row, slots, made in zip(chosen.tolist(), true[start : start + ROWS], decoded, strict=True):
            place = np.flatnonzero(slots >= NUM_MARKS)
            children = slots[place] - NUM_MARKS
            wanted = below.content[children]
            written = np.full(len(slots), JOIN)
            size = min(len(slots), len(made.slots))
            written[:size] = made.slots[:size]
            written = written[place]
            is_child = written >= NUM_MARKS
            right = is_child & (content[np.where(is_child, written - NUM_MARKS, 0)] == wanted)
            odds = copies[np.searchsorted(known, wanted)] / len(content)
            end = first_end(closed(made)) == first_end(slots)
            common = wanted == commonest
            decoded_rows.append(_Decoded(row, children, place, right, end, odds, common, made.queries, made.slots >= NUM_MARKS))
        advance(len(chosen))
    return decoded_rows


def _retrieval(held: HeldOut, number: int, decoded: list[_Decoded]) -> Measures:
    """Each true child among the nodes of its level in all documents, by its place's decoded vector."""
    pool, keys = held.pools[number - 1], held.keys(held.task.child_similarity(number), number - 1)
    total = sum(len(decoded_row.children) for decoded_row in decoded)
    chosen = np.zeros(total, dtype=bool)
    chosen[spread(total, RETRIEVED)] = True
    middle = pool.vectors.mean(0) if len(pool.vectors) else np.zeros(0)
    fixed = pool.vectors @ middle
    ranks: list[tuple[float, float, int, int]] = []
    item = 0
    for decoded_row in decoded:
        for child, place in zip(decoded_row.children.tolist(), decoded_row.places.tolist(), strict=True):
            item += 1
            if not chosen[item - 1]:
                continue
            others = np.flatnonzero(pool.content != pool.content[child])
            if not len(others):
                continue
            model_rank = 1.0 + len(others)
            if place < len(decoded_row.queries):
                scores = keys @ decoded_row.queries[place]
                model_rank = rank(float(scores[child]), scores[others])
            ranks.append((model_rank, rank(float(fixed[child]), fixed[others]), len(others), decoded_row.row))
    table = np.array(ranks, dtype=np.float64).reshape(-1, 4)
    model, baseline, others = table[:, 0], table[:, 1], table[:, 2]
    unit = table[:, 3].astype(np.int64)
    among_ten = [(column <= 10).astype(np.float64) for column in (model, baseline)]
    lower = [1 - (column - 1) / others for column in (model, baseline)]
    return {
        "retrieval_recall_at_10": Measure(
            mean(among_ten[0]),
            mean(among_ten[1]),
            mean(np.minimum(1, 10 / (others + 1))),
            len(table),
            sign_flip(among_ten[0] - among_ten[1], unit),
        ),
        "retrieval_auroc": Measure(
            mean(lower[0]), mean(lower[1]), 0.5 if len(table) else math.nan, len(table), sign_flip(lower[0] - lower[1], unit)
        ),
    }
