"""Rows on the flat axis: conversions between flat and padded lose nothing, for any lengths."""

from itertools import pairwise

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from ramify.nn.ragged import (
    ROUND_TO,
    Rows,
    as_table,
    collect,
    doubling_key,
    highest,
    length_key,
    pad,
    spaced,
    spread,
    unpad,
    with_equal_groups,
)

lengths_of_rows = st.lists(st.integers(0, 20), max_size=15)


@given(lengths=lengths_of_rows, features=st.sampled_from([(), (3,), (2, 3)]))
def test_unpad_inverts_pad(lengths, features):
    rows = Rows.build(lengths)
    x = torch.randn(sum(lengths), *features, dtype=torch.float64)
    assert torch.equal(unpad(pad(x, rows), rows), x)


@given(lengths=lengths_of_rows)
def test_layout(lengths):
    rows = Rows.build(lengths)
    x = torch.arange(sum(lengths))
    padded = x.index_select(0, rows.padded)
    flat = 0
    seen = []
    for group in rows.groups:
        own = lengths[group.start : group.stop]
        assert group.length == max(own)
        assert group.full == (min(own) == max(own))
        block = padded[group.offset : group.end].view(group.size, group.length)
        filled = rows.filled[group.offset : group.end].view(group.size, group.length)
        for row, length in enumerate(own):
            assert block[row, :length].tolist() == list(range(flat, flat + length))
            assert filled[row].tolist() == [column < length for column in range(group.length)]
            flat += length
        seen += own
        mask = rows.key_mask(group)
        assert (mask is None) == group.full
        assert mask is None or torch.equal(mask[:, 0, 0], filled)
    assert seen == lengths
    assert rows.positions.tolist() == [place for length in lengths for place in range(length)]
    assert rows.offsets.tolist() == [0, *np.cumsum(lengths).astype(int).tolist()]
    assert (rows.total, rows.max_length, len(rows)) == (sum(lengths), max(lengths, default=0), len(lengths))


@given(lengths=st.lists(st.integers(0, 40), max_size=20))
def test_groups_waste_less_than_one_step(lengths):
    """Sorted rows are padded by less than `ROUND_TO` each, and no two groups share a key."""
    rows = Rows.build(sorted(lengths))
    for group in rows.groups:
        own = rows.host_lengths[group.start : group.stop]
        assert (group.length - own < ROUND_TO).all()
    keys = [length_key(rows.host_lengths[group.start : group.stop])[0] for group in rows.groups]
    assert keys == sorted(set(keys))


@given(lengths=lengths_of_rows)
def test_gradients(lengths):
    rows = Rows.build(lengths)
    x = torch.randn(sum(lengths), 2, dtype=torch.float64, requires_grad=True)
    # Callers mask padding slots; here their weight is zero.
    weight = torch.randn(len(rows.filled), 2, dtype=torch.float64) * rows.filled[:, None]
    if not lengths:
        return
    (found,) = torch.autograd.grad((pad(x, rows) * weight).sum(), x)
    assert torch.equal(found, weight.index_select(0, rows.unpadded))
    y = torch.randn(len(rows.filled), 2, dtype=torch.float64, requires_grad=True)
    flat_weight = torch.randn(sum(lengths), 2, dtype=torch.float64)
    (found,) = torch.autograd.grad((unpad(y, rows) * flat_weight).sum(), y)
    expected = torch.zeros_like(y)
    expected[rows.unpadded] = flat_weight
    assert torch.equal(found, expected)


@given(lengths=lengths_of_rows, gap=st.integers(0, 4))
def test_spread_rows_are_zeros_apart(lengths, gap):
    rows = Rows.build(lengths)
    slots, size = spaced(rows, gap), sum(lengths) + gap * len(lengths)
    x = torch.randn(sum(lengths), 2, dtype=torch.float64, requires_grad=True)
    apart = spread(x, slots, size)
    expected = [torch.cat([row, torch.zeros(gap, 2, dtype=torch.float64)]) for row in x.split(lengths)]
    assert torch.equal(apart, torch.cat(expected) if expected else apart)
    assert torch.equal(collect(apart, slots), x)
    weight = torch.randn_like(apart)
    (found,) = torch.autograd.grad((apart * weight).sum(), x)
    assert torch.equal(found, weight.index_select(0, slots))
    y = torch.randn_like(apart, requires_grad=True)
    (found,) = torch.autograd.grad(collect(y, slots).sum(), y)
    assert torch.equal(found, spread(torch.ones_like(x), slots, size))


@given(pairs=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12))
def test_equal_groups_have_the_borders_of_both(pairs):
    one, other = (Rows.build([pair[side] for pair in pairs]) for side in (0, 1))
    found = with_equal_groups(one, other)
    borders = {group.start for rows in (one, other) for group in rows.groups}
    for rows, own in zip(found, (one, other), strict=True):
        assert rows.host_lengths.tolist() == own.host_lengths.tolist()
        assert [group.start for group in rows.groups] == sorted(borders)
    assert with_equal_groups(*found) == found


@given(lengths=lengths_of_rows, limit=st.integers(1, 60))
def test_runs_cover_all_rows_within_the_limit(lengths, limit):
    rows = Rows.build(lengths)
    runs = list(rows.runs(limit))
    assert [row for start, stop in runs for row in range(start, stop)] == list(range(len(lengths)))
    for start, stop in runs:
        assert sum(lengths[start:stop]) <= limit or np.count_nonzero(lengths[start:stop]) == 1
    for (start, stop), (_, end) in pairwise(runs):
        # No run ends early: the next row would exceed the limit.
        assert end > stop
        assert sum(lengths[start : stop + 1]) > limit


@given(lengths=lengths_of_rows)
def test_key_lookup_across_borders(lengths):
    rows = Rows.build(lengths)
    counts = [length % 3 for length in lengths]
    other = Rows.build(counts, keys=rows.keys)
    assert [(group.start, group.stop) for group in other.groups] == [(group.start, group.stop) for group in rows.groups]


def test_doubling_key():
    counts = np.array([0, 1, 16, 17, 32, 33, 64, 65, 1000])
    assert doubling_key(counts).tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 6]


@given(lengths=lengths_of_rows)
def test_table_holds_every_value_once(lengths):
    rows = Rows.build(lengths)
    values = torch.arange(sum(lengths), dtype=torch.float64)
    table, cells = as_table(values, rows, -1.0)
    assert torch.equal(table.flatten().index_select(0, cells), values)
    assert (table >= 0).sum() == len(values)
    for row, own in zip(table, values.split(lengths), strict=True):
        assert torch.equal(row[: len(own)], own)


@given(lengths=lengths_of_rows, count=st.integers(1, 25), seed=st.integers(0, 1000))
def test_highest(lengths, count, seed):
    rows = Rows.build(lengths)
    values = torch.from_numpy(np.random.default_rng(seed).permutation(sum(lengths)).astype(np.float64))
    chosen, chosen_rows = highest(values, rows, count)
    assert chosen_rows.host_lengths.tolist() == [min(length, count) for length in lengths]
    for start, own, places in zip(
        rows.offsets.tolist(), values.split(lengths), chosen.split(chosen_rows.host_lengths.tolist()), strict=False
    ):
        expected = own.argsort(descending=True)[:count].sort().values + start
        assert torch.equal(places, expected)
