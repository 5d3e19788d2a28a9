"""Optimizers: one per phase, with its parameters, its learning rates, and the moments that a checkpoint keeps."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from ramify.tensors import check_fit
from ramify.training.config import TrainConfig, parameters_by_phase


def schedule(config: TrainConfig, share: float, epoch: int = 0) -> float:
    """The factor of the learning rate after this share of the stage and this many epochs."""
    if share < config.warmup:
        return min(1.0, max(share, 1e-4) / config.warmup)
    rest = (share - config.warmup) / max(1e-9, 1 - config.warmup)
    if config.schedule == "constant":
        return 1.0
    if config.schedule == "epochs":
        return 1 / (1 + config.epoch_decay * epoch)
    return 1 - rest if config.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * rest))


def make_optimizer(config: TrainConfig, parameters: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """An optimizer whose groups share a weight decay and a `scale` of the learning rate."""
    groups: dict[tuple[float, float], list[tuple[str, nn.Parameter]]] = {}
    for name, parameter in parameters:
        # Vectors (biases, LayerNorms) are not decayed.
        decay = config.weight_decay if parameter.ndim > 1 else 0.0
        scale = math.prod(factor for pattern, factor in config.lr_scale if re.search(pattern, name))
        groups.setdefault((decay, scale), []).append((name, parameter))
    settings = [{"params": each, "weight_decay": decay, "scale": scale} for (decay, scale), each in groups.items()]
    if config.optimizer == "sgd":
        return torch.optim.SGD(settings, lr=config.lr, fused=True)
    return torch.optim.AdamW(settings, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)


class PhaseOptimizer:
    """The optimizer of one phase: it updates the phase's parameters, and nothing else."""

    def __init__(self, name: str, number: int, parameters: Mapping[str, nn.Parameter], config: TrainConfig, every: int) -> None:
        self.name = name
        self.number = number
        """The phase's index among those of the task."""
        self.parameters = parameters
        self.config = config
        self.every = every
        self.optimizer = make_optimizer(config, list(parameters.items()))

    def set_rate(self, share: float, epoch: int) -> None:
        """Set the learning rate that holds after this share of the stage and this many epochs."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr * group["scale"] * schedule(self.config, share, epoch)

    @property
    def rate(self) -> float:
        return self.optimizer.param_groups[0]["lr"]

    def clip(self) -> Tensor:
        """Clip the gradient of the phase's parameters, and return its norm."""
        return nn.utils.clip_grad_norm_(self.parameters.values(), self.config.clip or math.inf)

    def moments(self) -> dict[str, Tensor]:
        """The optimizer's state of each parameter that it has updated."""
        return {
            f"{self.name}/{name}/{moment}": value
            for name, parameter in self.parameters.items()
            for moment, value in self.optimizer.state.get(parameter, {}).items()
        }

    def expected(self, name: str) -> dict[str, Tensor]:
        """Tensors with the names and shapes of the moments that the optimizer keeps of a parameter."""
        if isinstance(self.optimizer, torch.optim.SGD):
            return {}
        parameter = self.parameters[name]
        return {f"{self.name}/{name}/{moment}": parameter for moment in ("exp_avg", "exp_avg_sq")} | {
            f"{self.name}/{name}/step": torch.zeros(())
        }

    def load(self, moments: Mapping[str, Tensor]) -> None:
        """Load the moments of the parameters that have any."""
        saved = self.optimizer.state_dict()
        for group in saved["param_groups"]:
            for name, index in zip(group["param_names"], group["params"], strict=True):
                found = {key: moments[key] for key in self.expected(name) if key in moments}
                if found:
                    saved["state"][index] = {key.rpartition("/")[2]: value for key, value in found.items()}
        self.optimizer.load_state_dict(saved)


def phase_optimizers(
    config: TrainConfig, phases: Sequence[str], parameters: Mapping[str, nn.Parameter]
) -> list[PhaseOptimizer]:
    """The optimizers of a stage, in the order of the task's phases. Phases that learn nothing are left out."""
    return [
        PhaseOptimizer(
            phase,
            phases.index(phase),
            {name: parameters[name] for name in own},
            config.of_phase(phase),
            config.phase(phase).every,
        )
        for phase, own in parameters_by_phase(config, phases, list(parameters)).items()
    ]


def learn_only(phase: PhaseOptimizer, phases: Sequence[PhaseOptimizer]) -> None:
    """Let only the parameters of one phase take gradients.

    Gradients still flow through the other phases' layers to earlier layers, but the gradients of the other phases' parameters
    are not computed. Clearing these gradients afterwards would give the same updates at a higher cost.
    """
    for other in phases:
        for parameter in other.parameters.values():
            parameter.requires_grad_(other is phase)


def load_moments(phases: Sequence[PhaseOptimizer], moments: Mapping[str, Tensor], where: str | Path) -> None:
    """Load the moments of all phases. Raises if they belong to other phases or parameters."""
    seen = {key.rpartition("/")[0] for key in moments}
    expected: dict[str, Tensor] = {}
    for phase in phases:
        for name in phase.parameters:
            if f"{phase.name}/{name}" in seen:
                expected |= phase.expected(name)
    check_fit(expected, moments, where)
    for phase in phases:
        phase.load(moments)
