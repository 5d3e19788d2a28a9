"""Pictures and computed tables of the page on permutation language modelling, written to `_generated/` as by `figures.py`.

Visibility, rows, memory, distances, spans and operations are read off the package's own code.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from figures import GENERATED, PAGE, Drawing, table, write_files
from numpy.typing import NDArray
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers
from torch.utils.flop_counter import FlopCounterMode

from ramify import Tree
from ramify.batching.running_text import RunningText
from ramify.batching.stream_batch import StreamBatch, StreamTargets, collate_streams, plain_rows
from ramify.batching.views.streams import StreamConfig, StreamInput, StreamRow, Streams
from ramify.dataset.store import Store
from ramify.models.xlnet import Memory, XLNet, XLNetConfig, content_parts, query_parts
from ramify.nn.relative import shifted
from ramify.recipes.permutation import SIZES
from ramify.sample import CHECKPOINT, DISCUSSIONS
from ramify.tasks.permutation_lm import factorization_order
from ramify.tasks.spans import SpanChoice, SpanUnit, halves, quotas
from ramify.tokenizer import SPECIAL, Tokenizer

Matrix = NDArray[np.bool_]

# --- who sees whom ----------------------------------------------------------------------------------------------------

ORDER = (3, 2, 4, 1)
"""The factorization order of the first picture: token 3 comes first."""
MEMORY = 2


@dataclass(frozen=True)
class Seen:
    """Whether each query of a row sees each key, memory first."""

    content: Matrix
    queries: Matrix
    """One line per target."""


def ranks(order: Sequence[int]) -> NDArray[np.int64]:
    """The place of every token in a factorization order that counts tokens from 1."""
    return np.argsort(order)


def seen(order: NDArray[np.int64], targets: Sequence[int], memory: int = 0, parts: tuple[tuple[int, int], ...] = ()) -> Seen:
    """The masks of both streams for one row."""
    batch = plain_rows(np.zeros((1, len(order)), dtype=np.int64), order[None])
    counts = tuple(sum(start <= each < stop for each in targets) for start, stop in parts or ((0, len(order)),))
    chosen = StreamTargets.at(np.array([targets]), batch.input_ids, counts)
    batch = replace(batch, parts=parts, targets=chosen)
    before = Memory(torch.zeros(1, 1, memory, 1), torch.tensor([memory])) if memory else None
    keys = memory + len(order)
    return Seen(_joined(content_parts(batch, before), keys), _joined(query_parts(batch, before), keys))


def _joined(parts: Any, keys: int) -> Matrix:
    lines = [np.pad(part.mask[0, 0].numpy(), [(0, 0), (0, keys - part.num_keys)]) for part in parts]
    return np.concatenate(lines)


WORDS = ("the", "wind", "rose", "over", "the", "bay", "the", "boats", "SEP", "came", "in", "SEP", "CLS")
SEPARATORS = (8, 11, 12)
HALVES = ((0, 6), (6, 13))
TARGETS = (1, 2, 7, 10)


@cache
def worked_order() -> NDArray[np.int64]:
    """The factorization order of the row of `WORDS`."""
    late = np.zeros(len(WORDS), dtype=bool)
    late[[*TARGETS, *SEPARATORS]] = True
    return factorization_order(late, HALVES, np.random.Generator(np.random.Philox(key=4)))


# --- pictures -----------------------------------------------------------------------------------------------------------

SUBSCRIPTS = "₀₁₂₃₄₅₆₇₈₉"


def _matrix(
    drawing: Drawing, x: float, y: float, side: float, found: Matrix, own: Sequence[int], memory: int, *, sees_itself: bool
) -> None:
    """Draw a mask. `own` has the column of each line's own token."""
    for line, row in enumerate(found):
        for column, visible in enumerate(row):
            mine = column == own[line]
            assert not mine or visible == sees_itself, "the content stream sees its own token, the query stream never does"
            if mine:
                kind = "cell-own" if visible else "cell-self"
            else:
                kind = ("cell-memory" if column < memory else "cell-read") if visible else "cell"
            drawing.box(x + column * side + 1, y + line * side + 1, side - 2, side - 2, kind=kind)


