"""Ensembles on handwritten votes, and properties of all ensembles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramify.disentangle.inference.ensemble import combine, count_votes, disentangle_ensemble
from ramify.errors import RamifyError
from ramify.metrics.conversations import find_conversations
from ramify.tree import Node, Tree

# Messages 0 to 4: the parent that each of three members gives.
SAID = [[(), (0,), (1,), (), (3,)], [(), (0,), (0,), (), (2,)], [(), (), (), (), (3,)]]


def members_of(parents):
    """Links from one number per message and member; a message that starts a conversation has its own number."""
    return [[() if parent == n else (parent,) for n, parent in enumerate(each)] for each in np.asarray(parents).tolist()]


@pytest.mark.parametrize(
    ("how", "parents"),
    [
        ("vote", [(), (0,), (), (), (3,)]),
        ("unanimous", [(), (), (), (), ()]),
        ("union", [(), (0,), (1, 0), (), (3, 2)]),
        ("union-most", [(), (0,), (), (), (3, 2)]),
    ],
)
def test_combinations_of_votes(how, parents):
    """Message 2 has three different votes: the shortest link is to itself."""
    assert combine(SAID, how) == parents


def test_vote_adds_links_of_more_than_half_the_members():
    member_links = [[(), (), (1, 0)], [(), (), (1, 0)], [(), (), (1,)]]
    assert combine(member_links, "vote") == [(), (), (1, 0)]
    assert combine(member_links, "unanimous") == [(), (), (1,)]
    assert combine([member_links[0], member_links[2]], "vote") == [(), (), (1,)]


def test_probabilities_are_shares_of_votes():
    assert count_votes(SAID, combine(SAID, "vote")).tolist() == pytest.approx([1, 2 / 3, 1 / 3, 1, 2 / 3])


def test_intersection_keeps_conversations_of_all_members():
    member_links = members_of([[0, 0, 1, 3, 3, 5, 5], [0, 0, 0, 3, 3, 5, 6], [0, 0, 1, 3, 3, 5, 5]])
    assert combine(member_links, "intersect") == [(), (0,), (1,), (), (3,), (), ()]
    # A conversation that is only part of another member's conversation is not in the intersection.
    assert combine(members_of([[0, 0, 1], [0, 0, 2]]), "intersect") == [(), (), ()]


def test_starts_of_messages_with_parents_count_as_votes():
    member_links = [[(), (), (2, 1)], [(), (), (1, 2)], [(), (), (0,)]]
    assert combine(member_links, "vote") == [(), (), (2, 1)]
    assert combine(member_links[:2], "unanimous") == combine(member_links[:2], "union") == [(), (), (2, 1)]
    assert combine(member_links, "union") == [(), (), (1, 0)]
    assert count_votes(member_links, combine(member_links, "vote")).tolist() == pytest.approx([1, 1, 2 / 3])


def test_links_of_an_intersection_are_majority_links():
    member_links = [[(), (0,), (0,), (2,)], [(), (0,), (0,), (1,)], [(), (0,), (1,), (1,)]]
    found = combine(member_links, "intersect")
    assert found == [(), (0,), (0,), (1,)]
    assert count_votes(member_links, found).tolist() == pytest.approx([1, 1, 2 / 3, 2 / 3])
    # No member gives message 1 a parent: message 2 joins it to the conversation.
    joined = [[(), (), (0, 1)]] * 2
    assert combine(joined, "intersect") == [(), (0,), (1,)]


@pytest.mark.ill_typed
def test_invalid_ensembles_are_refused():
    with pytest.raises(RamifyError, match="vote, unanimous"):
        combine(SAID, "shout")
    with pytest.raises(RamifyError, match="at least one member"):
        disentangle_ensemble([], Tree((Node("hello"),)), ensemble="mean")
    with pytest.raises(RamifyError, match="member"):
        combine([], "vote")


@st.composite
def votes(draw):
    members, size = draw(st.integers(1, 4)), draw(st.integers(0, 12))

    def answers(n):
        return tuple(draw(st.lists(st.integers(0, n - 1), unique=True, max_size=2))) if n else ()

    return [[answers(n) for n in range(size)] for _ in range(members)]


def labels(parents):
    pairs = [(parent, n) for n, own in enumerate(parents) for parent in own]
    return find_conversations(np.array(pairs, dtype=np.int64).reshape(-1, 2), np.arange(len(parents)))


@given(votes(), st.sampled_from(["vote", "unanimous", "union", "union-most", "intersect"]))
def test_identical_members_equal_one_member(member_links, how):
    alone = member_links[0]
    found = combine([alone] * 3, how)
    if how != "intersect":
        assert [set(own) for own in found] == [set(own) for own in alone]
    else:
        assert all(set(own) <= set(member_links) for own, member_links in zip(found, alone) if member_links)
    # The intersection keeps conversations, not links.
    one, two = labels(found), labels(alone)
    assert (one[:, None] == one).tolist() == (two[:, None] == two).tolist()


@given(votes())
def test_unanimous_links_are_within_vote_and_union(member_links):
    """Unanimous links are in the vote, and the vote is in the union; the union's conversations hold those of each member."""
    all_say, most, union = (combine(member_links, how) for how in ("unanimous", "vote", "union"))
    for few, more, any_of_them in zip(all_say, most, union):
        assert set(few) <= set(more) <= set(any_of_them)
    together = labels(union)
    for each in member_links:
        for message, own in enumerate(each):
            assert all(together[message] == together[parent] for parent in own)


@given(votes())
def test_conversations_of_the_intersection_are_in_every_member(member_links):
    found = labels(combine(member_links, "intersect"))
    for group in np.unique(found):
        members = np.flatnonzero(found == group)
        if len(members) > 1:
            for each in member_links:
                own = labels(each)
                assert np.flatnonzero(own == own[members[0]]).tolist() == members.tolist()
