"""Recurrence along rows against torch's LSTM, row by row."""

import pytest
import torch

from ramify.nn.ragged import Rows
from ramify.nn.recurrent import BiLSTM, final_states

LENGTHS = [[3], [2, 5, 1, 5], [4, 1, 9, 2, 2]]


def drawn(lengths):
    torch.manual_seed(0)
    rows = Rows.build(lengths)
    return BiLSTM(4, 3).double(), rows, torch.randn(rows.total, 4, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_final_states_are_those_of_torch(lengths):
    module, rows, x = drawn(lengths)
    found = final_states(module(x, rows), rows)
    expected = torch.stack([module.lstm(row[:, None])[1][0][:, 0].flatten() for row in x.split(lengths)])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    weight, sources = torch.randn_like(found), (x, *module.parameters())
    expected_gradients = torch.autograd.grad((expected * weight).sum(), sources)
    for gradient, expected_gradient in zip(torch.autograd.grad((found * weight).sum(), sources), expected_gradients):
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize("lengths", [[0, 2, 0, 0, 3, 0], [4, 0], [0, 4]])
def test_final_states_of_empty_rows_are_zeros_without_a_gradient(lengths):
    module, rows, x = drawn(lengths)
    found = final_states(module(x, rows), rows)
    empty = rows.lengths == 0
    assert not found[empty].any()
    full = Rows.build([length for length in lengths if length])
    torch.testing.assert_close(found[~empty], final_states(module(x, full), full), rtol=0, atol=1e-12)
    for gradient in torch.autograd.grad(found[empty].sum(), (x, *module.parameters())):
        assert not gradient.any()


@pytest.mark.parametrize("lengths", [[], [0, 0]])
def test_final_states_without_tokens(lengths):
    module, rows, x = drawn(lengths)
    found = final_states(module(x, rows), rows)
    assert found.shape == (len(lengths), 6)
    assert not found.any()
