"""Words that data use for train, dev and test."""

import re
from pathlib import Path

SPELLINGS = {
    "train": ("train", "training", "trn"),
    "dev": ("dev", "devel", "development", "val", "valid", "validation", "trial", "devtest"),
    "test": ("test", "tst", "testing"),
}
"""Split -> the words that data use for it."""
_SPLIT_OF = {word: split for split, words in SPELLINGS.items() for word in words}


def named(word: str) -> str | None:
    """The split that a word stands for."""
    return _SPLIT_OF.get(word.strip().lower())


def in_name(path: Path) -> str | None:
    """The split that a word in the name of a file or folder stands for. None if there is no such word, or several."""
    words = {split for word in re.split(r"[^A-Za-z]+", path.name) if (split := named(word))}
    return words.pop() if len(words) == 1 else None
