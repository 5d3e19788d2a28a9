"""Batches of generators and discriminators: real nodes of some levels, and documents."""

from dataclasses import dataclass, replace

import torch

from ramify.batching.batch import AnyBatch
from ramify.batching.document_batch import EMPTY, DocumentBatch


@dataclass(frozen=True)
class AdversaryBatch(AnyBatch):
    """Nodes whose vectors are real for some levels: nodes of their own, or else all nodes of documents."""

    documents: DocumentBatch = EMPTY
    """Documents whose rows are encoded, and from which an autoencoder may learn."""
    samples: tuple[DocumentBatch, ...] = ()
    """For each level above the tokens, some nodes with their vectors (`DocumentBatch.given`); an empty batch for a level that
    nothing learns. Without samples, the rows of `documents` are real."""

    @property
    def device(self) -> torch.device:
        return next((batch.device for batch in (self.documents, *self.samples) if batch.levels), torch.device("cpu"))

    @property
    def num_targets(self) -> int:
        return self.documents.num_targets + sum(sample.num_targets for sample in self.samples)

    @property
    def num_target_tokens(self) -> int:
        return self.documents.num_target_tokens + sum(sample.num_tokens for sample in self.samples)

    def to(self, device: torch.device | str) -> "AdversaryBatch":
        return replace(self, documents=self.documents.to(device), samples=tuple(sample.to(device) for sample in self.samples))
