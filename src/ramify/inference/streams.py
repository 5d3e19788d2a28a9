"""The common part of the pipelines of models of running text."""

from abc import ABC
from typing import Any

from torch import nn

from ramify.batching.views.streams import StreamInput
from ramify.inference.base import Pipeline
from ramify.models.base import StreamBackbone


class StreamPipeline(Pipeline, ABC):
    """A trained model of running text."""

    task: Any
    """A `StreamTask`; each pipeline narrows the type."""
    backbone: StreamBackbone
    input: StreamInput

    @property
    def module(self) -> nn.Module:
        return self.task

    def parts(self) -> dict[str, Any]:
        return {"task": self.task.config, "input": self.input}
