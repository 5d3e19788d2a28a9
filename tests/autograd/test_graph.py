"""The two passes: results, orders, and the state that they leave."""

import time
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramify.autograd import (
    Graph,
    GraphError,
    SlotNode,
    Tensor,
    concat,
    cos,
    exp,
    gradient_error,
    jacobian,
    log,
    maximum,
    minimum,
    no_grad,
    relu,
    sigmoid,
    sin,
    softmax,
    sqrt,
    tanh,
)
from ramify.autograd import functions as f
from ramify.autograd.tensor import apply
from ramify.autograd.values import decimals


def example() -> tuple[Tensor, Tensor, Tensor]:
    x, y = Tensor(1.0, name="x"), Tensor(2.0, name="y")
    return x, y, (x + y) * x * (y * y)


def test_numbers_of_the_slides():
    x, y, output = example()
    graph = Graph(output)
    graph.backward()
    assert [node.item() for node in graph.nodes] == [1, 2, 3, 3, 4, 12]
    assert [node.gradient for node in graph.nodes] == [16, 16, 4, 4, 3, 1]
    assert graph.inputs == [x, y]
    assert [len(graph.children[node]) for node in graph.nodes] == [2, 3, 1, 1, 1, 0]


def test_example_of_micrograd():
    a, b = Tensor(-4.0), Tensor(2.0)
    c = a + b
    d = a * b + b**3
    c = c + (c + 1)
    c = c + (1 + c + (-a))
    d = d + (d * 2 + relu(b + a))
    d = d + (3 * d + relu(b - a))
    e = c - d
    squared = e**2
    g = squared / 2.0
    g = g + 10.0 / squared
    g.backward()
    assert round(g.item(), 4) == 24.7041
    assert a.gradient is not None
    assert b.gradient is not None
    assert round(a.gradient.item(), 4) == 138.8338
    assert round(b.gradient.item(), 4) == 645.5773


def test_backward_twice_equals_once():
    x, y, output = example()
    output.backward()
    output.backward()
    assert (x.gradient, y.gradient) == (16, 16)


def test_accumulation_adds_only_to_the_inputs():
    x, y, output = example()
    graph = Graph(output)
    graph.backward()
    inner = [node.gradient for node in graph.nodes if node.function]
    graph.backward(accumulate=True)
    assert (x.gradient, y.gradient) == (32, 32)
    assert [node.gradient for node in graph.nodes if node.function] == inner
    (x * 3).backward(accumulate=True)
    assert x.gradient == 35


def test_only_inputs_keep_their_gradient_on_request():
    x, _, output = example()
    output.backward(retain=False)
    assert x.gradient == 16
    assert [node.gradient for node in Graph(output).nodes if node.function] == [None] * 4


@pytest.mark.parametrize("power", [2, 3])
def test_double_arcs(power):
    y = Tensor(3.0)
    output = y * y if power == 2 else y * y * y
    for by in ("push", "pull"):
        Graph(output).backward(by=by)
        assert y.gradient == power * 3 ** (power - 1)


def test_unconnected_nodes_get_no_gradient():
    x, y = Tensor(1.0), Tensor([1.0, 2.0])
    graph = Graph(x * 2, inputs=[x, y])
    graph.backward()
    assert y.gradient is not None
    assert y.gradient.tolist() == [0, 0]
    aside = Tensor(3.0)
    graph = Graph(x * 2, inputs=[aside * 2])
    assert aside in graph.inputs
    assert not jacobian(x * 2, aside * 2).any()
    alone = Tensor(7.0)
    alone.backward()
    assert alone.gradient == 1


@st.composite
def random_graphs(draw):
    nodes = [Tensor(draw(st.floats(-2, 2))) for _ in range(2)]
    for _ in range(draw(st.integers(1, 15))):
        a, b = draw(st.sampled_from(nodes)), draw(st.sampled_from(nodes))
        nodes.append(draw(st.sampled_from([lambda a, b: a + b, lambda a, b: tanh(a) * b, lambda a, b: a - tanh(b)]))(a, b))
    return nodes[-1]


