"""Generators against discriminators: the losses of both players, and the phases in which they learn (Goodfellow et al. 2014).

A task with such players names its modules `discriminators` and `generators`, and describes each pair of an update by a `Match`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.nn.modes import without_gradients
from ramify.tasks.base import Phase
from ramify.tasks.constants import Constant, Known

DISCRIMINATOR, GENERATOR = "discriminator", "generator"

DISCRIMINATORS = Phase(DISCRIMINATOR, ("discriminators",))
GENERATORS = Phase(GENERATOR, ("generators",))

GeneratorLoss = Literal["non_saturating", "minimax"]
"""The loss of a generator, for the probability p that a discriminator gives a generated item to be real. minimax: log (1 - p),
the negative of the discriminator's loss. non_saturating: -log p, whose gradient does not vanish where p is near 0."""


def told_apart(real: Float[Tensor, " row"], generated: Float[Tensor, " other"]) -> Float[Tensor, ""]:
    """The sum of the binary cross-entropies of a discriminator's log-odds that items are real."""
    return F.softplus(-real).sum() + F.softplus(generated).sum()


def fooled(generated: Float[Tensor, " row"], loss: GeneratorLoss) -> Float[Tensor, ""]:
    """The sum of a generator's losses, from a discriminator's log-odds that its items are real."""
    return F.softplus(-generated).sum() if loss == "non_saturating" else -F.softplus(generated).sum()


@dataclass(frozen=True)
class Match:
    """One pair of players in an update. Both phases read the same real items and the same noise."""

    judge: nn.Module
    """The log-odds that items are real."""
    generate: Callable[[], Tensor]
    """Makes the generated items as the judge reads them. The graph leads to the generator alone."""
    real: Callable[[], Tensor]
    """Makes the real items likewise, from vectors that are known."""
    number: int
    """The number of real items, and of generated ones."""
    loss: GeneratorLoss

    def count(self, phase: str) -> float:
        """The number of terms in the sum of a phase's loss."""
        return float(self.number * (2 if phase == DISCRIMINATOR else 1))

    def value(self, phase: str) -> Float[Tensor, ""]:
        """The sum of a phase's loss. Only parameters of the phase's own player take a gradient."""
        if phase == DISCRIMINATOR:
            with torch.no_grad():
                real, generated = self.real(), self.generate()
            return told_apart(self.judge(real), self.judge(generated))
        with without_gradients(self.judge):
            return fooled(self.judge(self.generate()), self.loss)

    def at_prior(self, phase: str) -> Constant:
        """The sum of a phase's loss against a discriminator that calls every item real with probability 1/2: the best constant
        prediction of the discriminator, and the loss of a generator whose items nothing tells from real ones."""
        sign = -1 if phase == GENERATOR and self.loss == "minimax" else 1
        return Known(sign * math.log(2) * self.count(phase))


def losses_of(matches: Mapping[str, Match], divisors: Mapping[str, float], phase: str) -> dict[str, Float[Tensor, ""]]:
    """The losses of a phase of all matches, by the names of its divisors, each divided."""
    named = ((loss_name(phase, name), match) for name, match in matches.items())
    return {name: match.value(phase) / divisors[name] for name, match in named if match.number}


def loss_name(phase: str, name: str) -> str:
    """The name of a phase's loss in the match of this name."""
    return f"{phase}_{name}"
