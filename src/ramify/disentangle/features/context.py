"""What else tells whether one message answers another: what was said around them, by whom, to whom, and about what.

The 77 features (`features.pairs`) compare two messages and ask who spoke to whom at any time. These ask about the messages of
one window: what its speakers talked about in other messages of theirs, what has been answered already, and who is talking with
whom. They look at nothing that is said later.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ramify.disentangle.data.channel import NOBODY, Channel, Ints
from ramify.disentangle.features.pairs import FAR

SURROUNDINGS = (
    "alike",
    "alike, share of answering",
    "alike, share of answered",
    "most alike",
    "alike a message of answered's speaker",
    "alike a message of answered's speaker, share of answering",
    "answered alike a message of answering's speaker",
    "answered alike a message of answering's speaker, share of answered",
    "alike the last message of its speaker",
    "words of answering",
    "words of answered",
    "minutes apart, logarithm",
    "messages between",
    "speakers between",
    "messages of answered's speaker between",
    "messages of answering's speaker between",
    "messages to answered's speaker between",
    "answered's speaker silent, but addressed between",
    "answered's speaker was last addressed by answering's",
    "answering's speaker was last addressed by answered's",
    "answered was last to address answering's speaker",
    "messages of answered's speaker to answering's",
    "answered addresses another",
    "answering addresses another in sight",
    "answering addresses answered's speaker, whose last message it is",
)
"""Two messages are alike by the rarity of the words that they share."""

_MUCH = 20.0
_LONG = 4.0
_FEW = 5


def surroundings(
    channel: Channel, heard: Ints, near: Int[NDArray, "target candidate"], words: csr_array, rarity: Float[NDArray, " word"]
) -> Float[NDArray, "target candidate feature"]:
    """Of targets with their candidates, each target its own first: `SURROUNDINGS`.

    `heard` are the messages of the channel that are targets or candidates, `near` says by place which is whose (-1: none), and
    `words` which words each of them says. Zeros for the candidate -1.
    """
    real = np.greater_equal(near, 0)
    place = np.maximum(near, 0)
    target = place[:, :1]
    alike, sum_of = _alike(words, rarity)
    named = _named(channel, heard)
    speaker = np.where(channel.speaker[heard] == NOBODY, NOBODY - 1 - np.arange(len(heard)), channel.speaker[heard])
    own = speaker[place]
    mine = (own == own[:, :1]) & real
    mine[:, 0] = False
    shared = alike[target, place]
    again, theirs = _of_one_speaker(own, real, shared)
    with_mine = _over(mine, lambda row, other: alike[place[row], place[row, other][:, None]], np.maximum)
    to_candidate, to_target = named[target, place] & real, named[place, target] & real
    to_candidate[:, 0] = to_target[:, 0] = False
    anybody = channel.addresses[heard]
    columns = np.arange(near.shape[1])
    calling = np.any(named, axis=1)[place] & real
    calling[:, 0] = False
    called = _over(
        calling, lambda row, other: named[place[row, other][:, None], place[row]] & (other[:, None] < columns), np.add
    )
    to_me = _over(to_target, lambda row, other: (own[row] == own[row, other][:, None]) & real[row], np.add)
    calls, caller = _first(mine & anybody[place])
    called_me, who = _first(to_target)
    in_sight, _ = _first(to_candidate)
    rows = np.arange(len(near))
    last_called = calls[:, None] & named[place[rows, caller], :][rows[:, None], place]
    last_caller = called_me[:, None] & (own == own[rows, who][:, None])
    is_last_caller = called_me[:, None] & (columns == who[:, None])
    minutes = channel.minute[heard][target] - channel.minute[heard][place]
    spoken = ~channel.system[heard][place] & real
    spoken[:, 0] = False
    lengths = np.log1p(np.diff(words.indptr)) / _LONG
    last = again == 0
    found = [
        np.minimum(shared / _MUCH, 2),
        shared / sum_of[target],
        shared / sum_of[place],
        (columns == shared.argmax(axis=1)[:, None]) & (shared > 0),
        np.minimum(theirs / _MUCH, 2),
        theirs / sum_of[target],
        np.minimum(with_mine / _MUCH, 2),
        with_mine / sum_of[place],
        (shared > 0) & last,
        np.broadcast_to(lengths[target], near.shape),
        lengths[place],
        np.log1p(np.maximum(np.nan_to_num(minutes), 0)) / _FEW,
        (np.cumsum(spoken, axis=1) - spoken) / FAR,
        _speakers_between(again) / _MUCH,
        np.minimum(again, _FEW) / _FEW,
        np.minimum(np.cumsum(mine, axis=1) - mine, _FEW) / _FEW,
        np.minimum(called, _FEW) / _FEW,
        (called > 0) & last,
        last_called,
        last_caller,
        is_last_caller,
        np.minimum(to_me, _FEW) / _FEW,
        anybody[place] & ~to_target,
        in_sight[:, None] & ~to_candidate,
        to_candidate & last,
    ]
    return np.stack(found, axis=2).astype(np.float32) * real[..., None]


def _alike(
    words: csr_array, rarity: Float[NDArray, " word"]
) -> tuple[Float[NDArray, "message message"], Float[NDArray, " message"]]:
    """The sum of the rarities of the words that two messages share, none with itself; and of each message's own, at least 1."""
    weighted = words.multiply(rarity[None]).tocsr()
    alike = (words @ weighted.T).toarray().astype(np.float32)
    np.fill_diagonal(alike, 0)
    return alike, np.maximum(1, np.asarray(weighted.sum(axis=1)).ravel()).astype(np.float32)


