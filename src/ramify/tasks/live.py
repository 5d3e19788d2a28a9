"""A channel that goes on: a message in, its link out, in memory that does not grow with the log."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from ramify.chat.hearing import Hearing
from ramify.chat.logs import Logs, encode_messages
from ramify.chat.structure import Structure
from ramify.errors import RamifyError
from ramify.link_batch import LinkCollator, Vectors
from ramify.nn.ragged import Rows
from ramify.tasks.decoding import ask, collator
from ramify.tree import Node
from ramify.views import Example

if TYPE_CHECKING:
    from ramify.tasks.reply_to import ReplyTo

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


@dataclass(slots=True)
class _Kept:
    """What is still asked for of a message: by all that may answer it, or of its speaker's last one."""

    ids: NDArray[np.int32]
    vector: torch.Tensor | None
    answered: int
    conversation: int


class Live:
    """Hears a channel message by message and says what each answers, as `disentangle` would if the log ended there.

    Raises `RamifyError` for a model that was trained to look at what is said later.
    """

    def __init__(self, task: "ReplyTo") -> None:
        if not task.reading.causal:
            raise RamifyError(
                "this model looks at what is said later, which a live channel has not: use one that was trained with "
                "reading.causal=true."
            )
        if task.config.threshold:
            raise RamifyError("a live channel has one answer a message: task.threshold is for whole logs.")
        self.task = task
        self._hearing = Hearing(causal=True, faithful=task.reading.faithful)
        self._kept: dict[int, _Kept] = {}
        self._conversations = 0

    def hear(self, message: Node) -> Heard:
        """The channel's next message."""
        history, number = self.task.reading, self._hearing.count
        self._hearing.hear(message)
        if number % _FORGET_EVERY == 0:
            # A candidate's features look one message further back.
            self._forget(number - history.window - 1)
        channel = self._hearing.channel()
        ids, _, _ = encode_messages(self.task.tokenizer, history, [message], channel.spelled[-1:])
        self._kept[number] = _Kept(ids, self._vector(ids), number, 0)
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
            vocabulary=self.task.tokenizer.ids,
        )
        row = len(kept) - 1
        reach = min(number, history.window)
        example = Example(np.array([row]), np.ones(1), row - np.arange(reach + 1), np.array([reach + 1]))
        with self.task.evaluating(), torch.no_grad():
            opinion = ask(self.task, self._collator(logs, kept, number - row, reach), [example])
        answered, probability = (each.item() for each in opinion.likeliest())
        own = self._kept[number]
        own.answered = int(answered) + number - row
        if own.answered == number:
            own.conversation = self._conversations
            self._conversations += 1
        else:
            own.conversation = self._kept[own.answered].conversation
        return Heard(number, own.answered, float(probability), own.conversation)

    def _collator(self, logs: Logs, kept: list[_Kept], shift: int, reach: int) -> LinkCollator:
        """`shift`: from rows to numbers, the same for all that may be answered."""
        vectors = [each.vector for each in kept if each.vector is not None]
        table = Vectors(torch.cat(vectors), np.arange(len(kept))) if vectors else None
        collate = collator(self.task, logs, table)
        if not self.task.backbone.reads_structure:
            return collate
        structure = Structure()
        for row in range(len(kept) - 1 - reach, len(kept) - 1):
            structure.link(row, kept[row].answered - shift)
        return replace(collate, structure=structure)

    def _vector(self, ids: NDArray[np.int32]) -> torch.Tensor | None:
        task = self.task
        with task.evaluating(), torch.no_grad():
            words = torch.from_numpy(ids.astype(np.int64)).to(task.device)
            vector = task.backbone.encode(words, Rows.build([len(ids)]).to(task.device))
        return None if vector is None else vector.float().cpu()

    def _forget(self, before: int) -> None:
        self._hearing.forget(before)
        for number in self._kept.keys() - self._hearing.remembered:
            del self._kept[number]
