"""BERT's objective on rows with memory: which tokens are masked, how, and what is predicted."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fixtures.streams import letters, pieces, rows_of, xlnet
from ramify.batching.views.streams import StreamInput
from ramify.errors import RamifyError
from ramify.tasks.base import MAIN
from ramify.tasks.denoising_lm import DenoisingLM, DenoisingLMConfig
from ramify.tasks.permutation_lm import PermutationLM, PermutationLMConfig

TOKENS, REUSED = 240, 120
INPUT = StreamInput(row_tokens=TOKENS, reused_tokens=REUSED)


def task(**changes):
    torch.manual_seed(0)
    own = DenoisingLM(xlnet(), pieces(), INPUT, DenoisingLMConfig(**changes))
    torch.nn.init.normal_(own.head.bias, std=0.3)
    return own.double()


def rows(count=4, seed=0):
    functional = np.zeros((count, TOKENS), dtype=bool)
    functional[:, [180, 238, 239]] = True
    ids = letters(np.random.default_rng(seed), (count, TOKENS))
    ids[functional] = np.tile([3, 3, 2], count)
    direction = np.where(np.arange(count) < count // 2, 1, -1).tolist()
    return rows_of(ids, functional=functional, reused=REUSED, direction=direction)


def test_answers_are_the_tokens_that_were_hidden():
    own, batch = task(), rows()
    before = batch.input_ids.clone()
    for seed in range(5):
        drawn = own.corrupt(batch, torch.Generator().manual_seed(seed))
        answers = drawn.answers
        assert drawn.targets is None
        assert torch.equal(batch.input_ids, before), "the batch itself stays clean"
        assert np.array_equal(drawn.host_ids, before.numpy())
        assert torch.equal(answers.labels, before.gather(1, answers.positions))
        assert answers.positions.shape == (4, 40)
        assert answers.total == own.counts(drawn, MAIN)["denoising_lm"] == 160
        chosen = torch.zeros_like(before, dtype=torch.bool).scatter_(1, answers.positions, True)
        assert torch.equal(drawn.input_ids[~chosen], before[~chosen])
        assert not batch.functional[chosen.numpy()].any()
    again = own.corrupt(batch, torch.Generator().manual_seed(4))
    assert torch.equal(again.input_ids, drawn.input_ids)


@pytest.mark.parametrize("split", [(0.8, 0.1, 0.1), (1.0, 0.0, 0.0), (0.2, 0.5, 0.3)])
def test_shares_of_masked_random_and_unchanged_tokens(split):
    own, batch = task(mask_split=split), rows(count=200)
    drawn = own.draw(batch, np.arange(200))
    shown, labels = drawn.input_ids.gather(1, drawn.answers.positions).flatten(), drawn.answers.labels.flatten()
    vocabulary, number = pieces().vocab_size, len(labels)
    mask = split[0] + split[1] / vocabulary
    unchanged = split[2] + split[1] / vocabulary
    for found, share in (((shown == pieces().mask_id), mask), ((shown == labels), unchanged)):
        deviation = np.sqrt(number * share * (1 - share))
        assert abs(int(found.sum()) - number * share) <= 4.5 * deviation
    others = shown[(shown != pieces().mask_id) & (shown != labels)]
    assert len(others.unique()) == (vocabulary - 1 if split[1] else 0)


def test_random_special():
    own, batch = task(mask_split=(0.0, 1.0, 0.0), random_special=False), rows(count=200)
    drawn = own.draw(batch, np.arange(200))
    shown = drawn.input_ids.gather(1, drawn.answers.positions)
    assert len(shown.unique()) == pieces().vocab_size - len(pieces().special_ids)
    assert not torch.isin(shown, torch.tensor(pieces().special_ids)).any()


def test_targets_are_those_that_xlnet_would_choose():
    """In one part, with equal seeds."""
    batch = replace(rows(), reused=0)
    drawn = task().draw(batch, np.arange(4))
    other = PermutationLM(xlnet(), pieces(), INPUT, PermutationLMConfig()).draw(batch, np.arange(4))
    assert torch.equal(drawn.answers.positions, other.targets.positions)


def test_draws_of_a_row_do_not_depend_on_its_batch_mates():
    own, batch = task(), rows()
    together = own.draw(batch, np.arange(4))
    alone = own.draw(rows_of(batch.host_ids[3:], functional=batch.functional[3:], reused=REUSED, direction=-1), np.array([3]))
    assert torch.equal(alone.input_ids[0], together.input_ids[3])


def test_loss_is_the_mean_over_masked_tokens():
    own = task()
    state = own.backbone(rows(seed=1)).state
    drawn = own.draw(rows(), np.arange(4))
    drawn = replace(drawn, answers=replace(drawn.answers, weight=drawn.answers.weight.double()))
    ((losses, after),) = own.losses(drawn, own.counts(drawn, MAIN), MAIN, state, None)
    hidden = own.backbone(drawn, state)
    states = torch.stack([row[places] for row, places in zip(hidden.tokens, drawn.answers.positions)])
    logits = states @ own.head.weight.t() + own.head.bias
    expected = F.cross_entropy(logits.flatten(0, 1), drawn.answers.labels.flatten())
    torch.testing.assert_close(losses["denoising_lm"], expected, rtol=0, atol=1e-10)
    assert torch.equal(after["memory"], hidden.state["memory"])
    # A masked token reads its own part on both sides, and the second part reads the first.
    row = replace(drawn, input_ids=drawn.input_ids.clone())
    place = next(each for each in range(REUSED) if each not in drawn.answers.positions[0])
    row.input_ids[0, place] = 5 + (row.input_ids[0, place] - 4) % 32
    left, right = (own.predict(each, state).states[:40] for each in (row, drawn))
    assert (left != right).any(-1).all()


def test_memory_shows_nothing_of_the_next_row():
    own, batch = task(), rows()
    drawn = own.draw(batch, np.arange(4))
    ids = drawn.input_ids.clone()
    ids[:, REUSED:] = 5 + (ids[:, REUSED:] - 4) % 32
    before, after = (own.backbone(each).state["memory"] for each in (drawn, replace(drawn, input_ids=ids)))
    assert torch.equal(before, after)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 0.0}, "task.k=0 must be at least 1"),
        ({"longest_span": 0}, "task.longest_span must be at least 1"),
        ({"mask_split": (0.8, 0.1, 0.3)}, "three shares that add up to 1"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(RamifyError, match=message):
        DenoisingLMConfig(**changes)
