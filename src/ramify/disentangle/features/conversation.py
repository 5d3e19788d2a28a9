"""What is known of the conversations that a message may join, once all messages before it were decided."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from ramify.disentangle.data.channel import NOBODY, Ints
from ramify.disentangle.data.logs import Logs

CONVERSING = (
    "log_probability",
    "probability",
    "uncertainty",
    "highest_probability",
    "rank",
    "is_self",
    "is_self_of_one_who_spoke",
    "log_distance",
    "same_author",
    "conversation_probability",
    "log_conversation_probability",
    "conversation_lead",
    "log_answers",
    "author_answered_it",
    "author_answered_it_last",
    "it_answers_author",
    "is_last_of_conversation",
    "log_distance_of_conversation",
    "author_takes_part",
    "log_distance_of_author_there",
    "log_messages_of_conversation",
    "log_messages_of_others_there",
    "author_was_last_there",
)
"""Features of a candidate. Counts and distances are of messages within the window; one that nobody has been part of is as far
as `FAR`."""

FAR = 5.0
LEAST = 1e-9


@dataclass(frozen=True)
class Course:
    """What became of messages so far: brought up to date as they are decided, in order."""

    answered: Ints
    """[message]: what it answers; itself where it starts a conversation, and as long as it is not decided."""
    conversation: Ints
    """[message]: its conversation; of one that is not decided, one that no other message has."""
    speaker: Ints
    """[message]: its author, of all logs a different number; NOBODY where it has none."""
    window: int

    @classmethod
    def of(cls, logs: Logs) -> "Course":
        """Before anything is decided."""
        own = np.arange(len(logs))
        return cls(own, own.copy(), logs.speaker, logs.history.window)


class _Groups:
    """Messages by a number that several have: how many of a number stand between two places, and which is the last."""

    def __init__(self, numbers: Ints, places: Ints, size: int) -> None:
        self._size = size
        # The last one is nobody's, so that there is one even where there are no messages.
        self._keys = np.append(np.sort(numbers * size + places), np.iinfo(np.int64).max)

    def between(self, numbers: Ints, start: Ints, stop: Ints) -> tuple[Ints, Ints]:
        """How many; and the last of them, where there are any."""
        first = np.searchsorted(self._keys, numbers * self._size + start)
        end = np.searchsorted(self._keys, numbers * self._size + stop)
        return end - first, np.where(end > first, self._keys[np.maximum(end - 1, 0)] % self._size, 0)


def conversing(
    course: Course,
    messages: Int[NDArray, " message"],
    candidates: Int[NDArray, "message place"],
    chances: Float[NDArray, "message place"],
) -> Float[NDArray, "message place conversing"]:
    """`CONVERSING` of each candidate, likeliest first; where a message has fewer, the others have a chance of zero, and are
    features of nothing."""
    base = max(0, int(messages.min()) - course.window)
    rows = slice(base, int(messages.max()) + 1)
    # Numbers from 0 on, so that two of them and a place make one.
    conversation = np.unique(course.conversation[rows], return_inverse=True)[1]
    speaker = np.unique(course.speaker[rows], return_inverse=True)[1]
    known = course.speaker[rows] != NOBODY
    answered = course.answered[rows] - base
    here, message = np.arange(len(answered)), (messages - base)[:, None]
    candidate = candidates - base
    start, author, is_self = np.maximum(message - course.window, 0), speaker[message], candidate == message
    named, size, people = known[message], len(answered) + 1, int(speaker.max(initial=0)) + 1
    other, new = ~is_self, int(conversation.max()) + 1
    joins = np.where(is_self, new, conversation[candidate])

    members, last = _Groups(conversation, here, size).between(joins, start, message)
    own, last_own = _Groups(conversation * people + speaker, here, size).between(joins * people + author, start, message)
    own = np.where(named, own, 0)
    answering = np.flatnonzero(answered != here)
    to = answered[answering]
    within = answering[to >= 0]
    to = to[to >= 0]
    answers, last_answer = _Groups(to, within, size).between(candidate, start, message)
    own_answers, _ = _Groups(to * people + speaker[within], within, size).between(candidate * people + author, start, message)
    spoken, latest = _Groups(speaker, here, size).between(author, start, message)
    above = answered[candidate]
    answers_author = (above >= start) & (above != candidate) & (speaker[np.maximum(above, 0)] == author)

    together = joins[:, :, None] == joins[:, None, :]
    mass = (together * chances[:, None, :]).sum(axis=2)
    rival = np.where(together, 0, mass[:, None, :]).max(axis=2)
    uncertain = -(chances * np.log(chances + LEAST)).sum(axis=1, keepdims=True)
    everywhere = np.ones_like(chances)
    columns = (
        np.log(np.maximum(chances, LEAST)),
        chances,
        uncertain * everywhere,
        chances[:, :1] * everywhere,
        np.arange(chances.shape[1]) * everywhere,
        is_self,
        is_self & (spoken > 0) & named,
        np.log(np.maximum(message - candidate, 1)),
        (speaker[candidate] == author) & named & other,
        mass,
        np.log(mass + LEAST),
        mass - rival,
        np.log1p(answers) * other,
        (own_answers > 0) & named & other,
        (answers > 0) & (speaker[last_answer] == author) & named & other,
        answers_author & named & other,
        (last == candidate) & (members > 0) & other,
        np.log1p(message - last) * other,
        (own > 0) & other,
        np.where((own > 0) & other, np.log1p(message - last_own), FAR),
        np.log(np.maximum(members, 1)) * other,
        np.log1p(members - own) * other,
        (spoken > 0) & (conversation[latest] == joins) & named & other,
    )
    return np.stack([np.broadcast_to(each, chances.shape) for each in columns], axis=-1).astype(np.float32)
