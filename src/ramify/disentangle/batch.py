"""Messages, and for some of them the candidates for what they answer, laid flat."""

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
from ramify.disentangle.data.structure import Structure
from ramify.disentangle.data.words import wording
from ramify.disentangle.features import pairs as features
from ramify.disentangle.features.context import SURROUNDINGS, surroundings
from ramify.nn.ragged import Rows, inverse, length_key
from ramify.tokenizer import Frame


@dataclass(frozen=True)
class LinkBatch(AnyBatch):
    """Targets are messages that answer something; each reads its candidates, itself first, then nearest first."""

    input_ids: Int[Tensor, " total"]
    messages: Rows
    """The words of every message that is a target or a candidate, once."""
    frame: Frame
    """Special tokens around the words of each."""
    target: Int[Tensor, " target"]
    """Which of the messages each target is."""
    candidate: Int[Tensor, " key"]
    """Which of the messages each candidate is, one target's candidates after the other's."""
    candidates: Rows
    """How the flat candidates fall to the targets."""
    is_self: Int[Tensor, " key"]
    """1 where a candidate is the target itself."""
    is_own: Int[Tensor, " key"]
    """1 where a candidate is another message of the target's author."""
    answering: Float[Tensor, "target answering"]
    answered: Float[Tensor, "message answered"]
    answered_by_itself: Float[Tensor, "target answered"]
    pairs: Float[Tensor, "key pair"]
    """Features (`disentangle.features.pairs`, and `disentangle.features.context` where a model reads these)."""
    gold: Float[Tensor, " key"]
    """The share of each candidate in what its target is known, or believed, to answer; zeros for a target of which nothing is
    known."""
    source: Ints
    """The message in the logs behind each target."""
    key_source: Ints
    """The message in the logs behind each candidate."""
    vectors: Float[Tensor, "message vector"] | None = None
    """The messages' vectors, where they were computed before."""
    together: Float[Tensor, " key"] | None = None
    """1 where a candidate is known to be of its target's conversation; the target itself where it is known to start one. Zeros
    for a target of which nothing is known."""
    stands_for: Float[Tensor, " key"] | None = None
    """How many candidates each stands for, where some were left out at random."""
    above: Int[Tensor, "target place place"] | None = None
    """Of each target's candidates: links from one up to another, by the shortest way (0: there is none)."""

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
    def target_of(self) -> Int[Tensor, " key"]:
        """Whose candidate each is."""
        numbers = torch.arange(self.num_targets, device=self.device)
        return torch.repeat_interleave(numbers, self.candidates.lengths, output_size=self.candidates.total)

    @property
    def host_pairs(self) -> tuple[Ints, Ints]:
        """Of each candidate: which of the messages may answer it, and which of them it is; on the host."""
        target, candidate = self.target.cpu().numpy(), self.candidate.cpu().numpy()
        return np.repeat(target, self.candidates.host_lengths), candidate

    @property
    def all_answered(self) -> Float[Tensor, "message_or_target answered"]:
        """Features of candidates: of the messages, and after them of the targets as their own candidates."""
        return torch.cat([self.answered, self.answered_by_itself])

    @property
    def answered_as(self) -> Int[Tensor, " key"]:
        """Which of `all_answered` holds for each candidate."""
        return torch.where(self.is_self.bool(), self.target_of + len(self.messages), self.candidate)

    def only(self, chosen: Int[Tensor, " chosen"], candidates: Rows) -> "LinkBatch":
        """With some of the candidates alone; `candidates` says how they fall to the targets. Not for models to which they are
        a history, in which each has its place."""
        assert self.above is None
        parts = ("candidate", "is_self", "is_own", "pairs", "gold")
        parts += tuple(name for name in ("together", "stands_for") if getattr(self, name) is not None)
        return replace(
            self,
            candidates=candidates,
            key_source=self.key_source[chosen.cpu().numpy()],
            **{name: getattr(self, name).index_select(0, chosen) for name in parts},
        )

    def without_years(self) -> "LinkBatch":
        years = len(features.YEARS)
        return replace(self, answering=torch.nn.functional.pad(self.answering[:, years:], (years, 0)))


def pair_width(with_surroundings: bool) -> int:
    """How many features a pair has."""
    return len(features.PAIR) + (len(SURROUNDINGS) if with_surroundings else 0)


@dataclass(frozen=True)
class Vectors:
    """Vectors of messages, computed once."""

    table: Float[Tensor, "row vector"]
    row: Ints
    """Of every message of the logs; -1 where it has none."""

    def of(self, messages: Ints) -> Float[Tensor, "message vector"]:
        return self.table.index_select(0, torch.from_numpy(self.row[messages]))


