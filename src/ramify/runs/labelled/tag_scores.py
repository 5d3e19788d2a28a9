"""Held-out scores of models that tag words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ramify.batching.views.tagged import TaggedView
from ramify.dataset.store import Split, Store
from ramify.dataset.token_tags import NodeTags
from ramify.inference.tag import Tagger, held_out, predicted_tags, spellings
from ramify.metrics.metric import Metric
from ramify.metrics.spans import TagPredictions, score_spans, score_tags
from ramify.models.base import reads_characters
from ramify.nn.precision import autocast
from ramify.runs.base import check_options, no_progress
from ramify.runs.labelled.scores import OPTIONS, LabelEvaluation
from ramify.tasks.tagging import Tagging

WORDS_ALONE = "from words alone"
"""The name of the floor."""


@dataclass(frozen=True, eq=False)
class ScoredTags:
    """The tagged texts of a split with the tags that a model predicts."""

    view: TaggedView
    tagged: NodeTags
    found: list[list[str]]
    predictions: TagPredictions
    majority: TagPredictions | None
    """Those that read each word alone: its most frequent tag in training. None: the model of another library, whose training
    data are not known."""


def score_texts(model: Tagger, store: Store, split: Split, options: Mapping[str, Any]) -> ScoredTags:
    """Predict the tags of a split."""
    task = model.task
    view, tagged = held_out(task, store, split)
    bar, precision = options.get("progress", no_progress), options.get("precision", "fp32")
    with bar(len(view)) as advance, autocast(model.device, precision):
        found = predicted_tags(task, view, progress=advance)
    majority = None
    if task.config.word_types:
        words = spellings(store.texts(tagged.nodes), tagged.words)
        common = task.word_table.tags.cpu().numpy()
        floor = [[task.config.tags[tag] for tag in common[entries].tolist()] for entries in task.word_table.numbers(words)]
        majority = compared(task, tagged, floor)
    return ScoredTags(view, tagged, found, compared(task, tagged, found), majority)


def compared(task: Tagging, tagged: NodeTags, predicted: Sequence[Sequence[str]]) -> TagPredictions:
    """Predicted tags beside the annotated ones."""
    score = score_spans if task.config.scheme == "spans" else score_tags
    return score(tagged.tags, predicted, task.types)


def evaluate(
    model: Tagger, source: str, store: Store, split: Split, options: Mapping[str, Any], metric: Metric
) -> LabelEvaluation:
    """Score a model on a split. Options: `OPTIONS`."""
    check_options(options, OPTIONS, source, "a model that predicts tags")
    task, scored = model.task, score_texts(model, store, split, options)
    reads_pieces = task.config.decoder != "majority" and not reads_characters(task.backbone)
    return LabelEvaluation(
        metric,
        scored.predictions.scores(),
        None if scored.majority is None else scored.majority.scores()[metric.name],
        len(scored.view),
        unknown_pieces=scored.view.pieces.unknown(task.tokenizer) if reads_pieces else None,
        floor_name=WORDS_ALONE,
    )
