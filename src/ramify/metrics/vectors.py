"""How alike vectors are: their spread, and the number of directions in which they differ."""

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

ROUNDING = 1e-12
"""A variance below this share of the mean squared length is a rounding error of equal vectors in single precision."""


def spread(vectors: Float[NDArray[Any], "row dim"]) -> float:
    """The mean distance of vectors from their mean, as a share of their mean length: 0 if they are equal, and about 1 if they
    share no direction. NaN without vectors."""
    if not len(vectors):
        return float("nan")
    centred = _centred(vectors)
    length = float(np.linalg.norm(vectors.astype(np.float64), axis=1).mean())
    return float(np.linalg.norm(centred, axis=1).mean()) / length if length > 0 else 0.0


def effective_rank(vectors: Float[NDArray[Any], "row dim"]) -> float:
    """The exponential of the entropy of the shares of variance in the principal directions (Roy, Vetterli 2007): 1 if vectors
    differ in one direction, and d if they differ equally in d; 0 if they are equal. NaN without vectors.

    The shares are the squared singular values of the centred vectors, divided by their sum.
    """
    if not len(vectors):
        return float("nan")
    centred = _centred(vectors)
    if (centred**2).sum() <= ROUNDING * (vectors.astype(np.float64) ** 2).sum():
        return 0.0
    rows, dim = centred.shape
    # Squared singular values, from the smaller of the two products.
    squares = np.linalg.eigvalsh(centred.T @ centred if dim <= rows else centred @ centred.T).clip(0)
    shares = squares[squares > 0] / squares.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def _centred(vectors: Float[NDArray[Any], "row dim"]) -> Float[NDArray[np.float64], "row dim"]:
    double = vectors.astype(np.float64)
    return double - double.mean(0)
