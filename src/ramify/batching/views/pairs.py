"""Pairs of texts of a data set: a text and the text that answers or translates it."""

from dataclasses import dataclass

from ramify.config import check_fields
from ramify.errors import RamifyError


@dataclass(frozen=True)
class PairInput:
    """The tokens of the texts that a generative model reads."""

    max_tokens: int = 128
    """Tokens of the longest text that is predicted, its end included."""
    max_source_tokens: int = 128
    """Tokens of the longest source, its end included."""

    def __post_init__(self) -> None:
        check_fields(self, "input.")
        for name in ("max_tokens", "max_source_tokens"):
            if getattr(self, name) < 2:
                raise RamifyError(f"input.{name} must be at least 2, a token and the end, but is {getattr(self, name)}.")
