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
from ramify.disentangle.inference.beam import search_structures
from ramify.disentangle.inference.links import predict_links
from ramify.disentangle.posterior import NOTHING_RECORDED
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError
from ramify.tree import Tree


def beam_of(own: ReplyLinking, logs: Logs, width: int, start: Ints | None = None) -> tuple[list[int], np.ndarray]:
    found = search_structures(own, PLAIN, logs, width, logs.offsets[:-1] if start is None else start, NOTHING_RECORDED)
    return found.parent.tolist(), found.probability


def exhaustive(own: ReplyLinking, logs: Logs) -> tuple[float, tuple[int, ...], list[float]]:
    """The likeliest of all structures of one log: its probability, which is the product of its links' probabilities, and its
    links."""

    @cache
    def after(links: tuple[int, ...]) -> dict[int, float]:
        structure = ReplyStructure()
        for message, parents in enumerate(links):
            structure.add_link(message, parents)
        return shares(own, logs, len(links), structure)

    every = product(*(range(message + 1) for message in range(len(logs))))
    probabilities = {links: [after(links[:place])[parent] for place, parent in enumerate(links)] for links in every}
    assert len(probabilities) == math.factorial(len(logs))
    assert sum(map(math.prod, probabilities.values())) == pytest.approx(1, abs=1e-4)
    best = max(probabilities, key=lambda links: math.prod(probabilities[links]))
    return math.prod(probabilities[best]), best, probabilities[best]


def test_beam_of_one_is_greedy_decoding() -> None:
    own = task()
    start = LOGS.offsets[:-1] + np.array([3, 0, 8, 4, 0])
    for begin in (None, start):
        parents, probability, *_ = predict_links(own, PLAIN, LOGS, start=begin)
        found, probabilities = beam_of(own, LOGS, 1, begin)
        assert found == parents.tolist()
        np.testing.assert_allclose(probabilities, probability, **CLOSE)


@pytest.mark.parametrize(("objective", "seed"), [("listwise", 3), ("listwise", 4), ("ranking", 7)])
def test_a_wide_beam_finds_the_likeliest_of_all_structures(objective: str, seed: int) -> None:
    own, logs = task(seed, objective), read(channel(5, seed))
    total, links, probabilities = exhaustive(own, logs)
    # Before the last message there are 24 structures.
    parents, probability, *_ = predict_links(own, PLAIN, logs, beam=24)
    assert parents.tolist() == list(links)
    np.testing.assert_allclose(probability, probabilities, **CLOSE)
    # With these weights, greedy decoding gives a less likely structure.
    one_after_the_other, shares_of_it, *_ = predict_links(own, PLAIN, logs)
    assert one_after_the_other.tolist() != parents.tolist()
    assert math.prod(shares_of_it.tolist()) < total


def test_each_log_has_a_beam_of_its_own() -> None:
    own = task()
    parents, probability, *_ = predict_links(own, PLAIN, LOGS, beam=3)
    for tree, first in zip(TREES, LOGS.offsets.tolist()):
        found, probabilities, *_ = predict_links(own, PLAIN, read(tree), beam=3)
        assert (found + first).tolist() == parents[first : first + len(tree)].tolist()
        np.testing.assert_allclose(probabilities, probability[first : first + len(tree)], **CLOSE)
    # Each beam keeps its own structure: each probability depends on the links that precede it in that structure.
    structure = ReplyStructure()
    for message, parent in enumerate(parents.tolist()):
        assert shares(own, LOGS, message, structure)[parent] == pytest.approx(float(probability[message]), rel=1e-3, abs=1e-5)
        structure.add_link(message, parent)


def test_beam_skips_messages_before_decode_start() -> None:
    start = LOGS.offsets[:-1] + np.array([3, 0, 8, 4, 0])
    parents, probability, *_ = predict_links(task(), PLAIN, LOGS, beam=2, start=start)
    for first, begin, end in zip(LOGS.offsets, start, LOGS.offsets[1:]):
        assert parents[first:begin].tolist() == list(range(first, begin))
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
    with pytest.raises(RamifyError, match=rf"but decoding\.decide={decide_by}\. Set beam=1"):
        predict_links(own, decoding, LOGS, beam=2)


def test_beam_over_no_messages_is_empty() -> None:
    own, logs = task(), read()
    for history in ("predicted", "gold"):
        assert [len(each) for each in predict_links(own, PLAIN, logs, history=history)] == [0, 0, 0, 0]
    assert [len(each) for each in predict_links(own, PLAIN, logs, beam=3)] == [0, 0, 0, 0]
    parents, *_ = predict_links(own, PLAIN, read(Tree((), id="empty"), channel(3)), beam=2)
    assert len(parents) == 3
