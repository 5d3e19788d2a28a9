"""Pooling against a plain implementation, row by row."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ramify.nn.pooling import Pool
from ramify.nn.ragged import Rows

KINDS = ["mean", "max", "cls", "attn", "pooler"]
lengths_of_rows = st.lists(st.integers(1, 9), min_size=1, max_size=8)


def plainly(pool, x, lengths):
    out = []
    for row in x.split(lengths):
        if pool.kind == "mean":
            out.append(row.sum(0) / len(row))
        elif pool.kind == "max":
            out.append(row.max(0).values)
        elif pool.kind == "cls":
            out.append(row[0])
        elif pool.kind == "pooler":
            out.append(torch.tanh(pool.hidden.weight @ row[0] + pool.hidden.bias))
        else:
            weights = pool.score(torch.tanh(pool.hidden(row))).softmax(0)
            out.append((weights * row).sum(0))
    return torch.stack(out)


@pytest.mark.parametrize("kind", KINDS)
@given(lengths=lengths_of_rows)
@settings(max_examples=30)
def test_pool_equals_a_plain_computation(kind, lengths):
    torch.manual_seed(0)
    pool = Pool(kind, 5).double()
    x = torch.randn(sum(lengths), 5, dtype=torch.float64, requires_grad=True)
    found, expected = pool(x, Rows.build(lengths)), plainly(pool, x, lengths)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    weight = torch.randn_like(found)
    inputs = (x, *pool.parameters())
    expected_gradients = torch.autograd.grad((expected * weight).sum(), inputs)
    for gradient, expected_gradient in zip(torch.autograd.grad((found * weight).sum(), inputs), expected_gradients):
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_numerically(kind):
    torch.manual_seed(0)
    pool = Pool(kind, 3).double()
    rows = Rows.build([1, 4, 2])
    x = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: pool(x, rows), x)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_independent(kind):
    torch.manual_seed(0)
    pool = Pool(kind, 4).double()
    rows = Rows.build([3, 1, 5])
    x = torch.randn(9, 4, dtype=torch.float64)
    changed = x.clone()
    changed[3] += 1.0
    difference = (pool(x, rows) != pool(changed, rows)).any(1)
    assert difference.tolist() == [False, True, False]


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows(kind):
    assert Pool(kind, 4)(torch.zeros(0, 4), Rows.build([])).shape == (0, 4)


def test_attention_pooling_of_large_scores_is_finite():
    pool = Pool("attn", 4)
    assert pool.score is not None
    torch.nn.init.constant_(pool.score.weight, 1e4)
    x = torch.randn(6, 4, requires_grad=True)
    pooled = pool(x, Rows.build([2, 4]))
    pooled.sum().backward()
    assert torch.isfinite(pooled).all()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
