"""Chat logs laid out for models: columns, tokens and gold links of all messages on one axis."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int
from numpy.typing import NDArray

from ramify.disentangle.config import ChatInput
from ramify.disentangle.data.channel import NO_AUTHOR, Channel, Ints, is_member
from ramify.disentangle.data.channel_builder import build_channel
from ramify.disentangle.data.pieces import encode_pieces
from ramify.disentangle.data.words import WordRanks, encode_words
from ramify.metrics.conversations import find_conversations
from ramify.progress import track
from ramify.tokenizer import Frame, Tokenizer
from ramify.tree import Node, Tree

_NO_FRAME = Frame(0, 0)


@dataclass(frozen=True)
class Logs:
    """The messages of log l are `offsets[l]` to `offsets[l + 1]`; its channel counts them from 0."""

    input: ChatInput
    nodes: tuple[Node, ...]
    channels: tuple[Channel, ...]
    offsets: Ints
    annotated: Bool[NDArray, " message"]
    """Whether a message's parents are known."""
    links: Int[NDArray, "link 2"]
    """Gold links (child, parent), sorted. A message that starts a conversation is its own parent."""
    ids: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    """Token ids of all messages, each opened by [CLS]; empty before `tokenize`."""
    token_offsets: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    """[message + 1]: where each message starts in `ids`."""
    ranks: WordRanks = field(default_factory=WordRanks)
    """Frequency ranks of the tokenizer's words."""
    frame: Frame = _NO_FRAME
    """The special tokens around each message."""
    num_truncated: int = 0
    """Messages that were cut to the input's `max_tokens`."""

    @classmethod
    def build(cls, trees: Iterable[Tree], input: ChatInput) -> "Logs":
        channels, annotated, links, nodes = [], [], [], []
        offsets = [0]
        for tree in trees:
            channels.append(
                build_channel(
                    tree.nodes,
                    causal=input.causal,
                    reproduce_published=input.reproduce_published,
                    dataset_tokens=input.dataset_tokens,
                )
            )
            annotated.append(np.array([node.parents is not None for node in tree.nodes], dtype=bool))
            links += [
                (child + offsets[-1], parent + offsets[-1])
                for child, node in enumerate(tree.nodes)
                if node.parents is not None
                for parent in ((child, *node.parents) if node.self_link or not node.parents else node.parents)
            ]
            nodes += tree.nodes
            offsets.append(offsets[-1] + len(tree))
        return cls(
            input=input,
            nodes=tuple(nodes),
            channels=tuple(channels),
            offsets=np.array(offsets, dtype=np.int64),
            annotated=np.concatenate([np.zeros(0, dtype=bool), *annotated]),
            links=np.unique(np.array(links, dtype=np.int64).reshape(-1, 2), axis=0),
        )

    def drop_starts(self) -> "Logs":
        """Without the links of messages to themselves, for models that find no starts."""
        return replace(self, links=self.links[self.links[:, 0] != self.links[:, 1]])

    def tokenize(self, tokenizer: Tokenizer) -> "Logs":
        """With the token ids of all messages."""
        tokens = [words for channel in self.channels for words in channel.tokens]
        ids, offsets, num_truncated = encode_texts(tokenizer, self.input, self.nodes, tokens)
        return replace(
            self,
            ids=ids,
            token_offsets=offsets,
            num_truncated=num_truncated,
            ranks=WordRanks.build(tokenizer, pieces=self.input.texts == "pieces"),
            frame=find_frame(tokenizer, self.input),
        )

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def find_log(self, messages: Ints) -> Ints:
        return np.searchsorted(self.offsets, messages, side="right") - 1

    @property
    def linked(self) -> Ints:
        """Messages with a gold link within the window."""
        return np.unique(self.links[self.links[:, 0] - self.links[:, 1] <= self.input.window, 0])

    @property
    def first_annotated(self) -> Ints:
        """[log]: its first annotated message; its end where there is none."""
        annotated = np.append(np.flatnonzero(self.annotated), len(self))
        first = annotated[np.searchsorted(annotated, self.offsets[:-1])]
        return np.minimum(first, self.offsets[1:])

    def is_link(self, child: Ints, parent: Ints) -> NDArray[np.bool_]:
        """Which pairs of messages are gold links."""
        return is_member(self._link_keys, child * len(self) + parent)

    @cached_property
    def _link_keys(self) -> Ints:
        return self.links[:, 0] * len(self) + self.links[:, 1]

    @cached_property
    def conversation(self) -> Ints:
        """[message]: its conversation by gold links."""
        return find_conversations(self.links, np.arange(len(self)))

    @cached_property
    def author(self) -> Ints:
        """[message]: its author, with different numbers in each log; NO_AUTHOR where it has none."""
        numbers, taken = [np.zeros(0, dtype=np.int64)], 0
        for channel in self.channels:
            numbers.append(np.where(channel.author == NO_AUTHOR, NO_AUTHOR, channel.author + taken))
            taken += int(channel.author.max(initial=NO_AUTHOR)) + 1
        return np.concatenate(numbers)

    def have_same_author(self, message: Ints, other: Ints) -> NDArray[np.bool_]:
        """Which pairs of messages have the same author."""
        author = self.author[message]
        return (author != NO_AUTHOR) & (author == self.author[other])

    def count_tokens(self, messages: Ints) -> Ints:
        return self.token_offsets[messages + 1] - self.token_offsets[messages]

    def select_tokens(self, messages: Ints) -> tuple[Ints, Ints]:
        """Token ids of some messages, one message after the other, and the number of each."""
        lengths = self.count_tokens(messages)
        ends = np.cumsum(lengths)
        places = np.repeat(self.token_offsets[messages] - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
        return self.ids[places].astype(np.int64), lengths


def find_frame(tokenizer: Tokenizer, input: ChatInput) -> Frame:
    """The special tokens that `encode_texts` puts around each message. Whole words are only opened, not closed."""
    return tokenizer.layout(input.layout).frame if input.texts == "pieces" else Frame(1, 0)


def encode_texts(
    tokenizer: Tokenizer, input: ChatInput, messages: Sequence[Node], tokens: Sequence[tuple[str, ...]]
) -> tuple[NDArray[np.int32], Ints, int]:
    """Token ids of all messages by the input settings, the offset of each in them, and the number of messages that were cut."""
    if input.texts == "pieces":
        layout = tokenizer.layout(input.layout)
        return encode_pieces(tokenizer, messages, author=input.author_in_text, max_tokens=input.max_tokens, layout=layout)
    return *encode_words(tokenizer, track("encoding texts", tokens, len(tokens))), 0
