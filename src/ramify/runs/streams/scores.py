"""Held-out scores of models of running text."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ramify.batching.running_text import RunningText
from ramify.batching.views.streams import StreamConfig
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted
from ramify.inference.common_footing import WINDOW, CommonFooting
from ramify.inference.stream_evaluation import (
    StreamScores,
    evaluate_streams,
    held_out_streams,
    num_places,
    on_common_footing,
)
from ramify.inference.streams import StreamPipeline
from ramify.models.base import reads_characters
from ramify.runs.base import check_options, scoring
from ramify.runs.running_text import RunningTextEvaluation

OPTIONS = ("draws", "rows", "memory", "precision", "progress")

DRAWS = 1
"""Draws of targets per row in an evaluation."""


@dataclass(frozen=True)
class StreamEvaluation(RunningTextEvaluation):
    """Held-out scores on the targets of rows that continue each other."""

    scores: StreamScores
    has_perplexity: bool
    """Whether every token is predicted from those before it in its direction."""

    @property
    def perplexity(self) -> float:
        """exp(½ (NLL→ + NLL←)) per token: both directions have equally many targets."""
        return math.exp(self.scores.summary()["loss"])

    @property
    def direction_losses(self) -> dict[str, float]:
        """The loss of each direction."""
        return {direction: scores.summary()["loss"] for direction, scores in self.scores.directions.items()}

    def to_json(self) -> dict[str, Any]:
        own = {"perplexity": self.perplexity, "directions": self.direction_losses} if self.has_perplexity else {}
        return super().to_json() | own

    def lines(self) -> list[str]:
        summary = self.scores.summary()
        parts = ", ".join(f"{direction} {loss:.4f}" for direction, loss in self.direction_losses.items())
        perplexity = f", perplexity {self.perplexity:.2f} ({parts})" if self.has_perplexity else ""
        return [
            f"loss {summary['loss']:.4f} nats per target{perplexity}, accuracy {summary['accuracy']:.2%}; "
            f"{counted(summary['count'], 'target')} in {counted(self.rows, 'row')}, {counted(self.draws, 'draw')}",
            *([] if self.footing is None else [self.footing.line()]),
        ]


def evaluate(
    pipeline: StreamPipeline, source: str, store: Store, split: Split, config: StreamConfig, options: Mapping[str, Any]
) -> StreamEvaluation:
    """Score a model on the streams of a split, and on the common footing of its text. Options: `OPTIONS`."""
    check_options(options, OPTIONS, source, "a language model of running text")
    task, draws, rows = pipeline.task, options.get("draws", DRAWS), options.get("rows")
    text = RunningText.open(store, task.tokenizer, split, marks=True, open_words=reads_characters(task.backbone))
    view = held_out_streams(task, text, config)
    memory = options.get("memory")
    if memory is not None and memory > view.length:
        raise RamifyError(
            f"--memory {memory} is longer than a stream of the split {split}, which has {counted(view.length, 'token')}. Lower "
            "--memory, or take more text."
        )
    # Marks at the ends of paragraphs would be part of the windows, which all models must share.
    window = min(WINDOW, task.input.longest)
    footing = CommonFooting.of(RunningText.open(store, task.tokenizer, split), task.tokenizer, window=window)
    total = num_places(view, rows) * view.config.num_rows
    with scoring(pipeline, total * draws, options) as advance:
        scores = evaluate_streams(task, view, rows=rows, draws=draws, memory=memory, progress=advance)
        on_footing = on_common_footing(pipeline, footing)
    ids = text.ids if text.lexicon is None else text.lexicon.in_vocabulary(text.ids.astype(np.int64))
    unknown = replace(task.tokenizer.unknown(ids), characters_read=text.lexicon is not None)
    return StreamEvaluation(scores, on_footing, total, draws, task.perplexity, unknown_pieces=unknown)
