"""Masked and replaced children: shares, the law of the coherence draw, allowed replacements, and what is never touched."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures import tokenizer
from fixtures.nested import batch_of, book, books, part, task, tree_of
from ramify.batching.document_batch import MASK, NUM_MARKS
from ramify.batching.views.documents import LevelInput
from ramify.tasks.nested.corruption import RETRIES, Pool, RowChildren, mask_children, replace_children

SPLIT = (0.8, 0.1, 0.1)


def generator(seed):
    return np.random.Generator(np.random.Philox(key=seed))


def rows(counts):
    """Rows of so many children, whose numbers are their places."""
    counts = np.asarray(counts, dtype=np.int64)
    return RowChildren(np.arange(counts.sum()), np.repeat(np.arange(len(counts)), counts), counts)


def distinct(children, trees=1):
    """All children differ; their rows are spread over documents."""
    return Pool(children.child, children.child, children.row, children.row % trees)


# --- masked children ----------------------------------------------------------------------------------------------------------


@given(counts=st.lists(st.integers(0, 40), max_size=12), rate=st.sampled_from([0.0, 0.15, 0.5, 1.0]), seed=st.integers(0, 99))
def test_number_of_masked_children(counts, rate, seed):
    """max(1, round(rate · n)) of n, and none of an only child."""
    children = rows(counts)
    masked = mask_children(children, rate, SPLIT, children.child, None, generator(seed))
    found = np.bincount(children.row[masked.chosen], minlength=len(counts)).tolist()
    assert found == [0 if count < 2 else max(1, round(rate * count)) for count in counts]
    assert len(set(masked.chosen.tolist())) == len(masked.chosen)
    assert (np.diff(masked.chosen) > 0).all()


def test_every_child_is_masked_equally_often():
    children = rows([7] * 20_000)
    masked = mask_children(children, 0.3, SPLIT, children.child, None, generator(0))
    found = np.bincount(masked.chosen % 7)
    expected = 20_000 * 2 / 7
    assert np.abs(found - expected).max() < 5 * np.sqrt(expected * 5 / 7)


def test_bernoulli_draws_each_child_and_perhaps_none():
    children = rows([1] * 50 + [2] * 40_000)
    masked = mask_children(children, 0.15, SPLIT, children.child, None, generator(0), bernoulli=True)
    assert (children.row[masked.chosen] >= 50).all()
    found = np.bincount(np.bincount(children.row[masked.chosen], minlength=40_050)[50:], minlength=3)
    expected = 40_000 * np.array([0.85**2, 2 * 0.15 * 0.85, 0.15**2])
    assert np.abs(found - expected).max() < 5 * np.sqrt(40_000 * 0.25)


@pytest.mark.parametrize("split", [SPLIT, (0.5, 0.5, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)], ids=str)
def test_shares_of_masks_random_children_and_unchanged_ones(split):
    children = rows([10] * 10_000)
    choices = np.arange(1000) + 10**6
    masked = mask_children(children, 0.2, split, choices, None, generator(0))
    is_mask, is_random = masked.shown == MASK, masked.shown >= 10**6
    own = masked.shown == children.child[masked.chosen] + NUM_MARKS
    assert (is_mask.astype(int) + is_random + own == 1).all()
    for share, expected in zip((is_mask, is_random, own), split, strict=True):
        assert abs(share.mean() - expected) <= 5 * np.sqrt(expected * (1 - expected) / len(share))
    drawn = Counter((masked.shown[is_random] - NUM_MARKS).tolist())
    if is_random.any():
        # Uniform among all choices.
        counts = np.array([drawn[choice] for choice in choices.tolist()])
        mean = is_random.sum() / 1000
        assert np.square(counts - mean).sum() / mean < 1000 + 5 * np.sqrt(2000)


def test_the_mask_of_tokens_is_that_of_the_vocabulary():
    children = rows([10] * 5)
    masked = mask_children(children, 0.2, (1.0, 0.0, 0.0), children.child, 77, generator(0))
    assert set(masked.shown.tolist()) == {77}


# --- replaced children --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3, 10])
def test_law_of_the_coherence_draw(count):
    """The share r of replaced children has the mean 1/8 and the variance 5/192 + 1/(12 n) in rows of n children."""
    number = 100_000
    children = rows([count] * number)
    replaced = replace_children(children, distinct(children), distinct(children), "any", generator(1))
    share = replaced.share
    variance = 5 / 192 + 1 / (12 * count)
    assert abs(share.mean() - 1 / 8) < 5 * np.sqrt(variance / number)
    fourth = np.square(np.square(share - share.mean())).mean()
    assert abs(share.var() - variance) < 5 * np.sqrt((fourth - variance**2) / number)
    # The shares are of what is shown.
    changed = (replaced.shown != children.child).reshape(number, count)
    assert np.array_equal(changed.mean(1), share)
    marked = replaced.marked.reshape(number, count)
    assert (marked | ~changed).all()
    # Half of the rows have P = 0; a marked child is replaced with probability 1/2, whatever its neighbours.
    none = 1 / 2 + 1 / 2 / (count + 1)
    assert abs((~marked.any(1)).mean() - none) < 5 * np.sqrt(none * (1 - none) / number)
    assert abs(changed.sum() / marked.sum() - 1 / 2) < 5 * np.sqrt(1 / 4 / marked.sum())
    # All numbers of marked children of a row with P > 0 are equally likely.
    for marks in range(1, count + 1):
        expected = 1 / 2 / (count + 1)
        assert abs((marked.sum(1) == marks).mean() - expected) < 5 * np.sqrt(expected / number)


@pytest.mark.parametrize("count", [1, 4, 16])
def test_error_of_the_baseline_of_marks(count):
    """The marks alone give an estimate, their share halved, whose mean squared error is 1/(16 n): far below the variance."""
    number = 100_000
    children = rows([count] * number)
    replaced = replace_children(children, distinct(children), distinct(children), "any", generator(2))
    marked = replaced.marked.reshape(number, count).sum(1)
    error = np.square(replaced.share - marked / (2 * count))
    assert abs(error.mean() - 1 / (16 * count)) < 5 * error.std() / np.sqrt(number)
    assert error.mean() < 0.7 * replaced.share.var()


@pytest.mark.parametrize("source", ["any", "other_parent", "other_document"])
def test_replacements_differ_and_come_from_where_they_may(source):
    children = rows([6] * 2000)
    own = replace(distinct(children, trees=3), content=children.child % 5)
    replaced = replace_children(children, own, own, source, generator(3))
    places = np.flatnonzero(replaced.shown != children.child)
    other = replaced.shown[places]
    assert len(places) > 500
    assert (own.content[other] != own.content[places]).all()
    same_parent, same_tree = own.parent[other] == own.parent[places], own.tree[other] == own.tree[places]
    assert not (same_parent.any() and source == "other_parent")
    assert not (same_tree.any() and source == "other_document")
    if source == "any":
        assert same_tree.mean() > 0.25
    if source == "other_parent":
        assert same_tree.mean() > 0.25
    assert np.array_equal(replaced.share, np.bincount(children.row[places], minlength=2000) / 6)


def test_a_child_without_a_replacement_counts_as_kept():
    """Equal draws are retried; after so many of them the child is kept and does not count."""
    children = rows([5] * 4000)
    same = replace(distinct(children), content=np.zeros(20_000, dtype=np.int64))
    replaced = replace_children(children, same, same, "any", generator(4))
    assert not replaced.share.any()
    assert np.array_equal(replaced.shown, children.child)
    assert replaced.marked.any()
    one = replace_children(children, distinct(children), distinct(children), "other_document", generator(4))
    assert not one.share.any()
    # A pool that is right with probability 1/10 fails all of 1 + RETRIES draws as often as expected.
    pool = Pool(np.arange(10), (np.arange(10) == 0).astype(np.int64), np.zeros(10, np.int64), np.zeros(10, np.int64))
    some = replace_children(children, same, pool, "any", generator(4))
    assert RETRIES == 8
    chance = 1 - 0.9**9
    share = some.share.mean() * 8
    assert abs(share - chance) < 5 * 8 * np.sqrt((5 / 192 + 1 / 60) / 4000)
    nothing = Pool(*(np.zeros(0, dtype=np.int64) for _ in range(4)))
    assert not replace_children(children, same, nothing, "any", generator(4)).share.any()


# --- draws of a batch ---------------------------------------------------------------------------------------------------------

TREES = [
    tree_of(part("paragraph"), part("paragraph", "", "aa ae ai ao au aw ba be"), part("paragraph", "bi"), name="a"),
    *books(8, paragraphs=7),
]


@pytest.mark.parametrize("padding", ["packed", "full"])
@pytest.mark.parametrize("overflow", ["cut", "pack"])
def test_marks_and_padding_are_neither_masked_nor_replaced(padding, overflow):
    own = task({"padding": padding}, LevelInput(overflow=overflow), mask_rate=1.0)
    batch = batch_of(own, TREES)
    masked_ends = 0
    for seed in range(5):
        for level, draws in zip(batch.levels, own.draw(batch, seed).draws, strict=True):
            kept = ~level.is_child
            for slots in (draws.masked_slots, draws.replaced_slots):
                assert torch.equal(slots[kept], level.slots[kept])
            assert level.is_child[draws.masked].all()
            # Every child of a row of several is masked, and it is shown as a mask or a child.
            several = (level.counts > 1)[level.child_row.numpy()]
            assert np.array_equal(draws.masked.numpy(), level.child_slot.numpy()[several])
            changed = torch.ones(len(level.slots), dtype=torch.bool)
            changed[draws.masked] = False
            assert torch.equal(draws.masked_slots[changed], level.slots[changed])
            assert draws.segments is not None
            assert not draws.segments[kept].any()
            replaced = draws.replaced_slots != level.slots
            assert (draws.segments[replaced] == 1).all()
            assert (draws.replaced_slots[level.is_child] >= NUM_MARKS).all()
            share = torch.zeros(len(level.counts), dtype=torch.float64)
            share.index_add_(0, level.child_row, replaced[level.child_slot].double())
            torch.testing.assert_close(draws.share, share / torch.from_numpy(level.counts).clamp(min=1), rtol=0, atol=1e-12)
            assert draws.checked.tolist() == np.flatnonzero(level.counts).tolist()
            masked_ends += int((level.slots[draws.masked_slots != level.slots] < NUM_MARKS).sum())
    assert masked_ends == 0


def test_masked_tokens_show_the_mask_of_the_vocabulary_and_words():
    """Level 0 hides tokens behind [MASK], levels above behind a mark; random tokens are no special tokens."""
    own = task(mask_rate=1.0, mask_split=(0.5, 0.5, 0.0))
    batch = batch_of(own, books(60, paragraphs=5))
    tokens, sentences, _ = own.draw(batch, 1).draws
    shown = tokens.masked_slots[tokens.masked]
    mask = NUM_MARKS + tokenizer().mask_id
    assert 0.4 < (shown == mask).double().mean() < 0.6
    drawn = set((shown[shown != mask] - NUM_MARKS).tolist())
    assert drawn == set(range(tokenizer().vocab_size)) - set(tokenizer().special_ids)
    shown = sentences.masked_slots[sentences.masked]
    assert 0.4 < (shown == MASK).double().mean() < 0.6
    assert (shown[shown != MASK] >= NUM_MARKS).all()


def test_replaced_tokens_are_drawn_from_the_batch_or_the_vocabulary():
    trees = [book([[5] * 3] * 3, seed=seed, name=f"d{seed}") for seed in range(6)]
    found = {}
    for where in ("batch", "vocabulary"):
        own = task(replacement_tokens=where)
        batch = batch_of(own, trees)
        used = set(batch.levels[0].children.tolist())
        drawn = Counter()
        for seed in range(200):
            draws = own.draw(batch, seed).draws[0]
            changed = draws.replaced_slots != batch.levels[0].slots
            drawn.update((draws.replaced_slots[changed] - NUM_MARKS).tolist())
        assert not set(drawn) & set(tokenizer().special_ids)
        assert (set(drawn) == used) == (where == "batch")
        found[where] = drawn
    assert len(found["vocabulary"]) == tokenizer().vocab_size - len(tokenizer().special_ids)


@pytest.mark.parametrize("replacement", ["any", "other_parent", "other_document"])
def test_replaced_sentences_of_a_batch(replacement):
    own = task(replacement=replacement)
    batch = batch_of(own, books(6, paragraphs=5))
    level, below = batch.levels[1], batch.levels[0]
    seen = Counter()
    for seed in range(40):
        draws = own.draw(batch, seed).draws[1]
        changed = torch.nonzero(draws.replaced_slots != level.slots)[:, 0]
        new, old = draws.replaced_slots[changed] - NUM_MARKS, level.slots[changed] - NUM_MARKS
        assert (below.content[new] != below.content[old]).all()
        seen["changed"] += len(changed)
        seen["same document"] += int((below.tree[new] == below.tree[old]).sum())
        parent = torch.empty(len(below.rows), dtype=torch.int64)
        parent[level.children] = level.child_row
        seen["same parent"] += int((parent[new] == parent[old]).sum())
    assert seen["changed"] > 100
    assert (seen["same document"] == 0) == (replacement == "other_document")
    assert (seen["same parent"] == 0) == (replacement != "any")


def test_the_seed_determines_the_draws():
    own = task()
    batch = batch_of(own, books(4))

    def draws(seed):
        found = own.draw(batch, seed).draws
        return [tensor for each in found for tensor in (each.masked_slots, each.masked, each.replaced_slots, each.segments)]

    assert all(torch.equal(one, other) for one, other in zip(draws(5), draws(5), strict=True))
    assert any(one.shape != other.shape or not torch.equal(one, other) for one, other in zip(draws(5), draws(6), strict=True))
    one, two = (own.corrupt(batch, torch.Generator().manual_seed(9)) for _ in range(2))
    assert torch.equal(one.draws[0].masked_slots, two.draws[0].masked_slots)


def test_marks_can_be_withheld():
    """marks=none: the law is the same and the model is not told."""
    told, untold = task(), task(marks="none")
    batch = batch_of(told, books(4))
    for one, other in zip(told.draw(batch, 3).draws, untold.draw(batch, 3).draws, strict=True):
        assert torch.equal(one.replaced_slots, other.replaced_slots)
        assert one.segments is not None
        assert other.segments is None


def test_replacements_of_a_long_document_come_from_its_parts_and_the_queue():
    """A document apart has no other documents in its batch; the queue holds units of earlier ones."""
    own = task(replacement="other_document", queue=8)
    long = book([[3], [2], [4, 2], [2, 2], [5]], seed=1)
    apart = batch_of(own, [long], budget=6, document_draws=30)
    assert torch.equal(own.draw(apart, 1).draws[0].replaced_slots, apart.levels[0].slots)
    units = batch_of(own, books(3)).levels[1]
    other = replace(units, tree=units.tree + 5)
    own.queue(2).add(torch.ones(len(units.rows), 16, dtype=torch.float64), other)
    number = sum(len(each.levels[-1].rows) for each in apart.parts)
    found = []
    for seed in range(5):
        draws = own.draw(apart, seed).draws[0]
        changed = draws.replaced_slots != apart.levels[0].slots
        found += (draws.replaced_slots[changed] - NUM_MARKS).tolist()
    assert len(found) > 20
    assert set(found) == set(range(number, number + 8))
    # The model reads them.
    drawn = own.draw(apart, 1)
    for named, _ in own.losses(drawn, dict.fromkeys(own.counts(drawn, "main"), 1.0), "main", None, None):
        assert torch.isfinite(torch.stack(list(named.values()))).all()
