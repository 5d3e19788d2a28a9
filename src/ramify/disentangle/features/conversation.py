"""Features of the conversations that a message may join, once all messages before it are decided."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from ramify.disentangle.data.channel import NO_AUTHOR, Ints
from ramify.disentangle.data.logs import Logs

CONVERSATION_FEATURES = (
    "log_probability",
    "probability",
    "entropy",
    "highest_probability",
    "rank",
    "is_self",
    "is_self_of_known_author",
    "log_distance",
    "same_author",
    "conversation_probability",
    "log_conversation_probability",
    "conversation_margin",
    "log_children",
    "author_answered_it",
    "author_answered_it_last",
    "it_answers_author",
    "is_last_of_conversation",
    "log_distance_of_conversation",
    "author_takes_part",
    "log_distance_of_author_in_conversation",
    "log_messages_of_conversation",
    "log_messages_of_others_in_conversation",
    "author_was_last_in_conversation",
)
"""Features of a candidate (`it`) for a message of `author`. Counts and distances are of messages within the window; an author
without a message in the conversation is at the distance `ABSENT_LOG_DISTANCE`."""

ABSENT_LOG_DISTANCE = 5.0
EPSILON = 1e-9


@dataclass(frozen=True)
class ConversationState:
    """The decisions so far. They are updated in place as messages are decided in order."""

    parent: Ints
    """[message]: its parent; itself where it starts a conversation or is undecided."""
    conversation: Ints
    """[message]: its conversation; an undecided message has one of its own."""
    author: Ints
    """[message]: its author, numbered apart in each log; NO_AUTHOR where it has none."""
    window: int

    @classmethod
    def start(cls, logs: Logs) -> "ConversationState":
        """Before anything is decided."""
        messages = np.arange(len(logs))
        return cls(messages, messages.copy(), logs.author, logs.input.window)


class _Groups:
    """Messages by a number that several may have: counts the messages of a number between two places."""

    def __init__(self, numbers: Ints, places: Ints, size: int) -> None:
        self._size = size
        # A key behind all others, so that even empty groups have one.
        self._keys = np.append(np.sort(numbers * size + places), np.iinfo(np.int64).max)

    def count_between(self, numbers: Ints, start: Ints, stop: Ints) -> tuple[Ints, Ints]:
        """The count, and the last of them where there are any."""
        first = np.searchsorted(self._keys, numbers * self._size + start)
        end = np.searchsorted(self._keys, numbers * self._size + stop)
        return end - first, np.where(end > first, self._keys[np.maximum(end - 1, 0)] % self._size, 0)


def compute_conversation_features(
    state: ConversationState,
    messages: Int[NDArray, " message"],
    candidates: Int[NDArray, "message rank"],
    probabilities: Float[NDArray, "message rank"],
) -> Float[NDArray, "message rank feature"]:
    """`CONVERSATION_FEATURES` of each candidate, likeliest first. Candidates of probability zero are absent, and their features
    mean nothing."""
    base = max(0, int(messages.min()) - state.window)
    rows = slice(base, int(messages.max()) + 1)
    # Numbered from 0 on, so that two numbers and a place fit into one key.
    conversation = np.unique(state.conversation[rows], return_inverse=True)[1]
    author = np.unique(state.author[rows], return_inverse=True)[1]
    known = state.author[rows] != NO_AUTHOR
    parent = state.parent[rows] - base
    here, message = np.arange(len(parent)), (messages - base)[:, None]
    candidate = candidates - base
    start, own_author, is_self = np.maximum(message - state.window, 0), author[message], candidate == message
    has_author, size, num_authors = known[message], len(parent) + 1, int(author.max(initial=0)) + 1
    other, new = ~is_self, int(conversation.max()) + 1
    joins = np.where(is_self, new, conversation[candidate])

    members, last = _Groups(conversation, here, size).count_between(joins, start, message)
    by_author = _Groups(conversation * num_authors + author, here, size)
    num_by_author, last_by_author = by_author.count_between(joins * num_authors + own_author, start, message)
    num_by_author = np.where(has_author, num_by_author, 0)
    child = np.flatnonzero(parent != here)
    parent_of_child = parent[child]
    child, parent_of_child = child[parent_of_child >= 0], parent_of_child[parent_of_child >= 0]
    children, last_child = _Groups(parent_of_child, child, size).count_between(candidate, start, message)
    answers_by_author = _Groups(parent_of_child * num_authors + author[child], child, size)
    own_children, _ = answers_by_author.count_between(candidate * num_authors + own_author, start, message)
    written, latest = _Groups(author, here, size).count_between(own_author, start, message)
    grandparent = parent[candidate]
    answers_author = (grandparent >= start) & (grandparent != candidate) & (author[np.maximum(grandparent, 0)] == own_author)

    same_conversation = joins[:, :, None] == joins[:, None, :]
    mass = (same_conversation * probabilities[:, None, :]).sum(axis=2)
    rival = np.where(same_conversation, 0, mass[:, None, :]).max(axis=2)
    entropy = -(probabilities * np.log(probabilities + EPSILON)).sum(axis=1, keepdims=True)
    everywhere = np.ones_like(probabilities)
    columns = (
        np.log(np.maximum(probabilities, EPSILON)),
        probabilities,
        entropy * everywhere,
        probabilities[:, :1] * everywhere,
        np.arange(probabilities.shape[1]) * everywhere,
        is_self,
        is_self & (written > 0) & has_author,
        np.log(np.maximum(message - candidate, 1)),
        (author[candidate] == own_author) & has_author & other,
        mass,
        np.log(mass + EPSILON),
        mass - rival,
        np.log1p(children) * other,
        (own_children > 0) & has_author & other,
        (children > 0) & (author[last_child] == own_author) & has_author & other,
        answers_author & has_author & other,
        (last == candidate) & (members > 0) & other,
        np.log1p(message - last) * other,
        (num_by_author > 0) & other,
        np.where((num_by_author > 0) & other, np.log1p(message - last_by_author), ABSENT_LOG_DISTANCE),
        np.log(np.maximum(members, 1)) * other,
        np.log1p(members - num_by_author) * other,
        (written > 0) & (conversation[latest] == joins) & has_author & other,
    )
    return np.stack([np.broadcast_to(column, probabilities.shape) for column in columns], axis=-1).astype(np.float32)
