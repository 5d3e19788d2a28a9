"""Draw a graph as a picture (SVG), and its two passes as a page with one step per click (HTML)."""

import json
from collections.abc import Iterator, Sequence
from enum import Enum
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np

from ramify.autograd.derivatives import local_jacobian
from ramify.autograd.errors import GraphError
from ramify.autograd.expression import new_name, write
from ramify.autograd.graph import Graph
from ramify.autograd.layout import laid_out
from ramify.autograd.tensor import Tensor
from ramify.autograd.values import Array, is_finite

MAX_NODES = 400
"""The largest number of nodes that a picture may have."""
MOST_SHOWN = 3
"""Most rows and columns of an array that is shown by its numbers."""
DIGITS = 6
ARRAY_DIGITS = 3
"""Digits of the numbers of an array in a picture."""
MARGIN = 24.0
"""In pixels, like all sizes below."""
LINE_HEIGHT = 16.0
CHARACTER_WIDTH = 7.4
LABEL_LINE_HEIGHT = 13.0
LABEL_CHARACTER_WIDTH = 6.8
BOX_GAP = 20.0
"""Distance between the boxes of a layer."""
CURVE_ROOM = 52.0
"""Room between two layers where arcs curve. They are straight where their labels stand."""
TIP = 9.0
MIN_SCALE = 0.75
"""A page on which the picture would become smaller shows it with arcs downwards."""

RULES = """
svg {{ font: 12px ui-monospace, Menlo, Consolas, monospace; background: {paper}; }}
.box {{ fill: {paper}; stroke: {edge}; stroke-width: 1.2; }}
.input .box {{ fill: {input}; }} .const .box {{ fill: {const}; }} .output .box {{ stroke-width: 2.6; }}
.on .box {{ fill: {on}; }}
.arc {{ fill: none; stroke: {line}; stroke-width: 1.2; }}
.tip {{ fill: {line}; }}
.arc.on {{ stroke: {gradient}; stroke-width: 2.2; }} .arc.on + .tip {{ fill: {gradient}; }}
text {{ text-anchor: middle; fill: {ink}; }}
.from {{ fill: {muted}; }} .value {{ font-weight: 600; }} .gradient {{ fill: {gradient}; }}
.value.pending, .gradient.pending {{ fill: {muted}; font-weight: 400; font-style: italic; }}
.local {{ fill: {local}; font-size: 11px; }} .down .local {{ text-anchor: start; }}
"""
LIGHT = {
    "paper": "#fff",
    "ink": "#222",
    "muted": "#546e7a",
    "edge": "#37474f",
    "line": "#78909c",
    "input": "#e8f1fb",
    "const": "#f3f3f3",
    "on": "#fff3c4",
    "gradient": "#b3261e",
    "local": "#6a4fa3",
}
DARK = {
    "paper": "#15181c",
    "ink": "#e8eaed",
    "muted": "#9fb3bd",
    "edge": "#90a4ae",
    "line": "#78909c",
    "input": "#1b2c40",
    "const": "#262a2e",
    "on": "#4a3f10",
    "gradient": "#ff8a80",
    "local": "#c5b3ff",
}
STYLE = f"{RULES.format(**LIGHT)}@media (prefers-color-scheme: dark) {{{RULES.format(**DARK)}}}\n"


class Direction(Enum):
    """The way arcs run."""

    RIGHT = "right"
    DOWN = "down"


def shown(value: Array | None, digits: int = DIGITS) -> str:
    """A value in a few characters; an array with an axis longer than 3 is shown by its shape, such as `4×2 numbers`."""
    if value is None:
        return ""
    if value.ndim == 0:
        return _number(value.item(), digits)
    if value.ndim > 2 or not 0 < min(value.shape) <= max(value.shape) <= MOST_SHOWN:
        return f"{'×'.join(map(str, value.shape))} numbers"
    if value.ndim == 1:
        return f"[{', '.join(_number(number, min(digits, 12)) for number in value.tolist())}]"
    return f"[{', '.join(shown(row, min(digits, DIGITS)) for row in value)}]"


def _number(number: Any, digits: int) -> str:
    if not is_finite(np.asarray(number)):
        return f"{float(number)}"
    mantissa, e, exponent = f"{number:.{digits}g}".partition("e")
    if "." in mantissa:
        # Decimals keep trailing zeros up to their precision.
        mantissa = mantissa.rstrip("0").rstrip(".")
    return "0" if mantissa in ("0", "-0") else mantissa + e + exponent


