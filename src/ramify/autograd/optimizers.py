"""Steps down a gradient."""

from collections.abc import Sequence

import numpy as np

from ramify.autograd.tensor import Tensor


class Optimizer:
    def __init__(self, parameters: Sequence[Tensor], lr: float) -> None:
        self.parameters = list(parameters)
        self.lr = lr

    def zero_grad(self) -> None:
        """Forget the gradients: for parameters that the next loss may not hang on, and before gradients are accumulated."""
        for each in self.parameters:
            each.gradient = None


class SGD(Optimizer):
    """x ← x − lr · v, where v ← momentum · v + z."""

    def __init__(self, parameters: Sequence[Tensor], lr: float, momentum: float = 0.0) -> None:
        super().__init__(parameters, lr)
        self.momentum = momentum
        self.velocities = [np.zeros_like(each.known) for each in self.parameters]

    def step(self) -> None:
        for number, each in enumerate(self.parameters):
            if each.gradient is not None:
                self.velocities[number] = self.momentum * self.velocities[number] + each.gradient
                each.value = each.known - self.lr * self.velocities[number]


class Adam(Optimizer):
    """Kingma & Ba 2015, algorithm 1, with both corrections of the bias."""

    def __init__(
        self, parameters: Sequence[Tensor], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ) -> None:
        super().__init__(parameters, lr)
        self.betas = betas
        self.eps = eps
        self.counts = [0] * len(self.parameters)
        self.means = [np.zeros_like(each.known) for each in self.parameters]
        self.squares = [np.zeros_like(each.known) for each in self.parameters]

    def step(self) -> None:
        first, second = self.betas
        for number, each in enumerate(self.parameters):
            z = each.gradient
            if z is None:
                continue
            self.counts[number] += 1
            self.means[number] = first * self.means[number] + (1 - first) * z
            self.squares[number] = second * self.squares[number] + (1 - second) * z**2
            mean = self.means[number] / (1 - first ** self.counts[number])
            square = self.squares[number] / (1 - second ** self.counts[number])
            each.value = each.known - self.lr * mean / (np.sqrt(square) + self.eps)
