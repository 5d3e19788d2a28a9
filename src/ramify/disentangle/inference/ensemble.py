"""Ensembles, which combine the links of several models (Kummerfeld et al. 2019, section 4.2)."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.disentangle.data.logs import Logs
from ramify.disentangle.inference.comembership import Comemberships
from ramify.disentangle.inference.decode import Parents, choose_links
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.links import predict_links
from ramify.disentangle.inference.predict import predict_posterior
from ramify.disentangle.inference.result import Disentangled, Message, add_links, find_recorded, to_log
from ramify.disentangle.posterior import NOTHING_RECORDED, LinkPosterior, RecordedLinks
from ramify.errors import RamifyError
from ramify.metrics.conversations import find_conversations
from ramify.progress import track
from ramify.tree import Tree

Voting = Literal["vote", "unanimous", "union", "union-most", "intersect"]
"""vote: the link that most members predict, the shortest if tied, and every further link that more than half predict.
unanimous: the links that all members predict, or else a start; the paper describes its vote so, but reports figures of `vote`.
union: the links that any member predicts, and a start only if all predict one. union-most: as union, but a start if most
members predict one, as in the published script. intersect: the conversations that all members predict identically; any other
message is a conversation of its own."""

Ensemble = Literal[Voting, "mean"]
"""mean: the most probable links by the mean of the members' probabilities."""


def disentangle_ensemble(
    models: Sequence[Disentangler],
    log: Tree | Iterable[Message],
    *,
    ignore_replies: bool = False,
    ensemble: Ensemble = "vote",
    beam: int = 1,
) -> Disentangled:
    """Predict the links and conversations of a log with several models. Options are those of `Disentangler.disentangle`."""
    if len(models) == 1:
        return models[0].disentangle(log, ignore_replies=ignore_replies, beam=beam)
    log = to_log(log)
    recorded = {} if ignore_replies else find_recorded(log)
    if ensemble == "mean":
        if beam > 1:
            raise RamifyError(f"beam={beam} searches among decisions, but ensemble=mean combines probabilities. Set beam=1.")
        parents, probability = _decide_by_mean(models, log, recorded)
    else:
        read = {settings: Logs.build([log], settings) for settings in {model.input for model in models}}
        members = []
        for model in models:
            logs = read[model.input].tokenize(model.tokenizer)
            decisions = predict_links(model.task, model.decoding, logs, beam=beam, recorded=recorded)
            members.append(decisions.list_parents()[0])
        parents = combine(members, ensemble)
        probability = count_votes(members, parents)
    return add_links(log, parents, probability, recorded)


def _decide_by_mean(
    models: Sequence[Disentangler], log: Tree, recorded: RecordedLinks
) -> tuple[Parents, Float[NDArray, " message"]]:
    if len({(model.decoding.decide, model.decoding.threshold) for model in models}) > 1:
        raise RamifyError(
            "ensemble=mean needs members that decide alike, and these differ in decoding.decide or decoding.threshold. Set "
            "both for all members."
        )
    window = max((model.input.window for model in models), default=0)
    table = mean_probabilities(models, lambda: [log], window, recorded)
    messages = np.arange(len(log))
    candidates = messages[:, None] - np.arange(table.shape[1])
    real = candidates >= 0
    posterior = LinkPosterior(messages, candidates[real], real.sum(axis=1), table[real]).keep(recorded, window)
    comemberships = Comemberships(np.array([0, len(log)]), table.shape[1] - 1)
    return choose_links(posterior, models[0].decoding, messages.copy(), comemberships).list_parents()