def _legend(drawing: Drawing, x: float, y: float, entries: Sequence[tuple[str, str, float]]) -> None:
    for kind, text, width in entries:
        drawing.box(x, y, 15, 15, kind=kind)
        drawing.text(x + 22, y + 12, text, kind="muted", size=11.5, anchor="start")
        x += width


def two_streams() -> Drawing:
    side, memory, tokens = 30, MEMORY, len(ORDER)
    order = ranks(ORDER)
    found = seen(order, range(tokens), memory)
    width = (memory + tokens) * side
    drawing = Drawing(PAGE, 70 + tokens * side + 44, "The tokens that each stream sees under the order 3, 2, 4, 1")
    own = [memory + number for number in range(tokens)]
    places = ("first", "second", "third", "last")
    for x, title, name, mask, itself in (
        (50, "content stream", "h", found.content, True),
        (430, "query stream", "g", found.queries, False),
    ):
        drawing.text(x + width / 2, 16, title, kind="head", size=13)
        for column in range(memory + tokens):
            label = f"m{SUBSCRIPTS[column + 1]}" if column < memory else f"x{SUBSCRIPTS[column - memory + 1]}"
            drawing.text(x + (column + 0.5) * side, 54, label)
        drawing.text(x + memory * side / 2, 36, "memory", kind="muted", size=11)
        drawing.text(x + (memory + tokens / 2) * side, 36, "content of the layer below", kind="muted", size=11)
        _matrix(drawing, x, 62, side, mask, own, memory, sees_itself=itself)
        for row in range(tokens):
            y = 62 + (row + 0.5) * side + 4
            drawing.text(x - 8, y, f"{name}{SUBSCRIPTS[row + 1]}", anchor="end")
            drawing.text(x + width + 10, y, places[order[row]], kind="muted", size=11.5, anchor="start")
    entries = (
        ("cell-memory", "memory", 80),
        ("cell-read", "a token before it in the order", 200),
        ("cell-own", "the token itself", 120),
        ("cell-self", "its own word: never seen", 0),
    )
    _legend(drawing, 50, 62 + tokens * side + 18, entries)
    return drawing


PANELS = ((3, 2, 4, 1), (2, 4, 3, 1), (1, 4, 2, 3), (4, 3, 1, 2))


def one_target() -> Drawing:
    """The paths from x₃ through two layers down to words and memory, under four orders."""
    target, memory = 2, 1
    across, down = PAGE / 2, 196
    drawing = Drawing(PAGE, 2 * down, "The prediction of the third token under four factorization orders")
    for number, order in enumerate(PANELS):
        left, top = number % 2 * across + 26, number // 2 * down
        found = seen(ranks(order), range(len(order)), memory)
        drawing.text(left, top + 18, " → ".join(map(str, order)), kind="head", size=13, anchor="start")
        first = np.flatnonzero(found.queries[target])
        used = {*first.tolist()}
        below = {key for each in used if each >= memory for key in np.flatnonzero(found.content[each - memory]).tolist()}

        def at(key: int, level: int, left: float = left, top: float = top) -> tuple[float, float]:
            return left + 28 + key * 62, top + (44, 100, 160)[level]

        for key in sorted(used):
            (x, y), (tx, ty) = at(key, 1), at(memory + target, 0)
            drawing.line((x, y - 11), (tx, ty + 11), kind="keys-thin")
            for deeper in np.flatnonzero(found.content[key - memory]).tolist() if key >= memory else ():
                (bx, by) = at(deeper, 2)
                drawing.line((bx, by - 11), (x, y + 11), kind="keys-thin")
        x, y = at(memory + target, 0)
        drawing.box(x - 22, y - 11, 44, 22, "g₃", "target")
        for level, reached in ((1, used), (2, below)):
            for key in range(memory + len(order)):
                x, y = at(key, level)
                name = "mem" if key < memory else f"{'hx'[level - 1]}{SUBSCRIPTS[key - memory + 1]}"
                kind = ("held" if key < memory else "read") if key in reached else "absent"
                drawing.box(x - 22, y - 11, 44, 22, name, kind, size=11.5)
    return drawing


