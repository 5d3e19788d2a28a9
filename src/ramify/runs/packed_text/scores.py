"""Held-out scores of masked language models on rows of running text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify.batching.row_batch import RowCollator
from ramify.batching.views.packed import TextRows
from ramify.errors import counted
from ramify.inference.common_footing import CommonFooting, FootingScores
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.row_evaluation import RowScores, evaluate_rows, on_common_footing, readable_window
from ramify.runs.base import check_options, scoring
from ramify.runs.running_text import RunningTextEvaluation
from ramify.tasks.masked_lm import NEXT_SENTENCE

OPTIONS = ("draws", "mask_rate", "precision", "progress")

DRAWS = 1
"""Masks drawn per row in an evaluation."""


@dataclass(frozen=True)
class RowEvaluation(RunningTextEvaluation):
    """Held-out scores on masked tokens."""

    scores: RowScores
    footing: FootingScores
    mask_rate: float

    def lines(self) -> list[str]:
        masked = self.scores.summary()
        lines = [
            f"{'':<16} {'loss':>8} {'accuracy':>9} {'count':>10}",
            f"{'masked tokens':<16} {masked['loss']:>8.4f} {masked['accuracy']:>9.2%} {masked['count']:>10,}",
        ]
        if NEXT_SENTENCE in masked:
            following = masked[NEXT_SENTENCE]
            lines.append(
                f"{'next sentence':<16} {following['loss']:>8.4f} {following['accuracy']:>9.2%} {following['count']:>10,}"
            )
        return [
            *lines,
            f"perplexity {masked['perplexity']:.2f}; {counted(self.rows, 'row')}, {self.mask_rate:.0%} of the tokens masked, "
            f"{counted(self.draws, 'draw')}",
            self.footing.line(),
        ]


def evaluate(
    pipeline: MaskFiller, source: str, view: TextRows, collator: RowCollator, options: Mapping[str, Any]
) -> RowEvaluation:
    """Score a model on all rows of a view, and on the common footing of its text. Options: `OPTIONS`."""
    check_options(options, OPTIONS, source, "a masked language model of running text (--kind comment-trees scores comments)")
    task, draws, rate = pipeline.task, options.get("draws", DRAWS), options.get("mask_rate")
    window = readable_window(task)
    footing = CommonFooting.of(view.text, task.tokenizer, window=window)
    with scoring(pipeline, len(view), options) as advance:
        rows = np.arange(len(view))
        scores = evaluate_rows(task, view, collator, rows, draws=draws, mask_rate=rate, progress=advance)
        on_footing = on_common_footing(task, footing)
    unknown = task.tokenizer.unknown(view.text.ids)
    return RowEvaluation(scores, on_footing, len(view), draws, rate or task.config.mask_rate, unknown_pieces=unknown)
