"""The 77 features of Kummerfeld et al. (2019): what tells, without understanding a word, whether one message answers another.

They fall into those of the message that answers (the log's own among them), of the one that may be answered, and of the pair,
so that a model need not see the first two again for every pair.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ramify.disentangle.data.channel import NEVER, NOBODY, Channel, Ints

YEARS = tuple(range(2004, 2018))
RATES = (-1, 1, 3, 10, 10_000)
MESSAGES_AGO = (-1, 0, 1, 5, 20, 1000)
MINUTES_AGO = (-1, 0, 2, 10, 10_000)
MINUTES_APART = (-1, 0, 1, 5, 60, 10_000)
FAR = 100
"""Distances in messages and minutes count up to here."""


def _bins(what: str, edges: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"{what} {low}…{high}" for low, high in pairwise(edges))


_LOG = (*(f"year {year}" for year in YEARS), *_bins("messages a minute", RATES))
_MESSAGE = (
    "is system",
    "hour",
    "addresses",
    "spoke before",
    "addressed before",
    *_bins("messages since", MESSAGES_AGO),
    *_bins("minutes since", MINUTES_AGO),
    "is bot",
)
"""`since`: the same speaker's message before."""
ANSWERING = (*_LOG, *(f"answering {name}" for name in _MESSAGE))
ANSWERED = (
    *(f"answered {name}" for name in _MESSAGE),
    "answered has the same speaker after it",
    "answered has the same speaker before it",
)
PAIR = (
    "self",
    "messages apart",
    "not adjacent",
    "minutes apart",
    *_bins("minutes apart", MINUTES_APART),
    "answered addresses answering",
    "answering addresses answered",
    "answering silent between",
    "answered silent between",
    *(f"answering addressed answered {when}" for when in ("before", "after", "between")),
    *(f"answered addressed answering {when}" for when in ("before", "after", "between")),
    "same speaker",
    "share an addressee",
    "common words of answered",
    "common words of answering",
    "no word in common",
    "one word in common",
    "words in common",
    "more than five words in common",
)
FEATURES = (*ANSWERING, *ANSWERED, *PAIR)

_SELF_LESS = _MESSAGE.index("addresses"), _MESSAGE.index("minutes since -1…0")
"""Of a message as its own candidate, what says whom it addresses and when its speaker spoke before is left out."""


def answering(channel: Channel, messages: Ints) -> Float[NDArray, "message feature"]:
    """Of messages as answers: `ANSWERING`."""
    year = channel.year[messages, None] == np.array(YEARS)
    return np.concatenate([year, _one_hot(channel.rate[messages], RATES), _message(channel, messages)], axis=1)


def answered(channel: Channel, messages: Ints) -> Float[NDArray, "message feature"]:
    """Of messages as what another one answers: `ANSWERED`."""
    last = len(channel) - 1
    speaker = channel.speaker
    own = speaker[messages]
    after = (messages < last) & (own == speaker[np.minimum(messages + 1, last)]) & (own != NOBODY)
    # The published code never looks at a log's first line here.
    after_first = channel.number[messages] > int(channel.faithful)
    before = after_first & (own == speaker[np.maximum(messages - 1, 0)]) & (own != NOBODY)
    return np.concatenate([_message(channel, messages), after[:, None], before[:, None]], axis=1, dtype=np.float32)


def answered_by_itself(channel: Channel, messages: Ints) -> Float[NDArray, "message feature"]:
    """Of messages as their own candidates, which start a conversation: `ANSWERED`."""
    features = answered(channel, messages)
    features[:, slice(*_SELF_LESS)] = 0
    features[:, len(_MESSAGE) :] = 0
    return features


