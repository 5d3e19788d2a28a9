"""A second look: what it may change, what it learns, and who may take one."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fixtures import channel
from ramify import hub
from ramify.disentangle.config import History
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.words import learn_words
from ramify.disentangle.features.conversation import CONVERSING, Course
from ramify.disentangle.inference.decode import Opinion, decide, opinions
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.disentangle.reranker import AMONG, SecondLook, learn
from ramify.disentangle.task import ReplyTo, ReplyToConfig
from ramify.errors import RamifyError

TREES = [channel(80, seed) for seed in range(3)]
HISTORY = History(window=25, causal=True)


def once(**config: object) -> ReplyTo:
    torch.manual_seed(0)
    words = learn_words([["a"]], least=1)
    backbone = FeatureModel(FeatureModelConfig(vocab_size=words.vocab_size, dim=0, hidden=8))
    return ReplyTo(backbone, words, HISTORY, ReplyToConfig(**config)).eval()  # pyright: ignore[reportArgumentType]


def twice(look: SecondLook) -> ReplyTo:
    task = once()
    task.config = replace(task.config, second_look=look.first.out_features, hindsight=look.hindsight)
    task.second = look
    return task


def moved(hindsight: bool = False) -> SecondLook:
    torch.manual_seed(1)
    look = SecondLook(8, hindsight)
    torch.nn.init.normal_(look.last.weight)
    return look


LOGS = Logs.of(TREES, HISTORY).read_with(once().tokenizer)


def believed(task: ReplyTo) -> Opinion:
    return Opinion.joined(list(opinions(task, LOGS)))


def nats(found: Opinion) -> float:
    starts = np.cumsum(found.lengths) - found.lengths
    is_link = LOGS.is_link(np.repeat(found.messages, found.lengths), found.candidates)
    said = np.add.reduceat(np.where(is_link, found.probabilities, 0), starts)
    return float(-np.log(said[np.add.reduceat(is_link, starts) > 0]).mean())


def test_before_it_has_learned_it_changes_nothing() -> None:
    np.testing.assert_allclose(believed(twice(SecondLook(8))).probabilities, believed(once()).probabilities, rtol=1e-5)


def test_the_likeliest_share_what_they_had() -> None:
    before, after = believed(once()), believed(twice(moved()))
    assert np.array_equal(before.candidates, after.candidates)
    assert np.abs(before.probabilities - after.probabilities).max() > 0.01
    start = 0
    for length in before.lengths.tolist():
        one, other = (each.probabilities[start : start + length] for each in (before, after))
        again = np.argsort(-one, kind="stable")
        np.testing.assert_allclose(other[again[:AMONG]].sum(), one[again[:AMONG]].sum(), rtol=1e-5)
        np.testing.assert_array_equal(other[again[AMONG:]], one[again[AMONG:]])
        start += length


HOW = pytest.mark.parametrize("hindsight", [False, True])


@HOW
def test_opinions_do_not_depend_on_how_messages_are_batched(monkeypatch: pytest.MonkeyPatch, hindsight: bool) -> None:
    whole = believed(twice(moved(hindsight)))
    monkeypatch.setattr("ramify.disentangle.inference.decode.KEYS", 60)
    monkeypatch.setattr("ramify.disentangle.inference.decode._BLOCK", 3)
    np.testing.assert_allclose(believed(twice(moved(hindsight))).probabilities, whole.probabilities, rtol=1e-4, atol=1e-7)


@HOW
def test_logs_do_not_touch_each_other(hindsight: bool) -> None:
    task = twice(moved(hindsight))
    together = decide(task, LOGS).answered
    for number, tree in enumerate(TREES):
        first, stop = LOGS.offsets[number : number + 2]
        alone = decide(task, Logs.of([tree], HISTORY).read_with(task.tokenizer)).answered
        assert (alone + first == together[first:stop]).all()


def test_what_is_said_later_matters_with_hindsight_alone() -> None:
    """But for logs that are decided on as a live channel would be."""
    early = [replace(tree, nodes=tree.nodes[:50]) for tree in TREES]
    logs = Logs.of(early, HISTORY).read_with(once().tokenizer)
    for look, as_live in ((moved(), False), (moved(hindsight=True), True), (moved(hindsight=True), False)):
        task = twice(look)
        task.config = replace(task.config, as_live=as_live)
        whole, part = (
            np.concatenate([each.by_distance(HISTORY.window) for each in opinions(task, own)])[first : first + 50]
            for own, first in ((LOGS, int(LOGS.offsets[1])), (logs, 50))
        )
        assert (np.abs(whole - part).max() > 1e-3) == (look.hindsight and not as_live)


def test_as_live_is_the_first_sight_of_a_model_with_hindsight() -> None:
    task = twice(moved(hindsight=True))
    assert np.abs(believed(task).probabilities - believed(once()).probabilities).max() > 0.01
    task.config = replace(task.config, as_live=True)
    assert np.array_equal(believed(task).probabilities, believed(once()).probabilities)


@HOW
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_it_learns_and_is_the_same_once_saved(tmp_path, hindsight: bool, weight: float) -> None:
    task = once()
    settings: dict[str, Any] = {"seed": 3, "hindsight": hindsight, "conversation_weight": weight}
    look = learn([(task, LOGS)], 16, **settings)
    better = twice(look)
    assert nats(believed(better)) < nats(believed(task)) - 0.05
    again = learn([(once(), LOGS)], 16, **settings)
    assert all(torch.equal(one, other) for one, other in zip(look.parameters(), again.parameters()))
    hub.save(Disentangler(better), tmp_path)
    loaded = hub.load(tmp_path).task
    assert isinstance(loaded, ReplyTo)
    assert np.array_equal(believed(loaded).probabilities, believed(better).probabilities)


def test_features_may_be_of_any_size() -> None:
    """What was subtracted and divided by in training is part of the first layer."""
    look = learn([(once(), LOGS)], 16)
    course = Course.of(LOGS)
    assert look.first.in_features == len(CONVERSING)
    for opinion in opinions(once(), LOGS):
        assert np.isfinite(next(look.again([opinion], course)).probabilities).all()


def test_who_may_not_look_twice() -> None:
    for setting in ({"second_look": -1}, {"second_look": 8, "objective": "binary"}, {"hindsight": True}):
        with pytest.raises(RamifyError, match=r"task\.second_look"):
            once(**setting)
    bare = [replace(tree, nodes=tuple(replace(node, parents=None) for node in tree.nodes)) for tree in TREES]
    with pytest.raises(RamifyError, match="nothing to learn by"):
        learn([(once(), Logs.of(bare, HISTORY).read_with(once().tokenizer))], 8)
