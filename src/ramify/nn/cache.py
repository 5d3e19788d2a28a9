"""The contract of caches: what a decoder has computed of the tokens that it has read, one sequence per row."""

from abc import ABC, abstractmethod
from typing import Self

from jaxtyping import Int
from torch import Tensor


class Cache(ABC):
    """The keys and values, recurrent states or memory of sequences. It owns positions, and a length per sequence."""

    @property
    @abstractmethod
    def lengths(self) -> Int[Tensor, " sequence"]:
        """The number of tokens that each sequence has read."""

    @abstractmethod
    def reorder(self, index: Int[Tensor, " kept"]) -> Self:
        """The cache of other sequences: `index` may repeat sequences (beams) and leave some out (ended ones)."""
