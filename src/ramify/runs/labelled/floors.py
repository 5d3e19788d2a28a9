"""Floors of whole texts: what reads nothing, and TF-IDF with logistic regression. They are fitted in closed form, not trained.

Some settings of TF-IDF are tried; the dev split chooses one by the metric of the task (`PreparedLabels.best_of`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import nn

from ramify.batching.choice_batch import ChoiceCollator
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.forest import Ints
from ramify.batching.labelled_batch import LabelledCollator
from ramify.batching.views.choices import ChoiceView
from ramify.batching.views.labelled import LabelledView
from ramify.config import check_fields
from ramify.dataset.tables import extra
from ramify.errors import RamifyError
from ramify.inference.label_pipeline import label_batches
from ramify.models.tfidf import Tfidf, TfidfConfig
from ramify.runs.labelled.base import Candidate
from ramify.runs.labelled.classification import PreparedClassification, TextLabelRun, with_texts
from ramify.runs.tokenizers import TokenizerConfig, tokenizer_of
from ramify.tasks.classification import Classification
from ramify.tasks.downstream import DownstreamTask
from ramify.tasks.multiple_choice import MultipleChoice, rows_of
from ramify.tokenizer import Tokenizer
from ramify.training.config import TrainConfig

MAX_ITERATIONS = 1000
LEAST = 1e-6
"""The least share of a class whose logarithm is taken."""

RowBatches = Callable[[], Iterator[tuple[Ints, EncoderInput]]]
"""The rows of training examples in batches, with the number of each row."""


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
        check_strengths(self.strengths)
        if self.min_count < 1:
            raise RamifyError(f"fit.min_count must be at least 1, but is {self.min_count}.")


def check_strengths(strengths: tuple[float, ...]) -> None:
    """Raise `RamifyError` for inverse strengths of a regularization that none can have."""
    if not strengths or min(strengths) <= 0:
        raise RamifyError(f"fit.strengths={list(strengths)} does not hold positive numbers alone. Set, say, [1, 4].")


# --- labels of texts -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FloorRun(TextLabelRun):
    """A floor of labels, fitted in closed form."""

    name: ClassVar[str] = "floor"

    model: TfidfConfig
    fit: FitConfig = field(default_factory=FitConfig)
    tokenizer: TokenizerConfig = field(default_factory=lambda: TokenizerConfig(kind="word", vocab_size=100_000))
    stages: tuple[TrainConfig, ...] = ()

    def prepare(self, out: Path) -> PreparedClassification:
        store, run = self.store_of(), self.adapt_to_data()
        tokenizer = tokenizer_of(run.tokenizer, "", store, out, seed=run.seed)
        width = 1 if run.task.labels == "numbers" else len(run.task.classes)
        model = replace(run.model, vocab_size=tokenizer.vocab_size, dim=width)
        opened = with_texts(run, store, Classification(model.build(), tokenizer, run.input, run.task), out)
        return opened.best_of(_label_candidates(opened, model, run.fit))


def _label_candidates(opened: PreparedClassification, model: TfidfConfig, fit: FitConfig) -> Iterator[Candidate]:
    targets = opened.train.targets
    assert targets is not None

    def task_of(backbone: Tfidf) -> Classification:
        task = Classification(backbone, opened.task.tokenizer, opened.task.input, opened.task.config)
        task.fit(targets)
        return task

    if model.reads == "nothing":
        task = task_of(model.build())
        with torch.no_grad():
            nn.init.eye_(task.output.weight)
            task.output.bias.copy_(torch.from_numpy(constant_scores(task)))
        yield {}, task
        return
    model = replace(model, num_texts=2 if opened.train.rows.two_texts else 1)
    for settings, backbone, matrix in term_models(model, fit, opened.task.tokenizer, text_rows(opened.train)):
        task = task_of(backbone)
        fit_labels(task, matrix, targets, settings["strength"])
        yield settings, task


def text_rows(view: LabelledView) -> RowBatches:
    """The rows of labelled texts."""
    collator = LabelledCollator.of(view.rows)
    return lambda: ((numbers, batch.input) for numbers, batch in label_batches(view, collator))


@torch.no_grad()
def fit_labels(task: Classification, matrix: csr_array, targets: Shaped[NDArray, "row ..."], strength: float) -> None:
    """Fit the weights of a model by logistic regression, one per label if there are several, or by ridge regression."""
    config = task.config
    weights, biases = np.zeros((task.output.out_features, len(task.backbone.weight))), constant_scores(task)
    if config.labels == "numbers":
        extra("sklearn", "--model tfidf")
        from sklearn.linear_model import Ridge

        ridge = Ridge(alpha=1 / strength).fit(matrix, (targets - float(task.center)) / float(task.spread))
        weights[0], biases[0] = ridge.coef_, ridge.intercept_
    elif config.labels == "classes":
        logistic_weights(matrix, targets, strength, weights, biases, balanced=config.class_weights == "balanced")
    else:
        for label in np.flatnonzero((targets.min(0) == 0) & (targets.max(0) == 1)):
            weights[label], biases[label] = log_odds(matrix, targets[:, label], strength)
    set_weights(task, weights, biases)


def constant_scores(task: Classification) -> Float[NDArray, " output"]:
    """The scores of the best prediction that reads no text."""
    if task.config.labels == "numbers":
        return np.zeros(1)
    shares = np.clip(task.prior.double().numpy(), LEAST, 1 - LEAST)
    return np.log(shares) - (np.log1p(-shares) if task.config.labels == "several" else 0)


# --- choices ---------------------------------------------------------------------------------------------------------


def choice_candidates(task: MultipleChoice, view: ChoiceView, fit: FitConfig) -> Iterator[Candidate]:
    """Floors of choices: the place that is right most often, or logistic regression of right against wrong choices.

    The terms are those of what is given, those of the choice, and the overlap of the two.
    """
    model: TfidfConfig = task.backbone.config
    assert view.right is not None
    right = view.right
    if model.reads == "nothing":
        task.fit(right)
        yield {}, task
        return
    rows = choice_rows(view)
    is_right = np.zeros(int(view.sizes.sum()), dtype=np.int64)
    is_right[np.cumsum(view.sizes) - view.sizes + right] = 1
    for settings, backbone, matrix in term_models(replace(model, num_texts=2, overlap=True), fit, task.tokenizer, rows):
        fitted = MultipleChoice(backbone, task.tokenizer, task.input, task.config)
        fitted.fit(right)
        weights, bias = log_odds(matrix, is_right, settings["strength"])
        set_weights(fitted, weights[None], np.array([bias]))
        yield settings, fitted


def choice_rows(view: ChoiceView) -> RowBatches:
    """The rows of all choices, numbered question after question."""
    collator, first = ChoiceCollator.of(view), np.cumsum(view.sizes) - view.sizes

    def batches() -> Iterator[tuple[Ints, EncoderInput]]:
        for numbers, batch in label_batches(view, collator):
            rows = rows_of(batch)
            yield first[numbers] + rows.place.numpy() - rows.choices.offsets.numpy()[batch.order], batch.input

    return batches


# --- the terms -------------------------------------------------------------------------------------------------------


def term_models(
    model: TfidfConfig, fit: FitConfig, tokenizer: Tokenizer, rows: RowBatches
) -> Iterator[tuple[dict[str, Any], Tfidf, csr_array]]:
    """All settings, each with a model that knows the terms but no weights, and the matrix of the rows."""
    for ngrams, strength in product(fit.ngrams, fit.strengths):
        pairs = np.zeros(0, dtype=np.int64)
        if ngrams == 2:
            pairs = frequent_pairs(_knowing(model, pairs, tokenizer), rows, fit.min_count)
        backbone = _knowing(model, pairs, tokenizer)
        yield {"ngrams": ngrams, "strength": strength}, backbone, term_matrix(backbone, rows, learn=True)


def _knowing(model: TfidfConfig, pairs: Ints, tokenizer: Tokenizer) -> Tfidf:
    """A model of these pairs of words, without weights."""
    backbone = replace(model, num_bigrams=len(pairs)).build()
    backbone.bigrams.copy_(torch.from_numpy(pairs))
    backbone.learn_words(tokenizer)
    return backbone


def frequent_pairs(backbone: Tfidf, rows: RowBatches, min_count: int) -> Ints:
    """The pairs of neighbouring words that so many rows hold, in ascending order."""
    found = [np.zeros(0, dtype=np.int64)]
    for _, read in rows():
        row = torch.repeat_interleave(torch.arange(len(read.rows)), read.rows.lengths)
        place, keys = backbone.pairs(backbone.in_texts(read), row)
        found.append(torch.unique(torch.stack([row[place], keys], 1), dim=0)[:, 1].numpy())
    keys, counts = np.unique(np.concatenate(found), return_counts=True)
    return keys[counts >= min_count]


def term_matrix(backbone: Tfidf, rows: RowBatches, *, learn: bool) -> csr_array:
    """[row, term]: the TF-IDF of rows. `learn`: their document frequencies become those of the model."""
    batches = [(numbers, backbone.terms(backbone.in_texts(read), read.rows)) for numbers, read in rows()]
    count = sum(len(numbers) for numbers, _ in batches)
    if learn:
        backbone.learn_frequencies(torch.cat([terms.term for _, terms in batches]), count)
    cells = [(numbers, backbone.weighted(terms)) for numbers, terms in batches]
    values = np.concatenate([found.value.numpy() for _, found in cells])
    columns = np.concatenate([found.term.numpy() for _, found in cells])
    places = np.concatenate([numbers[found.row.numpy()] for numbers, found in cells])
    return csr_array((values, (places, columns)), shape=(count, backbone.config.num_weighted), dtype=np.float64)


# --- weights ---------------------------------------------------------------------------------------------------------


def logistic_weights(
    matrix: csr_array,
    targets: Ints,
    strength: float,
    weights: Float[NDArray, "output column"],
    biases: Float[NDArray, " output"],
    *,
    balanced: bool = False,
) -> None:
    """Set the weights and biases of the classes that rows have. Rows of one class alone change nothing."""
    if len(np.unique(targets)) < 2:
        return
    extra("sklearn", "--model tfidf")
    from sklearn.linear_model import LogisticRegression

    balance = "balanced" if balanced else None
    model = LogisticRegression(C=strength, max_iter=MAX_ITERATIONS, class_weight=balance).fit(matrix, targets)
    # Of two classes, scikit-learn gives the weights of the second; the scores of the first are zero.
    biases[model.classes_] = 0
    known = model.classes_[-len(model.coef_) :]
    weights[known], biases[known] = model.coef_, model.intercept_


def log_odds(matrix: csr_array, is_true: Shaped[NDArray, " row"], strength: float) -> tuple[Float[NDArray, " column"], float]:
    """The weights and the bias of the log-odds that a row is true rather than false."""
    assert matrix.shape is not None
    weights, biases = np.zeros((2, matrix.shape[1])), np.zeros(2)
    logistic_weights(matrix, is_true.astype(np.int64), strength, weights, biases)
    return weights[1], float(biases[1])


@torch.no_grad()
def set_weights(task: DownstreamTask, weights: Float[NDArray, "output column"], biases: Float[NDArray, " output"]) -> None:
    """The weights of columns become those of the model, and the output layer adds the biases."""
    task.backbone.weight.copy_(torch.from_numpy(weights.T))
    nn.init.eye_(task.output.weight)
    task.output.bias.copy_(torch.from_numpy(biases))
