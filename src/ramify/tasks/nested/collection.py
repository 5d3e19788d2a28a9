"""Masked documents among those of a batch: the highest level, too, predicts nodes from their neighbours."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ramify.batching.document_batch import EOS, NUM_MARKS, CollectionDraws, LevelBatch
from ramify.models.agent import CollectionEncoder
from ramify.nn.ragged import Rows
from ramify.tasks.nested.candidates import Classes
from ramify.tasks.nested.corruption import RowChildren, mask_children
from ramify.tasks.nested.masked_child import ChildPredictor, MaskSettings


def draw_collection(documents: LevelBatch, places: int, config: MaskSettings, random: np.random.Generator) -> CollectionDraws:
    """Lay documents in reading order into rows of so many places, one of which is the end mark, and mask some."""
    order = np.argsort(documents.source)
    counts = np.diff(np.append(np.arange(0, len(order), places - 1), len(order)))
    row = np.repeat(np.arange(len(counts)), counts)
    masked = mask_children(
        RowChildren(order, row, counts),
        config.mask_rate,
        config.mask_split,
        order,
        None,
        random,
        bernoulli=config.mask_draw == "bernoulli",
    )
    slots = np.full(len(order) + len(counts), EOS)
    place = np.arange(len(order)) + row
    slots[place] = NUM_MARKS + order
    shown = slots.copy()
    shown[place[masked.chosen]] = masked.shown
    tensors = (torch.from_numpy(array) for array in (slots, shown, place[masked.chosen]))
    return CollectionDraws(Rows.build(counts + 1, keys=np.arange(len(counts))), *tensors)


@dataclass(frozen=True)
class MaskedDocuments:
    """The cross-entropy of every masked document, given the other documents of its row."""

    config: MaskSettings
    encoder: CollectionEncoder
    predictor: ChildPredictor
    vector_distance: float

    def value(
        self,
        items: Float[Tensor, "item dim"],
        classes: Classes,
        centre: Float[Tensor, " dim"] | None,
        draws: CollectionDraws,
        divisor: float,
    ) -> Float[Tensor, ""]:
        """The weighted sum over all masked documents, divided by `divisor`."""
        config, slots, rows = self.config, draws.masked_slots, draws.rows
        states = self.encoder.states(items, slots, rows)
        predictions = self.predictor(states, items, slots, rows, draws.masked, centre)
        labels = draws.slots.index_select(0, draws.masked)
        weights = (config.mlm / divisor, self.vector_distance / divisor)
        return self.predictor.loss(predictions, classes, labels, config.classes, *weights)
