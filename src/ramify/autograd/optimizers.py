"""Gradient descent: SGD with momentum, and Adam."""

from collections.abc import Sequence

import numpy as np

from ramify.autograd.tensor import Tensor


class Optimizer:
    def __init__(self, parameters: Sequence[Tensor], lr: float) -> None:
        self.parameters = list(parameters)
        self.lr = lr

    def zero_grad(self) -> None:
        """Reset the gradients: before accumulation, and where the next loss may not depend on every parameter."""
        for parameter in self.parameters:
            parameter.gradient = None


class SGD(Optimizer):
    """x ← x − lr · v, where v ← momentum · v + z."""

    def __init__(self, parameters: Sequence[Tensor], lr: float, momentum: float = 0.0) -> None:
        super().__init__(parameters, lr)
        self.momentum = momentum
        self.velocities = [np.zeros_like(parameter.known) for parameter in self.parameters]

    def step(self) -> None:
        for number, parameter in enumerate(self.parameters):
            if parameter.gradient is not None:
                self.velocities[number] = self.momentum * self.velocities[number] + parameter.gradient
                parameter.value = parameter.known - self.lr * self.velocities[number]


class Adam(Optimizer):
    """Kingma & Ba 2015, algorithm 1, with both bias corrections."""

    def __init__(
        self, parameters: Sequence[Tensor], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ) -> None:
        super().__init__(parameters, lr)
        self.betas = betas
        self.eps = eps
        self.counts = [0] * len(self.parameters)
        self.means = [np.zeros_like(parameter.known) for parameter in self.parameters]
        self.squares = [np.zeros_like(parameter.known) for parameter in self.parameters]

    def step(self) -> None:
        first, second = self.betas
        for number, parameter in enumerate(self.parameters):
            z = parameter.gradient
            if z is None:
                continue
            self.counts[number] += 1
            self.means[number] = first * self.means[number] + (1 - first) * z
            self.squares[number] = second * self.squares[number] + (1 - second) * z**2
            mean = self.means[number] / (1 - first ** self.counts[number])
            square = self.squares[number] / (1 - second ** self.counts[number])
            parameter.value = parameter.known - self.lr * mean / (np.sqrt(square) + self.eps)
