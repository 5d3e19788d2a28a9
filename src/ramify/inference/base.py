"""A pipeline answers what users ask of a model. It takes trees, text and messages, never tensors."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import torch
from torch import nn

from ramify.errors import CannotError
from ramify.tokenizer import Tokenizer

TOKENS = 16_384
"""Tokens computed at once where no gradient is needed."""


class Pipeline(ABC):
    """A model ready for use. `ramify.load` returns one, `ramify.save` writes one."""

    verbs: ClassVar[tuple[str, ...]]
    """The methods that answer a question."""
    usage: ClassVar[tuple[str, ...]]
    """Lines of Python for the model card, in which `model` is the pipeline."""
    backbone: Any
    """An `AnyBackbone`; each kind of pipeline says which."""
    tokenizer: Tokenizer
    input: Any
    """The way the model reads its inputs, as in training."""

    @property
    @abstractmethod
    def module(self) -> nn.Module:
        """Everything with weights: the trained task, or the backbone alone."""

    @abstractmethod
    def parts(self) -> dict[str, Any]:
        """The frozen settings that are saved beside the model's own, by name."""

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    def to(self, device: torch.device | str) -> Self:
        """Move the weights, and return the pipeline."""
        self.module.to(device)
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise CannotError(f"this {type(self).__name__} has no {name}; it can {', '.join(self.verbs)}.")
