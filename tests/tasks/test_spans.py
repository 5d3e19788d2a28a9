"""The choice of targets: spans of words or pieces against loops, exact quotas, and rows that read backwards."""

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.streams import letters, pieces, rows_of
from ramify.errors import RamifyError
from ramify.tasks.spans import SpanChoice, check_split, choose_targets, halves, quotas

UNITS = ("word", "piece", "token")


def generator(seed):
    return np.random.Generator(np.random.Philox(key=seed))


def runs_of(chosen, length):
    """Ranges of consecutive chosen tokens."""
    inside = np.zeros(length, dtype=bool)
    inside[chosen] = True
    found, place = [], 0
    for value, group in groupby(inside.tolist()):
        size = len(list(group))
        found += [(place, place + size)] if value else []
        place += size
    return found


def by_hand(unit, longest, spacing, starts, allowed, count, random):
    """The published rule, token by token, and whether spans alone gave the number. A separator ends the span before it."""
    count, length = min(count, sum(allowed)), len(starts)
    probabilities = 1 / np.arange(1, longest + 1)
    sizes = 1 + random.choice(longest, size=count, p=probabilities / probabilities.sum())
    shares = random.random(count)
    begins = [start or not free for start, free in zip(starts, allowed)]

    def next_begin(place):
        while place < length and not begins[place]:
            place += 1
        # A span that counts more words than are left ends with the text.
        return min(place, length)

    def taken(place, units):
        """The length of so many words, or of so many pieces, from a place on."""
        if unit == "piece":
            return units
        end = place
        for _ in range(units):
            end = next_begin(end + 1)
        return end - place

    chosen, place = [], 0
    for size, share in zip(sizes, shares):
        if len(chosen) == count or place >= length:
            break
        size = min(size, count - len(chosen))
        ahead = next_begin(place)
        around = int(max(1, taken(ahead, size) if ahead < length else 0) * spacing)
        begin = next_begin(place + int(share * around))
        if begin >= length:
            break
        end = begin
        while end < min(begin + taken(begin, size), length) and allowed[end] and len(chosen) < count:
            chosen.append(end)
            end += 1
        place = max(end, begin + 1) + around - int(share * around)
    return chosen


@st.composite
def texts(draw):
    length = draw(st.integers(1, 60))
    starts = draw(st.lists(st.booleans(), min_size=length, max_size=length))
    allowed = draw(st.lists(st.sampled_from([True] * 9 + [False]), min_size=length, max_size=length))
    return np.array(starts), np.array(allowed)


@given(
    text=texts(),
    unit=st.sampled_from(UNITS),
    longest=st.integers(1, 5),
    spacing=st.sampled_from([1.0, 2.5, 6.0]),
    count=st.integers(0, 30),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=300)
def test_spans_follow_the_published_rule(text, unit, longest, spacing, count, seed):
    starts, allowed = text
    found = SpanChoice(unit, longest, spacing).draw(starts, allowed, count, generator(seed))
    assert (np.diff(found) > 0).all()
    assert allowed[found].all()
    assert len(found) == min(count, allowed.sum())
    if unit != "token":
        expected = by_hand(unit, longest, spacing, starts.tolist(), allowed.tolist(), count, generator(seed))
        # Random single tokens complete the number.
        assert set(expected) <= set(found.tolist())
        assert len(expected) < len(found) or expected == found.tolist()


@given(seed=st.integers(0, 2**32), spacing=st.sampled_from([1.0, 6.0]))
def test_words_are_never_split_but_at_the_quota(seed, spacing):
    random = np.random.default_rng(seed)
    starts, allowed = random.random(2000) < 0.6, random.random(2000) < 0.98
    found = SpanChoice("word", 5, spacing).draw(starts, allowed, 40, generator(seed))
    runs = runs_of(found, 2000)
    assert found[-1] < 1900, "the end of the text must not be reached"
    ends = np.append(starts | ~allowed, True)
    assert all(starts[begin] for begin, _ in runs)
    assert all(ends[end] for _, end in runs[:-1])


def test_lengths_of_spans():
    """Spans of n units have a probability proportional to 1/n, whether units are pieces or words."""
    shares = 1 / np.arange(1, 6)
    shares /= shares.sum()
    for unit, size in (("piece", 1), ("word", 2)):
        lengths = []
        for seed in range(60):
            starts = np.arange(5000) % size == 0
            found = SpanChoice(unit, 5, 6).draw(starts, np.ones(5000, dtype=bool), 300 * size, generator(seed))
            # The last one may be cut at the quota.
            lengths += [end - begin for begin, end in runs_of(found, 5000)[:-1]]
        counts = np.bincount(lengths, minlength=5 * size + 1)[1:].reshape(5, size)
        assert not counts[:, :-1].any()
        deviation = np.sqrt(len(lengths) * shares * (1 - shares))
        assert (np.abs(counts[:, -1] - len(lengths) * shares) < 4.5 * deviation).all()


@pytest.mark.parametrize("k", [1.0, 6.0, 7.0])
def test_one_token_in_k_plus_one_is_predicted(k):
    """Spans alone take 1 / (1 + K) of the text: the context comes on top of the span."""
    reached = []
    for seed in range(40):
        found = SpanChoice("piece", 5, k).draw(np.ones(9000, dtype=bool), np.ones(9000, dtype=bool), 900, generator(seed))
        reached.append(found[-1] + 1)
    assert np.mean(reached) / 900 == pytest.approx(1 + k, rel=0.02)


