"""Two samples of vectors: how far apart their distributions are, and how much of one the other covers."""

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from torch import nn
from torch.nn import functional as F

Sample = Float[NDArray, "row dim"]
Other = Float[NDArray, "other dim"]

NEIGHBOURS = 5
"""The neighbours within which a real vector is covered."""

CLASSIFIER_UPDATES, CLASSIFIER_BATCH, CLASSIFIER_WIDTH = 300, 128, 128


def energy_distance(one: Sample, other: Other) -> float:
    """The energy distance of two samples (Székely and Rizzo 2013), as a share of its greatest value: 0 for equal distributions,
    and 1 if each sample is a single point. NaN if a sample has fewer than two vectors.

    The distances within a sample leave out those of a vector to itself, so the estimate is unbiased and may be below 0.
    """
    if min(len(one), len(other)) < 2:
        return float("nan")
    between = 2 * float(cdist(one, other).mean())
    return (between - _within(one) - _within(other)) / between if between > 0 else 0.0


def _within(sample: Sample) -> float:
    """The mean distance of two different vectors of a sample."""
    return float(cdist(sample, sample).sum() / (len(sample) * (len(sample) - 1)))


def coverage(real: Sample, generated: Other, neighbours: int = NEIGHBOURS) -> float:
    """The share of real vectors that have a generated one no farther away than their k-th real neighbour (Naeem et al. 2020,
    equation 4). NaN with no more than k real vectors."""
    if len(real) <= neighbours:
        return float("nan")
    # The nearest vector is the vector itself.
    radius = np.partition(cdist(real, real), neighbours, axis=1)[:, neighbours]
    return float((cdist(real, generated).min(1) <= radius).mean()) if len(generated) else 0.0


def nearest_cosines(vectors: Sample, known: Other) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The cosine of each vector with the most similar known one, and the number of that one. The zero vector has cosine 0."""
    found, number = np.full(len(vectors), -np.inf), np.zeros(len(vectors), dtype=np.int64)
    one = _unit(vectors)
    for start in range(0, len(known), 1 << 14):
        cosines = one @ _unit(known[start : start + (1 << 14)]).T
        best = cosines.argmax(1)
        value = cosines[np.arange(len(vectors)), best]
        number = np.where(value > found, start + best, number)
        found = np.maximum(found, value)
    return found, number


def _unit(vectors: Sample) -> NDArray[np.float64]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float64) / np.where(lengths > 0, lengths, 1.0)


def classifier_accuracy(one: Sample, other: Other, seed: int) -> float:
    """The accuracy of a fresh classifier on vectors of two samples that it has not learned from: 1/2 if nothing tells them
    apart. NaN if a sample has fewer than two vectors.

    It is a network with two hidden layers, on standardized vectors. It learns from one half of the samples, which have equally
    many vectors, and is asked about the other half, and then the other way round (Lopez-Paz and Oquab 2017).
    """
    number = min(len(one), len(other))
    if number < 2:
        return float("nan")
    random = np.random.Generator(np.random.Philox(key=seed))
    drawn = [sample[random.permutation(len(sample))[:number]] for sample in (one, other)]
    x = np.concatenate([part for pair in zip(*(np.array_split(sample, 2) for sample in drawn)) for part in pair])
    half = -(-number // 2)
    sizes = (half, half, number - half, number - half)
    labels = np.repeat([1.0, 0.0, 1.0, 0.0], sizes)
    folds = np.repeat([0, 0, 1, 1], sizes)
    right = 0
    for fold in (0, 1):
        known, asked = folds == fold, folds != fold
        odds = _classified(x[known], labels[known], x[asked], seed)
        right += int(((odds > 0) == (labels[asked] > 0)).sum())
    return right / (2 * number)


def _classified(x: Sample, labels: NDArray[np.float64], asked: Other, seed: int) -> NDArray[np.float32]:
    """The log-odds of label 1 of the asked vectors, after learning from others."""
    mean, deviation = x.mean(0), x.std(0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    inputs, queries = (torch.from_numpy(((each - mean) / deviation).astype(np.float32)) for each in (x, asked))
    targets = torch.from_numpy(labels.astype(np.float32))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        width = CLASSIFIER_WIDTH
        sizes = (inputs.shape[1], width, width)
        network = nn.Sequential(
            nn.Linear(sizes[0], sizes[1]), nn.ReLU(), nn.Linear(sizes[1], sizes[2]), nn.ReLU(), nn.Linear(sizes[2], 1)
        )
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=1e-2, fused=True)
        with torch.enable_grad():
            for _ in range(CLASSIFIER_UPDATES):
                chosen = torch.randint(len(inputs), (min(CLASSIFIER_BATCH, len(inputs)),))
                loss = F.binary_cross_entropy_with_logits(network(inputs[chosen])[:, 0], targets[chosen])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    with torch.no_grad():
        return network(queries)[:, 0].numpy()


# --- floors of generators -------------------------------------------------------------------------------------------------


def fitted_gaussian(real: Sample, number: int, seed: int) -> Float[NDArray, "number dim"]:
    """Vectors from a normal distribution with the mean and the covariance of real ones."""
    random = np.random.Generator(np.random.Philox(key=seed))
    centre = real.astype(np.float64).mean(0)
    # Rows of the centred matrix, mixed by independent normal weights, have its covariance, whatever its rank.
    weights = random.standard_normal((number, len(real))) / np.sqrt(max(1, len(real) - 1))
    return (centre + weights @ (real - centre)).astype(np.float32)
