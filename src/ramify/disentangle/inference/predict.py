"""Prediction: posteriors of the links of whole logs, through all stages from messages to posteriors."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor

from ramify.disentangle.batch import LinkBatch, MessageVectors
from ramify.disentangle.config import DecodingConfig
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.structure import ReplyStructure
from ramify.disentangle.data.targets import list_read_messages, list_targets
from ramify.disentangle.features.conversation import ConversationState
from ramify.disentangle.inference.batches import list_batches, list_steps, make_collator
from ramify.disentangle.inference.decode import decide_into
from ramify.disentangle.inference.scoring import score_batches, score_candidates
from ramify.disentangle.inference.vectors import encode_messages
from ramify.disentangle.posterior import NOTHING_RECORDED, LinkPosterior, RecordedLinks
from ramify.disentangle.task import ReplyLinking

ReplyHistory = Literal["predicted", "gold"]
"""The parents of earlier messages that a model reads: its own decisions, or the gold links."""


def predict_posterior(
    task: ReplyLinking,
    decoding: DecodingConfig,
    logs: Logs,
    *,
    history: ReplyHistory = "predicted",
    start: Ints | None = None,
    vectors: MessageVectors | None = None,
    structure: ReplyStructure | None = None,
    state: ConversationState | None = None,
    recorded: RecordedLinks = NOTHING_RECORDED,
) -> Iterator[LinkPosterior]:
    """The posterior of all messages of the logs, or of each log from its message `start` on, some messages at a time.

    Posteriors come in the order of the logs, unless the model reads its own decisions: then several logs are decided side by
    side, message by message. `vectors` may hold the vectors of all messages that are read. `structure` and `state` may hold the
    decisions on the messages before `start`: `structure` for a model that reads them, `state` those that preceded reranking. A
    caller that gives a `structure` adds the decision on each message to it before it takes the next posterior. `recorded` links
    are certain, for the messages that have them and for all others that are decided given these. The gold links of `logs` are
    another matter: nothing reads them but `history="gold"`.
    """
    start = logs.offsets[:-1] if start is None else start
    vectors = vectors or encode_messages(task, logs, list_read_messages(logs, start))
    collate = make_collator(task, logs, vectors)
    if task.backbone.reads_structure and history == "predicted":
        decisions = ReplyStructure() if structure is None else structure
        batches = list_steps(task, replace(collate, structure=decisions), start)
        posteriors = score_batches(task, decoding, batches, recorded)
        if structure is None:
            posteriors = decide_into(decisions, posteriors, logs, decoding)
    else:
        gold = ReplyStructure.from_gold(logs) if task.backbone.reads_structure else None
        batches = list_batches(task, replace(collate, structure=gold), list_targets(logs, start))
        posteriors = score_batches(task, decoding, batches, recorded)
    if task.reranker is None or (task.reranker.lookahead and decoding.online):
        yield from posteriors
    else:
        yield from task.reranker.rerank(posteriors, state or ConversationState.start(logs))


def predict_shuffled(
    task: ReplyLinking, decoding: DecodingConfig, logs: Logs, seed: int
) -> Iterator[tuple[LinkBatch, Float[Tensor, " key"]]]:
    """Batches of all messages of the logs in random order, with the probabilities of their candidates. For models that read no
    reply structure."""
    messages = np.arange(len(logs))
    collate = make_collator(task, logs, encode_messages(task, logs, messages))
    for batch in list_batches(task, collate, messages, shuffle_by=seed):
        yield batch, score_candidates(task, decoding, batch)
