"""Probabilities that two messages share a conversation, against all structures and against the plain recursion."""

from itertools import product

import numpy as np
import pytest

from ramify.disentangle.inference.comembership import Comembership, Comemberships


def parent_probabilities(seed: int, messages: int, window: int) -> list[np.ndarray]:
    """For each message, the probability of each distance to its parent (0: the message itself)."""
    random = np.random.default_rng(seed)
    shares = [random.random(min(number, window) + 1) ** 3 for number in range(messages)]
    return [(each / each.sum()).astype(np.float32) for each in shares]


def update_all(shares: list[np.ndarray], window: int) -> list[np.ndarray]:
    own = Comembership(window)
    return [own.update(np.arange(len(each)), each) for each in shares]


@pytest.mark.parametrize("seed", range(3))
def test_comembership_sums_over_all_structures(seed: int) -> None:
    size = 6
    shares = parent_probabilities(seed, size, window=size)
    expected = np.zeros((size, size))
    for backs in product(*(range(len(each)) for each in shares)):
        probability, conversation = 1.0, list(range(size))
        for message, back in enumerate(backs):
            probability *= float(shares[message][back])
            conversation[message] = conversation[message - back]
        expected += probability * np.equal.outer(conversation, conversation)
    for message, found in enumerate(update_all(shares, size)):
        np.testing.assert_allclose(found[:message], expected[message, :message][::-1], atol=1e-6)
        assert (found[message:] == 0).all()


def test_window_moves_along_the_log() -> None:
    """Messages beyond the window are forgotten, however often the table fills up."""
    window, size = 4, 90
    shares = parent_probabilities(7, size, window)
    table = np.eye(size)
    for message, (own, found) in enumerate(zip(shares, update_all(shares, window))):
        for back in range(1, min(message, window) + 1):
            other = message - back
            table[message, other] = table[other, message] = sum(
                own[distance] * table[message - distance, other] for distance in range(1, len(own))
            )
            assert found[back - 1] == pytest.approx(table[message, other], abs=1e-5)


def test_candidates_in_any_order_and_left_out_candidates() -> None:
    shares = parent_probabilities(1, 12, window=5)
    one, other = Comembership(5), Comembership(5)
    for own in shares:
        order = np.random.default_rng(len(own)).permutation(len(own))
        remaining = order[order != 2]
        without = own.copy()
        without[2:3] = 0
        assert (one.update(np.arange(len(own)), without) == other.update(remaining, own[remaining])).all()


def test_logs_in_one_table_are_independent() -> None:
    window, sizes = 3, [5, 0, 7]
    parts = [parent_probabilities(seed, size, window) for seed, size in enumerate(sizes)]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    together = Comemberships(offsets, window)
    alone = [update_all(each, window) for each in parts]
    for place in range(max(sizes)):
        for log, own in enumerate(parts):
            if place < len(own):
                found = together.select(int(offsets[log]) + place).update(np.arange(len(own[place])), own[place])
                assert (found == alone[log][place]).all()
    assert not together._by_log


def test_a_log_without_an_end_is_never_dropped() -> None:
    """Its rows may be numbered anew, as on a live channel."""
    shares = parent_probabilities(0, 9, window=3)
    live = Comemberships(np.zeros(1, dtype=np.int64), 3)
    for place, (row, expected) in enumerate(zip(shares, update_all(shares, 3), strict=True)):
        assert (live.select(place % 5).update(np.arange(len(row)), row) == expected).all()
