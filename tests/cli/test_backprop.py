"""`ramify backprop`: JSON, tables, pictures and error messages."""

import json
import math
import re
import shutil
import subprocess
from decimal import Context, Decimal

import pytest

SLIDE = "(x + y) * x * y**2"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_json_output(ramify):
    status, out, err = ramify("backprop", SLIDE, "x=1", "y=2", "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert found["value"] == 12
    assert found["gradients"] == {"x": 16, "y": 16}
    assert [(node["op"], node["value"], node["gradient"], node["parents"]) for node in found["nodes"]] == [
        ("input", 1, 16, []),
        ("input", 2, 16, []),
        ("add", 3, 4, ["x", "y"]),
        ("mul", 3, 4, ["v3", "x"]),
        ("pow", 4, 3, ["y"]),
        ("mul", 12, 1, ["v4", "v5"]),
    ]
    assert [node["name"] for node in found["nodes"]] == ["x", "y", "v3", "v4", "v5", "v6"]


def test_constants_are_nodes(ramify):
    _, out, _ = ramify("backprop", "2*x", "x=42", "--json")
    assert [node["op"] for node in json.loads(out)["nodes"]] == ["input", "const", "mul"]
    assert list(json.loads(out)["gradients"]) == ["x"]


def test_unused_input_has_gradient_zero(ramify):
    _, out, _ = ramify("backprop", "7", "x=42", "--json")
    assert json.loads(out)["gradients"] == {"x": 0}


def test_table(ramify):
    status, out, _ = ramify("backprop", SLIDE, "x=1", "y=2")
    assert status == 0
    assert out.splitlines()[0] == f"{SLIDE} = 12"
    assert [line.split() for line in out.splitlines()[2:]] == [
        ["node", "from", "value", "gradient"],
        ["x", "1", "16"],
        ["y", "2", "16"],
        ["v3", "x", "+", "y", "3", "4"],
        ["v4", "v3", "*", "x", "3", "4"],
        ["v5", "y**2", "4", "3"],
        ["v6", "v4", "*", "v5", "12", "1"],
    ]


def test_formula_may_begin_with_a_minus(ramify):
    assert json.loads(ramify("backprop", "-x**2", "x=-3", "--json")[1])["value"] == -9


def test_arrays(ramify):
    _, out, _ = ramify("backprop", "sum(w @ x)", "w=[[1,2],[3,4]]", "x=[5, 6]", "--json")
    found = json.loads(out)
    assert found["gradients"] == {"w": [[5, 6], [5, 6]], "x": [4, 6]}
    assert found["nodes"][2]["value"] == [17, 39]
    assert "[[1, 2], [3, 4]]" in ramify("backprop", "sum(w @ x)", "w=[[1,2],[3,4]]", "x=[5, 6]")[1]
    assert "4×1 numbers" in ramify("backprop", "sum(w)", "w=[[1],[2],[3],[4]]")[1]


def test_decimals(ramify):
    status, out, err = ramify("backprop", "exp(2*x**3 + 10)", "x=42", "--decimal", "18", "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert found["gradients"]["x"] == "2.43638067707197782E+64360"
    assert found["nodes"][-1]["gradient"] == "1"
    _, out, _ = ramify("backprop", "log(exp(2*x**3 + 10)) + 0.1", "x=42", "--decimal", "30")
    assert out.startswith("log(exp(2*x**3 + 10)) + 0.1 = 148186.1\n")
    assert "10584" in out.splitlines()[3]
    for arguments, value in (
        (("exp(exp(x))", "x=30", "--decimal", "18"), None),
        (("tanh(x)", "x=1e-25", "--decimal", "18"), "1.00000000000000000E-25"),
        (("exp(x) - 1", "x=1e-20", "--decimal", "10"), "1.000000000E-20"),
        (("x**0 + x**1 + x**y", "x=0", "y=1", "--decimal", "5"), "1"),
        (("sum(softmax(x))", "x=5", "--decimal", "5"), "1"),
    ):
        status, out, err = ramify("backprop", *arguments, "--json")
        assert (status, err) == (0, "")
        found = json.loads(out)
        if value is None:
            assert found["value"].startswith("2.73007036473193240E+")
        else:
            assert found["value"] == value


def test_decimal_vectors_and_pictures(ramify, tmp_path):
    _, out, _ = ramify("backprop", "sum(x * x)", "x=[1, 2.5]", "--decimal", "9", "--json")
    assert json.loads(out)["gradients"] == {"x": ["2", "5.0"]}
    status, _, err = ramify(
        "backprop", "x*2", "x=3", "--decimal", "9", "--out", tmp_path / "a.svg", "--out", tmp_path / "a.html"
    )
    assert (status, err) == (0, f"drawn: {tmp_path / 'a.svg'}\ndrawn: {tmp_path / 'a.html'}\n")
    assert "z = 2" in (tmp_path / "a.svg").read_text("utf-8")


def test_arrays_are_not_described_as_numbers(ramify):
    _, out, err = ramify("backprop", "sum(1/x)", "x=[0,1,1,1]")
    assert out.splitlines()[3].split() == ["x", "4", "numbers", "4", "numbers"]
    assert "v3 = 1 / x is inf at [0] (with v2 = 1, x = 4 numbers)" in err
    assert "x is given as inf" in ramify("backprop", "x", "x=inf")[2]


def test_infinite_values_are_shown_and_named(ramify):
    status, out, err = ramify("backprop", "y + 1/x", "x=0", "y=1", "--json")
    assert status == 0
    found = json.loads(out)
    assert math.isinf(found["value"])
    assert math.isinf(found["gradients"]["x"])
    assert "v4 = 1 / x is inf (with v3 = 1, x = 0)" in err
    status, out, err = ramify("backprop", "log(exp(2*x**3 + 10))", "x=42")
    assert status == 0
    assert "v7 = exp(v6) is inf (with v6 = 148186)" in err
    assert "the gradient of v6 is nan" in err
    assert out.splitlines()[3].split() == ["x", "42", "nan"]
    assert "is nan" in ramify("backprop", "x/y", "x=0", "y=0", "--decimal", "9")[2]


def test_orders(ramify):
    _, out, _ = ramify("backprop", "x*x + y", "x=1", "y=2", "--orders")
    assert out.splitlines()[-3:] == ["x y v3 v4", "x v3 y v4", "y x v3 v4"]
    _, out, _ = ramify("backprop", "x*x + y", "x=1", "y=2", "--orders", "--json")
    assert json.loads(out)["orders"] == [["x", "y", "v3", "v4"], ["x", "v3", "y", "v4"], ["y", "x", "v3", "v4"]]
    _, out, err = ramify("backprop", "+".join("abcdefghij"), *(f"{name}=1" for name in "abcdefghij"), "--orders")
    # 19! divided by the number of ancestors of each sum, itself included.
    assert "there are more than 1,000 orders, 185,794,560 in all; only the first 1,000 are listed" in err
    assert len(out.splitlines()) == 2 + 20 + 1000


def test_notation_of_the_slides(ramify):
    status, out, err = ramify("backprop", "(x+y)xy^2", "x=1", "y=2", "--json")
    assert (status, err) == (0, "")
    assert out == ramify("backprop", SLIDE, "x=1", "y=2", "--json")[1]


@pytest.mark.parametrize(
    ("formula", "slope"),
    [
        ("7", "0"),
        ("2x", "2"),
        ("2x+99999", "2"),
        ("x^3", "5292"),
        ("exp(x)", Context(30).exp(42)),
        ("exp(2x^3+10)", Context(30).multiply(10584, Context(40).exp(148186))),
        ("log(exp(2x^3+10))", "10584"),
    ],
)
def test_exercises_with_decimals(ramify, formula, slope):
    status, out, err = ramify("backprop", formula, "x=42", "--decimal", "30", "--json")
    assert (status, err) == (0, "")
    assert Decimal(json.loads(out)["gradients"]["x"]) == Decimal(slope)


REMEDY = "The range of float64 is too small for this formula. Add --decimal 18"


@pytest.mark.parametrize(
    ("arguments", "is_remedied"),
    [
        (("exp(2x^3+10)", "x=42"), True),
        (("log(exp(2x^3+10))", "x=42"), True),
        (("log(exp(-x))", "x=1000"), True),
        (("x*x*0", "x=1e200"), True),
        (("1/x", "x=1e-200"), True),
        (("1/x", "x=0"), False),
        (("log(x)", "x=0"), False),
        (("x", "x=inf"), False),
        (("logsumexp(exp(x))", "x=1000"), False),
        (("x^2", "x=3"), False),
        (("1/x", "x=0", "--decimal", "9"), False),
    ],
)
def test_an_overflow_names_its_remedy(ramify, arguments, is_remedied):
    status, _, err = ramify("backprop", *arguments)
    assert status == 0
    assert (REMEDY in err) == is_remedied


def test_dropout(ramify):
    formula, x = "sum(dropout(x, 0.5))", "x=[1,2,3,4]"
    assert json.loads(ramify("backprop", formula, x, "--json")[1])["gradients"] == {"x": [1, 1, 1, 1]}
    first = ramify("backprop", formula, x, "--seed", "1", "--json")[1]
    assert set(json.loads(first)["gradients"]["x"]) == {0, 2}
    assert first == ramify("backprop", formula, x, "--seed", "1", "--json")[1]
    _, out, _ = ramify("backprop", "sum(dropout(x, m, 0.5))", x, "m=[1,0,0,1]", "--decimal", "5", "--json")
    assert json.loads(out)["gradients"] == {"x": ["2", "0", "0", "2"], "m": ["0", "0", "0", "0"]}


def test_graph_of_arcs(ramify):
    arcs = "1-3,1-5,2-4,3-4,4-6,5-6"
    status, out, err = ramify("backprop", "--arcs", arcs)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert [line.split() for line in lines[:3]] == [["V", *"123456"], ["V_I", "1", "2"], ["V_N", *"3456"]]
    assert lines[4].split() == ["i", "pa(i)", "ch(i)"]
    assert [line.split() for line in lines[5:11]] == [list(row) for row in ("135", "24", "314", "4236", "516", "645")]
    assert lines[12] == "11 topological orders"
    orders = ["123456", "123546", "125346", "132456", "132546", "135246", "152346", "153246", "213456", "213546", "215346"]
    assert [line.replace(" ", "") for line in lines[13:]] == orders
    shown = json.loads(ramify("backprop", "--arcs", arcs, "--json")[1])
    assert shown["V"] == list("123456")
    assert (shown["V_I"], shown["V_N"]) == (["1", "2"], ["3", "4", "5", "6"])
    assert (shown["pa"]["4"], shown["ch"]["1"]) == (["2", "3"], ["3", "5"])
    assert ["".join(order) for order in shown["orders"]] == orders
    assert shown["order_count"] == 11


def test_doubled_arcs_and_nodes_without_arcs(ramify):
    shown = json.loads(ramify("backprop", "--arcs", "y-p,y-p,lone", "--json")[1])
    assert shown["pa"] == {"y": [], "p": ["y", "y"], "lone": []}
    assert shown["ch"] == {"y": ["p", "p"], "p": [], "lone": []}
    assert shown["order_count"] == 3
    assert "V_N  –" in ramify("backprop", "--arcs", "1")[1]
    assert "\n1 topological order\n" in ramify("backprop", "--arcs", "1")[1]


def test_many_orders_are_counted(ramify):
    status, out, err = ramify("backprop", "--arcs", ",".join(map(str, range(30))))
    assert status == 0
    assert "265,252,859,812,191,058,636,308,480,000,000 in all" in err
    assert "the first 1,000 of 265,252,859,812,191,058,636,308,480,000,000 topological orders\n" in out
    arcs = ",".join(f"0-{number}" for number in range(1, 31))
    _, out, err = ramify("backprop", "--arcs", arcs, "--json")
    assert "more than 1,000 orders; only" in err
    assert (len(json.loads(out)["orders"]), json.loads(out)["order_count"]) == (1000, None)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("x + z", "x=1"), "'z' at position 5 has no value. Give it as z=VALUE"),
        (("x", "x="), "'x' has no value"),
        (("x", "x=one"), "'one' is neither a number nor a list"),
        (("x", "x=1", "x=2"), "'x' is given twice"),
        (("x", "1x=2"), "NAME=VALUE, not '1x=2'"),
        (("x", "x"), "NAME=VALUE, not 'x'"),
        (("foo(x)", "x=1"), "'foo' at position 1 is not a function"),
        (("1/2x", "x=1"), "the product before 'x' at position 4 can be read in two ways"),
        (("x + y", "x=[1,2]", "y=[1,2,3]"), "add cannot take x of shape (2,) and y of shape (3,)"),
        (("x", "x=[[1],[1,2]]"), "a value must be a number, or rows of the same length"),
        (("x * 2", "x=[1,2]"), "v3 has the shape (2,), but a backward pass starts from a single number. Sum it first"),
        (("a = b*x; b = a; b", "x=1"), "the graph has a cycle: a → b → a"),
        (("gelu(x)", "x=1", "--decimal", "9"), "gelu does not support decimals"),
        (("+".join(["x"] * 500), "x=1", "--out", "never.svg"), "too large to draw"),
        (("x", "x=1", "--out", "."), "--out . does not end in .svg or .html"),
        (("x", "x=1", "--out", "absent/graph.svg"), "cannot write absent/graph.svg"),
        (("x", "x=one", "--decimal", "9"), "'one' is neither a number nor a list"),
        (("x", "x=sNaN", "--decimal", "9"), "'sNaN' is neither"),
        (("x + 1e99999999999999999999", "x=1", "--decimal", "9"), "the number at position 5"),
        (("softmax(x)", "x=[]"), "softmax cannot take x of shape (0,)"),
        (("import os", "x=1"), "'import' at position 1 has no value"),
        ((), "backprop needs a formula"),
        (("x", "x=1", "--seed", "3"), "--seed 3 draws the masks of dropout, which the formula does not use. Remove --seed"),
        (("--arcs", "1-2", "x"), "--arcs describes a graph without functions, so a formula has no meaning"),
        (("--arcs", "1-2", "--out", "never.html"), "so --out has no meaning. Remove one of the two"),
        (("--arcs", "1-2,2-3,3-1"), "--arcs: the graph has a cycle: 1 → 2 → 3 → 1. Remove an arc"),
        (("--arcs", "1-2,3-"), "--arcs: '3-' at position 5 is not an arc. Write PARENT-CHILD"),
    ],
)
def test_mistakes(ramify, arguments, complaint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = ramify("backprop", *arguments)
    assert (status, out) == (2, "")
    assert complaint in err
    assert len(err.splitlines()) == 1
    assert err.startswith("error: ")
    assert not list(tmp_path.iterdir())


BROWSER = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=4000", "--dump-dom"]
NEEDS_BROWSER = pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")


def browse(page, *options):
    """The document that a browser has after running the page."""
    command = [*BROWSER, *options, f"--user-data-dir={page.parent / 'browser'}", f"file://{page}"]
    return subprocess.run(command, check=True, capture_output=True, timeout=60, text=True).stdout


@NEEDS_BROWSER
def test_page_in_a_browser(ramify, tmp_path):
    page = tmp_path / "passes.html"
    ramify("backprop", SLIDE, "x=1", "y=2", "--out", page, "--out", tmp_path / "graph.svg")
    content = page.read_text("utf-8")
    # Go to the last step, as a user would by clicking.
    page.write_text(content.replace("show();\n</script>", "go(99);\n</script>"), "utf-8")
    shown = browse(page)
    assert "11 of 11" in shown
    assert "x is done: ∂v6/∂x = 16." in shown
    assert shown[shown.index("<svg") : shown.index("</svg>")].count("z = 16") == 2
    assert "pending" not in shown[shown.index("<svg") : shown.index("</svg>")].partition("</style>")[2]
    assert (tmp_path / "graph.svg").read_text("utf-8").count("z = 16") == 2


MEASURE = """
const bodies = [...document.querySelectorAll("#picture svg, h1, #controls > *, #say")].map(e => e.getBoundingClientRect());
const visible = [...document.querySelectorAll("#picture svg")].filter(e => e.getBoundingClientRect().width);
parent.postMessage({
  width: innerWidth,
  content: document.documentElement.scrollWidth,
  left: Math.min(...bodies.map(box => box.left)),
  right: Math.max(...bodies.map(box => box.right)),
  pictures: visible.map(e => e.classList[0]),
  paper: getComputedStyle(visible[0]).backgroundColor,
  ink: getComputedStyle(visible[0].querySelector(".value")).fill,
}, "*");
"""


@NEEDS_BROWSER
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_page_fits_every_screen(ramify, tmp_path, scheme):
    page, frames = tmp_path / "passes.html", tmp_path / "frames.html"
    formula = "h = tanh(2x + y); sum(softmax(w @ v)) + (hy + 3 - x)^2 + hh + x"
    ramify("backprop", formula, "x=0.5", "y=2", "w=[[1,2],[3,4]]", "v=[0.25,-1]", "--out", page)
    page.write_text(page.read_text("utf-8").replace("show();\n</script>", f"show();\n{MEASURE}</script>"), "utf-8")
    screens = (390, 768, 1280, 1920)
    frames.write_text(
        "<script>onmessage = e => document.body.append(JSON.stringify(e.data) + '\\n')</script><body>"
        + "".join(f'<iframe src="passes.html" width="{width}" height="800" style="border:0"></iframe>' for width in screens),
        "utf-8",
    )
    shown = browse(frames, f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}", "--window-size=2000,4000")
    measured = {size["width"]: size for size in map(json.loads, re.findall(r"{\"width.*?}", shown))}
    assert sorted(measured) == list(screens)
    for width, size in measured.items():
        assert size["content"] <= width
        assert 0 <= size["left"] <= size["right"] <= width
        assert len(size["pictures"]) == 1
        brightness = [sum(map(int, re.findall(r"\d+", size[colour])[:3])) for colour in ("paper", "ink")]
        assert (brightness[0] > brightness[1]) == (scheme == "light")
    assert measured[390]["pictures"] == ["down"]


def test_a_page_has_a_name_of_its_own(ramify, folder):
    for formula in ("x*2", "x*3"):
        _, _, err = ramify("backprop", formula, "x=3")
        assert err == "page: backprop.html\n"
        assert formula in (folder / "backprop.html").read_text("utf-8")
    (folder / "backprop.html").write_text("my own")
    status, out, err = ramify("backprop", "x*2", "x=3")
    assert (status, out.splitlines()[0]) == (0, "x*2 = 6")
    assert err.startswith("note: no page: backprop.html exists, and would be overwritten.")
    assert (folder / "backprop.html").read_text() == "my own"
    ramify("backprop", "+".join(["x"] * 500), "x=3", "--json")
    assert [path.name for path in folder.iterdir()] == ["backprop.html"]