def _message(channel: Channel, messages: Ints) -> Float[NDArray, "message feature"]:
    previous = channel.previous[messages]
    spoke = previous != NEVER
    addresses = channel.addresses
    minute = channel.minute[messages]
    columns = [
        channel.system[messages],
        np.where(np.isnan(minute), 0, minute // 60 % 24) / 24,
        addresses[messages],
        spoke,
        spoke & addresses[previous],
        *_one_hot(np.where(spoke, channel.number[messages] - channel.number[previous], -1), MESSAGES_AGO).T,
        *_one_hot(np.where(spoke, channel.minutes_between(previous, messages), -1), MINUTES_AGO).T,
        channel.bot[messages],
    ]
    return np.stack(columns, axis=1).astype(np.float32)


def pairs(
    channel: Channel, targets: Int[NDArray, " target"], candidates: Int[NDArray, "target candidate"]
) -> Float[NDArray, "target candidate feature"]:
    """Of targets with their candidates, each no later than its target: `PAIR`; zeros for the candidate -1."""
    shape = candidates.shape
    late = np.repeat(targets, shape[1])
    early = candidates.ravel()
    out = np.zeros((len(PAIR), len(early)), dtype=np.float32)
    real = early >= 0
    late, early = late[real], early[real]
    itself = late == early
    other = ~itself
    apart = late - early
    minutes = channel.minutes_between(early, late)
    least = -FAR if channel.faithful else 0
    speaker = channel.speaker
    between = {}
    for name, one, two in (("forth", late, early), ("back", early, late)):
        first, last, inside = _calls(channel, one, two, early, late)
        future = np.zeros_like(inside) if channel.causal else last > channel.number[late]
        between[name] = [other & each for each in (first < channel.number[early], future, inside)]
    common = _in_common(channel.words, late, early)
    sizes = channel.word_counts
    columns = [
        itself,
        np.minimum(FAR, apart) / FAR,
        apart > 1,
        np.where(np.isnan(channel.minute[late] + channel.minute[early]), 0, np.clip(minutes, least, FAR)) / FAR,
        *_one_hot(minutes, MINUTES_APART).T,
        channel.names_speaker_of(early, late),
        channel.names_speaker_of(late, early),
        other & (channel.previous[late] < early),
        other & (channel.following[early] > late),
        *between["forth"],
        *between["back"],
        itself | ((speaker[late] == speaker[early]) & (speaker[late] != NOBODY)),
        other & (_in_common(channel.addressed, late, early) > 0),
        other * common / np.maximum(1, sizes[early]),
        other * common / np.maximum(1, sizes[late]),
        other & (common == 0),
        other & (common == 1),
        other & (common > 1),
        other & (common > 5),
    ]
    for row, column in zip(out, columns, strict=True):
        row[real] = column
    return out.T.reshape(*shape, len(PAIR))


def features(
    channel: Channel, targets: Int[NDArray, " target"], candidates: Int[NDArray, "target candidate"]
) -> Float[NDArray, "target candidate feature"]:
    """All of `FEATURES` for targets with their candidates; zeros for the candidate -1."""
    each = np.maximum(candidates, 0)
    late = np.repeat(answering(channel, targets)[:, None], candidates.shape[1], axis=1)
    early = answered(channel, each.ravel()).reshape(*each.shape, len(ANSWERED))
    own = answered_by_itself(channel, targets)[:, None]
    early = np.where((candidates == targets[:, None])[..., None], own, early)
    together = np.concatenate([late, early, pairs(channel, targets, candidates)], axis=2, dtype=np.float32)
    return together * (candidates >= 0)[..., None]


def _one_hot(values: NDArray, edges: Sequence[int]) -> NDArray[np.bool_]:
    """[value bin]: in which of the half-open bins between the edges each value lies, if in any."""
    low, high = np.array(edges[:-1]), np.array(edges[1:])
    return (values[:, None] >= low) & (values[:, None] < high)


def _calls(channel: Channel, one: Ints, two: Ints, early: Ints, late: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """By numbers: when the speaker of one message first and last named that of the other (past the end and -1: never), and
    whether so between two messages."""
    size = channel.size
    caller, called = channel.speaker[one], channel.called[two]
    key = (caller * channel.num_names + called) * size
    known = (caller != NOBODY) & (called != NOBODY)
    # Beyond the last call there stands one that nobody made.
    calls = np.append(channel.calls, np.iinfo(np.int64).max)
    start, stop = np.searchsorted(calls, key), np.searchsorted(calls, key + size)
    ever = known & (stop > start)
    first = np.where(ever, calls[start] - key, size)
    last = np.where(ever, calls[stop - 1] - key, -1)
    following = calls[np.searchsorted(calls, key + channel.number[early] + 1)]
    return first, last, ever & (following < key + channel.number[late])


def _in_common(rows: csr_array, one: Ints, two: Ints) -> Ints:
    """How many ones two rows of a sparse matrix share, pair by pair."""
    return np.asarray(rows[one].multiply(rows[two]).sum(axis=1)).ravel()
