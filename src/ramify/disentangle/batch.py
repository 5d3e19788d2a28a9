"""Flat batches of messages, and of the candidate parents of each target message."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from ramify.batching.batch import AnyBatch, join
from ramify.batching.views.base import Example
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.structure import ReplyStructure
from ramify.disentangle.data.words import tabulate_words
from ramify.disentangle.features import pairs as features
from ramify.disentangle.features.context import CONTEXT_FEATURES, compute_context_features
from ramify.nn.ragged import Rows, inverse, length_key
from ramify.tokenizer import Frame


@dataclass(frozen=True)
class LinkBatch(AnyBatch):
    """Targets are the messages whose parents are predicted. The candidates of a target are itself and earlier messages, nearest
    first."""

    input_ids: Int[Tensor, " total"]
    messages: Rows
    """The tokens of every message that is a target or a candidate, once."""
    frame: Frame
    """The special tokens around each message."""
    target: Int[Tensor, " target"]
    """The message that each target is."""
    candidate: Int[Tensor, " key"]
    """The message that each candidate is, one target's candidates after the other's."""
    candidates: Rows
    """The number of candidates of each target."""
    is_self: Int[Tensor, " key"]
    """1 for a candidate that is the target itself."""
    same_author: Int[Tensor, " key"]
    """1 for a candidate that is another message of the target's author."""
    child_features: Float[Tensor, "target child"]
    parent_features: Float[Tensor, "message parent"]
    self_features: Float[Tensor, "target parent"]
    """Parent features of targets as their own candidates."""
    pair_features: Float[Tensor, "key pair"]
    """See `disentangle.features.pairs`, and `disentangle.features.context` for models that read it."""
    target_probability: Float[Tensor, " key"]
    """The target probability of each candidate; zeros for a target without a gold parent."""
    source: Ints
    """The message in the logs behind each target."""
    key_source: Ints
    """The message in the logs behind each candidate."""
    vectors: Float[Tensor, "message vector"] | None = None
    """The messages' vectors, if they were computed before."""
    same_conversation: Float[Tensor, " key"] | None = None
    """1 for candidates that share a gold conversation with their target, and for a target that starts one. Zeros for an
    unannotated target."""
    importance_weight: Float[Tensor, " key"] | None = None
    """One over each candidate's sampling probability, with negative sampling."""
    ancestor_distance: Int[Tensor, "target candidate candidate"] | None = None
    """Number of links on the shortest path from one candidate of a target up to another (0: no path)."""

    @property
    def num_targets(self) -> int:
        return len(self.source)

    @property
    def num_target_tokens(self) -> int:
        return int(self.messages.host_lengths[self.target.cpu().numpy()].sum())

    @property
    def device(self) -> torch.device:
        return self.input_ids.device

    @property
    def target_index(self) -> Int[Tensor, " key"]:
        """The target of each candidate."""
        numbers = torch.arange(self.num_targets, device=self.device)
        return torch.repeat_interleave(numbers, self.candidates.lengths, output_size=self.candidates.total)

    @property
    def host_pairs(self) -> tuple[Ints, Ints]:
        """The messages that each candidate's target and each candidate are, on the host."""
        target, candidate = self.target.cpu().numpy(), self.candidate.cpu().numpy()
        return np.repeat(target, self.candidates.host_lengths), candidate

    @property
    def all_parent_features(self) -> Float[Tensor, "message_or_target parent"]:
        """Parent features of the messages, and after them of the targets as their own candidates."""
        return torch.cat([self.parent_features, self.self_features])

    @property
    def parent_index(self) -> Int[Tensor, " key"]:
        """The row of `all_parent_features` for each candidate."""
        return torch.where(self.is_self.bool(), self.target_index + len(self.messages), self.candidate)

    def select(self, chosen: Int[Tensor, " chosen"], candidates: Rows) -> "LinkBatch":
        """The batch reduced to the `chosen` candidates; `candidates` has their number per target. It does not suit models that
        read all candidates as a history."""
        assert self.ancestor_distance is None
        parts = ("candidate", "is_self", "same_author", "pair_features", "target_probability")
        parts += tuple(name for name in ("same_conversation", "importance_weight") if getattr(self, name) is not None)
        return replace(
            self,
            candidates=candidates,
            key_source=self.key_source[chosen.cpu().numpy()],
            **{name: getattr(self, name).index_select(0, chosen) for name in parts},
        )

    def hide_years(self) -> "LinkBatch":
        years = len(features.YEARS)
        return replace(self, child_features=torch.nn.functional.pad(self.child_features[:, years:], (years, 0)))


