"""Who replied to whom: what the log says of that changes nothing of what is found, not by one bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import ramify
from fixtures import channel
from ramify.cli.disentangle import LINKS
from ramify.disentangle.config import History
from ramify.disentangle.data.words import learn_words
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.links import CONVERSATION
from ramify.disentangle.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.disentangle.task import ReplyTo, ReplyToConfig
from ramify.tree import Node, Tree

LOG = channel(150, 5)


def shipped(**deciding: bool) -> ReplyTo:
    task = ramify.load(LINKS, device="cpu").task
    assert isinstance(task, ReplyTo)
    assert task.first is not None
    assert task.config.hindsight
    task.config = replace(task.config, **deciding)
    return task


def feature_model() -> ReplyTo:
    torch.manual_seed(0)
    words = learn_words([node.text.lower().split() for node in LOG.nodes], least=1)
    return ReplyTo(
        FeatureModel(FeatureModelConfig(vocab_size=words.vocab_size, dim=4, hidden=8)), words, History(), ReplyToConfig()
    )


TASKS = {
    "the feature model": feature_model,
    "the model that ships with Ramify": shipped,
    "the same as on a live channel": lambda: shipped(as_live=True),
}


def retold(seed: int) -> list[Tree]:
    """The log as it was annotated, and as nobody, and as somebody who was wrong, would have."""
    random = np.random.default_rng(seed)
    unknown = [replace(node, parents=None, self_link=False, label=None) for node in LOG.nodes]
    wrong = [
        replace(node, parents=(int(random.integers(number)),) if number else (), label={CONVERSATION: int(random.integers(9))})
        for number, node in enumerate(unknown)
    ]
    return [LOG, *(Tree(tuple(nodes), id=LOG.id) for nodes in (unknown, wrong))]


@pytest.mark.parametrize("make", TASKS.values(), ids=TASKS)
def test_what_messages_are_said_to_answer_is_not_read(make) -> None:
    model = Disentangler(make())
    first, *others = (model.disentangle(log) for log in retold(seed=1))
    assert 0 < first.conversation.max() < len(LOG) - 1
    for other in others:
        assert other.links().tolist() == first.links().tolist()
        assert other.probability.tolist() == first.probability.tolist()


def test_it_is_not_read_live_either() -> None:
    def heard(nodes: tuple[Node, ...]) -> list[tuple]:
        live = Disentangler(shipped()).live()
        return [(each.answered, each.also, each.probability) for node in nodes for each in [live.hear(node)]]

    first, *others = (heard(log.nodes[:60]) for log in retold(seed=2))
    assert others == [first, first]
