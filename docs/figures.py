"""Pictures and computed tables of the pages. Each build of the pages writes them to `_generated/`.

All numbers come from the package: the views that training uses also give the units of each regime.

    python docs/figures.py        writes the files without building the pages
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ramify.autograd.drawing import as_svg
from ramify.autograd.expression import read
from ramify.batching.forest import Forest
from ramify.batching.text_input import TextInput
from ramify.batching.views.comment_trees import Discussions, encoder_runs, has_other_branch, units
from ramify.dataset import Store
from ramify.tokenizer import Tokenizer
from ramify.tree import Node, Tree, depths, multiplicity

GENERATED = Path(__file__).parent / "_generated"

NAMES = "pabcdefghij"
W = (-1, 0, 1, 1, 2, 2, 0, 6, 7, 8, 0)
"""Parents of the worked example: p → a f j; a → b c; b → d e; f → g → h → i."""

Parents = Sequence[int]


# --- units of a regime ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unit:
    """A training unit: the nodes that its targets read, and the targets with their weights."""

    read: frozenset[int]
    targets: tuple[int, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True)
class Counts:
    """Number of units, encoder runs and decoder runs in one epoch over a tree."""

    units: int
    encoder: int
    decoder: int
    paper: int
    """Encoder runs as the paper counts them: one per node of a unit, including the post."""


@cache
def _tokenizer() -> Tokenizer:
    return Tokenizer.train(["word"], vocab_size=16)


def _view(parent: Parents, context: Any = "tree", **regime: Any) -> Discussions:
    nodes = tuple(
        Node("word", () if parent_index < 0 else (parent_index,), id=str(number)) for number, parent_index in enumerate(parent)
    )
    forest = Forest.open(Store.from_trees([Tree(nodes, id="tree")]), _tokenizer(), max_tokens=8)
    only = has_other_branch(forest, [0]) if context == "sibling-branch" else None
    return Discussions(forest, units(forest, [0], only=only, **regime), TextInput(max_context=len(parent), context=context))


def epoch(parent: Parents, **regime: Any) -> list[Unit]:
    """Units of one tree. `regime` holds options of `ramify.batching.views.comment_trees.units`."""
    view = _view(parent, **regime)
    examples = [view.example(number) for number in range(len(view))]
    return [
        Unit(frozenset(each.context.tolist()), tuple(each.targets.tolist()), tuple(each.weight.tolist())) for each in examples
    ]


def counts(parent: Parents, **regime: Any) -> Counts:
    view = _view(parent, **regime)
    targets = int(view.sizes.sum())
    return Counts(len(view), encoder_runs(view.forest, view), targets, _as_the_paper_counts(parent, view, regime))


def _as_the_paper_counts(parent: Parents, view: Discussions, regime: dict[str, Any]) -> int:
    """Count encoder runs: the length of each thread, all nodes of a tree, the comments of each piece and the post."""
    if regime.get("regime") in ("naive", "threads", "threads_debiased"):
        deepest = np.maximum.reduceat(depths(parent)[view.parts.targets], np.concatenate([[0], view.parts.ends[:-1]]))
        return int((deepest + 1).sum())
    nodes = (view.example(number) for number in range(len(view)))
    return sum(len({*each.context.tolist(), *each.targets.tolist(), 0}) for each in nodes)


def epoch_weights(parent: Parents, **regime: Any) -> np.ndarray:
    """Return the total weight of each node's loss over an epoch, by node."""
    total = np.zeros(len(parent))
    for unit in epoch(parent, **regime):
        np.add.at(total, list(unit.targets), unit.weights)
    return total


# --- random trees -------------------------------------------------------------------------------------------------------


def uniform(comments: int, random: np.random.Generator) -> Parents:
    """Random recursive tree: each comment answers any earlier node with equal probability."""
    return [-1, *(int(random.integers(number)) for number in range(1, comments + 1))]


def reddit(comments: int, random: np.random.Generator) -> Parents:
    """Tree in which 30 % of the comments answer the post and the others one of the last twelve nodes."""
    return [-1] + [
        0 if random.random() < 0.3 else int(random.integers(max(0, number - 12), number)) for number in range(1, comments + 1)
    ]


def chain(comments: int, random: np.random.Generator) -> Parents:
    return range(-1, comments)


def star(comments: int, random: np.random.Generator) -> Parents:
    return [-1] + [0] * comments


# --- tables -------------------------------------------------------------------------------------------------------------

REGIMES: dict[str, dict[str, Any]] = {
    "`naive`": {"regime": "naive"},
    "`threads`, over all comments": {"regime": "threads"},
    "`threads`, over leaves": {"regime": "threads", "threads_over": "leaves"},
    "`threads_debiased`, over all": {"regime": "threads_debiased"},
    "`threads_debiased`, over leaves": {"regime": "threads_debiased", "threads_over": "leaves"},
    "`tree`": {"regime": "tree"},
}
SPLITS: dict[str, dict[str, Any]] = {
    "10 and more": {"max_tree_size": 10},
    "5, packed": {"max_tree_size": 5},
    "5, literal": {"max_tree_size": 5, "pack": False},
    "4, packed": {"max_tree_size": 4},
    "4, literal": {"max_tree_size": 4, "pack": False},
    "3, packed": {"max_tree_size": 3},
    "1": {"max_tree_size": 1},
    "1, 2 or 3, soft, literal": {"max_tree_size": 1, "bound": "soft", "pack": False},
    "4, soft, literal": {"max_tree_size": 4, "bound": "soft", "pack": False},
}
WEIGHTED: dict[str, dict[str, Any]] = {
    "naive, tree": {"regime": "tree"},
    "threads, all": {"regime": "threads"},
    "threads, leaves": {"regime": "threads", "threads_over": "leaves"},
    "threads debiased": {"regime": "threads_debiased"},
    "middle, once": {"regime": "middle", "max_tree_size": 3},
    "middle, share": {"regime": "middle", "max_tree_size": 3, "weighting": "share"},
    "middle, seed": {"regime": "middle", "max_tree_size": 3, "weighting": "seed"},
}
SHAPES: dict[str, tuple[Callable[[int, np.random.Generator], Parents], int]] = {
    "uniform, 500 comments": (uniform, 500),
    "uniform, 200": (uniform, 200),
    "Reddit-like, 500": (reddit, 500),
    "Reddit-like, 200": (reddit, 200),
    "chain, 200": (chain, 200),
    "star, 500": (star, 500),
}
DRAWN_TREES = 10


