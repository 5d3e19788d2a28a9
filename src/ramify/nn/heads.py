"""The vocabulary head, and a loss that never holds all logits at once."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.nn.blocks import ACTIVATIONS, Activation
from ramify.nn.linear import Linear, linear, outer

MAX_LOGITS = 64 * 2**20 // 4
"""Largest number of logits held at once: 64 MiB in single precision."""


class VocabularyHead(nn.Module):
    """Scores over the vocabulary by a linear map, preceded by BERT's dense, activation and LayerNorm if `transform`.

    `embedding` ties the map to the token embedding (Press & Wolf 2017).
    """

    def __init__(
        self,
        dim: int,
        vocab_size: int,
        *,
        transform: bool = False,
        activation: Activation = "gelu",
        embedding: nn.Embedding | None = None,
        eps: float = 1e-12,
    ) -> None:
        super().__init__()
        self.dense = Linear(dim, dim) if transform else None
        self.activation = ACTIVATIONS[activation]
        self.norm = nn.LayerNorm(dim, eps) if transform else None
        self.weight = (
            embedding.weight if embedding is not None else nn.Parameter(torch.empty(vocab_size, dim).normal_(std=0.02))
        )
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def features(self, x: Float[Tensor, "position dim"]) -> Float[Tensor, "position dim"]:
        if self.dense is None or self.norm is None:
            return x
        return self.norm(self.activation(self.dense(x)))

    def forward(self, x: Float[Tensor, "position dim"]) -> Float[Tensor, "position vocab"]:
        return linear(self.features(x), self.weight, self.bias)

    def loss(
        self, x: Float[Tensor, "position dim"], labels: Int[Tensor, " position"], weights: Float[Tensor, " position"]
    ) -> Float[Tensor, ""]:
        """Weighted sum of the cross-entropies in nats. Logits are computed in chunks, each together with its gradient."""
        apply: Callable[..., Tensor] = _LinearCrossEntropy.apply
        return apply(self.features(x), self.weight, self.bias, labels, weights)

    @torch.no_grad()
    def measure(
        self, x: Float[Tensor, "position dim"], labels: Int[Tensor, " position"]
    ) -> tuple[Float[Tensor, " position"], Int[Tensor, " position"]]:
        """Cross-entropy in nats and the highest-scoring id of every position, computed in chunks."""
        x = self.features(x)
        losses, best = [], []
        for start in range(0, len(labels), step := _chunk(self.bias)):
            logits = linear(x[start : start + step], self.weight, self.bias).float()
            losses.append(F.cross_entropy(logits, labels[start : start + step], reduction="none"))
            best.append(logits.argmax(-1))
        if not losses:
            return x.new_zeros(0), labels
        return torch.cat(losses), torch.cat(best)


def _chunk(bias: Tensor) -> int:
    return max(1, MAX_LOGITS // len(bias))


class _LinearCrossEntropy(torch.autograd.Function):
    """Σ weight · CE(x Wᵀ + b, label). The gradient of a sum needs only the logits, so the forward pass computes it chunk by
    chunk and keeps no logits."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        needs = ctx.needs_input_grad
        total = torch.zeros((), dtype=weights.dtype, device=x.device)
        grad_x = torch.empty_like(x) if needs[0] else None
        grad_weight = torch.zeros_like(weight) if needs[1] else None
        grad_bias = torch.zeros_like(bias) if needs[2] else None
        for start in range(0, len(labels), step := _chunk(bias)):
            part = slice(start, start + step)
            logits = linear(x[part], weight, bias)
            log_probabilities = F.log_softmax(logits, -1, dtype=weights.dtype)
            label_scores = log_probabilities.gather(1, labels[part, None])[:, 0]
            total -= (label_scores * weights[part]).sum()
            if not any(needs[:3]):
                continue
            scores = log_probabilities.exp_()
            scores.scatter_add_(1, labels[part, None], torch.full_like(labels[part, None], -1, dtype=scores.dtype))
            scores.mul_(weights[part, None])
            if grad_bias is not None:
                grad_bias += scores.sum(0)
            scores = scores.to(logits.dtype)
            if grad_x is not None:
                grad_x[part] = linear(scores, weight.t())
            if grad_weight is not None:
                grad_weight += outer(scores, x[part])
        ctx.save_for_backward(grad_x, grad_weight, grad_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (None if gradient is None else gradient * gradients[0].to(gradient.dtype) for gradient in ctx.saved_tensors)
        return (*scaled, None, None)


def nats_of_any(log_shares: Float[Tensor, "row column"]) -> Float[Tensor, ""]:
    """Nats to say of each row that it is one of some columns, by the logarithms of their shares; minus infinity in all other
    columns. Rows without any say nothing."""
    known = torch.isfinite(log_shares).any(1)
    # A row of nothing but infinities has no gradient that is a number.
    said = torch.logsumexp(log_shares.masked_fill(~known[:, None], 0.0), dim=1)
    return -(said * known).sum()
