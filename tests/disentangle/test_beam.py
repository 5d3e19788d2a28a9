"""Beam search over links, against greedy decoding and against all structures."""

import math
from functools import cache
from itertools import product

import numpy as np
import pytest
from small_links import CLOSE, LOGS, PLAIN, TREES, feature_task, read, shares, task

from fixtures import channel
from ramify.disentangle.config import DecodingConfig
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.structure import ReplyStructure
from ramify.disentangle.inference import links
from ramify.disentangle.inference.links import predict_links
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError
from ramify.tree import Tree


def beam_of(own: ReplyLinking, logs: Logs, width: int, start: Ints | None = None) -> tuple[list[int], np.ndarray]:
    found = links._beam_search(own, PLAIN, logs, width, logs.offsets[:-1] if start is None else start)
    return found.parent.tolist(), found.probability


def exhaustive(own: ReplyLinking, logs: Logs) -> tuple[float, tuple[int, ...], list[float]]:
    """The likeliest of all structures of one log: its probability, which is the product of its links' probabilities, and its
    links."""

    @cache
    def after(links: tuple[int, ...]) -> dict[int, float]:
        structure = ReplyStructure()
        for message, answered in enumerate(links):
            structure.add_link(message, answered)
        return shares(own, logs, len(links), structure)

    every = product(*(range(message + 1) for message in range(len(logs))))
    chances = {links: [after(links[:place])[above] for place, above in enumerate(links)] for links in every}
    assert len(chances) == math.factorial(len(logs))
    assert sum(map(math.prod, chances.values())) == pytest.approx(1, abs=1e-4)
    best = max(chances, key=lambda links: math.prod(chances[links]))
    return math.prod(chances[best]), best, chances[best]


def test_beam_of_one_is_greedy_decoding() -> None:
    own = task()
    start = LOGS.offsets[:-1] + np.array([3, 0, 8, 4, 0])
    for begin in (None, start):
        answered, probability, *_ = predict_links(own, PLAIN, LOGS, start=begin)
        found, chances = beam_of(own, LOGS, 1, begin)
        assert found == answered.tolist()
        np.testing.assert_allclose(chances, probability, **CLOSE)


@pytest.mark.parametrize(("objective", "seed"), [("listwise", 3), ("listwise", 4), ("ranking", 7)])
def test_a_wide_beam_finds_the_likeliest_of_all_structures(objective: str, seed: int) -> None:
    own, logs = task(seed, objective), read(channel(5, seed))
    total, links, chances = exhaustive(own, logs)
    # Before the last message there are 24 structures.
    answered, probability, *_ = predict_links(own, PLAIN, logs, beam=24)
    assert answered.tolist() == list(links)
    np.testing.assert_allclose(probability, chances, **CLOSE)
    # With these weights, greedy decoding gives a less likely structure.
    one_after_the_other, shares_of_it, *_ = predict_links(own, PLAIN, logs)
    assert one_after_the_other.tolist() != answered.tolist()
    assert math.prod(shares_of_it.tolist()) < total


def test_each_log_has_a_beam_of_its_own() -> None:
    own = task()
    answered, probability, *_ = predict_links(own, PLAIN, LOGS, beam=3)
    for tree, first in zip(TREES, LOGS.offsets.tolist()):
        found, chances, *_ = predict_links(own, PLAIN, read(tree), beam=3)
        assert (found + first).tolist() == answered[first : first + len(tree)].tolist()
        np.testing.assert_allclose(chances, probability[first : first + len(tree)], **CLOSE)
    # Each beam keeps its own structure: each probability depends on the links that precede it in that structure.
    structure = ReplyStructure()
    for message, above in enumerate(answered.tolist()):
        assert shares(own, LOGS, message, structure)[above] == pytest.approx(float(probability[message]), rel=1e-3, abs=1e-5)
        structure.add_link(message, above)


def test_beam_skips_messages_before_decode_start() -> None:
    start = LOGS.offsets[:-1] + np.array([3, 0, 8, 4, 0])
    answered, probability, *_ = predict_links(task(), PLAIN, LOGS, beam=2, start=start)
    for first, begin, end in zip(LOGS.offsets, start, LOGS.offsets[1:]):
        assert answered[first:begin].tolist() == list(range(first, begin))
        assert not probability[first:begin].any()
        assert (probability[begin:end] > 0).all()


@pytest.mark.parametrize(
    "own",
    [
        pytest.param(feature_task, id="feature model"),
        pytest.param(lambda: task(objective="binary"), id="binary"),
        pytest.param(lambda: task(mask="temporal"), id="temporal mask"),
        pytest.param(lambda: task(mask="none"), id="no mask"),
    ],
)
def test_beam_is_refused_for_independent_links(own) -> None:
    with pytest.raises(RamifyError, match="beam=2 needs a model that reads the parents of earlier messages"):
        predict_links(own(), PLAIN, LOGS, beam=2)


@pytest.mark.parametrize("decide_by", ["conversation", "comembership"])
def test_beam_is_refused_for_decoding_by_conversation(decide_by: str) -> None:
    own = task()
    decoding = DecodingConfig(decide=decide_by)  # pyright: ignore[reportArgumentType]
    with pytest.raises(RamifyError, match=rf"decoding\.decide=link, not {decide_by}"):
        predict_links(own, decoding, LOGS, beam=2)


def test_beam_over_no_messages_is_empty() -> None:
    own, logs = task(), read()
    for history in ("predicted", "gold"):
        assert [len(each) for each in predict_links(own, PLAIN, logs, history=history)] == [0, 0, 0, 0]
    assert [len(each) for each in predict_links(own, PLAIN, logs, beam=3)] == [0, 0, 0, 0]
    answered, *_ = predict_links(own, PLAIN, read(Tree((), id="empty"), channel(3)), beam=2)
    assert len(answered) == 3