def runs_table() -> str:
    rows = []
    for name, regime in REGIMES.items():
        found = counts(W, **regime)
        rows.append((name, found.units, found.encoder, found.decoder, found.paper))
    return table(("regime", "units", "encoder runs", "decoder runs", "as the paper counts"), rows)


def pieces_table() -> str:
    rows = []
    for name, options in SPLITS.items():
        options = {"regime": "middle", **options}
        found = counts(W, **options)
        pieces = " ".join(f"`{piece_name(unit)}`" for unit in epoch(W, **options))
        rows.append((name, pieces, found.encoder, found.decoder))
    return table(("M", "pieces, *context : targets*", "encoder runs", "decoder runs"), rows)


def piece_name(unit: Unit) -> str:
    """Format a piece as `context : targets` in letters, without the post, which is in every piece."""
    context = sorted(unit.read - {0} - {*unit.targets})
    return f"{letters(context) or '–'} : {letters(unit.targets)}"


def letters(nodes: Iterable[int]) -> str:
    return " ".join(NAMES[node] for node in nodes)


def multiplicity_table() -> str:
    depth = depths(W)
    order = sorted(range(1, len(W)), key=lambda node: (depth[node], node))
    rows: list[tuple[Any, ...]] = [("depth", *(int(depth[node]) for node in order))]
    for name, over in (("threads over all comments", "all"), ("threads over leaves", "leaves")):
        often = multiplicity(W, over)
        rows.append((name, *(int(often[node]) for node in order)))
    return table(("comment", *(NAMES[node] for node in order)), rows)


