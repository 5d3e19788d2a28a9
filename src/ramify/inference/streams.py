"""The common part of the pipelines of models of running text."""

from abc import ABC
from typing import Any

from ramify.batching.views.streams import StreamInput
from ramify.inference.lone_texts import LoneTextPipeline
from ramify.models.base import StreamBackbone


class StreamPipeline(LoneTextPipeline, ABC):
    """A trained model of running text. It embeds texts, each alone, without separators or memory."""

    task: Any
    """A `StreamTask`; each pipeline narrows the type."""
    backbone: StreamBackbone
    input: StreamInput

    @property
    def max_tokens(self) -> int:
        return self.input.longest

    @property
    def room(self) -> int:
        return self.input.room(self.tokenizer)
