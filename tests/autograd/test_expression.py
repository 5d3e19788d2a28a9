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
        ("foo(x)", "'foo' at position 1 is not a function. Known functions: exp, log.* For a product, give it as foo=VALUE"),
        ("x & 2", "'&' at position 3 has no meaning in a formula. Use numbers, .* write a power as x.2"),
        ("x + ", "a value is missing after '\\+' at position 3"),
        ("* x", "a value is missing before '\\*' at position 1"),
        ("(x", "the bracket at position 1 is never closed"),
        ("x)", "the bracket at position 2 closes nothing"),
        ("()", "a value is missing before '\\)' at position 2"),
        ("x 2", r"an operator is missing before '2' at position 3. Write a power as x\^2, and a product as 2x"),
        ("(x)2", "an operator is missing before '2' at position 4"),
        ("2 3", "an operator is missing before '3' at position 3"),
        ("x2", r"'x2' at position 1 has no value. Give it as x2=VALUE. .* a number comes first, as in 2x, or after \^"),
        ("xz", "'xz' at position 1 has no value. .* every factor needs a value"),
        ("x" * 101, "'x{39}…' at position 1 has no value. .* may have at most 100 characters"),
        ("exp x", "'exp' at position 1 is a function. Write its value in brackets: exp"),
        ("exp(x, y)", "'exp' at position 1 takes one value, not 2. Only max and min take several"),
        ("(x, y)", "the comma at position 3 has no meaning: it is not between a function's values"),
        ("max(x,)", "a value is missing before '\\)' at position 7. Write a number, a name, a function or a bracket"),
        (
            "1/2x",
            r"the product before 'x' at position 4 can be read in two ways, because '/' at position 2 .* \(a/b\)c or a/\(bc\)",
        ),
        ("1/exp(x)y", "the product before 'y' at position 9 can be read in two ways"),
        ("1/-x y", "the product before 'y' at position 6 can be read in two ways"),
        ("1/x^2y", "the product before 'y' at position 6 can be read in two ways"),
        ("x @ 2y", "the product before 'y' at position 6 can be read in two ways, because '@' at position 3"),
        (
            "2^xy",
            r"the product before 'y' at position 4 can be read in two ways, because '\^' at position 2 .* \(a\^b\)c or ",
        ),
        ("2**-x(y)", r"the product before '\(' at position 6 can be read in two ways, because '\*\*' at position 2"),
        ("2x = 3", "'=' at position 4 does not follow a name at the beginning of a part. Write NAME = FORMULA"),
        ("dropout(x)", "'dropout' at position 1 takes a value and the probability to drop"),
        ("dropout(x, y)", "'dropout' at position 1 takes a value and the probability to drop"),
        ("dropout(x, y, y, 0.1)", "'dropout' at position 1 takes a value and the probability to drop"),
        ("1 + dropout(x, 1)", "p=1 of dropout at position 5 is out of range. Use 0 <= p < 1"),
        ("dropout(x, -0.5)", "p=-0.5 of dropout at position 1 is out of range"),
        ("dropout(x, y, 0.5)", "the mask y of dropout at position 1 has other entries than 0 and 1"),
        ("m = y; dropout(x, m, 0.5)", "the mask of dropout at position 8 is not an input"),
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2x", "2 * x"),
        ("2 x", "2 * x"),
        ("2.5x", "2.5 * x"),
        ("2e3x", "2e3 * x"),
        ("2e", "2 * e"),
        ("2ex", "2 * e * x"),
        ("x^3", "x ** 3"),
        ("(x+y)xy^2", "(x + y) * x * y**2"),
        ("(x + y) x y^2", "(x + y) * x * y**2"),
        ("x^2y^2+xy^3", "x**2 * y**2 + x * y**3"),
        ("2x^3+10", "2 * x**3 + 10"),
        ("x(y+1)", "x * (y + 1)"),
        ("xy(x)", "x * y * x"),
        ("(x)(y)(2)", "x * y * 2"),
        ("2exp(x)y", "2 * exp(x) * y"),
        ("xexp(y)", "x * exp(y)"),
        ("-x^2", "-(x**2)"),
        ("-2x", "(-2) * x"),
        ("-xy", "(-x) * y"),
        ("2^3^2", "2 ** 9"),
        ("x^-1y", "x**-1 * y"),
        ("2^(x)y", "2**x * y"),
        ("2-x", "2 + -x"),
        ("1/2*3x", "1.5 * x"),
        ("1/(2x)", "1 / (2 * x)"),
        ("s = x + y; sx + ss", "(x + y) * x + (x + y)**2"),
    ],
)
def test_notation_of_the_slides(text, expected):
    values = {"x": 1.25, "y": -3.0, "e": 0.5}
    assert value(text, **values) == pytest.approx(value(expected, **values), rel=1e-15)


