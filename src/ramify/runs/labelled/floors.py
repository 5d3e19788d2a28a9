"""Floors of labels: the most frequent class, and TF-IDF with logistic regression. They are fitted in closed form, not trained.

Some settings of TF-IDF are tried; the dev split chooses one by the metric of the task.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import nn

from ramify.batching.forest import Ints
from ramify.batching.labelled_batch import LabelledCollator
from ramify.batching.views.labelled import LabelledView
from ramify.config import check_fields
from ramify.dataset.tables import extra
from ramify.errors import RamifyError
from ramify.inference.label_pipeline import label_batches
from ramify.models.tfidf import Tfidf, TfidfConfig
from ramify.progress import activity
from ramify.runs.labelled.classification import PreparedClassification, TextLabelRun, with_texts
from ramify.runs.tokenizers import TokenizerConfig, tokenizer_of
from ramify.tasks.classification import Classification
from ramify.training.config import TrainConfig

FIXED = ("train.", "stages.", "model.", "init", "task.mode", "task.head", "task.dropout", "task.max_norm")
"""Beginnings of the settings that a floor does not have."""
MAX_ITERATIONS = 1000
LEAST = 1e-6
"""The least share of a class whose logarithm is taken."""


@dataclass(frozen=True)
class FitConfig:
    """The settings of TF-IDF among which the dev split chooses. Without a dev split, the first ones are taken."""

    ngrams: tuple[int, ...] = (2, 1)
    """Lengths of the longest terms. 1: words. 2: words, and pairs of neighbouring words."""
    strengths: tuple[float, ...] = (4.0, 1.0, 16.0)
    """Inverse strengths of the regularization (C of scikit-learn)."""
    min_count: int = 2
    """The number of training texts in which a pair of words must occur to be a term."""

    def __post_init__(self) -> None:
        check_fields(self, "fit.")
        if not self.ngrams or not set(self.ngrams) <= {1, 2}:
            raise RamifyError(f"fit.ngrams={list(self.ngrams)} does not hold lengths of terms alone. Choose of 1 and 2.")
        if not self.strengths or min(self.strengths) <= 0:
            raise RamifyError(f"fit.strengths={list(self.strengths)} does not hold positive numbers alone. Set, say, [1, 4].")
        if self.min_count < 1:
            raise RamifyError(f"fit.min_count must be at least 1, but is {self.min_count}.")


@dataclass(frozen=True, kw_only=True)
class FloorRun(TextLabelRun):
    """A floor of labels, fitted in closed form."""

    name: ClassVar[str] = "floor"

    model: TfidfConfig
    fit: FitConfig = field(default_factory=FitConfig)
    tokenizer: TokenizerConfig = field(default_factory=lambda: TokenizerConfig(kind="word", vocab_size=100_000))
    stages: tuple[TrainConfig, ...] = ()

    def check_settings(self, settings: Mapping[str, str]) -> None:
        for key in settings:
            if key.startswith(FIXED):
                raise RamifyError(
                    f"--set {key}={settings[key]} has no effect on a floor, which is fitted in closed form. Leave it out, or "
                    "choose another --model."
                )

    def prepare(self, out: Path) -> PreparedClassification:
        store, run = self.store_of(), self.adapt_to_data()
        tokenizer = tokenizer_of(run.tokenizer, "", store, out, seed=run.seed)
        width = 1 if run.task.labels == "numbers" else len(run.task.classes)
        model = replace(run.model, vocab_size=tokenizer.vocab_size, dim=width)
        opened = with_texts(run, store, Classification(model.build(), tokenizer, run.input, run.task), out)
        model = replace(model, num_texts=2 if opened.train.rows.two_texts else 1)
        tried: list[dict[str, Any]] = []
        best = opened
        with activity("fitting"):
            for settings, task in _candidates(opened, model, run.fit):
                fitted = replace(opened, task=task, run=replace(run, model=task.backbone.config))
                measure, metric = fitted.dev(), fitted.metric
                score = None if measure is None else measure()[metric.name]
                tried.append({**settings, "dev": score})
                if best is opened or (score is not None and metric.improves(score, best.fit["dev"])):
                    best = replace(fitted, fit=tried[-1] | {"metric": metric.name, "tried": tried})
        score = best.fit["dev"]
        said = "no dev score: the dev split holds nothing to score"
        if score is not None:
            said = f"dev {best.metric.label} {score:.4f}"
        return replace(best, fitted=f"fitted, {said}")


def _candidates(
    opened: PreparedClassification, model: TfidfConfig, fit: FitConfig
) -> Iterator[tuple[dict[str, float], Classification]]:
    """Settings, and a task that is fitted with them."""
    if model.reads == "nothing":
        task = _task(opened, model, no_pairs())
        with torch.no_grad():
            nn.init.eye_(task.output.weight)
            task.output.bias.copy_(torch.from_numpy(constant_scores(task)))
        yield {}, task
        return
    for ngrams, strength in product(fit.ngrams, fit.strengths):
        pairs = frequent_pairs(opened, model, fit.min_count) if ngrams == 2 else no_pairs()
        task = _task(opened, model, pairs)
        fit_terms(task, opened.train, strength)
        yield {"ngrams": ngrams, "strength": strength}, task


def _task(opened: PreparedClassification, model: TfidfConfig, pairs: Ints) -> Classification:
    """A task like that of a run, with a model of these pairs of words and without weights."""
    backbone = replace(model, num_bigrams=len(pairs)).build()
    backbone.bigrams.copy_(torch.from_numpy(pairs))
    backbone.learn_words(opened.task.tokenizer)
    task = Classification(backbone, opened.task.tokenizer, opened.task.input, opened.task.config)
    assert opened.train.targets is not None
    task.fit(opened.train.targets)
    return task


def no_pairs() -> Ints:
    return np.zeros(0, dtype=np.int64)


def frequent_pairs(opened: PreparedClassification, model: TfidfConfig, min_count: int) -> Ints:
    """The pairs of neighbouring words that so many training texts hold, in ascending order."""
    backbone = _task(opened, model, no_pairs()).backbone
    found = [no_pairs()]
    for _, batch in label_batches(opened.train, LabelledCollator.of(opened.train.rows)):
        rows = batch.input.rows
        row = torch.repeat_interleave(torch.arange(len(rows)), rows.lengths)
        place, keys = backbone.pairs(backbone.in_texts(batch.input), row)
        found.append(torch.unique(torch.stack([row[place], keys], 1), dim=0)[:, 1].numpy())
    keys, counts = np.unique(np.concatenate(found), return_counts=True)
    return keys[counts >= min_count]


def term_matrix(task: Classification, view: LabelledView, *, learn: bool) -> csr_array:
    """[row, term]: the TF-IDF of the texts of a view. `learn`: their document frequencies become those of the model."""
    backbone: Tfidf = task.backbone
    numbers, terms = [], []
    for places, batch in label_batches(view, LabelledCollator.of(view.rows)):
        found = backbone.terms(backbone.in_texts(batch.input), batch.input.rows)
        terms.append(found)
        numbers.append(places[found.row.numpy()])
    if learn:
        backbone.learn_frequencies(torch.cat([found.term for found in terms]), len(view))
    values = np.concatenate([backbone.values(found).numpy() for found in terms])
    columns = np.concatenate([found.term.numpy() for found in terms])
    return csr_array((values, (np.concatenate(numbers), columns)), shape=(len(view), len(backbone.idf)), dtype=np.float64)


@torch.no_grad()
def fit_terms(task: Classification, view: LabelledView, strength: float) -> None:
    """Fit the weights of a model by logistic regression, one per label if there are several, or by ridge regression."""
    extra("sklearn", "--model tfidf")
    from sklearn.linear_model import LogisticRegression, Ridge

    matrix, targets, config = term_matrix(task, view, learn=True), view.targets, task.config
    assert targets is not None
    weights, biases = np.zeros((task.output.out_features, len(task.backbone.idf))), constant_scores(task)
    if config.labels == "numbers":
        ridge = Ridge(alpha=1 / strength).fit(matrix, (targets - float(task.center)) / float(task.spread))
        weights[0], biases[0] = ridge.coef_, ridge.intercept_
    elif config.labels == "classes":
        balance = "balanced" if config.class_weights == "balanced" else None
        # A few training texts may be of one class, which needs no weights.
        if len(np.unique(targets)) > 1:
            model = LogisticRegression(C=strength, max_iter=MAX_ITERATIONS, class_weight=balance).fit(matrix, targets)
            # Of two classes, scikit-learn gives the weights of the second; the scores of the first are zero.
            biases[model.classes_] = 0
            known = model.classes_[-len(model.coef_) :]
            weights[known], biases[known] = model.coef_, model.intercept_
    else:
        for label in np.flatnonzero((targets.min(0) == 0) & (targets.max(0) == 1)):
            model = LogisticRegression(C=strength, max_iter=MAX_ITERATIONS).fit(matrix, targets[:, label])
            weights[label], biases[label] = *model.coef_, *model.intercept_
    task.backbone.weight.copy_(torch.from_numpy(weights.T))
    nn.init.eye_(task.output.weight)
    task.output.bias.copy_(torch.from_numpy(biases))


def constant_scores(task: Classification) -> Float[NDArray, " output"]:
    """The scores of the best prediction that reads no text."""
    if task.config.labels == "numbers":
        return np.zeros(1)
    shares = np.clip(task.prior.double().numpy(), LEAST, 1 - LEAST)
    return np.log(shares) - (np.log1p(-shares) if task.config.labels == "several" else 0)
