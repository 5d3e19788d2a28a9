"""Pictures and computed tables of the page on nested documents, written to `_generated/` as by `figures.py`.

Rows, marks, sizes, parameters and operations are read off the package's own code. `document_shapes.json` holds the numbers of
children of real novels.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from document_shapes import FILE
from figures import GENERATED, PAGE, Drawing, table, write_files
from numpy.typing import NDArray
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ramify.batching.document_batch import CONT, EOS, JOIN, NUM_MARKS, DocumentCollator, Role
from ramify.batching.levels import Divisions, DocumentRows, Levels, Overflow, level_names
from ramify.batching.views.documents import LevelInput
from ramify.dataset import Store
from ramify.errors import counted
from ramify.models.agent import AgentConfig, AgentDecoder, LevelDecoder, LevelEncoder
from ramify.nn.blocks import TransformerEncoder
from ramify.nn.evolved import DecoderCell, EncoderCell, first_heads
from ramify.nn.ragged import Rows
from ramify.recipes.nested import agent
from ramify.runs.nested_documents import stages
from ramify.tasks.nested.config import NestedAutoencoderConfig
from ramify.tasks.nested.corruption import RowChildren, mask_children
from ramify.tasks.nested.task import NestedAutoencoder
from ramify.tokenizer import SPECIAL, Tokenizer
from ramify.tree import DOCUMENT, Node, Tree

# --- the worked example -------------------------------------------------------------------------------------------------

LETTER = (
    ("The lamp went out .", "Ann called .", "Nobody came .", "It rained ."),
    ("She took the old key from the shelf and opened the door .", "Rain ."),
    ("Where was it ?", "Gone ."),
)
"""Three paragraphs of sentences, whose tokens are words."""
NAMES = ("sentence", "paragraph", DOCUMENT)
PLACES = (8, 4, 5)
"""The places of a row of each level in the worked example."""
OVERFLOWS: tuple[Overflow, ...] = ("cut", "pack", "truncate")
MARKS = {EOS: "EoS", CONT: "CONT", JOIN: "JOIN"}


def letter() -> Tree:
    nodes = [Node(kind=DOCUMENT)]
    for paragraph in LETTER:
        above = len(nodes)
        nodes.append(Node(kind="paragraph", parents=(0,)))
        nodes += [Node(text, parents=(above,), kind="sentence") for text in paragraph]
    return Tree(tuple(nodes), id="letter")


@cache
def words() -> Tokenizer:
    """A tokenizer with a piece for each word of the worked example."""
    found = dict.fromkeys(word for paragraph in LETTER for sentence in paragraph for word in sentence.split())
    engine = Engine(models.WordPiece({name: number for number, name in enumerate((*SPECIAL, *found))}, unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.Whitespace()
    engine.add_special_tokens(list(SPECIAL))
    return Tokenizer(engine)


@dataclass(frozen=True)
class Shown:
    """A row of a level: the words or row numbers, and marks, at its places."""

    slots: tuple[str, ...]
    is_mark: tuple[bool, ...]


@cache
def example_rows(overflow: Overflow) -> tuple[DocumentRows, tuple[tuple[Shown, ...], ...]]:
    """The rows of each level of the worked example in reading order, as a batch lays them out."""
    levels = Levels.open(Store.from_trees([letter()]), words(), NAMES, np.array([0]))
    rows = DocumentRows.of(levels, PLACES, overflow)
    unit = len(NAMES) - 2
    batch = DocumentCollator(rows, unit, budget=1000).batch(np.arange(len(rows.levels[unit])), np.arange(len(rows.levels[-1])))
    found: list[tuple[Shown, ...]] = []
    below = None
    for level in batch.levels:
        own = np.split(level.slots.numpy(), np.cumsum(level.lengths)[:-1])
        shown: list[Shown] = []
        for row in np.argsort(level.source).tolist():
            names = []
            for slot in own[row].tolist():
                if slot < NUM_MARKS:
                    names.append(MARKS[slot])
                else:
                    child = slot - NUM_MARKS
                    names.append(words().token(child) if below is None else str(int(below[child]) + 1))
            shown.append(Shown(tuple(names), tuple((own[row] < NUM_MARKS).tolist())))
        # Rows of a batch are sorted by length; the picture numbers them in reading order.
        below = level.source
        found.append(tuple(shown))
    return rows, tuple(found)


SLOT = 22


def _width(name: str, size: float = 11) -> float:
    return max(20.0, (8.4 if name.isupper() else 6.3) * len(name) * size / 11 + 9)


def _row(drawing: Drawing, x: float, y: float, number: int, row: Shown, level: int) -> float:
    """Draw a row with its number, and return the x after it."""
    drawing.text(x + 14, y + 15, str(number), kind="muted", size=11, anchor="end")
    x += 19
    for name, is_mark in zip(row.slots, row.is_mark, strict=True):
        kind = ("held" if name == "JOIN" else "share") if is_mark else ("token" if level == 0 else "cross")
        drawing.box(x, y, _width(name), SLOT, name, kind, size=11)
        x += _width(name) + 2
    return x


def _row_width(row: Shown) -> float:
    return 19 + sum(_width(name) + 2 for name in row.slots)


def _lines(rows: Sequence[Shown], room: float) -> list[list[int]]:
    """The numbers of the rows on each line of a picture."""
    lines: list[list[int]] = [[]]
    x = 0.0
    for number, row in enumerate(rows):
        width = _row_width(row) + 14
        if lines[-1] and x + width - 14 > room:
            lines.append([])
            x = 0.0
        lines[-1].append(number)
        x += width
    return lines


def _levels(title: str, overflows: Sequence[Overflow], chosen: Sequence[int]) -> Drawing:
    left = 92 if len(overflows) == 1 else 142
    blocks = [
        (f"{overflow}: {NAMES[level]}s" if len(overflows) > 1 else f"{NAMES[level]}s", level, example_rows(overflow)[1][level])
        for overflow in overflows
        for level in reversed(chosen)
    ]
    laid = [(name, level, rows, _lines(rows, PAGE - left)) for name, level, rows in blocks]
    drawing = Drawing(PAGE, sum(len(lines) * 30 + 12 for *_, lines in laid), title)
    y = 2.0
    for name, level, rows, lines in laid:
        drawing.text(left - 8, y + 15.5, name, kind="head", anchor="end")
        for line in lines:
            x: float = left
            for number in line:
                x = _row(drawing, x, y, number + 1, rows[number], level) + 14
            y += 30
        y += 12
    return drawing


def letter_rows() -> Drawing:
    return _levels("The rows of every level of the worked example, with the option cut", ("cut",), (0, 1, 2))


def overflow_rows() -> Drawing:
    return _levels("Sentences and paragraphs of the worked example with the options pack and truncate", OVERFLOWS[1:], (0, 1))


def overflow_table() -> str:
    lines = []
    for overflow in OVERFLOWS:
        rows, _ = example_rows(overflow)
        for each in rows.levels:
            counts = (len(each.level.node), len(each), each.num_cut, each.num_packed, each.left_out)
            lines.append((f"`{overflow}`" if each is rows.levels[0] else "", each.level.name, *counts))
    return table(("`input.overflow`", "level", "nodes", "rows", "nodes cut", "nodes packed", "children left out"), lines)


# --- missing levels, divisions ------------------------------------------------------------------------------------------

Outline = tuple[str, "str | tuple[Outline, ...]"]

NOVEL: Outline = (
    DOCUMENT,
    (
        ("paragraph", (("sentence", "The lamp went out ."),)),
        (
            "part",
            (
                ("chapter", (("paragraph", (("sentence", "Ann called ."), ("sentence", "Nobody came ."))),)),
                ("chapter", (("paragraph", (("sentence", "It rained ."),)),)),
            ),
        ),
    ),
)
"""A preface outside of all chapters, and a part of two chapters."""


def _tree(outline: Outline) -> Tree:
    nodes: list[Node] = []
    stack: list[tuple[Outline, int | None]] = [(outline, None)]
    while stack:
        (kind, inside), parent = stack.pop()
        number = len(nodes)
        text = inside if isinstance(inside, str) else ""
        nodes.append(Node(text, () if parent is None else (parent,), kind=kind))
        if not isinstance(inside, str):
            stack += [(each, number) for each in reversed(inside)]
    return Tree(tuple(nodes), id="novel")


def division_levels(divisions: Divisions) -> Levels:
    store = Store.from_trees([_tree(NOVEL)])
    return Levels.open(store, words(), level_names(store, divisions), np.array([0]))


def divisions_table() -> str:
    lines = []
    for divisions in ("flatten", "level"):
        found = division_levels(divisions)
        for level in reversed(found.levels):
            counts = (len(level.node), int((~level.stored).sum()), ", ".join(map(str, level.counts.tolist())))
            lines.append((f"`{divisions}`" if level is found.levels[-1] else "", level.name, *counts))
    return table(("`view.divisions`", "level", "nodes", "that fill a missing level", "children of each node"), lines)


# --- the architecture ---------------------------------------------------------------------------------------------------

DEFAULT = replace(AgentConfig(), vocab_size=8192)


@dataclass(frozen=True)
class Built:
    """The default model and its objective, without data."""

    task: NestedAutoencoder

    def parts(self, level: int) -> dict[str, nn.Module]:
        """The modules of a level."""
        encoder, decoder = self.task.backbone.encoder(level), self.task.decoder.level(level)
        return {
            "encoder": encoder.states.encoder,
            "compressor": encoder.compressor,
            "decompressor": nn.ModuleList([each for each in (decoder.decompressor, decoder.out) if each is not None]),
            "decoder": decoder.decoder,
            "mlm": self.task.mlm_heads[level],
            "checker": self.task.checkers[level],
        }


@cache
def built(**changes: Any) -> Built:
    with torch.device("meta"):
        backbone = replace(DEFAULT, **changes).build()
        task = NestedAutoencoder(backbone, words(), LevelInput(), NestedAutoencoderConfig())
    return Built(task)


def count(module: nn.Module) -> int:
    return sum(each.numel() for each in module.parameters())


@cache
def level_texts(level: int) -> dict[str, str]:
    """The text of each box of a level, from the modules themselves."""
    parts: dict[str, Any] = {**built().parts(level)}
    config, checker = DEFAULT, parts["checker"]
    dim, out = config.dims[level : level + 2]
    widths = [checker.layers[0].in_features, *(each.out_features for each in checker.layers), checker.out.out_features]
    lstm, back = parts["compressor"].lstm, built().task.decoder.level(level).decompressor.lstm
    assert lstm.input_size == dim
    assert 2 * lstm.hidden_size == out == back.input_size
    encoder_cells, decoder_cells = (len(parts[name].cells) for name in ("encoder", "decoder"))
    return {
        "compressor": f"Compressor: BiLSTM, 2 × {lstm.hidden_size}",
        "encoder": f"Encoder: {counted(encoder_cells, 'cell')}, {dim} wide",
        "children": f"up to {config.max_children[level]} places: {built().task.names[level]}s, marks",
        "checker": f"Checker: {' → '.join(map(str, widths))}",
        "mlm": f"MLM head: {dim} → {dim}",
        "decompressor": f"Decompressor: BiLSTM, 2 × {back.hidden_size} → {dim}",
        "decoder": f"Decoder: {counted(decoder_cells, 'cell')}, {dim} wide",
        "scores": f"{config.max_children[level]} places: scores of {built().task.names[level]}s",
        "vector": f"{built().task.names[level + 1]}: vector of {out}",
    }


def architecture() -> Drawing:
    depth, height, top = len(DEFAULT.levels), 182, 14
    columns = {"up": (1, 226), "side": (252, 216), "down": (492, 246)}
    drawing = Drawing(
        PAGE, depth * height + top + 62, "AGENT as built: each level's Encoder, Compressor, Decompressor, Decoder and heads"
    )

    def box(column: str, y: float, text: str, kind: str = "block", high: float = 28) -> None:
        x, width = columns[column]
        drawing.box(x, y, width, high, text, kind, size=11.5)

    up, side, down = (x + width / 2 for x, width in columns.values())
    edge = sum(columns["up"])
    for level in reversed(range(depth)):
        y = top + (depth - 1 - level) * height
        texts = level_texts(level)
        # The vector, and the modules below it.
        box("up", y, texts["vector"], "cross")
        box("up", y + 46, texts["compressor"])
        box("up", y + 92, texts["encoder"])
        box("side", y + 23, texts["checker"], "plain")
        box("side", y + 92, texts["mlm"], "plain")
        box("down", y + 46, texts["decompressor"])
        box("down", y + 92, texts["decoder"])
        box("down", y + 138, texts["scores"], "share")
        drawing.arrow((up, y + 46), (up, y + 28))
        drawing.arrow((up, y + 92), (up, y + 74))
        drawing.arrow((edge, y + 14), (down, y + 14), (down, y + 46))
        drawing.arrow((edge, y + 60), (side, y + 60), (side, y + 51), kind="thin")
        drawing.text(side + 6, y + 70, "replaced children", kind="muted", size=10.5, anchor="start")
        drawing.arrow((edge, y + 106), (columns["side"][0], y + 106), kind="thin")
        drawing.text(side, y + 134, "masked children", kind="muted", size=10.5)
        drawing.arrow((down, y + 74), (down, y + 92))
        drawing.arrow((down, y + 120), (down, y + 138))
        box("up", y + 138, texts["children"], "row" if level else "token")
        drawing.arrow((up, y + 138), (up, y + 120))
        if level:
            drawing.arrow((up, y + height), (up, y + 166))
            # In use, the decoder's vectors are the vectors of the level below.
            drawing.line((PAGE - 30, y + 166), (PAGE - 30, y + height + 40), kind="padding")
            drawing.arrow((PAGE - 30, y + height + 38), (PAGE - 30, y + height + 46), kind="thin")
    y = top + depth * height
    drawing.text(0, y + 14, "up: Hierarchical Encoder", kind="head", size=12, anchor="start")
    drawing.text(side, y + 14, "heads of each level", kind="head", size=12)
    drawing.text(PAGE, y + 14, "down: Hierarchical Decoder", kind="head", size=12, anchor="end")
    note = f"On all levels: {DEFAULT.num_heads} heads. Scores are dot products with the level's items."
    drawing.text(0, y + 36, note, kind="muted", size=11.5, anchor="start")
    return drawing


Block = tuple[tuple[str, ...], float, float, str]
"""The modules of a block, the factors of d² and d in its number of parameters, and its layers in words."""

ENCODER_BLOCKS: dict[str, Block] = {
    "gated linear unit": (("gate_norm", "gate"), 2, 4, "LayerNorm, 2d, sigmoid gate"),
    "branched convolutions": (
        ("branch_norm", "left", "right", "joined_norm", "joined"),
        7.5,
        51,
        "LayerNorm; left: 4d, ReLU; right: convolution 3 → d/2, ReLU; sum, LayerNorm, separable convolution 9 → d/2",
    ),
    "self-attention": (("attention_norm", "attention"), 4, 2, "LayerNorm, H heads, no bias"),
    "feed-forward": (("ffn_norm", "ffn_in", "ffn_out"), 8, 7, "LayerNorm, 4d, ReLU, d"),
}
DECODER_BLOCKS: dict[str, Block] = {
    "self-attention beside attention to the Decompressor": (
        ("first_norm", "first_attention", "first_cross"),
        8,
        2,
        "LayerNorm; min(2H, 16) heads, at least H, and H heads; both added",
    ),
    "branched convolutions": (
        ("branch_norm", "left", "right", "joined_norm", "joined"),
        4.5,
        41.5,
        "LayerNorm; left: separable convolution 11 → 2d, ReLU; right: separable convolution 7 → d/2; sum, LayerNorm, "
        "separable convolution 7 → d",
    ),
    "self-attention": (("attention_norm", "attention"), 4, 2, "LayerNorm, H heads"),
    "attention to the Decompressor": (("cross_norm", "cross"), 4, 2, "LayerNorm, H heads"),
    "feed-forward": (("ffn_norm", "ffn_in", "hidden_norm", "ffn_out"), 8, 15, "LayerNorm, 4d, swish, LayerNorm, d"),
}
CELL_DIM = 512


def cells(dim: int = CELL_DIM) -> dict[str, nn.Module]:
    with torch.device("meta"):
        return {
            "encoder": EncoderCell(dim, 8, 0.1, 0.1),
            "decoder": DecoderCell(dim, 8, 0.1, 0.1, causal=False),
        }


def blocks_table() -> str:
    lines = []
    made = cells()
    for kind, blocks in (("encoder", ENCODER_BLOCKS), ("decoder", DECODER_BLOCKS)):
        first = True
        for name, (modules, square, linear, layers) in blocks.items():
            number = sum(count(getattr(made[kind], each)) for each in modules)
            lines.append(
                (kind if first else "", name, layers, f"{square:g}\u00a0d²\u00a0+\u00a0{linear:g}\u00a0d", f"{number:,}")
            )
            first = False
        square, linear = sum(each[1] for each in blocks.values()), sum(each[2] for each in blocks.values())
        lines.append(
            ("", "**whole cell**", "", f"**{square:g}\u00a0d²\u00a0+\u00a0{linear:g}\u00a0d**", f"**{count(made[kind]):,}**")
        )
    head = ("cell", "block", "layers", "parameters", f"counted for d = {CELL_DIM}")
    return table(head, lines).replace(":-:", "---", 2)


def evolved_cells() -> Drawing:
    """Both cells, from the bottom to the top, as in the paper's figure."""
    drawing = Drawing(PAGE, 332, "The Evolved Transformer's encoder cell and decoder cell")

    def stack(x: float, title: str, blocks: Sequence[tuple[str, ...]]) -> None:
        drawing.text(x + 170, 14, title, kind="head", size=13)
        y = 320.0
        for block in blocks:
            high = 54 if len(block) == 4 else 30
            top = y - high - 10
            drawing.box(x + 24, top, 316, high, kind="frame")
            branches = block[1:]
            width = (316 - 8 * (len(branches[:2]) + 1)) / len(branches[:2])
            for place, text in enumerate(branches[:2]):
                left = x + 32 + place * (width + 8)
                drawing.box(
                    left,
                    top + (30 if len(branches) == 3 else 4),
                    width,
                    20 if len(branches) == 3 else high - 8,
                    text,
                    "block",
                    size=10.5,
                )
            if len(branches) == 3:
                drawing.box(x + 32, top + 5, 300, 20, branches[2], "block", size=10.5)
            # Each block has a residual connection around it.
            drawing.arrow((x + 6, y - 2), (x + 6, top - 5), (x + 182, top - 5), kind="thin")
            drawing.line((x + 182, y - 2), (x + 6, y - 2), kind="thin")
            drawing.arrow((x + 182, y), (x + 182, y - 10), kind="thin")
            drawing.text(x + 192, top - 1.5, "+", kind="muted", size=12, anchor="start")
            y = top - 10
        drawing.arrow((x + 182, y + 8), (x + 182, 22), kind="thin")

    heads = first_heads(DEFAULT.num_heads)
    stack(
        0,
        "encoder cell",
        (
            ("glu", "gated linear unit: 2d, sigmoid gate"),
            ("branches", "4d, ReLU", "convolution 3 → d/2, ReLU", "separable convolution 9 → d/2"),
            ("attention", f"self-attention, {DEFAULT.num_heads} heads"),
            ("ffn", "feed-forward: 4d, ReLU"),
        ),
    )
    stack(
        392,
        "decoder cell",
        (
            ("first", f"self-attention, {heads} heads", f"to the Decompressor, {DEFAULT.num_heads}"),
            ("branches", "separable 11 → 2d, ReLU", "separable 7 → d/2", "separable convolution 7 → d"),
            ("attention", f"self-attention, {DEFAULT.num_heads} heads"),
            ("cross", f"attention to the Decompressor, {DEFAULT.num_heads} heads"),
            ("ffn", "feed-forward: 4d, swish"),
        ),
    )
    return drawing


