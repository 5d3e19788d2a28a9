"""A live channel: a message in, its links out. It holds the latest messages, and where replies are kept, the conversations of
all messages."""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from ramify.disentangle.batch import MessageVectors
from ramify.disentangle.config import DecodingConfig
from ramify.disentangle.data.channel_builder import ChannelBuilder
from ramify.disentangle.data.logs import Logs, encode_texts, find_frame
from ramify.disentangle.data.structure import ReplyStructure
from ramify.disentangle.data.words import WordRanks
from ramify.disentangle.features.conversation import ConversationState
from ramify.disentangle.inference.comembership import Comemberships
from ramify.disentangle.inference.decode import choose_links
from ramify.disentangle.inference.predict import predict_posterior
from ramify.disentangle.inference.result import Message, to_message
from ramify.disentangle.inference.vectors import encode_messages
from ramify.disentangle.posterior import RecordedLinks
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError
from ramify.inference.answers import LinkPrediction
from ramify.tree import Node

_FORGET_EVERY = 16


@dataclass(slots=True)
class _Message:
    """A message that may still be a candidate, or is the latest of its author."""

    ids: NDArray[np.int32]
    vector: torch.Tensor | None
    parents: tuple[int, ...]
    conversation: int
    before_reranking: tuple[int, int]
    """Its parent and conversation before reranking, as numbers of messages."""
    recorded: tuple[int, ...] | None = None
    """Its parents if the channel records them, as in `RecordedLinks`."""


