"""The 77 features of Kummerfeld et al. (2019) of a message pair, which need no understanding of words.

They fall into features of the child (with those of the log), of the candidate parent, and of the pair, so that a model need not
read the first two again for every pair.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ramify.disentangle.data.channel import NO_AUTHOR, NO_MESSAGE, Channel, Ints

YEARS = tuple(range(2004, 2018))
RATES = (-1, 1, 3, 10, 10_000)
MESSAGES_AGO = (-1, 0, 1, 5, 20, 1000)
MINUTES_AGO = (-1, 0, 2, 10, 10_000)
MINUTES_APART = (-1, 0, 1, 5, 60, 10_000)
MAX_DISTANCE = 100
"""Distances in messages and minutes are clipped to this."""


def _name_bins(name: str, edges: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"{name} {low}…{high}" for low, high in pairwise(edges))


_LOG = (*(f"year {year}" for year in YEARS), *_name_bins("messages a minute", RATES))
_MESSAGE = (
    "is system",
    "hour",
    "has mention",
    "has previous",
    "previous has mention",
    *_name_bins("messages since", MESSAGES_AGO),
    *_name_bins("minutes since", MINUTES_AGO),
    "is bot",
)
"""`previous`, `since`: the same author's message before."""
CHILD_FEATURES = (*_LOG, *(f"child {name}" for name in _MESSAGE))
PARENT_FEATURES = (
    *(f"parent {name}" for name in _MESSAGE),
    "parent has the same author after it",
    "parent has the same author before it",
)
PAIR_FEATURES = (
    "self",
    "messages apart",
    "not adjacent",
    "minutes apart",
    *_name_bins("minutes apart", MINUTES_APART),
    "parent mentions child's author",
    "child mentions parent's author",
    "child's author silent between",
    "parent's author silent between",
    *(f"child's author mentioned parent's {when}" for when in ("before", "after", "between")),
    *(f"parent's author mentioned child's {when}" for when in ("before", "after", "between")),
    "same author",
    "share a mention",
    "common words, share of parent",
    "common words, share of child",
    "no word in common",
    "one word in common",
    "words in common",
    "more than five words in common",
)
FEATURES = (*CHILD_FEATURES, *PARENT_FEATURES, *PAIR_FEATURES)

_NOT_OF_SELF = _MESSAGE.index("has mention"), _MESSAGE.index("minutes since -1…0")
"""A message as its own candidate has no features of its mentions and of its author's previous message."""


def compute_child_features(channel: Channel, messages: Ints) -> Float[NDArray, "message feature"]:
    """`CHILD_FEATURES` of messages."""
    year = channel.year[messages, None] == np.array(YEARS)
    features = [year, _one_hot(channel.rate[messages], RATES), _compute_message_features(channel, messages)]
    return np.concatenate(features, axis=1)


def compute_parent_features(channel: Channel, messages: Ints) -> Float[NDArray, "message feature"]:
    """`PARENT_FEATURES` of messages."""
    last = len(channel) - 1
    author = channel.author
    message_author = author[messages]
    after = (messages < last) & (message_author == author[np.minimum(messages + 1, last)]) & (message_author != NO_AUTHOR)
    # The published code never looks at a log's first line here.
    after_first = channel.number[messages] > int(channel.reproduce_published)
    before = after_first & (message_author == author[np.maximum(messages - 1, 0)]) & (message_author != NO_AUTHOR)
    features = [_compute_message_features(channel, messages), after[:, None], before[:, None]]
    return np.concatenate(features, axis=1, dtype=np.float32)


def compute_self_features(channel: Channel, messages: Ints) -> Float[NDArray, "message feature"]:
    """`PARENT_FEATURES` of messages as their own candidates, which stand for a start."""
    features = compute_parent_features(channel, messages)
    features[:, slice(*_NOT_OF_SELF)] = 0
    features[:, len(_MESSAGE) :] = 0
    return features


