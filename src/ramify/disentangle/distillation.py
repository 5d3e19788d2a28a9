"""What trained models believe of messages, for another model to learn: of annotated messages and of those nobody annotated."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.disentangle.data.logs import Logs
from ramify.disentangle.inference.decode import opinions
from ramify.tree import Tree

if TYPE_CHECKING:
    from ramify.disentangle.task import ReplyTo


def beliefs(teachers: "Sequence[ReplyTo]", trees: Callable[[], Iterable[Tree]], window: int) -> Float[NDArray, "message place"]:
    """Of every message of the logs, how likely it answers the one so many places back (0: it starts a conversation): the mean
    over the teachers, each of which reads the logs in its own way."""
    total: Float[NDArray, "message place"] | None = None
    for task in teachers:
        logs = Logs.of(trees(), task.input).read_with(task.tokenizer)
        total = np.zeros((len(logs), window + 1), dtype=np.float32) if total is None else total
        for opinion in opinions(task, logs):
            # What lies beyond is nobody's: the rest shares it.
            near = opinion.by_distance(window)
            total[opinion.messages] += near / np.maximum(near.sum(axis=1, keepdims=True), 1e-12)
    assert total is not None
    return total / len(teachers)


def lessons(logs: Logs, believed: Float[NDArray, "message place"], trust: float) -> Float[NDArray, "message place"]:
    """What a model is to say of every message: what is believed; of messages whose links are known, that with the weight
    `trust`, and the links, each an equal share, with the rest. Of messages at the end that no belief is given of, the links
    alone."""
    apart = logs.links[:, 0] - logs.links[:, 1]
    near = logs.links[apart < believed.shape[1]]
    message, links = np.unique(near[:, 0], return_counts=True)
    taught = np.zeros((len(logs), believed.shape[1]), dtype=np.float32)
    taught[: len(believed)] = believed
    weight = np.where(np.arange(len(logs)) < len(believed), trust, 0.0)
    taught[message] *= weight[message, None]
    taught[near[:, 0], near[:, 0] - near[:, 1]] += (1 - weight[near[:, 0]]) / np.repeat(links, links)
    return taught
