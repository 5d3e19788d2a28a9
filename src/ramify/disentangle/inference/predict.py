"""Prediction: posteriors of the links of whole logs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ramify.batching.encoder_input import EncoderInput
from ramify.batching.samplers import TokenBudget
from ramify.batching.views.base import Example
from ramify.disentangle.batch import LinkBatch, LinkCollator, MessageVectors
from ramify.disentangle.config import DecodingConfig
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.structure import ReplyStructure
from ramify.disentangle.features.conversation import ConversationState
from ramify.disentangle.inference.comembership import Comemberships
from ramify.disentangle.inference.decode import choose_links
from ramify.disentangle.posterior import LinkPosterior, RecordedLinks
from ramify.disentangle.task import ReplyLinking
from ramify.nn.ragged import Rows, length_key, runs
from ramify.progress import activity

KEYS = 16_384
"""Pairs scored at once."""
PRUNED_KEYS = 2 * KEYS
"""Pairs laid out at once where a candidate pruner leaves most of them unscored."""
TOKENS = 16_384
"""Tokens of messages encoded at once."""
_BLOCK = 64
NOTHING_RECORDED: RecordedLinks = MappingProxyType({})

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
    state: ConversationState | None = None,
    recorded: RecordedLinks = NOTHING_RECORDED,
) -> Iterator[LinkPosterior]:
    """The posterior of all messages of the logs, or of each log from its message `start` on, some messages at a time.

    Posteriors come in the order of the logs, unless the model reads its own decisions: then several logs are decided side by
    side, message by message. `vectors` may hold the vectors of all messages that are read. `state` may hold the decisions that
    preceded reranking on the messages before `start`. `recorded` links are certain, for the messages that have them and for all
    others that are decided given these. The gold links of `logs` are another matter: nothing reads them but `history="gold"`.
    """
    start = logs.offsets[:-1] if start is None else start
    posteriors = _score(task, decoding, logs, history, start, vectors, recorded)
    if task.reranker is None or (task.reranker.lookahead and decoding.online):
        yield from posteriors
    else:
        yield from task.reranker.rerank(posteriors, state or ConversationState.start(logs))


def _score(
    task: ReplyLinking,
    decoding: DecodingConfig,
    logs: Logs,
    history: ReplyHistory,
    start: Ints,
    vectors: MessageVectors | None,
    recorded: RecordedLinks,
) -> Iterator[LinkPosterior]:
    """Posteriors before reranking."""
    collate = make_collator(task, logs, vectors or encode_messages(task, logs, list_read_messages(logs, start)))
    if task.backbone.reads_structure and history == "predicted":
        yield from _score_side_by_side(task, decoding, collate, start, recorded)
        return
    if task.backbone.reads_structure:
        collate = replace(collate, structure=ReplyStructure.from_gold(logs))
    for batch in _batches(task, collate, start):
        yield predict_batch(task, decoding, batch).keep(recorded, logs.input.window)


def _batches(task: ReplyLinking, collate: LinkCollator, start: Ints, shuffle_by: int | None = None) -> Iterator[LinkBatch]:
    """Batches of the messages of each log from `start` on, in their order or shuffled."""
    view = Blocks(collate.logs, _list_targets(collate.logs, start), block=_BLOCK)
    keys = KEYS if task.candidate_pruner is None else PRUNED_KEYS
    steps = TokenBudget(view.costs, keys, seed=shuffle_by or 0, shuffle=shuffle_by is not None)
    for numbers in steps.steps(0):
        yield collate([view.example(int(number)) for number in numbers]).to(task.device)


def predict_shuffled(
    task: ReplyLinking, decoding: DecodingConfig, logs: Logs, seed: int
) -> Iterator[tuple[LinkBatch, Float[Tensor, " key"]]]:
    """Batches of all messages of the logs in random order, with the probabilities of their candidates. For models that read no
    reply structure."""
    collate = make_collator(task, logs, encode_messages(task, logs, np.arange(len(logs))))
    for batch in _batches(task, collate, logs.offsets[:-1], shuffle_by=seed):
        yield batch, _score_candidates(task, decoding, batch)


def predict_examples(
    task: ReplyLinking, decoding: DecodingConfig, collate: LinkCollator, examples: Sequence[Example]
) -> LinkPosterior:
    return predict_batch(task, decoding, collate(examples).to(task.device))


def predict_batch(task: ReplyLinking, decoding: DecodingConfig, batch: LinkBatch) -> LinkPosterior:
    probabilities = _score_candidates(task, decoding, batch).float().cpu().numpy()
    return LinkPosterior(batch.source, batch.key_source, batch.candidates.host_lengths, probabilities)


def _score_candidates(task: ReplyLinking, decoding: DecodingConfig, batch: LinkBatch) -> Float[Tensor, " key"]:
    # Entered batch by batch: a generator must not leave its caller without gradients.
    with task.evaluating(), torch.no_grad():
        return task.probabilities(task.scores(batch, decoding), batch, decoding)


def _score_side_by_side(
    task: ReplyLinking, decoding: DecodingConfig, collate: LinkCollator, start: Ints, recorded: RecordedLinks
) -> Iterator[LinkPosterior]:
    """Posteriors of one message of each log at a time, given the decisions on the messages before it."""
    logs, structure = collate.logs, ReplyStructure()
    collate = replace(collate, structure=structure)
    view = Blocks(logs, np.arange(len(logs)), block=1)
    left, conversation = logs.offsets[1:] - start, np.arange(len(logs))
    comemberships = Comemberships(logs.offsets, logs.input.window)
    for group in np.array_split(np.argsort(-left, kind="stable"), -(-len(left) * (logs.input.window + 1) // KEYS) or 1):
        for step in range(int(left[group].max(initial=0))):
            messages = start[group[left[group] > step]] + step
            posterior = predict_examples(task, decoding, collate, [view.example(int(message)) for message in messages])
            posterior = posterior.keep(recorded, logs.input.window)
            chosen = choose_links(posterior, decoding, conversation, comemberships.select)
            for child, parent in zip(posterior.messages.tolist(), chosen.parent.tolist()):
                structure.add_link(child, parent)
            for child, parent in chosen.further.tolist():
                structure.add_link(child, parent)
            yield posterior


def make_collator(task: ReplyLinking, logs: Logs, vectors: MessageVectors | None) -> LinkCollator:
    """A collator of the features that the model reads, without reply structure."""
    return LinkCollator(logs, vectors, context_features=task.backbone.reads_context_features)


def encode_messages(task: ReplyLinking, logs: Logs, messages: Ints) -> MessageVectors | None:
    """The vectors of some messages, each encoded once, without dropout; None where the model makes none."""
    encoder = task.backbone.message_encoder
    if encoder is None:
        return None
    lengths = logs.count_tokens(messages)
    order = np.argsort(length_key(lengths), kind="stable")
    messages, lengths = messages[order], lengths[order]
    parts = []
    with activity("encoding messages", len(messages)) as advance, task.evaluating(), torch.no_grad():
        for first, stop in runs(lengths, TOKENS):
            ids, sizes = logs.select_tokens(messages[first:stop])
            found = encoder.vectors(EncoderInput.of_rows(torch.from_numpy(ids), Rows.build(sizes)).to(task.device))
            parts.append(found.float().cpu())
            advance(stop - first)
    row = np.full(len(logs), -1, dtype=np.int64)
    row[messages] = np.arange(len(messages))
    return MessageVectors(torch.cat(parts), row) if parts else None


def decode_start(logs: Logs) -> Ints:
    """[log]: the message that decoding starts at, so that the decisions on annotated messages do not depend on it: two windows
    before the first of them."""
    return np.maximum(logs.offsets[:-1], logs.first_annotated - 2 * logs.input.window)


def _list_targets(logs: Logs, start: Ints) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *map(np.arange, start, logs.offsets[1:])])


def list_read_messages(logs: Logs, start: Ints) -> Ints:
    """All messages that are read to decide each log from its message `start` on."""
    return add_candidates(logs, _list_targets(logs, start))


def add_candidates(logs: Logs, messages: Ints) -> Ints:
    """The messages with all their candidates."""
    reach = np.maximum(messages - logs.input.window, logs.offsets[logs.find_log(messages)])
    depth = np.zeros(len(logs) + 1, dtype=np.int64)
    np.add.at(depth, reach, 1)
    np.add.at(depth, messages + 1, -1)
    return np.flatnonzero(np.cumsum(depth[:-1]) > 0)
