"""From messages to batches: the messages that are scored at once."""

from collections.abc import Iterator

import numpy as np

from ramify.batching.samplers import TokenBudget
from ramify.disentangle.batch import LinkBatch, LinkCollator, MessageVectors
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.task import ReplyLinking

KEYS = 16_384
"""Pairs scored at once."""
PRUNED_KEYS = 2 * KEYS
"""Pairs laid out at once where a candidate pruner leaves most of them unscored."""
BLOCK = 64
"""Messages in a block."""


def make_collator(task: ReplyLinking, logs: Logs, vectors: MessageVectors | None) -> LinkCollator:
    """A collator of the features that the model reads, without reply structure."""
    return LinkCollator(logs, vectors, context_features=task.backbone.reads_context_features)


def list_batches(
    task: ReplyLinking, collate: LinkCollator, targets: Ints, shuffle_by: int | None = None
) -> Iterator[LinkBatch]:
    """Batches of the targets, in their order or shuffled."""
    view = Blocks(collate.logs, targets, block=BLOCK)
    keys = KEYS if task.candidate_pruner is None else PRUNED_KEYS
    steps = TokenBudget(view.costs, keys, seed=shuffle_by or 0, shuffle=shuffle_by is not None)
    for numbers in steps.steps(0):
        yield collate([view.example(int(number)) for number in numbers]).to(task.device)


def collate_targets(task: ReplyLinking, collate: LinkCollator, targets: Ints) -> LinkBatch:
    """One batch of targets that are read apart from each other: each of another log, or with another reply structure."""
    view = Blocks(collate.logs, targets, block=1)
    return collate([view.example(number) for number in range(len(targets))]).to(task.device)


def list_steps(task: ReplyLinking, collate: LinkCollator, start: Ints) -> Iterator[LinkBatch]:
    """Batches of one message of each log at a time, from its message `start` on, of as many logs as make `KEYS` pairs.

    A batch is collated when it is asked for, so it reads what the collator's reply structure holds by then.
    """
    logs = collate.logs
    remaining = logs.offsets[1:] - start
    num_groups = -(-len(remaining) * (logs.input.window + 1) // KEYS) or 1
    for group in np.array_split(np.argsort(-remaining, kind="stable"), num_groups):
        for step in range(int(remaining[group].max(initial=0))):
            yield collate_targets(task, collate, start[group[remaining[group] > step]] + step)