def two_halves() -> Drawing:
    """Both masks of a row with two halves and separators, with the numbers that make them."""
    side, tokens, memory = 20.5, len(WORDS), 1
    order = worked_order()
    found = seen(order, TARGETS, memory, HALVES)
    width = (memory + tokens) * side
    drawing = Drawing(PAGE, 106 + tokens * side + 38, "Both streams' masks of a row with two halves and separators")
    for x, title, mask, lines, itself in (
        (70, "content stream: all tokens", found.content, range(tokens), True),
        (445, "query stream: the targets", found.queries, TARGETS, False),
    ):
        drawing.text(x + width / 2, 14, title, kind="head", size=13)
        for column in range(memory + tokens):
            middle = x + (column + 0.5) * side
            name = "mem" if column < memory else WORDS[column - memory]
            kind = "on-note" if column - memory in TARGETS else "ink"
            drawing.text(middle + 4, 72, name, kind=kind, size=11, anchor="start", turn=-90)
            drawing.text(middle, 92, "–" if column < memory else str(order[column - memory]), kind="muted", size=11)
        y = 100
        _matrix(drawing, x, y, side, mask, [memory + each for each in lines], memory, sees_itself=itself)
        for row, token in enumerate(lines):
            place = y + (row + 0.5) * side + 4
            kind = "on-note" if token in TARGETS else "ink"
            drawing.text(x - 26, place, WORDS[token], kind=kind, size=11, anchor="end")
            drawing.text(x - 5, place, str(order[token]), kind="muted", size=11, anchor="end")
        half = HALVES[0][1]
        border = x + (memory + half) * side
        drawing.line((border, y - 4), (border, y + len(mask) * side + 4), kind="line")
        if itself:
            drawing.line((x - 4, y + half * side), (x + width + 4, y + half * side), kind="line")
    entries = (
        ("cell-memory", "memory", 0),
        ("cell-read", "seen", 0),
        ("cell-own", "itself, seen", 0),
        ("cell-self", "its own word, not seen", 0),
    )
    for number, entry in enumerate(entries):
        _legend(drawing, 445, 210 + number * 24, [entry])
    drawing.text(445, 330, "numbers: the order; bold: targets", kind="muted", size=11.5, anchor="start")
    return drawing


# --- rows and memory ------------------------------------------------------------------------------------------------------

TEXT_LENGTH = 44
SENTENCES = (0, 5, 9, 13, 18, 24, 27, 33, 38, 44)
DOCUMENT_END = 13
LAYOUT = StreamInput(row_tokens=22, reused_tokens=8)
REMEMBERED = 6
OFFSET = len(SPECIAL)
"""Token n of the text has the id `OFFSET + n`, so that a position can be read off an id."""


@dataclass(frozen=True)
class ShownRow:
    """A row, and the places of the text whose states it reads in memory, oldest first."""

    row: StreamRow
    place: int
    memory: list[int]