@dataclass(frozen=True)
class LinkCollator:
    """Lays examples of `Blocks` flat; with vectors of their messages and what is said to answer what, where a model reads
    these."""

    logs: Logs
    vectors: Vectors | None = None
    """In place of the messages' words."""
    structure: Structure | Sequence[Structure] | None = None
    """What is said to answer what: once for all examples, or for each its own."""
    surroundings: bool = False
    """Whether pairs have features of what is said around them."""
    conversations: bool = False
    """Whether a batch says which candidates are of one conversation with their target."""
    shares: Float[NDArray, "message place"] | None = None
    """What is to be said of every message of the one so many places back, in place of the known links."""

    def __call__(self, examples: Sequence[Example]) -> LinkBatch:
        logs = self.logs
        source = join([each.targets for each in examples])
        key_source = join([each.context for each in examples])
        lengths = join([each.context_lengths for each in examples])
        # Every target is its own first candidate, so the candidates are all the messages there are.
        messages, candidate = np.unique(key_source, return_inverse=True)
        # By length, so that an encoder reads them in few groups.
        order = np.argsort(length_key(logs.sizes(messages)), kind="stable")
        messages, candidate = messages[order], inverse(order)[candidate]
        target = candidate[np.cumsum(lengths) - lengths]
        ids, sizes = logs.words(messages)
        answering, itself, answered, pairs = self._features(examples, messages)
        of_target = np.repeat(source, lengths)
        is_self = of_target == key_source
        if self.shares is None:
            gold = logs.is_link(of_target, key_source).astype(np.float64)
        else:
            gold = self.shares[of_target, of_target - key_source].astype(np.float64)
        share = np.bincount(np.repeat(np.arange(len(source)), lengths), weights=gold, minlength=len(source))
        gold /= np.repeat(np.where(share > 0, share, 1), lengths)
        return LinkBatch(
            input_ids=torch.from_numpy(ids),
            messages=Rows.build(sizes),
            frame=logs.frame,
            target=torch.from_numpy(target),
            candidate=torch.from_numpy(candidate),
            candidates=Rows.build(lengths),
            is_self=torch.from_numpy(is_self.astype(np.int64)),
            is_own=torch.from_numpy((logs.are_by_one(of_target, key_source) & ~is_self).astype(np.int64)),
            answering=torch.from_numpy(answering),
            answered=torch.from_numpy(answered),
            answered_by_itself=torch.from_numpy(itself),
            pairs=torch.from_numpy(pairs),
            gold=torch.from_numpy(gold.astype(np.float32)),
            source=source,
            key_source=key_source,
            vectors=None if self.vectors is None else self.vectors.of(messages),
            together=torch.from_numpy(self._together(of_target, key_source)) if self.conversations else None,
            stands_for=self._stand_for(examples),
            above=None if self.structure is None else torch.from_numpy(self._above(examples)),
        )

    def _together(self, of_target: Ints, key_source: Ints) -> NDArray[np.float32]:
        logs = self.logs
        joined = (logs.conversation[of_target] == logs.conversation[key_source]) & (of_target != key_source)
        return (logs.annotated[of_target] & (joined | logs.is_link(of_target, key_source))).astype(np.float32)

    @staticmethod
    def _stand_for(examples: Sequence[Example]) -> Float[Tensor, " key"] | None:
        chances = [each.chance for each in examples if each.chance is not None]
        if not chances:
            return None
        assert len(chances) == len(examples)
        return torch.from_numpy((1 / np.concatenate(chances)).astype(np.float32))

    def _above(self, examples: Sequence[Example]) -> Int[NDArray, "target place place"]:
        structures = [self.structure] * len(examples) if isinstance(self.structure, Structure) else self.structure
        assert structures is not None
        own = [
            structure.above(each.context, each.context_lengths) for structure, each in zip(structures, examples, strict=True)
        ]
        widest = max((each.shape[1] for each in own), default=0)
        more = [((0, 0), *[(0, widest - each.shape[1])] * 2) for each in own]
        none = np.zeros((0, widest, widest), dtype=np.int16)
        return np.concatenate([none, *map(np.pad, own, more)])

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
            pairs = features.pairs(channel, targets, near)[inside]
            if self.surroundings:
                heard, place = np.unique(flat, return_inverse=True)
                near[inside] = place
                words, rarity = wording((channel.spelled[message] for message in heard.tolist()), logs.ranks)
                around = surroundings(channel, heard, near, words, rarity)[inside]
                pairs = np.concatenate([pairs, around], axis=1)
            own.append((features.answering(channel, targets), features.answered_by_itself(channel, targets), pairs))
        widths = (len(features.ANSWERING), len(features.ANSWERED), pair_width(self.surroundings))
        parts = zip(*own) if own else [()] * len(widths)
        answering, itself, pairs = (
            np.concatenate([np.zeros((0, width)), *part], dtype=np.float32) for width, part in zip(widths, parts)
        )
        answered = np.empty((len(messages), len(features.ANSWERED)), dtype=np.float32)
        of_log = logs.log_of(messages)
        for log in np.unique(of_log).tolist():
            here = of_log == log
            answered[here] = features.answered(logs.channels[log], messages[here] - int(logs.offsets[log]))
        return answering, itself, answered, pairs
