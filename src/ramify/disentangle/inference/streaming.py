"""A channel that goes on: a message in, its link out, in memory that does not grow with the log."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from ramify.batching.views.base import Example
from ramify.disentangle.batch import Vectors
from ramify.disentangle.data.channel_builder import Hearing
from ramify.disentangle.data.logs import Logs, encode_messages, frame_of
from ramify.disentangle.data.structure import Structure
from ramify.disentangle.data.words import Ranks
from ramify.disentangle.features.conversation import Course
from ramify.disentangle.inference.comembership import Comembership
from ramify.disentangle.inference.decode import Opinion, ask, collator, keep_vectors, opinions
from ramify.errors import RamifyError
from ramify.tree import Node

if TYPE_CHECKING:
    from ramify.disentangle.task import ReplyTo

_FORGET_EVERY = 16


@dataclass(frozen=True)
class Heard:
    """What a message was found to answer."""

    number: int
    """Its place in the channel, from 0."""
    answered: int
    """The place of the message that it answers; its own where it starts a conversation."""
    probability: float
    conversation: int
    """They are numbered from 0 as they begin."""
    also: tuple[int, ...] = ()
    """Further messages of its conversation that it answers (`task.threshold`)."""


@dataclass(slots=True)
class _Kept:
    """What is still asked for of a message: by all that may answer it, or of its speaker's last one."""

    ids: NDArray[np.int32]
    vector: torch.Tensor | None
    answered: tuple[int, ...]
    conversation: int
    at_first_sight: tuple[int, int]
    """What it answered, and its conversation, before a second look; both by the numbers of messages."""


