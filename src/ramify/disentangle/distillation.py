"""Distillation: soft targets from the posteriors of teachers, for annotated and unannotated messages."""

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.disentangle.data.logs import Logs


def soft_targets(
    logs: Logs, teacher_probabilities: Float[NDArray, "read distance"], distillation_weight: float
) -> Float[NDArray, "message distance"]:
    """The target probability of the message at each distance back (0: a start), for every message.

    An unannotated message takes the teachers' probabilities. An annotated one takes these with the weight
    `distillation_weight`, and its gold links, with equal shares, with the rest. Messages behind those that the teachers have
    read take their gold links alone.
    """
    distance = logs.links[:, 0] - logs.links[:, 1]
    near = logs.links[distance < teacher_probabilities.shape[1]]
    message, links = np.unique(near[:, 0], return_counts=True)
    targets = np.zeros((len(logs), teacher_probabilities.shape[1]), dtype=np.float32)
    targets[: len(teacher_probabilities)] = teacher_probabilities
    weight = np.where(np.arange(len(logs)) < len(teacher_probabilities), distillation_weight, 0.0)
    targets[message] *= weight[message, None]
    targets[near[:, 0], near[:, 0] - near[:, 1]] += (1 - weight[near[:, 0]]) / np.repeat(links, links)
    return targets
