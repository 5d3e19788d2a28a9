"""What is believed of messages, and what is made of it to be learned."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fixtures import channel
from ramify.disentangle.batch import LinkCollator
from ramify.disentangle.config import History
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.words import learn_words
from ramify.disentangle.distillation import beliefs, lessons
from ramify.disentangle.inference.decode import Opinion, opinions
from ramify.disentangle.inference.links import disentangle
from ramify.disentangle.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.disentangle.task import ReplyTo
from ramify.errors import RamifyError
from ramify.tree import Node, Tree

TREES = [channel(40, 0), channel(25, 1)]
WORDS = learn_words([node.text.split() for tree in TREES for node in tree.nodes], least=1)


def teacher(window: int, seed: int) -> ReplyTo:
    torch.manual_seed(seed)
    backbone = FeatureModel(FeatureModelConfig(vocab_size=WORDS.vocab_size, dim=4, hidden=8))
    return ReplyTo(backbone, WORDS, History(window=window, causal=bool(seed % 2)))


def logs_for(task: ReplyTo) -> Logs:
    return Logs.of(TREES, task.input).read_with(task.tokenizer)


def table(task: ReplyTo, window: int) -> np.ndarray:
    found = np.zeros((65, window + 1))
    opinion = Opinion.joined(list(opinions(task, logs_for(task))))
    place = 0
    for message, length in zip(opinion.messages.tolist(), opinion.lengths.tolist()):
        for each in range(place, place + length):
            back = message - int(opinion.candidates[each])
            if back <= window:
                found[message, back] = opinion.probabilities[each]
        place += length
    return found / found.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("window", [3, 6, 9])
def test_beliefs_are_the_mean_over_teachers_of_what_is_in_sight(window: int) -> None:
    teachers = [teacher(6, 0), teacher(4, 1)]
    believed = beliefs(teachers, lambda: TREES, window)
    expected = np.mean([table(each, window) for each in teachers], axis=0)
    np.testing.assert_allclose(believed, expected, atol=1e-6)
    np.testing.assert_allclose(believed.sum(axis=1), 1, atol=1e-5)


def test_lessons_mix_beliefs_with_what_is_known() -> None:
    nodes = (
        Node("a", None),
        Node("b", (), self_link=True),
        Node("c", (0, 1)),
        Node("d", (2,)),
        Node("e", (0,)),
    )
    logs = Logs.of([Tree(nodes)], History(window=3))
    believed = np.full((5, 4), 0.25, dtype=np.float32)
    taught = lessons(logs, believed, trust=0.4)
    np.testing.assert_allclose(taught[0], 0.25)
    np.testing.assert_allclose(taught[1], [0.7, 0.1, 0.1, 0.1])
    np.testing.assert_allclose(taught[2], [0.1, 0.4, 0.4, 0.1])
    np.testing.assert_allclose(taught[3], [0.1, 0.7, 0.1, 0.1])
    # What it answers is out of sight: belief is all there is.
    np.testing.assert_allclose(taught[4], 0.25)
    assert (believed == 0.25).all()
    fewer = lessons(logs, believed[:3], trust=0.4)
    np.testing.assert_allclose(fewer[:3], taught[:3])
    np.testing.assert_allclose(fewer[3:], [[0, 1, 0, 0], [0, 0, 0, 0]])


def test_shares_take_the_place_of_known_links() -> None:
    task = teacher(6, 0)
    logs = logs_for(task)
    shares = np.random.default_rng(0).random((len(logs), 7), dtype=np.float32)
    view = Blocks(logs, np.arange(len(logs)), block=5)
    batch = LinkCollator(logs, shares=shares)([view.example(number) for number in range(len(view))])
    sums = torch.zeros(batch.num_targets).index_add(0, batch.target_of, batch.gold)
    torch.testing.assert_close(sums, torch.ones(batch.num_targets))
    start = int(batch.candidates.offsets[-2])
    last = shares[64] / shares[64].sum()
    np.testing.assert_allclose(batch.gold[start:].numpy(), last, rtol=1e-5)
    known = replace(LinkCollator(logs), shares=None)([view.example(0)])
    assert set(known.gold.tolist()) <= {0.0, 1.0}


def test_several_decide_by_the_mean_of_what_they_believe() -> None:
    tasks = [teacher(6, 0), teacher(4, 1), teacher(5, 2)]
    found = disentangle(tasks, TREES[0], ensemble="mean")
    expected = np.mean([table(each, 6)[:40] for each in tasks], axis=0)
    answered = [node.parents[0] if node.parents else number for number, node in enumerate(found.tree.nodes)]
    assert answered == (np.arange(40) - expected.argmax(axis=1)).tolist()
    np.testing.assert_allclose(found.probability, expected.max(axis=1), atol=1e-5)
    votes = disentangle(tasks, TREES[0], ensemble="vote")
    assert [node.parents for node in votes.tree.nodes] != [node.parents for node in found.tree.nodes]
    with pytest.raises(RamifyError, match="beam"):
        disentangle(tasks, TREES[0], ensemble="mean", beam=2)
    assert len(disentangle(tasks, Tree(()), ensemble="mean").probability) == 0


def test_the_mean_decides_by_conversation_where_all_do() -> None:
    tasks = [teacher(6, 0), teacher(4, 1)]
    by_link = disentangle(tasks, TREES[0], ensemble="mean")
    for each in tasks:
        each.config = replace(each.config, decide="conversation")
    found = disentangle(tasks, TREES[0], ensemble="mean")
    believed = np.mean([table(each, 6)[:40] for each in tasks], axis=0)
    sums = {}
    for number, node in enumerate(found.tree.nodes):
        above = node.parents[0] if node.parents else number
        near = [(number - back, share) for back, share in enumerate(believed[number].tolist()) if back <= number]
        for candidate, share in near:
            # The message is not in a conversation yet, whatever it came to answer.
            which = -1 if candidate == number else found.conversation[candidate]
            sums[number, which] = sums.get((number, which), 0.0) + share
        chosen = -1 if above == number else found.conversation[above]
        assert sums[number, chosen] == pytest.approx(max(share for (of, _), share in sums.items() if of == number), abs=1e-5)
    assert [node.parents for node in found.tree.nodes] != [node.parents for node in by_link.tree.nodes]
    for each in tasks:
        each.config = replace(each.config, threshold=0.15)
    several = disentangle(tasks, TREES[0], ensemble="mean")
    assert several.conversation.tolist() == found.conversation.tolist()
    assert len(several.links()) > len(found.links())
    tasks[0].config = replace(tasks[0].config, decide="link")
    with pytest.raises(RamifyError, match="decide in one way"):
        disentangle(tasks, TREES[0], ensemble="mean")
