"""Decoding: from posteriors to links."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from ramify.disentangle.config import DecodingConfig
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.structure import ReplyStructure
from ramify.disentangle.inference.comembership import Comemberships
from ramify.disentangle.posterior import LinkPosterior, join_recorded

Parents = list[tuple[int, ...]]
"""All parents of each message of a log, the likeliest first: none where it starts a conversation; the message itself among
others where it does that besides."""


class LinkDecisions(NamedTuple):
    """The links of some messages, in their order."""

    parent: Ints
    """The likeliest parent; the message itself where it starts a conversation, or where nothing was to be decided."""
    probability: Float[NDArray, " message"]
    further: Int[NDArray, "link 2"] = np.zeros((0, 2), dtype=np.int64)
    """Pairs of a child and a further parent (`decoding.threshold`); the child itself where it also starts a conversation."""
    further_probability: Float[NDArray, " link"] = np.zeros(0, dtype=np.float32)

    def group_by_message(self, messages: Ints) -> dict[int, list[tuple[int, float]]]:
        """All parents of each message with their probabilities, the likeliest first."""
        links = {
            message: [(parent, probability)]
            for message, parent, probability in zip(
                messages.tolist(), self.parent.tolist(), self.probability.tolist(), strict=True
            )
        }
        for (message, parent), probability in zip(self.further.tolist(), self.further_probability.tolist(), strict=True):
            links[message].append((parent, probability))
        for message in dict.fromkeys(self.further[:, 0].tolist()):
            links[message].sort(key=lambda link: -link[1])
        return links

    def list_parents(self) -> tuple[Parents, Float[NDArray, " message"]]:
        """All parents of the messages of one log, and the probability of the first of each that is another message (of a start,
        where there is none)."""
        parents: Parents
        parents = [() if parent == number else (parent,) for number, parent in enumerate(self.parent.tolist())]
        probability = self.probability.copy()
        several = np.unique(self.further[:, 0])
        of_several = self._replace(parent=self.parent[several], probability=probability[several])
        for message, links in of_several.group_by_message(several).items():
            parents[message] = tuple(parent for parent, _ in links)
            probability[message] = next(share for parent, share in links if parent != message)
        return parents, probability

    @property
    def links(self) -> Int[NDArray, "link 2"]:
        """Pairs of child and parent, for decisions on all messages of some logs; a start is its own parent."""
        return np.concatenate([np.stack([np.arange(len(self.parent)), self.parent], axis=1), self.further])


def choose_links(
    posterior: LinkPosterior, decoding: DecodingConfig, conversation: Ints, comemberships: Comemberships
) -> LinkDecisions:
    """Decide some messages, given the decisions before them. `conversation` is updated as by
    `LinkPosterior.choose_by_conversation`, and `comemberships` where it is what decides. Links that the log records
    (`LinkPosterior.keep`) stay as they are, whatever the settings."""
    if decoding.decide == "link":
        parent, probability = posterior.choose_likeliest()
    elif decoding.decide == "conversation":
        parent, probability = posterior.choose_by_conversation(conversation)
    else:
        parent, probability = choose_by_comembership(posterior, conversation, comemberships)
    recorded = posterior.further_recorded
    certain = np.ones(len(recorded), dtype=np.float32)
    if not decoding.threshold:
        return LinkDecisions(parent, probability, recorded, certain)
    child = posterior.children
    further = (posterior.probabilities >= decoding.threshold) & (posterior.candidates != np.repeat(parent, posterior.lengths))
    if decoding.decide != "link":
        further &= (conversation[posterior.candidates] == conversation[child]) & (posterior.candidates != child)
    further &= ~np.repeat(posterior.is_recorded, posterior.lengths)
    links = np.concatenate([np.stack([child, posterior.candidates], axis=1)[further], recorded])
    return LinkDecisions(parent, probability, links, np.concatenate([posterior.probabilities[further], certain]))


def choose_by_comembership(
    posterior: LinkPosterior, conversation: Ints, comemberships: Comemberships
) -> tuple[Ints, Float[NDArray, " message"]]:
    """The likeliest parent in the conversation of the earlier message that most probably shares one with the child, and its
    probability; the message itself where none does with at least even odds."""
    parent, best = posterior.choose_likeliest()
    probabilities, candidates = posterior.probabilities, posterior.candidates
    starts = np.cumsum(posterior.lengths) - posterior.lengths
    distance = posterior.children - candidates
    rows = zip(posterior.messages.tolist(), starts.tolist(), posterior.lengths.tolist())
    for row, (message, start, length) in enumerate(rows):
        keys = slice(start, start + length)
        if (parents := posterior.recorded.get(message)) is not None:
            join_recorded(conversation, message, parents)
            comembership = comemberships.select(message)
            # The latest message of its conversation inside the window stands for a parent outside it.
            is_far = length == 1 and parents != (message,)
            back = comembership.find_latest(conversation, message) if is_far else 0
            comembership.update(distance[keys] + back, probabilities[keys])
            continue
        comembership_probability = comemberships.select(message).update(distance[keys], probabilities[keys])
        nearest = int(comembership_probability.argmax())
        if comembership_probability[nearest] < 0.5:
            parent[row], best[row] = message, probabilities[start]
            continue
        companion = message - 1 - nearest
        joined = conversation[companion]
        if conversation[parent[row]] != joined:
            inside = start + np.flatnonzero(conversation[candidates[keys]] == joined)
            if len(inside):
                place = inside[probabilities[inside].argmax()]
                parent[row], best[row] = candidates[place], probabilities[place]
            else:
                # The candidate pruner has left out all of that conversation.
                parent[row], best[row] = companion, 0.0
        conversation[message] = joined
    return parent, best


def decide(
    posteriors: Iterable[LinkPosterior], logs: Logs, decoding: DecodingConfig
) -> Iterator[tuple[LinkPosterior, LinkDecisions]]:
    """Each posterior with the decisions by it, given those before. The messages of each log come in order."""
    conversation, comemberships = np.arange(len(logs)), Comemberships(logs.offsets, logs.input.window)
    for posterior in posteriors:
        yield posterior, choose_links(posterior, decoding, conversation, comemberships)


def decide_into(
    structure: ReplyStructure, posteriors: Iterable[LinkPosterior], logs: Logs, decoding: DecodingConfig
) -> Iterator[LinkPosterior]:
    """Each posterior, once the decisions by it are in the structure, for models that read these when they score the next."""
    for posterior, decisions in decide(posteriors, logs, decoding):
        structure.add_links(posterior.messages, decisions.parent)
        structure.add_links(*decisions.further.T)
        yield posterior


def decode(posteriors: Iterable[LinkPosterior], logs: Logs, decoding: DecodingConfig) -> LinkDecisions:
    """Decide all messages of the logs, by posteriors that come in order; a message without one is its own parent."""
    parent, probability = np.arange(len(logs)), np.zeros(len(logs), dtype=np.float32)
    parts = [LinkDecisions(parent[:0], probability[:0])]
    for posterior, decisions in decide(posteriors, logs, decoding):
        parent[posterior.messages], probability[posterior.messages] = decisions.parent, decisions.probability
        parts.append(decisions)
    further = np.concatenate([part.further for part in parts])
    return LinkDecisions(parent, probability, further, np.concatenate([part.further_probability for part in parts]))