def test_products_without_a_sign_make_the_same_graph():
    short, long = (read(text, {"x": 1.0, "y": 2.0}) for text in ("(x+y)xy^2", "(x + y) * x * y**2"))
    assert [(node.name, node.op, node.value, write(node)) for node in short.nodes] == [
        (node.name, node.op, node.value, write(node)) for node in long.nodes
    ]


def test_a_whole_name_comes_before_a_product():
    assert value("xy", x=2.0, y=3.0) == 6
    assert value("xy", x=2.0, y=3.0, xy=5.0) == 5
    assert value("xy = 7; xy", x=2.0, y=3.0) == 7
    assert value("max(x)", x=[2.0, 3.0], m=5.0, a=7.0) == 3
    assert value("max + 1", x=2.0, max=4.0) == 5
    assert value("exp(x)", x=0.0, exp=4.0) == 1
    with pytest.raises(GraphError, match=r"'xyx' at position 5 can be read as xy\*x and as x\*y\*x. Write the product with \*"):
        value("2 + xyx", x=2.0, y=3.0, xy=5.0)
    with pytest.raises(GraphError, match=r"'asin' at position 1 can be read as"):
        value("asin(x)", x=2.0, a=3.0, s=1.0, i=1.0, n=1.0)


NAMED = st.sampled_from(["x", "y", "t"])


@st.composite
def products(draw, inner):
    """The same product without and with signs."""
    number, power = draw(st.sampled_from(["", "3", "0.5", "2e1"])), draw(st.sampled_from(["", "^2", "^3"]))
    factors = draw(st.lists(NAMED.map(lambda name: (name, name)) | inner, min_size=1, max_size=3))
    # A product of names is no name: a power behind it would be that of its last factor alone.
    short = "".join(name if len(name) == 1 else f"({name})" for name, _ in factors)
    long = " * ".join([*filter(None, [number]), *(f"({factor})" for _, factor in factors)])
    return f"{number}{short}{power}", long + power.replace("^", "**")


SHORT = st.recursive(
    NAMED.map(lambda name: (name, name)),
    lambda inner: (
        products(inner)
        | st.tuples(inner, st.sampled_from("+-"), inner).map(
            lambda sides: tuple("{}{}({})".format(*side) for side in sided(*sides))
        )
        | inner.map(lambda pair: (f"-({pair[0]})", f"-({pair[1]})"))
    ),
    max_leaves=8,
)


def sided(left, sign, right):
    return zip(left, (sign, sign), right, strict=True)


@given(pair=SHORT)
def test_short_formulas_agree_with_python(pair):
    short, long = pair
    values = {"x": 1.5, "y": -0.75, "t": 2.0}
    assert value(short, **values) == pytest.approx(eval(long, dict(values)), rel=1e-9)


WRITTEN = st.recursive(
    st.sampled_from(["x", "y", "2", "0.5", "7e-3"]),
    lambda inner: (
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "**"]), inner).map(
            lambda parts: f"({parts[0]}){parts[1]}({parts[2]})"
        )
        | st.tuples(st.sampled_from(["sin", "cos", "abs", "exp", "tanh"]), inner).map("{0[0]}({0[1]})".format)
        | st.tuples(st.sampled_from(["max", "min"]), inner, inner).map("{0[0]}({0[1]}, {0[2]})".format)
        | inner.map("-({})".format)
        | inner.map("({})^3".format)
        | inner.map("dropout({}, 0.25)".format)
    ),
    max_leaves=10,
)


