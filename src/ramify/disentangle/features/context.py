"""Features of a message pair from the messages around it: their words, authors and mentions (Ramify's own).

The 77 features (`features.pairs`) compare two messages and ask who mentioned whom at any time. These ask about the messages of
one window: what the authors wrote in their other messages, which messages already have replies, and who talks with whom. They
read no later message.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ramify.disentangle.data.channel import NO_AUTHOR, Channel, Ints
from ramify.disentangle.features.pairs import MAX_DISTANCE

CONTEXT_FEATURES = (
    "similarity",
    "similarity, share of child",
    "similarity, share of parent",
    "most similar",
    "similarity to a message of parent's author",
    "similarity to a message of parent's author, share of child",
    "parent's similarity to a message of child's author",
    "parent's similarity to a message of child's author, share of parent",
    "similar to the last message of its author",
    "words of child",
    "words of parent",
    "minutes apart, logarithm",
    "messages between",
    "authors between",
    "messages of parent's author between",
    "messages of child's author between",
    "messages that mention parent's author between",
    "parent's author silent, but mentioned between",
    "parent's author was last mentioned by child's",
    "child's author was last mentioned by parent's",
    "parent was last to mention child's author",
    "messages of parent's author that mention child's",
    "parent mentions another",
    "child mentions another in the window",
    "child mentions parent's author, whose last message it is",
)
"""The similarity of two messages is the total rarity of the words that they share."""

_HIGH = 20.0
_LONG = 4.0
_FEW = 5


def compute_context_features(
    channel: Channel,
    messages: Ints,
    places: Int[NDArray, "target candidate"],
    words: csr_array,
    rarity: Float[NDArray, " word"],
) -> Float[NDArray, "target candidate feature"]:
    """`CONTEXT_FEATURES` of targets with their candidates, each target its own first; zeros for the candidate -1.

    `messages` are all targets and candidates, `places` gives each target's candidates by their place in them (-1: none), and
    `words` are the words of each message.
    """
    real = np.greater_equal(places, 0)
    place = np.maximum(places, 0)
    target = place[:, :1]
    similarity, total = _compare_words(words, rarity)
    mentions = _list_mentions(channel, messages)
    known = channel.author[messages] != NO_AUTHOR
    author = np.where(known, channel.author[messages], NO_AUTHOR - 1 - np.arange(len(messages)))[place]
    by_child = (author == author[:, :1]) & real
    by_child[:, 0] = False
    shared = similarity[target, place]
    rank, by_author = _group_by_author(author, real, shared)
    by_child_author = _reduce(by_child, lambda row, other: similarity[place[row], place[row, other][:, None]], np.maximum)
    to_parent, to_child = mentions[target, place] & real, mentions[place, target] & real
    to_parent[:, 0] = to_child[:, 0] = False
    has_mention = channel.has_mention[messages]
    columns = np.arange(places.shape[1])
    mentioning = np.any(mentions, axis=1)[place] & real
    mentioning[:, 0] = False
    mentioned = _reduce(
        mentioning, lambda row, other: mentions[place[row, other][:, None], place[row]] & (other[:, None] < columns), np.add
    )
    author_to_child = _reduce(to_child, lambda row, other: (author[row] == author[row, other][:, None]) & real[row], np.add)
    in_window, _ = _find_first(to_parent)
    last_mentions = _compare_last_mentions(by_child & has_mention[place], to_child, mentions, author, place)
    minutes = channel.minute[messages][target] - channel.minute[messages][place]
    spoken = ~channel.is_system[messages][place] & real
    spoken[:, 0] = False
    lengths = np.log1p(np.diff(words.indptr)) / _LONG
    is_last = rank == 0
    features = [
        np.minimum(shared / _HIGH, 2),
        shared / total[target],
        shared / total[place],
        (columns == shared.argmax(axis=1)[:, None]) & (shared > 0),
        np.minimum(by_author / _HIGH, 2),
        by_author / total[target],
        np.minimum(by_child_author / _HIGH, 2),
        by_child_author / total[place],
        (shared > 0) & is_last,
        np.broadcast_to(lengths[target], places.shape),
        lengths[place],
        np.log1p(np.maximum(np.nan_to_num(minutes), 0)) / _FEW,
        (np.cumsum(spoken, axis=1) - spoken) / MAX_DISTANCE,
        _count_authors_between(rank) / _HIGH,
        np.minimum(rank, _FEW) / _FEW,
        np.minimum(np.cumsum(by_child, axis=1) - by_child, _FEW) / _FEW,
        np.minimum(mentioned, _FEW) / _FEW,
        (mentioned > 0) & is_last,
        *last_mentions,
        np.minimum(author_to_child, _FEW) / _FEW,
        has_mention[place] & ~to_child,
        in_window[:, None] & ~to_parent,
        to_parent & is_last,
    ]
    return np.stack(features, axis=2).astype(np.float32) * real[..., None]


def _compare_words(
    words: csr_array, rarity: Float[NDArray, " word"]
) -> tuple[Float[NDArray, "message message"], Float[NDArray, " message"]]:
    """The total rarity of the words that two messages share (zero of a message with itself), and of each message's own words,
    at least 1."""
    weighted = words.multiply(rarity[None]).tocsr()
    similarity = (words @ weighted.T).toarray().astype(np.float32)
    np.fill_diagonal(similarity, 0)
    return similarity, np.maximum(1, np.asarray(weighted.sum(axis=1)).ravel()).astype(np.float32)


def _list_mentions(channel: Channel, messages: Ints) -> Bool[NDArray, "message message"]:
    """Whether a message mentions the author of another."""
    size = len(messages)
    return channel.mentions_author_of(np.repeat(messages, size), np.tile(messages, size)).reshape(size, size)


def _compare_last_mentions(
    by_child: Bool[NDArray, "target candidate"],
    to_child: Bool[NDArray, "target candidate"],
    mentions: Bool[NDArray, "message message"],
    author: Int[NDArray, "target candidate"],
    place: Int[NDArray, "target candidate"],
) -> tuple[Bool[NDArray, "target candidate"], ...]:
    """Whether the last mention by the child's author is of the parent's author; whether the last mention of the child's author
    is by the parent's author; and whether the parent is that message."""
    has_mentioned, last_by = _find_first(by_child)
    was_mentioned, last_to = _find_first(to_child)
    rows = np.arange(len(place))
    return (
        has_mentioned[:, None] & mentions[place[rows, last_by], :][rows[:, None], place],
        was_mentioned[:, None] & (author == author[rows, last_to][:, None]),
        was_mentioned[:, None] & (np.arange(place.shape[1]) == last_to[:, None]),
    )