@given(output=random_graphs(), data=st.data())
def test_push_pull_and_every_order_are_equal(output, data):
    graph = Graph(output)
    graph.backward()
    expected = [node.gradient for node in graph.nodes]
    graph.backward(by="pull")
    np.testing.assert_allclose([node.gradient for node in graph.nodes], expected, rtol=1e-12, atol=1e-12)
    # Another order: a random choice among the nodes that are ready.
    order, left = [], list(graph.nodes)
    while left:
        node = data.draw(st.sampled_from([each for each in left if not set(each.parents) & set(left)]))
        left.remove(node)
        order.append(node)
    value = output.item()
    assert graph.forward(order) == value
    graph.backward(order)
    np.testing.assert_allclose([node.gradient for node in graph.nodes], expected, rtol=1e-12, atol=1e-12)


def test_wrong_order_names_the_parent_without_a_value():
    x, y, output = example()
    graph = Graph(output)
    add, first, square, last = graph.nodes[2:]
    add.name, first.name = "sum", "first"
    with pytest.raises(GraphError, match="first cannot be computed yet: its parent sum has no value"):
        graph.forward([x, y, first, add, square, last])
    graph.forward()
    for by in ("push", "pull"):
        with pytest.raises(GraphError, match="first comes before its parent sum"):
            graph.backward([x, y, first, add, square, last], by=by)
        with pytest.raises(GraphError, match="missing from the order"):
            graph.backward([x, y, add, square, last][:-1], by=by)
    with pytest.raises(GraphError, match="by='pul' is not a kind of backward pass"):
        graph.backward(by="pul")  # pyright: ignore[reportArgumentType]


def test_each_step_can_be_inspected():
    x, _, output = example()
    graph = Graph(output)
    graph.clear()
    assert [node.value is None for node in graph.nodes] == [False, False, True, True, True, True]
    seen = []
    for node in graph.forward_steps():
        seen.append(node.item())
        assert sum(each.value is None for each in graph.nodes) == min(4, 6 - len(seen))
    assert seen == [1, 2, 3, 3, 4, 12]
    of_x = [x.gradient for _ in graph.backward_steps()]
    # After ω, y², (x + y)x, x + y, y and x itself.
    assert of_x == [None, None, 12, 16, 16, 16]
    graph.clear()
    with pytest.raises(GraphError, match="has no value yet"):
        output.item()


def test_changed_value_is_propagated():
    x, _, output = example()
    x.value = np.asarray(2.0)
    assert Graph(output).forward() == 32
    assert output.item() == 32


def test_chain_of_100_000_nodes():
    x = Tensor(1.0)
    output = x
    for _ in range(100_000):
        output = -output
    output.backward()
    assert x.gradient == 1
    del output  # freeing a deep chain must not overflow the stack


def test_ladder_of_diamonds_takes_linear_time():
    x = Tensor(1.0)
    output = x
    for _ in range(60):
        output = output + output
    began = time.process_time()
    output.backward()
    assert x.gradient == 2.0**60
    assert len(Graph(output).nodes) == 61
    assert time.process_time() - began < 5  # visiting every path would take 30 years


def test_cycle_is_named():
    a, b = Tensor(1.0, name="a"), Tensor(1.0, name="b")
    c = a * b
    c.name = "c"
    b.function, b.parents = f.Negate(), (c,)
    with pytest.raises(GraphError, match=r"cycle: (b → c → b|c → b → c)"):
        Graph(c)


def test_gradients_of_inputs_are_separate_arrays():
    x, y = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    (x + y).sum().backward()
    assert x.gradient is not None
    assert y.gradient is not None
    x.gradient *= 0
    assert y.gradient.tolist() == [1, 1]


def test_pull_is_linear_in_the_arcs_of_one_child():
    parts = [Tensor([float(number)]) for number in range(2000)]
    graph = Graph(concat(parts).sum())
    began = time.process_time()
    graph.backward(by="pull")
    assert time.process_time() - began < 2
    assert all(part.gradient == 1 for part in parts)


def test_tensor_of_one_axis_is_iterable():
    x = Tensor([1.0, 2.0])
    first, second = x
    (first * second).backward()
    assert x.gradient is not None
    assert x.gradient.tolist() == [2, 1]
    with pytest.raises(GraphError, match="a single number, which cannot be iterated over"):
        list(Tensor(1.0))


def test_no_grad_records_nothing():
    x = Tensor(2.0)
    with no_grad():
        square = x * x
    output = square * x
    output.backward()
    assert x.gradient == 4
    assert square.op == "input"


def test_backward_needs_a_scalar():
    with pytest.raises(GraphError, match=r"has the shape \(2,\), but a backward pass starts from a single number"):
        (Tensor([1.0, 2.0]) * 2).backward()


