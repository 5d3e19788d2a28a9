"""Topological orders against brute force, and the names of cycles."""

import math
import time
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramify.autograd import GraphError, check_order, children, count_orders, topological_order, topological_orders
from ramify.autograd.arcs import MAX_NODES, read_arcs

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
    assert count_orders(parents) == len(expected)
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


def test_orders_are_counted_without_listing_them():
    assert count_orders(EXAMPLE) == 11
    assert count_orders({number: [] for number in range(100)}) == math.factorial(100)
    two_chains = {number: [number - 1] if number % 20 else [] for number in range(40)}
    assert count_orders(two_chains) == math.comb(40, 20)
    assert count_orders({1: [], 2: [1, 1]}) == 1
    # A node above 30 others has 2^30 sets of nodes that can come first.
    began = time.process_time()
    assert count_orders({number: [0] if number else [] for number in range(31)}) is None
    assert count_orders({number: [number - 1] if number else [] for number in range(300)}) == 1
    wide = {number: [] for number in range(999)}
    assert count_orders(wide | {999: list(wide)}) is None
    assert time.process_time() - began < 10
    with pytest.raises(GraphError, match=r"cycle: 1 → 1\. Remove an arc"):
        count_orders({1: [1]})


# --- graphs as arcs -----------------------------------------------------------------------------------------------------------


def test_arcs_are_read():
    example = {str(node): list(map(str, parents)) for node, parents in EXAMPLE.items()}
    assert read_arcs("1-3,1-5,2-4,3-4,4-6,5-6") == example
    assert list(read_arcs("5-6, 4 -> 6,1→3, 1-5,2-4 ,3-4")) == list(example)
    assert list(read_arcs("10-9, 9-1")) == ["1", "9", "10"]
    assert read_arcs("b-a, b-a, lone") == {"b": [], "a": ["b", "b"], "lone": []}
    assert read_arcs("1-1") == {"1": ["1"]}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the empty text at position 1 is not an arc. Write PARENT-CHILD, such as 1-3"),
        ("1-2,,2-3", "the empty text at position 5 is not an arc"),
        ("1-2-3", "'1-2-3' at position 1 is not an arc"),
        ("1-2, 2-", "'2-' at position 5 is not an arc"),
        ("1-2;2-3", "'1-2;2-3' at position 1 is not an arc"),
        ("a" * 21, "Names have at most 20"),
        (",".join(map(str, range(MAX_NODES + 1))), "more than 1,000 nodes"),
    ],
)
def test_wrong_arcs_are_explained(text, complaint):
    with pytest.raises(GraphError, match=complaint):
        read_arcs(text)
