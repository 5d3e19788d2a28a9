"""The candidates that training reads, against a rule applied message by message."""

import numpy as np
import pytest

from fixtures import channel, tokenizer
from ramify.batching.views.base import Example
from ramify.disentangle.config import ChatInput
from ramify.disentangle.data.blocks import NEAR, Blocks
from ramify.disentangle.data.logs import Logs
from ramify.tree import Node

WINDOW = 60


@pytest.fixture(scope="module")
def trees():
    return [channel(150, seed) for seed in range(2)]


@pytest.fixture(scope="module")
def logs(trees):
    return Logs.build(trees, ChatInput(window=WINDOW)).tokenize(tokenizer())


def split(example: Example, *columns: np.ndarray) -> list[list[np.ndarray]]:
    """Each column, for one target after another."""
    return [np.split(column, np.cumsum(example.context_lengths)[:-1]) for column in columns]


def read(view: Blocks, epoch: int = 0) -> dict[int, list[int]]:
    """The candidates of each message."""
    found = {}
    for number in range(len(view)):
        example = view.example(number, epoch)
        (parts,) = split(example, example.context)
        found |= {target: part.tolist() for target, part in zip(example.targets.tolist(), parts, strict=True)}
    return found


def test_near_and_linked_candidates_are_always_sampled(trees, logs):
    def calls(node: Node, other: Node) -> bool:
        return node.text.startswith(f"{other.author}:")

    found = read(Blocks(logs, logs.linked, block=8, negative_sampling_rate=0.0))
    num_distant = 0
    for message, candidates in found.items():
        log = message // 150
        nodes, first = trees[log].nodes, 150 * log
        late = nodes[message - first]
        required = []
        for back in range(min(WINDOW, message - first) + 1):
            early = nodes[message - first - back]
            children = (message - first - back) in (late.parents or ())
            if back <= NEAR or late.author == early.author or calls(late, early) or calls(early, late) or children:
                required.append(message - back)
                num_distant += back > NEAR
        assert candidates == required
    assert num_distant > 1000
    assert len(found) == len(logs.linked)


def test_other_candidates_are_sampled_anew_in_every_epoch(logs):
    targets = logs.linked
    everything, always = read(Blocks(logs, targets, block=8)), read(Blocks(logs, targets, block=8, negative_sampling_rate=0.0))
    view = Blocks(logs, targets, block=8, negative_sampling_rate=0.25, seed=3)
    drawn = read(view)
    assert drawn == read(view)
    assert drawn != read(view, epoch=1)
    assert drawn != read(Blocks(logs, targets, block=8, negative_sampling_rate=0.25, seed=4))
    size = {name: sum(map(len, own.values())) for name, own in (("all", everything), ("always", always), ("drawn", drawn))}
    assert all(set(always[message]) <= set(own) <= set(everything[message]) for message, own in drawn.items())
    for number in range(len(view)):
        example = view.example(number)
        assert example.sampling_probability is not None
        for target, parts in zip(example.targets.tolist(), zip(*split(example, example.context, example.sampling_probability))):
            assert [probability == 1 for probability in parts[1]] == [each in always[target] for each in parts[0]]
            assert set(parts[1].tolist()) <= {1.0, 0.25}
    assert (size["drawn"] - size["always"]) / (size["all"] - size["always"]) == pytest.approx(0.25, abs=0.02)
