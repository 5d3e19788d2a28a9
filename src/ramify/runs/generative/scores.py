"""Held-out scores of models that predict texts token by token."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ramify.batching.running_text import RunningText
from ramify.batching.views.pairs import GenerativeView, Pairs, generative_view
from ramify.dataset.store import Split, Store
from ramify.errors import counted
from ramify.inference.common_footing import WINDOW, CommonFooting, FootingScores
from ramify.inference.next_token_evaluation import (
    NO_BLEU,
    BleuScores,
    TokensBefore,
    bleu_metric,
    bleu_scores,
    evaluate_next_tokens,
    spread_examples,
)
from ramify.inference.row_evaluation import Tallied
from ramify.inference.search import Beam
from ramify.inference.translate import NextTokenPipeline, Translator
from ramify.runs.base import Evaluation, check_options, scoring
from ramify.tasks.next_token import NextTokenLM

Unit = Literal["pair", "row"]
"""An example: a pair, or a row of running text, whole or corrupted."""

LIMITS: dict[Unit, str] = {"pair": "comments", "row": "rows"}
"""The option that limits an evaluation to so many examples, evenly spaced over the split."""

OPTIONS: dict[Unit, tuple[str, ...]] = {
    "pair": (LIMITS["pair"], "beam", "precision", "progress"),
    "row": (LIMITS["row"], "precision", "progress"),
}
"""The options of an evaluation."""

BLEU_KEYS = ("bleu", "bleu_interval", "signature", "floor_copy")
"""The scores of translations. Without sacrebleu, they are null."""


@dataclass(frozen=True)
class GenerativeEvaluation(Evaluation):
    """Loss in nats per token, ends of texts included, and BLEU of the translations of pairs."""

    scores: Tallied
    unit: Unit
    examples: int
    bleu: BleuScores | None
    """None: the examples are no pairs, or sacrebleu is not installed."""
    truncated: int
    """Pairs of the split with a text that is read only in part."""
    footing: FootingScores | None = None
    """None: the model reads sources."""

    @property
    def loss(self) -> float:
        return self.scores.summary()["loss"]

    def to_json(self) -> dict[str, Any]:
        summary = {"loss": self.loss, "perplexity": float(np.exp(self.loss))}
        if self.unit == "pair":
            summary |= dict.fromkeys(BLEU_KEYS) if self.bleu is None else {name: getattr(self.bleu, name) for name in BLEU_KEYS}
        summary |= {"count": self.examples, "tokens": self.scores.count, "accuracy": self.scores.summary()["accuracy"]}
        footing = {} if self.footing is None else self.footing.to_json()
        return summary | ({"truncated": self.truncated} if self.truncated else {}) | footing | self.unknown_tokens()

    def lines(self) -> list[str]:
        summary = self.scores.summary()
        lines = [
            f"loss {summary['loss']:.4f} nats per token, perplexity {np.exp(summary['loss']):.2f}, accuracy "
            f"{summary['accuracy']:.2%}; {counted(summary['count'], 'token')} in {counted(self.examples, self.unit)}"
        ]
        if self.footing is not None:
            lines.append(self.footing.line())
        if self.truncated:
            lines.append(f"{counted(self.truncated, 'pair')} longer than the model reads, and truncated")
        if self.bleu is not None:
            low, high = self.bleu.bleu_interval
            lines.append(
                f"BLEU {self.bleu.bleu:.2f} (95 % interval {low:.2f} to {high:.2f}); of the copied sources "
                f"{self.bleu.floor_copy:.2f} ({self.bleu.signature})"
            )
        return lines


def unit_of(model: NextTokenPipeline) -> Unit:
    """The examples that a model is scored on."""
    return "pair" if isinstance(model, Translator) and model.input.source == "parent" else "row"


def held_out(task: NextTokenLM, store: Store, split: Split) -> GenerativeView:
    """The texts of a split that is scored: all of them, so long ones are truncated."""
    input = replace(task.input, long="truncate")
    return generative_view(store, task.tokenizer, split, input, sources=task.backbone.reads_source)


def evaluate(
    model: NextTokenPipeline, source: str, store: Store, split: Split, options: Mapping[str, Any]
) -> GenerativeEvaluation:
    """Score a model on a split. Options: `OPTIONS`."""
    unit = unit_of(model)
    paired = unit == "pair"
    check_options(options, OPTIONS[unit], source, "a model of pairs" if paired else "a model of running text")
    view = held_out(model.task, store, split)
    numbers = spread_examples(view, options.get(LIMITS[unit], len(view)))
    metric = bleu_metric() if paired else None
    with scoring(model, len(numbers) * (1 if metric is None else 2), options) as advance:
        scores = evaluate_next_tokens(model.task, view, numbers, progress=advance)
        bleu = footing = None
        if not model.task.backbone.reads_source:
            window = min(WINDOW, model.input.max_tokens - 1)
            text = RunningText.open(store, model.tokenizer, split)
            footing = CommonFooting.of(text, model.tokenizer, window=window).measure(TokensBefore(model.task), given="before")
        if metric is not None and isinstance(model, Translator) and isinstance(view, Pairs):
            sources, references = store.texts(view.parent[numbers]), store.texts(view.child[numbers])
            translations = model.translations(view.sources(numbers), Beam(options.get("beam", Beam.width)), progress=advance)
            best = [hypotheses[0].text for hypotheses in translations]
            bleu = bleu_scores(metric, best, sources, references)
    return GenerativeEvaluation(
        scores,
        unit,
        len(numbers),
        bleu,
        view.counts.long,
        footing,
        unknown_pieces=view.unknown(model.tokenizer),
        left_out=(NO_BLEU,) if paired and metric is None else (),
    )