def _shown(value: Array | None) -> str:
    """A value in a picture or in a sentence beside it."""
    return shown(value, ARRAY_DIGITS if value is not None and value.ndim else DIGITS)


def local_derivative(node: Tensor, slot: int, max_axes: int = 2) -> str:
    """The derivative on the arc from parent number `slot`, or its shape if it is large or has more axes."""
    size = (*node.shape, *node.parents[slot].shape)
    axes = [length for length in size if length != 1]
    if len(axes) > max_axes or max(axes, default=1) > MOST_SHOWN or 0 in axes:
        return "×".join(map(str, size))
    return shown(local_jacobian(node, slot).reshape(axes), ARRAY_DIGITS)


def as_svg(graph: Graph[Tensor], title: str) -> str:
    """An SVG with values and gradients at the nodes and local derivatives on the arcs.

    Raises:
        GraphError: the graph has more than `MAX_NODES` nodes.
    """
    return _Picture(graph, Direction.RIGHT).draw(title, final=True)


class _Picture:
    """The boxes, arcs and labels of a graph. `prefix` begins every id.

    Positions are (along, across): arcs run along, layers stretch across. In a picture downwards, along is y.
    """

    def __init__(self, graph: Graph[Tensor], direction: Direction, prefix: str = "") -> None:
        if len(graph.nodes) > MAX_NODES:
            raise GraphError(f"a graph of {len(graph.nodes):,} nodes is too large to draw. Draw at most {MAX_NODES} nodes.")
        self.graph = graph
        self.is_down = direction is Direction.DOWN
        self.prefix = prefix
        self.numbers = {node: number for number, node in enumerate(graph.nodes)}
        # Arcs side by side leave less room for a matrix than arcs on top of each other.
        max_axes = 1 if self.is_down else 2
        self.labels = {
            (node, slot): _lines(local_derivative(node, slot, max_axes))
            for node in graph.nodes
            for slot in range(len(node.parents))
        }
        label_lines = list(self.labels.values()) or [[""]]
        self.label_width = LABEL_CHARACTER_WIDTH * max(len(line) for lines in label_lines for line in lines)
        self.label_height = LABEL_LINE_HEIGHT * max(map(len, label_lines))
        values = [_lines(text) for node in graph.nodes for text in (_shown(node.value), _z(node))]
        value_lines = max(map(len, values))
        longest = max(len(line) for lines in (*values, *([_title(node)] for node in graph.nodes)) for line in lines)
        most_parents = max(len(node.parents) for node in graph.nodes)
        # A line and its label stand side by side before the box that they enter, downwards, or on top of each other.
        self.step = (self.label_width if self.is_down else self.label_height) + 8
        self.box_width = max(CHARACTER_WIDTH * max(longest, 9) + 14, self.step * most_parents * self.is_down)
        self.box_height = max(22 + 2 * LINE_HEIGHT * value_lines, self.step * most_parents * (not self.is_down))
        self.long, self.wide = (self.box_height, self.box_width) if self.is_down else (self.box_width, self.box_height)
        self.straight = TIP + 6 + (self.label_height if self.is_down else self.label_width)
        self.layout = laid_out(graph, self.wide + BOX_GAP, inputs_first=not self.is_down)
        spots = [*self.layout.spots.values(), *(spot for path in self.layout.arcs.values() for spot in path)]
        along = 2 * MARGIN + self.long + max(spot.layer for spot in spots) * self.layer_distance
        across = 2 * MARGIN + self.wide + max(spot.across for spot in spots)
        self.width, self.height = self.point(along, across)

    @property
    def layer_distance(self) -> float:
        return self.long + CURVE_ROOM + self.straight

    def point(self, along: float, across: float) -> tuple[float, float]:
        return (across, along) if self.is_down else (along, across)

    def middle(self, layer: int, across: float) -> tuple[float, float]:
        """(along, across) of a spot."""
        return MARGIN + self.long / 2 + layer * self.layer_distance, MARGIN + self.wide / 2 + across

    def draw(self, title: str, *, final: bool) -> str:
        """Draw the state after both passes if `final`, else before them: with values that are pending and gradients of 0."""
        size = f'viewBox="0 0 {self.width:.0f} {self.height:.0f}" width="{self.width:.0f}" height="{self.height:.0f}"'
        kind = "down" if self.is_down else "right"
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" {size}>',
            f"<title>{_text(title)}</title>",
            f"<style>{STYLE}</style>",
        ]
        for node in self.graph.nodes:
            lines += self._arcs(node)
        for node in self.graph.nodes:
            lines += self._node(node, final)
        return "\n".join([*lines, "</svg>\n"])

    def _arcs(self, node: Tensor) -> Iterator[str]:
        """Curves from each parent's box to the node's, which they enter in the order of the parents' places."""
        paths = {slot: self.layout.arcs[node, slot] for slot in range(len(node.parents))}
        in_order = sorted(paths, key=lambda slot: (paths[slot][-2].across, slot))
        for number, slot in enumerate(in_order):
            places = [self.middle(spot.layer, spot.across) for spot in paths[slot]]
            enters = places[-1][1] + (number - (len(paths) - 1) / 2) * self.step
            # The line and its label are centred together.
            enters += -self.label_width / 2 - 2 if self.is_down else self.label_height / 2
            end = places[-1][0] - self.long / 2
            crossings = [*((along, across) for along, across in places[:-1]), (places[-1][0], enters)]
            path = ""
            for (along, across), (to_along, to_across) in pairwise(crossings):
                start = along + self.long / 2
                bend, stop = start + CURVE_ROOM, to_along - self.long / 2
                start_point, *controls = (
                    self.point(*point)
                    for point in (
                        (start, across),
                        (start + CURVE_ROOM / 2, across),
                        (start + CURVE_ROOM / 2, to_across),
                        (bend, to_across),
                    )
                )
                path += ("L" if path else "M") + "{:.1f} {:.1f}".format(*start_point)
                path += "C" + " ".join("{:.1f} {:.1f}".format(*point) for point in controls)
                path += "L{:.1f} {:.1f}".format(*self.point(stop - (TIP - 1) * (stop == end), to_across))
            name = f"{self.prefix}a{self.numbers[node]}-{slot}"
            yield f'<path class="arc" id="{name}" d="{path}"/>'
            x, y = self.point(end, enters)
            yield f'<path class="tip" d="M{x:.1f} {y:.1f}l{"-4 -8h8z" if self.is_down else "-8 -4v8z"}"/>'
            lines = self.labels[node, slot]
            if self.is_down:
                x, y = x + 6, y - TIP - LABEL_LINE_HEIGHT * (len(lines) - 1) - 3
            else:
                x, y = x - TIP - self.label_width / 2, y - 5 - LABEL_LINE_HEIGHT * (len(lines) - 1)
            yield _text_element("local", "", x, y, lines, LABEL_LINE_HEIGHT, len(lines))

    def _node(self, node: Tensor, final: bool) -> Iterator[str]:
        spot, number = self.layout.spots[node], self.numbers[node]
        x, y = self.point(*self.middle(spot.layer, spot.across))
        kind = "output" if node is self.graph.output else node.op if node.function is None else "inner"
        corner = f'x="{x - self.box_width / 2:.1f}" y="{y - self.box_height / 2:.1f}"'
        yield f'<g class="{kind}" id="{self.prefix}n{number}"><title>{_text(_title(node, max_length=1000))}</title>'
        yield f'<rect class="box" {corner} width="{self.box_width:.1f}" height="{self.box_height:.1f}" rx="7"/>'
        value = _lines(_shown(node.value))
        y -= LINE_HEIGHT * (len(value) - 1)
        yield f'<text class="from" x="{x:.1f}" y="{y - 13:.1f}">{_text(_title(node))}</text>'
        is_pending = " pending" if node.function and not final else ""
        yield _text_element(f"value{is_pending}", f"{self.prefix}v{number}", x, y + 3, value, LINE_HEIGHT, len(value))
        y += LINE_HEIGHT * len(value)
        z, is_pending = (_lines(_z(node)), "") if final else (["z = 0"], " pending")
        yield _text_element(f"gradient{is_pending}", f"{self.prefix}z{number}", x, y + 3, z, LINE_HEIGHT, len(value))
        yield "</g>"


