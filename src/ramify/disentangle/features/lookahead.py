"""What is said after a message, and what that tells of the conversation that it belongs to.

Whoever reads a log to its end sees whether the author of a message goes on in some conversation, and who answers him. Messages
that follow are believed to answer this or that; so they belong, more or less, to each conversation that was there before the
message, or to the one that the message itself goes on with: by what they answer, and what that answers in turn.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray
from torch import Tensor

from ramify.disentangle.data.channel import NOBODY, Ints
from ramify.disentangle.features.conversation import Course

HINDSIGHT = (
    "author_goes_on_there",
    "author_goes_on_from_it",
    "author_answers_it",
    "author_begins_anew",
    "candidate's_author_goes_on_from_it",
    "candidate's_author_answers_it",
    "members_go_on_from_it",
    "members_answer_it",
    "others_go_on_from_it",
    "others_answer_it",
    "log_messages_of_conversation",
    "answers_to_candidate",
    "answers_to_candidate_by_author",
    "answers_to_candidate_by_its_author",
)
"""Features of a candidate: expected numbers among the `AHEAD` messages that follow the message (`it`). To go on from a message
is to answer it, or what goes on from it. Members are who took part in the candidate's conversation within the window, but for
the author of the message; others are neither."""

AHEAD = 30
MANY = 5.0
_NO_ONE = NOBODY - 1
"""Who speaks where nothing follows."""


def hindsight(
    course: Course,
    messages: Ints,
    chances: Float[NDArray, "message back"],
    candidates: Int[NDArray, "asked place"],
    real: Bool[NDArray, "asked place"],
) -> Float[NDArray, "asked place hindsight"]:
    """`HINDSIGHT` of the candidates of the first messages of some that stand in order; zeros where there is none (`real`).

    `chances`: how likely each of the messages answers the one so many places back (0: it starts a conversation), as far as the
    window goes. Of those asked for, `course` says which conversations there were before them.
    """
    asked, window = messages[: len(candidates)], course.window
    step, back = np.arange(AHEAD), 1 + np.arange(window)
    follows = _follows(messages, len(asked), step)
    into, among, direct = (_float(each * follows[:, :, None]) for each in _bands(chances, len(asked), window))
    begins = _float(_after(chances[:, 0], len(asked), 0.0) * follows)

    later = np.minimum(asked[:, None] + 1 + step, len(course.speaker) - 1)
    speaker = np.where(follows, course.speaker[later], _NO_ONE)
    before = np.maximum(asked[:, None] - back, 0)
    is_message = back <= asked[:, None]
    heard = np.where(is_message, course.speaker[before], _NO_ONE - 1)
    author, theirs = course.speaker[asked][:, None], course.speaker[candidates]
    there = course.conversation[before][:, :, None] == course.conversation[candidates][:, None, :]
    there &= is_message[:, :, None] & (candidates != asked[:, None])[:, None, :]
    in_conversation = _float(there)
    same_as_heard = speaker[:, :, None] == heard[:, None, :]
    known = speaker > NOBODY
    mine = known & (speaker == author)
    takes_part = torch.bmm(_float(same_as_heard & (known & ~mine)[:, :, None]), in_conversation) > 0
    members = takes_part.float()
    others = 1 - torch.maximum(members, _float(mine)[:, :, None])
    by_candidate = _float(known[:, :, None] & (speaker[:, :, None] == theirs[:, None, :]) & (theirs != author)[:, None, :])

    # Row by row: what a message is believed to answer there, and through those of the messages after it that it answers.
    first = torch.cat([torch.bmm(into, in_conversation), direct], dim=2)
    inside = torch.linalg.solve_triangular(torch.eye(AHEAD) - among, first, upper=False, unitriangular=True)
    inside, onward, direct = inside[:, :, :-1], inside[:, :, -1:], direct[:, :, 0]

    own = _float(mine)[:, None, :]
    both = torch.stack([onward[:, :, 0], direct], dim=1)
    on_by_candidate, on_by_members, on_by_others = (torch.bmm(both, each) for each in (by_candidate, members, others))
    everywhere = torch.ones(candidates.shape)
    to_candidate = (
        _of_candidates(into.sum(1), direct.sum(1), asked, candidates),
        _of_candidates(torch.bmm(own, into)[:, 0], torch.bmm(own, direct[:, :, None])[:, 0, 0], asked, candidates),
        _of_candidates((into * _float(same_as_heard & known[:, :, None])).sum(1), torch.zeros(len(asked)), asked, candidates),
    )
    of_author = torch.stack([onward[:, :, 0], direct, begins], dim=1) @ own.transpose(1, 2)
    columns = (
        torch.bmm(own, inside)[:, 0].clamp_max(MANY),
        of_author[:, 0].clamp_max(MANY) * everywhere,
        of_author[:, 1] * everywhere,
        of_author[:, 2] * everywhere,
        on_by_candidate[:, 0].clamp_max(MANY),
        on_by_candidate[:, 1],
        on_by_members[:, 0].clamp_max(MANY),
        on_by_members[:, 1],
        on_by_others[:, 0].clamp_max(MANY),
        on_by_others[:, 1],
        torch.log1p(inside.sum(1)),
        *to_candidate,
    )
    return (torch.stack(columns, dim=2) * _float(real)[:, :, None]).numpy()


def _float(values: NDArray) -> Float[Tensor, "..."]:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _after(values: NDArray, size: int, nothing: float) -> NDArray:
    """[asked step]: of the messages that stand after each."""
    padded = np.append(values, np.full(AHEAD, nothing, dtype=values.dtype))
    return padded[1 + np.arange(size)[:, None] + np.arange(AHEAD)]


def _follows(messages: Ints, size: int, step: Ints) -> Bool[NDArray, "asked step"]:
    """Is what stands after a message what follows it? Behind a gap another log begins."""
    return _after(messages, size, -1) == messages[:size, None] + 1 + step


def _bands(chances: Float[NDArray, "message back"], size: int, window: int) -> tuple[NDArray, NDArray, NDArray]:
    """Of what follows each message, how likely it answers: what stands before that, nearest first; what follows it; and it."""
    # Zeros on both sides: nothing is answered that is said later, or farther back than the window.
    padded = np.zeros((len(chances) + AHEAD, 2 * AHEAD + window + 1), dtype=np.float32)
    padded[: len(chances), AHEAD + 1 : AHEAD + 1 + window] = chances[:, 1:]
    row, column = padded.strides

    def band(first: int, count: int, onward: int) -> NDArray:
        """[asked step place]: chances to answer the message that is `first` + step + `onward` × place back."""
        strides = (row, row + column, onward * column)
        return as_strided(padded[1:, AHEAD + first :], (size, AHEAD, count), strides, writeable=False)

    return band(2, window, 1), band(0, AHEAD, -1), band(1, 1, 1)


def _of_candidates(
    before: Float[Tensor, "asked back"], itself: Float[Tensor, " asked"], asked: Ints, candidates: Int[NDArray, "asked place"]
) -> Float[Tensor, "asked place"]:
    """What holds for each candidate, of what holds for the messages before, and for the message itself."""
    every = torch.cat([itself[:, None], before], dim=1)
    return every.gather(1, torch.from_numpy(asked[:, None] - candidates))
