"""Candidate pruning: the candidates that remain, the training of the pruner, and the models that accept one."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fixtures import channel
from ramify import hub
from ramify.disentangle import candidate_pruner
from ramify.disentangle.candidate_pruner import CandidatePruner, fit_candidate_pruner
from ramify.disentangle.config import ChatInput, DecodingConfig, LinkConfig
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.words import learn_vocabulary
from ramify.disentangle.inference.batches import list_batches, make_collator
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.predict import predict_posterior, predict_shuffled
from ramify.disentangle.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.disentangle.posterior import LinkPosterior
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError
from ramify.nn.ragged import highest
from ramify.tasks.base import MAIN
from ramify.tree import Tree

INPUT = ChatInput(window=25, causal=True)
PLAIN, OTHERS = DecodingConfig(), DecodingConfig(answers="others")
WORDS = learn_vocabulary([["a"]], min_count=1)
LOGS = Logs.build([channel(80, seed) for seed in range(3)], INPUT).tokenize(WORDS)


def plain(**config: object) -> ReplyLinking:
    torch.manual_seed(0)
    sizes = {"dim": 0, "hidden": 8, "context_features": True, "attention_layers": 1, "attention_dim": 8, "attention_heads": 2}
    backbone = FeatureModel(FeatureModelConfig(vocab_size=WORDS.vocab_size, **sizes))
    assert backbone.candidate_attention is not None
    torch.nn.init.normal_(backbone.candidate_attention.expand.weight)
    return ReplyLinking(backbone, WORDS, INPUT, LinkConfig(**config)).eval()  # pyright: ignore[reportArgumentType]


def with_pruner(pruner: CandidatePruner) -> ReplyLinking:
    task = plain()
    task.config, task.candidate_pruner = replace(task.config, num_candidates=pruner.num_candidates), pruner
    return task


def random_pruner(num_candidates: int) -> CandidatePruner:
    torch.manual_seed(1)
    return CandidatePruner(num_candidates, with_context=True)


def predict(task: ReplyLinking) -> LinkPosterior:
    return LinkPosterior.concatenate(list(predict_posterior(task, PLAIN, LOGS)))


def rows(found: LinkPosterior) -> list[np.ndarray]:
    return np.split(found.probabilities, np.cumsum(found.lengths)[:-1])


def test_pruner_that_keeps_all_candidates_changes_nothing() -> None:
    before, after = predict(plain()), predict(with_pruner(random_pruner(26)))
    np.testing.assert_allclose(after.probabilities, before.probabilities, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("num_candidates", [2, 4])
def test_likeliest_candidates_and_the_message_itself_remain(num_candidates: int) -> None:
    before, after = predict(plain()), predict(with_pruner(random_pruner(num_candidates)))
    assert np.array_equal(before.candidates, after.candidates)
    for own in rows(after):
        assert own[0] > 0
        assert np.count_nonzero(own) == min(num_candidates, len(own))
        np.testing.assert_allclose(own.sum(), 1, rtol=1e-5)


def test_remaining_candidates_are_scored_as_if_alone() -> None:
    """The features stay with their candidates, and the chosen candidates attend to each other."""
    task, pruner = plain(), random_pruner(4)
    (batch,) = list_batches(task, make_collator(task, LOGS, None), np.arange(len(LOGS)))
    scores = with_pruner(pruner).scores(batch, PLAIN)
    chosen, candidates = pruner.select(batch)
    by_hand = pruner(batch).detach()
    by_hand[batch.is_self.bool()] = torch.inf
    assert torch.equal(chosen, highest(by_hand, batch.candidates, 4)[0])
    few = batch.select(chosen, candidates)
    assert few.key_source.tolist() == batch.key_source[chosen.numpy()].tolist()
    torch.testing.assert_close(scores[chosen], task.scores(few, PLAIN))
    with pytest.raises(AssertionError):
        replace(batch, ancestor_distance=torch.zeros(len(batch.target), 1, 1, dtype=torch.long)).select(chosen, candidates)


def test_candidates_of_the_same_author_are_pruned_first() -> None:
    """Messages of the same author take no place of possible parents. If all others are by the same author, the likeliest is
    read."""
    task = with_pruner(random_pruner(3))
    assert task.candidate_pruner is not None
    (batch,) = list_batches(task, make_collator(task, LOGS, None), np.arange(len(LOGS)))
    chosen, candidates = task.candidate_pruner.select(batch, excluded=batch.same_author)
    own = batch.same_author[chosen].split(candidates.host_lengths.tolist())
    others = ((batch.same_author == 0) & (batch.is_self == 0)).split(batch.candidates.host_lengths.tolist())
    for few, every in zip(own, others):
        assert int(few.sum()) == max(0, len(few) - 1 - int(every.sum()))
    scores = task.scores(batch, OTHERS)
    assert set(torch.nonzero(scores > -1e8).flatten().tolist()) == set(chosen.tolist())


def test_likeliest_excluded_candidate_does_not_depend_on_the_batches() -> None:
    """One author writes most messages, so that some candidates must be his own."""
    authors = "aaaaaaaaaaaaaabaaaacaaaaaab"
    log = Tree(tuple(replace(node, author=author) for node, author in zip(channel(len(authors), 0).nodes, authors)))
    logs = Logs.build([log], INPUT).tokenize(WORDS)
    task = with_pruner(random_pruner(4))
    assert task.candidate_pruner is not None
    collate = make_collator(task, logs, None)
    (batch,) = list_batches(task, collate, np.arange(len(logs)))
    found, read, checked = task.candidate_pruner(batch), task.candidate_pruner.select(batch, excluded=batch.same_author)[0], 0
    ends = np.cumsum(batch.candidates.host_lengths)
    for message, stop in enumerate(ends.tolist()):
        start = stop - int(batch.candidates.host_lengths[message])
        own = torch.nonzero(batch.same_author[start:stop]).flatten() + start
        is_read = torch.isin(own, read)
        if is_read.any() and not is_read.all():
            assert found[own[is_read]].min() >= found[own[~is_read]].max()
            checked += 1
        alone = collate([Blocks(logs, np.array([message]), block=1).example(0)])
        chosen = task.candidate_pruner.select(alone, excluded=alone.same_author)[0]
        together = read[(read >= start) & (read < stop)]
        assert alone.key_source[chosen.numpy()].tolist() == batch.key_source[together.numpy()].tolist()
    assert checked > 5


def test_posteriors_do_not_depend_on_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = predict(with_pruner(random_pruner(6)))
    monkeypatch.setattr("ramify.disentangle.inference.batches.PRUNED_KEYS", 60)
    monkeypatch.setattr("ramify.disentangle.inference.batches.BLOCK", 3)
    np.testing.assert_allclose(predict(with_pruner(random_pruner(6))).probabilities, whole.probabilities, rtol=1e-4, atol=1e-7)


def test_loss_covers_all_candidates() -> None:
    """The loss of a candidate that is not read is the loss under the model itself."""
    task, less = plain(), with_pruner(random_pruner(2))
    (batch,) = list_batches(task, make_collator(task, LOGS, None), np.arange(len(LOGS)))
    for each in (own.losses(batch, {"links": 1.0}, MAIN, None, None) for own in (task, less)):
        ((loss,),) = (list(losses.values()) for losses, _ in each)
        assert loss.isfinite()
    torch.testing.assert_close(*(next(own.losses(batch, {"links": 1.0}, MAIN, None, None))[0]["links"] for own in (task, less)))


def fit(task: ReplyLinking, num_candidates: int, logs: Logs = LOGS, seed: int = 0) -> CandidatePruner:
    return fit_candidate_pruner(predict_shuffled(task, PLAIN, logs, seed), num_candidates, with_context=True)


def posterior_coverage(task: ReplyLinking, pruner: CandidatePruner) -> float:
    """The share of the model's probability that falls on candidates which are still read."""
    full, read = predict(task), predict(with_pruner(pruner))
    return float(full.probabilities[read.probabilities > 0].sum() / len(full.messages))


