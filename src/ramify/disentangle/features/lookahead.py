"""Features of the messages after a message, which show the conversation that it belongs to.

The rest of a log shows whether the author of a message goes on in some conversation, and who answers him. The posterior links
each later message to candidates; so it belongs, more or less, to each conversation that was there before the message, or to the
one that the message itself continues: by its parents, and by theirs in turn.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray
from torch import Tensor

from ramify.disentangle.data.channel import NO_AUTHOR, Ints
from ramify.disentangle.features.conversation import ConversationState

LOOKAHEAD_FEATURES = (
    "author_continues_conversation",
    "author_continues_it",
    "author_answers_it",
    "author_starts_anew",
    "candidate's_author_continues_it",
    "candidate's_author_answers_it",
    "members_continue_it",
    "members_answer_it",
    "others_continue_it",
    "others_answer_it",
    "log_messages_of_conversation",
    "answers_to_candidate",
    "answers_to_candidate_by_author",
    "answers_to_candidate_by_its_author",
)
"""Features of a candidate: expected numbers among the `LOOKAHEAD` messages after the message (`it`). A message continues it if
its parent is it, or a message that continues it. Members are the authors in the candidate's conversation within the window, but
for the author of the message; others are all but these and him."""

LOOKAHEAD = 30
MAX_COUNT = 5.0
_ABSENT = NO_AUTHOR - 1
"""The author of a message behind the end."""


def compute_lookahead_features(
    state: ConversationState,
    messages: Ints,
    probabilities: Float[NDArray, "message distance"],
    candidates: Int[NDArray, "asked rank"],
    real: Bool[NDArray, "asked rank"],
) -> Float[NDArray, "asked rank feature"]:
    """`LOOKAHEAD_FEATURES` of the candidates of the first of some messages in order; zeros for absent candidates (not `real`).

    `probabilities`: how probably the parent of each message is so many places back (0: a start), up to the window. `state`
    holds the conversations before the messages that are asked for.
    """
    asked, window = messages[: len(candidates)], state.window
    step, back = np.arange(LOOKAHEAD), 1 + np.arange(window)
    follows = _find_following(messages, len(asked), step)
    into, between, direct = (_to_tensor(band * follows[:, :, None]) for band in _list_bands(probabilities, len(asked), window))
    starts = _to_tensor(_shift(probabilities[:, 0], len(asked), 0.0) * follows)

    later = np.minimum(asked[:, None] + 1 + step, len(state.author) - 1)
    later_author = np.where(follows, state.author[later], _ABSENT)
    before = np.maximum(asked[:, None] - back, 0)
    is_message = back <= asked[:, None]
    earlier_author = np.where(is_message, state.author[before], _ABSENT - 1)
    author, candidate_author = state.author[asked][:, None], state.author[candidates]
    there = state.conversation[before][:, :, None] == state.conversation[candidates][:, None, :]
    there &= is_message[:, :, None] & (candidates != asked[:, None])[:, None, :]
    in_conversation = _to_tensor(there)
    same_as_earlier = later_author[:, :, None] == earlier_author[:, None, :]
    known = later_author > NO_AUTHOR
    by_author = known & (later_author == author)
    takes_part = torch.bmm(_to_tensor(same_as_earlier & (known & ~by_author)[:, :, None]), in_conversation) > 0
    members = takes_part.float()
    others = 1 - torch.maximum(members, _to_tensor(by_author)[:, :, None])
    by_candidate = _to_tensor(
        known[:, :, None]
        & (later_author[:, :, None] == candidate_author[:, None, :])
        & (candidate_author != author)[:, None, :]
    )

    # Row by row: the parents before the message, and through its later parents, theirs.
    first = torch.cat([torch.bmm(into, in_conversation), direct], dim=2)
    reached = torch.linalg.solve_triangular(torch.eye(LOOKAHEAD) - between, first, upper=False, unitriangular=True)
    inside, onward, direct = reached[:, :, :-1], reached[:, :, -1:], direct[:, :, 0]

    author_steps = _to_tensor(by_author)[:, None, :]
    both = torch.stack([onward[:, :, 0], direct], dim=1)
    by_candidates, by_members, by_others = (torch.bmm(both, group) for group in (by_candidate, members, others))
    everywhere = torch.ones(candidates.shape)
    from_known = into * _to_tensor(same_as_earlier & known[:, :, None])
    to_candidate = (
        _select_candidates(into.sum(1), direct.sum(1), asked, candidates),
        _select_candidates(
            torch.bmm(author_steps, into)[:, 0], torch.bmm(author_steps, direct[:, :, None])[:, 0, 0], asked, candidates
        ),
        _select_candidates(from_known.sum(1), torch.zeros(len(asked)), asked, candidates),
    )
    of_author = torch.stack([onward[:, :, 0], direct, starts], dim=1) @ author_steps.transpose(1, 2)
    columns = (
        torch.bmm(author_steps, inside)[:, 0].clamp_max(MAX_COUNT),
        of_author[:, 0].clamp_max(MAX_COUNT) * everywhere,
        of_author[:, 1] * everywhere,
        of_author[:, 2] * everywhere,
        by_candidates[:, 0].clamp_max(MAX_COUNT),
        by_candidates[:, 1],
        by_members[:, 0].clamp_max(MAX_COUNT),
        by_members[:, 1],
        by_others[:, 0].clamp_max(MAX_COUNT),
        by_others[:, 1],
        torch.log1p(inside.sum(1)),
        *to_candidate,
    )
    return (torch.stack(columns, dim=2) * _to_tensor(real)[:, :, None]).numpy()


def _to_tensor(values: NDArray) -> Float[Tensor, "..."]:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _shift(values: NDArray, size: int, empty: float) -> NDArray:
    """[asked step]: the values of the messages after each."""
    padded = np.append(values, np.full(LOOKAHEAD, empty, dtype=values.dtype))
    return padded[1 + np.arange(size)[:, None] + np.arange(LOOKAHEAD)]


def _find_following(messages: Ints, size: int, step: Ints) -> Bool[NDArray, "asked step"]:
    """Whether the messages after each follow it in the same log: behind a gap in the numbers another log begins."""
    return _shift(messages, size, -1) == messages[:size, None] + 1 + step


def _list_bands(probabilities: Float[NDArray, "message distance"], size: int, window: int) -> tuple[NDArray, NDArray, NDArray]:
    """The probabilities of the messages after each that their parent is before it, nearest first; after it; and it."""
    # Zeros on both sides: no parent is later than its child, or farther back than the window.
    padded = np.zeros((len(probabilities) + LOOKAHEAD, 2 * LOOKAHEAD + window + 1), dtype=np.float32)
    padded[: len(probabilities), LOOKAHEAD + 1 : LOOKAHEAD + 1 + window] = probabilities[:, 1:]
    row, column = padded.strides

    def band(first: int, count: int, onward: int) -> NDArray:
        """[asked step place]: probabilities of the parent `first` + step + `onward` × place back."""
        strides = (row, row + column, onward * column)
        return as_strided(padded[1:, LOOKAHEAD + first :], (size, LOOKAHEAD, count), strides, writeable=False)

    return band(2, window, 1), band(0, LOOKAHEAD, -1), band(1, 1, 1)


def _select_candidates(
    before: Float[Tensor, "asked back"], itself: Float[Tensor, " asked"], asked: Ints, candidates: Int[NDArray, "asked rank"]
) -> Float[Tensor, "asked rank"]:
    """The values of the candidates, from those of the messages before each message and of the message itself."""
    every = torch.cat([itself[:, None], before], dim=1)
    return every.gather(1, torch.from_numpy(asked[:, None] - candidates))
