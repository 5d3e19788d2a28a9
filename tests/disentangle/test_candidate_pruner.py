"""A first look: which candidates it leaves to be read, what it learns, and who may take one."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fixtures import channel
from ramify import hub
from ramify.disentangle import candidate_pruner as first_look
from ramify.disentangle.candidate_pruner import FirstLook, learn
from ramify.disentangle.config import History
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.words import learn_words
from ramify.disentangle.inference.decode import Opinion, batches, collator, opinions
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.disentangle.task import ReplyTo, ReplyToConfig
from ramify.errors import RamifyError
from ramify.nn.ragged import highest
from ramify.tasks.base import MAIN
from ramify.tree import Tree

HISTORY = History(window=25, causal=True)
WORDS = learn_words([["a"]], least=1)
LOGS = Logs.of([channel(80, seed) for seed in range(3)], HISTORY).read_with(WORDS)


def plain(**config: object) -> ReplyTo:
    torch.manual_seed(0)
    sizes = {"dim": 0, "hidden": 8, "surroundings": True, "context_layers": 1, "context_dim": 8, "context_heads": 2}
    backbone = FeatureModel(FeatureModelConfig(vocab_size=WORDS.vocab_size, **sizes))
    assert backbone.context is not None
    torch.nn.init.normal_(backbone.context.expand.weight)
    return ReplyTo(backbone, WORDS, HISTORY, ReplyToConfig(**config)).eval()  # pyright: ignore[reportArgumentType]


def looking(look: FirstLook) -> ReplyTo:
    task = plain()
    task.config, task.first = replace(task.config, first_look=look.among), look
    return task


def drawn(among: int) -> FirstLook:
    torch.manual_seed(1)
    return FirstLook(among, with_surroundings=True)


def believed(task: ReplyTo) -> Opinion:
    return Opinion.joined(list(opinions(task, LOGS)))


def rows(found: Opinion) -> list[np.ndarray]:
    return np.split(found.probabilities, np.cumsum(found.lengths)[:-1])


def test_where_all_are_read_nothing_changes() -> None:
    before, after = believed(plain()), believed(looking(drawn(26)))
    np.testing.assert_allclose(after.probabilities, before.probabilities, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("among", [2, 4])
def test_the_likeliest_and_the_message_itself_are_read(among: int) -> None:
    before, after = believed(plain()), believed(looking(drawn(among)))
    assert np.array_equal(before.candidates, after.candidates)
    for own in rows(after):
        assert own[0] > 0
        assert np.count_nonzero(own) == min(among, len(own))
        np.testing.assert_allclose(own.sum(), 1, rtol=1e-5)


def test_what_is_read_is_read_as_if_there_were_no_more() -> None:
    """The features stay with their candidates, and those that read each other are the chosen ones."""
    task, look = plain(), drawn(4)
    (batch,) = batches(task, collator(task, LOGS, None), LOGS.offsets[:-1])
    scores = looking(look).scores(batch)
    chosen, candidates = look.chosen(batch)
    by_hand = look(batch).detach()
    by_hand[batch.is_self.bool()] = torch.inf
    assert torch.equal(chosen, highest(by_hand, batch.candidates, 4)[0])
    few = batch.only(chosen, candidates)
    assert few.key_source.tolist() == batch.key_source[chosen.numpy()].tolist()
    torch.testing.assert_close(scores[chosen], task.scores(few))
    with pytest.raises(AssertionError):
        replace(batch, above=torch.zeros(1, 1, 1, dtype=torch.long)).only(chosen, candidates)


def test_who_answers_others_reads_others() -> None:
    """What its own author said before takes no place of what may be answered, as long as anybody else has said anything; then
    the likeliest of it is read."""
    task = looking(drawn(3))
    task.config = replace(task.config, answers="others")
    assert task.first is not None
    (batch,) = batches(task, collator(task, LOGS, None), LOGS.offsets[:-1])
    chosen, candidates = task.first.chosen(batch, hidden=batch.is_own)
    own = batch.is_own[chosen].split(candidates.host_lengths.tolist())
    others = ((batch.is_own == 0) & (batch.is_self == 0)).split(batch.candidates.host_lengths.tolist())
    for few, every in zip(own, others):
        assert int(few.sum()) == max(0, len(few) - 1 - int(every.sum()))
    scores = task.scores(batch)
    assert set(torch.nonzero(scores > -1e8).flatten().tolist()) == set(chosen.tolist())


def test_of_what_is_hidden_the_likeliest_is_read_however_it_is_batched() -> None:
    """One author speaks again and again, so that what is read must be some of what he said."""
    authors = "aaaaaaaaaaaaaabaaaacaaaaaab"
    log = Tree(tuple(replace(node, author=author) for node, author in zip(channel(len(authors), 0).nodes, authors)))
    logs = Logs.of([log], HISTORY).read_with(WORDS)
    task = looking(drawn(4))
    task.config = replace(task.config, answers="others")
    assert task.first is not None
    collate = collator(task, logs, None)
    (batch,) = batches(task, collate, logs.offsets[:-1])
    found, read, checked = task.first(batch), task.first.chosen(batch, hidden=batch.is_own)[0], 0
    ends = np.cumsum(batch.candidates.host_lengths)
    for message, stop in enumerate(ends.tolist()):
        start = stop - int(batch.candidates.host_lengths[message])
        own = torch.nonzero(batch.is_own[start:stop]).flatten() + start
        is_read = torch.isin(own, read)
        if is_read.any() and not is_read.all():
            assert found[own[is_read]].min() >= found[own[~is_read]].max()
            checked += 1
        alone = collate([Blocks(logs, np.array([message]), block=1).example(0)])
        chosen = task.first.chosen(alone, hidden=alone.is_own)[0]
        together = read[(read >= start) & (read < stop)]
        assert alone.key_source[chosen.numpy()].tolist() == batch.key_source[together.numpy()].tolist()
    assert checked > 5


def test_opinions_do_not_depend_on_how_messages_are_batched(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = believed(looking(drawn(6)))
    monkeypatch.setattr("ramify.disentangle.inference.decode.FIRST_KEYS", 60)
    monkeypatch.setattr("ramify.disentangle.inference.decode._BLOCK", 3)
    np.testing.assert_allclose(believed(looking(drawn(6))).probabilities, whole.probabilities, rtol=1e-4, atol=1e-7)


def test_the_loss_is_that_of_all_candidates() -> None:
    """A link that would not be read costs what the model itself thinks of it."""
    task, less = plain(), looking(drawn(2))
    (batch,) = batches(task, collator(task, LOGS, None), LOGS.offsets[:-1])
    for each in (own.losses(batch, {"links": 1.0}, MAIN, None) for own in (task, less)):
        ((loss,),) = (list(losses.values()) for losses, _ in each)
        assert loss.isfinite()
    torch.testing.assert_close(*(next(own.losses(batch, {"links": 1.0}, MAIN, None))[0]["links"] for own in (task, less)))


def kept(task: ReplyTo, look: FirstLook) -> float:
    """The share of what the model believes that it would still read."""
    full, read = believed(task), believed(looking(look))
    return float(full.probabilities[read.probabilities > 0].sum() / len(full.messages))


def test_it_learns_what_the_model_believes(tmp_path) -> None:
    task = plain()
    look = learn(task, LOGS, 6, seed=3)
    assert kept(task, look) > kept(task, drawn(6)) + 0.1
    again = learn(plain(), LOGS, 6, seed=3)
    assert all(torch.equal(one, other) for one, other in zip(look.parameters(), again.parameters()))
    hub.save(Disentangler(looking(look)), tmp_path)
    loaded = hub.load(tmp_path).task
    assert isinstance(loaded, ReplyTo)
    assert np.array_equal(believed(loaded).probabilities, believed(looking(look)).probabilities)


def test_it_learns_from_some_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_look, "MESSAGES", 20)
    monkeypatch.setattr("ramify.disentangle.inference.decode.KEYS", 260)
    one, other = (learn(plain(), LOGS, 6, seed=seed) for seed in (0, 1))
    assert not torch.equal(one.pair.weight, other.pair.weight)


def test_who_may_not_take_one() -> None:
    for setting in ({"first_look": -1}, {"first_look": 8, "objective": "binary"}):
        with pytest.raises(RamifyError, match=r"task\.first_look"):
            plain(**setting)
    alone = Logs.of([channel(1, seed=0)], HISTORY).read_with(WORDS)
    with pytest.raises(RamifyError, match="nothing to learn by"):
        learn(plain(), alone, 8)