def _named(channel: Channel, heard: Ints) -> Bool[NDArray, "message message"]:
    """Does a message name the speaker of another?"""
    size = len(heard)
    return channel.names_speaker_of(np.repeat(heard, size), np.tile(heard, size)).reshape(size, size)


def _first(flags: Bool[NDArray, "target candidate"]) -> tuple[Bool[NDArray, " target"], Ints]:
    """Whether there is a flag, and the nearest candidate that has it."""
    return np.any(flags, axis=1), np.argmax(flags, axis=1)


def _of_one_speaker(
    own: Int[NDArray, "target candidate"], real: Bool[NDArray, "target candidate"], shared: Float[NDArray, "target candidate"]
) -> tuple[Int[NDArray, "target candidate"], Float[NDArray, "target candidate"]]:
    """How many messages of a candidate's speaker are nearer to the target, and what the target shares with any of that
    speaker's messages at most."""
    _, number = np.unique(own, return_inverse=True)
    # A speaker of one target's window is nobody in another's; what is no candidate is said by no one.
    kinds = int(number.max(initial=0)) + 2
    key = (np.where(real, number.reshape(own.shape), kinds - 1) + kinds * np.arange(len(own))[:, None]).ravel()
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    sizes = np.diff(starts, append=len(order))
    again, most = np.empty(key.shape, dtype=np.int64), np.empty(key.shape, dtype=shared.dtype)
    again[order] = np.arange(len(order)) - np.repeat(starts, sizes)
    most[order] = np.repeat(np.maximum.reduceat(shared.ravel()[order], starts), sizes)
    again = again.reshape(own.shape) - (own == own[:, :1])
    again[:, 0] = 0
    return np.where(real, again, 0), np.where(real, most.reshape(own.shape), 0)


def _over(
    flags: Bool[NDArray, "target other"], values: Callable[[Ints, Ints], Shaped[NDArray, "flag candidate"]], together: np.ufunc
) -> Shaped[NDArray, "target candidate"]:
    """The sum, or maximum, over a target's flagged candidates of what each makes of all candidates; 0 without any."""
    row, other = np.nonzero(flags)
    each = values(row, other)
    out = np.zeros(flags.shape, dtype=np.int64 if together is np.add else each.dtype)
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    if len(starts):
        out[row[starts]] = together.reduceat(each, starts, axis=0, dtype=out.dtype)
    return out


def _speakers_between(again: Int[NDArray, "target candidate"]) -> Int[NDArray, "target candidate"]:
    """How many people speak between a candidate and the target: all whose message nearest to the target lies there."""
    nearest = (again == 0) & (np.arange(again.shape[1]) > 0)
    return np.cumsum(nearest, axis=1) - nearest
