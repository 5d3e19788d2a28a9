"""Features of later messages, against a plain computation from their definitions."""

import math

import numpy as np
import pytest

from fixtures import conversation_state
from ramify.disentangle.data.channel import NO_AUTHOR
from ramify.disentangle.features.conversation import ConversationState
from ramify.disentangle.features.lookahead import LOOKAHEAD, LOOKAHEAD_FEATURES, MAX_COUNT, compute_lookahead_features

WINDOW = 7


def random_posteriors(seed: int, size: int) -> np.ndarray:
    """The probability of each distance to the parent; the first message is message 0."""
    random = np.random.default_rng(seed)
    probabilities = random.dirichlet(np.full(WINDOW + 1, 0.4), size).astype(np.float32)
    probabilities[np.arange(WINDOW + 1) > np.arange(size)[:, None]] = 0
    return probabilities / probabilities.sum(axis=1, keepdims=True)


def plainly(own: ConversationState, probabilities: np.ndarray, message: int, candidate: int) -> dict[str, float]:
    """The features by their definitions, one later message after the other."""
    speaker, is_self = own.author, candidate == message
    later = range(message + 1, min(len(probabilities), message + 1 + LOOKAHEAD))
    before = range(max(0, message - WINDOW), message)
    there = [] if is_self else [each for each in before if own.conversation[each] == own.conversation[candidate]]

    def answers(one: int, other: int) -> float:
        return float(probabilities[one, one - other]) if 0 < one - other <= WINDOW else 0.0

    inside, onward = {}, {message: 1.0}
    for each in later:
        parents = [(other, answers(each, other)) for other in later if other < each]
        inside[each] = sum(answers(each, other) for other in there) + sum(inside[other] * share for other, share in parents)
        onward[each] = answers(each, message) + sum(onward[other] * share for other, share in parents)
    author = speaker[message]
    mine = [each for each in later if speaker[each] == author != NO_AUTHOR]
    people = {int(speaker[each]) for each in there} - {int(author), NO_AUTHOR}
    members = [each for each in later if speaker[each] in people]
    others = [each for each in later if each not in mine and each not in members]
    its_author = [each for each in later if speaker[each] == speaker[candidate] != NO_AUTHOR]
    theirs = its_author if speaker[candidate] != author else []
    found = [
        min(sum(inside[each] for each in mine), MAX_COUNT),
        min(sum(onward[each] for each in mine), MAX_COUNT),
        sum(answers(each, message) for each in mine),
        sum(float(probabilities[each, 0]) for each in mine),
    ]
    for whose in (theirs, members, others):
        found += [min(sum(onward[each] for each in whose), MAX_COUNT), sum(answers(each, message) for each in whose)]
    found.append(math.log1p(sum(inside.values())))
    found += [sum(answers(each, candidate) for each in whose) for whose in (later, mine, [] if is_self else its_author)]
    return dict(zip(LOOKAHEAD_FEATURES, found, strict=True))


@pytest.mark.parametrize(("size", "first"), [(60, 10), (40, 0), (5, 0), (1, 0)])
@pytest.mark.parametrize("seed", range(3))
def test_features_follow_their_definitions(seed: int, size: int, first: int) -> None:
    own, probabilities = conversation_state(seed, size, WINDOW), random_posteriors(seed, size)
    messages = np.arange(first, size)
    candidates = np.maximum(messages[:, None] - np.arange(5), 0)
    real = messages[:, None] >= np.arange(5)
    real[::3, 4] = False
    found = compute_lookahead_features(own, messages, probabilities[messages], candidates, real)
    for row, message in enumerate(messages.tolist()):
        for place, candidate in enumerate(candidates[row].tolist()):
            if real[row, place]:
                got = dict(zip(LOOKAHEAD_FEATURES, found[row, place].tolist()))
                assert got == pytest.approx(plainly(own, probabilities, message, candidate), abs=1e-5), (message, candidate)
            else:
                assert not found[row, place].any()


def test_lookahead_reads_a_bounded_number_of_later_messages() -> None:
    """Only `LOOKAHEAD` later messages matter, even if more are given."""
    size = 20 + 10 + LOOKAHEAD + 5
    own, probabilities = conversation_state(7, size, WINDOW), random_posteriors(7, size)
    messages, asked = np.arange(20, size), np.arange(20, 30)
    candidates = asked[:, None] - np.arange(4)
    real = np.ones(candidates.shape, dtype=bool)
    found = compute_lookahead_features(own, messages, probabilities[messages], candidates, real)
    enough = messages[: len(asked) + LOOKAHEAD]
    np.testing.assert_array_equal(compute_lookahead_features(own, enough, probabilities[enough], candidates, real), found)
    fewer = messages[: len(asked) + LOOKAHEAD - 5]
    assert np.abs(compute_lookahead_features(own, fewer, probabilities[fewer], candidates, real) - found).max() > 1e-4


def test_lookahead_ignores_another_log_behind_a_gap() -> None:
    """The first messages of the other log are left out, so the requested messages lie behind a gap."""
    size, end = 60, 30
    own, probabilities = conversation_state(8, size, WINDOW), random_posteriors(8, size)
    messages = np.concatenate([np.arange(10, end), np.arange(40, size)])
    asked = messages[: end - 10]
    candidates = asked[:, None] - np.arange(4)
    real = np.ones(candidates.shape, dtype=bool)
    alone = compute_lookahead_features(own, asked, probabilities[asked], candidates, real)
    np.testing.assert_array_equal(compute_lookahead_features(own, messages, probabilities[messages], candidates, real), alone)
