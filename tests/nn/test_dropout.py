"""Dropout from random words has the right rate, scale and gradient."""

import pytest
import torch

from ramify.nn.dropout import add_dropout, dropout

SHARES = [0.1, 0.25, 0.5]


def rounded(p: float) -> float:
    """The probability that dropout uses on CPU: a multiple of 1/256."""
    return round(p * 256) / 256


@pytest.mark.parametrize("p", SHARES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rate_and_scale(p, dtype):
    torch.manual_seed(0)
    x = torch.ones(1001, 333, dtype=dtype)
    y = dropout(x, p, training=True)
    share = rounded(p)
    assert set(y.unique().tolist()) == {0.0, float(torch.tensor(1 / (1 - share), dtype=dtype))}
    zeros = int((y == 0).sum())
    assert abs(zeros - y.numel() * share) < 5 * (y.numel() * share * (1 - share)) ** 0.5


@pytest.mark.parametrize("p", SHARES)
def test_entries_are_dropped_independently(p):
    """The bytes of a random word are uncorrelated, and so are neighbouring entries."""
    torch.manual_seed(1)
    mask = (dropout(torch.ones(80_000, 8), p, training=True) > 0).double()
    share, count = 1 - rounded(p), 80_000
    spread = (share * (1 - share) / count) ** 0.5
    assert float((mask.mean(0) - share).abs().max()) < 5 * spread
    correlation = torch.corrcoef(mask.T) - torch.eye(8, dtype=torch.float64)
    assert float(correlation.abs().max()) < 5 / count**0.5
    flat = mask.flatten()
    assert abs(float(torch.corrcoef(torch.stack([flat[:-1], flat[1:]]))[0, 1])) < 5 / len(flat) ** 0.5


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (0, 4)])
def test_gradient_has_the_same_mask_and_scale(shape):
    torch.manual_seed(2)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    y = dropout(x, 0.3, training=True)
    upstream = torch.randn(shape, dtype=torch.float64)
    (found,) = torch.autograd.grad(y, x, upstream)
    expected = torch.where(y != 0, upstream / (1 - rounded(0.3)), 0.0)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_adding_is_residual_plus_dropout():
    residual, x = (torch.randn(50, 7, dtype=torch.float64, requires_grad=True) for _ in range(2))
    upstream = torch.randn(50, 7, dtype=torch.float64)
    torch.manual_seed(3)
    expected = residual + dropout(x, 0.2, training=True)
    torch.manual_seed(3)
    found = add_dropout(residual, x, 0.2, training=True)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    for own, theirs in zip(
        torch.autograd.grad(found, (residual, x), upstream), torch.autograd.grad(expected, (residual, x), upstream)
    ):
        torch.testing.assert_close(own, theirs, rtol=0, atol=1e-12)


def test_no_dropout_in_evaluation():
    x = torch.randn(5, 5)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0, training=True) is x
    assert torch.equal(add_dropout(x, x, 0.5, training=False), 2 * x)


def test_seeded():
    draws = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        draws.append(dropout(torch.ones(100), 0.5, training=True))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
