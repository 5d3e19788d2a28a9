"""Labels of texts from a trained classifier."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.batching.labelled_batch import LabelledBatch, LabelledCollator
from ramify.batching.views.labelled import LabelledView, RowTexts, resolved_input
from ramify.dataset.labels import NodeLabels, check_kind, label_names, labels_at, node_labels
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError
from ramify.inference.answers import Prediction, TextLabel
from ramify.inference.label_pipeline import LabelPipeline, label_batches
from ramify.metrics.published import metric_groups
from ramify.models.base import reads_characters
from ramify.tasks.base import Readings
from ramify.tasks.classification import Classification
from ramify.tree import Indices


class Classifier(LabelPipeline):
    """Classes or numbers of texts."""

    usage: ClassVar[tuple[str, ...]] = ('model.predict("a text")',)
    task: Classification

    def __init__(self, task: Classification) -> None:
        self.task = task
        self.backbone = task.backbone
        self.tokenizer = task.tokenizer
        self.input = task.input
        self._labels = task.config.classes
        self._predicts = "a number" if task.config.labels == "numbers" else ""

    def predict_nodes(
        self, store: Store, nodes: Indices, ids: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> list[Prediction]:
        view = LabelledView(rows_of(self.task, store, nodes, trees=store.split("all")), None)
        notes = view.rows.notes()
        scores = torch.from_numpy(label_scores(self.task, view, progress=progress)).to(self.device)
        shares = self.task.probabilities(scores).cpu().numpy()
        gold = labels_at(store, nodes, self.input.label)
        return [self._label(*answer, notes) for answer in zip(ids, shares, gold, strict=True)]

    def _label(self, text_id: str, shares: Float[NDArray, " output"], gold: Any, notes: tuple[str, ...]) -> TextLabel:
        config = self.task.config
        if config.labels == "numbers":
            return TextLabel(text_id, float(shares[0]), notes=notes, gold=gold)
        gold = label_names(gold)
        named = dict(zip(config.classes, shares.tolist(), strict=True))
        if config.labels == "classes":
            return TextLabel(text_id, config.classes[int(shares.argmax())], named, notes=notes, gold=gold)
        return TextLabel(text_id, tuple(name for name, share in named.items() if share >= 0.5), named, notes=notes, gold=gold)


def rows_of(task: Classification, store: Store, nodes: Indices, *, trees: Indices | None = None, seed: int = 0) -> RowTexts:
    """The rows of nodes as a task reads them."""
    return RowTexts(
        store,
        task.tokenizer,
        nodes,
        # The model of another library does not say whether it was trained on pairs.
        resolved_input(task.input, store, nodes) if task.input.pair == "auto" else task.input,
        vocab_size=task.backbone.config.vocab_size,
        open_words=reads_characters(task.backbone),
        trees=trees,
        seed=seed,
    )


@torch.no_grad()
def label_scores(
    task: Classification,
    view: LabelledView,
    *,
    progress: Callable[[int], None] | None = None,
    read: Callable[[LabelledBatch, Readings], None] | None = None,
) -> Float[NDArray, "row output"]:
    """The scores of all rows of a view, in their order, before the temperature. `read` is given each batch with its readings,
    for which the view needs targets."""
    scores = np.zeros((len(view), task.output.out_features))
    with task.evaluating():
        for numbers, batch in label_batches(view, LabelledCollator.of(view.rows), progress):
            moved = batch.to(task.device)
            vectors = task.row_vectors(moved)
            outputs = task.output(vectors)
            scores[numbers] = outputs.double().cpu().numpy()
            if read is not None:
                read(moved, task.target_readings(moved, vectors, outputs))
    return scores


def held_out(task: Classification, store: Store, split: Split, *, seed: int = 0) -> tuple[LabelledView, NodeLabels]:
    """The labelled texts of a split that is scored. Raises `RamifyError` for a class that the task does not know."""
    labels = node_labels(store, split, task.input.label)
    rows = rows_of(task, store, labels.nodes, trees=store.split(split), seed=seed)
    values = [labels.values[place] for place in rows.kept]
    if not values:
        raise RamifyError(
            f"{store.path}, split {split}: no labelled text has a text above it, which the model reads. Choose other data."
        )
    rows.check_above(f"the labelled texts of {store.path}, split {split},")
    check_kind(values, task.config.labels)
    group = metric_groups(store, labels.nodes[rows.kept], task.config.groups)
    return LabelledView(rows, task.targets_of(values), group=group), labels
