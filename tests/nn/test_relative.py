"""Relative attention against loops over pairs: the shift of positions, chosen queries, segments, and the gradient."""

from itertools import pairwise

import pytest
import torch

from fixtures.streams import code, plain_attention
from ramify.nn.ragged import Rows
from ramify.nn.relative import DistanceScores, Queries, RelativeAttention, shifted, sinusoids

EXACT = {"rtol": 0, "atol": 1e-10}
DIM, HEADS, ROWS = 8, 2, 2


def module(**options):
    torch.manual_seed(0)
    own = RelativeAttention(DIM, HEADS, 0.0, **options)
    for parameter in own.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return own.double()


def drawn(*shape, learned=False):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=learned)


def one_hot(segments):
    return torch.nn.functional.one_hot(segments, 3)


def test_codes_are_sines_then_cosines():
    found = sinusoids(torch.tensor([0.0, 1.0, -2.5], dtype=torch.float64), 4)
    torch.testing.assert_close(found, code(torch.tensor([0.0, 1.0, -2.5], dtype=torch.float64), 4), **EXACT)
    assert found[0].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("num_queries", range(1, 8))
def test_shift_is_a_double_loop(num_queries):
    torch.manual_seed(num_queries)
    for memory in range(8):
        num_keys = memory + num_queries
        scores = drawn(2, 3, num_queries, num_keys + num_queries - 1)
        found = shifted(scores, num_keys)
        # Columns are distances from the greatest (the last query to the first key) downwards.
        column = {num_keys - 1 - place: place for place in range(scores.shape[3])}
        for query in range(num_queries):
            for key in range(num_keys):
                assert torch.equal(found[:, :, query, key], scores[:, :, query, column[memory + query - key]])
        # In one direction only (`uni`), no distance is negative: causal queries read none of the other columns.
        seen = torch.ones(num_queries, num_keys).tril(memory).bool()
        scores[..., num_keys:] = torch.nan
        assert not shifted(scores, num_keys)[:, :, seen].isnan().any()


@pytest.mark.parametrize(("num_queries", "num_keys"), [(1, 1), (1, 4), (3, 3), (3, 5), (4, 2)])
def test_gradient_of_the_shift(num_queries, num_keys):
    torch.manual_seed(0)
    distances = num_queries + max(num_keys, num_queries) - 1
    # Other memory layouts than the shift's own are copied.
    for scores in (drawn(2, 2, num_queries, distances), drawn(distances, num_queries, 2, 2).permute(3, 2, 1, 0)):
        assert torch.autograd.gradcheck(lambda x: shifted(x, num_keys), scores.requires_grad_())


@pytest.mark.parametrize("segmented", [False, True])
@pytest.mark.parametrize("memory", [0, 3])
def test_attention_is_the_sum_over_pairs(segmented, memory):
    """One block of consecutive queries and one of chosen ones, in rows of both directions, with gradients."""
    own, num_tokens, chosen = module(), 5, torch.tensor([[4, 1, 1], [0, 2, 3]])
    torch.manual_seed(1)
    x, read = drawn(ROWS, num_tokens + 3, DIM, learned=True), drawn(ROWS, memory + num_tokens, DIM, learned=True)
    mask = torch.rand(ROWS, num_tokens + 3, memory + num_tokens) < 0.5
    mask[0, 1], mask[1, num_tokens] = False, False
    segments = torch.randint(3, (ROWS, memory + num_tokens))
    direction, signs = torch.tensor([1, 0]), (-1, 1)
    distances = torch.arange(memory + num_tokens - 1, -num_tokens, -1, dtype=torch.float64)
    codes = torch.stack([sinusoids(sign * distances, DIM) for sign in (1, -1)])
    keys = own.keys(read, num_tokens, codes, direction, one_hot(segments).double() if segmented else None)
    of_queries = segments[:, memory:]
    parts = []
    for start, stop, positions in ((0, num_tokens, None), (num_tokens, num_tokens + 3, chosen)):
        own_segments = of_queries if positions is None else of_queries.gather(1, positions)
        parts.append(
            Queries(
                slice(start, stop),
                memory + num_tokens,
                0,
                num_tokens,
                mask[:, None, start:stop],
                positions,
                one_hot(own_segments) if segmented else None,
            )
        )
    record = []
    found = own(x, keys, parts, record)
    expected = []
    for row in range(ROWS):
        places = torch.cat([torch.arange(num_tokens), chosen[row]])
        pairs = memory + places[:, None] - torch.arange(memory + num_tokens)
        same = of_queries[row, places][:, None] == segments[row] if segmented else None
        expected.append(plain_attention(own, x[row], read[row], signs[row] * pairs, mask[row], same))
    torch.testing.assert_close(found, torch.stack(expected), **EXACT)
    assert not found[0, 1].any()
    inputs, upstream = (x, read, *own.parameters()), torch.randn_like(found)
    left, right = (torch.autograd.grad(each, inputs, upstream, allow_unused=True) for each in (found, torch.stack(expected)))
    for name, ours, theirs in zip(("x", "read", *dict(own.named_parameters())), left, right, strict=True):
        assert (ours is None) == (theirs is None), name
        if theirs is not None:
            torch.testing.assert_close(ours, theirs, **EXACT, msg=name)
    # The recorded weights add up to 1, or to 0 where nothing is visible.
    sums = torch.cat(record, 2).sum(-1)
    torch.testing.assert_close(sums, mask.any(-1)[:, None].expand_as(sums).double(), **EXACT)


