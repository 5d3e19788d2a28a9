"""Optimizers: the table from which settings choose, and the groups of parameters that share a weight decay and a rate."""

import math
import re
from abc import ABC
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ramify.training.bert_adam import BertAdam

Groups = list[dict[str, Any]]


class OptimizerSettings(ABC):
    """The settings that optimizers read."""

    optimizer: str
    lr: float
    lr_scale: tuple[tuple[str, float], ...]
    weight_decay: float
    undecayed: tuple[str, ...]
    betas: tuple[float, float]
    bias_correction: bool
    rho: float
    accumulator_start: float
    eps: float


def _adamw(groups: Groups, config: OptimizerSettings) -> torch.optim.Optimizer:
    if not config.bias_correction:
        return BertAdam(groups, lr=config.lr, betas=config.betas, eps=config.eps)
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)


def _adam(groups: Groups, config: OptimizerSettings) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)


def _sgd(groups: Groups, config: OptimizerSettings) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=config.lr, fused=True)


def _adagrad(groups: Groups, config: OptimizerSettings) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(groups, lr=config.lr, eps=config.eps, initial_accumulator_value=config.accumulator_start)


def _adadelta(groups: Groups, config: OptimizerSettings) -> torch.optim.Optimizer:
    return torch.optim.Adadelta(groups, lr=config.lr, rho=config.rho, eps=config.eps)


OPTIMIZERS: dict[str, Callable[[Groups, OptimizerSettings], torch.optim.Optimizer]] = {
    "adamw": _adamw,
    "adam": _adam,
    "sgd": _sgd,
    "adagrad": _adagrad,
    "adadelta": _adadelta,
}
"""An optimizer of groups of parameters, each with a weight decay, given the settings."""


def make_optimizer(config: OptimizerSettings, parameters: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """An optimizer whose groups share a weight decay and a `scale` of the learning rate."""
    groups: dict[tuple[float, float], list[tuple[str, nn.Parameter]]] = {}
    for name, parameter in parameters:
        # Vectors (biases, LayerNorms) are not decayed.
        is_decayed = parameter.ndim > 1 and not any(re.search(pattern, name) for pattern in config.undecayed)
        decay = config.weight_decay if is_decayed else 0.0
        scale = math.prod(factor for pattern, factor in config.lr_scale if re.search(pattern, name))
        groups.setdefault((decay, scale), []).append((name, parameter))
    settings = [{"params": group, "weight_decay": decay, "scale": scale} for (decay, scale), group in groups.items()]
    return OPTIMIZERS[config.optimizer](settings, config)
