"""Reply links: the gold links of a log move no prediction by one bit, unless they are recorded replies that are to be kept."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import ramify
from fixtures import built, channel
from ramify.disentangle.data.words import learn_vocabulary
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.evaluation import CONVERSATION, evaluate_links
from ramify.disentangle.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.disentangle.task import ReplyLinking
from ramify.sample import LINKS
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
    first, *others = (model.disentangle(log, ignore_replies=True) for log in with_other_links(seed=1))
    assert 0 < first.conversation.max() < len(LOG) - 1
    for other in others:
        assert other.links().tolist() == first.links().tolist()
        assert other.probability.tolist() == first.probability.tolist()


def test_gold_links_do_not_change_live_predictions() -> None:
    def predict(nodes: tuple[Node, ...]) -> list[tuple]:
        live = shipped().live(ignore_replies=True)
        return [(each.parent, each.also, each.probability) for node in nodes for each in [live.predict(node)]]

    first, *others = (predict(log.nodes[:60]) for log in with_other_links(seed=2))
    assert others == [first, first]


def test_evaluation_predicts_the_links_that_a_data_set_records(tmp_path) -> None:
    """Recorded replies are kept by `disentangle`. To score a model against them, `evaluate` must not read them."""
    model, store = shipped(), built([LOG], tmp_path)
    found = evaluate_links(model, store, "all").match
    blind = model.disentangle(with_other_links(seed=3)[1])
    annotated = {number for number, node in enumerate(LOG.nodes) if node.parents is not None}
    expected = {(parent, child) for parent, child in blind.links().tolist() if child in annotated}
    (log,) = found.logs
    assert {tuple(link) for link in log.predicted.tolist()} == expected
    assert expected != {tuple(link) for link in model.disentangle(LOG).links().tolist() if link[1] in annotated}


def test_annotations_beside_a_log_are_not_its_record(tmp_path) -> None:
    """Gold links beside an IRC log, and Molweni's relations, are added later. Disentanglement reads neither."""
    (tmp_path / "two.log").write_text("[10:00] <ann> disk\n[10:01] <bob> ann: usb\n[10:02] <gus> alsa\n")
    (tmp_path / "two.annotation.txt").write_text("0 0 -\n0 1 -\n1 2 -\n")
    utterances = [{"text": text, "speaker": "ann"} for text in ("disk", "usb", "alsa")]
    molweni = {"id": "a", "edus": utterances, "relations": [{"x": 0, "y": 2, "type": "Comment"}]}
    (tmp_path / "dialogues.json").write_text(json.dumps([molweni]))
    for name, option in (("two.log", "beside"), ("dialogues.json", "relations")):
        (log,) = ramify.read_logs(tmp_path / name)
        assert {node.parents for node in log.nodes} == {None}
        (log,) = ramify.read_logs(tmp_path / name, annotations=option)
        assert log.nodes[2].parents in ((0,), (1,))
