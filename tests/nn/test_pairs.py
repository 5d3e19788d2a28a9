"""Pairs of rows in parts against each pair alone, and checkpointed parts against finite differences."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ramify.nn.dropout import dropout
from ramify.nn.pairs import align, pair_up, part_by_part
from ramify.nn.ragged import Rows, inverse, places
from ramify.nn.recurrent import BiLSTM


@st.composite
def rows_and_pairs(draw: st.DrawFn) -> tuple[list[int], list[int], list[int], int]:
    lengths = draw(st.lists(st.integers(1, 20), min_size=1, max_size=6))
    number = st.integers(0, len(lengths) - 1)
    pairs = draw(st.lists(st.tuples(number, number), min_size=1, max_size=12))
    return lengths, [one for one, _ in pairs], [other for _, other in pairs], draw(st.sampled_from([1, 40, 10_000]))


@given(rows_and_pairs())
def test_attended_tokens_are_in_the_other_row(drawn: tuple[list[int], list[int], list[int], int]) -> None:
    lengths, left, right, limit = drawn
    torch.manual_seed(0)
    rows = Rows.build(lengths)
    keys, values = torch.randn(rows.total, 3).double(), torch.randn(rows.total, 4).double()
    parts, place = pair_up(rows, np.array(left), np.array(right), limit)
    assert sum(len(part.left) for part in parts) == len(left)
    assert all(part.left.total + part.right.total <= limit or len(part.left) == 1 for part in parts)
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    for part in parts:
        of_left, of_right = align(keys, values, part)
        found += zip(of_left.split(part.left.host_lengths.tolist()), of_right.split(part.right.host_lengths.tolist()))
    own_keys, own_values = keys.split(lengths), values.split(lengths)
    for number, (one, other) in enumerate(zip(left, right)):
        scores = own_keys[one] @ own_keys[other].T
        of_left, of_right = found[int(place[number])]
        torch.testing.assert_close(of_left, scores.softmax(1) @ own_values[other])
        torch.testing.assert_close(of_right, scores.softmax(0).T @ own_values[one])


def test_rows_are_read_in_place() -> None:
    lengths = np.array([2, 0, 3, 1])
    assert places(lengths, np.array([2, 0, 1, 2])).tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    assert inverse(np.array([2, 0, 1])).tolist() == [1, 2, 0]


def test_recomputation_repeats_dropout() -> None:
    """The gradient equals the slope of the loss under the same random draws."""
    torch.manual_seed(0)
    weight, parts = torch.randn(4, 4).double().requires_grad_(), list(torch.randn(3, 5, 4).double())
    reads = []

    def read(part: torch.Tensor) -> torch.Tensor:
        reads.append(torch.is_grad_enabled())
        return dropout(torch.tanh(part @ weight), 0.5, training=True)

    def loss() -> torch.Tensor:
        torch.manual_seed(7)
        return part_by_part(read, parts).square().sum()

    loss().backward()
    assert len(reads) == 2 * len(parts)
    assert weight.grad is not None
    line = torch.randn_like(weight)
    sides = []
    for step in (1e-6, -1e-6):
        with torch.no_grad():
            weight.add_(step * line)
            sides.append(loss().item())
            weight.sub_(step * line)
    assert (weight.grad * line).sum().item() == pytest.approx((sides[0] - sides[1]) / 2e-6, rel=1e-5)
    reads.clear()
    part_by_part(read, parts[:1]).sum().backward()
    assert len(reads) == 1


@pytest.mark.parametrize("lengths", [[3], [2, 5, 1, 5], [0, 4, 0], [0, 0]])
def test_rows_attend_in_both_directions(lengths: list[int]) -> None:
    torch.manual_seed(0)
    lstm = BiLSTM(3, 4).double()
    rows = Rows.build(lengths)
    x = torch.randn(rows.total, 3).double().requires_grad_()
    found = lstm(x, rows)
    assert found.shape == (rows.total, lstm.out_dim)
    if not rows.total:
        return
    expected = torch.cat([lstm.lstm(row[:, None])[0][:, 0] for row in x.split(lengths) if len(row)])
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(found)
    gradients = [torch.autograd.grad((result * weight).sum(), x)[0] for result in (found, expected)]
    torch.testing.assert_close(*gradients)
