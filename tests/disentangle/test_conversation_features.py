"""Features of the candidates' conversations, against a plain computation from their definitions."""

import math

import numpy as np
import pytest

from fixtures import conversation_state
from ramify.disentangle.data.channel import NO_AUTHOR
from ramify.disentangle.features.conversation import (
    ABSENT_LOG_DISTANCE,
    CONVERSATION_FEATURES,
    EPSILON,
    ConversationState,
    compute_conversation_features,
)

WINDOW = 7


def plainly(
    own: ConversationState, message: int, candidate: int, probabilities: dict[int, float], rank: int
) -> dict[str, float]:
    """One feature by its definition, over the messages of the window."""
    earlier = range(max(0, message - WINDOW), message)
    probability, best = probabilities[candidate], max(probabilities.values())
    author, is_self = own.author[message], candidate == message
    by_author = [each for each in earlier if own.author[each] == author] if author != NO_AUTHOR else []
    joined = "new" if is_self else own.conversation[candidate]
    there = [each for each in earlier if own.conversation[each] == joined]
    mine = [each for each in there if each in by_author]
    answers = [each for each in earlier if own.parent[each] == candidate and each != candidate]
    grandparent = own.parent[candidate]
    masses: dict[int | str, float] = {"new": probabilities[message]}
    for other, share in probabilities.items():
        if other != message:
            masses[own.conversation[other]] = masses.get(own.conversation[other], 0.0) + share
    found = {
        "log_probability": math.log(probability),
        "probability": probability,
        "entropy": -sum(share * math.log(share + EPSILON) for share in probabilities.values()),
        "highest_probability": best,
        "rank": rank,
        "is_self": is_self,
        "is_self_of_known_author": is_self and bool(by_author),
        "log_distance": math.log(max(1, message - candidate)),
        "conversation_probability": masses[joined],
        "log_conversation_probability": math.log(masses[joined] + EPSILON),
        "conversation_margin": masses[joined] - max([0.0, *(mass for other, mass in masses.items() if other != joined)]),
        "log_distance_of_author_in_conversation": ABSENT_LOG_DISTANCE,
    }
    if not is_self:
        found |= {
            "same_author": candidate in by_author,
            "log_children": math.log1p(len(answers)),
            "author_answered_it": any(each in by_author for each in answers),
            "author_answered_it_last": bool(answers) and answers[-1] in by_author,
            "it_answers_author": grandparent != candidate and grandparent in by_author,
            "is_last_of_conversation": there[-1] == candidate,
            "log_distance_of_conversation": math.log1p(message - there[-1]),
            "author_takes_part": bool(mine),
            "log_distance_of_author_in_conversation": math.log1p(message - mine[-1]) if mine else ABSENT_LOG_DISTANCE,
            "log_messages_of_conversation": math.log(len(there)),
            "log_messages_of_others_in_conversation": math.log1p(len(there) - len(mine)),
            "author_was_last_in_conversation": bool(by_author) and own.conversation[by_author[-1]] == joined,
        }
    return {name: float(found.get(name, 0.0)) for name in CONVERSATION_FEATURES}


@pytest.mark.parametrize("seed", range(4))
def test_features_follow_their_definitions(seed: int) -> None:
    own, random = conversation_state(seed, 60, WINDOW), np.random.default_rng(seed + 100)
    messages = np.arange(20, 60)
    back = np.array([np.concatenate([[0], 1 + random.permutation(WINDOW)[:4]]) for _ in messages])
    probabilities = -np.sort(-random.dirichlet(np.ones(5), len(messages)).astype(np.float32), axis=1)
    for row in back:
        random.shuffle(row)
    candidates = messages[:, None] - back
    found = compute_conversation_features(own, messages, candidates, probabilities)
    for number, message in enumerate(messages.tolist()):
        shares = dict(zip(candidates[number].tolist(), probabilities[number].tolist()))
        for place, candidate in enumerate(candidates[number].tolist()):
            expected = plainly(own, message, candidate, shares, place)
            got = dict(zip(CONVERSATION_FEATURES, found[number, place].tolist()))
            assert got == pytest.approx(expected, abs=2e-5), (message, candidate)


def test_features_do_not_depend_on_later_messages() -> None:
    whole = conversation_state(5, 60, WINDOW)
    messages, probabilities = np.array([30, 31]), np.full((2, 3), 1 / 3, dtype=np.float32)
    candidates = messages[:, None] - np.arange(3)
    early = ConversationState(*(each[:32] for each in (whole.parent, whole.conversation, whole.author)), WINDOW)
    np.testing.assert_array_equal(
        compute_conversation_features(whole, messages, candidates, probabilities),
        compute_conversation_features(early, messages, candidates, probabilities),
    )


def test_incremental_features_equal_batched_features() -> None:
    own = conversation_state(6, 60, WINDOW)
    messages, probabilities = np.arange(10, 40), np.full((30, 4), 0.25, dtype=np.float32)
    candidates = messages[:, None] - np.arange(4)
    together = compute_conversation_features(own, messages, candidates, probabilities)
    for row, number in enumerate(messages.tolist()):
        alone = compute_conversation_features(
            own, messages[row : row + 1], candidates[row : row + 1], probabilities[row : row + 1]
        )
        np.testing.assert_array_equal(together[row], alone[0], err_msg=str(number))


def test_padding_candidates_change_no_feature() -> None:
    own = conversation_state(7, 60, WINDOW)
    messages, candidates = np.array([20]), np.array([[19, 20, 20]])
    probabilities = np.array([[0.6, 0.4, 0.0]], dtype=np.float32)
    bare = compute_conversation_features(own, messages, candidates[:, :2], probabilities[:, :2])
    np.testing.assert_array_equal(compute_conversation_features(own, messages, candidates, probabilities)[:, :2], bare)
