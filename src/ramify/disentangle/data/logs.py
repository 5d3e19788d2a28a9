"""Chat logs laid out for models: columns, words and known links of all messages on one axis."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int
from numpy.typing import NDArray

from ramify.disentangle.config import History
from ramify.disentangle.data.channel import NOBODY, Channel, Ints, is_among
from ramify.disentangle.data.channel_builder import channel_of
from ramify.disentangle.data.pieces import encode_pieces
from ramify.disentangle.data.words import Ranks, encode
from ramify.metrics.conversations import conversations
from ramify.tokenizer import Frame, Tokenizer
from ramify.tree import Node, Tree

_UNREAD = Frame(0, 0)


@dataclass(frozen=True)
class Logs:
    """The messages of log l are `offsets[l]` to `offsets[l + 1]`; within its channel they are counted from 0."""

    history: History
    nodes: tuple[Node, ...]
    channels: tuple[Channel, ...]
    offsets: Ints
    annotated: Bool[NDArray, " message"]
    """Did somebody say what it answers?"""
    links: Int[NDArray, "link 2"]
    """(answering, answered), sorted; a message that starts a conversation answers itself."""
    ids: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    """Ids of the words of all messages, each opened by [CLS]; none before `read_with`."""
    starts: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    """[message + 1]: where its words begin."""
    ranks: Ranks = field(default_factory=Ranks)
    """How common the words are that the tokenizer knows."""
    frame: Frame = _UNREAD
    """Special tokens around the words of a message."""
    cut: int = 0
    """Messages that were longer than what is read of them."""

    @classmethod
    def of(cls, trees: Iterable[Tree], history: History) -> "Logs":
        channels, annotated, links, nodes = [], [], [], []
        offsets = [0]
        for tree in trees:
            channels.append(
                channel_of(tree.nodes, causal=history.causal, faithful=history.faithful, official=history.tokens == "official")
            )
            annotated.append(np.array([node.parents is not None for node in tree.nodes], dtype=bool))
            links += [
                (number + offsets[-1], above + offsets[-1])
                for number, node in enumerate(tree.nodes)
                if node.parents is not None
                for above in ((number, *node.parents) if node.self_link or not node.parents else node.parents)
            ]
            nodes += tree.nodes
            offsets.append(offsets[-1] + len(tree))
        return cls(
            history=history,
            nodes=tuple(nodes),
            channels=tuple(channels),
            offsets=np.array(offsets, dtype=np.int64),
            annotated=np.concatenate([np.zeros(0, dtype=bool), *annotated]),
            links=np.unique(np.array(links, dtype=np.int64).reshape(-1, 2), axis=0),
        )

    def without_starts(self) -> "Logs":
        """Without the links of messages to themselves, for models that find no starts."""
        return replace(self, links=self.links[self.links[:, 0] != self.links[:, 1]])

    def read_with(self, tokenizer: Tokenizer) -> "Logs":
        """With the words, or word pieces, that a tokenizer knows."""
        spelled = [words for channel in self.channels for words in channel.spelled]
        ids, starts, cut = encode_messages(tokenizer, self.history, self.nodes, spelled)
        return replace(
            self,
            ids=ids,
            starts=starts,
            cut=cut,
            ranks=Ranks.of(tokenizer, pieces=self.history.texts == "pieces"),
            frame=frame_of(tokenizer, self.history),
        )

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def log_of(self, messages: Ints) -> Ints:
        return np.searchsorted(self.offsets, messages, side="right") - 1

    @property
    def learnable(self) -> Ints:
        """Messages of which a link is known that is within the window."""
        return np.unique(self.links[self.links[:, 0] - self.links[:, 1] <= self.history.window, 0])

    @property
    def first_known(self) -> Ints:
        """[log]: its first message of which it is known what it answers; its end where there is none."""
        known = np.append(np.flatnonzero(self.annotated), len(self))
        first = known[np.searchsorted(known, self.offsets[:-1])]
        return np.minimum(first, self.offsets[1:])

    def is_link(self, answering: Ints, answered: Ints) -> NDArray[np.bool_]:
        """Which pairs of messages are known to be links."""
        return is_among(self._link_keys, answering * len(self) + answered)

    @cached_property
    def _link_keys(self) -> Ints:
        return self.links[:, 0] * len(self) + self.links[:, 1]

    @cached_property
    def conversation(self) -> Ints:
        """[message]: its conversation, as far as links are known."""
        return conversations(self.links, np.arange(len(self)))

    @cached_property
    def speaker(self) -> Ints:
        """[message]: its author, in each log other numbers; NOBODY where it has none."""
        numbers, taken = [np.zeros(0, dtype=np.int64)], 0
        for channel in self.channels:
            numbers.append(np.where(channel.speaker == NOBODY, NOBODY, channel.speaker + taken))
            taken += int(channel.speaker.max(initial=NOBODY)) + 1
        return np.concatenate(numbers)

    def are_by_one(self, message: Ints, other: Ints) -> NDArray[np.bool_]:
        """Which pairs of messages have the same author."""
        speaker = self.speaker[message]
        return (speaker != NOBODY) & (speaker == self.speaker[other])

    def sizes(self, messages: Ints) -> Ints:
        """How many word ids each of some messages has."""
        return self.starts[messages + 1] - self.starts[messages]

    def words(self, messages: Ints) -> tuple[Ints, Ints]:
        """Word ids of some messages, one message after the other, and how many each has."""
        lengths = self.sizes(messages)
        ends = np.cumsum(lengths)
        places = np.repeat(self.starts[messages] - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
        return self.ids[places].astype(np.int64), lengths


def frame_of(tokenizer: Tokenizer, history: History) -> Frame:
    """The special tokens that `encode_messages` puts around each message: whole words are opened alone."""
    return tokenizer.frame if history.texts == "pieces" else Frame(1, 0)


def encode_messages(
    tokenizer: Tokenizer, history: History, messages: Sequence[Node], spelled: Sequence[tuple[str, ...]]
) -> tuple[NDArray[np.int32], Ints, int]:
    """Ids of all messages as the history has them read; where each begins; and how many were cut."""
    if history.texts == "pieces":
        return encode_pieces(tokenizer, messages, author=history.author_in_text, max_tokens=history.max_tokens)
    return *encode(tokenizer, spelled), 0
