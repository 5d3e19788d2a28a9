"""Draw a graph as a picture (SVG), and its two passes as a page with one step per click (HTML)."""

import json
from collections.abc import Iterator
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np

from ramify.autograd.derivatives import local_jacobian
from ramify.autograd.errors import GraphError
from ramify.autograd.expression import write
from ramify.autograd.graph import Graph
from ramify.autograd.layout import Spot, laid_out
from ramify.autograd.tensor import Tensor
from ramify.autograd.values import Array, is_finite

MAX_NODES = 400
"""The largest number of nodes that a picture may have."""
BOX_HEIGHT = 54.0
"""In pixels, like all sizes below."""
MARGIN = 24.0
CHARACTER_WIDTH = 7.4
LAYER_GAP = 76.0
"""Horizontal distance between the boxes of neighbouring layers."""

STYLE = """
svg { font: 12px ui-monospace, Menlo, Consolas, monospace; }
.box { fill: #fff; stroke: #37474f; stroke-width: 1.2; }
.input .box { fill: #e8f1fb; } .const .box { fill: #f3f3f3; } .output .box { stroke-width: 2.6; }
.on .box { fill: #fff3c4; }
.arc { fill: none; stroke: #78909c; stroke-width: 1.2; }
.tip { fill: #78909c; }
.arc.on { stroke: #b3261e; stroke-width: 2.2; }
text { text-anchor: middle; fill: #222; }
.from { fill: #546e7a; } .value { font-weight: 600; } .gradient { fill: #b3261e; }
.local { fill: #6a4fa3; font-size: 11px; paint-order: stroke; stroke: #fff; stroke-width: 4px; }
"""


def shown(value: Array | None, digits: int = 6) -> str:
    """A value in a few characters; a larger array is shown by its shape, such as `4×2 numbers`."""
    if value is None:
        return ""
    if value.ndim == 0:
        return _number(value.item(), digits)
    if value.ndim == 1 and value.size <= 3:
        return f"[{', '.join(_number(number, min(digits, 12)) for number in value.tolist())}]"
    return f"{'×'.join(map(str, value.shape))} numbers"


def _number(number: Any, digits: int) -> str:
    if not is_finite(np.asarray(number)):
        return f"{float(number)}"
    mantissa, e, exponent = f"{number:.{digits}g}".partition("e")
    if "." in mantissa:
        # Decimals keep trailing zeros up to their precision.
        mantissa = mantissa.rstrip("0").rstrip(".")
    return "0" if mantissa in ("0", "-0") else mantissa + e + exponent


def local_derivative(node: Tensor, slot: int, digits: int = 4) -> str:
    """The label of the arc from parent number `slot`: the derivative, or its shape if it has more than three numbers."""
    size = (*node.shape, *node.parents[slot].shape)
    if np.prod(size) > 3:
        return "×".join(map(str, size))
    return shown(local_jacobian(node, slot).reshape([length for length in size if length != 1]), digits)


def as_svg(graph: Graph[Tensor], title: str) -> str:
    """An SVG with values and gradients at the nodes and local derivatives on the arcs.

    Raises:
        GraphError: the graph has more than `MAX_NODES` nodes.
    """
    return _Picture(graph).draw(title, final=True)


