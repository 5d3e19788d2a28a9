"""Formulas as text: values, order of nodes, and error messages."""

import time
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramify.autograd import GraphError
from ramify.autograd.expression import MAX_LENGTH, read, value_of, write
from ramify.autograd.values import decimals, read_decimal


def value(text, **values):
    return read(text, values).output.item()


def names(text, **values):
    return [node.name for node in read(text, values).nodes]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("2 ** 3 ** 2", 512),
        ("-2 ** 2", -4),
        ("(-2) ** 2", 4),
        ("2 ** -1", 0.5),
        ("8 - 4 - 2", 2),
        ("8 / 4 / 2", 1),
        ("2 - -3", 5),
        ("--2 + +3", 5),
        ("-(1 + 2)", -3),
        (".5 + 1e-1 + 2.", 2.6),
        ("exp(0) + log(1) + relu(-3) + sqrt(16)", 5),
        ("4 ** 0.5", 2),
        ("a = 2; b = a * 3; b ** a", 36),
        ("b * a; a = 2; b = a * 3;", 6),
        ("a = 2", 2),
    ],
)
def test_meaning(text, expected):
    assert value(text) == pytest.approx(expected)


SMALL = st.integers(1, 5).map(str) | st.sampled_from(["x", "y"])
FORMULAS = st.recursive(
    SMALL,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/"]), inner).map(" ".join)
        | inner.map("({})".format)
        | inner.map("-{}".format)
        | inner.map("({}) ** 2".format)
    ),
    max_leaves=12,
)


@given(text=FORMULAS)
def test_formulas_agree_with_python(text):
    x, y = 1.5, -0.75
    try:
        expected = eval(text, {"x": x, "y": y})
    except ZeroDivisionError:
        return
    assert value(text, x=x, y=y) == pytest.approx(expected)


@given(text=FORMULAS)
def test_inputs_come_first_and_parents_before_children(text):
    graph = read(text, {"y": 2.0, "x": 1.0})
    assert [node.name for node in graph.nodes[:2]] == ["y", "x"]
    assert len({node.name for node in graph.nodes}) == len(graph.nodes)
    place = {node: number for number, node in enumerate(graph.nodes)}
    assert all(place[parent] < place[node] for node in graph.nodes for parent in node.parents)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(x + y) * x * (y * y)", ["x", "y", "x + y", "v3 * x", "y * y", "v4 * v5"]),
        ("(x + y) * x * y**2", ["x", "y", "x + y", "v3 * x", "y**2", "v4 * v5"]),
        ("2*x + exp(y*3)", ["x", "y", "2", "2 * x", "3", "y * 3", "exp(v6)", "v4 + v7"]),
        ("x**-2 + x**0.5", ["x", "y", "x**-2", "0.5", "x ** 0.5", "v3 + v5"]),
        ("exp(y) + exp(x) - 3", ["x", "y", "exp(y)", "exp(x)", "v3 + v4", "3", "v5 - 3"]),
        ("3 - (exp(y) + y*y*x)", ["x", "y", "3", "exp(y)", "y * y", "v5 * x", "v4 + v6", "3 - v7"]),
        ("(-2)**2 * x", ["x", "y", "-2", "(-2)**2", "v4 * x"]),
        ("7", ["x", "y", "7"]),
    ],
)
def test_order_and_writing(text, expected):
    graph = read(text, {"x": 1.0, "y": 2.0})
    assert [write(node) or (f"{node.item():g}" if node.is_constant else node.name) for node in graph.nodes] == expected


def test_inputs_in_the_order_in_which_they_are_given():
    assert names("x * y", y=1, x=2) == ["y", "x", "v3"]
    assert names("s = v3 + x; s * s", v3=1, x=2) == ["v3", "x", "s", "v4"]
    assert names("x * v2", x=1, v2=2) == ["x", "v2", "v3"]
    assert names("x + v3 + 1", x=1, v3=2) == ["x", "v3", "v3_", "v4", "v5"]
    assert names("v2 = x; v2*v2 + 1", x=1) == ["x", "v2_", "v3", "v4"]


def test_named_part_is_one_node():
    graph = read("s = x + y; s * s", {"x": 1.0, "y": 2.0})
    graph.backward()
    assert graph.output.item() == 9
    assert [node.op for node in graph.nodes] == ["input", "input", "add", "mul"]
    assert [node.gradient for node in graph.inputs] == [6, 6]
    assert value("a = x; b = a; b * a", x=3.0) == 9


@pytest.mark.parametrize(
    ("text", "slope"),
    [("7", 0), ("2*x", 2), ("2*x + 99999", 2), ("x**3", 5292), ("exp(x)", 1.739274941520501e18)],
)
def test_exercises_at_42(text, slope):
    graph = read(text, {"x": 42.0})
    graph.backward()
    assert graph.nodes[0].gradient == pytest.approx(slope, rel=1e-15)


