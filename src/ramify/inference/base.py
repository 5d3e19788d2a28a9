"""Pipelines: models behind methods that take trees, texts and messages, never tensors."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import torch
from torch import nn

from ramify.errors import CannotError
from ramify.tokenizer import RowLayout, Tokenizer

TOKENS = 16_384
"""Number of tokens computed at once without gradients."""


class Pipeline(ABC):
    """A model ready for use. `ramify.load` returns a pipeline, and `ramify.save` writes one."""

    verbs: ClassVar[tuple[str, ...]]
    """Names of the methods that use the model."""
    usage: ClassVar[tuple[str, ...]]
    """Lines of Python for the model card, in which `model` is the pipeline."""
    backbone: Any
    """An `AnyBackbone`; each kind of pipeline narrows the type."""
    tokenizer: Tokenizer
    input: Any
    """Input settings of the model, as in training."""
    kind: str | None = None
    """The name of the kind of run that makes and evaluates such a model; None: no run made it."""

    @property
    @abstractmethod
    def module(self) -> nn.Module:
        """The module that holds all weights: the trained task, or the backbone alone."""

    @abstractmethod
    def parts(self) -> dict[str, Any]:
        """The frozen settings that are saved beside the model's own, by name."""

    @property
    def layout(self) -> RowLayout:
        """The special tokens around a text that the model reads."""
        return self.tokenizer.layout(self.input.layout, self.backbone.config.vocab_size)

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
