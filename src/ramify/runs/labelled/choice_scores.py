"""Held-out scores of models that choose."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.special import softmax

from ramify.batching.views.choices import ChoiceView
from ramify.dataset.store import Split, Store
from ramify.inference.choose import Chooser, choice_scores, held_out
from ramify.metrics.choices import ChoicePredictions
from ramify.models.base import reads_characters
from ramify.runs.base import scoring
from ramify.runs.labelled.scores import Scored

ONE_PLACE = "of one place"
"""The name of the floor."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoredChoices(Scored):
    """The questions of a split with a model's scores."""

    view: ChoiceView
    scores: list[Float[NDArray, " _choice"]]
    predictions: ChoicePredictions
    majority: ChoicePredictions | None
    """The place that is right most often in training, of each question; None: the model of another library, whose training data
    are not known."""

    @property
    def shares(self) -> list[Float[NDArray, " _choice"]]:
        """The probabilities of the choices of each question."""
        return [softmax(row) for row in self.scores]

    example = "question"
    floor_name = ONE_PLACE
    floor_is = "the place that is right most often in training is chosen in every question"

    @property
    def floor(self) -> Mapping[str, float] | None:
        return None if self.majority is None else self.majority.scores()


def compared(view: ChoiceView, scores: list[Float[NDArray, " _choice"]]) -> ChoicePredictions:
    """The likeliest choices beside the right ones."""
    assert view.right is not None
    return ChoicePredictions(view.right, np.array([row.argmax() for row in scores], dtype=np.int64), view.sizes)


def score_questions(model: Chooser, store: Store, split: Split, options: Mapping[str, Any]) -> ScoredChoices:
    """Score the choices of a split."""
    task = model.task
    view, _ = held_out(task, store, split)
    with scoring(model, len(view), options) as advance:
        scores = choice_scores(task, view, progress=advance)
    predictions = compared(view, scores)
    majority = replace(predictions, predicted=task.majority(view.sizes)) if task.config.choices else None
    questions = view.sets.questions
    return ScoredChoices(
        view=view,
        scores=scores,
        predictions=predictions,
        majority=majority,
        nodes=questions,
        trees=store.tree_of(questions),
        unknown_pieces=None if reads_characters(model.backbone) else view.unknown_pieces(model.tokenizer),
    )
