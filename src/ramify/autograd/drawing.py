"""A graph as a picture (SVG), and its two passes step by step as a page to click through (HTML)."""

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

MOST = 400
"""Nodes that a picture may have."""
HIGH = 54.0
MARGIN = 24.0
CHARACTER = 7.4
"""Width of one; pixels."""
BETWEEN = 76.0
"""Between two layers' boxes."""

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
    """A value in a few characters; of many numbers, how many they are."""
    if value is None:
        return ""
    if value.ndim == 0:
        return _number(value.item(), digits)
    if value.ndim == 1 and value.size <= 3:
        return f"[{', '.join(_number(each, min(digits, 12)) for each in value.tolist())}]"
    return f"{'×'.join(map(str, value.shape))} numbers"


def _number(number: Any, digits: int) -> str:
    if not is_finite(np.asarray(number)):
        return f"{float(number)}"
    mantissa, e, exponent = f"{number:.{digits}g}".partition("e")
    if "." in mantissa:
        # Decimals keep the zeros of their precision.
        mantissa = mantissa.rstrip("0").rstrip(".")
    return "0" if mantissa in ("0", "-0") else mantissa + e + exponent


def local_derivative(node: Tensor, slot: int, digits: int = 4) -> str:
    """What stands on the arc from a node's parent."""
    size = (*node.shape, *node.parents[slot].shape)
    if np.prod(size) > 3:
        return "×".join(map(str, size))
    return shown(local_jacobian(node, slot).reshape([each for each in size if each != 1]), digits)


def as_svg(graph: Graph, title: str) -> str:
    """Values and gradients at the nodes, local derivatives on the arcs.

    Raises:
        GraphError: there are too many nodes for a picture.
    """
    return _Picture(graph).draw(title, final=True)


class _Picture:
    def __init__(self, graph: Graph) -> None:
        if len(graph.nodes) > MOST:
            raise GraphError(f"a graph of {len(graph.nodes):,} nodes is too large to be drawn; up to {MOST} can be.")
        self.graph = graph
        self.layout = laid_out(graph)
        self.numbers = {node: number for number, node in enumerate(graph.nodes)}
        longest = max(len(text) for node in graph.nodes for text in (_title(node), shown(node.value), _z(node)))
        self.wide = CHARACTER * max(longest, 9) + 14

    def middle(self, spot: Spot) -> tuple[float, float]:
        return MARGIN + self.wide / 2 + spot.layer * (self.wide + BETWEEN), MARGIN + HIGH / 2 + spot.y

    def draw(self, title: str, *, final: bool) -> str:
        """`final`: as it is when both passes are over; else as before them."""
        spots = [self.middle(spot) for way in self.layout.arcs.values() for spot in way]
        spots += [self.middle(spot) for spot in self.layout.spots.values()]
        width = max(x for x, _ in spots) + self.wide / 2 + MARGIN
        height = max(y for _, y in spots) + HIGH / 2 + MARGIN
        size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
        drawn = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
            f"<title>{_text(title)}</title>",
            f"<style>{STYLE}</style>",
        ]
        for node in self.graph.nodes:
            drawn += self._arcs(node)
        for node in self.graph.nodes:
            drawn += self._node(node, final)
        return "\n".join([*drawn, "</svg>\n"])

    def _arcs(self, node: Tensor) -> Iterator[str]:
        """Curves from the right of the parents' boxes to the left of the node's, where each has a place of its own."""
        ways = {slot: self.layout.arcs[node, slot] for slot in range(len(node.parents))}
        from_above = sorted(ways, key=lambda slot: (ways[slot][-2].y, slot))
        for place, slot in enumerate(from_above):
            (start_x, start_y), *bends, (end_x, end_y) = (self.middle(spot) for spot in ways[slot])
            end_x -= self.wide / 2
            end_y += (place - (len(ways) - 1) / 2) * min(HIGH / len(ways), 22)
            points = [(start_x + self.wide / 2, start_y), *bends, (end_x - 7, end_y)]
            path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
            for (x, y), (to_x, to_y) in pairwise(points):
                between = (x + to_x) / 2
                path += f"C{between:.1f} {y:.1f} {between:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
            local = _text(local_derivative(node, slot))
            yield f'<path class="arc" id="a{self.numbers[node]}-{slot}" d="{path}"/>'
            yield f'<path class="tip" d="M{end_x:.1f} {end_y:.1f}l-8 -4v8z"/>'
            yield f'<text class="local" x="{end_x - 26:.1f}" y="{end_y - 4:.1f}">{local}</text>'

    def _node(self, node: Tensor, final: bool) -> Iterator[str]:
        (x, y), number = self.middle(self.layout.spots[node]), self.numbers[node]
        kind = "output" if node is self.graph.output else node.op if node.function is None else "inner"
        value = shown(node.value) if final or node.function is None else ""
        corner = f'x="{x - self.wide / 2:.1f}" y="{y - HIGH / 2:.1f}"'
        yield f'<g class="{kind}" id="n{number}"><title>{_text(_title(node, most=1000))}</title>'
        yield f'<rect class="box" {corner} width="{self.wide:.1f}" height="{HIGH:.0f}" rx="7"/>'
        yield f'<text class="from" x="{x:.1f}" y="{y - 13:.1f}">{_text(_title(node))}</text>'
        yield f'<text class="value" id="v{number}" x="{x:.1f}" y="{y + 3:.1f}">{_text(value)}</text>'
        z = _z(node) if final else ""
        yield f'<text class="gradient" id="z{number}" x="{x:.1f}" y="{y + 19:.1f}">{_text(z)}</text></g>'


def _text(text: str) -> str:
    """As the text of an element: XML knows no control characters."""
    return escape("".join(each if each.isprintable() else " " for each in text))


def _title(node: Tensor, most: int = 24) -> str:
    title = f"{node} = {write(node)}" if node.function else str(node)
    return title if len(title) <= most else title[: most - 1] + "…"


def _z(node: Tensor) -> str:
    return f"z = {shown(node.gradient)}"


# --- step by step ----------------------------------------------------------------------------------------------------------


def frames(graph: Graph) -> Iterator[dict[str, Any]]:
    """What each step of the two passes says, which texts of the picture it sets, and what it points at. The graph is gone
    through once more."""
    numbers = {node: number for number, node in enumerate(graph.nodes)}
    yield {"say": "The inputs have their values. Forward: every node after its parents.", "set": {}, "on": []}
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
    say = f"Backward: z of {graph.output}, the output, is 1: it is its own derivative. Every node before its parents."
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
        yield {"say": f"{node} hands on what it has: {parts}.", "set": texts, "on": [f"n{numbers[node]}", *arcs]}


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


def as_page(graph: Graph, title: str) -> str:
    """The picture, and buttons to go through both passes.

    Raises:
        GraphError: there are too many nodes for a picture.
    """
    picture = _Picture(graph)
    steps = list(frames(graph))
    # Some tags would end the script that the texts stand in.
    data = json.dumps(steps, ensure_ascii=False).replace("<", "\\u003c")
    return PAGE.format(title=_text(title), svg=picture.draw(title, final=False), frames=data)
