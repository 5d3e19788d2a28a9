"""The type checker behind `--shapes` finds arguments and results that signatures rule out."""

from dataclasses import dataclass

import pytest
import torch
from jaxtyping import Float, Int, TypeCheckError, jaxtyped
from torch import Tensor

from shapes import checked


@jaxtyped(typechecker=checked)
def product(a: Float[Tensor, "n d"], b: Float[Tensor, " d"], left_out: int = 0) -> Float[Tensor, " n"]:
    return (a @ b)[left_out:]


@jaxtyped(typechecker=checked)
def zeros(size: int, given: int) -> Float[Tensor, "{given}"]:
    return torch.zeros(size)


@jaxtyped(typechecker=checked)
def nothing(a: Float[Tensor, " n"]):
    return a.sum()


@jaxtyped(typechecker=checked)
@dataclass
class Pair:
    one: Float[Tensor, " n"]
    other: Int[Tensor, " n"]


def test_calls_that_fit_pass():
    assert product(torch.ones(4, 2), torch.ones(2)).tolist() == [2] * 4
    assert zeros(3, 3).shape == (3,)
    assert nothing(torch.ones(2)) == 2
    assert Pair(torch.zeros(2), torch.arange(2)).other[1] == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: product(torch.ones(4, 2), torch.ones(3)), "parameters"),
        (lambda: product(torch.ones(4, 2).long(), torch.ones(2)), "parameter 'a'"),
        (lambda: product(torch.ones(4, 2), torch.ones(2), left_out="1"), "parameter 'left_out'"),
        # An axis of the result is one of the arguments'.
        (lambda: product(torch.ones(4, 2), torch.ones(2), left_out=1), "return value"),
        (lambda: zeros(3, 4), "return value"),
        (lambda: nothing(torch.ones(2, 2)), "parameter 'a'"),
        (lambda: Pair(torch.zeros(2), torch.arange(3)), "parameters"),
    ],
)
def test_calls_that_do_not_fit_are_found(call, message):
    with pytest.raises(TypeCheckError, match=message):
        call()
