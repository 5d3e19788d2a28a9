"""The published optimizer of BERT (`AdamWeightDecayOptimizer`)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class BertAdam(torch.optim.Optimizer):
    """Adam with decoupled weight decay, and without correction of its moments, which start at zero."""

    def __init__(self, params: Any, lr: float, betas: tuple[float, float], eps: float, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        mean, square, (beta1, beta2) = state["exp_avg"], state["exp_avg_sq"], group["betas"]
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.addcdiv_(mean, square.sqrt().add_(group["eps"]), value=-group["lr"])
