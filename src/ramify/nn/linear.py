"""Linear maps. On AMD processors with AVX-512, single precision uses oneDNN, which takes half the time of torch's default, MKL.
Elsewhere this is torch's own linear map."""

import functools
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

MIN_PRODUCTS = 10**8
"""Number of multiply-adds from which oneDNN pays off: it spends a third of a millisecond on every new shape."""


class Linear(nn.Linear):
    def forward(self, input: Float[Tensor, "*rows in"]) -> Float[Tensor, "*rows out"]:
        return linear(input, self.weight, self.bias)


def linear(
    x: Float[Tensor, "*rows in"], weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None = None
) -> Float[Tensor, "*rows out"]:
    """x Wᵀ + b."""
    if not _pays(x, weight):
        return F.linear(x, weight, bias)
    apply: Callable[..., Tensor] = _Linear.apply
    # oneDNN is two hundred times slower on a slice of a matrix's columns.
    return apply(x.contiguous(), weight.contiguous(), bias)


def outer(
    x: Float[Tensor, "rows left"], y: Float[Tensor, "rows right"], product: Callable[[Tensor, Tensor], Tensor] = linear
) -> Float[Tensor, "left right"]:
    """Xᵀ Y, the gradient of a weight. `product` computes x Wᵀ."""
    # oneDNN copies a transposed first factor, so the first factor is the smaller one.
    return product(y.t(), x.t()).t() if x.shape[1] > y.shape[1] else product(x.t(), y.t())


def on_pairs(
    layer: nn.Linear,
    one: Float[Tensor, "one one_size"],
    ones: Int[Tensor, " pair"],
    other: Float[Tensor, "other other_size"],
    others: Int[Tensor, " pair"],
    pairs: Float[Tensor, "pair pair_size"],
) -> Float[Tensor, "pair out"]:
    """Apply a layer to the concatenation [one, other, pair]. Each row of `one` and `other` is multiplied once, not per pair."""
    weights = layer.weight.split([part.shape[1] for part in (one, other, pairs)], dim=1)
    x = linear(pairs, weights[2], layer.bias)
    # In place, because the pairs fill the memory.
    x += linear(one, weights[0]).index_select(0, ones)
    x += linear(other, weights[1]).index_select(0, others)
    return x


def _pays(x: Tensor, weight: Tensor) -> bool:
    return (
        x.dtype == weight.dtype == torch.float32
        and x.device.type == "cpu"
        and x.dim() == 2
        and len(x) * weight.numel() >= MIN_PRODUCTS
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
        and _slow_mkl()
    )


@functools.cache
def _slow_mkl() -> bool:
    """Whether MKL is slow on this processor and torch offers oneDNN's product."""
    if platform.system() != "Linux" or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    if "AuthenticAMD" not in Path("/proc/cpuinfo").read_text() or not torch.backends.mkldnn.is_available():
        return False
    # Not random: a draw here, in the middle of a training step, would change the step's random numbers.
    x, weight = torch.arange(12.0).view(3, 4), torch.arange(20.0).view(5, 4)
    try:
        return torch.allclose(_product(x, weight), x @ weight.t(), atol=1e-5)
    except (AttributeError, RuntimeError):
        return False


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        # The gradient of a sum is expanded from one number, and oneDNN is slow on that, too.
        (gradient,) = (tensor.contiguous() for tensor in gradients)
        for_x, for_weight, for_bias = ctx.needs_input_grad
        return (
            _product(gradient, weight.t()) if for_x else None,
            outer(gradient, x, _product) if for_weight else None,
            gradient.sum(0) if for_bias else None,
        )
