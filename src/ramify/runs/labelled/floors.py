"""Floors of labels: the most frequent class, and TF-IDF with logistic regression. They are fitted in closed form, not trained.

A few settings of TF-IDF are tried, and the dev split chooses one by the metric of the task.
"""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import torch

from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.models.tfidf import TfidfConfig
from ramify.progress import activity
from ramify.runs.labelled.classification import PreparedClassification, TextLabelRun, training_view
from ramify.runs.tokenizers import TokenizerConfig, tokenizer_of
from ramify.training.seeds import step_seed

MAX_ITERATIONS = 1000
LEAST = 1e-6
"""The least share of a class whose logarithm is taken."""


@dataclass(frozen=True)
class FitConfig:
    """The settings of TF-IDF among which the dev split chooses. Without a dev split, the first ones are taken."""

    ngrams: tuple[int, ...] = (2, 1)
    """1: words. 2: words and pairs of neighbouring words."""
    strengths: tuple[float, ...] = (4.0, 1.0, 16.0)
    """The inverse strength C of the regularization (scikit-learn's)."""
    min_count: int = 2
    """The least number of training texts that hold a pair of words which is a term."""

    def __post_init__(self) -> None:
        check_fields(self, "fit.")
        if not self.ngrams or not set(self.ngrams) <= {1, 2}:
            raise RamifyError(f"fit.ngrams={list(self.ngrams)} holds no lengths of terms. Choose 1, 2 or both.")
        if not self.strengths or min(self.strengths) <= 0:
            raise RamifyError(f"fit.strengths={list(self.strengths)} must be positive numbers. Set, say, [1, 4].")
        if self.min_count < 1:
            raise RamifyError(f"fit.min_count={self.min_count} must be at least 1.")


@dataclass(frozen=True)
class Choice:
    """Settings that were fitted, and their score on the dev split."""

    ngrams: int
    strength: float
    dev: float | None = None
    """None: there is no dev split."""


@dataclass(frozen=True, kw_only=True)
class FloorRun(TextLabelRun):
    """A floor of labels, fitted in closed form."""

    name: ClassVar[str] = "floor"

    model: TfidfConfig
    fit: FitConfig = field(default_factory=FitConfig)
    tokenizer: TokenizerConfig = field(default_factory=lambda: TokenizerConfig(kind="word", vocab_size=100_000))
    stages: tuple[()] = ()

    def prepare(self, out: Path) -> PreparedClassification:
        store = self.store_of()
        run = self.adapt_to_data()
        tokenizer = tokenizer_of(run.tokenizer, "", store, out, seed=run.seed)
        torch.manual_seed(step_seed(run.seed, 0))
        with activity("fitting"):
            tried = list(_fitted(run, store, tokenizer))
        best, task = _best(tried, run.dev.chosen(tried[0][1]))
        run = replace(run, model=task.backbone.config)
        view, labels = training_view(task, store, run.seed)
        facts = {"chosen": asdict(best), "tried": [asdict(choice) for choice, _ in tried]}
        prepared = PreparedClassification(run, store, task, view, labels, fit=facts)
        measure, metric = prepared.dev(), prepared.metric
        # The temperature is fitted here, too.
        score = "no dev score" if measure is None else f"dev {metric.label} {measure()[metric.name]:.4f}"
        return replace(prepared, fitted=f"fitted, {score}{_said(best, tried)}")
