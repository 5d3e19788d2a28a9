"""Heads that score the vocabulary, and losses that never hold all logits at once."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.errors import RamifyError
from ramify.nn.blocks import ACTIVATIONS, Activation
from ramify.nn.linear import Linear, linear, outer

MAX_LOGITS = 64 * 2**20 // 4
"""Largest number of logits held at once: 64 MiB in single precision."""


class VocabularyHead(nn.Module):
    """Scores over the vocabulary by a linear map, preceded by BERT's dense, activation and LayerNorm if `transform`.

    `embedding` ties the map to the token embedding (Press & Wolf 2017). `width` is the length of its rows, to which the dense
    layer maps; None: `dim`. `sampled` is the number of tokens against which each label is scored in training; None: all.
    """

    def __init__(
        self,
        dim: int,
        vocab_size: int,
        *,
        transform: bool = False,
        width: int | None = None,
        activation: Activation = "gelu",
        embedding: nn.Embedding | None = None,
        sampled: int | None = None,
        eps: float = 1e-12,
    ) -> None:
        super().__init__()
        self.sampled = sampled
        width = dim if width is None else width
        self.dense = Linear(dim, width) if transform else None
        self.activation = ACTIVATIONS[activation]
        self.norm = nn.LayerNorm(width, eps) if transform else None
        self.weight = (
            embedding.weight if embedding is not None else nn.Parameter(torch.empty(vocab_size, width).normal_(std=0.02))
        )
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def features(self, x: Float[Tensor, "position dim"]) -> Float[Tensor, "position width"]:
        if self.dense is None or self.norm is None:
            return x
        return self.norm(self.activation(self.dense(x)))

    def forward(self, x: Float[Tensor, "position dim"]) -> Float[Tensor, "position vocab"]:
        return linear(self.features(x), self.weight, self.bias)

    def loss(
        self,
        x: Float[Tensor, "position dim"],
        labels: Int[Tensor, " position"],
        weights: Float[Tensor, " position"],
        *,
        smoothing: float = 0.0,
    ) -> Float[Tensor, ""]:
        """Weighted sum of the cross-entropies in nats. Logits are computed in chunks, each together with its gradient.

        `smoothing` is the share of each label that is spread evenly over the vocabulary. In training, a head with `sampled`
        tokens gives the loss of `_sampled_loss` instead, without smoothing.
        """
        if self.sampled is not None and self.training:
            return self._sampled_loss(x, labels, weights, self.sampled)
        one_label = _SmoothedLabel(labels, weights, smoothing) if smoothing else _OneLabel(labels, weights)
        return _cross_entropy(self.features(x), self.weight, self.bias, one_label, weights.dtype)

    def _sampled_loss(
        self,
        x: Float[Tensor, "position dim"],
        labels: Int[Tensor, " position"],
        weights: Float[Tensor, " position"],
        count: int,
    ) -> Float[Tensor, ""]:
        """Sampled softmax (Jean et al. 2015): each label is scored against `count` other tokens, which all positions share.

        Every score is corrected by the logarithm of how often its token is expected in the sample; a sampled token that is the
        label itself does not count.
        """
        x = self.features(x)
        sample = log_uniform_sample(count, len(self.bias)).to(x.device)
        true = (x * F.embedding(labels, self.weight)).sum(1) + F.embedding(labels, self.bias[:, None])[:, 0]
        noise = linear(x, F.embedding(sample.ids, self.weight), F.embedding(sample.ids, self.bias[:, None])[:, 0])
        true = true.float() - sample.log_expected(labels)
        noise = noise.float() - sample.log_expected(sample.ids)
        noise = noise.masked_fill(sample.ids == labels[:, None], -torch.inf)
        return ((torch.cat([true[:, None], noise], 1).logsumexp(1) - true) * weights).sum()

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


LONGEST_SPAN, PLACE_DIM = 20, 200
"""SpanBERT's number of places in a span, and the width of their vectors. Later places share the last one."""


class SpanBoundaryHead(nn.Module):
    """Scores of a span's tokens from the states on both sides of the span and the token's place in it (Joshi et al. 2020,
    section 3.2). The output map may be the token embedding."""

    def __init__(self, dim: int, vocab_size: int, width: int, *, embedding: nn.Embedding | None, eps: float = 1e-12) -> None:
        super().__init__()
        self.places = nn.Embedding(LONGEST_SPAN, PLACE_DIM)
        nn.init.normal_(self.places.weight, std=0.02)
        self.dense = Linear(2 * dim + PLACE_DIM, dim)
        self.norm = nn.LayerNorm(dim, eps)
        self.words = VocabularyHead(dim, vocab_size, transform=True, width=width, embedding=embedding, eps=eps)

    def forward(
        self,
        left: Float[Tensor, "position dim"],
        right: Float[Tensor, "position dim"],
        place: Int[Tensor, " position"],
    ) -> Float[Tensor, "position dim"]:
        """The input of `words`. `place` counts from 0."""
        places = self.places(place.clamp(max=LONGEST_SPAN - 1))
        return self.norm(F.gelu(self.dense(torch.cat([left, right, places], dim=1))))