@pytest.mark.filterwarnings("ignore:(overflow|divide by zero|invalid value|underflow)")
@given(text=WRITTEN)
def test_written_formulas_are_read_back(text):
    """Every node's formula, parsed again, gives the same operation on the same parents."""
    graph = read(text, {"x": 1.5, "y": -0.75}, seed=3)
    for node in graph.nodes:
        if not node.function:
            continue
        names = {parent.name: parent.known for parent in node.parents if not parent.is_constant}
        again = read(write(node), names, seed=3).output
        assert again.op == node.op
        assert [parent.name for parent in again.parents if not parent.is_constant] == [
            parent.name for parent in node.parents if not parent.is_constant
        ]
        if node.op != "dropout":
            np.testing.assert_equal(again.value, node.value)
        assert write(again) == write(node)


# --- functions of several values, dropout ----------------------------------------------------------------------------------


def gradients(text, seed=None, **values):
    graph = read(text, values, seed=seed)
    graph.backward()
    return graph.output.item(), [node.known_gradient.tolist() for node in graph.inputs]


def test_extremes_of_several_values():
    assert gradients("max(x, y, 0)", x=2.0, y=3.0) == (3, [0, 1])
    assert gradients("min(x, y)", x=2.0, y=3.0) == (2, [1, 0])
    assert gradients("max(x, y)", x=2.0, y=2.0) == (2, [0.5, 0.5])
    assert gradients("max(x, x)", x=2.0) == (2, [1])
    assert gradients("sum(min(x, y))", x=[1.0, 5.0, 2.0], y=2.0) == (5, [[1, 0, 0.5], 1.5])
    assert gradients("min(x)", x=[3.0, 1.0, 1.0]) == (1, [[0, 0.5, 0.5]])


def test_dropout_by_name():
    x = [1.0, 2.0, 3.0, 4.0]
    assert gradients("sum(dropout(x, 0.5))", x=x) == (10, [[1, 1, 1, 1]])
    assert gradients("sum(dropout(x, m, 0.75))", x=x, m=[1, 0, 0, 1]) == (20, [[4, 0, 0, 4], [0, 0, 0, 0]])
    total, (slopes,) = gradients("sum(dropout(x, 0.5))", seed=0, x=x)
    mask = np.random.default_rng(0).random(4) >= 0.5
    assert slopes == (mask * 2.0).tolist()
    assert total == (np.array(x) * mask * 2).sum()
    assert gradients("sum(dropout(x, 0.5))", seed=0, x=x) == (total, [slopes])
    assert write(read("dropout(x, 0.5)", {"x": x}).output) == "dropout(x, 0.5)"
    assert write(read("dropout(x, m, 0.5)", {"x": x, "m": [1, 1, 0, 1]}).output) == "dropout(x, m, 0.5)"
    with pytest.raises(GraphError, match=r"the mask m of dropout at position 1 has the shape \(2,\). Give it the shape \(4,\)"):
        read("dropout(x, m, 0.5)", {"x": x, "m": [1, 1]})
    with decimals(20):
        graph = read("sum(dropout(x, m, 0.2))", {"x": [Decimal(1), Decimal(2)], "m": [Decimal(1), Decimal(0)]}, read_decimal)
        assert graph.output.item() == Decimal("1.25")


def test_results_of_broadcasting_are_limited():
    column, row = np.ones((10_000, 1)), np.ones((1, 10_000))
    for text in ("x + y", "x @ y", "max(x, y)"):
        with pytest.raises(GraphError, match=r"100,000,000 numbers. The limit is 10,000,000. Use smaller arrays"):
            read(text, {"x": column, "y": row})
    with pytest.raises(GraphError, match=r"at position 3, add cannot take x of shape \(2,\) and y of shape \(3,\)"):
        read("x + y", {"x": [1.0, 2.0], "y": [1.0, 2.0, 3.0]})
    assert read("y @ x", {"x": column, "y": row}).output.item() == 10_000
    with decimals(9), pytest.raises(GraphError, match=r"250,000 numbers. The limit is 100,000"):
        read("x + y", {"x": [[Decimal(1)]] * 500, "y": [[Decimal(1)] * 500]}, read_decimal)


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
