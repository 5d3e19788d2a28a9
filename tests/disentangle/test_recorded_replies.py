"""Replies that a log records win over all predictions, however it is decided."""

from dataclasses import replace

import numpy as np
import pytest
from small_links import INPUT, PLAIN, TREES, feature_task, read, task

from ramify.disentangle.config import DecodingConfig
from ramify.disentangle.inference.comembership import Comemberships
from ramify.disentangle.inference.decode import choose_by_comembership
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.ensemble import disentangle_ensemble
from ramify.disentangle.inference.links import predict_links
from ramify.disentangle.inference.result import find_recorded
from ramify.disentangle.posterior import LinkPosterior, join_recorded
from ramify.tree import Node, Tree


def log_of(*parents: tuple[int, ...] | None, starting: tuple[int, ...] = ()) -> Tree:
    """Messages with these parents."""
    texts = TREES[2].nodes
    nodes = (replace(texts[n], parents=own, self_link=n in starting) for n, own in enumerate(parents))
    return Tree(tuple(nodes), id="log")


KNOWN = log_of(None, None, (0,), None, (0, 3), None, (), None, (5,), None, (0,), None)
"""The window is 5, so the link 10 → 0 is longer; 4 joins two conversations."""

WAYS = [
    PLAIN,
    DecodingConfig(decide="conversation"),
    DecodingConfig(decide="conversation", threshold=0.1),
    DecodingConfig(decide="link", threshold=0.05),
    DecodingConfig(decide="comembership"),
    DecodingConfig(answers="others"),
    DecodingConfig(starts=False),
]


@pytest.mark.parametrize("decoding", WAYS, ids=lambda each: f"{each.decide} {each.threshold} {each.answers} {each.starts}")
@pytest.mark.parametrize("make", [task, feature_task])
def test_recorded_links_win(make, decoding) -> None:
    found = Disentangler(make(), decoding).disentangle(KNOWN)
    assert found.recorded == {2, 4, 6, 8, 10}
    for number in found.recorded:
        assert found.tree.nodes[number].parents == KNOWN.nodes[number].parents
        assert found.probability[number] == 1
    assert len({int(found.conversation[each]) for each in (0, 2, 3, 4, 10)}) == 1
    recorded, predicted = found.count_links()
    assert recorded == 5
    assert predicted == sum(len(node.parents or ()) for n, node in enumerate(found.tree.nodes) if n not in found.recorded)


def test_a_beam_keeps_recorded_links() -> None:
    model = Disentangler(task())
    for width in (1, 3):
        found = model.disentangle(KNOWN, beam=width)
        assert [found.tree.nodes[each].parents for each in (2, 4, 6, 8, 10)] == [(0,), (0, 3), (), (5,), (0,)]


@pytest.mark.parametrize("how", ["vote", "unanimous", "union", "union-most", "intersect", "mean"])
def test_ensembles_keep_recorded_links(how) -> None:
    members = [Disentangler(task(seed)) for seed in range(3)]
    found = disentangle_ensemble(members, KNOWN, ensemble=how)
    assert found.recorded == {2, 4, 6, 8, 10}
    assert [found.tree.nodes[each].parents for each in sorted(found.recorded)] == [(0,), (0, 3), (), (5,), (0,)]
    blind = disentangle_ensemble(members, KNOWN, ensemble=how, ignore_replies=True)
    unknown = Tree(tuple(replace(node, parents=None) for node in KNOWN.nodes), id="log")
    assert blind.links().tolist() == disentangle_ensemble(members, unknown, ensemble=how).links().tolist()


def test_prediction_reads_gold_links_only_where_they_are_given_as_recorded() -> None:
    """The logs of evaluations hold gold links, too."""
    logs, unknown = read(KNOWN), read(Tree(tuple(replace(node, parents=None) for node in KNOWN.nodes)))
    assert len(logs.links)
    own = task()
    assert predict_links(own, PLAIN, logs).parent.tolist() == predict_links(own, PLAIN, unknown).parent.tolist()
    found = predict_links(own, PLAIN, logs, recorded=find_recorded(KNOWN))
    assert [int(found.parent[each]) for each in (2, 4, 6, 8, 10)] == [0, 0, 6, 5, 0]
    assert found.further.tolist() == [[4, 3]]


