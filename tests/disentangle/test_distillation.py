"""Means of several models' posteriors, and the soft targets computed from them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fixtures import channel
from ramify.disentangle.batch import LinkCollator
from ramify.disentangle.config import ChatInput, DecodingConfig
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.words import learn_vocabulary
from ramify.disentangle.distillation import soft_targets
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.ensemble import disentangle_ensemble, mean_probabilities
from ramify.disentangle.inference.predict import predict_posterior
from ramify.disentangle.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.disentangle.posterior import LinkPosterior
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError
from ramify.tree import Node, Tree

TREES = [channel(40, 0), channel(25, 1)]
WORDS = learn_vocabulary([node.text.split() for tree in TREES for node in tree.nodes], min_count=1)


def teacher(window: int, seed: int, **decoding: Any) -> Disentangler:
    torch.manual_seed(seed)
    backbone = FeatureModel(FeatureModelConfig(vocab_size=WORDS.vocab_size, dim=4, hidden=8))
    task = ReplyLinking(backbone, WORDS, ChatInput(window=window, causal=bool(seed % 2)))
    return Disentangler(task, DecodingConfig(**decoding))


def logs_for(model: Disentangler) -> Logs:
    return Logs.build(TREES, model.input).tokenize(model.tokenizer)


def table(model: Disentangler, window: int) -> np.ndarray:
    found = np.zeros((65, window + 1))
    posterior = LinkPosterior.concatenate(list(predict_posterior(model.task, model.decoding, logs_for(model))))
    place = 0
    for message, length in zip(posterior.messages.tolist(), posterior.lengths.tolist()):
        for each in range(place, place + length):
            back = message - int(posterior.candidates[each])
            if back <= window:
                found[message, back] = posterior.probabilities[each]
        place += length
    return found / found.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("window", [3, 6, 9])
def test_teacher_probabilities_are_the_mean_over_candidates_in_the_window(window: int) -> None:
    teachers = [teacher(6, 0), teacher(4, 1)]
    teacher_probabilities = mean_probabilities(teachers, lambda: TREES, window)
    expected = np.mean([table(each, window) for each in teachers], axis=0)
    np.testing.assert_allclose(teacher_probabilities, expected, atol=1e-6)
    np.testing.assert_allclose(teacher_probabilities.sum(axis=1), 1, atol=1e-5)


def test_soft_targets_mix_teacher_probabilities_with_gold_links() -> None:
    nodes = (
        Node("a", None),
        Node("b", (), self_link=True),
        Node("c", (0, 1)),
        Node("d", (2,)),
        Node("e", (0,)),
    )
    logs = Logs.build([Tree(nodes)], ChatInput(window=3))
    teacher_probabilities = np.full((5, 4), 0.25, dtype=np.float32)
    targets = soft_targets(logs, teacher_probabilities, distillation_weight=0.4)
    np.testing.assert_allclose(targets[0], 0.25)
    np.testing.assert_allclose(targets[1], [0.7, 0.1, 0.1, 0.1])
    np.testing.assert_allclose(targets[2], [0.1, 0.4, 0.4, 0.1])
    np.testing.assert_allclose(targets[3], [0.1, 0.7, 0.1, 0.1])
    # The parent is outside the window, so the teachers' probabilities are the whole target.
    np.testing.assert_allclose(targets[4], 0.25)
    assert (teacher_probabilities == 0.25).all()
    fewer = soft_targets(logs, teacher_probabilities[:3], distillation_weight=0.4)
    np.testing.assert_allclose(fewer[:3], targets[:3])
    np.testing.assert_allclose(fewer[3:], [[0, 1, 0, 0], [0, 0, 0, 0]])


def test_soft_targets_replace_gold_links() -> None:
    logs = logs_for(teacher(6, 0))
    shares = np.random.default_rng(0).random((len(logs), 7), dtype=np.float32)
    view = Blocks(logs, np.arange(len(logs)), block=5)
    batch = LinkCollator(logs, soft_targets=shares)([view.example(number) for number in range(len(view))])
    sums = torch.zeros(batch.num_targets).index_add(0, batch.target_index, batch.target_probability)
    torch.testing.assert_close(sums, torch.ones(batch.num_targets))
    start = int(batch.candidates.offsets[-2])
    last = shares[64] / shares[64].sum()
    np.testing.assert_allclose(batch.target_probability[start:].numpy(), last, rtol=1e-5)
    known = replace(LinkCollator(logs), soft_targets=None)([view.example(0)])
    assert set(known.target_probability.tolist()) <= {0.0, 1.0}


def test_ensemble_decides_by_mean_probabilities() -> None:
    models = [teacher(6, 0), teacher(4, 1), teacher(5, 2)]
    found = disentangle_ensemble(models, TREES[0], ensemble="mean", ignore_replies=True)
    expected = np.mean([table(each, 6)[:40] for each in models], axis=0)
    parents = [node.parents[0] if node.parents else number for number, node in enumerate(found.tree.nodes)]
    assert parents == (np.arange(40) - expected.argmax(axis=1)).tolist()
    np.testing.assert_allclose(found.probability, expected.max(axis=1), atol=1e-5)
    votes = disentangle_ensemble(models, TREES[0], ensemble="vote", ignore_replies=True)
    assert [node.parents for node in votes.tree.nodes] != [node.parents for node in found.tree.nodes]
    with pytest.raises(RamifyError, match="beam"):
        disentangle_ensemble(models, TREES[0], ensemble="mean", beam=2)
    assert len(disentangle_ensemble(models, Tree(()), ensemble="mean", ignore_replies=True).probability) == 0


def test_ensemble_decides_by_conversation_if_all_members_do() -> None:
    models = [teacher(6, 0), teacher(4, 1)]
    by_link = disentangle_ensemble(models, TREES[0], ensemble="mean", ignore_replies=True)
    models = [teacher(6, 0, decide="conversation"), teacher(4, 1, decide="conversation")]
    found = disentangle_ensemble(models, TREES[0], ensemble="mean", ignore_replies=True)
    teacher_probabilities = np.mean([table(each, 6)[:40] for each in models], axis=0)
    sums = {}
    for number, node in enumerate(found.tree.nodes):
        parent = node.parents[0] if node.parents else number
        near = [(number - back, share) for back, share in enumerate(teacher_probabilities[number].tolist()) if back <= number]
        for candidate, share in near:
            # The message is not in a conversation yet, even if it will be.
            which = -1 if candidate == number else found.conversation[candidate]
            sums[number, which] = sums.get((number, which), 0.0) + share
        chosen = -1 if parent == number else found.conversation[parent]
        assert sums[number, chosen] == pytest.approx(max(share for (of, _), share in sums.items() if of == number), abs=1e-5)
    assert [node.parents for node in found.tree.nodes] != [node.parents for node in by_link.tree.nodes]
    several_answers = {"decide": "conversation", "threshold": 0.15}
    models = [teacher(6, 0, **several_answers), teacher(4, 1, **several_answers)]
    several = disentangle_ensemble(models, TREES[0], ensemble="mean", ignore_replies=True)
    assert several.conversation.tolist() == found.conversation.tolist()
    assert len(several.links()) > len(found.links())
    models[0] = teacher(6, 0, threshold=0.15)
    with pytest.raises(RamifyError, match="members that decide alike"):
        disentangle_ensemble(models, TREES[0], ensemble="mean", ignore_replies=True)
