"""Beam search for the most probable reply structure of each log."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ramify.disentangle.config import DecodingConfig
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.structure import ReplyStructure
from ramify.disentangle.data.targets import list_read_messages
from ramify.disentangle.inference.batches import collate_targets, make_collator
from ramify.disentangle.inference.decode import LinkDecisions
from ramify.disentangle.inference.scoring import score_batch
from ramify.disentangle.inference.vectors import encode_messages
from ramify.disentangle.posterior import RecordedLinks
from ramify.disentangle.task import ReplyLinking


class _Step(NamedTuple):
    """The link of a message, and the steps before it."""

    before: "_Step | None"
    parent: int
    probability: float


class _Beam(NamedTuple):
    """A reply structure of the first messages of a log, restricted to the window."""

    total: float
    structure: ReplyStructure
    last: _Step | None = None

    def extend(self, total: float, message: int, parents: tuple[int, ...], probability: float, window: int) -> "_Beam":
        """With the parents of the next message. The first is its decision, with this probability."""
        structure = self.structure.copy(since=message - window)
        for parent in parents:
            structure.add_link(message, parent)
        return _Beam(total, structure, _Step(self.last, parents[0], probability))

    def list_decisions(self) -> tuple[list[int], list[float]]:
        """List the parent of each message and its probability."""
        step, parents, probabilities = self.last, [], []
        while step is not None:
            parents.append(step.parent)
            probabilities.append(step.probability)
            step = step.before
        return parents[::-1], probabilities[::-1]


def search_structures(
    task: ReplyLinking, decoding: DecodingConfig, logs: Logs, width: int, start: Ints, recorded: RecordedLinks
) -> LinkDecisions:
    """The most probable reply structure of each log from its message `start` on, among `width` that are kept at a time."""
    parents, probability = np.arange(len(logs)), np.zeros(len(logs), dtype=np.float32)
    further: list[tuple[int, int]] = []
    window = logs.input.window
    collate = make_collator(task, logs, encode_messages(task, logs, list_read_messages(logs, start)))
    for first, stop in zip(start.tolist(), logs.offsets[1:].tolist()):
        beams = [_Beam(0.0, ReplyStructure())]
        for message in range(first, stop):
            if (known := recorded.get(message)) is not None:
                beams = [beam.extend(beam.total, message, known, 1.0, window) for beam in beams]
                further += [(message, parent) for parent in known[1:]]
                continue
            structures = [beam.structure for beam in beams]
            batch = collate_targets(task, replace(collate, structure=structures), np.full(len(beams), message))
            posterior = score_batch(task, decoding, batch)
            table = posterior.probabilities.reshape(len(beams), -1)
            candidates = posterior.candidates[: table.shape[1]]
            extended = [
                (beam.total + math.log(max(row[place], 1e-30)), beam, int(candidates[place]), float(row[place]))
                for beam, row in zip(beams, table)
                for place in np.argsort(-row, kind="stable")[:width].tolist()
            ]
            extended.sort(key=lambda one: -one[0])
            beams = [beam.extend(total, message, (parent,), chosen, window) for total, beam, parent, chosen in extended[:width]]
        parents[first:stop], probability[first:stop] = beams[0].list_decisions()
    links = np.array(further, dtype=np.int64).reshape(-1, 2)
    return LinkDecisions(parents, probability, links, np.ones(len(links), dtype=np.float32))
