"""From messages to vectors, for models that encode each message alone."""

import numpy as np
import torch

from ramify.batching.encoder_input import EncoderInput
from ramify.disentangle.batch import MessageVectors
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.task import ReplyLinking
from ramify.nn.ragged import Rows, length_key, runs
from ramify.progress import activity

TOKENS = 16_384
"""Tokens of messages encoded at once."""


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
            vectors = encoder.vectors(EncoderInput.of_rows(torch.from_numpy(ids), Rows.build(sizes)).to(task.device))
            parts.append(vectors.float().cpu())
            advance(stop - first)
    row = np.full(len(logs), -1, dtype=np.int64)
    row[messages] = np.arange(len(messages))
    return MessageVectors(torch.cat(parts), row) if parts else None
