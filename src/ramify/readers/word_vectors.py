"""Text files of word vectors, as word2vec, GloVe and fastText publish them: a word and its numbers per line."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ramify.errors import RamifyError, printable
from ramify.readers.base import open_bytes

LONGEST_LINE = 1 << 20
"""Bytes of the longest line that is read."""


@dataclass(frozen=True)
class WordVectors:
    """The vectors of the words that were asked for and found."""

    words: tuple[str, ...]
    vectors: NDArray[np.float32]
    """[word, dim]"""


def read_word_vectors(path: Path, wanted: Collection[str]) -> WordVectors:
    """Read the vectors of the wanted words in bounded memory; the first vector of a word counts.

    A first line of two whole numbers is word2vec's header. Raises `RamifyError` for a line with another number of values than
    the first one, or with a value that is not a finite number.
    """
    found: dict[str, NDArray[np.float32]] = {}
    dim = 0
    with open_bytes(path) as stream:
        number = 0
        while line := stream.readline(LONGEST_LINE):
            number += 1
            parts = line.decode("utf-8", "replace").rstrip().split(" ")
            if number == 1 and len(parts) == 2 and all(part.isdigit() for part in parts):
                continue
            if not dim:
                dim = len(parts) - 1
            # A word may hold spaces, but its numbers are the last ones of the line.
            word = " ".join(parts[:-dim]) if dim else ""
            if not word:
                raise RamifyError(
                    f"{path}, line {number}: {printable(parts[0])[:40]!r} has {len(parts) - 1} numbers, but the vectors of "
                    f"this file have {dim or 'at least 1'}. Name a text file with a word and its numbers per line."
                )
            if word in wanted and word not in found:
                found[word] = _numbers(parts[-dim:], path, number)
    if not dim:
        raise RamifyError(f"{path} holds no vectors. Name a text file with a word and its numbers per line.")
    return WordVectors(tuple(found), np.stack([*found.values()]) if found else np.zeros((0, dim), dtype=np.float32))


def _numbers(parts: list[str], path: Path, number: int) -> NDArray[np.float32]:
    try:
        values = np.array(parts, dtype=np.float32)
    except ValueError:
        values = np.array([np.nan])
    if not np.isfinite(values).all():
        raise RamifyError(
            f"{path}, line {number}: {printable(' '.join(parts))[:40]!r} … are not finite numbers. Name a text file with a "
            "word and its numbers per line."
        )
    return values