def test_mismatched_shapes_are_named_with_their_nodes():
    x, y = Tensor(np.ones((2, 3)), name="x"), Tensor(np.ones((2, 4)), name="y")
    for formula in (lambda: x + y, lambda: x @ y):
        with pytest.raises(GraphError, match=r"x of shape \(2, 3\) and y of shape \(2, 4\)"):
            formula()


@pytest.mark.parametrize("value", ["one", [[1], [1, 2]], None, {"a": 1}])
def test_values_must_be_numeric(value):
    with pytest.raises(GraphError, match="a value must be"):
        Tensor(value)


@pytest.mark.filterwarnings("ignore:(overflow|divide by zero|invalid value)")
def test_infinities_are_traced_to_their_origin():
    x = Tensor(42.0, name="x")
    big = 2 * x**3 + 10
    power = exp(big)
    output = log(power)
    graph = Graph(output)
    graph.backward()
    assert graph.not_finite() == [(power, "value"), (big, "gradient")]
    zero = Tensor(0.0)
    quotient = 1 / zero
    assert Graph(quotient).not_finite() == [(quotient, "value")]


# --- Jacobians and differences -----------------------------------------------------------------------------------------------


def test_jacobian_of_softmax():
    x = Tensor([0.3, -1.0, 2.0])
    share = softmax(x)
    assert share.value is not None
    np.testing.assert_allclose(jacobian(share, x), np.diag(share.value) - np.outer(share.value, share.value), atol=1e-15)
    assert jacobian(x @ x, x).tolist() == [0.6, -2.0, 4.0]
    assert jacobian(x.reshape(3, 1) * Tensor([[1.0, 2.0]]), x).shape == (3, 2, 3)
    assert not jacobian(x * 2, Tensor(1.0)).any()


@settings(max_examples=30)
@given(seed=st.integers(0, 1000))
def test_gradients_against_differences(seed):
    random = np.random.default_rng(seed)

    def formula(x, w, b):
        return (tanh(x @ w + b) ** 2).mean() + softmax(x @ w)[0, 0]

    assert gradient_error(formula, random.normal(size=(2, 3)), random.normal(size=(3, 2)), random.normal(size=2)) < 1e-6


def test_wrong_gradient_is_detected():
    class Wrong(f.Tanh):
        def backward(self, z, x, a):
            return (z * (1 - x),)

    assert gradient_error(lambda x: apply(Wrong(), x), np.asarray(0.4)) > 0.1
    assert gradient_error(lambda x: apply(Wrong(), x) * 1e-8, np.asarray(0.4)) > 0.1
    assert gradient_error(lambda x: tanh(x) * 1e-8, np.asarray(0.4)) < 1e-6


# --- decimals -----------------------------------------------------------------------------------------------------------------


def test_decimals_exceed_the_precision_of_float64():
    with decimals(30):
        x = Tensor(Decimal(42))
        output = exp(2 * x**3 + 10)
        output.backward()
        assert x.gradient is not None
        assert f"{x.gradient.item():.17e}" == "2.43638067707197782e+64360"
        log(output).backward()
        assert x.gradient.item() == 10584


EXACT = [
    lambda x: x + x * x - x / (x + x) - (-x),
    lambda x: x**3 + x**-2 + x**0,
    lambda x: x**x,
    lambda x: (x - x) ** 0 + (x - x) ** 1 + (x - x) ** 2,
    lambda x: tanh(x * 1) + tanh(-x) + tanh(x - x),
    lambda x: exp(x) + log(x) + tanh(x),
    lambda x: sqrt(x) + sigmoid(x) + sigmoid(-x) + relu(x) + relu(-x),
    lambda x: (softmax(x.reshape(1, 1) @ [[1, 2]]) @ [1, 3]).sum(),
    lambda x: x.reshape(1).sum() + x.reshape(1, 1).mean() + x.reshape(1).max() + x.reshape(1).min(),
    lambda x: sin(x) * cos(x) + sin(-10 * x) - sin(x - x) + cos(x - x),
    lambda x: abs(x) + abs(-x) + abs(x - x) + maximum(x, -x, x) * minimum(x, x + x),
]


@pytest.mark.parametrize("number", range(len(EXACT)))
def test_decimals_agree_with_floats(number):
    formula = EXACT[number]
    x = Tensor(0.7)
    expected = formula(x)
    expected.backward()
    with decimals(40):
        precise = Tensor(Decimal("0.7"))
        found = formula(precise)
        found.backward()
    assert float(found.item()) == pytest.approx(expected.item(), rel=1e-14)
    assert float(precise.gradient.item()) == pytest.approx(float(x.gradient), rel=1e-13)


