"""Features of what is said later, against a plain reading of their definitions."""

import math

import numpy as np
import pytest

from fixtures import course
from ramify.disentangle.data.channel import NOBODY
from ramify.disentangle.features.conversation import Course
from ramify.disentangle.features.lookahead import AHEAD, HINDSIGHT, MANY, hindsight

WINDOW = 7


def believed(seed: int, size: int) -> np.ndarray:
    """How likely each message answers the one so many places back; the first message is message 0."""
    random = np.random.default_rng(seed)
    chances = random.dirichlet(np.full(WINDOW + 1, 0.4), size).astype(np.float32)
    chances[np.arange(WINDOW + 1) > np.arange(size)[:, None]] = 0
    return chances / chances.sum(axis=1, keepdims=True)


def plainly(own: Course, chances: np.ndarray, message: int, candidate: int) -> dict[str, float]:
    """By their definition, one later message after the other."""
    speaker, is_self = own.speaker, candidate == message
    later = range(message + 1, min(len(chances), message + 1 + AHEAD))
    before = range(max(0, message - WINDOW), message)
    there = [] if is_self else [each for each in before if own.conversation[each] == own.conversation[candidate]]

    def answers(one: int, other: int) -> float:
        return float(chances[one, one - other]) if 0 < one - other <= WINDOW else 0.0

    inside, onward = {}, {message: 1.0}
    for each in later:
        among = [(other, answers(each, other)) for other in later if other < each]
        inside[each] = sum(answers(each, other) for other in there) + sum(inside[other] * share for other, share in among)
        onward[each] = answers(each, message) + sum(onward[other] * share for other, share in among)
    author = speaker[message]
    mine = [each for each in later if speaker[each] == author != NOBODY]
    people = {int(speaker[each]) for each in there} - {int(author), NOBODY}
    members = [each for each in later if speaker[each] in people]
    others = [each for each in later if each not in mine and each not in members]
    its_author = [each for each in later if speaker[each] == speaker[candidate] != NOBODY]
    theirs = its_author if speaker[candidate] != author else []
    found = [
        min(sum(inside[each] for each in mine), MANY),
        min(sum(onward[each] for each in mine), MANY),
        sum(answers(each, message) for each in mine),
        sum(float(chances[each, 0]) for each in mine),
    ]
    for whose in (theirs, members, others):
        found += [min(sum(onward[each] for each in whose), MANY), sum(answers(each, message) for each in whose)]
    found.append(math.log1p(sum(inside.values())))
    found += [sum(answers(each, candidate) for each in whose) for whose in (later, mine, [] if is_self else its_author)]
    return dict(zip(HINDSIGHT, found, strict=True))


@pytest.mark.parametrize(("size", "first"), [(60, 10), (40, 0), (5, 0), (1, 0)])
@pytest.mark.parametrize("seed", range(3))
def test_features_are_what_they_are_called(seed: int, size: int, first: int) -> None:
    own, chances = course(seed, size, WINDOW), believed(seed, size)
    messages = np.arange(first, size)
    candidates = np.maximum(messages[:, None] - np.arange(5), 0)
    real = messages[:, None] >= np.arange(5)
    real[::3, 4] = False
    found = hindsight(own, messages, chances[messages], candidates, real)
    for row, message in enumerate(messages.tolist()):
        for place, candidate in enumerate(candidates[row].tolist()):
            if real[row, place]:
                got = dict(zip(HINDSIGHT, found[row, place].tolist()))
                assert got == pytest.approx(plainly(own, chances, message, candidate), abs=1e-5), (message, candidate)
            else:
                assert not found[row, place].any()


def test_some_messages_of_those_that_are_believed_of() -> None:
    """More may follow than are asked for; `AHEAD` of them matter."""
    size = 20 + 10 + AHEAD + 5
    own, chances = course(7, size, WINDOW), believed(7, size)
    messages, asked = np.arange(20, size), np.arange(20, 30)
    candidates = asked[:, None] - np.arange(4)
    real = np.ones(candidates.shape, dtype=bool)
    found = hindsight(own, messages, chances[messages], candidates, real)
    enough = messages[: len(asked) + AHEAD]
    np.testing.assert_array_equal(hindsight(own, enough, chances[enough], candidates, real), found)
    fewer = messages[: len(asked) + AHEAD - 5]
    assert np.abs(hindsight(own, fewer, chances[fewer], candidates, real) - found).max() > 1e-4


def test_another_log_behind_a_gap_is_not_what_follows() -> None:
    """Of another log the first messages may be left out: what is asked for stands behind a gap."""
    size, end = 60, 30
    own, chances = course(8, size, WINDOW), believed(8, size)
    messages = np.concatenate([np.arange(10, end), np.arange(40, size)])
    asked = messages[: end - 10]
    candidates = asked[:, None] - np.arange(4)
    real = np.ones(candidates.shape, dtype=bool)
    alone = hindsight(own, asked, chances[asked], candidates, real)
    np.testing.assert_array_equal(hindsight(own, messages, chances[messages], candidates, real), alone)