@pytest.mark.filterwarnings("ignore:(overflow|invalid value)")
def test_exercises_past_float64():
    power, again = "exp(2*x**3 + 10)", "log(exp(2*x**3 + 10))"
    for text, slope in ((power, np.inf), (again, np.nan)):
        graph = read(text, {"x": 42.0})
        graph.backward()
        np.testing.assert_equal(graph.nodes[0].gradient, np.asarray(slope))
        assert write(graph.not_finite()[0][0]) == "exp(v6)"
    with decimals(30):
        for text, slope in ((power, "2.43638067707197782e+64360"), (again, "1.05840000000000000e+4")):
            graph = read(text, {"x": Decimal(42)}, read_decimal)
            graph.backward()
            assert graph.nodes[0].gradient is not None
            assert f"{graph.nodes[0].gradient.item():.17e}" == slope


def test_arrays():
    graph = read("sum(softmax(w @ x) * t)", {"x": [1.0, 2.0], "w": [[1.0, 0.0], [0.0, 1.0]], "t": [0.0, 1.0]})
    assert graph.output.item() == pytest.approx(1 / (1 + np.exp(-1)))
    assert value("max(transpose(x) @ x)", x=[[1.0, 2.0]]) == 4


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "empty"),
        (" ; ;", "empty"),
        ("x + z", "'z' at position 5 has no value. Give it as z=VALUE"),
        ("sin(x)", "'sin' at position 1 is not a function. Known functions: exp, log"),
        ("x^2", r"'\^' at position 2 has no meaning in a formula. Write a power as"),
        ("x + ", "a value is missing after '\\+' at position 3"),
        ("* x", "a value is missing before '\\*' at position 1"),
        ("(x", "the bracket at position 1 is never closed"),
        ("x)", "the bracket at position 2 closes nothing"),
        ("()", "a value is missing before '\\)' at position 2"),
        ("x y", "an operator is missing before 'y' at position 3"),
        ("2 x", "an operator is missing before 'x' at position 3"),
        ("max(x, y)", "the comma at position 6 has no meaning: a function takes one value"),
        ("x = 3; x", "'x' has a given value and a definition"),
        ("a = 1; a = 2", "'a' is defined twice"),
        ("3 = x", "'3' at position 1 is not a name"),
        ("a = ", "a value is missing in part 1"),
        ("x = = 3", "a value is missing before '='"),
        ("a = b + x; b = a * 2; a", "cycle: a → b → a"),
        ("a = a", "cycle: a → a"),
        ("__import__('os')", "is not a function|has no meaning"),
        ("x.real", "has no meaning|operator is missing"),
        ("x² + 1", "'x²' at position 1 has no meaning"),
        ("x" * (MAX_LENGTH + 1), "the formula has 1,000,001 characters"),
    ],
)
def test_mistakes_are_explained(text, complaint):
    with pytest.raises(GraphError, match=complaint):
        read(text, {"x": 1.0, "y": 2.0})


def test_deeply_nested_brackets():
    assert value("(" * 20_000 + "x" + ")" * 20_000, x=3.0) == 3
    assert value("-" * 20_001 + "x", x=3.0) == -3
    assert value("exp(" * 3 + "0 * x" + ")" * 3, x=1.0) == pytest.approx(np.exp(np.e))


def test_long_formulas_take_linear_time():
    began = time.process_time()
    assert value("x" + " " * 100_000, x=3.0) == 3
    assert value("+".join(["x**2"] * 20_000), x=1.0) == 20_000
    assert time.process_time() - began < 20


def test_exponents_of_any_size():
    assert value("x**" + "9" * 400, x=0.5) == 0
    assert [node.op for node in read("x**1234567890", {"x": 1.0}).nodes] == ["input", "const", "pow"]
    assert value("x**" + "9" * 5000, x=1.0) == 1


def test_values():
    assert value_of("1.5") == 1.5
    assert value_of("[1, [2.5]]") == [1, [2.5]]
    assert value_of("[0.1]", read_decimal) == [Decimal("0.1")]
    assert value_of(" -inf ") == -np.inf
    assert value_of("1e99999", read_decimal) == Decimal("1e99999")


@pytest.mark.parametrize("number", [float, read_decimal])
@pytest.mark.parametrize("wrong", ["one", "[1,", "1;2", "[" * 100_000, "null", "true", '"abc"', "{}"])
def test_wrong_values(wrong, number):
    # The command also parses in this context, which traps no exceptions.
    with decimals(9), pytest.raises(GraphError, match="neither a number nor a list"):
        value_of(wrong, number)


@pytest.mark.parametrize("wrong", ["sNaN", "1e99999999999999999999"])
def test_values_beyond_decimals_are_refused(wrong):
    with decimals(9), pytest.raises(GraphError):
        value_of(wrong, read_decimal)
    with decimals(9), pytest.raises(GraphError, match="position 5"):
        read(f"x + {wrong.removeprefix('s')}", {"x": Decimal(1)}, read_decimal)
