"""Evaluation of predicted parents on reply trees."""

from dataclasses import dataclass, replace

import numpy as np

from ramify.dataset.store import Split, Store
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.reply_trees import build_reply_logs
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.evaluation import ReadHistory, find_history
from ramify.disentangle.inference.links import predict_links
from ramify.disentangle.inference.predict import ReplyHistory
from ramify.metrics.replies import ReplyCounts

BASELINES = ("first", "previous")
"""Every comment answers the post; every comment answers the one before it."""


@dataclass(frozen=True)
class ReplyEvaluation:
    """Scores of predicted parents, beside baselines that do not read."""

    model: ReplyCounts
    baselines: dict[str, ReplyCounts]
    history: ReadHistory
    beyond_window: int
    """Comments whose parent is farther back than the model's window: they count as wrong."""


def score_parents(logs: Logs, parents: Ints) -> ReplyCounts:
    """Count predicted parents, one per message of the reply trees, against the gold ones."""
    comment, gold = logs.links.T
    lengths = np.bincount(logs.find_log(comment), minlength=len(logs.channels))
    return ReplyCounts.count(parents[comment], gold, lengths)


def predict_baseline(logs: Logs, name: str) -> Ints:
    """[message]: its parent by one of `BASELINES`."""
    messages = np.arange(len(logs))
    posts = logs.offsets[logs.find_log(messages)]
    return posts if name == "first" else np.maximum(messages - 1, posts)


def evaluate_replies(
    model: Disentangler, store: Store, split: Split, *, history: ReplyHistory = "gold", beam: int = 1
) -> ReplyEvaluation:
    """Predict the parent of every comment of a split's reply trees.

    With `history="gold"` a comment's parent is predicted given the gold parents of earlier comments, which makes the published
    graph accuracy. Whole conversations are right with either history or with neither: as long as all decisions were right, both
    are the same. Decoding is without starts. `beam`: see `predict_links`. Raises `RamifyError` where there are no comments.
    """
    task, decoding = model.task, replace(model.decoding, starts=False)
    logs = build_reply_logs(store.trees(store.evaluation_trees(split)), task.input).tokenize(task.tokenizer)
    parents = predict_links(task, decoding, logs, history=history, beam=beam).parent
    return ReplyEvaluation(
        score_parents(logs, parents),
        {name: score_parents(logs, predict_baseline(logs, name)) for name in BASELINES},
        find_history(task, history),
        len(logs.links) - len(logs.linked),
    )
