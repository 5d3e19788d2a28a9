"""The layers of a Transformer encoder, and a sentence classifier built from them.

Weights have torch's layout, so that both can start from the same numbers.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ramify.autograd.tensor import Tensor, dropout, embedding, gather, layernorm, logsumexp, relu, softmax, where
from ramify.autograd.values import Array

Generator = np.random.Generator


class Module:
    """Holds parameters: its attributes that are tensors, modules, or lists of either."""

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        for name, attribute in vars(self).items():
            members = enumerate(attribute) if isinstance(attribute, list) else [("", attribute)]
            for number, member in members:
                path = f"{prefix}{name}" + (f".{number}" if number != "" else "")
                if isinstance(member, Tensor):
                    yield path, member
                elif isinstance(member, Module):
                    yield from member.named_parameters(path + ".")

    def parameters(self) -> list[Tensor]:
        return [tensor for _, tensor in self.named_parameters()]


def uniform(generator: Generator, bound: float, *shape: int) -> Tensor:
    return Tensor(generator.uniform(-bound, bound, shape))


class Linear(Module):
    """x Wᵀ + b along the last axis."""

    def __init__(self, size: int, out: int, generator: Generator) -> None:
        self.weight = uniform(generator, 1 / math.sqrt(size), out, size)
        self.bias = uniform(generator, 1 / math.sqrt(size), out)

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.weight.transpose() + self.bias


class LayerNorm(Module):
    def __init__(self, size: int, eps: float = 1e-5) -> None:
        self.weight = Tensor(np.ones(size))
        self.bias = Tensor(np.zeros(size))
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        return layernorm(x, self.weight, self.bias, self.eps)


class Embedding(Module):
    def __init__(self, count: int, size: int, generator: Generator) -> None:
        self.weight = Tensor(generator.normal(0, 1, (count, size)))

    def __call__(self, ids: Any) -> Tensor:
        return embedding(self.weight, ids)


class Attention(Module):
    """Multi-head self-attention (Vaswani et al. 2017, section 3.2): heads of size d/H, with scores divided by √(d/H)."""

    def __init__(self, size: int, heads: int, generator: Generator) -> None:
        self.heads = heads
        self.query, self.key, self.value, self.out = (Linear(size, size, generator) for _ in range(4))

    def __call__(self, x: Tensor, mask: Array) -> Tensor:
        """`x`: [sentence, position, size]; `mask`: true at the positions that hold a word."""
        query, key, value = (self._split(part(x)) for part in (self.query, self.key, self.value))
        scores = query @ key.transpose(0, 1, 3, 2) / math.sqrt(query.shape[-1])
        weights = softmax(where(mask[:, None, None, :], scores, -np.inf))
        mixed = (weights @ value).transpose(0, 2, 1, 3)
        return self.out(mixed.reshape(*x.shape))

    def _split(self, x: Tensor) -> Tensor:
        sentences, positions, size = x.shape
        return x.reshape(sentences, positions, self.heads, size // self.heads).transpose(0, 2, 1, 3)


class EncoderLayer(Module):
    """A post-norm layer with relu (Vaswani et al. 2017, section 3.1)."""

    def __init__(self, size: int, heads: int, inner: int, generator: Generator) -> None:
        self.attention = Attention(size, heads, generator)
        self.attention_norm = LayerNorm(size)
        self.ffn_in, self.ffn_out = Linear(size, inner, generator), Linear(inner, size, generator)
        self.ffn_norm = LayerNorm(size)

    def __call__(self, x: Tensor, mask: Array, drop: "Dropout") -> Tensor:
        x = self.attention_norm(x + drop(self.attention(x, mask)))
        return self.ffn_norm(x + drop(self.ffn_out(relu(self.ffn_in(x)))))


class Dropout:
    """Zeroes elements with probability `p`, drawn from its own generator. Set `p` to 0 for evaluation."""

    def __init__(self, p: float, generator: Generator) -> None:
        self.p = p
        self.generator = generator

    def __call__(self, x: Tensor) -> Tensor:
        return dropout(x, self.generator.random(x.shape) >= self.p, self.p) if self.p else x


class SentenceClassifier(Module):
    """A Transformer encoder, the mean of its states, and a linear layer: one score per class for each sentence."""

    def __init__(
        self,
        words: int,
        classes: int,
        generator: Generator,
        *,
        size: int = 32,
        heads: int = 4,
        layers: int = 2,
        inner: int = 64,
        places: int = 64,
        p: float = 0.0,
    ) -> None:
        self.words = Embedding(words, size, generator)
        self.places = Embedding(places, size, generator)
        self.layers = [EncoderLayer(size, heads, inner, generator) for _ in range(layers)]
        self.head = Linear(size, classes, generator)
        self.drop = Dropout(p, generator)

    def __call__(self, ids: Array, lengths: Array) -> Tensor:
        """`ids`: [sentence, position]; ids past a sentence's length are ignored."""
        mask = np.arange(ids.shape[1]) < lengths[:, None]
        x = self.drop(self.words(ids) + self.places(np.arange(ids.shape[1])))
        for layer in self.layers:
            x = layer(x, mask, self.drop)
        mean = where(mask[:, :, None], x, 0.0).sum(axis=1) / lengths[:, None]
        return self.head(mean)


def cross_entropy(scores: Tensor, classes: Array) -> Tensor:
    """Mean of −log softmax(scores)[class], in nats."""
    chosen = gather(scores, classes[:, None])
    return (logsumexp(scores, keepdims=True) - chosen).mean()