def count_pair_features(with_context: bool) -> int:
    """Features per pair, with or without `disentangle.features.context`."""
    return len(features.PAIR_FEATURES) + (len(CONTEXT_FEATURES) if with_context else 0)


@dataclass(frozen=True)
class MessageVectors:
    """Vectors of messages, computed once."""

    table: Float[Tensor, "row vector"]
    row: Ints
    """[message]: the row of its vector; -1 if it has none."""

    def select(self, messages: Ints) -> Float[Tensor, "message vector"]:
        return self.table.index_select(0, torch.from_numpy(self.row[messages]))


@dataclass(frozen=True)
class LinkCollator:
    """Lays examples of `Blocks` flat."""

    logs: Logs
    vectors: MessageVectors | None = None
    """Vectors to read instead of the messages' tokens."""
    structure: ReplyStructure | Sequence[ReplyStructure] | None = None
    """The links of earlier messages: the same for all examples, or one structure per example."""
    context_features: bool = False
    """Compute features of the messages around each pair."""
    same_conversation: bool = False
    """Mark the candidates that share a gold conversation with their target."""
    soft_targets: Float[NDArray, "message distance"] | None = None
    """The target probability of the message at each distance back, in place of gold links."""

    def __call__(self, examples: Sequence[Example]) -> LinkBatch:
        logs = self.logs
        source = join([example.targets for example in examples])
        key_source = join([example.context for example in examples])
        lengths = join([example.context_lengths for example in examples])
        # Every target is its own first candidate, so the candidates include all messages.
        messages, candidate = np.unique(key_source, return_inverse=True)
        # By length, so that an encoder reads them in few groups.
        order = np.argsort(length_key(logs.count_tokens(messages)), kind="stable")
        messages, candidate = messages[order], inverse(order)[candidate]
        target = candidate[np.cumsum(lengths) - lengths]
        ids, sizes = logs.select_tokens(messages)
        child_features, self_features, pair_features = self._compute_target_features(examples)
        child = np.repeat(source, lengths)
        is_self = child == key_source
        return LinkBatch(
            input_ids=torch.from_numpy(ids),
            messages=Rows.build(sizes),
            frame=logs.frame,
            target=torch.from_numpy(target),
            candidate=torch.from_numpy(candidate),
            candidates=Rows.build(lengths),
            is_self=torch.from_numpy(is_self.astype(np.int64)),
            same_author=torch.from_numpy((logs.have_same_author(child, key_source) & ~is_self).astype(np.int64)),
            child_features=torch.from_numpy(child_features),
            parent_features=torch.from_numpy(self._compute_parent_features(messages)),
            self_features=torch.from_numpy(self_features),
            pair_features=torch.from_numpy(pair_features),
            target_probability=torch.from_numpy(self._compute_target_probability(child, key_source, lengths)),
            source=source,
            key_source=key_source,
            vectors=None if self.vectors is None else self.vectors.select(messages),
            same_conversation=torch.from_numpy(self._mark_same_conversation(child, key_source))
            if self.same_conversation
            else None,
            importance_weight=self._compute_importance_weight(examples),
            ancestor_distance=None if self.structure is None else torch.from_numpy(self._measure_ancestors(examples)),
        )

    def _compute_target_probability(self, child: Ints, candidate: Ints, lengths: Ints) -> NDArray[np.float32]:
        if self.soft_targets is None:
            share = self.logs.is_link(child, candidate).astype(np.float64)
        else:
            share = self.soft_targets[child, child - candidate].astype(np.float64)
        total = np.bincount(np.repeat(np.arange(len(lengths)), lengths), weights=share, minlength=len(lengths))
        return (share / np.repeat(np.where(total > 0, total, 1), lengths)).astype(np.float32)

    def _mark_same_conversation(self, child: Ints, candidate: Ints) -> NDArray[np.float32]:
        logs = self.logs
        same = (logs.conversation[child] == logs.conversation[candidate]) & (child != candidate)
        return (logs.annotated[child] & (same | logs.is_link(child, candidate))).astype(np.float32)

    @staticmethod
    def _compute_importance_weight(examples: Sequence[Example]) -> Float[Tensor, " key"] | None:
        sampled = [example.sampling_probability for example in examples if example.sampling_probability is not None]
        if not sampled:
            return None
        assert len(sampled) == len(examples)
        return torch.from_numpy((1 / np.concatenate(sampled)).astype(np.float32))

    def _measure_ancestors(self, examples: Sequence[Example]) -> Int[NDArray, "target candidate candidate"]:
        structures = [self.structure] * len(examples) if isinstance(self.structure, ReplyStructure) else self.structure
        assert structures is not None
        distances = [
            structure.measure_ancestors(example.context, example.context_lengths)
            for structure, example in zip(structures, examples, strict=True)
        ]
        widest = max((distance.shape[1] for distance in distances), default=0)
        padding = [((0, 0), *[(0, widest - distance.shape[1])] * 2) for distance in distances]
        none = np.zeros((0, widest, widest), dtype=np.int16)
        return np.concatenate([none, *map(np.pad, distances, padding)])

    def _compute_target_features(self, examples: Sequence[Example]) -> tuple[NDArray[np.float32], ...]:
        """Features of targets as children and as their own candidates, and of pairs."""
        logs = self.logs
        parts: list[tuple[NDArray, ...]] = []
        for example in examples:
            log = int(logs.find_log(example.targets[:1])[0])
            channel, first = logs.channels[log], int(logs.offsets[log])
            targets, lengths = example.targets - first, example.context_lengths
            flat = example.context - first
            inside = np.arange(int(lengths.max())) < lengths[:, None]
            candidates = np.full(inside.shape, -1)
            candidates[inside] = flat
            pairs = features.compute_pair_features(channel, targets, candidates)[inside]
            if self.context_features:
                messages, place = np.unique(flat, return_inverse=True)
                candidates[inside] = place
                words, rarity = tabulate_words((channel.tokens[message] for message in messages.tolist()), logs.ranks)
                around = compute_context_features(channel, messages, candidates, words, rarity)[inside]
                pairs = np.concatenate([pairs, around], axis=1)
            self_features = features.compute_self_features(channel, targets)
            parts.append((features.compute_child_features(channel, targets), self_features, pairs))
        widths = (
            len(features.CHILD_FEATURES),
            len(features.PARENT_FEATURES),
            count_pair_features(self.context_features),
        )
        columns = zip(*parts) if parts else [()] * len(widths)
        return tuple(
            np.concatenate([np.zeros((0, width)), *column], dtype=np.float32) for width, column in zip(widths, columns)
        )

    def _compute_parent_features(self, messages: Ints) -> NDArray[np.float32]:
        logs = self.logs
        out = np.empty((len(messages), len(features.PARENT_FEATURES)), dtype=np.float32)
        log_of_message = logs.find_log(messages)
        for log in np.unique(log_of_message).tolist():
            here = log_of_message == log
            out[here] = features.compute_parent_features(logs.channels[log], messages[here] - int(logs.offsets[log]))
        return out
