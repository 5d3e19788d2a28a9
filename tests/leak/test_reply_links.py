"""Reply links: the gold links of a log move no prediction by one bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import ramify
from fixtures import channel
from ramify.cli.disentangle import LINKS
from ramify.disentangle.data.words import learn_vocabulary
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.evaluation import CONVERSATION
from ramify.disentangle.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.disentangle.task import ReplyLinking
from ramify.tree import Node, Tree

LOG = channel(150, 5)


def shipped(online: bool = False) -> Disentangler:
    model = ramify.load(LINKS, device="cpu")
    assert isinstance(model, Disentangler)
    assert model.task.candidate_pruner is not None
    assert model.task.config.lookahead
    return Disentangler(model.task, replace(model.decoding, online=online))


def feature_model() -> Disentangler:
    torch.manual_seed(0)
    words = learn_vocabulary([node.text.lower().split() for node in LOG.nodes], min_count=1)
    backbone = FeatureModel(FeatureModelConfig(vocab_size=words.vocab_size, dim=4, hidden=8))
    return Disentangler(ReplyLinking(backbone, words))


MODELS = {
    "the feature model": feature_model,
    "the model that ships with Ramify": shipped,
    "the same as on a live channel": lambda: shipped(online=True),
}


def with_other_links(seed: int) -> list[Tree]:
    """The log as annotated, without annotation, and with wrong annotation."""
    random = np.random.default_rng(seed)
    unknown = [replace(node, parents=None, self_link=False, label=None) for node in LOG.nodes]
    wrong = [
        replace(node, parents=(int(random.integers(number)),) if number else (), label={CONVERSATION: int(random.integers(9))})
        for number, node in enumerate(unknown)
    ]
    return [LOG, *(Tree(tuple(nodes), id=LOG.id) for nodes in (unknown, wrong))]


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_gold_links_do_not_change_predictions(make) -> None:
    model = make()
    first, *others = (model.disentangle(log) for log in with_other_links(seed=1))
    assert 0 < first.conversation.max() < len(LOG) - 1
    for other in others:
        assert other.links().tolist() == first.links().tolist()
        assert other.probability.tolist() == first.probability.tolist()


def test_gold_links_do_not_change_live_predictions() -> None:
    def predict(nodes: tuple[Node, ...]) -> list[tuple]:
        live = shipped().live()
        return [(each.parent, each.also, each.probability) for node in nodes for each in [live.predict(node)]]

    first, *others = (predict(log.nodes[:60]) for log in with_other_links(seed=2))
    assert others == [first, first]