def _word_pieces(words: Sequence[str]) -> Tokenizer:
    engine = Engine(models.WordPiece({name: number for number, name in enumerate((*SPECIAL, *words))}, unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.Whitespace()
    engine.add_special_tokens(list(SPECIAL))
    return Tokenizer(engine)


@cache
def shown_rows() -> list[ShownRow]:
    """The first rows of a forward and a backward stream of one text, with what a model reads in memory."""
    text = RunningText(
        ids=np.arange(OFFSET, OFFSET + TEXT_LENGTH, dtype=np.uint16),
        sentences=np.array(SENTENCES),
        paragraphs=np.arange(len(SENTENCES)),
        documents=np.array([0, SENTENCES.index(DOCUMENT_END), len(SENTENCES) - 1]),
    )
    view = Streams(text, _word_pieces(["word"]), LAYOUT, StreamConfig(streams=1), seed=5)
    size = XLNetConfig(vocab_size=OFFSET + TEXT_LENGTH, dim=8, num_layers=1, num_heads=1, ffn_dim=8, memory=REMEMBERED)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = size.build().eval()
    found: list[ShownRow] = []
    for stream in range(view.config.num_rows):
        state = None
        for place in range(view.per_stream):
            row = view.example(stream * view.per_stream + place)
            batch = collate_streams([row], LAYOUT)
            found.append(ShownRow(row, place, _remembered(model, batch, state)))
            with torch.no_grad():
                state = model(batch, state).state
    return found


def _remembered(model: XLNet, batch: StreamBatch, state: Any) -> list[int]:
    """The tokens whose embeddings, the first layer's inputs, a batch of one row can read in memory."""
    memory = model._memory(batch, state)
    if memory is None:
        return []
    states = memory.states[0, 0][memory.visible[0]]
    equal = (states[:, None] == model.embedding.weight).all(-1)
    assert (equal.sum(1) == 1).all(), "memory holds other states than the embeddings of tokens"
    return (equal.int().argmax(1) - OFFSET).tolist()


def rows() -> Drawing:
    """Rows of both directions, token by token, below the text that they read."""
    found = shown_rows()
    cell, left = 22.5, 86
    drawing = Drawing(PAGE, 92 + len(found) * 44 + 40, "Rows of a forward and a backward stream, and what memory holds")
    step = (PAGE - left - 4) / TEXT_LENGTH
    drawing.text(left - 8, 31, "the text", anchor="end")
    for token in range(TEXT_LENGTH):
        drawing.box(left + token * step + 0.5, 16, step - 1, 22, str(token), "token", size=8.5)
    for border in SENTENCES[1:-1]:
        is_end = border == DOCUMENT_END
        drawing.line((left + border * step, 10), (left + border * step, 44), kind="back" if is_end else "line")
        if is_end:
            drawing.text(left + border * step, 58, "another document begins", kind="on-note", size=11)
    y = 74.0
    for each in found:
        direction = "forward" if each.row.direction > 0 else "backward"
        drawing.text(left - 8, y + 15, f"{direction} {each.place + 1}", size=11.5, anchor="end")
        for number in range(REMEMBERED):
            empty = number < REMEMBERED - len(each.memory)
            label = "" if empty else str(each.memory[number - REMEMBERED])
            drawing.box(left + number * cell, y, cell - 1.5, 22, label, "padding" if empty else "held", size=9.5)
        x = left + REMEMBERED * cell + 8
        kinds = ("read", "token", "share")
        for number, token in enumerate(each.row.ids.tolist()):
            if each.row.functional[number]:
                name = "CLS" if each.row.segments[number] == 2 else "SEP"
                drawing.box(x + number * cell, y, cell - 1.5, 22, name, "block", size=8)
                continue
            kind = kinds[0] if number < LAYOUT.reused_tokens else kinds[1 + int(each.row.segments[number])]
            drawing.box(x + number * cell, y, cell - 1.5, 22, str(token - OFFSET), kind, size=9.5)
        note = "B follows A" if each.row.is_next else "B comes from another place"
        drawing.text(x + LAYOUT.row_tokens * cell, y + 34, note, kind="muted", size=10.5, anchor="end")
        y += 44
    entries = (
        ("held", "memory", 92),
        ("read", "reused: the next row continues after it", 258),
        ("token", "A", 50),
        ("share", "B", 0),
    )
    _legend(drawing, left, y + 14, entries)
    return drawing


# --- distances ------------------------------------------------------------------------------------------------------------

QUERIES, BEFORE = 4, 2


@cache
def distances(direction: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The distances of a row's codes, the columns of these codes that each query reads, and the distances it reads.

    The model's smallest frequency gives each code's distance back.
    """
    model = XLNetConfig(vocab_size=8, dim=4, num_layers=1, num_heads=1, ffn_dim=4).build().eval()
    batch = replace(plain_rows(np.zeros((1, QUERIES), dtype=np.int64)), direction=np.array([direction]))
    memory = Memory(torch.zeros(1, 1, BEFORE, 4), torch.tensor([BEFORE]))
    codes, _ = model._codes(batch, memory, torch.zeros(1, dtype=torch.float64))
    along = (codes[0, :, 1].asin() * 100).round().long()
    columns = torch.arange(len(along)).expand(1, 1, QUERIES, -1)
    read = shifted(columns, BEFORE + QUERIES)[0, 0]
    return along.numpy(), read.numpy(), along[read].numpy()


def distance_table() -> Drawing:
    side, keys = 25.5, BEFORE + QUERIES
    drawing = Drawing(PAGE, 70 + QUERIES * side + 24, "The distances of queries and keys, forwards and backwards")
    along, read, _ = distances(1)
    x, y = 42.0, 66.0
    drawing.text(x + len(along) * side / 2, 16, "the shift", kind="head", size=13)
    drawing.text(x + len(along) * side / 2, 36, "scores of a query with all codes", kind="muted", size=11)
    for column, distance in enumerate(along.tolist()):
        drawing.text(x + (column + 0.5) * side, y - 8, signed(distance), size=11)
    for row in range(QUERIES):
        drawing.text(x - 8, y + (row + 0.5) * side + 4, str(BEFORE + row + 1), size=11.5, anchor="end")
        for column in range(len(along)):
            kind = "cell-read" if column in read[row] else "cell"
            drawing.box(x + column * side + 1, y + row * side + 1, side - 2, side - 2, kind=kind)
    for x, direction, title in ((324.0, 1, "forward row"), (544.0, -1, "backward row")):
        found = distances(direction)[2]
        numbers = range(1, keys + 1) if direction > 0 else range(QUERIES + 2 * BEFORE, BEFORE, -1)
        labels = [*numbers]
        drawing.text(x + keys * side / 2, 16, title, kind="head", size=13)
        drawing.text(x + BEFORE * side / 2, 36, "memory", kind="muted", size=11)
        drawing.text(x + (BEFORE + QUERIES / 2) * side, 36, "its tokens", kind="muted", size=11)
        for column, label in enumerate(labels):
            drawing.text(x + (column + 0.5) * side, y - 8, str(label), size=11)
        for row in range(QUERIES):
            drawing.text(x - 8, y + (row + 0.5) * side + 4, str(labels[BEFORE + row]), size=11.5, anchor="end")
            for column in range(keys):
                kind = "held" if column < BEFORE else "row"
                number = signed(int(found[row, column]))
                drawing.box(x + column * side + 1, y + row * side + 1, side - 2, side - 2, number, kind, size=11)
    return drawing


def signed(number: int) -> str:
    return str(number).replace("-", "−")


# --- spans ----------------------------------------------------------------------------------------------------------------

SENTENCE = (
    "before the storm broke the harbourmaster counted forty fishing boats beyond the breakwater and lit every lantern he could "
    "find because the lighthouse had been dark since yesterday"
)
SPLIT = "harbour ##master count ##ed fish ##ing break ##water lant ##ern light ##house yester ##day"


@cache
def sentence() -> tuple[list[str], Matrix]:
    """The pieces of a sentence, and whether each begins a word."""
    parts = SPLIT.split()
    heads = [part for part in parts if not part.startswith("##")]
    whole = [word for word in SENTENCE.split() if not any(word.startswith(head) for head in heads)]
    tokenizer = _word_pieces([*dict.fromkeys([*parts, *whole])])
    ids = tokenizer.encode(SENTENCE)
    return [tokenizer.pieces[each] for each in ids], tokenizer.word_starts[ids]


def drawn_spans(unit: SpanUnit, seed: int = 5) -> list[int]:
    """The targets of the sentence: one in six, as in the paper."""
    pieces, starts = sentence()
    count = round(len(pieces) / 6)
    random = np.random.Generator(np.random.Philox(key=seed))
    return SpanChoice(unit, 5, 6.0).draw(starts, np.ones(len(pieces), dtype=bool), count, random).tolist()


def spans() -> Drawing:
    pieces, _ = sentence()
    lines: list[list[tuple[float, float, int]]] = [[]]
    x = 0.0
    for number, piece in enumerate(pieces):
        width = 6.3 * len(piece.removeprefix("##")) + 9
        gap = 1 if piece.startswith("##") else 5
        if x + gap + width > PAGE - 66:
            lines.append([])
            x = 0.0
        lines[-1].append((x + gap, width, number))
        x += gap + width
    units: tuple[SpanUnit, ...] = ("word", "piece", "token")
    block = 28 * len(lines) + 16
    drawing = Drawing(PAGE, len(units) * block, "Targets of a sentence: whole words, pieces, and single tokens")
    for place, unit in enumerate(units):
        top = place * block + 2
        targets = drawn_spans(unit)
        drawing.text(54, top + 15.5, unit, kind="head", anchor="end")
        for number, line in enumerate(lines):
            for x, width, index in line:
                kind = "target" if index in targets else "token"
                drawing.box(62 + x, top + number * 28, width, 22, pieces[index].removeprefix("##"), kind, size=11)
    return drawing


@dataclass(frozen=True)
class DrawnSpans:
    """Counts of all rows of a text."""

    rows: int
    spans: int
    cut: int
    """Spans with fewer units than were drawn, or whose end lies inside a word."""
    targets: int
    single: int
    """Targets that complete a quota, outside of spans."""


@cache
def sample_text() -> tuple[RunningText, Tokenizer]:
    """The sample discussions, in the pieces of the shipped checkpoint."""
    tokenizer = Tokenizer.load(CHECKPOINT)
    trees = [Tree.from_json(line) for line in DISCUSSIONS.read_text("utf-8").splitlines()]
    return RunningText.open(Store.from_trees(trees), tokenizer, "all"), tokenizer


def count_spans(unit: SpanUnit, tokens: int) -> DrawnSpans:
    """Count the spans of all rows of the sample, one draw for each half."""
    text, tokenizer = sample_text()
    layout = StreamInput(row_tokens=tokens, reused_tokens=tokens // 2)
    view = Streams(text, tokenizer, layout, StreamConfig(streams=2), seed=0)
    choice = SpanChoice(unit, 5, 6.0)
    spans = cut = targets = single = 0
    for number in range(len(view)):
        row = view.example(number)
        batch = collate_streams([row], layout)
        parts = halves(batch)
        for half, ((start, stop), count) in enumerate(zip(parts, quotas(batch, parts, 1 / choice.spacing), strict=True)):
            # Spans of a backward row follow the text, too.
            starts, allowed = (each[start:stop][:: row.direction] for each in (tokenizer.word_starts[row.ids], ~row.functional))
            chosen = np.zeros(stop - start, dtype=bool)
            choice._draw_spans(starts, allowed, count, _random(number, half), chosen)
            borders = np.flatnonzero(np.diff(np.pad(chosen.astype(np.int8), 1)))
            for (begin, end), drawn in zip(borders.reshape(-1, 2), _drawn_lengths(count, _random(number, half)), strict=False):
                units = int(starts[begin:end].sum()) if unit == "word" else end - begin
                inside = end < len(starts) and allowed[end] and not starts[end]
                cut += int(units < drawn or inside)
            spans += len(borders) // 2
            targets += count
            single += count - int(chosen.sum())
    return DrawnSpans(len(view), spans, cut, targets, single)


def _random(row: int, half: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=2 * row + half))


def _drawn_lengths(count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """The numbers of units that `SpanChoice` draws first."""
    probabilities = 1 / np.arange(1, 6)
    return 1 + random.choice(5, size=count, p=probabilities / probabilities.sum())


def drawn_spans_table() -> str:
    lines = []
    for tokens in (128, 512):
        for unit in ("word", "piece"):
            found = count_spans(unit, tokens)
            shares = (found.cut / found.spans, found.single / found.targets)
            lines.append((tokens, f"`{unit}`", f"{found.spans / found.rows:.1f}", *(f"{share:.1%}" for share in shares)))
    return table(("tokens of a row", "`task.span_unit`", "spans of a row", "cut", "targets drawn singly"), lines)


# --- counts -----------------------------------------------------------------------------------------------------------------

ROWS_COUNTED = 16


@dataclass(frozen=True)
class Row:
    """The sizes of a row and its model."""

    tokens: int
    memory: int
    dim: int
    layers: int
    k: float = 6.0

    @property
    def reused(self) -> int:
        return self.tokens // 2

    @property
    def targets(self) -> tuple[int, ...]:
        ids = np.zeros((1, self.tokens), dtype=np.int64)
        batch = plain_rows(ids, reused=self.reused)
        return quotas(batch, halves(batch), 1 / self.k)


COUNTED = {
    "`--size small`": Row(SIZES["small"].row_tokens, SIZES["small"].memory, SIZES["small"].dim, SIZES["small"].layers),
    "`--size base`": Row(SIZES["base"].row_tokens, SIZES["base"].memory, SIZES["base"].dim, SIZES["base"].layers),
    "XLNet-Base": Row(SIZES["paper"].row_tokens, SIZES["paper"].memory, SIZES["paper"].dim, SIZES["paper"].layers),
}
HEAD_SIZE = 64


def published(row: Row) -> tuple[int, int]:
    """Multiply-adds in attention and in linear maps for one row, by the formulas of the published implementations.

    The queries of targets are scattered to the row's positions, both streams compare all positions with all keys, codes are
    projected for each row, and every layer computes both streams.
    """
    tokens, targets, keys, dim = row.tokens, sum(row.targets), row.memory + row.tokens, row.dim
    stream = 2 * tokens * keys * dim + tokens * (keys + tokens) * dim + 2 * tokens * dim + 2 * tokens * keys * dim // HEAD_SIZE
    attention = 2 * stream + 2 * targets * tokens * dim
    maps = (10 * (tokens + targets) + 2 * keys + keys + tokens) * dim**2
    return row.layers * attention, row.layers * maps


def counted(row: Row, *, in_parts: bool = True, targets_only: bool = True) -> tuple[int, int]:
    """Multiply-adds in attention and in linear maps for one row, counted by torch while the model runs without data."""
    config = XLNetConfig(
        vocab_size=8, dim=row.dim, num_layers=row.layers, num_heads=row.dim // HEAD_SIZE, ffn_dim=4 * row.dim, memory=row.memory
    )
    with torch.device("meta"):
        model = config.build().eval()
        memory = torch.zeros(row.layers, ROWS_COUNTED, row.memory, row.dim)
        state = {"memory": memory, "valid": torch.full((ROWS_COUNTED,), row.memory)}
    ids = np.zeros((ROWS_COUNTED, row.tokens), dtype=np.int64)
    batch = plain_rows(ids, ids, reused=row.reused)
    parts = halves(batch) if in_parts else ()
    counts = row.targets if in_parts else (sum(row.targets),)
    targets = StreamTargets.at(np.zeros((ROWS_COUNTED, sum(row.targets)), dtype=np.int64), batch.input_ids, counts)
    direction = np.repeat([1, -1], ROWS_COUNTED // 2)
    batch = replace(batch, parts=parts, targets=targets, segments=batch.input_ids, direction=direction).to("meta")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(batch, state, targets_only=targets_only)
    found = {str(name): number // 2 // ROWS_COUNTED for name, number in counter.get_flop_counts()["Global"].items()}
    attention = sum(number for name, number in found.items() if "bmm" in name or "attention" in name)
    return attention, sum(found.values()) - attention


@cache
def savings() -> dict[str, list[tuple[str, int, int]]]:
    """(variant, multiply-adds in attention, in linear maps) of every size."""
    return {
        name: [
            ("published", *published(row)),
            ("queries of targets alone", *counted(row, in_parts=False, targets_only=False)),
            ("… without later keys for the first half", *counted(row, targets_only=False)),
            ("… without the last content layer", *counted(row)),
        ]
        for name, row in COUNTED.items()
    }


def savings_table() -> str:
    lines = []
    for name, variants in savings().items():
        first = sum(variants[0][1:])
        for variant, attention, maps in variants:
            total = attention + maps
            shown = (f"{each / 1e6:,.1f}" for each in (attention, maps, total))
            lines.append((name if variant == "published" else "", variant, *shown, f"{total / first:.0%}"))
    return table(("size", "computed", "attention", "linear maps", "together", "share"), lines)


PUBLISHED_SIZES = {
    "XLNet-Base": XLNetConfig(vocab_size=32_000, dim=768, num_layers=12, num_heads=12, ffn_dim=3072),
    "XLNet-Large": XLNetConfig(vocab_size=32_000, dim=1024, num_layers=24, num_heads=16, ffn_dim=4096),
}


def parameters(config: XLNetConfig) -> tuple[int, int]:
    """Number of parameters of the embedding, and of the rest of the model. The output map adds a bias per piece."""
    with torch.device("meta"):
        model = config.build()
    embedding = model.embedding.weight.numel()
    return embedding, sum(each.numel() for each in model.parameters()) - embedding


def sizes_table() -> str:
    configs = {
        f"`--size {name}`": XLNetConfig(
            vocab_size=size.vocab_size,
            dim=size.dim,
            num_layers=size.layers,
            num_heads=size.dim // HEAD_SIZE,
            ffn_dim=4 * size.dim,
        )
        for name, size in SIZES.items()
        if name != "paper"
    }
    lines = []
    for name, config in {**configs, **PUBLISHED_SIZES}.items():
        embedding, rest = parameters(config)
        sizes = (config.num_layers, config.dim, config.num_heads, config.ffn_dim, f"{config.vocab_size:,}")
        lines.append((name, *sizes, f"{embedding:,}", f"{rest:,}", f"{embedding + rest:,}"))
    head = ("size", "layers", "dim", "heads", "feed-forward", "pieces", "embedding", "rest", "parameters")
    return table(head, lines)


def schedules_table() -> str:
    lines = [
        (
            f"`--size {name}`",
            f"{size.row_tokens} / {size.row_tokens // 2} / {size.memory}",
            f"{2 * size.streams:,}",
            f"{size.steps:,}",
            f"{size.lr:g}",
            f"{size.warmup:.0%}",
            f"{size.attention_dropout:g}",
        )
        for name, size in SIZES.items()
    ]
    head = ("size", "row / reused / memory", "rows of a step", "steps", "learning rate", "warm-up", "attention dropout")
    return table(head, lines)


def quotas_table() -> str:
    lines = []
    for tokens, reused, k in ((512, 256, 6), (512, 256, 7), (128, 64, 6), (129, 50, 6), (127, 64, 6)):
        batch = plain_rows(np.zeros((1, tokens), dtype=np.int64), reused=reused)
        first, second = quotas(batch, halves(batch), 1 / k)
        lines.append((tokens, reused, k, first, second, first + second))
    return table(("tokens of a row", "reused", "K", "targets of the reused part", "of the rest", "together"), lines)


DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "two-streams": two_streams,
    "one-target": one_target,
    "two-halves": two_halves,
    "stream-rows": rows,
    "distances": distance_table,
    "spans": spans,
}
TABLES: dict[str, Callable[[], str]] = {
    "stream-savings": savings_table,
    "xlnet-sizes": sizes_table,
    "xlnet-schedules": schedules_table,
    "quotas": quotas_table,
    "drawn-spans": drawn_spans_table,
}


def write(folder: Path = GENERATED) -> None:
    """Write all drawings and tables."""
    write_files(folder, DRAWINGS, TABLES)


if __name__ == "__main__":
    write()