def ternary_table(branching: int = 3, depth: int = 4) -> str:
    parent: list[int] = [-1]
    level = [0]
    for _ in range(depth):
        level = [len(parent) + place for place in range(len(level) * branching)]
        parent += [parent_of for parent_of in range(level[0] - len(level) // branching, level[0]) for _ in range(branching)]
    depths_of = depths(parent)
    over_all, over_leaves = multiplicity(parent, "all"), multiplicity(parent, "leaves")
    rows = []
    for each in range(1, depth + 1):
        first = int(np.flatnonzero(depths_of == each)[0])
        rows.append((each, int((depths_of == each).sum()), int(over_all[first]), int(over_leaves[first])))
    return table(("depth", "comments", "over all", "over leaves"), rows)


def weights_table() -> str:
    columns = [epoch_weights(W, **regime) for regime in WEIGHTED.values()]
    rows = [(NAMES[node], *(as_fraction(column[node]) for column in columns)) for node in range(1, len(W))]
    return table(("comment", *WEIGHTED), rows)


def as_fraction(value: float) -> str:
    return str(Fraction(value).limit_denominator(1000))


def cost_table() -> str:
    """Encoder runs per predicted comment, and decoder runs where they differ from 1."""
    columns: dict[str, dict[str, Any]] = {
        "naive": {"regime": "naive"},
        "threads, leaves": {"regime": "threads", "threads_over": "leaves"},
        "tree": {"regime": "tree"},
        "M = 60": {"regime": "middle", "max_tree_size": 60},
        "60, literal": {"regime": "middle", "max_tree_size": 60, "pack": False},
        "M = 20": {"regime": "middle", "max_tree_size": 20},
        "20, literal": {"regime": "middle", "max_tree_size": 20, "pack": False},
    }
    rows = []
    for name, (shape, comments) in SHAPES.items():
        trees = list(drawn(shape, comments))
        cells = []
        for regime in columns.values():
            found = [counts(tree, **regime) for tree in trees]
            encoder, decoder = (np.mean([getattr(each, side) for each in found]) / comments for side in ("encoder", "decoder"))
            pieces = f" ({np.mean([each.units for each in found]):.0f})" if regime["regime"] == "middle" else ""
            cells.append(f"{encoder:.2f}" + (f" / {decoder:.2f}" if decoder != 1 else "") + pieces)
        rows.append((name, *cells))
    return table(("tree", *columns), rows)


def drawn(shape: Callable[[int, np.random.Generator], Parents], comments: int) -> Iterator[Parents]:
    for seed in range(1 if shape in (chain, star) else DRAWN_TREES):
        yield shape(comments, np.random.default_rng([seed, comments]))


def memory_table() -> str:
    """Memory that a two-phase gradient holds for all nodes at once: a vector and its gradient, in single precision."""
    widths = (128, 256, 768)
    rows = []
    for nodes in (1_000, 12_000, 100_000):
        rows.append((f"{nodes:,}", *(f"{2 * nodes * width * 4 / 2**20:,.1f} MiB" for width in widths)))
    return table(("nodes read", *(f"dim {width}" for width in widths)), rows)


def closed_forms_table() -> str:
    """Closed forms and the package's counts, on the worked example and on one random tree."""
    random = uniform(500, np.random.default_rng(0))
    regimes: dict[str, tuple[str, dict[str, Any], Callable[[Parents], int]]] = {
        "`naive`": ("sum of depths over comments", {"regime": "naive"}, lambda parent: int(depths(parent).sum())),
        "`threads`, all": ("the same", {"regime": "threads"}, lambda parent: int(depths(parent).sum())),
        "`threads`, leaves": (
            "sum of depths over leaves",
            {"regime": "threads", "threads_over": "leaves"},
            lambda parent: int(depths(parent)[childless(parent)].sum()),
        ),
        "`tree`": (
            "comments with replies, and the post",
            {"regime": "tree"},
            lambda parent: int((~childless(parent)[1:]).sum()) + 1,
        ),
    }
    rows = [
        (name, form, *(number for parent in (W, random) for number in (value(parent), counts(parent, **regime).encoder)))
        for name, (form, regime, value) in regimes.items()
    ]
    return table(("regime", "encoder runs", "on W", "counted", "500 comments", "counted"), rows)


def childless(parent: Parents) -> np.ndarray:
    return np.bincount(np.array(parent[1:]), minlength=len(parent)) == 0


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Format a Markdown table with all columns but the first centred."""
    lines = [head, ["---", *[":-:"] * (len(head) - 1)], *rows]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines)


# --- drawing ------------------------------------------------------------------------------------------------------------

Point = tuple[float, float]


class Drawing:
    """An SVG whose colours are classes of `_static/figures.css`, so that it follows the page's theme."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        text: str = "",
        kind: str = "box",
        size: float = 12,
        opacity: float = 1.0,
    ) -> None:
        faint = "" if opacity == 1.0 else f' fill-opacity="{opacity:.2g}"'
        self.parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"{faint}/>')
        if text:
            self.text(x + width / 2, y + height / 2 + size * 0.35, text, kind=f"on-{kind}", size=size)

    def circle(self, x: float, y: float, radius: float, kind: str) -> None:
        self.parts.append(f'<circle class="{kind}" cx="{x:g}" cy="{y:g}" r="{radius:g}"/>')

    def text(
        self, x: float, y: float, text: str, *, kind: str = "ink", size: float = 12, anchor: str = "middle", turn: int = 0
    ) -> None:
        turned = f' transform="rotate({turn} {x:g} {y:g})"' if turn else ""
        place = f'x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}"{turned}'
        self.parts.append(f'<text class="{kind}" {place}>{escape(text)}</text>')

    def line(self, *points: Point, kind: str = "line") -> None:
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline class="{kind}" points="{path}"/>')

    def arrow(self, *points: Point, kind: str = "line") -> None:
        """Draw a line through the points, with an arrowhead at the last one."""
        (fx, fy), (x, y) = points[-2:]
        length = float(np.hypot(x - fx, y - fy))
        dx, dy = (x - fx) / length, (y - fy) / length
        self.line(*points[:-1], (x - 5 * dx, y - 5 * dy), kind=kind)
        corners = [(x, y), (x - 7 * dx - 3.5 * dy, y - 7 * dy + 3.5 * dx), (x - 7 * dx + 3.5 * dy, y - 7 * dy - 3.5 * dx)]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in corners)
        self.parts.append(f'<polygon class="{kind}-head" points="{path}"/>')

    def svg(self) -> str:
        return (
            f'<svg class="drawing" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" role="img"><title>{escape(self.title)}</title>\n' + "\n".join(self.parts) + "\n</svg>\n"
        )


def places(parent: Parents) -> list[Point]:
    """Return (column, level) of every node: leaves in reading order, each parent centred above its children."""
    children: list[list[int]] = [[] for _ in parent]
    for child, parent_index in enumerate(parent):
        if parent_index >= 0:
            children[parent_index].append(child)
    depth = depths(parent)
    column = [0.0] * len(parent)
    leaves = 0
    stack, order = [0], []
    while stack:
        node = stack.pop()
        order.append(node)
        stack += reversed(children[node])
    for node in order:
        if not children[node]:
            column[node] = leaves
            leaves += 1
    for node in reversed(order):
        if children[node]:
            column[node] = (column[children[node][0]] + column[children[node][-1]]) / 2
    return [(column[node], float(depth[node])) for node in range(len(parent))]


RADIUS = 9.5
STEP = 25
"""Distance between columns and between levels."""


def draw_tree(
    drawing: Drawing,
    x: float,
    y: float,
    read: Iterable[int] = (),
    targets: Iterable[int] = (),
    labels: Sequence[str] = NAMES,
    parent: Parents = W,
    step: float = STEP,
    plain: bool = False,
) -> None:
    """Draw a tree with its post at the top: nodes that are read as rings, targets filled, others faint (or `plain`)."""
    read, targets = {*read}, {*targets}
    at = [(x + RADIUS + column * step, y + RADIUS + level * step) for column, level in places(parent)]
    inside = read | targets
    for child, parent_index in enumerate(parent):
        if parent_index >= 0:
            drawing.line(at[parent_index], at[child], kind="edge" if plain or {child, parent_index} <= inside else "faint-edge")
    rest = "node" if plain else "absent"
    for node, (cx, cy) in enumerate(at):
        kind = "both" if node in read & targets else "read" if node in read else "target" if node in targets else rest
        if parent[node] < 0:
            side = 2 * RADIUS - 2
            drawing.box(cx - side / 2, cy - side / 2, side, side, kind=kind)
        else:
            drawing.circle(cx, cy, RADIUS - 1, kind)
        size = 11 if len(labels[node]) == 1 else 8.5
        drawing.text(cx, cy + size * 0.34, labels[node], kind=f"on-{kind}", size=size)