def _compute_message_features(channel: Channel, messages: Ints) -> Float[NDArray, "message feature"]:
    previous = channel.previous[messages]
    has_previous = previous != NO_MESSAGE
    has_mention = channel.has_mention
    minute = channel.minute[messages]
    messages_since = np.where(has_previous, channel.number[messages] - channel.number[previous], -1)
    columns = [
        channel.is_system[messages],
        np.where(np.isnan(minute), 0, minute // 60 % 24) / 24,
        has_mention[messages],
        has_previous,
        has_previous & has_mention[previous],
        *_one_hot(messages_since, MESSAGES_AGO).T,
        *_one_hot(np.where(has_previous, channel.count_minutes(previous, messages), -1), MINUTES_AGO).T,
        channel.is_bot[messages],
    ]
    return np.stack(columns, axis=1).astype(np.float32)


def compute_pair_features(
    channel: Channel, targets: Int[NDArray, " target"], candidates: Int[NDArray, "target candidate"]
) -> Float[NDArray, "target candidate feature"]:
    """`PAIR_FEATURES` of targets with their candidates, none later than its target; zeros for the candidate -1."""
    shape = candidates.shape
    child = np.repeat(targets, shape[1])
    parent = candidates.ravel()
    out = np.zeros((len(PAIR_FEATURES), len(parent)), dtype=np.float32)
    real = parent >= 0
    child, parent = child[real], parent[real]
    is_self = child == parent
    other = ~is_self
    distance = child - parent
    minutes = channel.count_minutes(parent, child)
    least = -MAX_DISTANCE if channel.reproduce_published else 0
    author = channel.author
    mentioned = []
    for source, target in ((child, parent), (parent, child)):
        first, last, between = _find_mentions(channel, source, target, parent, child)
        after = np.zeros_like(between) if channel.causal else last > channel.number[child]
        mentioned += [other & span for span in (first < channel.number[parent], after, between)]
    common = _count_common(channel.words, child, parent)
    sizes = channel.word_counts
    columns = [
        is_self,
        np.minimum(MAX_DISTANCE, distance) / MAX_DISTANCE,
        distance > 1,
        np.where(np.isnan(channel.minute[child] + channel.minute[parent]), 0, np.clip(minutes, least, MAX_DISTANCE))
        / MAX_DISTANCE,
        *_one_hot(minutes, MINUTES_APART).T,
        channel.mentions_author_of(parent, child),
        channel.mentions_author_of(child, parent),
        other & (channel.previous[child] < parent),
        other & (channel.next[parent] > child),
        *mentioned,
        is_self | ((author[child] == author[parent]) & (author[child] != NO_AUTHOR)),
        other & (_count_common(channel.mentions, child, parent) > 0),
        other * common / np.maximum(1, sizes[parent]),
        other * common / np.maximum(1, sizes[child]),
        other & (common == 0),
        other & (common == 1),
        other & (common > 1),
        other & (common > 5),
    ]
    for row, column in zip(out, columns, strict=True):
        row[real] = column
    return out.T.reshape(*shape, len(PAIR_FEATURES))


def compute_features(
    channel: Channel, targets: Int[NDArray, " target"], candidates: Int[NDArray, "target candidate"]
) -> Float[NDArray, "target candidate feature"]:
    """All `FEATURES` of targets with their candidates; zeros for the candidate -1."""
    messages = np.maximum(candidates, 0)
    child = np.repeat(compute_child_features(channel, targets)[:, None], candidates.shape[1], axis=1)
    parent = compute_parent_features(channel, messages.ravel()).reshape(*messages.shape, len(PARENT_FEATURES))
    self_features = compute_self_features(channel, targets)[:, None]
    parent = np.where((candidates == targets[:, None])[..., None], self_features, parent)
    pair = compute_pair_features(channel, targets, candidates)
    return np.concatenate([child, parent, pair], axis=2, dtype=np.float32) * (candidates >= 0)[..., None]


def _one_hot(values: NDArray, edges: Sequence[int]) -> NDArray[np.bool_]:
    """[value bin]: the half-open bin between two edges that holds each value, if any does."""
    low, high = np.array(edges[:-1]), np.array(edges[1:])
    return (values[:, None] >= low) & (values[:, None] < high)


def _find_mentions(
    channel: Channel, source: Ints, target: Ints, parent: Ints, child: Ints
) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Pair by pair: the numbers of the first and the last message in which the source's author mentions the target's (past the
    end and -1 where there is none), and whether there is one between parent and child."""
    end = channel.end
    author, name = channel.author[source], channel.exact_name[target]
    key = (author * channel.num_names + name) * end
    known = (author != NO_AUTHOR) & (name != NO_AUTHOR)
    # A key behind the last event, so that every search finds one.
    events = np.append(channel.mention_events, np.iinfo(np.int64).max)
    start, stop = np.searchsorted(events, key), np.searchsorted(events, key + end)
    ever = known & (stop > start)
    first = np.where(ever, events[start] - key, end)
    last = np.where(ever, events[stop - 1] - key, -1)
    following = events[np.searchsorted(events, key + channel.number[parent] + 1)]
    return first, last, ever & (following < key + channel.number[child])


def _count_common(rows: csr_array, one: Ints, two: Ints) -> Ints:
    """The number of ones that two rows of a sparse matrix share, pair by pair."""
    return np.asarray(rows[one].multiply(rows[two]).sum(axis=1)).ravel()
