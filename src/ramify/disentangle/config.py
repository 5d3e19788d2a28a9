"""How a model reads a chat."""

from dataclasses import dataclass
from typing import Literal

from ramify.config import check_fields
from ramify.errors import RamifyError


@dataclass(frozen=True)
class History:
    """How a chat is read: part of a trained model, so that it is used as it was trained."""

    window: int = 100
    """Messages back that one may answer."""
    causal: bool = False
    """Look at nothing that is said later, as a live channel needs it."""
    faithful: bool = False
    """With the quirks of the features' published code (see `Hearing`)."""

    texts: Literal["words", "pieces"] = "words"
    """Messages as whole words, learned from the training logs, or as the word pieces of a checkpoint's tokenizer."""
    tokens: Literal["own", "official"] = "own"
    """Words as Ramify tells them apart, or as the data says (built with `--option tokens=beside`; texts = words)."""
    author_in_text: bool = True
    """Put the author's name before the text (texts = pieces)."""
    max_tokens: int = 64
    """Longest message, with CLS and SEP (texts = pieces)."""

    def __post_init__(self) -> None:
        check_fields(self, "input.")
        if self.window < 1:
            raise RamifyError(f"input.window must be at least 1, not {self.window}.")
        if self.max_tokens < 3:
            raise RamifyError(f"input.max_tokens counts CLS and SEP: it must be at least 3, not {self.max_tokens}.")