def width_of(parent: Parents, step: float = STEP) -> float:
    return max(column for column, _ in places(parent)) * step + 2 * RADIUS


def height_of(parent: Parents, step: float = STEP) -> float:
    return max(level for _, level in places(parent)) * step + 2 * RADIUS


PAGE = 740
CELL = PAGE / 5


class Rows:
    """Layout of units as small trees under headings, five per row."""

    def __init__(self) -> None:
        self.y = 0.0
        self.steps: list[Callable[[Drawing], None]] = []

    def head(self, text: str, note: str = "") -> None:
        y = self.y + 16
        self.steps.append(lambda drawing: drawing.text(2, y, text, kind="head", size=13, anchor="start"))
        if note:
            self.steps.append(lambda drawing: drawing.text(PAGE - 2, y, note, kind="muted", size=11.5, anchor="end"))
        self.y += 28

    def units(
        self,
        found: Sequence[Unit],
        caption: Callable[[Unit], str],
        labels: Callable[[Unit], Sequence[str]] = lambda _: NAMES,
    ) -> None:
        for start in range(0, len(found), 5):
            for place, unit in enumerate(found[start : start + 5]):
                self._unit(place * CELL + (CELL - width_of(W)) / 2, unit, caption(unit), labels(unit))
            self.y += height_of(W) + 36

    def _unit(self, x: float, unit: Unit, caption: str, labels: Sequence[str]) -> None:
        y = self.y
        self.steps.append(lambda drawing: draw_tree(drawing, x, y, unit.read, unit.targets, labels))
        middle = x + width_of(W) / 2
        self.steps.append(lambda drawing: drawing.text(middle, y + height_of(W) + 15, caption, kind="muted", size=11.5))

    def drawing(self, title: str) -> Drawing:
        drawing = Drawing(PAGE, self.y, title)
        for step in self.steps:
            step(drawing)
        return drawing


# --- pictures -----------------------------------------------------------------------------------------------------------


def model() -> Drawing:
    """Figure 1 of the paper, redrawn."""
    drawing = Drawing(
        PAGE, 640, "The model: clean ancestors are encoded and pooled; the decoder of the masked comment reads them"
    )
    left, right = 175, 545

    def layer(middle: float, width: float, y: float, name: str, kind: str = "block") -> None:
        """Draw a sub-layer, the Add & Norm above it and the residual connection around it."""
        drawing.box(middle - width / 2, y, width, 26, name, kind)
        drawing.box(middle - width / 2, y - 23, width, 19, "Add & Norm", "norm", size=11)
        drawing.line((middle, y), (middle, y - 4))
        side = middle + width / 2
        drawing.arrow((middle, y + 32), (side + 14, y + 32), (side + 14, y - 13.5), (side, y - 13.5), kind="thin")

    def embedding(middle: float, width: float, y: float) -> None:
        drawing.box(middle - width / 2, y, width, 26, "Embedding", "block")
        drawing.arrow((middle, y), (middle, y - 15))
        drawing.circle(middle, y - 24, 9, "plus")
        drawing.text(middle, y - 19.5, "+", kind="ink", size=14)
        drawing.line((middle + 9, y - 24), (middle + 34, y - 24))
        drawing.text(middle + 38, y - 20, "positions", kind="muted", anchor="start")

    # Encoder side, from the bottom up
    for number, name in enumerate(("post", "c₁", "c₂")):
        drawing.box(left - 95 + number * 65, 580, 60, 24, name, "read")
    drawing.text(left, 624, "clean text of every ancestor, oldest first", kind="muted")
    drawing.arrow((left, 580), (left, 558))
    embedding(left, 190, 532)
    drawing.box(left - 125, 326, 265, 142, kind="frame")
    drawing.arrow((left, 499), (left, 455))
    drawing.text(left - 150, 400, "N ×", kind="ink", size=14)
    layer(left, 190, 428, "Self-attention")
    drawing.arrow((left, 405), (left, 384))
    layer(left, 190, 358, "Feed-forward")
    drawing.arrow((left, 335), (left, 302))
    drawing.text(left + 160, 452, "Encoder", kind="head", anchor="start", size=13, turn=-90)
    drawing.box(left - 95, 276, 190, 26, "AvgPool", "block")
    drawing.text(left + 103, 293, "over its tokens", kind="muted", size=11, anchor="start")
    drawing.arrow((left, 276), (left, 240))
    for number, kind in enumerate(("row", "row", "row", "padding", "padding")):
        drawing.box(left - 95, 130 + number * 22, 190, 18, kind=kind)
    for number, name in enumerate(("e(post)", "e(c₁)", "e(c₂)", "padding", "padding")):
        drawing.text(left, 143 + number * 22, name, kind="on-row" if number < 3 else "muted", size=11)
    drawing.text(left, 118, "Concat & Pad", kind="head", size=13)
    drawing.text(left - 108, 185, "cl rows", kind="muted", size=11, turn=-90)

    # Decoder side
    words = ("then", "it", "turns", "[MASK]")
    for number, word in enumerate(words):
        kind = "target" if word == "[MASK]" else "token"
        drawing.box(right - 126 + number * 64, 580, 60, 24, word, kind, size=11.5)
    drawing.text(right, 624, "the masked comment", kind="muted")
    drawing.arrow((right, 580), (right, 558))
    embedding(right, 190, 532)
    drawing.box(right - 125, 244, 265, 224, kind="frame")
    drawing.arrow((right, 499), (right, 455))
    drawing.text(right + 165, 350, "N ×", kind="ink", size=14)
    layer(right, 190, 428, "Self-attention")
    drawing.arrow((right, 405), (right, 378))
    layer(right, 190, 352, "Cross-attention", "cross")
    drawing.arrow((right, 329), (right, 302))
    layer(right, 190, 276, "Feed-forward")
    drawing.text(right + 160, 452, "Decoder", kind="head", anchor="start", size=13, turn=-90)
    drawing.arrow((right, 253), (right, 190))
    drawing.box(right - 95, 164, 190, 26, "Linear", "block")
    drawing.arrow((right, 164), (right, 140))
    drawing.box(right - 95, 114, 190, 26, "Softmax", "block")
    drawing.arrow((right, 114), (right, 88))
    for number, (word, share) in enumerate((("bitter", 62), ("cold", 24), ("green", 9))):
        y = 28 + number * 19
        drawing.text(right - 8, y + 10, word, kind="ink", anchor="end", size=11.5)
        drawing.box(right, y, share, 13, kind="share")
    drawing.text(right - 8, 16, "every masked token:", kind="muted", anchor="end", size=11.5)

    # Keys and values for every decoder layer
    side = left + 95
    drawing.arrow((side, 168), (372, 168), (372, 358), (right - 95, 358), kind="keys")
    drawing.arrow((side, 176), (364, 176), (364, 372), (right - 95, 372), kind="keys")
    drawing.text(402, 353, "K", kind="on-keys", size=12)
    drawing.text(402, 387, "V", kind="on-keys", size=12)
    return drawing


