"""Batches of units of many documents: every unit once, enough documents in each, equally many batches per rank."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramify.batching.samplers import Units, fillable
from ramify.errors import RamifyError

DOCUMENTS = st.lists(st.integers(1, 12), min_size=1, max_size=12)


def examples(sizes):
    """Units of documents of these sizes, each followed by its document as a whole."""
    trees = np.repeat(np.arange(len(sizes)), np.array(sizes) + 1)
    apart = np.zeros(len(trees), dtype=bool)
    apart[np.cumsum(np.array(sizes) + 1) - 1] = True
    return trees, apart


def most_documents(sizes, number):
    """The number of documents that some division into batches can guarantee for each batch."""
    batches = sum(sizes) // number
    return sum(min(size, batches) for size in sizes) // batches


@given(DOCUMENTS, st.integers(1, 9), st.integers(1, 3), st.integers(0, 3), st.integers(0, 2))
def test_every_unit_once_from_many_documents(sizes, number, ranks, seed, epoch):
    trees, apart = examples(sizes)
    if sum(sizes) < number or most_documents(sizes, number) < number / 2:
        with pytest.raises(RamifyError, match=rf"train\.units={number} "):
            Units(trees, apart, number, seed=seed)
        return
    samplers = [Units(trees, apart, number, seed=seed, world_size=ranks, rank=rank) for rank in range(ranks)]
    steps = [sampler.own_steps(epoch) for sampler in samplers]
    assert len({len(own) for own in steps}) == 1
    assert sorted(np.concatenate([step for own in steps for step in own])) == list(range(len(trees)))
    for together in zip(*steps, strict=True):
        kinds = {bool(apart[step[0]]) for step in together if len(step)}
        assert len(kinds) == 1, "all ranks have a batch of the same kind"
        for step in together:
            if len(step) and apart[step[0]]:
                assert len(step) == 1
            elif len(step):
                assert len(step) >= number
                assert len(set(trees[step])) >= number / 2
    again = Units(trees, apart, number, seed=seed, world_size=ranks).own_steps(epoch)
    assert all(np.array_equal(one, other) for one, other in zip(steps[0], again, strict=True))


@given(DOCUMENTS, st.integers(1, 6), st.integers(0, 40))
def test_a_position_is_all_that_a_sampler_resumes_from(sizes, number, taken):
    trees, apart = examples(sizes)
    if sum(sizes) < number or most_documents(sizes, number) < number / 2:
        return
    straight, stopped = (Units(trees, apart, number, seed=1) for _ in range(2))
    for step, _ in zip(range(taken), iter(stopped)):
        assert step < taken
    resumed = Units(trees, apart, number, seed=1)
    resumed.load_state(stopped.state())
    order = iter(straight)
    for _ in range(taken):
        next(order)
    assert all(np.array_equal(next(order), next(after)) for after in [iter(resumed)] for _ in range(5))


def test_epochs_differ():
    trees, apart = examples([6] * 6)
    sampler = Units(trees, apart, 4, seed=0)
    one, other = ([step.tolist() for step in sampler.own_steps(epoch)] for epoch in (0, 1))
    assert one != other


@pytest.mark.parametrize(
    ("sizes", "number", "message"),
    [
        ([1, 1], 4, r"train\.units=4 is more than the 2 units of the training documents\. Lower train\.units"),
        ([9], 4, r"needs units of 2 documents in every batch, but the 1 training document can give units of 1"),
        ([50, 2, 2], 6, r"needs units of 3 documents in every batch, but the 3 training documents can give units of 1"),
    ],
)
def test_units_beyond_the_data(sizes, number, message):
    with pytest.raises(RamifyError, match=message):
        Units(*examples(sizes), number, seed=0)


@given(DOCUMENTS, st.integers(1, 24))
def test_no_more_units_fill_batches(sizes, number):
    trees = np.repeat(np.arange(len(sizes)), sizes)
    apart = np.zeros(len(trees), dtype=bool)
    most = fillable(trees, number)
    Units(trees, apart, most, seed=0)
    for more in range(most + 1, number + 1):
        with pytest.raises(RamifyError, match=rf"train\.units={more} "):
            Units(trees, apart, more, seed=0)
