"""Topological orders against brute force, and the names of cycles."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramify.autograd import GraphError, check_order, children, topological_order, topological_orders

EXAMPLE = {1: [], 2: [], 3: [1], 4: [2, 3], 5: [1], 6: [4, 5]}
"""The graph of the course notes."""


@st.composite
def graphs(draw, most=6):
    size = draw(st.integers(1, most))
    names = draw(st.permutations(range(size)))
    arcs = {name: [names[each] for each in range(place) if draw(st.booleans())] for place, name in enumerate(names)}
    return {name: arcs[name] for name in range(size)}


def is_order(parents, order):
    place = {node: number for number, node in enumerate(order)}
    return all(place[parent] < place[node] for node, above in parents.items() for parent in above)


def test_example_has_eleven_orders():
    found = ["".join(map(str, order)) for order in topological_orders(EXAMPLE)]
    expected = "123456 123546 125346 132456 132546 135246 152346 153246 213456 213546 215346"
    assert found == expected.split()
    assert children(EXAMPLE)[1] == [3, 5]


@given(parents=graphs())
def test_orders_equal_brute_force(parents):
    expected = [list(order) for order in permutations(parents) if is_order(parents, order)]
    assert list(topological_orders(parents)) == expected
    assert topological_order(parents) == expected[0]


@given(parents=graphs(), data=st.data())
def test_order_is_checked(parents, data):
    order = data.draw(st.permutations(list(parents)))
    if is_order(parents, order):
        check_order(parents, order)
    else:
        with pytest.raises(GraphError, match="before its parent"):
            check_order(parents, order)


@pytest.mark.parametrize(
    ("order", "complaint"),
    [
        ([1, 2, 3, 4, 5], "6 is missing"),
        ([1, 1, 2, 3, 4, 5, 6], "twice"),
        ([1, 2, 3, 4, 5, 6, 7], "not a node"),
        ([1, 2, 4, 3, 5, 6], "4 comes before its parent 3"),
    ],
)
def test_wrong_orders_are_explained(order, complaint):
    with pytest.raises(GraphError, match=complaint):
        check_order(EXAMPLE, order)


def test_cycle_is_named_along_its_arcs():
    with pytest.raises(GraphError, match="the graph has a cycle: a → c → b → a"):
        topological_order({"a": ["b"], "b": ["c"], "c": ["a", "e"], "d": ["a"], "e": []})
    with pytest.raises(GraphError, match="cycle: x → x"):
        list(topological_orders({"x": ["x"]}))


def test_missing_parent_is_refused():
    with pytest.raises(GraphError, match="b has the parent a, which is not a node"):
        topological_order({"b": ["a"]})


def test_long_chains_need_no_stack():
    size = 100_000
    chain = {number: [number - 1] if number else [] for number in range(size)}
    assert topological_order(chain) == list(range(size))
    assert next(topological_orders(chain)) == list(range(size))
    chain[0] = [size - 1]
    with pytest.raises(GraphError, match="cycle"):
        topological_order(chain)
