"""Ensembles on votes written for them, and what must hold for any."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramify.errors import RamifyError
from ramify.metrics.conversations import conversations
from ramify.tasks.ensembles import chances, combine

# Messages 0 to 4, what each of three members says that they answer.
SAID = np.array([[0, 0, 1, 3, 3], [0, 0, 0, 3, 2], [0, 1, 2, 3, 3]])


@pytest.mark.parametrize(
    ("how", "parents"),
    [
        ("vote", [(), (0,), (), (), (3,)]),
        ("unanimous", [(), (), (), (), ()]),
        ("union", [(), (0,), (0, 1), (), (2, 3)]),
        ("union-most", [(), (0,), (), (), (2, 3)]),
    ],
)
def test_votes(how, parents):
    """Message 2 has three different votes: the shortest link is to itself."""
    assert combine(SAID, how) == parents


def test_chances_are_shares_of_votes():
    assert chances(SAID, combine(SAID, "vote")).tolist() == pytest.approx([1, 2 / 3, 1 / 3, 1, 2 / 3])


def test_intersection_keeps_conversations_that_all_find():
    said = np.array([[0, 0, 1, 3, 3, 5, 5], [0, 0, 0, 3, 3, 5, 6], [0, 0, 1, 3, 3, 5, 5]])
    assert combine(said, "intersect") == [(), (0,), (1,), (), (3,), (), ()]
    # A conversation that is part of another member's is none of theirs in common.
    assert combine(np.array([[0, 0, 1], [0, 0, 2]]), "intersect") == [(), (), ()]


def test_what_makes_no_sense():
    with pytest.raises(RamifyError, match="vote, unanimous"):
        combine(SAID, "shout")
    with pytest.raises(RamifyError, match="member"):
        combine(SAID[:0], "vote")


@st.composite
def votes(draw):
    members, size = draw(st.integers(1, 4)), draw(st.integers(0, 12))
    return np.array([[draw(st.integers(0, n)) for n in range(size)] for _ in range(members)]).reshape(members, size).astype(int)


def labels(parents):
    pairs = [(above, n) for n, own in enumerate(parents) for above in own]
    return conversations(np.array(pairs, dtype=np.int64).reshape(-1, 2), np.arange(len(parents)))


@given(votes(), st.sampled_from(["vote", "unanimous", "union", "union-most", "intersect"]))
def test_members_that_agree_are_one_model(said, how):
    same = np.stack([said[0]] * 3)
    alone = [() if above == n else (above,) for n, above in enumerate(said[0].tolist())]
    found = combine(same, how)
    if how != "intersect":
        assert found == alone
    # The intersection keeps conversations, not links.
    one, two = labels(found), labels(alone)
    assert (one[:, None] == one).tolist() == (two[:, None] == two).tolist()


@given(votes())
def test_from_the_narrowest_to_the_widest(said):
    """What all say is in the vote, the vote is in the union; the union's conversations hold each member's."""
    all_say, most, union = (combine(said, how) for how in ("unanimous", "vote", "union"))
    for few, more, any_of_them in zip(all_say, most, union):
        assert set(few) <= set(more) <= set(any_of_them)
    together = labels(union)
    for each in said:
        for message, above in enumerate(each.tolist()):
            assert together[message] == together[above]


@given(votes())
def test_conversations_in_the_intersection_are_every_members(said):
    found = labels(combine(said, "intersect"))
    for group in np.unique(found):
        members = np.flatnonzero(found == group)
        if len(members) > 1:
            for each in said:
                own = labels([() if above == n else (above,) for n, above in enumerate(each.tolist())])
                assert np.flatnonzero(own == own[members[0]]).tolist() == members.tolist()
