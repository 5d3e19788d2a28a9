"""Ancestor distances, against shortest paths found message by message."""

from collections import deque
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import channel, tokenizer
from ramify.disentangle.config import ChatInput
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.structure import ReplyStructure
from ramify.tree import Tree


def looking_back(targets: list[int], window: int, begin: int = 0) -> tuple[Ints, Ints]:
    """The flat candidates of some targets of a log that begins at message `begin`, and the number of candidates of each."""
    own = [list(range(target, max(begin, target - window) - 1, -1)) for target in targets]
    return np.concatenate(own), np.array([len(each) for each in own])


def steps(structure: ReplyStructure, message: int, other: int) -> int:
    """The number of links on the shortest path from a message up to another one, by breadth-first search; 0 without a path."""
    reached = {message: 0}
    waiting = deque([message])
    while waiting:
        own = waiting.popleft()
        for parent in structure.parents.get(own, []):
            if parent not in reached:
                reached[parent] = reached[own] + 1
                waiting.append(parent)
    return reached.get(other, 0)


@st.composite
def links(draw: st.DrawFn) -> list[tuple[int, int]]:
    """(child, parent): up to three links per message, some to itself, some twice."""
    return [
        (message, parent)
        for message in range(draw(st.integers(2, 18)))
        for parent in draw(st.lists(st.integers(0, message), max_size=3))
    ]


@given(links(), st.integers(1, 12), st.integers(0, 5), st.data())
@settings(max_examples=80)
def test_links_up_are_counted_by_the_shortest_way(drawn: list[tuple[int, int]], window: int, begin: int, data: st.DataObject):
    structure = ReplyStructure()
    for child, parents in drawn:
        structure.add_link(child, parents)
    last = max((message for message, _ in drawn), default=0) + begin + 2
    targets = sorted(data.draw(st.sets(st.integers(begin, last), min_size=1, max_size=6)))
    candidates, lengths = looking_back(targets, window, begin)
    ancestors = structure.measure_ancestors(candidates, lengths)
    assert ancestors.shape == (len(targets), lengths.max(), lengths.max())
    for target, size, found in zip(targets, lengths.tolist(), ancestors.tolist(), strict=True):
        for i in range(lengths.max()):
            for j in range(lengths.max()):
                # The target, in place 0, is skipped, and places before the log's first message have no ancestors.
                known = 0 < i < size and 0 < j < size
                assert found[i][j] == (steps(structure, target - i, target - j) if known else 0)


def test_shortest_of_several_paths_counts() -> None:
    structure = ReplyStructure({1: [0], 2: [1], 3: [2, 0], 4: [3]})
    (found,) = structure.measure_ancestors(*looking_back([5], 9))
    assert found[1].tolist() == [0, 0, 1, 2, 3, 2]
    assert found[2].tolist() == [0, 0, 0, 1, 2, 1]
    assert found[5].tolist() == [0] * 6


def test_a_message_does_not_answer_itself() -> None:
    structure = ReplyStructure()
    structure.add_link(3, 3)
    assert structure.parents == {}
    structure.add_link(3, 1)
    structure.add_link(3, 3)
    assert structure.parents == {3: [1]}
    (found,) = structure.measure_ancestors(*looking_back([4], 9))
    assert np.argwhere(found).tolist() == [[1, 3]]


def test_links_beyond_the_window_are_left_out() -> None:
    structure = ReplyStructure({2: [0], 3: [2], 4: [1, 3]})
    (found,) = structure.measure_ancestors(*looking_back([5], 3))
    # Candidates are 5, 4, 3 and 2.
    assert found.tolist() == [[0, 0, 0, 0], [0, 0, 1, 2], [0, 0, 0, 1], [0, 0, 0, 0]]


def test_links_of_a_target_count_for_later_targets() -> None:
    structure = ReplyStructure({1: [0], 2: [1]})
    early, late = structure.measure_ancestors(*looking_back([2, 3], 9))
    assert np.argwhere(early).tolist() == [[1, 2]]
    # Its link to 1, and from there to 0, now counts.
    assert late[1].tolist() == [0, 0, 1, 2]
    assert not late[0].any()
    assert not late[:, 0].any()


def test_gold_structure_is_separate_for_each_log() -> None:
    trees = [channel(20, 0), channel(15, 1)]
    nodes = list(trees[1].nodes)
    nodes[12] = replace(nodes[12], parents=(3, 8), self_link=True)
    trees[1] = Tree(tuple(nodes), id="log")
    logs = Logs.build(trees, ChatInput(window=6)).tokenize(tokenizer())
    expected = {
        first + number: sorted(first + parent for parent in node.parents)
        for first, tree in zip((0, 20), trees)
        for number, node in enumerate(tree.nodes)
        if node.parents
    }
    assert expected[32] == [23, 28]
    known = ReplyStructure.from_gold(logs)
    assert {message: sorted(parents) for message, parents in known.parents.items()} == expected
    view = Blocks(logs, np.arange(20, 35), block=15)
    example = view.example(0)
    ancestors = known.measure_ancestors(example.context, example.context_lengths)
    assert ancestors[13].any()
    for row, target in enumerate(range(20, 35)):
        for i, j in np.argwhere(ancestors[row]).tolist():
            assert ancestors[row, i, j] == steps(known, target - i, target - j)


def test_copy_of_a_structure_is_independent() -> None:
    structure = ReplyStructure({2: [0]})
    other = structure.copy()
    other.add_link(2, 1)
    other.add_link(3, 2)
    assert structure == ReplyStructure({2: [0]})
    assert other == ReplyStructure({2: [0, 1], 3: [2]})