def test_place_of_the_span_within_its_spacing_is_uniform():
    first = [
        SpanChoice("piece", 1, 6).draw(np.ones(50, dtype=bool), np.ones(50, dtype=bool), 1, generator(seed))[0]
        for seed in range(3000)
    ]
    counts = np.bincount(first, minlength=6)
    assert len(counts) == 6
    assert (np.abs(counts - 500) < 4.5 * np.sqrt(500 * 5 / 6)).all()


def test_single_tokens_are_uniform():
    allowed = np.arange(20) % 5 != 0
    counts = sum(
        np.bincount(SpanChoice("token", 5, 6).draw(~allowed, allowed, 4, generator(seed)), minlength=20) for seed in range(2000)
    )
    assert not counts[~allowed].any()
    assert (np.abs(counts[allowed] - 500) < 4.5 * np.sqrt(2000 * 0.25 * 0.75)).all()


# --- rows ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1.0, 3.0, 6.0])
@pytest.mark.parametrize("unit", UNITS)
def test_backward_row_is_drawn_in_text_order(unit, k):
    """A row that reads backwards has the targets of its text, which reads forwards."""
    ids = letters(np.random.default_rng(0), (1, 30))
    functional = np.zeros((1, 30), dtype=bool)
    functional[0, [20, 28, 29]] = True
    row = rows_of(ids, functional=functional)
    flipped = rows_of(ids[:, ::-1].copy(), functional=functional[:, ::-1], direction=-1)
    spans, starts = SpanChoice(unit, 5, k), pieces().word_starts
    for seed in range(20):
        found, other = (choose_targets(each, 0, spans, starts, ((0, 30),), (7,), generator(seed)) for each in (row, flipped))
        assert (np.diff(other) > 0).all()
        assert other.tolist() == (29 - found)[::-1].tolist()


def test_words_of_backward_rows_are_whole():
    """In a reversed row, the pieces of a word follow it backwards. Each part is drawn on its own."""
    random, spans, starts = np.random.default_rng(0), SpanChoice("word", 5, 6), pieces().word_starts
    parts = ((0, 400), (400, 900))
    for seed in range(20):
        batch = rows_of(letters(random, (1, 900)), direction=-1, reused=400)
        found = choose_targets(batch, 0, spans, starts, parts, (20, 15), generator(seed))
        for start, stop, own in ((0, 400, found[:20]), (400, 900, found[20:])):
            assert start <= own[0]
            assert own[-1] < stop
            text = starts[batch.host_ids[0, start:stop][::-1]]
            runs = runs_of(stop - 1 - own, stop - start)
            ends = np.append(text, True)
            assert all(text[begin] for begin, _ in runs)
            assert all(ends[end] for _, end in runs[:-1])


@pytest.mark.parametrize(
    ("tokens", "reused", "k", "expected"),
    [
        (512, 256, 6, (43, 42)),
        (128, 64, 6, (11, 10)),
        (15, 7, 3, (3, 2)),
        (15, 8, 3, (3, 2)),
        (64, 64, 6, (11,)),
        (12, 0, 6, (2,)),
        (9, 3, 100, (1, 0)),
    ],
)
def test_quotas(tokens, reused, k, expected):
    batch = rows_of(np.full((2, tokens), 7), reused=reused)
    assert quotas(batch, halves(batch), 1 / k) == expected


@given(
    tokens=st.integers(8, 90),
    share=st.floats(0.05, 0.95),
    k=st.floats(1.0, 8.0),
    unit=st.sampled_from(UNITS),
    seed=st.integers(0, 99),
)
def test_quotas_are_met_exactly(tokens, share, k, unit, seed):
    """For every length and K, in every row. Rows with separators have fewer targets if K is near 1, and none of them is one."""
    random, reused = np.random.default_rng(seed), min(tokens - 5, max(1, int(tokens * share)))
    functional = np.zeros((3, tokens), dtype=bool)
    functional[:, -2:] = True
    functional[np.arange(3), random.integers(reused, tokens - 2, 3)] = True
    batch = rows_of(letters(random, (3, tokens)), functional=functional, reused=reused, direction=[1, -1, 1])
    parts = halves(batch)
    assert parts == ((0, reused), (reused, tokens))
    counts = quotas(batch, parts, 1 / k)
    later = max(1, round(tokens / k)) * (tokens - reused) // tokens
    assert counts == (min(max(1, round(tokens / k)) - later, reused), min(later, tokens - reused - 3))
    for row in range(3):
        found = choose_targets(batch, row, SpanChoice(unit, 5, k), pieces().word_starts, parts, counts, generator(seed))
        assert not functional[row, found].any()
        assert ((found < reused).sum(), (found >= reused).sum()) == counts


@pytest.mark.parametrize("shares", [(0.8, 0.1), (0.8, 0.1, 0.2), (1.1, -0.1, 0.0)])
def test_shares_must_add_up(shares):
    with pytest.raises(RamifyError, match="three shares that add up to 1"):
        check_split(shares)
