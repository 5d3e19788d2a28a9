"""Steps down a gradient."""

from collections.abc import Sequence

import numpy as np

from ramify.autograd.tensor import Tensor


class SGD:
    """x ← x − lr · v, where v ← momentum · v + z."""

    def __init__(self, parameters: Sequence[Tensor], lr: float, momentum: float = 0.0) -> None:
        self.parameters = list(parameters)
        self.lr = lr
        self.momentum = momentum
        self.velocities = [np.zeros_like(each.known) for each in self.parameters]

    def step(self) -> None:
        for number, each in enumerate(self.parameters):
            if each.gradient is not None:
                self.velocities[number] = self.momentum * self.velocities[number] + each.gradient
                each.value = each.known - self.lr * self.velocities[number]


class Adam:
    """Kingma & Ba 2015, algorithm 1, with both corrections of the bias."""

    def __init__(
        self, parameters: Sequence[Tensor], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ) -> None:
        self.parameters = list(parameters)
        self.lr = lr
        self.betas = betas
        self.eps = eps
        self.count = 0
        self.means = [np.zeros_like(each.known) for each in self.parameters]
        self.squares = [np.zeros_like(each.known) for each in self.parameters]

    def step(self) -> None:
        self.count += 1
        first, second = self.betas
        for number, each in enumerate(self.parameters):
            z = each.gradient
            if z is None:
                continue
            self.means[number] = first * self.means[number] + (1 - first) * z
            self.squares[number] = second * self.squares[number] + (1 - second) * z**2
            mean = self.means[number] / (1 - first**self.count)
            square = self.squares[number] / (1 - second**self.count)
            each.value = each.known - self.lr * mean / (np.sqrt(square) + self.eps)
