"""Optimizers: which parameters learn, at what rate, and the moments that a checkpoint keeps of them."""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ramify.tensors import check_fit
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


def moments(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What the optimizer keeps of each parameter, as `parameter/moment`; nothing of those that it has not updated yet."""
    saved = optimizer.state_dict()
    return {
        f"{name}/{moment}": value
        for group in saved["param_groups"]
        for name, index in zip(group["param_names"], group["params"], strict=True)
        for moment, value in saved["state"].get(index, {}).items()
    }


def load_moments(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], where: str | Path) -> None:
    """Take over moments; raises where they are those of other parameters."""
    seen = {key.rpartition("/")[0] for key in tensors}
    expected: dict[str, Tensor] = {}
    state: dict[int, dict[str, Tensor]] = {}
    saved = optimizer.state_dict()
    named = {name: parameter for group in optimizer.param_groups for name, parameter in _named(group)}
    for group in saved["param_groups"]:
        for name, index in zip(group["param_names"], group["params"], strict=True):
            if name in seen:
                kept = _kept(optimizer, named[name])
                expected |= {f"{name}/{moment}": like for moment, like in kept.items()}
                state[index] = {moment: tensors.get(f"{name}/{moment}", like) for moment, like in kept.items()}
    check_fit(expected, tensors, where)
    optimizer.load_state_dict(saved | {"state": state})


def _named(group: dict[str, Any]) -> Iterator[tuple[str, nn.Parameter]]:
    return zip(group["param_names"], group["params"], strict=True)


def _kept(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> dict[str, Tensor]:
    """The moments that the optimizer keeps of a parameter, by example."""
    if isinstance(optimizer, torch.optim.AdamW):
        return {"step": torch.zeros(()), "exp_avg": parameter, "exp_avg_sq": parameter}
    return {}