def mean_probabilities(
    models: Sequence[Disentangler], trees: Callable[[], Iterable[Tree]], window: int, recorded: RecordedLinks = NOTHING_RECORDED
) -> Float[NDArray, "message distance"]:
    """Return the models' mean probability of the parent at each distance (0: a start), for every message of the logs.

    Each model reads the logs with its own input settings. Raises `RamifyError` if there are no models.
    """
    total: Float[NDArray, "message distance"] | None = None
    for model in models:
        logs = Logs.build(trees(), model.input).tokenize(model.tokenizer)
        total = np.zeros((len(logs), window + 1), dtype=np.float32) if total is None else total
        posteriors = predict_posterior(model.task, model.decoding, logs, recorded=recorded)
        for posterior in track("predicting links", posteriors):
            # The probability of candidates beyond the window is distributed over the others.
            near = posterior.tabulate(window)
            total[posterior.messages] += near / np.maximum(near.sum(axis=1, keepdims=True), 1e-12)
    if total is None:
        raise RamifyError("models=[] makes no ensemble, which needs at least one member. Add a model.")
    return total / len(models)


def combine(members: Sequence[Parents], ensemble: Voting) -> Parents:
    """Combine the members' parents of each message: those with most votes first, the nearest first if tied."""
    if ensemble not in get_args(Voting):
        raise RamifyError(f"ensemble must be one of {', '.join(get_args(Ensemble))}, not {ensemble!r}.")
    if not members:
        raise RamifyError("members=[] makes no ensemble, which needs at least one member. Add the parents of a model.")
    if ensemble == "intersect":
        return _intersect(members)
    return [_combine_message(number, votes, ensemble) for number, votes in enumerate(zip(*members, strict=True))]


def _combine_message(number: int, members: Sequence[tuple[int, ...]], ensemble: Voting) -> tuple[int, ...]:
    votes = Counter(parent for parents in members for parent in parents or (number,))
    # Among ties, the nearest parent comes first, and the message itself before all others.
    ranked = sorted(votes, key=lambda parent: (votes[parent], parent), reverse=True)
    if ensemble == "vote":
        chosen = [parent for parent in ranked if parent == ranked[0] or 2 * votes[parent] > len(members)]
    elif ensemble == "unanimous":
        chosen = [parent for parent in ranked if votes[parent] == len(members)]
    elif ensemble == "union-most" and ranked[0] == number:
        return ()
    else:
        chosen = [parent for parent in ranked if parent != number or votes[parent] == len(members)]
    return () if chosen == [number] else tuple(chosen)


def _intersect(members: Sequence[Parents]) -> Parents:
    messages = np.arange(len(members[0]))
    labels = [find_conversations(_list_links(member), messages) for member in members]
    # The messages of a group share a conversation in every member. Members agree on a group that is as large as each of these.
    _, joint_group = np.unique(np.stack(labels), axis=1, return_inverse=True)
    size = np.bincount(joint_group)[joint_group]
    agreed = np.all([np.bincount(label)[label] == size for label in labels], axis=0)
    latest: dict[int, int] = {}
    parents: Parents = []
    for number, (group, whole, votes) in enumerate(zip(joint_group.tolist(), agreed.tolist(), zip(*members, strict=True))):
        parents.append((_choose_most_voted(number, votes, latest[group]),) if whole and group in latest else ())
        latest[group] = number
    return parents


def _choose_most_voted(number: int, members: Sequence[tuple[int, ...]], latest: int) -> int:
    """The parent with most votes, the nearest if tied.

    If all members vote for a start, later links join it to the conversation; its parent is then the latest message there.
    """
    votes = Counter(parent for parents in members for parent in parents if parent != number)
    return max(votes, key=lambda parent: (votes[parent], parent)) if votes else latest


def _list_links(parents: Parents) -> NDArray[np.int64]:
    pairs = [(parent, number) for number, message_parents in enumerate(parents) for parent in message_parents]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def count_votes(members: Sequence[Parents], parents: Parents) -> Float[NDArray, " message"]:
    """The share of members that predict the first parent of each message, or a start if it has none."""
    shares = []
    for number, (chosen, votes) in enumerate(zip(parents, zip(*members, strict=True), strict=True)):
        shown = next((parent for parent in chosen if parent != number), number)
        shares.append(np.mean([shown in (member or (number,)) for member in votes]))
    return np.array(shares, dtype=np.float64)
