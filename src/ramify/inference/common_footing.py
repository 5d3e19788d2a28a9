"""A measure that compares language models of all kinds: −log p(one token | all others), per byte of text.

All models predict the same tokens of the same windows. Objectives differ in their number of targets and their conditions, so
their own losses do not compare.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramify.batching.forest import Ints
from ramify.batching.running_text import RunningText
from ramify.errors import RamifyError
from ramify.tokenizer import Tokenizer

POSITIONS = 2_000
"""Number of predicted tokens."""

WINDOW = 126
"""Length of a window of text in tokens: a row of 128 with two special tokens."""

SEED = 2019

LogProbabilities = Callable[[Ints, Ints], NDArray[np.float64]]
"""Takes rows of ids `[row, window]`, without special tokens, and one position in each. Returns log p of the token there, given
all other tokens of its row."""


@dataclass(frozen=True)
class CommonFooting:
    """Tokens to predict: row i of `rows` is a window of text, of which the token at `positions[i]` is predicted."""

    rows: Ints
    """[position, window] token ids, without special tokens."""
    positions: Ints
    num_bytes: Ints
    """Number of bytes of each predicted token's text."""

    @classmethod
    def of(
        cls, text: RunningText, tokenizer: Tokenizer, *, window: int = WINDOW, count: int = POSITIONS, seed: int = SEED
    ) -> "CommonFooting":
        """Draw positions of a split without repetition, independently of any model; all of them if there are fewer.

        The text is cut into windows; a shorter text is one window, and the rest after the last whole window is left out.
        Special tokens, which have no text, are read but not predicted. Raises `RamifyError` if no token is left.
        """
        window = min(window, text.num_tokens)
        usable = text.num_tokens // window * window
        sizes = tokenizer.piece_bytes[text.ids[:usable].astype(np.int64)]
        places = np.flatnonzero(sizes > 0)
        if not len(places):
            raise RamifyError("the split holds no token with a text to predict. Choose another split or another tokenizer.")
        random = np.random.Generator(np.random.Philox(key=seed))
        chosen = np.sort(random.choice(places, min(count, len(places)), replace=False))
        windows = text.ids[:usable].reshape(-1, window)
        return cls(windows[chosen // window].astype(np.int64), chosen % window, sizes[chosen])

    def measure(self, log_probabilities: LogProbabilities, rows: int = 128) -> "FootingScores":
        """Score a model, `rows` windows at a time."""
        found = [
            log_probabilities(self.rows[start : start + rows], self.positions[start : start + rows])
            for start in range(0, len(self.positions), rows)
        ]
        return FootingScores(-np.concatenate(found).astype(np.float64), self.num_bytes, self.rows.shape[1])


@dataclass(frozen=True)
class FootingScores:
    """The loss of every predicted token in nats, and the bytes of its text."""

    nats: NDArray[np.float64]
    num_bytes: Ints
    window: int
    """Length of the windows in tokens."""

    @property
    def per_byte(self) -> float:
        return float(self.nats.sum() / self.num_bytes.sum())

    @property
    def per_token(self) -> float:
        return float(self.nats.mean())

    def to_json(self) -> dict[str, Any]:
        return {
            "per_byte": self.per_byte,
            "per_token": self.per_token,
            "positions": len(self.nats),
            "window": self.window,
        }

    def line(self) -> str:
        """The scores as a line for a terminal."""
        return (
            f"common footing: {self.per_byte:.4f} nats per byte, {self.per_token:.4f} per token: one token given all others, "
            f"{len(self.nats):,} in windows of {self.window} tokens"
        )
