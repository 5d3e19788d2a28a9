"""A measure that compares language models of all kinds: −log p(one token | other tokens of its window), per byte of text.

All models predict the same tokens of the same windows. Objectives differ in their number of targets and their conditions, so
their own losses do not compare. A model of both sides of a word is given all others. One that reads in one direction is given
those before, so it compares with its kind; of one with two directions that know nothing of each other, both predict the token,
and their losses are averaged.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ramify.batching.forest import Ints
from ramify.batching.running_text import RunningText
from ramify.errors import RamifyError, counted
from ramify.tokenizer import Tokenizer

POSITIONS = 2_000
"""Number of predicted tokens."""

WINDOW = 126
"""Length of a window of text in tokens: a row of 128 with two special tokens."""

SEED = 2019

Given = Literal["all others", "before", "before, or after"]
"""The other tokens that the model is given: all, those before, or those before and, in a second prediction, those after."""

GIVEN: dict[Given, str] = {
    "all others": "one token given all others",
    "before": "one token given those before it",
    "before, or after": "one token given those before it, and given those after it",
}

LogProbabilities = Callable[[Ints, Ints], NDArray[np.float64]]
"""Takes rows of ids `[row, window]`, without special tokens, and one position in each. Returns log p of the token there, given
other tokens of its row."""


@dataclass(frozen=True)
class CommonFooting:
    """Tokens to predict: row i of `rows` is a window of text, of which the token at `positions[i]` is predicted."""

    rows: Ints
    """[position, window] token ids, without special tokens."""
    positions: Ints
    num_bytes: Ints
    """Number of bytes of each predicted token's text."""
    left_out: int
    """Number of windows that hold unknown tokens, whose bytes are not known. Nothing in them is predicted."""

    @classmethod
    def of(
        cls, text: RunningText, tokenizer: Tokenizer, *, window: int = WINDOW, count: int = POSITIONS, seed: int = SEED
    ) -> "CommonFooting":
        """Draw positions of a split without repetition, independently of any model; all of them if there are fewer.

        The text is cut into windows; a shorter text is one window, and the rest after the last whole window is left out.
        Special tokens, which have no text, are read but not predicted. Raises `RamifyError` if the text holds no other.
        """
        window = min(window, text.num_tokens)
        usable = text.num_tokens // window * window
        sizes = tokenizer.piece_bytes[text.ids[:usable].astype(np.int64)]
        places = np.flatnonzero(sizes > 0)
        if not len(places):
            raise RamifyError("the split holds no token with a text to predict. Choose another split or another tokenizer.")
        windows = text.ids[:usable].reshape(-1, window)
        known = np.array([not tokenizer.unknown(row) for row in windows])
        places = places[known[places // window]]
        random = np.random.Generator(np.random.Philox(key=seed))
        chosen = np.sort(random.choice(places, min(count, len(places)), replace=False))
        left_out = int((~known).sum())
        return cls(windows[chosen // window].astype(np.int64), chosen % window, sizes[chosen], left_out)

    def measure(self, log_probabilities: LogProbabilities, rows: int = 128, *, given: Given = "all others") -> "FootingScores":
        """Score a model, `rows` windows at a time."""
        parts = [
            log_probabilities(self.rows[start : start + rows], self.positions[start : start + rows])
            for start in range(0, len(self.positions), rows)
        ]
        nats = -np.concatenate([np.zeros(0), *parts]).astype(np.float64)
        return FootingScores(nats, self.num_bytes, self.rows.shape[1], self.left_out, given)


@dataclass(frozen=True)
class FootingScores:
    """The loss of every predicted token in nats, and the bytes of its text."""

    nats: NDArray[np.float64]
    num_bytes: Ints
    window: int
    """Length of the windows in tokens."""
    left_out: int
    """Number of windows that were left out because of unknown tokens."""
    given: Given = "all others"

    @property
    def per_byte(self) -> float | None:
        """The mean in nats; None if all windows were left out."""
        return float(self.nats.sum() / self.num_bytes.sum()) if len(self.nats) else None

    @property
    def per_token(self) -> float | None:
        """The mean in nats; None if all windows were left out."""
        return float(self.nats.mean()) if len(self.nats) else None

    def to_json(self) -> dict[str, Any]:
        return {
            "per_byte": self.per_byte,
            "per_token": self.per_token,
            "positions": len(self.nats),
            "window": self.window,
            "windows_with_unknown_tokens": self.left_out,
            # Left out where nobody could ask.
            **({} if self.given == "all others" else {"given": self.given}),
        }

    def line(self) -> str:
        """The scores as a line for a terminal."""
        without = f"; {counted(self.left_out, 'window')} with unknown tokens left out" if self.left_out else ""
        if not len(self.nats):
            return f"common footing: no score{without}"
        return (
            f"common footing: {self.per_byte:.4f} nats per byte, {self.per_token:.4f} per token: {GIVEN[self.given]}, "
            f"{len(self.nats):,} in windows of {self.window} tokens{without}"
        )
