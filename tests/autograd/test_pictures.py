"""Pictures of graphs are complete and without overlaps, and a page shows both passes."""

import json
import re
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest

from ramify.autograd import GraphError, SlotNode, Tensor
from ramify.autograd import functions as f
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
    assert found[0]["set"] == {"v0": "1", "v1": "2"}
    assert "every gradient slot holds 0" in found[0]["say"]
    assert found[1] == {"say": "v3 = x + y = 3, from x = 1 and y = 2.", "set": {"v2": "3"}, "on": ["n2", "a2-0", "a2-1"]}
    assert [frame["set"].get("z0") for frame in found[5:]] == [None, None, None, "z = 12", "z = 16", None, "z = 16"]
    assert found[6]["say"] == "v6 passes its gradient to its parents: v4 gets 1 · 4; v5 gets 1 · 3."
    assert found[-1]["say"] == "x is done: ∂v6/∂x = 16."


def pictures_of(page):
    """The picture with arcs to the right, and the one with arcs downwards."""
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def test_page_shows_values_and_empty_slots_from_the_first_step():
    page = as_page(graph_of(SLIDE, x=1, y=2), SLIDE)
    steps = json.loads(re.findall(r"const frames = (.*);", page)[0])
    right, down = pictures_of(page)
    for root, prefix in ((right, ""), (down, "d")):
        kinds = [
            (text.get("class"), text.text) for text in root.iter(f"{SVG}text") if text.get("class") not in ("from", "local")
        ]
        values, gradients = kinds[::2], kinds[1::2]
        assert values == [("value", "1"), ("value", "2"), *(("value pending", value) for value in ("3", "3", "4", "12"))]
        assert gradients == [("gradient pending", "z = 0")] * 6
        ids = {each.get("id") for each in root.iter()}
        assert {prefix + name for step in steps for name in (*step["set"], *step["on"])} <= ids


def test_a_page_leaves_the_graph_as_it_is():
    graph = graph_of(SLIDE, x=1, y=2)
    x = graph.inputs[0]
    x.gradient = np.asarray(7.0)
    inner = graph.nodes[2]
    inner.value = None
    page = as_page(graph, SLIDE)
    assert "x is done: ∂v6/∂x = 16." in page
    assert x.gradient == 7
    assert inner.value is None


def test_small_matrices_are_shown_as_numbers():
    graph = graph_of("sum(w @ x)", w=[[1, 2], [3, 4.5]], x=[5, 6])
    picture, page = as_svg(graph, ""), as_page(graph, "")
    rows = [[line.text for line in text] for text in ElementTree.fromstring(picture).iter(f"{SVG}text") if len(text)]
    assert rows == [["[[1, 2],", "[3, 4.5]]"], ["[[1, 2],", "[3, 4.5]]"], ["z = [[5, 6],", "[5, 6]]"]]
    assert "w is done: ∂v4/∂w = [[5, 6], [5, 6]]." in page
    assert "v3 = w @ x = [17, 42], from w = [[1, 2], [3, 4.5]] and x = [5, 6]." in page


# --- labels and arrows ------------------------------------------------------------------------------------------------------

CROWDED = [
    (SLIDE, {"x": 1, "y": 2}),
    ("h = tanh(2x + y); (hy + 3 - x)^2 + hh + x", {"x": 0.51234, "y": 2}),
    ("max(x, y, z, w) + sin(x)cos(y) + xyzw", {"x": 0.5, "y": 2, "z": 3, "w": 4.25}),
    ("sum(softmax(w @ x) * t) + sum(w*w)", {"x": [1, 2.345], "w": [[1, 0.123], [0, 1]], "t": [0, 1]}),
    ("sum(w @ v)", {"w": np.arange(9.0).reshape(3, 3), "v": [[1], [2], [3]]}),
]


