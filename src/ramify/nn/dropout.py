"""Dropout that takes a third of the time of torch's on CPU: each random 64-bit word yields eight entries of the mask."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F


def dropout(x: Float[Tensor, "*axes"], p: float, training: bool) -> Float[Tensor, "*axes"]:
    """Zero entries with probability `p` and scale the rest. On CPU `p` is rounded to a multiple of 1/256 below 1, and the scale
    matches the rounded value."""
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p)
    return _apply(_ByteDropout, x, _threshold(p))


def add_dropout(
    residual: Float[Tensor, "*axes"], x: Float[Tensor, "*axes"], p: float, training: bool
) -> Float[Tensor, "*axes"]:
    """`residual + dropout(x)`. On CPU the scaling is fused into the addition."""
    if not training or p == 0.0:
        return residual + x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return residual + F.dropout(x, p)
    return _apply(_AddByteDropout, residual, x, _threshold(p))


def _threshold(p: float) -> int:
    return min(round(p * 256), 255)


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Tensor:
    apply: Callable[..., Tensor] = function.apply
    return apply(*arguments)


def _keep(x: Tensor, threshold: int) -> Tensor:
    words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    return (words.view(torch.uint8)[: x.numel()] >= threshold).view(x.shape)


class _ByteDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: int) -> Tensor:
        keep = _keep(x, threshold)
        ctx.save_for_backward(keep)
        ctx.scale = 256 / (256 - threshold)
        return (x * keep).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return (gradients[0] * keep).mul_(ctx.scale), None


class _AddByteDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, residual: Tensor, x: Tensor, threshold: int) -> Tensor:
        keep = _keep(x, threshold)
        ctx.save_for_backward(keep)
        ctx.scale = 256 / (256 - threshold)
        return torch.add(residual, x * keep, alpha=ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (keep,) = ctx.saved_tensors
        return gradients[0], (gradients[0] * keep).mul_(ctx.scale), None