def _text_element(kind: str, name: str, x: float, y: float, lines: Sequence[str], height: float, room: int) -> str:
    """A text of several lines has one element per line, `room` of them."""
    identity = f' id="{name}"' if name else ""
    start = f'<text class="{kind}"{identity} x="{x:.1f}" y="{y:.1f}">'
    if room == 1:
        return f"{start}{_text(lines[0])}</text>"
    filled = [*lines, *[""] * (room - len(lines))]
    spans = (f'<tspan x="{x:.1f}" y="{y + number * height:.1f}">{_text(line)}</tspan>' for number, line in enumerate(filled))
    return f"{start}{''.join(spans)}</text>"


def _lines(text: str) -> list[str]:
    """The rows of a matrix on lines of their own."""
    return text.replace("], [", "],\n[").split("\n")


def _text(text: str) -> str:
    """Escape a text for an XML element. Control characters, which XML forbids, become spaces."""
    return escape("".join(character if character.isprintable() else " " for character in text))


def _title(node: Tensor, max_length: int = 24) -> str:
    title = f"{node} = {write(node)}" if node.function else str(node)
    return title if len(title) <= max_length else title[: max_length - 1] + "…"


def _z(node: Tensor) -> str:
    return f"z = {_shown(node.gradient)}"


# --- step by step ----------------------------------------------------------------------------------------------------------


