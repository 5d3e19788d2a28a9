"""Several models' links, made one answer (Kummerfeld et al. 2019, section 4.2)."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ramify.errors import RamifyError
from ramify.metrics.conversations import conversations

Voting = Literal["vote", "unanimous", "union", "union-most", "intersect"]
"""`vote`: the link that most members say, of equals the shortest, and what more than half of them say besides. `unanimous`: the
links that all say, else the message starts a conversation (so the paper describes its vote; its figures are those of `vote`).
`union`: all links that anybody says; a message starts a conversation only if all say that. `union-most`: or if
most say so, as in the published script. `intersect`: the conversations that all members find to the last message; a message in
none of them stands alone."""

Ensemble = Literal[Voting, "mean"]
"""`mean`: what is likeliest by the mean of the members' probabilities, which are asked for more than their decisions."""

Answers = Sequence[tuple[int, ...]]
"""Of every message of a log what one member says that it answers, each once: nothing where it starts a conversation, the
message itself among others where it does that besides."""


def combine(members: Sequence[Answers], how: Voting) -> list[tuple[int, ...]]:
    """What each message answers by the word of all members, first what most of them say, of equals the nearest."""
    if how not in get_args(Voting):
        raise RamifyError(f"an ensemble is one of {', '.join(get_args(Ensemble))}, not {how!r}.")
    if not members:
        raise RamifyError("an ensemble needs a member.")
    if how == "intersect":
        return _intersection(members)
    return [_one(number, said, how) for number, said in enumerate(zip(*members, strict=True))]


def _one(number: int, said: Sequence[tuple[int, ...]], how: Voting) -> tuple[int, ...]:
    votes = Counter(above for own in said for above in own or (number,))
    # Of equals the nearest: the message itself before all others.
    ranked = sorted(votes, key=lambda above: (votes[above], above), reverse=True)
    if how == "vote":
        chosen = [above for above in ranked if above == ranked[0] or 2 * votes[above] > len(said)]
    elif how == "unanimous":
        chosen = [above for above in ranked if votes[above] == len(said)]
    elif how == "union-most" and ranked[0] == number:
        return ()
    else:
        chosen = [above for above in ranked if above != number or votes[above] == len(said)]
    return () if chosen == [number] else tuple(chosen)


def _intersection(members: Sequence[Answers]) -> list[tuple[int, ...]]:
    messages = np.arange(len(members[0]))
    labels = [conversations(_links(each), messages) for each in members]
    # Messages that every member puts together; a conversation of all of them is as large as each member's own.
    _, together = np.unique(np.stack(labels), axis=1, return_inverse=True)
    size = np.bincount(together)[together]
    agreed = np.all([np.bincount(each)[each] == size for each in labels], axis=0)
    latest: dict[int, int] = {}
    parents: list[tuple[int, ...]] = []
    for number, (group, whole, said) in enumerate(zip(together.tolist(), agreed.tolist(), zip(*members, strict=True))):
        parents.append((_nearest_of_most(number, said, latest[group]),) if whole and group in latest else ())
        latest[group] = number
    return parents


def _nearest_of_most(number: int, said: Sequence[tuple[int, ...]], latest: int) -> int:
    """What most members say that a message answers; the latest of its conversation, where all say that it starts one, which
    what is said later joins to that."""
    votes = Counter(above for own in said for above in own if above != number)
    return max(votes, key=lambda above: (votes[above], above)) if votes else latest


def _links(answers: Answers) -> NDArray[np.int64]:
    pairs = [(above, number) for number, own in enumerate(answers) for above in own]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def chances(members: Sequence[Answers], parents: Answers) -> NDArray[np.float64]:
    """The share of members that name what each message is said to answer (the first, if several), or that it starts a
    conversation."""
    shares = []
    for number, (chosen, said) in enumerate(zip(parents, zip(*members, strict=True), strict=True)):
        shown = next((above for above in chosen if above != number), number)
        shares.append(np.mean([shown in (own or (number,)) for own in said]))
    return np.array(shares, dtype=np.float64)