class LiveChannel:
    """Predicts the links of a channel message by message, as `disentangle` would if the log ended there.

    A message keeps the `parents` that it has: places of earlier messages of the channel, from 0. As in a sequence for
    `disentangle`, `()` and None record nothing, and a `self_link` records a start. The first parent decides on the
    conversation. With `ignore_replies`, nothing reads them.

    Raises `RamifyError` for a model that was trained to read later messages.
    """

    def __init__(self, task: ReplyLinking, decoding: DecodingConfig, *, ignore_replies: bool = False) -> None:
        if not task.input.causal:
            raise RamifyError(
                "input.causal=false lets this model read later messages, which a live channel does not have. Use a model "
                "that was trained with input.causal=true."
            )
        if decoding.threshold and decoding.decide == "link":
            raise RamifyError(
                f"decoding.threshold={decoding.threshold} with decoding.decide=link may merge two conversations that a live "
                "channel has already separated. Set decoding.decide=conversation or comembership, or decoding.threshold=0."
            )
        self._task = task
        self._decoding = replace(decoding, online=True)
        input = task.input
        self._builder = ChannelBuilder(
            causal=True, reproduce_published=input.reproduce_published, dataset_tokens=input.dataset_tokens
        )
        self._ranks = WordRanks.build(task.tokenizer, pieces=input.texts == "pieces")
        self._comemberships = Comemberships(np.zeros(1, dtype=np.int64), input.window)
        self._messages: dict[int, _Message] = {}
        self._num_conversations = 0
        self._keeps_replies = not ignore_replies
        # A reply may name any earlier message, so the conversations of all are kept: as decided, and as before reranking.
        self._conversations, self._before_reranking = array("q"), array("q")

    def predict(self, message: Message) -> LinkPrediction:
        """The links of the channel's next message, of which `author`, `time` in seconds, `text`, `kind` and `parents` are
        read."""
        return self.predict_all([message])[0]

    def predict_all(self, messages: Iterable[Message]) -> list[LinkPrediction]:
        """The links of the channel's next messages: as one by one, in less time.

        Raises `TypeError` for anything but a `Node` or a pair of author and text, and `RamifyError` for a parent that is not an
        earlier message, before it reads a message.
        """
        return list(self.predict_each(messages))

    def predict_each(self, messages: Iterable[Message]) -> Iterator[LinkPrediction]:
        """As `predict_all`, but every prediction as soon as it is made. Take all of them before any other call."""
        nodes = [to_message(message) for message in messages]
        recorded = [self._list_recorded(number, node) for number, node in enumerate(nodes, self._builder.count)]
        if self._task.backbone.reads_structure and len(nodes) > 1:
            yield from map(self.predict, nodes)
            return
        if not nodes:
            return
        first = self._builder.count
        logs, kept = self._read(nodes, recorded)
        row = len(kept) - len(nodes)
        new = np.arange(row, len(kept))
        if (vectors := encode_messages(self._task, logs, new)) is not None:
            for message, vector in zip(kept[row:], vectors.select(new).split(1), strict=True):
                message.vector = vector
        for number, (parents, probability) in enumerate(self._decide(logs, kept, row, first), first):
            yield self._add(number, [parent + first - row for parent in parents], probability)

    def _list_recorded(self, number: int, message: Node) -> tuple[int, ...] | None:
        """The parents that the channel records for its message of this number; None if there are none."""
        if not self._keeps_replies or not (message.parents or message.self_link):
            return None
        parents = message.parents or ()
        if strange := [parent for parent in parents if not 0 <= parent < number]:
            raise RamifyError(
                f"message {number} of the channel has the parent {strange[0]}, which is not an earlier message. Give parents "
                "as places in the channel, from 0, or None."
            )
        return (*parents, number) if message.self_link else parents

    def _read(self, messages: list[Node], recorded: list[tuple[int, ...] | None]) -> tuple[Logs, list[_Message]]:
        """Add messages to the channel; a log of all messages that are still held, the new ones last."""
        input, first = self._task.input, self._builder.count
        # The features of a candidate read one message before it.
        since = first - input.window - 1
        if len(messages) > 1 or first % _FORGET_EVERY == 0:
            self._forget(since)
        for message in messages:
            self._builder.update(message)
        channel = self._builder.build(since)
        ids, offsets, _ = encode_texts(self._task.tokenizer, input, messages, channel.tokens[-len(messages) :])
        for number, ((start, stop), parents) in enumerate(zip(pairwise(offsets.tolist()), recorded, strict=True), first):
            self._messages[number] = _Message(ids[start:stop], None, (number,), 0, (number, number), parents)
        kept = [self._messages[number] for number in channel.number.tolist()]
        logs = Logs(
            input=input,
            nodes=(),
            channels=(channel,),
            offsets=np.array([0, len(kept)]),
            annotated=np.zeros(len(kept), dtype=bool),
            links=np.zeros((0, 2), dtype=np.int64),
            ids=np.concatenate([message.ids for message in kept]),
            token_offsets=np.concatenate([[0], np.cumsum([len(message.ids) for message in kept])]),
            ranks=self._ranks,
            frame=find_frame(self._task.tokenizer, self._task.input),
        )
        return logs, kept

    def _decide(self, logs: Logs, kept: list[_Message], row: int, first: int) -> Iterator[tuple[list[int], float]]:
        """The parents, as rows, of the messages from a row on, whose numbers begin with `first`; and the first parent's
        probability."""
        conversation = np.array([message.conversation for message in kept])
        # Unused numbers, in the order in which the new messages may start conversations.
        conversation[row:] = self._num_conversations + np.arange(len(kept) - row)
        recorded, forgotten = self._select_recorded(kept, row, first)
        # A negative row is a message before the window. Its conversation stands at the end, where the row points.
        conversation = np.append(conversation, np.array([self._conversations[number] for number in forgotten], dtype=np.int64))
        vectors = [message.vector for message in kept if message.vector is not None]
        table = MessageVectors(torch.cat(vectors), np.arange(len(kept))) if vectors else None
        structure = self._list_structure(kept, row, first - row) if self._task.backbone.reads_structure else None
        state = self._state(logs, kept, first - row, forgotten)
        for posterior in predict_posterior(
            self._task,
            self._decoding,
            logs,
            start=np.array([row]),
            vectors=table,
            structure=structure,
            state=state,
            recorded=recorded,
        ):
            for message in posterior.messages.tolist():
                held = kept[message]
                parent = int(state.parent[message]) + first - row if held.recorded is None else held.recorded[0]
                held.before_reranking = (parent, int(state.conversation[message]))
            chosen = choose_links(posterior, self._decoding, conversation, self._comemberships)
            for message, links in chosen.group_by_message(posterior.messages).items():
                if (parents := kept[message].recorded) is not None:
                    yield [parent - (first - row) for parent in parents], 1.0
                else:
                    yield [parent for parent, _ in links], links[0][1]

    def _select_recorded(self, kept: list[_Message], row: int, first: int) -> tuple[RecordedLinks, list[int]]:
        """The main recorded parent of each of the messages from a row on, as rows, and the numbers of the parents before the
        window, whose rows are negative."""
        shift, since = first - row, first - self._task.input.window
        main = {number: message.recorded[0] for number, message in enumerate(kept[row:], row) if message.recorded is not None}
        forgotten = sorted({parent for parent in main.values() if parent < since})
        rows = {parent: place - len(forgotten) for place, parent in enumerate(forgotten)}
        return {number: (rows.get(parent, parent - shift),) for number, parent in main.items()}, forgotten

    def _list_structure(self, kept: list[_Message], row: int, shift: int) -> ReplyStructure:
        """The links of the candidates before a row, by rows; number − row is `shift`."""
        structure = ReplyStructure()
        for child in range(max(0, row - self._task.input.window), row):
            for parent in kept[child].parents:
                structure.add_link(child, parent - shift)
        return structure

    def _state(self, logs: Logs, kept: list[_Message], shift: int, forgotten: list[int]) -> ConversationState:
        """The decisions before reranking, by rows. A candidate is among the last rows, where number − row is `shift`. The
        conversations of the `forgotten` messages stand at the end."""
        before = np.array([message.before_reranking for message in kept])
        parent = np.maximum(before[:, 0] - shift, -1)
        earlier = np.array([self._before_reranking[number] for number in forgotten], dtype=np.int64)
        return ConversationState(parent, np.append(before[:, 1], earlier), logs.author, self._task.input.window)

    def _add(self, number: int, parents: list[int], probability: float) -> LinkPrediction:
        message, likeliest = self._messages[number], parents[0]
        message.parents = tuple(parents)
        if likeliest == number:
            message.conversation = self._num_conversations
            self._num_conversations += 1
        elif likeliest in self._messages:
            message.conversation = self._messages[likeliest].conversation
        else:
            message.conversation = self._conversations[likeliest]
        if self._keeps_replies:
            self._conversations.append(message.conversation)
            self._before_reranking.append(message.before_reranking[1])
        return LinkPrediction(
            number, likeliest, probability, message.conversation, tuple(parents[1:]), recorded=message.recorded is not None
        )

    def _forget(self, before: int) -> None:
        self._builder.forget(before)
        for number in self._messages.keys() - self._builder.held:
            del self._messages[number]
