"""Pictures of graphs are complete and without overlaps, and a page shows both passes."""

import json
import re
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest

from ramify.autograd import GraphError, Tensor
from ramify.autograd.drawing import MAX_NODES, as_page, as_svg, frames, shown
from ramify.autograd.expression import read
from ramify.autograd.graph import Graph

SVG = "{http://www.w3.org/2000/svg}"
SLIDE = "(x + y) * x * (y * y)"


def graph_of(text, **values):
    graph = read(text, values)
    graph.output.backward()
    return graph


def texts(root, kind):
    return [each.text for each in root.iter(f"{SVG}text") if each.get("class") == kind]


def test_values_gradients_and_local_derivatives():
    root = ElementTree.fromstring(as_svg(graph_of(SLIDE, x=1, y=2), SLIDE))
    assert root.findtext(f"{SVG}title") == SLIDE
    assert texts(root, "from") == ["x", "y", "v3 = x + y", "v4 = v3 * x", "v5 = y * y", "v6 = v4 * v5"]
    assert texts(root, "value") == ["1", "2", "3", "3", "4", "12"]
    assert texts(root, "gradient") == [f"z = {z}" for z in (16, 16, 4, 4, 3, 1)]
    assert sorted(texts(root, "local")) == sorted(["1", "1", "1", "3", "2", "2", "4", "3"])
    arcs = [each.get("id") for each in root.iter(f"{SVG}path") if each.get("class") == "arc"]
    assert sorted(map(str, arcs)) == ["a2-0", "a2-1", "a3-0", "a3-1", "a4-0", "a4-1", "a5-0", "a5-1"]


@pytest.mark.parametrize(
    "text", [SLIDE, "x", "h = tanh(2*x + y); (h*y + 3 - x)**2 + h*h + x", "+".join(["x*y"] * 20), "-" * 30 + "x + y"]
)
def test_boxes_do_not_overlap_and_are_in_order(text):
    graph = graph_of(text, x=0.5, y=2)
    root = ElementTree.fromstring(as_svg(graph, text))
    _, _, width, height = map(float, str(root.get("viewBox")).split())
    boxes = [[float(box.get(each, "nan")) for each in ("x", "y", "width", "height")] for box in root.iter(f"{SVG}rect")]
    assert len(boxes) == len(graph.nodes)
    for x, y, wide, high in boxes:
        assert 0 <= x <= x + wide <= width
        assert 0 <= y <= y + high <= height
    for (x, y, wide, high), (other_x, other_y, _, _) in combinations(boxes, 2):
        assert abs(x - other_x) >= wide or abs(y - other_y) >= high
    place = dict(zip(graph.nodes, boxes, strict=True))
    assert all(place[parent][0] < place[node][0] for node in graph.nodes for parent in node.parents)


def test_inputs_are_drawn_in_order():
    graph = graph_of("(x + y) * x * y**2", x=1, y=2)
    root = ElementTree.fromstring(as_svg(graph, ""))
    first, second = [float(box.get("y", "nan")) for box in root.iter(f"{SVG}rect")][:2]
    assert first < second


def test_labels_are_escaped_text():
    graph = graph_of("a * 2", a=1)
    graph.inputs[0].name = "<b>&"
    assert "&lt;b&gt;&amp;" in as_svg(graph, "<script>")
    assert "<script>" not in as_svg(graph, "<script>")
    graph.inputs[0].name = "</script><!--<script>"
    page = as_page(graph, "</script><b>")
    assert page.count("</script>") == page.count("<script>") == 1
    assert "<!--" not in page
    ElementTree.fromstring(as_svg(graph, "x\x0b+ 1\x00"))


def test_frames_cover_both_passes():
    found = list(frames(graph_of(SLIDE, x=1, y=2)))
    assert len(found) == 1 + 4 + 1 + 6
    assert found[1] == {"say": "v3 = x + y = 3, from x = 1 and y = 2.", "set": {"v2": "3"}, "on": ["n2", "a2-0", "a2-1"]}
    assert [frame["set"].get("z0") for frame in found[5:]] == [None, None, None, "z = 12", "z = 16", None, "z = 16"]
    assert found[6]["say"] == "v6 passes its gradient to its parents: v4 gets 1 · 4; v5 gets 1 · 3."
    assert found[-1]["say"] == "x is done: ∂v6/∂x = 16."


def test_page_begins_before_the_passes():
    page = as_page(graph_of(SLIDE, x=1, y=2), SLIDE)
    root = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    assert texts(root, "value") == ["1", "2", None, None, None, None]
    assert texts(root, "gradient") == [None] * 6
    steps = json.loads(re.findall(r"const frames = (.*);", page)[0])
    ids = {each.get("id") for each in root.iter()}
    assert {each for step in steps for each in (*step["set"], *step["on"])} <= ids


def test_too_large_to_be_drawn():
    x = Tensor(1.0)
    for _ in range(MAX_NODES):
        x = -x
    with pytest.raises(GraphError, match=f"a graph of {MAX_NODES + 1} nodes is too large to draw"):
        as_svg(Graph(x), "")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (12.0, "12"),
        (0.1 + 0.2, "0.3"),
        (1.5e9, "1.5e+09"),
        (-0.0, "0"),
        (np.inf, "inf"),
        ([1, 2.5], "[1, 2.5]"),
        (np.ones((4, 2)), "4×2 numbers"),
        (np.ones(4), "4 numbers"),
    ],
)
def test_shown_values(value, expected):
    assert shown(np.asarray(value)) == expected
