"""Rates and unfreezing by layer (Howard and Ruder 2018, sections 3.2 and 3.3): a task's layers, from its head down."""

import math
import re
from dataclasses import replace
from typing import Any

from ramify.errors import RamifyError, counted
from ramify.models.base import BACKBONE, Encodes
from ramify.nn.blocks import LayerPrefixes, under
from ramify.tasks.base import Task, belongs
from ramify.training.config import TrainConfig


def layers_of(task: Task[Any]) -> LayerPrefixes:
    """The beginnings of the names of the parameters of each layer of a task's backbone, embedding first. All other parameters
    belong to the head. Layers without parameters of their own that learn are left out: ALBERT's repeated ones, frozen ones."""
    if not isinstance(task.backbone, Encodes):
        return ()
    layers = under(BACKBONE, task.backbone.layer_prefixes(context=task.context))
    names = [name for name, _ in task.named_parameters() if not belongs(name, task.frozen)]
    return tuple(layer for layer in layers if any(name.startswith(layer) for name in names))


def check_layers(config: TrainConfig, task: Task[Any]) -> None:
    """Raise `RamifyError` if settings by layer apply to a task without layers."""
    given = [("layer_decay", config.layer_decay, "null")] * (config.layer_decay is not None)
    given += [("unfreeze", config.unfreeze, "all")] * (config.unfreeze != "all")
    for name, value, neutral in given:
        if not layers_of(task):
            raise RamifyError(
                f"train.{name}={value} needs layers that learn, but the {type(task.backbone).__name__} of this "
                f"{type(task).__name__} has none. Set train.{name}={neutral}."
            )


def with_layer_rates(config: TrainConfig, task: Task[Any]) -> TrainConfig:
    """The settings with a factor of the learning rate for each layer, in place of `layer_decay`."""
    if config.layer_decay is None:
        return config
    below = enumerate(reversed(layers_of(task)), start=1)
    scales = [(f"^(?:{'|'.join(map(re.escape, layer))})", config.layer_decay**depth) for depth, layer in below]
    return replace(config, layer_decay=None, lr_scale=(*config.lr_scale, *scales))


def unfrozen_in_turn(config: TrainConfig, task: Task[Any]) -> LayerPrefixes:
    """The layers that begin to learn one after the other, embedding first; none if all learn from the start."""
    return layers_of(task) if config.unfreeze == "gradual" else ()


def held_layers(layers: LayerPrefixes, epochs: int) -> tuple[str, ...]:
    """The beginnings of the names of the parameters that do not learn yet, after so many whole epochs."""
    return tuple(prefix for layer in layers[: max(0, len(layers) - epochs)] for prefix in layer)


def never_unfrozen(config: TrainConfig, layers: LayerPrefixes) -> str:
    """A warning that a stage is too short for all layers; empty if it is not, or is not measured in epochs."""
    if not layers or config.epochs is None or (held := len(layers) + 1 - math.ceil(config.epochs)) <= 0:
        return ""
    return (
        f"train.unfreeze=gradual lets one more layer learn in each epoch, so train.epochs={config.epochs:g} never reaches the "
        f"lowest {counted(held, 'layer')} of {len(layers)}. Set train.epochs={len(layers) + 1} or more to let all learn."
    )