@dataclass(frozen=True)
class LogUniformSample:
    """Different tokens, drawn with probabilities that fall with their ids: P(k) = ln((k + 2) / (k + 1)) / ln(V + 1).

    It suits a vocabulary that is sorted by frequency.
    """

    ids: Int[Tensor, " sample"]
    draws: int
    """The number of draws until there were so many different tokens."""
    vocab_size: int

    def to(self, device: torch.device) -> "LogUniformSample":
        return replace(self, ids=self.ids.to(device, non_blocking=True))

    def log_expected(self, ids: Int[Tensor, " token"]) -> Float[Tensor, " token"]:
        """The logarithm of the probability that a token is in a sample of as many draws."""
        chance = torch.log1p(1 / (ids.double() + 1)) / math.log(self.vocab_size + 1)
        return torch.log(-torch.expm1(self.draws * torch.log1p(-chance))).float()


def log_uniform_sample(count: int, vocab_size: int) -> LogUniformSample:
    """Draw `count` different tokens by torch's generator of the host."""
    drawn = torch.zeros(0, dtype=torch.int64)
    first = np.zeros(0, dtype=np.int64)
    while len(first) < count:
        more = torch.rand(max(2 * count, len(drawn)), dtype=torch.float64)
        new = torch.exp(more * math.log(vocab_size + 1)).long() - 1
        drawn = torch.cat([drawn, new.clamp(0, vocab_size - 1)])
        first = np.unique(drawn.numpy(), return_index=True)[1]
    first = np.sort(first)[:count]
    return LogUniformSample(drawn[torch.from_numpy(first)], int(first[-1]) + 1, vocab_size)