def _find_first(flags: Bool[NDArray, "target candidate"]) -> tuple[Bool[NDArray, " target"], Ints]:
    """Whether a target has a flagged candidate, and the nearest one."""
    return np.any(flags, axis=1), np.argmax(flags, axis=1)


def _group_by_author(
    author: Int[NDArray, "target candidate"],
    real: Bool[NDArray, "target candidate"],
    shared: Float[NDArray, "target candidate"],
) -> tuple[Int[NDArray, "target candidate"], Float[NDArray, "target candidate"]]:
    """The number of messages of a candidate's author that are nearer to the target, and the target's greatest similarity to any
    message of that author."""
    _, number = np.unique(author, return_inverse=True)
    # Authors are numbered apart in each target's window, and absent candidates have a number of their own.
    kinds = int(number.max(initial=0)) + 2
    key = (np.where(real, number.reshape(author.shape), kinds - 1) + kinds * np.arange(len(author))[:, None]).ravel()
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    sizes = np.diff(starts, append=len(order))
    rank, most = np.empty(key.shape, dtype=np.int64), np.empty(key.shape, dtype=shared.dtype)
    rank[order] = np.arange(len(order)) - np.repeat(starts, sizes)
    most[order] = np.repeat(np.maximum.reduceat(shared.ravel()[order], starts), sizes)
    rank = rank.reshape(author.shape) - (author == author[:, :1])
    rank[:, 0] = 0
    return np.where(real, rank, 0), np.where(real, most.reshape(author.shape), 0)


def _reduce(
    flags: Bool[NDArray, "target other"], values: Callable[[Ints, Ints], Shaped[NDArray, "flag candidate"]], operation: np.ufunc
) -> Shaped[NDArray, "target candidate"]:
    """The sum, or maximum, over a target's flagged candidates of the values that each gives all candidates; 0 without any."""
    row, other = np.nonzero(flags)
    given = values(row, other)
    out = np.zeros(flags.shape, dtype=np.int64 if operation is np.add else given.dtype)
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    if len(starts):
        out[row[starts]] = operation.reduceat(given, starts, axis=0, dtype=out.dtype)
    return out


def _count_authors_between(rank: Int[NDArray, "target candidate"]) -> Int[NDArray, "target candidate"]:
    """The number of authors whose message nearest to the target lies between it and a candidate."""
    nearest = (rank == 0) & (np.arange(rank.shape[1]) > 0)
    return np.cumsum(nearest, axis=1) - nearest
