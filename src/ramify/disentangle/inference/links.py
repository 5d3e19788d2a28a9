"""Predict the links of whole logs, message by message or by a beam search."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ramify.disentangle.config import DecodingConfig
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.structure import ReplyStructure
from ramify.disentangle.inference.decode import LinkDecisions, decode
from ramify.disentangle.inference.predict import (
    NOTHING_RECORDED,
    ReplyHistory,
    encode_messages,
    list_read_messages,
    make_collator,
    predict_examples,
    predict_posterior,
)
from ramify.disentangle.posterior import RecordedLinks
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError


def predict_links(
    task: ReplyLinking,
    decoding: DecodingConfig,
    logs: Logs,
    *,
    history: ReplyHistory = "predicted",
    beam: int = 1,
    start: Ints | None = None,
    recorded: RecordedLinks = NOTHING_RECORDED,
) -> LinkDecisions:
    """Predict the links of every message of each log, from its message `start` on, but for those with `recorded` links, which
    keep them.

    A `beam` above 1 keeps that many reply structures of a log and returns the most probable one, instead of deciding on one
    link after another. Raises `RamifyError` for such a beam if the model reads no reply structure, because its most probable
    links already make the most probable structure, and if `history` is gold.
    """
    if beam == 1:
        posteriors = predict_posterior(task, decoding, logs, history=history, start=start, recorded=recorded)
        return decode(posteriors, logs, decoding)
    if history == "gold":
        raise RamifyError(
            f"beam={beam} searches among the model's own decisions and cannot read gold links. Set history=predicted, or "
            "beam=1."
        )
    if not task.backbone.reads_structure or task.config.objective == "binary" or decoding.threshold:
        raise RamifyError(
            f"beam={beam} needs a model that reads the parents of earlier messages and decides on one parent per message; for "
            "any other model the most probable links already make the most probable structure. Set beam=1."
        )
    if decoding.decide != "link":
        raise RamifyError(
            f"beam={beam} needs decisions by link, but decoding.decide={decoding.decide}. Set beam=1 or decoding.decide=link."
        )
    return _beam_search(task, decoding, logs, beam, logs.offsets[:-1] if start is None else start, recorded)


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

    def extend(
        self, total: float, message: int, parent: int, probability: float, window: int, further: tuple[int, ...] = ()
    ) -> "_Beam":
        structure = self.structure.copy(since=message - window)
        for each in (parent, *further):
            structure.add_link(message, each)
        return _Beam(total, structure, _Step(self.last, parent, probability))

    def list_decisions(self) -> tuple[list[int], list[float]]:
        """List the parent of each message and its probability."""
        step, parents, probabilities = self.last, [], []
        while step is not None:
            parents.append(step.parent)
            probabilities.append(step.probability)
            step = step.before
        return parents[::-1], probabilities[::-1]


def _beam_search(
    task: ReplyLinking,
    decoding: DecodingConfig,
    logs: Logs,
    width: int,
    start: Ints,
    recorded: RecordedLinks = NOTHING_RECORDED,
) -> LinkDecisions:
    parents, probability = np.arange(len(logs)), np.zeros(len(logs), dtype=np.float32)
    further: list[tuple[int, int]] = []
    view = Blocks(logs, np.arange(len(logs)), block=1)
    collate = make_collator(task, logs, encode_messages(task, logs, list_read_messages(logs, start)))
    for first, stop in zip(start.tolist(), logs.offsets[1:].tolist()):
        beams = [_Beam(0.0, ReplyStructure())]
        for message in range(first, stop):
            if (known := recorded.get(message)) is not None:
                beams = [beam.extend(beam.total, message, known[0], 1.0, logs.input.window, known[1:]) for beam in beams]
                further += [(message, parent) for parent in known[1:]]
                continue
            structures = [beam.structure for beam in beams]
            examples = [view.example(message)] * len(beams)
            posterior = predict_examples(task, decoding, replace(collate, structure=structures), examples)
            table = posterior.probabilities.reshape(len(beams), -1)
            candidates = posterior.candidates[: table.shape[1]]
            extended = [
                (beam.total + math.log(max(row[place], 1e-30)), beam, int(candidates[place]), float(row[place]))
                for beam, row in zip(beams, table)
                for place in np.argsort(-row, kind="stable")[:width].tolist()
            ]
            extended.sort(key=lambda one: -one[0])
            beams = [
                beam.extend(total, message, parent, chosen, logs.input.window)
                for total, beam, parent, chosen in extended[:width]
            ]
        parents[first:stop], probability[first:stop] = beams[0].list_decisions()
    links = np.array(further, dtype=np.int64).reshape(-1, 2)
    return LinkDecisions(parents, probability, links, np.ones(len(links), dtype=np.float32))
