"""The common part of linear models of words, which are fitted in closed form: their states are scores of labels."""

from abc import ABC
from typing import Any

from ramify.models.base import AnyBackbone, Encodes, Read
from ramify.nn.blocks import LayerPrefixes


class LinearScores(AnyBackbone, Encodes, ABC):
    """A linear model with a row of `weight` per feature and a column per score. It reads each row alone."""

    config: Any
    """Its `dim` is the number of scores."""

    @property
    def out_dim(self) -> int:
        return self.config.dim

    @property
    def reads_context(self) -> bool:
        return False

    @property
    def max_tokens(self) -> int:
        return self.config.max_tokens

    @property
    def vector_dim(self) -> int:
        return self.config.dim

    @property
    def vector_read(self) -> Read:
        return "all"

    def layer_dims(self, *, context: bool = False) -> tuple[int, ...]:
        return (self.config.dim,)

    def layer_prefixes(self, *, context: bool = False) -> LayerPrefixes:
        return (("weight",),)