def example() -> Drawing:
    """The nodes that one comment reads, in an invented discussion."""
    drawing = Drawing(PAGE, 262, "A small discussion: the masked comment reads its ancestors and no other comment")
    lines = [
        (0, "read", "How long do you steep green tea? Mine is undrinkable."),
        (1, "read", "Two minutes, with water that has stopped boiling."),
        (2, "read", "I always forget the pot and come back after ten."),
        (3, "target", "Then it turns [MASK], of course it does."),
        (2, "absent", "Does the brand matter?"),
        (1, "absent", "Cold water, overnight, in the fridge."),
    ]
    last: dict[int, float] = {}
    for number, (depth, kind, text) in enumerate(lines):
        x, y = 12 + depth * 44, 8 + number * 42
        if depth:
            drawing.line(
                (x - 26, last[depth - 1] + 32), (x - 26, y + 16), (x, y + 16), kind="edge" if kind != "absent" else "faint-edge"
            )
        drawing.box(x, y, 410, 32, kind=kind)
        drawing.text(x + 12, y + 20.5, text, kind=f"on-{kind}", size=12.5, anchor="start")
        last[depth] = y
    notes = {
        0: ("the post", "muted"),
        3: ("the target", "on-note"),
        4: ("not an ancestor of the target", "muted"),
    }
    for number, (text, kind) in notes.items():
        x = 12 + lines[number][0] * 44 + 422
        drawing.text(x, 8 + number * 42 + 20.5, text, kind=kind, size=11.5, anchor="start")
    drawing.line((662, 14), (672, 14), (672, 118), (662, 118), kind="keys")
    drawing.text(678, 62, "what it", kind="on-keys", size=11.5, anchor="start")
    drawing.text(678, 78, "reads", kind="on-keys", size=11.5, anchor="start")
    return drawing


def worked_example() -> Drawing:
    step = 34
    drawing = Drawing(PAGE, height_of(W, step) + 12, "The worked example W: a post p and ten comments a to j")
    x = 110
    for level in range(5):
        y = 6 + RADIUS + level * step
        drawing.line((x - 40, y), (x + width_of(W, step) + 24, y), kind="grid")
        drawing.text(x - 48, y + 4, f"depth {level}", kind="muted", size=11.5, anchor="end")
    draw_tree(drawing, x, 6, step=step, plain=True)
    legend(drawing, 360, 28)
    return drawing


def naive() -> Drawing:
    rows = Rows()
    found = epoch(W, regime="naive")
    rows.head("naive: one thread per comment, only its last comment is predicted", cost(regime="naive"))
    rows.units(found, lambda unit: f"predicts {letters(unit.targets)}")
    return rows.drawing("The naive regime on W: ten threads, each of which predicts its last comment")


def threads() -> Drawing:
    rows = Rows()
    regime = {"regime": "threads"}
    rows.head("threads over all comments", cost(**regime))
    rows.units(epoch(W, **regime), lambda unit: f"ends at {NAMES[unit.targets[-1]]}")
    regime = {"regime": "threads", "threads_over": "leaves"}
    rows.head("threads over leaves", cost(**regime))
    rows.units(epoch(W, **regime), lambda unit: f"ends at {NAMES[unit.targets[-1]]}")
    return rows.drawing(
        "The thread regimes on W: every comment of a thread is predicted, so shallow comments are predicted many times"
    )


