"""Conditional random fields: all sequences of tags are enumerated in double precision."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ramify.nn.crf import CRF, Allowed, Posterior, Transitions, best_path, log_partition, path_score
from ramify.nn.ragged import Rows

LENGTHS = ([0], [1], [3, 0, 1, 4], [2, 2, 2], [0, 0])


def random_chain(tags, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    start, between, end = (torch.randn(*shape, generator=generator, dtype=dtype) for shape in ((tags,), (tags, tags), (tags,)))
    return Transitions(start, between, end)


def random_scores(total, tags, seed=1, dtype=torch.float64):
    return torch.randn(total, tags, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def bio():
    """O, B, I: I stands behind B or I only."""
    transitions = torch.ones(3, 3, dtype=torch.bool)
    transitions[0, 2] = False
    return Allowed(torch.tensor([True, True, False]), transitions, torch.ones(3, dtype=torch.bool))


def enumerate_row(scores, chain):
    """Every sequence of tags of a row, and its score."""
    length, tags = scores.shape
    if not length:
        return {(): 0.0}
    result = {}
    for path in itertools.product(range(tags), repeat=length):
        value = chain.start[path[0]] + chain.end[path[-1]]
        value = value + sum(scores[place, tag] for place, tag in enumerate(path))
        value = value + sum(chain.between[one, other] for one, other in itertools.pairwise(path))
        result[path] = float(value)
    return result


def by_row(x, lengths):
    return x.split(list(lengths))


@pytest.mark.parametrize("allowed", [None, bio()], ids=["free", "bio"])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_against_all_sequences(lengths, allowed):
    chain = random_chain(3)
    if allowed is not None:
        chain = chain.within(allowed)
    rows, scores = Rows.build(lengths), random_scores(sum(lengths), 3)
    partition, (path, highest) = log_partition(scores, rows, chain), best_path(scores, rows, chain)
    posterior = Posterior.of(scores, rows, chain)
    marginals = by_row(posterior.marginals, lengths)
    for row, its_scores in enumerate(by_row(scores, lengths)):
        paths = enumerate_row(its_scores, chain)
        z = sum(math.exp(score) for score in paths.values())
        assert partition[row].item() == pytest.approx(math.log(z), abs=1e-10)
        best = max(paths.values())
        assert highest[row].item() == pytest.approx(best, abs=1e-10)
        assert paths[tuple(by_row(path, lengths)[row].tolist())] == pytest.approx(best, abs=1e-10)
        for place in range(lengths[row]):
            for tag in range(3):
                share = sum(math.exp(score) for own, score in paths.items() if own[place] == tag) / z
                assert marginals[row][place, tag].item() == pytest.approx(share, abs=1e-10)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_loss_is_the_negative_log_probability(lengths):
    crf = CRF(3).double()
    for parameter, value in zip(crf.parameters(), (random_chain(3).start, random_chain(3).between, random_chain(3).end)):
        parameter.data.copy_(value)
    rows, scores = Rows.build(lengths), random_scores(sum(lengths), 3)
    tags = torch.arange(sum(lengths)) % 3
    loss = crf.loss(scores, tags, rows)
    for row, (its_scores, its_tags) in enumerate(zip(by_row(scores, lengths), by_row(tags, lengths), strict=True)):
        paths = enumerate_row(its_scores, random_chain(3))
        z = sum(math.exp(score) for score in paths.values())
        assert loss[row].item() == pytest.approx(-math.log(math.exp(paths[tuple(its_tags.tolist())]) / z), abs=1e-10)


@pytest.mark.parametrize("allowed", [None, bio()], ids=["free", "bio"])
def test_gradients(allowed):
    lengths = [3, 0, 1, 4]
    rows, tags = Rows.build(lengths), torch.tensor([1, 2, 0, 1, 0, 0, 1, 2])
    chain = random_chain(3)
    inputs = tuple(x.requires_grad_() for x in (random_scores(8, 3), chain.start, chain.between, chain.end))

    def loss(scores, start, between, end):
        free = Transitions(start, between, end)
        used = free if allowed is None else free.within(allowed)
        return log_partition(scores, rows, used) - path_score(scores, tags, rows, used)

    assert torch.autograd.gradcheck(loss, inputs)


def test_gradient_of_the_partition_is_the_marginals():
    rows, scores = Rows.build([3, 0, 1, 4]), random_scores(8, 3).requires_grad_()
    chain = random_chain(3).within(bio())
    (gradient,) = torch.autograd.grad(log_partition(scores, rows, chain).sum(), scores)
    torch.testing.assert_close(gradient, Posterior.of(scores.detach(), rows, chain).marginals, rtol=0, atol=1e-12)


def test_forbidden_sequences_have_no_gradient():
    """Tag 2 may stand nowhere, and a row of one token may have no tag at all."""
    allowed = Allowed(
        torch.tensor([True, False, False]), torch.tensor([[True, True, False]] * 3), torch.tensor([False, True, False])
    )
    scores = random_scores(4, 3).requires_grad_()
    free = random_chain(3)
    chain = Transitions(*(x.requires_grad_() for x in (free.start, free.between, free.end)))
    rows = Rows.build([3, 1])
    partition = log_partition(scores, rows, chain.within(allowed))
    assert partition[1].item() == -math.inf
    partition[0].backward()
    for x in (scores, chain.start, chain.between, chain.end):
        assert x.grad.isfinite().all()
    assert scores.grad[:, 2].tolist() == [0, 0, 0, 0]
    with pytest.raises(ValueError, match="every sequence of tags of a row is forbidden"):
        Posterior.of(scores.detach(), rows, chain.within(allowed))


@given(lengths=st.lists(st.integers(0, 12), min_size=1, max_size=8), tags=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_rows_are_independent(lengths, tags, seed):
    chain = random_chain(tags, seed, torch.float32)
    scores = random_scores(sum(lengths), tags, seed, torch.float32)
    rows = Rows.build(lengths)
    partition, (path, highest) = log_partition(scores, rows, chain), best_path(scores, rows, chain)
    for row, its_scores in enumerate(by_row(scores, lengths)):
        alone = Rows.build([lengths[row]])
        torch.testing.assert_close(log_partition(its_scores, alone, chain), partition[row : row + 1])
        own_path, own_highest = best_path(its_scores, alone, chain)
        assert torch.equal(own_path, by_row(path, lengths)[row])
        assert torch.equal(own_highest, highest[row : row + 1])
        # The best sequence is one of those that the partition adds up.
        assert highest[row] <= partition[row] + 1e-5


@pytest.mark.parametrize("stretch", [(0, (1,)), (0, (1, 2)), (1, (1, 2, 2)), (3, (0,)), (2, (1, 2))])
def test_probability_of_a_stretch(stretch):
    start, tags = stretch
    chain, scores, rows = random_chain(3).within(bio()), random_scores(6, 3), Rows.build([2, 4])
    posterior = Posterior.of(scores, rows, chain)
    place, stop = 2 + start, 2 + start + len(tags)
    follow = None if stop == 6 else torch.tensor([True, True, False])
    paths = enumerate_row(scores[2:], chain)
    z = sum(math.exp(score) for score in paths.values())
    fits = [
        math.exp(score)
        for path, score in paths.items()
        if path[start : start + len(tags)] == tags and (stop == 6 or path[start + len(tags)] != 2)
    ]
    assert posterior.of_stretch(place, torch.tensor(tags), follow).item() == pytest.approx(sum(fits) / z, abs=1e-10)


def test_half_precision_adds_up_in_single_precision():
    scores, rows, chain = random_scores(200, 3, dtype=torch.bfloat16), Rows.build([200]), random_chain(3, dtype=torch.float32)
    assert log_partition(scores, rows, chain).dtype == torch.float32
    torch.testing.assert_close(log_partition(scores, rows, chain), log_partition(scores.float(), rows, chain), rtol=0, atol=0)
    exact = log_partition(scores.double(), rows, random_chain(3, dtype=torch.float32))
    torch.testing.assert_close(log_partition(scores, rows, chain).double(), exact, rtol=1e-5, atol=0)


def test_without_transitions_tokens_are_independent():
    scores, rows = random_scores(7, 4), Rows.build([3, 4])
    posterior = Posterior.of(scores, rows, Transitions.none(scores))
    torch.testing.assert_close(posterior.marginals, scores.softmax(1))
    assert torch.equal(best_path(scores, rows, Transitions.none(scores))[0], scores.argmax(1))
