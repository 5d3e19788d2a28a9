"""Held-out losses of models that predict texts token by token, and scores of their translations."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ramify.batching.forest import Ints
from ramify.batching.pair_batch import PairBatch
from ramify.batching.samplers import TokenBudget
from ramify.batching.views.pairs import GenerativeView, Pair
from ramify.inference.base import TOKENS
from ramify.inference.row_evaluation import Tallied
from ramify.tasks.base import Readings
from ramify.tasks.next_token import NextTokenLM

RESAMPLED = 1000
"""Number of resampled corpora from which the interval of BLEU is estimated."""

DIGITS = 20
"""Digits behind the point of that interval."""


@torch.no_grad()
def evaluate_next_tokens(
    task: NextTokenLM,
    view: GenerativeView,
    numbers: Ints,
    *,
    progress: Callable[[int], None] | None = None,
    read: Callable[[PairBatch, Readings], None] | None = None,
) -> Tallied:
    """The loss of every token of some examples, without smoothing. `read` is given each batch with its readings."""
    total = Tallied()
    with task.evaluating():
        for step in TokenBudget(view.costs[numbers], TOKENS, seed=0, shuffle=False).steps(0):
            batch = task.collator([view.example(int(number)) for number in numbers[step]]).to(task.device)
            states = task.backbone(batch)
            nats, best = task.head.measure(states, batch.labels)
            total += Tallied(float(nats.double().sum()), int((best == batch.labels).sum()), len(nats))
            if read is not None:
                read(batch, task.target_readings(batch, states, nats))
            if progress is not None:
                progress(len(step))
    return total


@dataclass(frozen=True)
class TokensBefore:
    """log p of one token of a text given those before it, for `CommonFooting.measure`."""

    task: NextTokenLM

    @torch.no_grad()
    def __call__(self, rows: Ints, positions: Ints) -> NDArray[np.float64]:
        with self.task.evaluating():
            # Rows of equal length keep their order.
            batch = self.task.collator([Pair(row, ends=False) for row in rows]).to(self.task.device)
            places = torch.from_numpy(np.arange(len(rows)) * rows.shape[1] + positions).to(self.task.device)
            states, labels = (tokens.index_select(0, places) for tokens in (self.task.backbone(batch), batch.labels))
            return -self.task.head.measure(states, labels)[0].double().cpu().numpy()


def spread_examples(view: GenerativeView, count: int) -> Ints:
    """Numbers of at most `count` examples, evenly spaced."""
    return np.arange(len(view)) if len(view) <= count else np.arange(count) * len(view) // count


@dataclass(frozen=True)
class BleuScores:
    """BLEU of translations, and of the sources themselves, by sacrebleu."""

    bleu: float
    bleu_interval: tuple[float, float]
    """95 % of the resampled corpora (Koehn 2004) lie in it."""
    floor_copy: float
    signature: str
    """The settings and the version of sacrebleu, by which scores compare (Post 2018)."""


NO_BLEU = 'BLEU is left out, because sacrebleu is not installed. Install it: pip install "ramify[translate]"'


def bleu_metric() -> Any:
    """BLEU by sacrebleu with its default settings; None if it is not installed."""
    try:
        import sacrebleu
    except ImportError:
        return None
    metrics: Any = sacrebleu.metrics
    return metrics.BLEU()


def bleu_scores(metric: Any, translations: Sequence[str], sources: Sequence[str], references: Sequence[str]) -> BleuScores:
    """Score a corpus by `bleu_metric`."""
    bleu = metric.corpus_score(list(translations), [list(references)], n_bootstrap=RESAMPLED)
    signature = str(metric.get_signature())
    floor = metric.corpus_score(list(sources), [list(references)]).score
    return BleuScores(bleu.score, _interval(bleu, signature), floor, signature)


def _interval(bleu: Any, signature: str) -> tuple[float, float]:
    """The interval of a score that has been resampled. sacrebleu gives it as JSON alone, and leaves out that of a mean of 0."""
    shown = json.loads(bleu.format(width=DIGITS, signature=signature, is_json=True))
    mean, half = (shown.get(f"confidence_{name}", 0.0) for name in ("mean", "var"))
    return mean - half, mean + half
