"""Reply trees as logs in order of time, and the structure that distinguishes them from chat logs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import built, chain, channel, discussion, parent_arrays, star, uniform
from ramify.dataset.store import Store
from ramify.disentangle.config import ChatInput
from ramify.disentangle.data.reply_trees import build_reply_logs, sort_by_time
from ramify.tree import Node, Tree


def timed(parent: list[int], times: list[float | None], name: str = "t") -> Tree:
    tree = discussion(parent, name=name)
    return Tree(tuple(replace(node, time=time) for node, time in zip(tree.nodes, times, strict=True)), id=name, meta={"a": 1})


def named_parents(tree: Tree) -> dict[str, tuple[str, ...]]:
    return {node.id: tuple(tree.nodes[each].id for each in node.parents or ()) for node in tree.nodes}


@given(parent_arrays(), st.data())
def test_nodes_are_in_order_of_time_and_after_their_parents(parent, data):
    clock = st.one_of(st.none(), st.integers(0, 5).map(float))
    tree = timed(parent, [data.draw(clock) for _ in parent])
    ordered = sort_by_time(tree)
    # `Tree` itself rejects a parent that follows its child.
    assert named_parents(ordered) == named_parents(tree)
    assert (ordered.id, ordered.meta) == (tree.id, tree.meta)
    assert {node.id: (node.text, node.time) for node in ordered.nodes} == {
        node.id: (node.text, node.time) for node in tree.nodes
    }
    # A node out of order by time follows a parent that is later, or has no time.
    due = -np.inf
    place = {node.id: number for number, node in enumerate(tree.nodes)}
    path = {node.id: (*(tree.nodes[each] for each in tree.ancestors(place[node.id])), node) for node in tree.nodes}
    earlier = -1
    for node in ordered.nodes:
        own = max(-np.inf if each.time is None else each.time for each in path[node.id])
        assert own >= due
        assert own > due or place[node.id] > earlier
        due, earlier = own, place[node.id]
    assert sort_by_time(ordered) == ordered


def test_given_times_order_the_nodes():
    tree = timed([-1, 0, 0, 1, 2], [0.0, 3.0, 1.0, 4.0, 2.0])
    assert [node.id for node in sort_by_time(tree).nodes] == ["t.0", "t.2", "t.4", "t.1", "t.3"]
    assert [node.parents for node in sort_by_time(tree).nodes] == [(), (0,), (1,), (0,), (3,)]


def test_deep_chain_with_clocks_that_go_back():
    size = 3000
    tree = timed(chain(size), [float(size - place) for place in range(size + 1)])
    assert sort_by_time(tree) == tree


# --- reply trees and logs -----------------------------------------------------------------------------------------------------

TREES = [discussion(uniform(9), name="a"), discussion(chain(4), name="b"), discussion(star(0), name="bare")]


def test_reply_trees_are_recognised_by_their_structure(tmp_path):
    for store in (Store.from_trees(TREES), built(TREES, tmp_path)):
        assert store.structure == "replies"
        assert Store.from_trees(store.trees()).structure == "replies"


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(channel(20), id="channel"),
        pytest.param(Tree((Node("one"), Node("two"))), id="two conversations"),
        pytest.param(Tree((Node("one"), Node("two", parents=None))), id="unknown parent"),
        pytest.param(Tree((Node("one", parents=None), Node("two", parents=(0,)))), id="unknown parent of the first"),
        pytest.param(Tree((Node("one"), Node("two", parents=(0,)), Node("three", parents=(0, 1)))), id="two parents"),
        pytest.param(Tree((Node("one"), Node("two", parents=(0,), self_link=True))), id="self link"),
    ],
)
def test_one_log_makes_a_store_of_logs(log):
    assert Store.from_trees([*TREES, log]).structure == "log"
    assert Store.from_trees([log]).structure == "log"


def test_comments_have_links_and_posts_have_none():
    tree = timed([-1, 0, 0, 1, 2], [0.0, 3.0, 1.0, 4.0, 2.0])
    logs = build_reply_logs([tree, discussion(star(0)), discussion(chain(3))], ChatInput(window=2))
    assert logs.offsets.tolist() == [0, 5, 6, 10]
    assert logs.links.tolist() == [[1, 0], [2, 1], [3, 0], [4, 3], [7, 6], [8, 7], [9, 8]]
    # Message 3 answers the message three places back.
    assert logs.linked.tolist() == [1, 2, 4, 7, 8, 9]
    assert logs.annotated.all()
