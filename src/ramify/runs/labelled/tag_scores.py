"""Held-out scores of models that tag words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from numpy.typing import NDArray

from ramify.batching.views.tagged import TaggedView
from ramify.dataset.store import Split, Store
from ramify.dataset.token_tags import NodeTags
from ramify.inference.tag import TaggedBatch, Tagger, held_out, predicted_tags, spellings
from ramify.metrics.spans import TagPredictions, score_spans, score_tags
from ramify.models.base import reads_characters
from ramify.runs.base import scoring
from ramify.runs.labelled.scores import Scored
from ramify.tasks.tagging import Tagging

WORDS_ALONE = "from words alone"
"""The name of the floor."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoredTags(Scored):
    """The tagged texts of a split with the tags that a model predicts."""

    view: TaggedView
    tagged: NodeTags
    found: list[list[str]]
    shares: list[Float[NDArray, " _word"]] | None
    """The probability of the predicted tag of each word, given its text; None: not computed."""
    predictions: TagPredictions
    majority: TagPredictions | None
    """The predictions that read each word alone: its most frequent tag in training. None: the model of another library, whose
    training data are not known."""

    floor_name = WORDS_ALONE
    floor_is = "each word has the tag that it had most often in training, and new words have the most frequent tag"

    @property
    def floor(self) -> Mapping[str, float] | None:
        return None if self.majority is None else self.majority.scores()


def score_texts(
    model: Tagger, store: Store, split: Split, options: Mapping[str, Any], *, with_shares: bool = False
) -> ScoredTags:
    """Predict the tags of a split, with their probabilities if these are wanted. Options: those of `Scored`."""
    task = model.task
    view, tagged = held_out(task, store, split)
    with scoring(model, len(view), options) as advance:
        shares: dict[int, Float[NDArray, " _word"]] = {}

        def add_shares(batch: TaggedBatch) -> None:
            marginals = task.posterior(batch.scores, batch.batch).marginals
            chosen = marginals.gather(1, batch.tags[:, None])[:, 0].double().cpu().numpy()
            shares.update({number: chosen[part] for number, part in zip(batch.numbers, batch.texts, strict=True)})

        found = predicted_tags(task, view, progress=advance, read=add_shares if with_shares else None)
    majority = None
    if task.config.word_types:
        words = spellings(store.texts(tagged.nodes), tagged.words)
        common = task.word_table.tags.cpu().numpy()
        floor = [[task.config.tags[tag] for tag in common[entries].tolist()] for entries in task.word_table.numbers(words)]
        majority = compared(task, tagged, floor)
    reads_pieces = task.config.decoder != "majority" and not reads_characters(task.backbone)
    return ScoredTags(
        view=view,
        tagged=tagged,
        found=found,
        shares=[shares[number] for number in range(len(view))] if with_shares else None,
        predictions=compared(task, tagged, found),
        majority=majority,
        nodes=tagged.nodes,
        trees=store.tree_of(tagged.nodes),
        labels=task.types,
        unknown_pieces=view.pieces.unknown(task.tokenizer) if reads_pieces else None,
    )


def compared(task: Tagging, tagged: NodeTags, predicted: Sequence[Sequence[str]]) -> TagPredictions:
    """Predicted tags beside the annotated ones."""
    score = score_spans if task.config.scheme == "spans" else score_tags
    return score(tagged.tags, predicted, task.types)