def _chunk(bias: Tensor) -> int:
    return max(1, MAX_LOGITS // len(bias))


PROJECTION_SCALE = 2.0
"""A projection of vectors into the space of the token embedding starts at this multiple of the identity, so that a fresh vector
already predicts the words that it was pooled from."""


def start_projection(projection: nn.Linear) -> None:
    with torch.no_grad():
        projection.weight.copy_(PROJECTION_SCALE * torch.eye(*projection.weight.shape))


@dataclass(frozen=True)
class Bags:
    """Bags of words that vectors predict: word by word, the row of its vector, its piece, and its weight."""

    row: Int[Tensor, " word"]
    piece: Int[Tensor, " word"]
    weight: Float[Tensor, " word"]


class BagOfWordsHead(nn.Module):
    """Predicts the bag of words of a text from one vector v: softmax(E P LN(v) + b), where E is the token embedding.

    Zhao et al. 2017 call this loss the bag-of-words loss. LN has no parameters of its own.
    """

    def __init__(self, projection: nn.Linear, embedding: Tensor, eps: float) -> None:
        """`projection` is P. Like the embedding, it may belong to another module as well."""
        super().__init__()
        self.projection = projection
        self.weight = embedding
        self.bias = nn.Parameter(torch.zeros(len(embedding)))
        self.eps = eps

    def forward(self, vectors: Float[Tensor, "row dim"]) -> Float[Tensor, "row vocab"]:
        return linear(self._features(vectors), self.weight, self.bias)

    def loss(self, vectors: Float[Tensor, "row dim"], bags: Bags) -> Float[Tensor, ""]:
        """Weighted sum over words of −log p(word | vector), in nats."""
        return _cross_entropy(
            self._features(vectors), self.weight, self.bias, _ManyLabels(bags, len(vectors)), bags.weight.dtype
        )

    def _features(self, vectors: Float[Tensor, "row dim"]) -> Float[Tensor, "row dim"]:
        return self.projection(F.layer_norm(vectors, vectors.shape[-1:], eps=self.eps))


class _Labels(ABC):
    """The labels of rows of scores. Both methods take a part of the rows."""

    @abstractmethod
    def loss(self, part: slice, log_probabilities: Tensor) -> Tensor: ...

    @abstractmethod
    def gradient(self, part: slice, probabilities: Tensor) -> Tensor:
        """Turn probabilities into the gradient with respect to the scores, in place."""


@dataclass(frozen=True)
class _OneLabel(_Labels):
    """One label per row, and its weight."""

    labels: Tensor
    weights: Tensor

    def loss(self, part: slice, log_probabilities: Tensor) -> Tensor:
        label_scores = log_probabilities.gather(1, self.labels[part, None])[:, 0]
        return -(label_scores * self.weights[part]).sum()

    def gradient(self, part: slice, probabilities: Tensor) -> Tensor:
        labels = self.labels[part, None]
        probabilities.scatter_add_(1, labels, torch.full_like(labels, -1, dtype=probabilities.dtype))
        return probabilities.mul_(self.weights[part, None])


@dataclass(frozen=True)
class _SmoothedLabel(_Labels):
    """One label per row, its weight, and the share of it that is spread evenly over the vocabulary."""

    labels: Tensor
    weights: Tensor
    smoothing: float

    def loss(self, part: slice, log_probabilities: Tensor) -> Tensor:
        label_scores = log_probabilities.gather(1, self.labels[part, None])[:, 0]
        scores = label_scores * (1 - self.smoothing) + log_probabilities.mean(1) * self.smoothing
        return -(scores * self.weights[part]).sum()

    def gradient(self, part: slice, probabilities: Tensor) -> Tensor:
        labels = self.labels[part, None]
        probabilities -= self.smoothing / probabilities.shape[1]
        probabilities.scatter_add_(1, labels, torch.full_like(labels, self.smoothing - 1, dtype=probabilities.dtype))
        return probabilities.mul_(self.weights[part, None])


class _ManyLabels(_Labels):
    """Any number of labels per row, each with a weight."""

    def __init__(self, bags: Bags, num_rows: int) -> None:
        self.bags = bags
        self.num_rows = num_rows
        self.total = torch.zeros(num_rows, dtype=bags.weight.dtype, device=bags.weight.device)
        self.total.index_add_(0, bags.row, bags.weight)

    def loss(self, part: slice, log_probabilities: Tensor) -> Tensor:
        places, weights = self._inside(part, log_probabilities.shape[1])
        return -(log_probabilities.view(-1).index_select(0, places) * weights).sum()

    def gradient(self, part: slice, probabilities: Tensor) -> Tensor:
        places, weights = self._inside(part, probabilities.shape[1])
        probabilities.mul_(self.total[part, None])
        probabilities.view(-1).index_add_(0, places, -weights)
        return probabilities

    def _inside(self, part: slice, vocab_size: int) -> tuple[Tensor, Tensor]:
        """The words of these rows: their places in the flat scores of the part, and their weights."""
        row, piece, weight = self.bags.row, self.bags.piece, self.bags.weight
        if part.stop - part.start < self.num_rows:
            inside = (row >= part.start) & (row < part.stop)
            row, piece, weight = row[inside], piece[inside], weight[inside]
        return (row - part.start) * vocab_size + piece, weight


def _cross_entropy(x: Tensor, weight: Tensor, bias: Tensor, labels: _Labels, dtype: torch.dtype) -> Float[Tensor, ""]:
    apply: Callable[..., Tensor] = _LinearCrossEntropy.apply
    if not torch.is_grad_enabled():
        # A function is told that parameters need a gradient even where none is computed.
        x, weight, bias = x.detach(), weight.detach(), bias.detach()
    return apply(x, weight, bias, labels, dtype)


class _LinearCrossEntropy(torch.autograd.Function):
    """Σ weight · CE(x Wᵀ + b, label). The gradient of a sum needs only the logits, so the forward pass computes it chunk by
    chunk and keeps no logits.

    The gradient is stored as a constant, so it has no derivative: a double backward raises `RamifyError`.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, labels: _Labels, dtype: torch.dtype) -> Tensor:
        needs = ctx.needs_input_grad
        total = torch.zeros((), dtype=dtype, device=x.device)
        grad_x = torch.empty_like(x) if needs[0] else None
        grad_weight = None
        grad_bias = torch.zeros_like(bias) if needs[2] else None
        for start in range(0, len(x), step := _chunk(bias)):
            part = slice(start, min(start + step, len(x)))
            logits = linear(x[part], weight, bias)
            log_probabilities = F.log_softmax(logits, -1, dtype=dtype)
            total += labels.loss(part, log_probabilities)
            if not any(needs[:3]):
                continue
            scores = labels.gradient(part, log_probabilities.exp_())
            if grad_bias is not None:
                grad_bias += scores.sum(0)
            scores = scores.to(logits.dtype)
            if grad_x is not None:
                grad_x[part] = linear(scores, weight.t())
            if needs[1]:
                # The table is large: the first chunk's gradient is taken as it is.
                part_gradient = outer(scores, x[part])
                grad_weight = part_gradient if grad_weight is None else grad_weight.add_(part_gradient)
        if needs[1] and grad_weight is None:
            grad_weight = torch.zeros_like(weight)
        ctx.save_for_backward(grad_x, grad_weight, grad_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        # torch's `once_differentiable` would let a penalty on the gradient pass and leave its second derivative out.
        if torch.is_grad_enabled():
            raise RamifyError(
                "create_graph=True asks for the gradient of a gradient, which the chunked loss of a vocabulary head does not "
                "have. Compute the loss from the logits of the head (`forward`), or leave create_graph out."
            )
        scaled = (None if gradient is None else gradient * gradients[0].to(gradient.dtype) for gradient in ctx.saved_tensors)
        return (*scaled, None, None)


def marginal_nll(log_shares: Float[Tensor, "row column"]) -> Float[Tensor, ""]:
    """The negative log-likelihood, summed over rows, that a row's choice is any of its allowed columns. Forbidden columns hold
    minus infinity; rows without an allowed column add nothing."""
    allowed = torch.isfinite(log_shares).any(1)
    # The gradient of a row of nothing but infinities would be NaN.
    log_likelihood = torch.logsumexp(log_shares.masked_fill(~allowed[:, None], 0.0), dim=1)
    return -(log_likelihood * allowed).sum()