# --- sizes --------------------------------------------------------------------------------------------------------------


@cache
def level_sizes() -> list[dict[str, int]]:
    """The number of parameters of each part of each level."""
    task = built().task
    found = []
    for level in range(task.backbone.depth):
        states = task.backbone.encoder(level).states
        inputs = count(states) - count(states.encoder)
        found.append({"inputs": inputs, **{name: count(module) for name, module in built().parts(level).items()}})
    # The softmax over the vocabulary shares the embedding's weights and adds a bias, in two heads.
    found[0]["inputs"] += task.reconstruction_head.bias.numel() + task.mlm_head.bias.numel()
    return found


PARTS = {
    "inputs": "inputs",
    "encoder": "Encoder",
    "compressor": "Compressor",
    "decompressor": "Decompressor",
    "decoder": "Decoder",
    "mlm": "head of masked children",
    "checker": "checker",
}


def sizes_table() -> str:
    sizes, config = level_sizes(), DEFAULT
    levels = range(len(sizes))
    lines: list[tuple[Any, ...]] = [
        ("widths", *(f"{config.dims[level]} → {config.dims[level + 1]}" for level in levels), ""),
        ("places of a row", *config.max_children, ""),
        ("cells up / down", *(f"{config.encoder_cells[level]} / {config.decoder_cells[level]}" for level in levels), ""),
    ]
    for key, name in PARTS.items():
        own = [each[key] for each in sizes]
        lines.append((name, *(f"{number:,}" for number in (*own, sum(own)))))
    totals = [sum(each.values()) for each in sizes]
    lines.append(("**together**", *(f"**{number:,}**" for number in (*totals, sum(totals)))))
    names = built().task.names
    return table(("", *(f"{names[level]} → {names[level + 1]}" for level in levels), "all levels"), lines)