def points_of(path):
    """Points along a path of M, L and C commands, at most 2 pixels apart."""
    points = []
    for command, text in re.findall(r"([MLC])([^MLC]*)", path):
        numbers = np.array([float(number) for number in re.findall(r"-?[\d.]+", text)]).reshape(-1, 2)
        if command == "M":
            points.append(numbers[0])
            continue
        t = np.linspace(0, 1, 300)[:, None]
        start = points[-1]
        if command == "L":
            points.extend((1 - t) * start + t * numbers[0])
        else:
            a, b, c = numbers
            points.extend((1 - t) ** 3 * start + 3 * t * (1 - t) ** 2 * a + 3 * t**2 * (1 - t) * b + t**3 * c)
    return np.array(points)


def label_boxes(root):
    """(left, top, right, bottom) of each label, for capitals and digits of 11 pixels."""
    is_down = root.get("class") == "down"
    for text in root.iter(f"{SVG}text"):
        if text.get("class") != "local":
            continue
        lines = [line.text or "" for line in text] or [text.text]
        x, y = (float(text.get(axis)) for axis in "xy")
        width = 6.6 * max(map(len, lines))
        left = x if is_down else x - width / 2
        yield left, y - 9, left + width, y + 13 * (len(lines) - 1) + 2


@pytest.mark.parametrize(("formula", "values"), CROWDED, ids=[formula for formula, _ in CROWDED])
def test_labels_are_clear_of_arrows_and_boxes(formula, values):
    for root in pictures_of(as_page(graph_of(formula, **values), formula)):
        _, _, width, height = map(float, str(root.get("viewBox")).split())
        arcs = np.concatenate([points_of(path.get("d")) for path in root.iter(f"{SVG}path") if path.get("class") == "arc"])
        boxes = []
        for rect in root.iter(f"{SVG}rect"):
            x, y, wide, high = (float(rect.get(side, "nan")) for side in ("x", "y", "width", "height"))
            boxes.append((x, y, x + wide, y + high))
            inside = (arcs > (x + 1, y + 1)).all(axis=1) & (arcs < (x + wide - 1, y + high - 1)).all(axis=1)
            assert not inside.any(), "an arc crosses a box"
        labels = list(label_boxes(root))
        assert len(labels) == sum(path.get("class") == "arc" for path in root.iter(f"{SVG}path"))
        for label in labels:
            left, top, right, bottom = label
            assert 0 <= left <= right <= width
            assert 0 <= top <= bottom <= height
            assert not ((arcs > (left, top)).all(axis=1) & (arcs < (right, bottom)).all(axis=1)).any(), "an arc crosses a label"
            for other in [*boxes, *(other for other in labels if other is not label)]:
                assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top


# --- notebooks --------------------------------------------------------------------------------------------------------------


def test_notebooks_show_the_page():
    graph = graph_of(SLIDE, x=1, y=2)
    frame = ElementTree.fromstring(str(graph._repr_html_()))
    assert (frame.tag, frame.get("sandbox")) == ("iframe", "allow-scripts")
    assert "x is done: ∂v6/∂x = 16." in str(frame.get("srcdoc"))
    assert graph.output._repr_html_() == graph._repr_html_()
    assert graph.inputs[0]._repr_html_() is None
    assert (Tensor([1.0, 2.0]) * 2)._repr_html_() is None
    x = SlotNode(3.0, "x")
    assert "∂v2/∂x = 6." in str(Graph(f.Multiply()(x, x))._repr_html_())
    deep = Tensor(1.0)
    for _ in range(MAX_NODES):
        deep = -deep
    assert deep._repr_html_() is None


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
        ([[1, 2], [3, 4.25]], "[[1, 2], [3, 4.25]]"),
        (np.ones((2, 2, 2)), "2×2×2 numbers"),
        (np.ones((0, 2)), "0×2 numbers"),
        (np.ones((4, 2)), "4×2 numbers"),
        (np.ones(4), "4 numbers"),
    ],
)
def test_shown_values(value, expected):
    assert shown(np.asarray(value)) == expected
