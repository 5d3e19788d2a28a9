"""Messages, and for some of them the candidates for what they answer, laid flat."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from ramify.batch import AnyBatch, join
from ramify.chat import features
from ramify.chat.channel import Ints
from ramify.chat.logs import Logs
from ramify.nn.ragged import Rows
from ramify.views import Example


@dataclass(frozen=True)
class LinkBatch(AnyBatch):
    """Targets are messages that answer something; each reads its candidates, itself first, then nearest first."""

    input_ids: Int[Tensor, " total"]
    messages: Rows
    """The words of every message that is a target or a candidate, once."""
    target: Int[Tensor, " target"]
    """Which of the messages each target is."""
    candidate: Int[Tensor, " key"]
    """Which of the messages each candidate is, one target's candidates after the other's."""
    candidates: Rows
    """How the flat candidates fall to the targets."""
    is_self: Int[Tensor, " key"]
    """1 where a candidate is the target itself."""
    answering: Float[Tensor, "target answering"]
    answered: Float[Tensor, "message answered"]
    answered_by_itself: Float[Tensor, "target answered"]
    pairs: Float[Tensor, "key pair"]
    """Features (`chat.features`)."""
    gold: Float[Tensor, " key"]
    """The share of each candidate in what its target is known to answer; zeros for a target of which nothing is known."""
    source: Ints
    """The message in the logs behind each target."""
    key_source: Ints
    """The message in the logs behind each candidate."""

    @property
    def num_targets(self) -> int:
        return len(self.source)

    @property
    def num_target_tokens(self) -> int:
        return int(self.messages.host_lengths[self.target.cpu().numpy()].sum())

    @property
    def device(self) -> torch.device:
        return self.input_ids.device


@dataclass(frozen=True)
class LinkCollator:
    """Lays examples of `Blocks` flat."""

    logs: Logs

    def __call__(self, examples: Sequence[Example]) -> LinkBatch:
        logs = self.logs
        source = join([each.targets for each in examples])
        key_source = join([each.context for each in examples])
        lengths = join([each.context_lengths for each in examples])
        # Every target is its own first candidate, so the candidates are all the messages there are.
        messages, candidate = np.unique(key_source, return_inverse=True)
        target = candidate[np.cumsum(lengths) - lengths]
        ids, sizes = logs.words(messages)
        answering, itself, answered, pairs = self._features(examples, messages)
        of_target = np.repeat(source, lengths)
        gold = logs.is_link(of_target, key_source).astype(np.float64)
        share = np.bincount(np.repeat(np.arange(len(source)), lengths), weights=gold, minlength=len(source))
        gold /= np.repeat(np.maximum(share, 1), lengths)
        return LinkBatch(
            input_ids=torch.from_numpy(ids),
            messages=Rows.build(sizes),
            target=torch.from_numpy(target),
            candidate=torch.from_numpy(candidate),
            candidates=Rows.build(lengths),
            is_self=torch.from_numpy((of_target == key_source).astype(np.int64)),
            answering=torch.from_numpy(answering),
            answered=torch.from_numpy(answered),
            answered_by_itself=torch.from_numpy(itself),
            pairs=torch.from_numpy(pairs),
            gold=torch.from_numpy(gold.astype(np.float32)),
            source=source,
            key_source=key_source,
        )

    def _features(self, examples: Sequence[Example], messages: Ints) -> tuple[NDArray[np.float32], ...]:
        """Of targets as answers and as their own candidates, of messages as candidates, and of pairs."""
        logs = self.logs
        own: list[tuple[NDArray, ...]] = []
        for each in examples:
            log = int(logs.log_of(each.targets[:1])[0])
            channel, first = logs.channels[log], int(logs.offsets[log])
            targets, lengths = each.targets - first, each.context_lengths
            flat = each.context - first
            columns = np.arange(int(lengths.max()))
            inside = columns < lengths[:, None]
            near = np.full(inside.shape, -1)
            near[inside] = flat
            own.append(
                (
                    features.answering(channel, targets),
                    features.answered_by_itself(channel, targets),
                    features.pairs(channel, targets, near)[inside],
                )
            )
        widths = (features.ANSWERING, features.ANSWERED, features.PAIR)
        parts = zip(*own) if own else [()] * len(widths)
        answering, itself, pairs = (
            np.concatenate([np.zeros((0, len(names))), *part], dtype=np.float32) for names, part in zip(widths, parts)
        )
        answered = np.empty((len(messages), len(features.ANSWERED)), dtype=np.float32)
        of_log = logs.log_of(messages)
        for log in np.unique(of_log).tolist():
            here = of_log == log
            answered[here] = features.answered(logs.channels[log], messages[here] - int(logs.offsets[log]))
        return answering, itself, answered, pairs
