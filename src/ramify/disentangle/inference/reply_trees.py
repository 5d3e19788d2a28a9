"""What a model makes of reply trees: whom each comment answers, and how good that is."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ramify.dataset.store import Split, Store
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.reply_trees import logs_of_replies
from ramify.disentangle.inference.decode import Known, decide
from ramify.disentangle.inference.links import Told, told
from ramify.metrics.replies import Replies

if TYPE_CHECKING:
    from ramify.disentangle.task import ReplyTo

BASELINES = ("first", "previous")
"""Every comment answers the post; every comment answers the one before it."""


@dataclass(frozen=True)
class MeasuredReplies:
    """Parents that a model found beside those that are known, with rules that do not read."""

    model: Replies
    baselines: dict[str, Replies]
    history: Told
    beyond_window: int
    """Comments whose parent is further back than the model looks: they count as wrong."""


def scored(logs: Logs, answered: Ints) -> Replies:
    """One predicted parent a message, of reply trees, beside the known one."""
    comment, parent = logs.links.T
    lengths = np.bincount(logs.log_of(comment), minlength=len(logs.channels))
    return Replies.counted(answered[comment], parent, lengths)


def rule(logs: Logs, name: str) -> Ints:
    """[message]: which one it answers by one of `BASELINES`."""
    messages = np.arange(len(logs))
    posts = logs.offsets[logs.log_of(messages)]
    return posts if name == "first" else np.maximum(messages - 1, posts)


def measure_replies(task: "ReplyTo", store: Store, split: Split, *, history: Known = "gold", beam: int = 1) -> MeasuredReplies:
    """The parent of every comment of a split's reply trees.

    With `history="gold"` a comment's parent is sought given what the earlier comments really answer, which makes the
    published graph accuracy. Conversations are right as a whole with either history or with none: as long as all decisions
    were right, both are the same. A model that knows of starts is kept from finding any. `beam`: see `decide`. Raises
    `RamifyError` where there are no comments.
    """
    trees = store.held(split)
    logs = logs_of_replies(store.trees(trees), task.input).read_with(task.tokenizer)
    with _all_answering(task):
        answered = decide(task, logs, history=history, beam=beam).answered
    return MeasuredReplies(
        scored(logs, answered),
        {name: scored(logs, rule(logs, name)) for name in BASELINES},
        told(task, history),
        len(logs.links) - len(logs.learnable),
    )


@contextmanager
def _all_answering(task: "ReplyTo") -> Iterator[None]:
    """Every message but a log's first answers another one."""
    config = task.config
    task.config = replace(config, starts=False)
    try:
        yield
    finally:
        task.config = config