def schedule_table() -> str:
    run, levels = agent("data"), DEFAULT.levels
    frozen = stages.frozen_levels(run.task.frozen, levels, None)
    roles = stages.roles(run.task.frozen, run.init, len(run.stages))
    scopes = [
        (stage, scope)
        for stage, role in zip(run.stages, roles, strict=True)
        for scope in stages.scopes(role, frozen, levels, in_turn=run.task.above == "in_turn")
    ]
    columns = [
        (
            f"{stage.target_tokens:,}",
            f"{stage.budget:,} tokens"
            if scope.role in stages.ON_LOWEST
            else f"{stage.units * run.view.units_factor ** scope.later(frozen)} chapters",
            f"{stage.optimizer}, β {stage.betas[0]:g} and {stage.betas[1]:g}, weight decay {stage.weight_decay:g}",
            f"{stage.lr:g}, {stage.warmup:.0%} warm-up, then {stage.schedule}",
            ", ".join(f"× {factor:g}" for _, factor in stage.lr_scale) or "–",
            f"norm {stage.clip:g}",
        )
        for stage, scope in scopes
    ]
    names = ("tokens", "batch", "optimizer", "learning rate", "the same, for the tokens' table", "gradient clip")
    lines = list(zip(names, *columns, strict=True))
    heads = [f"`{scope.role.name}`" + (f": {levels[scope.first]}s" if scope.role is Role.ABOVE else "") for _, scope in scopes]
    return table(("stage", *heads), lines).replace(":-:", "---")


