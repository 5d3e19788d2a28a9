"""Several models' links, made one answer (Kummerfeld et al. 2019, section 4.2)."""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from ramify.chat.channel import Ints
from ramify.errors import RamifyError
from ramify.metrics.conversations import conversations

Voting = Literal["vote", "unanimous", "union", "union-most", "intersect"]
"""`vote`: the link that most members say, of equals the shortest. `unanimous`: the link that all say, else the message starts a
conversation (so the paper describes its vote; its figures are those of `vote`). `union`: all links that anybody says; a message
starts a conversation only if all say so. `union-most`: or if most say so, as in the published script. `intersect`: the
conversations that all members find to the last message; a message in none of them stands alone."""

Ensemble = Literal[Voting, "mean"]
"""`mean`: what is likeliest by the mean of the members' probabilities, which are asked for more than their decisions."""


def combine(answered: Int[NDArray, "member message"], how: Voting) -> list[tuple[int, ...]]:
    """What each message answers by the word of all members, of whom each names one message (itself: it starts a conversation);
    nothing where it starts one."""
    if how not in get_args(Voting):
        raise RamifyError(f"an ensemble is one of {', '.join(get_args(Ensemble))}, not {how!r}.")
    if not answered.shape[0]:
        raise RamifyError("an ensemble needs a member.")
    if how == "intersect":
        return _intersection(answered)
    return [_one(number, said, how) for number, said in enumerate(answered.T.tolist())]


def _one(number: int, said: Sequence[int], how: Voting) -> tuple[int, ...]:
    votes = {above: said.count(above) for above in said}
    # Of equals the nearest: the message itself before all others.
    most = max(votes, key=lambda above: (votes[above], above))
    if how == "vote":
        chosen = {most}
    elif how == "unanimous":
        chosen = {most} if len(votes) == 1 else {number}
    else:
        chosen = {number} if how == "union-most" and most == number else set(votes)
    return tuple(sorted(chosen - {number}))


def _intersection(answered: Int[NDArray, "member message"]) -> list[tuple[int, ...]]:
    messages = np.arange(answered.shape[1])
    labels = [conversations(np.stack([each, messages], axis=1), messages) for each in answered]
    # Messages that every member puts together; a conversation of all of them is as large as each member's own.
    _, together = np.unique(np.stack(labels), axis=1, return_inverse=True)
    size = np.bincount(together)[together]
    agreed = np.all([np.bincount(each)[each] == size for each in labels], axis=0)
    latest: dict[int, int] = {}
    parents: list[tuple[int, ...]] = []
    for number, (group, whole) in enumerate(zip(together.tolist(), agreed.tolist())):
        parents.append((latest[group],) if whole and group in latest else ())
        latest[group] = number
    return parents


def chances(answered: Int[NDArray, "member message"], parents: Sequence[tuple[int, ...]]) -> NDArray[np.float64]:
    """The share of members that name what each message is said to answer (the first, if several), or that it starts a
    conversation."""
    first: Ints = np.array([own[0] if own else number for number, own in enumerate(parents)], dtype=np.int64)
    return (answered == first).mean(axis=0) if len(first) else np.zeros(0)
