"""Optimizers: which parameters learn, at what rate, and the moments that a checkpoint keeps of them."""

import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ramify.training.config import TrainConfig


def schedule(config: TrainConfig, share: float, epoch: int = 0) -> float:
    """The factor of the learning rate when this share of the stage, and so many epochs, are done."""
    if share < config.warmup:
        return min(1.0, max(share, 1e-4) / config.warmup)
    rest = (share - config.warmup) / max(1e-9, 1 - config.warmup)
    if config.schedule == "constant":
        return 1.0
    if config.schedule == "epochs":
        return 1 / (1 + config.epoch_decay * epoch)
    return 1 - rest if config.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * rest))


def make_optimizer(config: TrainConfig, parameters: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in parameters:
        # Vectors (biases, LayerNorms) are not decayed.
        decay = config.weight_decay if parameter.ndim > 1 else 0.0
        scale = math.prod(factor for pattern, factor in config.lr_scale if re.search(pattern, name))
        groups.setdefault((decay, scale), []).append(parameter)
    settings = [{"params": each, "weight_decay": decay, "scale": scale} for (decay, scale), each in groups.items()]
    if config.optimizer == "sgd":
        return torch.optim.SGD(settings, lr=config.lr, fused=True)
    return torch.optim.AdamW(settings, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)


def moments(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimizer.state_dict()["state"]
    return {f"{index}.{name}": value for index, entry in state.items() for name, value in entry.items()}


def load_moments(optimizer: torch.optim.Optimizer, saved: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in saved.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