def frames(graph: Graph[Tensor]) -> Iterator[dict[str, Any]]:
    """For each step of the two passes: its sentence (`say`), the picture's texts that it sets (`set`) and the elements that it
    highlights (`on`). Both passes run again."""
    numbers = {node: number for number, node in enumerate(graph.nodes)}
    given = {f"v{numbers[node]}": _shown(node.value) for node in graph.nodes if not node.function}
    say = (
        "The inputs have their values, and every gradient slot holds 0. "
        "The forward pass computes the values in italics, every node after its parents."
    )
    yield {"say": say, "set": given, "on": []}
    for node in graph.forward_steps():
        if node.function:
            values = " and ".join(f"{parent} = {_shown(parent.value)}" for parent in dict.fromkeys(node.parents))
            arcs = [f"a{numbers[node]}-{slot}" for slot in range(len(node.parents))]
            yield {
                "say": f"{node} = {write(node)} = {_shown(node.value)}, from {values}.",
                "set": {f"v{numbers[node]}": _shown(node.value)},
                "on": [f"n{numbers[node]}", *arcs],
            }
    steps = graph.backward_steps()
    last = numbers[graph.output]
    say = f"The backward pass starts with z = 1 at the output {graph.output}. It visits every node before its parents."
    yield {"say": say, "set": {f"z{last}": _z(graph.output)}, "on": [f"n{last}"]}
    for node in steps:
        texts = {f"z{numbers[node]}": _z(node)}
        if not node.function:
            say = f"{node} is done: ∂{graph.output}/∂{node} = {_shown(node.gradient)}."
            yield {"say": say, "set": texts, "on": [f"n{numbers[node]}"]}
            continue
        for parent in node.parents:
            texts[f"z{numbers[parent]}"] = _z(parent)
        parts = "; ".join(
            f"{parent} gets {_shown(node.gradient)} · {local_derivative(node, slot)}"
            for slot, parent in enumerate(node.parents)
        )
        arcs = [f"a{numbers[node]}-{slot}" for slot in range(len(node.parents))]
        yield {"say": f"{node} passes its gradient to its parents: {parts}.", "set": texts, "on": [f"n{numbers[node]}", *arcs]}


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="generator" content="Ramify"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 110rem; padding: 0 1rem; }}
body {{ color: #222; background: #fff; }}
h1 {{ font: 600 1.3rem ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }}
#controls {{ display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; }}
#say {{ min-height: 3em; overflow-wrap: anywhere; }} @media (max-width: 40rem) {{ #say {{ min-height: 4.5em; }} }}
#picture svg {{ display: block; max-width: 100%; height: auto; margin: 0 auto; }}
#picture.full {{ overflow: auto; }} #picture.full svg {{ max-width: none; }}
#picture svg.down {{ display: none; }}
@media (max-width: {turn:.0f}px) {{ #picture svg.right {{ display: none; }} #picture svg.down {{ display: block; }} }}
button {{ font: inherit; padding: .3rem .9rem; }} input {{ vertical-align: middle; }} input[type=range] {{ max-width: 9rem; }}
@media (prefers-color-scheme: dark) {{ body {{ color: #e8eaed; background: #15181c; }} }}
</style>
<h1>{title}</h1>
<p id="controls"><span><button id="back">← back</button> <button id="next">next →</button></span>
<label>step <input id="at" type="range" min="0" value="0"> <output id="count"></output></label>
<label><input id="full" type="checkbox"> full size</label></p>
<p id="say" aria-live="polite"></p>
<div id="picture">{right}{down}</div>
<script>
const frames = {frames};
const at = document.getElementById("at"), say = document.getElementById("say"), full = document.getElementById("full");
const both = id => [document.getElementById(id), document.getElementById("d" + id)];
const texts = element => element.children.length ? [...element.children] : [element];
const read = element => texts(element).map(line => line.textContent).join(" ");
const changing = document.querySelectorAll("svg.right .value, svg.right .gradient");
const first = Object.fromEntries([...changing].map(element => [element.id, read(element)]));
at.max = frames.length - 1;
function show() {{
  const step = Number(at.value), set = Object.assign({{}}, ...frames.slice(0, step + 1).map(frame => frame.set));
  for (const id in first) for (const element of both(id)) {{
    const lines = (set[id] ?? first[id]).replaceAll("], [", "],\\n[").split("\\n");
    texts(element).forEach((line, number) => line.textContent = lines[number] ?? "");
    element.classList.toggle("pending", !(id in set));
  }}
  document.querySelectorAll("svg .on").forEach(e => e.classList.remove("on"));
  frames[step].on.flatMap(both).forEach(e => e.classList.add("on"));
  say.textContent = frames[step].say;
  document.getElementById("count").textContent = `${{step}} of ${{frames.length - 1}}`;
}}
function go(by) {{ at.value = Number(at.value) + by; show(); }}
document.getElementById("back").onclick = () => go(-1);
document.getElementById("next").onclick = () => go(1);
at.oninput = show;
full.onchange = () => document.getElementById("picture").classList.toggle("full", full.checked);
document.onkeydown = e => {{ if (e.target !== at) go((e.key === "ArrowRight") - (e.key === "ArrowLeft")); }};
show();
</script>
</html>
"""


def as_page(graph: Graph[Tensor], title: str) -> str:
    """An HTML page with the picture and controls to step through both passes. The graph keeps its state.

    The picture fits the screen: on narrow ones, arcs run downwards.

    Raises:
        GraphError: the graph has more than `MAX_NODES` nodes, or its output is not a single number.
    """
    return _page(_copy(graph), title)[0]


def as_frame(graph: Graph[Any]) -> str:
    """The page in a frame of its own, for notebooks.

    Raises:
        GraphError: as for `as_page`.
    """
    copy = _copy(graph)
    page, height = _page(copy, _title(copy.output, max_length=1000))
    style = f"width:100%;height:{height + 260:.0f}px;border:0"
    return f'<iframe title="computation graph" sandbox="allow-scripts" style="{style}" srcdoc="{escape(page)}"></iframe>'


def _page(graph: Graph[Tensor], title: str) -> tuple[str, float]:
    """The page, and the height of its wider picture. Both passes run."""
    with np.errstate(all="ignore"):
        graph.forward()
        graph.backward()
        right, down = _Picture(graph, Direction.RIGHT), _Picture(graph, Direction.DOWN, prefix="d")
        pictures = {"right": right.draw(title, final=False), "down": down.draw(title, final=False)}
        steps = list(frames(graph))
    # A tag in a text could end the script element around the data.
    data = json.dumps(steps, ensure_ascii=False).replace("<", "\\u003c")
    # 32 pixels are the margins of the page's body.
    turn = MIN_SCALE * right.width + 32 if down.width < right.width else 0
    return PAGE.format(title=_text(title), turn=turn, frames=data, **pictures), right.height


def _copy(graph: Graph[Any]) -> Graph[Tensor]:
    """The same nodes, with names and passes of their own."""
    copies: dict[Any, Tensor] = {}
    taken = {node.name for node in graph.nodes}
    for node in graph.nodes:
        name = node.name or new_name(len(copies) + 1, taken)
        copies[node] = Tensor(0, name, is_constant=node.is_constant)
        copies[node].value, copies[node].function = node.value, node.function
        copies[node].parents = tuple(copies[parent] for parent in node.parents)
    return Graph(copies[graph.output], inputs=[copies[node] for node in graph.inputs])