class _Picture:
    def __init__(self, graph: Graph[Tensor]) -> None:
        if len(graph.nodes) > MAX_NODES:
            raise GraphError(f"a graph of {len(graph.nodes):,} nodes is too large to draw. Draw at most {MAX_NODES} nodes.")
        self.graph = graph
        self.layout = laid_out(graph)
        self.numbers = {node: number for number, node in enumerate(graph.nodes)}
        longest = max(len(text) for node in graph.nodes for text in (_title(node), shown(node.value), _z(node)))
        self.box_width = CHARACTER_WIDTH * max(longest, 9) + 14

    def middle(self, spot: Spot) -> tuple[float, float]:
        return MARGIN + self.box_width / 2 + spot.layer * (self.box_width + LAYER_GAP), MARGIN + BOX_HEIGHT / 2 + spot.y

    def draw(self, title: str, *, final: bool) -> str:
        """Draw the state after both passes if `final`, else the state before them."""
        spots = [self.middle(spot) for path in self.layout.arcs.values() for spot in path]
        spots += [self.middle(spot) for spot in self.layout.spots.values()]
        width = max(x for x, _ in spots) + self.box_width / 2 + MARGIN
        height = max(y for _, y in spots) + BOX_HEIGHT / 2 + MARGIN
        size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
            f"<title>{_text(title)}</title>",
            f"<style>{STYLE}</style>",
        ]
        for node in self.graph.nodes:
            lines += self._arcs(node)
        for node in self.graph.nodes:
            lines += self._node(node, final)
        return "\n".join([*lines, "</svg>\n"])

    def _arcs(self, node: Tensor) -> Iterator[str]:
        """Curves from the right edge of each parent's box to the left edge of the node's, ordered by the parents' heights."""
        paths = {slot: self.layout.arcs[node, slot] for slot in range(len(node.parents))}
        top_down = sorted(paths, key=lambda slot: (paths[slot][-2].y, slot))
        for number, slot in enumerate(top_down):
            (start_x, start_y), *bends, (end_x, end_y) = (self.middle(spot) for spot in paths[slot])
            end_x -= self.box_width / 2
            end_y += (number - (len(paths) - 1) / 2) * min(BOX_HEIGHT / len(paths), 22)
            points = [(start_x + self.box_width / 2, start_y), *bends, (end_x - 7, end_y)]
            curve = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
            for (x, y), (to_x, to_y) in pairwise(points):
                middle = (x + to_x) / 2
                curve += f"C{middle:.1f} {y:.1f} {middle:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
            local = _text(local_derivative(node, slot))
            yield f'<path class="arc" id="a{self.numbers[node]}-{slot}" d="{curve}"/>'
            yield f'<path class="tip" d="M{end_x:.1f} {end_y:.1f}l-8 -4v8z"/>'
            yield f'<text class="local" x="{end_x - 26:.1f}" y="{end_y - 4:.1f}">{local}</text>'

    def _node(self, node: Tensor, final: bool) -> Iterator[str]:
        (x, y), number = self.middle(self.layout.spots[node]), self.numbers[node]
        kind = "output" if node is self.graph.output else node.op if node.function is None else "inner"
        value = shown(node.value) if final or node.function is None else ""
        corner = f'x="{x - self.box_width / 2:.1f}" y="{y - BOX_HEIGHT / 2:.1f}"'
        yield f'<g class="{kind}" id="n{number}"><title>{_text(_title(node, max_length=1000))}</title>'
        yield f'<rect class="box" {corner} width="{self.box_width:.1f}" height="{BOX_HEIGHT:.0f}" rx="7"/>'
        yield f'<text class="from" x="{x:.1f}" y="{y - 13:.1f}">{_text(_title(node))}</text>'
        yield f'<text class="value" id="v{number}" x="{x:.1f}" y="{y + 3:.1f}">{_text(value)}</text>'
        z = _z(node) if final else ""
        yield f'<text class="gradient" id="z{number}" x="{x:.1f}" y="{y + 19:.1f}">{_text(z)}</text></g>'


def _text(text: str) -> str:
    """Escape a text for an XML element. Control characters, which XML forbids, become spaces."""
    return escape("".join(character if character.isprintable() else " " for character in text))


def _title(node: Tensor, max_length: int = 24) -> str:
    title = f"{node} = {write(node)}" if node.function else str(node)
    return title if len(title) <= max_length else title[: max_length - 1] + "…"


def _z(node: Tensor) -> str:
    return f"z = {shown(node.gradient)}"


# --- step by step ----------------------------------------------------------------------------------------------------------


