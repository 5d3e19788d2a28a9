"""Evaluation of predicted links against the gold links of a data set."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from ramify.dataset.store import Split, Store
from ramify.disentangle.data.candidates import first_candidates
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.targets import decode_start
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.links import predict_links
from ramify.disentangle.inference.predict import ReplyHistory
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError
from ramify.metrics.conversations import Match, match
from ramify.readers.annotation import Links
from ramify.tree import Tree

CONVERSATION = "conversation"
"""The field of a message's label that names its gold conversation."""

ReadHistory = Literal["predicted", "gold", "unread"]
"""The parents of earlier messages that a model has read; `unread` for a model that reads none."""

HISTORY_TEXT: dict[ReadHistory, str] = {
    "predicted": "the model read its own earlier decisions",
    "gold": "the model read the gold parents of earlier messages",
    "unread": "the model reads no parents of earlier messages",
}


def find_history(task: ReplyLinking, history: ReplyHistory) -> ReadHistory:
    return history if task.backbone.reads_structure else "unread"


@dataclass(frozen=True)
class LinkEvaluation:
    """Predicted links beside gold links, and the conditions of the prediction."""

    match: Match
    history: ReadHistory
    into_context: float
    """Share of the annotated messages that have an unannotated candidate."""
    gold: Literal["links", "conversations"]
    """The annotation of the data. In gold conversations, each message is taken to answer the one before it."""
    starts: bool
    """Whether messages that start a conversation are scored, too."""

    @property
    def unknown(self) -> tuple[str, ...]:
        """Scores that the annotation does not support."""
        return ("link",) if self.gold == "conversations" else ()

    def describe(self) -> str:
        """The conditions in words, to stand beside the scores."""
        starts = "" if self.starts else "; messages that start a conversation are not scored"
        if self.gold == "conversations":
            return f"{HISTORY_TEXT[self.history]}; the data have gold conversations, and no links{starts}"
        share = f"{self.into_context:.0%} of the scored messages have candidates without an annotation"
        return f"{HISTORY_TEXT[self.history]}; {share}{starts}"


def evaluate_links(
    model: Disentangler,
    store: Store,
    split: Split,
    *,
    starts: bool = True,
    history: ReplyHistory = "predicted",
    beam: int = 1,
) -> LinkEvaluation:
    """Predict the links of every annotated message of a split's logs.

    In data that have gold conversations alone (in `label`), each message is taken to answer the one before it in its
    conversation: that makes the same conversations, but links without an annotation (see `LinkEvaluation.unknown`).

    Without `starts`, or if the model finds none, messages that start a conversation are not scored. `history` and `beam`: see
    `predict_links`. Raises `RamifyError` where nothing is annotated, and for reply trees (see `evaluate_replies`).
    """
    task, decoding = model.task, model.decoding
    if store.structure == "replies":
        raise RamifyError(f"{store.path} holds reply trees, not chat logs. Score them with `ramify evaluate`.")
    trees = store.split(split)
    log_trees = list(store.trees(trees))
    gold: Literal["links", "conversations"] = "links" if any(map(_has_links, log_trees)) else "conversations"
    logs = Logs.build(map(_link_conversations, log_trees), task.input).tokenize(task.tokenizer)
    finds_starts = decoding.starts and task.config.objective != "ranking"
    if not (starts and finds_starts):
        logs = logs.drop_starts()
    if not len(logs.links):
        held = ", ".join(f"{name} {len(store.split(name)):,}" for name in ("train", "dev", "test"))
        raise RamifyError(
            f"Split {split} of {store.path} has no gold links, so there is nothing to score. The data set has logs in {held}; "
            "choose another with --split."
        )
    decisions = predict_links(task, decoding, logs, history=history, beam=beam, start=decode_start(logs))
    into_context = _reach_into_context(logs, np.flatnonzero(logs.annotated)).mean()
    matched = match_links(logs, store.tree_ids(trees), decisions.links)
    return LinkEvaluation(matched, find_history(task, history), float(into_context), gold, starts and finds_starts)


def match_links(logs: Logs, names: Sequence[str], links: Int[NDArray, "link 2"]) -> Match:
    """Predicted links (child, parent) beside the gold links of the logs, ready for the scores of `metrics.conversations`."""
    gold: dict[str, Links] = {}
    predicted: dict[str, Links] = {}
    for number, name in enumerate(names):
        first, stop = logs.offsets[number : number + 2].tolist()
        gold_links = logs.links[(logs.links[:, 0] >= first) & (logs.links[:, 0] < stop)] - first
        if len(gold_links):
            gold[name] = gold_links[:, ::-1]
            messages = np.unique(gold_links[:, 0])
            predicted[name] = (links - first)[np.isin(links[:, 0] - first, messages)][:, ::-1]
    return match(gold, predicted)


def _reach_into_context(logs: Logs, messages: Ints) -> NDArray[np.bool_]:
    """Which messages have an unannotated candidate."""
    unknown = np.concatenate([[0], np.cumsum(~logs.annotated)])
    first = first_candidates(logs, messages)
    return unknown[messages] > unknown[first]


def _has_links(log: Tree) -> bool:
    return any(node.parents is not None for node in log.nodes)


def _link_conversations(log: Tree) -> Tree:
    """A log without gold links gets those that its gold conversations imply."""
    if _has_links(log):
        return log
    latest: dict[Any, int] = {}
    nodes = []
    for number, node in enumerate(log.nodes):
        conversation = node.label.get(CONVERSATION) if isinstance(node.label, dict) else None
        if conversation is None:
            nodes.append(node)
            continue
        nodes.append(replace(node, parents=(latest[conversation],) if conversation in latest else ()))
        latest[conversation] = number
    return Tree(tuple(nodes), id=log.id, meta=log.meta)
