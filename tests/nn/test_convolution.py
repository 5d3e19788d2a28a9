"""Convolutions along rows against torch's, row by row."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from ramify.nn.convolution import Convolution, SeparableConvolution
from ramify.nn.ragged import Rows


def plainly(module, x, causal):
    """One row, with zeros at both ends."""
    weight, bias = module.conv.weight[..., 0], module.conv.bias
    size = weight.shape[2]
    before = size - 1 if causal else (size - 1) // 2
    padded = F.pad(x.T, (before, size - 1 - before))
    return F.conv1d(padded[None], weight, bias, groups=module.conv.groups)[0].T


@given(
    lengths=st.lists(st.integers(0, 12), max_size=8),
    size=st.integers(1, 9),
    groups=st.sampled_from([1, 2, 6]),
    causal=st.booleans(),
    bias=st.booleans(),
)
@settings(max_examples=60)
def test_rows_are_convolved_alone(lengths, size, groups, causal, bias):
    torch.manual_seed(0)
    module = Convolution(6, 6, size, causal=causal, groups=groups, bias=bias).double()
    rows = Rows.build(lengths)
    x = torch.randn(rows.total, 6, dtype=torch.float64, requires_grad=True)
    found = module(x, rows)
    assert found.shape == (rows.total, 6)
    if not any(lengths):
        return
    expected = torch.cat([plainly(module, row, causal) for row in x.split(lengths) if len(row)])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    weight, sources = torch.randn_like(found), (x, *module.parameters())
    expected_gradients = torch.autograd.grad((expected * weight).sum(), sources)
    for gradient, expected_gradient in zip(torch.autograd.grad((found * weight).sum(), sources), expected_gradients):
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-11)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("groups", [1, 16])
def test_single_precision_takes_another_kernel(groups, causal):
    torch.manual_seed(0)
    module = Convolution(16, 32, 9, causal=causal, groups=groups)
    lengths = [5, 30, 0, 64, 1, 17]
    x = torch.randn(sum(lengths), 16, requires_grad=True)
    found = module(x, Rows.build(lengths))
    expected = torch.cat([plainly(module, row, causal) for row in x.split(lengths) if len(row)])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    weight, sources = torch.randn_like(found), (x, *module.parameters())
    expected_gradients = torch.autograd.grad((expected * weight).sum(), sources)
    for gradient, expected_gradient in zip(torch.autograd.grad((found * weight).sum(), sources), expected_gradients):
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=2e-4)


def test_separable_convolution_is_a_low_rank_convolution():
    """Its filter of channels (in, out) is that of the channel `in`, times one number."""
    torch.manual_seed(0)
    module = SeparableConvolution(4, 3, 5).double()
    full = Convolution(4, 3, 5).double()
    with torch.no_grad():
        full.conv.weight.copy_(module.pointwise.weight[:, :, None, None] * module.depthwise.conv.weight[:, 0])
        full.conv.bias.copy_(module.pointwise.bias)
    assert {name for name, _ in module.named_parameters()} == {
        "depthwise.conv.weight",
        "pointwise.weight",
        "pointwise.bias",
    }
    rows = Rows.build([3, 7, 1])
    x = torch.randn(rows.total, 4, dtype=torch.float64)
    torch.testing.assert_close(module(x, rows), full(x, rows), rtol=0, atol=1e-12)