def debiased() -> Drawing:
    rows = Rows()
    regime = {"regime": "threads_debiased", "threads_over": "leaves"}
    rows.head("threads over leaves, debiased: weights instead of names", cost(**regime))
    rows.units(epoch(W, **regime), lambda unit: f"ends at {NAMES[unit.targets[-1]]}", weight_labels)
    return rows.drawing("Debiased threads on W: a comment in three threads has a weight of one third in each")


def weight_labels(unit: Unit) -> list[str]:
    weights = dict(zip(unit.targets, unit.weights, strict=True))
    return [as_fraction(weights[node]) if node in weights else NAMES[node] for node in range(len(W))]


def cost(**regime: Any) -> str:
    found = counts(W, **regime)
    return f"{found.encoder} encoder runs, {found.decoder} decoder runs"


def tree() -> Drawing:
    rows = Rows()
    rows.head("tree: all comments at once", cost(regime="tree"))
    rows.units(epoch(W, regime="tree"), lambda unit: "predicts every comment")
    return rows.drawing("The tree regime on W: one unit; six nodes are encoded, ten comments predicted")


def legend(drawing: Drawing, x: float, y: float) -> None:
    rows = [
        ("read", "encoded: a target of the unit reads it"),
        ("target", "predicted: masked and decoded"),
        ("both", "both: clean text encoded, masked text decoded"),
        ("absent", "not in the unit"),
    ]
    for number, (kind, text) in enumerate(rows):
        drawing.circle(x, y + number * 24, RADIUS - 1, kind)
        drawing.text(x + 18, y + number * 24 + 4, text, kind="muted", size=12, anchor="start")


def pieces(title: str, options: dict[str, dict[str, Any]]) -> Callable[[], Drawing]:
    """Return a function that draws splits of W under one heading each."""

    def draw() -> Drawing:
        rows = Rows()
        for name, each in options.items():
            each = {"regime": "middle", **each}
            rows.head(name, cost(**each))
            rows.units(epoch(W, **each), piece_name)
        return rows.drawing(title)

    return draw


def weighting() -> Drawing:
    rows = Rows()
    for name, note in (
        ("once", "each comment is a target in one piece"),
        ("share", "thread comments repeat, with divided weights"),
        ("seed", "thread comments repeat, with weight 1"),
    ):
        options = {"regime": "middle", "max_tree_size": 3, "weighting": name}
        found = [unit for unit in epoch(W, **options) if NAMES.index("a") in unit.read | {*unit.targets}]
        rows.head(f"weighting = {name}: {note}")
        rows.units(found, lambda unit: letters(unit.targets), weight_labels)
    return rows.drawing("The pieces of W that contain comment a, for M = 3, with the weights of their targets")


def bias() -> Drawing:
    step = 30
    drawing = Drawing(PAGE, height_of(W, step) + 44, "Number of predictions of each comment of W in the thread regimes")
    for place, (over, name) in enumerate((("all", "threads over all comments"), ("leaves", "threads over leaves"))):
        x = 110 + place * 360
        often = multiplicity(W, over)
        labels = ["p", *(f"{often[node]}×" for node in range(1, len(W)))]
        drawing.text(x + width_of(W, step) / 2, 16, name, kind="head", size=13)
        parent = list(W)
        at = [(x + RADIUS + column * step, 34 + RADIUS + level * step) for column, level in places(parent)]
        for child, parent_index in enumerate(parent):
            if parent_index >= 0:
                drawing.line(at[parent_index], at[child], kind="edge")
        for node, (cx, cy) in enumerate(at):
            if node == 0:
                drawing.box(cx - 8.5, cy - 8.5, 17, 17, kind="read")
                drawing.text(cx, cy + 3.7, "p", kind="on-read", size=11)
                continue
            drawing.circle(cx, cy, 11, "bias")
            drawing.parts.append(
                f'<circle class="bias-fill" cx="{cx:g}" cy="{cy:g}" r="11" fill-opacity="{(often[node] - 1) / 5:.2f}"/>'
            )
            drawing.text(cx, cy + 3.6, labels[node], kind="ink", size=10)
    return drawing


