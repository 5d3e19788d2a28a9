"""Decoding of links from posteriors, against plain computations."""

from dataclasses import replace

import numpy as np
import pytest
from small_links import LOGS, PLAIN, SIZES, shares, task

from ramify.disentangle.config import DecodingConfig
from ramify.disentangle.data.structure import ReplyStructure
from ramify.disentangle.inference.comembership import Comemberships
from ramify.disentangle.inference.decode import choose_by_comembership, choose_links
from ramify.disentangle.inference.links import predict_links
from ramify.disentangle.posterior import LinkPosterior


def random_posterior(seed: int, messages: int = 200, window: int = 9, start_odds: float = 1.0) -> LinkPosterior:
    """Posteriors of all messages of a log; some are nearly certain, and others have ties."""
    random = np.random.default_rng(seed)
    lengths = np.minimum(np.arange(messages), window) + 1
    parts = [random.integers(1, 4, length) ** random.choice([1.0, 6.0]) for length in lengths]
    for part in parts:
        part[0] *= start_odds * random.choice([1.0, 1.0, 3.0, 9.0])
    candidates = [number - np.arange(length) for number, length in enumerate(lengths)]
    probabilities = np.concatenate([part / part.sum() for part in parts]).astype(np.float32)
    return LinkPosterior(np.arange(messages), np.concatenate(candidates), lengths, probabilities)


@pytest.mark.parametrize("seed", range(5))
def test_decoding_by_conversation_sums_over_conversations(seed: int) -> None:
    posterior = random_posterior(seed)
    conversation, expected = list(range(200)), []
    by_message = np.split(np.arange(len(posterior.candidates)), np.cumsum(posterior.lengths)[:-1])
    for message, own in enumerate(by_message):
        shares = dict(zip(posterior.candidates[own].tolist(), posterior.probabilities[own].tolist()))
        total: dict[int, float] = {}
        for candidate, share in shares.items():
            total[conversation[candidate]] = total.get(conversation[candidate], 0.0) + share
        most = max(total.values())
        # Ties go to the oldest conversation, and within it to the nearest message.
        best = min(number for number, share in total.items() if share == most)
        inside = {candidate: share for candidate, share in shares.items() if conversation[candidate] == best}
        expected.append(max(inside, key=lambda candidate: (inside[candidate], candidate)))
        conversation[message] = conversation[expected[-1]]
    numbers = np.arange(200)
    parents, probability = posterior.choose_by_conversation(numbers)
    assert parents.tolist() == expected
    assert numbers.tolist() == conversation
    starts = np.cumsum(posterior.lengths) - posterior.lengths
    assert (probability == posterior.probabilities[starts + np.arange(200) - parents]).all()
    # Decoding link by link gives other links and other conversations.
    assert 5 < (parents != posterior.choose_likeliest()[0]).sum() < 150
    assert 3 < len(set(conversation)) < 150


@pytest.mark.parametrize("seed", range(5))
def test_decoding_by_comembership_takes_the_likeliest_conversation(seed: int) -> None:
    posterior = random_posterior(seed, start_odds=0.2)
    by_message = np.split(np.arange(len(posterior.candidates)), np.cumsum(posterior.lengths)[:-1])
    window = int(posterior.lengths.max()) - 1
    comembership = np.eye(200)
    conversation, expected = list(range(200)), []
    for message, own in enumerate(by_message):
        shares = dict(zip(posterior.candidates[own].tolist(), posterior.probabilities[own].tolist()))
        within = range(message - 1, max(message - window, 0) - 1, -1)
        for other in within:
            comembership[message, other] = comembership[other, message] = sum(
                share * comembership[candidate, other] for candidate, share in shares.items() if candidate != message
            )
        # Ties go to the nearest message.
        companion = max(within, key=lambda other: comembership[message, other], default=message)
        if companion == message or comembership[message, companion] < 0.5:
            expected.append(message)
            continue
        conversation[message] = conversation[companion]
        inside = {candidate: share for candidate, share in shares.items() if conversation[candidate] == conversation[companion]}
        inside.pop(message, None)
        expected.append(max(inside, key=lambda candidate: inside[candidate]) if inside else companion)
    numbers = np.arange(200)
    comemberships = Comemberships(np.array([0, 200]), window)
    parents, probability = choose_by_comembership(posterior, numbers, comemberships)
    assert parents.tolist() == expected
    assert numbers.tolist() == conversation
    starts = np.cumsum(posterior.lengths) - posterior.lengths
    back = np.arange(200) - parents
    read = back < posterior.lengths
    assert (probability[read] == posterior.probabilities[(starts + back)[read]]).all()
    assert (probability[~read] == 0).all()
    assert 5 < (parents != posterior.choose_likeliest()[0]).sum() < 150
    assert (parents != posterior.choose_by_conversation(np.arange(200))[0]).any()
    assert 3 < len(set(conversation)) < 150


def test_decoding_by_conversation_proceeds_message_by_message() -> None:
    own = task()
    by_link = predict_links(own, PLAIN, LOGS)
    decoding = DecodingConfig(decide="conversation")
    decided, numbers = predict_links(own, decoding, LOGS), np.arange(len(LOGS))
    structure = ReplyStructure()
    for log in range(len(SIZES)):
        for message in range(*LOGS.offsets[log : log + 2].tolist()):
            probabilities = shares(own, LOGS, message, structure)
            one = LinkPosterior(
                np.array([message]),
                np.array(list(probabilities)),
                np.array([len(probabilities)]),
                np.array(list(probabilities.values())),
            )
            parents, _ = one.choose_by_conversation(numbers)
            structure.add_link(message, int(parents[0]))
            assert decided.parent[message] == parents[0]
    assert (decided.parent != by_link.parent).any()


@pytest.mark.parametrize("decide_by", ["link", "conversation", "comembership"])
def test_further_parents_pass_the_threshold_and_share_the_conversation(decide_by: str) -> None:
    posterior, numbers = random_posterior(1, start_odds=0.2), np.arange(200)
    decoding = DecodingConfig(decide=decide_by, threshold=0.2)  # pyright: ignore[reportArgumentType]
    chosen = choose_links(posterior, decoding, numbers, Comemberships(np.array([0, 200]), 40))
    expected = [
        [message, candidate]
        for message, own in enumerate(np.split(np.arange(len(posterior.candidates)), np.cumsum(posterior.lengths)[:-1]))
        for candidate, share in zip(posterior.candidates[own].tolist(), posterior.probabilities[own].tolist())
        if share >= np.float32(0.2) and candidate != chosen.parent[message]
        if decide_by == "link" or (candidate != message and numbers[candidate] == numbers[message])
    ]
    assert chosen.further.tolist() == expected
    plain = replace(decoding, threshold=0.0)
    alone = choose_links(posterior, plain, np.arange(200), Comemberships(np.array([0, 200]), 40))
    assert (chosen.parent == alone.parent).all()
    assert len(expected) > 20
    assert len(alone.further) == 0
