"""The parts of batches, which are built on the host and moved once."""

from abc import ABC, abstractmethod
from dataclasses import fields, replace
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

from ramify.nn.blocks import OutputPositions
from ramify.nn.ragged import Rows

Part = TypeVar("Part")


class Movable(ABC):
    """A part of a batch that holds tensors."""

    @abstractmethod
    def to(self, device: torch.device | str) -> Self:
        """The same part on another device (see `moved`)."""


def moved(part: Part, device: torch.device | str) -> Part:
    """A copy of a dataclass whose tensors are on a device. Nobody waits for it."""
    value: Any = part
    return replace(value, **{field.name: _moved(getattr(value, field.name), device) for field in fields(value)})


def _moved(value: Any, device: torch.device | str) -> Any:
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    return value.to(device) if isinstance(value, Rows | OutputPositions | Movable) else value