def reads() -> Drawing:
    """Matrix of targets and the nodes they read on W, from the whole-tree view."""
    side, x0, y0 = 25, 70, 50
    view = _view(W, regime="tree")
    unit = view.example(0)
    read = np.split(unit.context, np.cumsum(unit.context_lengths)[:-1])
    drawing = Drawing(PAGE, y0 + 10 * side + 46, "The nodes that each target of W reads")
    drawing.text(x0 + 11 * side / 2, 16, "node whose clean text is encoded", kind="muted", size=12)
    drawing.text(18, y0 + 5 * side, "target", kind="muted", size=12, turn=-90)
    for column in range(len(W)):
        drawing.text(x0 + (column + 0.5) * side, y0 - 8, NAMES[column], kind="ink", size=12)
    for row, (target, nodes) in enumerate(zip(unit.targets.tolist(), read)):
        drawing.text(x0 - 12, y0 + (row + 0.5) * side + 4, NAMES[target], kind="ink", size=12)
        for column in range(len(W)):
            kind = "cell-read" if column in nodes else "cell-self" if column == target else "cell"
            drawing.box(x0 + column * side + 1, y0 + row * side + 1, side - 2, side - 2, kind=kind)
    row, column = NAMES.index("d"), NAMES.index("a")
    top = y0 + (row - 1) * side
    drawing.parts.append(f'<rect class="mark" x="{x0 - 2}" y="{top - 1}" width="{11 * side + 4}" height="{side + 2}" rx="5"/>')
    drawing.parts.append(
        f'<rect class="mark" x="{x0 + column * side - 1}" y="{y0 - 2}" width="{side + 2}" height="{10 * side + 4}" rx="5"/>'
    )
    drawing.arrow((x0 + 11 * side + 40, top + side / 2), (x0 + 11 * side + 6, top + side / 2), kind="thin")
    drawing.text(
        x0 + 11 * side + 46,
        top + side / 2 - 2,
        "row d: d reads p, a and b, but not itself, its sibling e,",
        kind="ink",
        anchor="start",
    )
    drawing.text(x0 + 11 * side + 46, top + side / 2 + 14, "or any node in another branch", kind="ink", anchor="start")
    bottom = y0 + 10 * side
    drawing.arrow((x0 + (column + 0.5) * side, bottom + 26), (x0 + (column + 0.5) * side, bottom + 5), kind="thin")
    drawing.text(
        x0 + column * side + 22,
        bottom + 30,
        "column a: only the losses of b, c, d and e reach e(a)",
        kind="ink",
        anchor="start",
    )
    key = x0 + 11 * side + 46
    for number, (kind, text) in enumerate(
        (("cell-read", "read"), ("cell-self", "the target itself: it never reads its clean text"))
    ):
        drawing.box(key, y0 + 6.2 * side + number * 24, 17, 17, kind=kind)
        drawing.text(key + 26, y0 + 6.2 * side + number * 24 + 13, text, kind="muted", anchor="start")
    return drawing


def controls() -> Drawing:
    """The nodes that comment d reads under each control."""
    across, down = PAGE / 4, height_of(W) + 62
    drawing = Drawing(PAGE, 2 * down, "The context of target d in evaluation: its ancestors, or one of six controls")
    target = NAMES.index("d")
    other = (-1, 0, 0, 1, 2, 2, 4, 4)
    """Another discussion; the control takes the ancestors of one of its comments, of equal depth."""
    stranger = 6
    for place, (name, note) in enumerate(
        (
            ("tree", "its ancestors"),
            ("parent", "its parent alone"),
            ("root", "the post alone"),
            ("none", "nothing: exact zeros"),
            ("null", "one learned row"),
            ("mismatched", "another tree's ancestors"),
            ("sibling-branch", "another branch's ancestors"),
        )
    ):
        top = place // 4 * down
        middle = (place % 4 + 0.5) * across
        x = middle - width_of(W) / 2
        drawing.text(middle, top + 14, name, kind="head", size=13)
        if name == "mismatched":
            path = []
            node = other[stranger]
            while node >= 0:
                path.append(node)
                node = other[node]
            labels = [" "] * len(other)
            draw_tree(drawing, middle - width_of(other) / 2, top + 26, read=path, labels=labels, parent=other)
            drawing.text(middle, top + 26 + height_of(W) - 2, "another tree", kind="muted", size=11)
        else:
            read = () if name == "null" else read_by(target, name)
            draw_tree(drawing, x, top + 26, read=read, targets=[target])
        if name == "null":
            below = top + 26 + 3 * STEP + 2 * RADIUS
            drawing.box(x - 4, below + 11, 27, 16, "∅", "read", size=11)
            drawing.arrow((x + RADIUS, below + 11), (x + RADIUS, below), kind="keys")
        drawing.text(middle, top + 26 + height_of(W) + 22, note, kind="muted", size=11.5)
    return drawing


def read_by(target: int, seen: str) -> list[int]:
    """Return the nodes that a target of W reads in whole-tree evaluation."""
    unit = _view(W, context=seen, regime="tree").example(0)
    row = unit.targets.tolist().index(target)
    return np.split(unit.context, np.cumsum(unit.context_lengths)[:-1])[row].tolist()