def frames(graph: Graph[Tensor]) -> Iterator[dict[str, Any]]:
    """For each step of the two passes: its sentence (`say`), the picture's texts that it sets (`set`) and the elements that it
    highlights (`on`). Both passes run again."""
    numbers = {node: number for number, node in enumerate(graph.nodes)}
    yield {"say": "The inputs have their values. The forward pass computes every node after its parents.", "set": {}, "on": []}
    for node in graph.forward_steps():
        if node.function:
            given = " and ".join(f"{parent} = {shown(parent.value)}" for parent in dict.fromkeys(node.parents))
            arcs = [f"a{numbers[node]}-{slot}" for slot in range(len(node.parents))]
            yield {
                "say": f"{node} = {write(node)} = {shown(node.value)}, from {given}.",
                "set": {f"v{numbers[node]}": shown(node.value)},
                "on": [f"n{numbers[node]}", *arcs],
            }
    steps = graph.backward_steps()
    last = numbers[graph.output]
    say = f"The backward pass starts with z = 1 at the output {graph.output}. It visits every node before its parents."
    yield {"say": say, "set": {f"z{last}": _z(graph.output)}, "on": [f"n{last}"]}
    for node in steps:
        texts = {f"z{numbers[node]}": _z(node)}
        if not node.function:
            say = f"{node} is done: ∂{graph.output}/∂{node} = {shown(node.gradient)}."
            yield {"say": say, "set": texts, "on": [f"n{numbers[node]}"]}
            continue
        for parent in node.parents:
            texts[f"z{numbers[parent]}"] = _z(parent)
        parts = "; ".join(
            f"{parent} gets {shown(node.gradient)} · {local_derivative(node, slot)}" for slot, parent in enumerate(node.parents)
        )
        arcs = [f"a{numbers[node]}-{slot}" for slot in range(len(node.parents))]
        yield {"say": f"{node} passes its gradient to its parents: {parts}.", "set": texts, "on": [f"n{numbers[node]}", *arcs]}


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem; color: #222; }}
h1 {{ font: 600 1.3rem ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }}
#say {{ min-height: 3em; }} #picture {{ overflow-x: auto; }}
button {{ font: inherit; padding: .3rem .9rem; }} label {{ margin-left: 1rem; }}
</style>
<h1>{title}</h1>
<p><button id="back">← back</button> <button id="next">next →</button>
<label>step <input id="at" type="range" min="0" value="0"> <output id="count"></output></label></p>
<p id="say" aria-live="polite"></p>
<div id="picture">{svg}</div>
<script>
const frames = {frames};
const at = document.getElementById("at"), say = document.getElementById("say");
const first = Object.fromEntries([...document.querySelectorAll("svg .value, svg .gradient")].map(e => [e.id, e.textContent]));
at.max = frames.length - 1;
function show() {{
  const step = Number(at.value), texts = {{...first}};
  for (const frame of frames.slice(0, step + 1)) Object.assign(texts, frame.set);
  for (const id in texts) document.getElementById(id).textContent = texts[id];
  document.querySelectorAll("svg .on").forEach(e => e.classList.remove("on"));
  frames[step].on.forEach(id => document.getElementById(id).classList.add("on"));
  say.textContent = frames[step].say;
  document.getElementById("count").textContent = `${{step}} of ${{frames.length - 1}}`;
}}
function go(by) {{ at.value = Number(at.value) + by; show(); }}
document.getElementById("back").onclick = () => go(-1);
document.getElementById("next").onclick = () => go(1);
at.oninput = show;
document.onkeydown = e => {{ if (e.target !== at) go((e.key === "ArrowRight") - (e.key === "ArrowLeft")); }};
show();
</script>
</html>
"""


def as_page(graph: Graph[Tensor], title: str) -> str:
    """An HTML page with the picture and controls to step through both passes.

    Raises:
        GraphError: the graph has more than `MAX_NODES` nodes.
    """
    picture = _Picture(graph)
    steps = list(frames(graph))
    # A tag in a text could end the script element around the data.
    data = json.dumps(steps, ensure_ascii=False).replace("<", "\\u003c")
    return PAGE.format(title=_text(title), svg=picture.draw(title, final=False), frames=data)