@pytest.mark.parametrize("asked", [False, True])
def test_attention_among_rows_is_the_sum_over_pairs(asked):
    """Rows of unequal lengths, some of them empty, with all queries or with some of each row, with gradients."""
    own, lengths = module(segmented=False), [0, 3, 8, 8, 1, 15, 9, 0]
    torch.manual_seed(1)
    rows = q_rows = Rows.build(lengths)
    x = drawn(rows.total, DIM, learned=True)
    index = torch.arange(rows.total)
    if asked:
        counts = [0, 2, 0, 3, 1, 4, 0, 0]
        places = [torch.randperm(length)[:count].sort().values for length, count in zip(lengths, counts, strict=True)]
        index = torch.cat([start + place for start, place in zip(rows.offsets[:-1], places, strict=True)])
        q_rows = Rows.build(counts, keys=rows.keys)
    codes = sinusoids(torch.arange(14, -15, -1, dtype=torch.float64), DIM)
    record = []
    found = own.among(x[index], x, q_rows, rows, codes, rows.positions[index], record=record)
    ends, expected = rows.offsets.tolist(), torch.zeros(rows.total, DIM, dtype=torch.float64)
    for start, stop in pairwise(ends):
        places = torch.arange(stop - start)
        alone = plain_attention(own, x[start:stop], x[start:stop], places[:, None] - places, torch.tensor(True))
        expected = torch.cat([expected[:start], alone, expected[stop:]])
    torch.testing.assert_close(found, expected[index], **EXACT)
    inputs, upstream = (x, *own.parameters()), torch.randn_like(found)
    left, right = (torch.autograd.grad(each, inputs, upstream) for each in (found, expected[index]))
    for name, ours, theirs in zip(("x", *dict(own.named_parameters())), left, right, strict=True):
        torch.testing.assert_close(ours, theirs, **EXACT, msg=name)
    shapes = zip(q_rows.host_lengths.tolist(), lengths, strict=True)
    assert [weights.shape for weights in record] == [(HEADS, queries, keys) for queries, keys in shapes]
    for weights in record:
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2], dtype=torch.float64), **EXACT)


def test_without_positions_the_score_is_that_of_the_content():
    own = module(relative=False)
    assert {name for name, _ in own.named_parameters()} == {"query.weight", "key_value.weight", "out.weight"}
    torch.manual_seed(0)
    x, mask = drawn(ROWS, 4, DIM), torch.rand(ROWS, 4, 4) < 0.6
    keys = own.keys(x, 4, drawn(1, 7, DIM), torch.zeros(ROWS, dtype=torch.long), None)
    found = own(x, keys, [Queries(slice(0, 4), 4, 0, 4, mask[:, None])])
    for row in range(ROWS):
        torch.testing.assert_close(found[row], plain_attention(own, x[row], x[row], torch.zeros(4, 4), mask[row]), **EXACT)


def test_attention_dropout_is_unbiased():
    """The mean of many draws is the attention without dropout; without training there is none."""
    own = module()
    own.dropout = 0.3
    torch.manual_seed(0)
    x, mask = drawn(1, 3, DIM), torch.ones(1, 1, 3, 3, dtype=torch.bool)
    codes, part = drawn(1, 5, DIM), Queries(slice(0, 3), 3, 0, 3, mask)
    with torch.no_grad():
        keys = own.keys(x, 3, codes, torch.zeros(1, dtype=torch.long), None)
        exact = own.eval()(x, keys, [part])
        assert torch.equal(exact, own(x, keys, [part]))
        draws = torch.cat([own.train()(x, keys, [part]) for _ in range(4000)])
    error = draws.std(0) / len(draws) ** 0.5
    assert (draws.std(0) > 0.1).any()
    assert ((draws.mean(0) - exact[0]).abs() < 5 * error).all()


def test_a_distance_that_begins_a_bucket_stays_in_it(monkeypatch):
    """8 · 2^(k/2) begins bucket 8 + k of 16: whole numbers for every second k, wherever logarithms are rounded down."""
    offsets = -torch.tensor([7, 8, 15, 16, 31, 32, 63, 64])
    log = torch.log
    for towards in (0.0, torch.inf):
        monkeypatch.setattr(torch, "log", lambda x, towards=towards: torch.nextafter(log(x), torch.tensor(towards)))
        assert DistanceScores(2, 32, 128, causal=False).buckets(offsets).tolist() == [7, 8, 9, 10, 11, 12, 13, 14]