def test_values_without_a_decimal_form_are_refused():
    with pytest.raises(GraphError, match="gelu does not support decimals"):
        apply(f.GELU(), Tensor(Decimal(1)))
    with pytest.raises(GraphError, match="mul cannot mix floats and Decimals"):
        Tensor(Decimal(1)) * 0.5


def test_sine_of_decimals_to_the_last_digit():
    pi = "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798"
    with decimals(100):
        assert f"{f._pi():.95f}"[:80] == pi[:80]
        assert sin(Tensor(Decimal(pi) / 6)).item() == pytest.approx(Decimal("0.5"), abs=Decimal("1e-99"))
        assert abs(sin(Tensor(Decimal(pi))).item()) < Decimal("1e-98")
        assert cos(Tensor(Decimal(0))).item() == 1
        assert sin(Tensor(Decimal("1e-40"))).item() == Decimal("1e-40") - Decimal("1e-120") / 6
        assert sin(Tensor(Decimal("inf"))).item().is_nan()
        with pytest.raises(GraphError, match="an angle may have at most 10,000 digits before the decimal point"):
            sin(Tensor(Decimal("1e99999")))


# --- nodes with a gradient slot -----------------------------------------------------------------------------------------------


def slide() -> tuple[SlotNode, SlotNode, list[SlotNode]]:
    """Inputs and nodes of the example, in topological order."""
    x, y = SlotNode(1.0, "x"), SlotNode(2.0, "y")
    add, multiply = f.Add(), f.Multiply()
    s = add(x, y)
    t = multiply(s, x)
    q = multiply(y, y)
    return x, y, [x, y, s, t, q, multiply(t, q)]


def test_function_objects_create_children_with_empty_slots():
    x, y, nodes = slide()
    assert nodes[2].parents == (x, y)
    assert [node.z.item() for node in nodes] == [0] * 6
    assert [node.value is None for node in nodes] == [False, False, True, True, True, True]
    assert "x=None, z=0.0" in repr(nodes[2])
    assert f.Add()(Tensor(1.0), Tensor(2.0)).item() == 3


def test_all_forwards_then_all_backwards_in_reverse():
    x, y, nodes = slide()
    for node in nodes:
        node.forward()
    assert [node.x.item() for node in nodes] == [1, 2, 3, 3, 4, 12]
    nodes[-1].z = 1
    for node in reversed(nodes):
        node.backward()
    assert [node.z.item() for node in nodes] == [16, 16, 4, 4, 3, 1]
    # The slots accumulate; the engine's own pass resets them.
    graph = Graph(nodes[-1])
    graph.backward()
    assert [node.z.item() for node in graph.nodes] == [16, 16, 4, 4, 3, 1]
    nodes[-2].backward()
    assert (x.z, y.z) == (16, 16 + 2 * 2 * 3)


def test_slots_of_arrays_and_decimals():
    w, b = SlotNode([[1.0, 2.0], [3.0, 4.0]]), SlotNode([1.0, -1.0])
    nodes = [f.MatMul()(w, b)]
    nodes += [f.Add()(nodes[-1], b)]
    nodes += [f.Sum()(nodes[-1])]
    for node in nodes:
        node.forward()
    nodes[-1].z = 1
    for node in reversed(nodes):
        node.backward()
    assert nodes[-1].x == -2
    assert (w.z.tolist(), b.z.tolist()) == ([[1, -1], [1, -1]], [5, 7])
    x = SlotNode(1.0)
    doubled = [x]
    for _ in range(70):
        doubled.append(f.Add()(doubled[-1], doubled[-1]))
    for node in doubled:
        node.forward()
    doubled[-1].z = 1
    for node in reversed(doubled):
        node.backward()
    assert x.z == 2.0**70
    x = SlotNode(Decimal("1e400"))
    square = f.Multiply()(x, x)
    square.forward()
    square.z = 1
    square.backward()
    assert x.z.item() == Decimal("2e400")


def test_a_node_without_the_values_of_its_parents_is_refused():
    _, _, nodes = slide()
    nodes[2].name = "sum"
    with pytest.raises(GraphError, match="sum has no value yet"):
        nodes[3].forward()
    with pytest.raises(GraphError, match="sum has no value yet"):
        assert nodes[2].x
