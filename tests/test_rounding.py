"""The tolerance of `near`, and the rounding of `--rounding`."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from rounding import AnotherRounding


@dataclass(frozen=True)
class Answer:
    id: str
    score: float
    probabilities: dict[str, float]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (torch.tensor([1e3, 1e-3]), torch.tensor([1e3, 2e-3])),
        (np.array([1 + 1e-6, np.nan, np.inf], np.float32), np.array([1, np.nan, np.inf], np.float32)),
        ((1e-7, 1), (0.0, 1)),
        (Answer("a", -2.0, {"b": 0.5}), Answer("a", -2.000001, {"b": 0.500001})),
        ("loss 0.35 of 3", "loss 0.36 of 3"),
        ("[0.35989613962498, 1e-07]", "[0.35989608, 2e-07]"),
    ],
)
def test_near(near, found, expected):
    near(found, expected)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (torch.tensor([1e-3]), torch.tensor([1.1e-3])),
        (torch.tensor([1.0], dtype=torch.float64) + 1e-9, torch.tensor([1.0], dtype=torch.float64)),
        (torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64)),
        (torch.tensor([1.0, torch.inf]), torch.tensor([1.0, 1.0])),
        (torch.tensor([3]), torch.tensor([4])),
        ((1e-4, 1), (0.0, 1)),
        ([1.0], [1.0, 1.0]),
        (Answer("a", -2.0, {"b": 0.5}), Answer("b", -2.0, {"b": 0.5})),
        (Answer("a", -2.0, {"b": 0.5}), Answer("a", -2.0, {"b": 0.51})),
        ("loss 0.35 of 3", "loss 0.37 of 3"),
        ("loss 0.35 of 3", "loss 0.35 of 4"),
        ("[0.35989613962498]", "[0.3598]"),
    ],
)
def test_not_near(near, found, expected):
    with pytest.raises(AssertionError):
        near(found, expected)


def test_shapes_and_places_decide_the_rounding():
    torch.manual_seed(0)
    x, weight = torch.randn(1, 8).expand(6, 8), torch.randn(5, 8)
    with AnotherRounding():
        rows = torch.nn.functional.linear(x, weight)
        again = torch.nn.functional.linear(x, weight)
        alone = torch.nn.functional.linear(x[:1], weight)
        counts = torch.ones(9).sum()
    plain = torch.nn.functional.linear(x, weight)
    assert torch.equal(rows, again)
    assert not torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[:1], alone)
    assert counts == 9
    torch.testing.assert_close(rows, plain, rtol=2.5e-7, atol=0)
    assert not torch.equal(rows, plain)