def recipe_settings() -> dict[str, tuple[Any, Any]]:
    """The settings of the recipe's model, task, view and tokenizer that differ from the default of their part, and this."""
    run = agent("data")
    changed = {}
    for part, config in (("model", run.model), ("task", run.task), ("view", run.view), ("tokenizer", run.tokenizer)):
        default = type(config)()
        for field in fields(config):
            values = getattr(config, field.name), getattr(default, field.name)
            if values[0] != values[1]:
                changed[f"{part}.{field.name}"] = values
    return changed


def recipe_table() -> str:
    def shown(value: Any) -> str:
        return f"`{json.dumps(value)}`".replace('"', "")

    lines = [(f"`{name}`", shown(value), shown(default)) for name, (value, default) in recipe_settings().items()]
    return table(("setting", "`ramify train agent`", "default, and `--joint`"), lines).replace(":-:", "---")


# --- draws --------------------------------------------------------------------------------------------------------------


@cache
def shapes() -> dict[str, Any]:
    return json.loads(FILE.read_text("utf-8"))


def drawn_masks(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of masked children of rows with these numbers of children, as the objective draws them."""
    config = NestedAutoencoderConfig()
    row = np.repeat(np.arange(len(counts)), counts)
    children = RowChildren(np.arange(len(row)), row, counts)
    random = np.random.Generator(np.random.Philox(key=0))
    masked = mask_children(children, config.mask_rate, config.mask_split, children.child, None, random)
    return np.bincount(row[masked.chosen], minlength=len(counts))


def mask_rates() -> dict[str, tuple[int, float, float, float]]:
    """For each level of the novels: rows, the share of rows with one child, the mean number of children, and the rate."""
    found = {}
    names = ("token", *AgentConfig().levels)
    for level, own in shapes()["novels"].items():
        rows = np.array(own["rows"])
        counts = np.arange(len(rows))
        masked = (rows * drawn_masks(counts)).sum()
        several = rows[2:] @ counts[2:]
        child = names[names.index(level) - 1]
        found[child] = (int(rows.sum()), rows[1] / rows.sum(), float(rows @ counts / rows.sum()), float(masked / several))
    return found


def masks_table() -> str:
    lines = [
        (f"{child}s", f"{rows:,}", f"{mean:.1f}", f"{only:.1%}", f"{rate:.1%}")
        for child, (rows, only, mean, rate) in mask_rates().items()
    ]
    head = ("children", "rows", "children per row", "rows of one child", "masked share of the other rows' children")
    return table(head, lines)


def law_table() -> str:
    """The coherence draw for rows of n children: the variance of r, and the error of r̂ = #B / 2n."""
    lines = []
    for number in (1, 2, 4, 8, 16, 64):
        constant, marks = 5 / 192 + 1 / (12 * number), 1 / (16 * number)
        lines.append((number, f"{constant:.4f}", f"{marks:.4f}", f"{marks / constant:.0%}"))
    return table(("n", "Var r, the error of 1/8", "error of marks alone", "share"), lines)


# --- cost ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Multiply-adds of one level, and the vectors that it makes."""

    rows: int
    places: int
    encoder: int
    compressor: int
    decoder: int
    """Decompressor and Decoder."""


def multiply_adds(run: Callable[[], Any]) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() // 2


def row_lengths(children: Sequence[int]) -> NDArray[np.int64]:
    """The places of rows, given the number of rows with 0, 1, 2 … children. Each row has one mark."""
    return np.repeat(np.arange(len(children)), children) + 1


@cache
def level_costs() -> list[Cost]:
    """Counted by torch while each level runs without data over rows of the novel's shape."""
    with torch.device("meta"):
        model, decoder = DEFAULT.build().eval(), AgentDecoder(DEFAULT).eval()
    novel = enumerate(shapes()["novel"].values())
    return [level_cost(model.encoder(level), decoder.level(level), own["rows"]) for level, own in novel]


def level_cost(encoder: LevelEncoder, decoder: LevelDecoder, children: Sequence[int]) -> Cost:
    rows = Rows.build(row_lengths(children)).to("meta")
    x = torch.zeros(rows.total, encoder.table.embedding_dim, device="meta")
    slots = torch.zeros(rows.total, dtype=torch.int64, device="meta")
    vectors = encoder.compress(x, slots, rows)
    laid = decoder.all_places(len(rows), vectors.device)
    return Cost(
        rows=len(rows),
        places=rows.total,
        encoder=multiply_adds(lambda: encoder.states.encoder(x, rows)),
        compressor=multiply_adds(lambda: encoder.compress(x, slots, rows)),
        decoder=multiply_adds(lambda: decoder.parallel(decoder.decompress(vectors, laid), laid)),
    )


@cache
def flat_cost(tokens: int) -> int:
    """Multiply-adds of a Transformer encoder as wide and deep as the token level, over one row."""
    dim, layers = DEFAULT.dims[0], DEFAULT.encoder_cells[0]
    with torch.device("meta"):
        encoder = TransformerEncoder(dim, DEFAULT.num_heads, layers).eval()
    x, rows = torch.zeros(tokens, dim, device="meta"), Rows.build([tokens]).to("meta")
    return multiply_adds(lambda: encoder(x, rows))


def novel_tokens() -> int:
    rows = shapes()["novel"]["sentence"]["rows"]
    return int(np.arange(len(rows)) @ rows)


def cost_table() -> str:
    novel, lines = shapes()["novel"], []
    costs = level_costs()
    for own, cost in zip(novel.items(), costs, strict=True):
        name, shape = own
        counts = (f"{shape['nodes'][0]:,}", f"{cost.rows:,}", f"{cost.places:,}")
        numbers = (f"{each / 1e9:,.2f}" for each in (cost.encoder, cost.compressor, cost.decoder))
        lines.append((name, *counts, *numbers))
    sums = (sum(getattr(each, name) for each in costs) / 1e9 for name in ("encoder", "compressor", "decoder"))
    lines.append(("together", "", "", "", *(f"{each:,.2f}" for each in sums)))
    return table(("level", "nodes", "rows", "places", "Encoder", "Compressor", "Decompressor and Decoder"), lines)


def flat_table() -> str:
    """The whole encoder beside a flat one, for documents of the novel's mean shape."""
    per_token = sum(each.encoder + each.compressor for each in level_costs()) / novel_tokens()
    lines = []
    for tokens in (1_000, 10_000, 100_000, novel_tokens(), 1_000_000):
        ours, flat = per_token * tokens, flat_cost(tokens)
        lines.append((f"{tokens:,}", f"{ours / 1e9:,.1f}", f"{flat / 1e9:,.1f}", f"{flat / ours:,.3g}"))
    return table(("tokens", "nested", "flat", "flat ÷ nested"), lines)


def balanced_pairs(tokens: int, levels: int) -> float:
    """Pairs of places that attention compares, if every node of every level has the same number of children."""
    branching = tokens ** (1 / levels)
    return sum(tokens / branching ** (level + 1) * branching**2 for level in range(levels))


def pairs_table() -> str:
    lines = []
    for power in (12, 16, 20):
        tokens = 2**power
        lines.append((f"{tokens:,}", *(f"{balanced_pairs(tokens, levels) / tokens:,.0f}" for levels in (1, 2, 3, 4))))
    lines.append((f"{novel_tokens():,} (novel)", f"{novel_tokens():,}", "", "", f"{novel_pairs():,.0f}"))
    return table(("tokens", "L = 1 (flat)", "L = 2", "L = 3", "L = 4"), lines)


def novel_pairs() -> float:
    """Pairs of places per token of the novel."""
    return sum(float((row_lengths(own["rows"]) ** 2).sum()) for own in shapes()["novel"].values()) / novel_tokens()


def memory_table() -> str:
    costs, dims = level_costs(), DEFAULT.dims
    lines = [
        (name, f"{cost.rows:,}", dim, f"{cost.rows * dim * 4 / 2**10:,.0f} KiB")
        for name, cost, dim in zip(shapes()["novel"], costs, dims[1:], strict=True)
    ]
    return table(("level", "vectors", "length", "memory"), lines)


DRAWINGS: Mapping[str, Callable[[], Drawing]] = {
    "letter-rows": letter_rows,
    "overflow-rows": overflow_rows,
    "nested-architecture": architecture,
    "evolved-cells": evolved_cells,
}
TABLES: Mapping[str, Callable[[], str]] = {
    "overflow": overflow_table,
    "divisions": divisions_table,
    "evolved-blocks": blocks_table,
    "nested-sizes": sizes_table,
    "nested-schedule": schedule_table,
    "nested-recipe": recipe_table,
    "nested-masks": masks_table,
    "coherence-law": law_table,
    "nested-cost": cost_table,
    "nested-flat": flat_table,
    "nested-pairs": pairs_table,
    "nested-memory": memory_table,
}


def write(folder: Path = GENERATED) -> None:
    """Write all drawings and tables."""
    write_files(folder, DRAWINGS, TABLES)


if __name__ == "__main__":
    write()