def two_phase() -> Drawing:
    """The three passes of a two-phase gradient; shaded boxes hold a graph."""
    drawing = Drawing(PAGE, 330, "The two-phase gradient: encode without a graph, decode in chunks, encode again with a graph")
    panel = PAGE / 3
    chunks = ("p a", "b f", "g h")
    losses = ("a b c", "d e f g", "h i j")

    def strip(x: float, y: float, name: str, kind: str) -> None:
        for number in range(6):
            drawing.box(x + number * 30, y, 28, 15, kind=kind)
        drawing.text(x + 184, y + 12, name, kind="ink", size=12, anchor="start")

    def row(x: float, y: float, texts: Sequence[str], held: int | None, kind: str) -> None:
        for number, text in enumerate(texts):
            drawing.box(x + number * 60, y, 56, 34, text, kind if held == number else "plain")

    titles = ("1  encode without a graph", "2  decode in chunks", "3  encode again, with a graph")
    for number, title in enumerate(titles):
        x = number * panel + 14
        drawing.text(x, 18, title, kind="head", size=13, anchor="start")
        if number:
            drawing.line((number * panel, 6), (number * panel, 262), kind="grid")
    # Pass 1
    x = 14
    strip(x, 62, "E", "row")
    for number in range(3):
        middle = x + 28 + number * 60
        drawing.arrow((middle, 176), (middle, 82), kind="keys")
        drawing.text(middle, 226, f"state {number + 1}", kind="muted", size=10.5)
    row(x, 176, chunks, None, "held")
    drawing.text(x + 90, 250, "the generator's state before", kind="muted", size=11)
    drawing.text(x + 90, 264, "each chunk is saved", kind="muted", size=11)
    # Pass 2
    x = panel + 14
    strip(x, 48, "E", "row")
    for number in range(3):
        drawing.arrow((x + 28 + number * 60, 66), (x + 82 + number * 6, 104), kind="keys-thin")
    row(x, 106, losses, 1, "held")
    drawing.text(x + 184, 127, "loss", kind="ink", anchor="start")
    drawing.arrow((x + 88, 142), (x + 88, 182), kind="back")
    strip(x, 186, "∂L/∂E", "gradient")
    drawing.text(x + 90, 250, "a chunk reads its context from E", kind="muted", size=11)
    drawing.text(x + 90, 264, "and adds its share of the gradient", kind="muted", size=11)
    # Pass 3
    x = 2 * panel + 14
    strip(x, 62, "∂L/∂E", "gradient")
    row(x, 136, chunks, 1, "held")
    drawing.arrow((x + 88, 80), (x + 88, 132), kind="back")
    drawing.arrow((x + 88, 172), (x + 88, 204), kind="back")
    drawing.text(x + 88, 220, "parameters", kind="ink", size=12)
    drawing.text(x + 90, 250, "chunk by chunk, from the saved", kind="muted", size=11)
    drawing.text(x + 90, 264, "generator state: same dropout", kind="muted", size=11)
    # Legend
    y = 300
    entries = (
        ("plain", "values only", 14),
        ("held", "graph is held", 140),
        ("row", "node vectors", 300),
        ("gradient", "their gradient", 430),
    )
    for kind, text, at in entries:
        drawing.box(at, y, 24, 14, kind=kind)
        drawing.text(at + 32, y + 11.5, text, kind="muted", size=11.5, anchor="start")
    drawing.arrow((560, y + 7), (584, y + 7), kind="back")
    drawing.text(592, y + 11.5, "gradient", kind="muted", size=11.5, anchor="start")
    return drawing


def linearisation() -> Drawing:
    """A function and its tangent at one point, whose slope a backward pass computes."""
    drawing = Drawing(420, 250, "tanh(exp(x) − 2) and its tangent at 0.5")
    formula, at = "tanh(exp(x) - 2)", 0.5

    def height(x: float) -> float:
        return read(formula, {"x": x}).output.item()

    graph = read(formula, {"x": at})
    graph.backward()
    slope = graph.inputs[0].gradient
    assert slope is not None

    def place(x: float, y: float) -> Point:
        return 210 + 100 * x, 125 - 90 * y

    drawing.line(place(-2, 0), place(2, 0), kind="grid")
    drawing.line(place(0, -1.2), place(0, 1.2), kind="grid")
    drawing.line(*(place(x, height(x)) for x in np.linspace(-2, 2, 121).tolist()), kind="keys")
    ends = [place(x, height(at) + slope.item() * (x - at)) for x in (-0.2, 1.2)]
    drawing.line(*ends, kind="back")
    drawing.circle(*place(at, height(at)), radius=4, kind="target")
    drawing.text(place(0.62, 0)[0], place(0, height(at))[1] + 14, f"slope {slope.item():.2f}", kind="muted", anchor="start")
    return drawing


DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "linearisation": linearisation,
    "model": model,
    "example": example,
    "worked-example": worked_example,
    "naive": naive,
    "threads": threads,
    "debiased": debiased,
    "tree": tree,
    "split-5": pieces(
        "W cut for M = 5",
        {
            "M = 5, packed": {"max_tree_size": 5},
            "M = 5, literal": {"max_tree_size": 5, "pack": False},
        },
    ),
    "split-4": pieces(
        "W cut for M = 4",
        {
            "M = 4, packed": {"max_tree_size": 4},
            "M = 4, literal": {"max_tree_size": 4, "pack": False},
        },
    ),
    "split-3": pieces(
        "W cut for M = 3",
        {
            "M = 3, packed, strict": {"max_tree_size": 3},
            "M = 3, soft": {"max_tree_size": 3, "pack": False, "bound": "soft"},
        },
    ),
    "split-1": pieces("W cut for M = 1, strict", {"M = 1, strict": {"max_tree_size": 1}}),
    "weighting": weighting,
    "bias": bias,
    "reads": reads,
    "controls": controls,
    "two-phase": two_phase,
}
TABLES: dict[str, Callable[[], str]] = {
    "runs": runs_table,
    "pieces": pieces_table,
    "multiplicity": multiplicity_table,
    "ternary": ternary_table,
    "weights": weights_table,
    "costs": cost_table,
    "closed-forms": closed_forms_table,
    "memory": memory_table,
}


def computation_graph() -> str:
    """Draw the course notes' example with the autograd engine."""
    formula = "(x + y) * x * (y * y)"
    graph = read(formula, {"x": 1.0, "y": 2.0})
    graph.backward()
    return as_svg(graph, formula)


def write(folder: Path = GENERATED) -> None:
    """Write all drawings and tables."""
    write_files(folder, DRAWINGS, TABLES, {"computation-graph.svg": computation_graph()})


def write_files(
    folder: Path,
    drawings: Mapping[str, Callable[[], Drawing]],
    tables: Mapping[str, Callable[[], str]],
    further: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write drawings, tables and further files. Unchanged files stay untouched, so Sphinx does not rebuild their pages."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {f"{name}.svg": draw().svg() for name, draw in drawings.items()}
    files |= {f"{name}.md": compute() for name, compute in tables.items()} | dict(further)
    for name, content in files.items():
        path = folder / name
        if not path.exists() or path.read_text("utf-8") != content:
            path.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    write()