def test_pruner_learns_the_posteriors_of_the_model(tmp_path) -> None:
    task = plain()
    pruner = fit(task, 6, seed=3)
    assert posterior_coverage(task, pruner) > posterior_coverage(task, random_pruner(6)) + 0.1
    again = fit(plain(), 6, seed=3)
    assert all(torch.equal(one, other) for one, other in zip(pruner.parameters(), again.parameters()))
    hub.save(Disentangler(with_pruner(pruner)), tmp_path)
    loaded = hub.load(tmp_path).task
    assert isinstance(loaded, ReplyLinking)
    assert np.array_equal(predict(loaded).probabilities, predict(with_pruner(pruner)).probabilities)


def test_pruner_learns_from_a_sample_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate_pruner, "MESSAGES", 20)
    monkeypatch.setattr("ramify.disentangle.inference.batches.KEYS", 260)
    one, other = (fit(plain(), 6, seed=seed) for seed in (0, 1))
    assert not torch.equal(one.pair.weight, other.pair.weight)


def test_invalid_pruner_settings_are_refused() -> None:
    for setting in ({"num_candidates": -1}, {"num_candidates": 8, "objective": "binary"}):
        with pytest.raises(RamifyError, match=r"task\.num_candidates"):
            plain(**setting)
    alone = Logs.build([channel(1, seed=0)], INPUT).tokenize(WORDS)
    with pytest.raises(RamifyError, match="nothing to learn from"):
        fit(plain(), 8, alone)