class Live:
    """Hears a channel message by message and says what each answers, as `disentangle` would if the log ended there.

    Raises `RamifyError` for a model that was trained to look at what is said later.
    """

    def __init__(self, task: "ReplyTo") -> None:
        if not task.input.causal:
            raise RamifyError(
                "this model looks at what is said later, which a live channel has not: use one that was trained with "
                "input.causal=true."
            )
        if task.config.threshold and task.config.decide == "link":
            raise RamifyError(
                "several answers may make one conversation of two, which a live channel has told apart already: where "
                "conversations decide (task.decide=conversation or comembership) it knows task.threshold, else that is for "
                "whole logs."
            )
        self.task = task
        self._hearing = Hearing(causal=True, faithful=task.input.faithful, official=task.input.tokens == "official")
        self._ranks = Ranks.of(task.tokenizer, pieces=task.input.texts == "pieces")
        self._comembership = Comembership(task.input.window)
        self._kept: dict[int, _Kept] = {}
        self._conversations = 0

    def hear(self, message: Node) -> Heard:
        """The channel's next message: its `author`, `time` in seconds, `text` and `kind` are read."""
        return self.hear_all([message])[0]

    def hear_all(self, messages: Iterable[Node]) -> list[Heard]:
        """The channel's next messages, which are decided on together: the answers are those of one by one, in less time.

        Raises `TypeError`, before anything is heard, for what is no `Node`.
        """
        return list(self.hear_each(messages))

    def hear_each(self, messages: Iterable[Node]) -> Iterator[Heard]:
        """The same, every answer as soon as it is found; ask for all of them before anything else is asked of the model."""
        messages = list(messages)
        if strange := [each for each in messages if not isinstance(each, Node)]:
            raise TypeError(f"a message is a ramify.Node(text, author=…, time=…), not {type(strange[0]).__name__}.")
        if self.task.backbone.reads_structure and len(messages) > 1:
            yield from map(self.hear, messages)
            return
        if not messages:
            return
        history, first = self.task.input, self._hearing.count
        # A candidate's features look one message further back.
        since = first - history.window - 1
        if len(messages) > 1 or first % _FORGET_EVERY == 0:
            self._forget(since)
        for message in messages:
            self._hearing.hear(message)
        channel = self._hearing.channel(since)
        ids, starts, _ = encode_messages(self.task.tokenizer, history, messages, channel.spelled[-len(messages) :])
        for number, (start, stop) in enumerate(pairwise(starts.tolist()), first):
            own = ids[start:stop]
            self._kept[number] = _Kept(own, None, (number,), 0, (number, number))
        kept = [self._kept[each] for each in channel.number.tolist()]
        logs = Logs(
            history=history,
            nodes=(),
            channels=(channel,),
            offsets=np.array([0, len(kept)]),
            annotated=np.zeros(len(kept), dtype=bool),
            links=np.zeros((0, 2), dtype=np.int64),
            ids=np.concatenate([each.ids for each in kept]),
            starts=np.concatenate([[0], np.cumsum([len(each.ids) for each in kept])]),
            ranks=self._ranks,
            frame=frame_of(self.task.tokenizer, history),
        )
        row = len(kept) - len(messages)
        new = np.arange(row, len(kept))
        if (vectors := keep_vectors(self.task, logs, new)) is not None:
            for each, vector in zip(kept[row:], vectors.of(new).split(1), strict=True):
                each.vector = vector
        for number, (answered, probability) in enumerate(self._answers(logs, kept, row, first), first):
            yield self._decided(number, [above + first - row for above in answered], probability)

    def _answers(self, logs: Logs, kept: list[_Kept], row: int, first: int) -> Iterator[tuple[list[int], float]]:
        """Of the messages from a row on, whose numbers begin with `first`: the rows that each answers, and how probable the
        first of them is."""
        conversation = np.array([each.conversation for each in kept])
        # Numbers that no conversation has so far, in the order in which they may begin.
        conversation[row:] = self._conversations + np.arange(len(kept) - row)
        vectors = [each.vector for each in kept if each.vector is not None]
        table = Vectors(torch.cat(vectors), np.arange(len(kept))) if vectors else None
        course = self._course(logs, kept, first - row)
        for opinion in self._opinions(logs, kept, row, first, table, course):
            for message in opinion.messages.tolist():
                kept[message].at_first_sight = (
                    int(course.answered[message]) + first - row,
                    int(course.conversation[message]),
                )
            chosen = opinion.choose(self.task.config, conversation, lambda _: self._comembership)
            for answers in chosen.by_message(opinion.messages).values():
                yield [above for above, _ in answers], answers[0][1]

    def _course(self, logs: Logs, kept: list[_Kept], apart: int) -> Course:
        """What became of the messages at first sight: of those that may still be answered, which are the last rows, numbers
        and rows lie `apart`."""
        before = np.array([each.at_first_sight for each in kept])
        return Course(np.maximum(before[:, 0] - apart, -1), before[:, 1], logs.speaker, self.task.input.window)

    def _opinions(
        self, logs: Logs, kept: list[_Kept], row: int, first: int, table: Vectors | None, course: Course
    ) -> Iterator[Opinion]:
        if row < len(kept) - 1:
            yield from opinions(self.task, logs, start=np.array([row]), vectors=table, course=course, live=True)
            return
        reach = min(first, self.task.input.window)
        collate = collator(self.task, logs, table)
        if self.task.backbone.reads_structure:
            structure = Structure()
            for above in range(row - reach, row):
                for answered in kept[above].answered:
                    structure.link(above, answered - (first - row))
            collate = replace(collate, structure=structure)
        example = Example(np.array([row]), np.ones(1), row - np.arange(reach + 1), np.array([reach + 1]))
        with self.task.evaluating(), torch.no_grad():
            opinion = ask(self.task, collate, [example])
        second = self.task.second
        yield from [opinion] if second is None or second.hindsight else second.again([opinion], course)

    def _decided(self, number: int, answered: list[int], probability: float) -> Heard:
        own, likeliest = self._kept[number], answered[0]
        own.answered = tuple(answered)
        if likeliest == number:
            own.conversation = self._conversations
            self._conversations += 1
        else:
            own.conversation = self._kept[likeliest].conversation
        return Heard(number, likeliest, probability, own.conversation, tuple(answered[1:]))

    def _forget(self, before: int) -> None:
        self._hearing.forget(before)
        for number in self._kept.keys() - self._hearing.remembered:
            del self._kept[number]
