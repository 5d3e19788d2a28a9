"""A live channel: a message in, its links out, in memory that does not grow with the log."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from ramify.batching.views.base import Example
from ramify.disentangle.batch import MessageVectors
from ramify.disentangle.config import DecodingConfig
from ramify.disentangle.data.channel_builder import ChannelBuilder
from ramify.disentangle.data.logs import Logs, encode_texts, find_frame
from ramify.disentangle.data.structure import ReplyStructure
from ramify.disentangle.data.words import WordRanks
from ramify.disentangle.features.conversation import ConversationState
from ramify.disentangle.inference.comembership import Comembership
from ramify.disentangle.inference.decode import choose_links
from ramify.disentangle.inference.predict import encode_messages, make_collator, predict_examples, predict_posterior
from ramify.disentangle.posterior import LinkPosterior
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError
from ramify.tree import Node

_FORGET_EVERY = 16


@dataclass(frozen=True)
class LinkPrediction:
    """The predicted links of a message of a live channel."""

    number: int
    """The message's place in the channel, from 0."""
    parent: int
    """The place of its likeliest parent; its own where it starts a conversation."""
    probability: float
    conversation: int
    """Conversations are numbered from 0 as they start."""
    also: tuple[int, ...] = ()
    """Further parents within its conversation (`decoding.threshold`)."""


@dataclass(slots=True)
class _Message:
    """A message that may still be a candidate, or is the latest of its author."""

    ids: NDArray[np.int32]
    vector: torch.Tensor | None
    parents: tuple[int, ...]
    conversation: int
    before_reranking: tuple[int, int]
    """Its parent and conversation before reranking, as numbers of messages."""


class LiveChannel:
    """Predicts the links of a channel message by message, as `disentangle` would if the log ended there.

    Raises `RamifyError` for a model that was trained to read later messages.
    """

    def __init__(self, task: ReplyLinking, decoding: DecodingConfig) -> None:
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
        self._comembership = Comembership(input.window)
        self._messages: dict[int, _Message] = {}
        self._num_conversations = 0

    def predict(self, message: Node) -> LinkPrediction:
        """The links of the channel's next message, of which `author`, `time` in seconds, `text` and `kind` are read."""
        return self.predict_all([message])[0]

    def predict_all(self, messages: Iterable[Node]) -> list[LinkPrediction]:
        """The links of the channel's next messages: as one by one, in less time.

        Raises `TypeError` for anything but a `Node`, before it reads a message.
        """
        return list(self.predict_each(messages))

    def predict_each(self, messages: Iterable[Node]) -> Iterator[LinkPrediction]:
        """As `predict_all`, but every prediction as soon as it is made. Take all of them before any other call."""
        messages = list(messages)
        if strange := [each for each in messages if not isinstance(each, Node)]:
            raise TypeError(f"A message is a ramify.Node(text, author=…, time=…), not {type(strange[0]).__name__}.")
        if self._task.backbone.reads_structure and len(messages) > 1:
            yield from map(self.predict, messages)
            return
        if not messages:
            return
        first = self._builder.count
        logs, kept = self._read(messages)
        row = len(kept) - len(messages)
        new = np.arange(row, len(kept))
        if (vectors := encode_messages(self._task, logs, new)) is not None:
            for each, vector in zip(kept[row:], vectors.select(new).split(1), strict=True):
                each.vector = vector
        for number, (parents, probability) in enumerate(self._decide(logs, kept, row, first), first):
            yield self._add(number, [parent + first - row for parent in parents], probability)

    def _read(self, messages: list[Node]) -> tuple[Logs, list[_Message]]:
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
        for number, (start, stop) in enumerate(pairwise(offsets.tolist()), first):
            self._messages[number] = _Message(ids[start:stop], None, (number,), 0, (number, number))
        kept = [self._messages[each] for each in channel.number.tolist()]
        logs = Logs(
            input=input,
            nodes=(),
            channels=(channel,),
            offsets=np.array([0, len(kept)]),
            annotated=np.zeros(len(kept), dtype=bool),
            links=np.zeros((0, 2), dtype=np.int64),
            ids=np.concatenate([each.ids for each in kept]),
            token_offsets=np.concatenate([[0], np.cumsum([len(each.ids) for each in kept])]),
            ranks=self._ranks,
            frame=find_frame(self._task.tokenizer, self._task.input),
        )
        return logs, kept

    def _decide(self, logs: Logs, kept: list[_Message], row: int, first: int) -> Iterator[tuple[list[int], float]]:
        """The parents, as rows, of the messages from a row on, whose numbers begin with `first`; and the first parent's
        probability."""
        conversation = np.array([each.conversation for each in kept])
        # Unused numbers, in the order in which the new messages may start conversations.
        conversation[row:] = self._num_conversations + np.arange(len(kept) - row)
        vectors = [each.vector for each in kept if each.vector is not None]
        table = MessageVectors(torch.cat(vectors), np.arange(len(kept))) if vectors else None
        state = self._state(logs, kept, first - row)
        for posterior in self._posteriors(logs, kept, row, first, table, state):
            for message in posterior.messages.tolist():
                kept[message].before_reranking = (
                    int(state.parent[message]) + first - row,
                    int(state.conversation[message]),
                )
            chosen = choose_links(posterior, self._decoding, conversation, lambda _: self._comembership)
            for links in chosen.group_by_message(posterior.messages).values():
                yield [parent for parent, _ in links], links[0][1]

    def _state(self, logs: Logs, kept: list[_Message], shift: int) -> ConversationState:
        """The decisions before reranking, by rows. A candidate is among the last rows, where number − row is `shift`."""
        before = np.array([each.before_reranking for each in kept])
        return ConversationState(np.maximum(before[:, 0] - shift, -1), before[:, 1], logs.author, self._task.input.window)

    def _posteriors(
        self, logs: Logs, kept: list[_Message], row: int, first: int, table: MessageVectors | None, state: ConversationState
    ) -> Iterator[LinkPosterior]:
        task, decoding = self._task, self._decoding
        if row < len(kept) - 1:
            yield from predict_posterior(task, decoding, logs, start=np.array([row]), vectors=table, state=state)
            return
        reach = min(first, task.input.window)
        collate = make_collator(task, logs, table)
        if task.backbone.reads_structure:
            structure = ReplyStructure()
            for child in range(row - reach, row):
                for parent in kept[child].parents:
                    structure.add_link(child, parent - (first - row))
            collate = replace(collate, structure=structure)
        example = Example(np.array([row]), np.ones(1), row - np.arange(reach + 1), np.array([reach + 1]))
        posterior = predict_examples(task, decoding, collate, [example])
        reranker = task.reranker
        yield from [posterior] if reranker is None or reranker.lookahead else reranker.rerank([posterior], state)

    def _add(self, number: int, parents: list[int], probability: float) -> LinkPrediction:
        own, likeliest = self._messages[number], parents[0]
        own.parents = tuple(parents)
        if likeliest == number:
            own.conversation = self._num_conversations
            self._num_conversations += 1
        else:
            own.conversation = self._messages[likeliest].conversation
        return LinkPrediction(number, likeliest, probability, own.conversation, tuple(parents[1:]))

    def _forget(self, before: int) -> None:
        self._builder.forget(before)
        for number in self._messages.keys() - self._builder.held:
            del self._messages[number]
