"""The variety of texts: n-grams that differ, and the likeness of texts to each other."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

TokenT = TypeVar("TokenT")


def distinct(texts: Sequence[Sequence[TokenT]], n: int) -> float:
    """The number of different n-grams of all texts, divided by that of all their n-grams (Li et al. 2016). NaN if no text has
    n tokens."""
    grams = [tuple(text[start : start + n]) for text in texts for start in range(len(text) - n + 1)]
    return len(set(grams)) / len(grams) if grams else float("nan")


def self_bleu(texts: Sequence[str]) -> float:
    """The mean BLEU-4 of each text with all others as its references, in percent (Zhu et al. 2018): 100 if all are equal. NaN
    for fewer than two texts.

    Raises `ImportError` without sacrebleu.
    """
    import sacrebleu

    if len(texts) < 2:
        return float("nan")
    scores = [sacrebleu.sentence_bleu(text, [*texts[:number], *texts[number + 1 :]]).score for number, text in enumerate(texts)]
    return float(np.mean(scores))