def test_certainty_replaces_the_candidates_of_recorded_messages() -> None:
    posterior = LinkPosterior(
        np.array([8, 9]), np.array([8, 7, 6, 5, 9, 8, 7, 6]), np.array([4, 4]), np.full(8, 0.25, dtype=np.float32)
    )
    assert posterior.keep({}, 3) is posterior
    near, far, both = (posterior.keep({9: parents}, 3) for parents in ((7,), (2,), (2, 9, 8)))
    assert near.candidates.tolist() == [8, 7, 6, 5, 9, 7]
    assert near.probabilities.tolist() == [0.25] * 4 + [0, 1]
    assert (far.candidates.tolist()[4:], far.probabilities.tolist()[4:]) == ([9], [1])
    assert (both.candidates.tolist()[4:], both.probabilities.tolist()[4:]) == ([9, 8], [0.5, 0.5])
    for each, parent in ((near, 7), (far, 2), (both, 2)):
        parents, probabilities = each.choose_likeliest()
        assert (parents.tolist(), probabilities.tolist()) == ([8, parent], [0.25, 1])
    assert both.further_recorded.tolist() == [[9, 9], [9, 8]]


def test_a_recorded_link_joins_conversations() -> None:
    conversation = np.array([0, 1, 0, 3, 3, 5])
    join_recorded(conversation, 5, (3, 2))
    assert conversation.tolist() == [0, 1, 0, 0, 0, 0]
    join_recorded(start := np.arange(3), 2, (2,))
    assert start.tolist() == [0, 1, 2]


def test_comembership_knows_the_conversation_of_a_parent_outside_the_window() -> None:
    """5 answers 0, three windows back, as 4 does by way of 2. So 6, which answers 4 or 5, shares a conversation with both."""
    recorded = {2: (0,), 4: (2,), 5: (0,)}
    lengths = np.minimum(np.arange(7), 2) + 1
    candidates = np.concatenate([number - np.arange(length) for number, length in enumerate(lengths)])
    probabilities = np.where(candidates == np.repeat(np.arange(7), lengths), 1.0, 0.0).astype(np.float32)
    probabilities[-3:] = 0.1, 0.45, 0.45
    posterior = LinkPosterior(np.arange(7), candidates, lengths, probabilities).keep(recorded, 2)
    conversation = np.arange(7)
    parents, _ = choose_by_comembership(posterior, conversation, Comemberships(np.array([0, 7]), 2))
    assert parents.tolist() == [0, 1, 0, 3, 2, 0, 5]
    assert conversation.tolist() == [0, 1, 0, 3, 0, 0, 0]


def test_default_parents_record_nothing() -> None:
    """`Node` has no parents by default: a log of such nodes is not a log of starts."""
    nodes = [Node(node.text, author=node.author) for node in KNOWN.nodes]
    model = Disentangler(task())
    unknown = model.disentangle([replace(node, parents=None) for node in nodes])
    for log in (nodes, Tree(tuple(nodes)), iter(nodes)):
        found = model.disentangle(log)
        assert not found.recorded
        assert found.links().tolist() == unknown.links().tolist()
    # In a sequence, a reply and a start are recorded explicitly.
    found = model.disentangle([*nodes[:3], replace(nodes[3], parents=(1,)), replace(nodes[4], self_link=True), nodes[5]])
    assert found.recorded == {3, 4}
    assert [found.tree.nodes[each].parents for each in (3, 4)] == [(1,), ()]
    # In a tree, where another message has a parent, `()` is a start.
    assert find_recorded(log_of(None, (0,), ())) == {1: (0,), 2: (2,)}
    assert find_recorded(log_of((), (), (), starting=(1,))) == {0: (0,), 1: (1,), 2: (2,)}
    assert INPUT.window == 5
