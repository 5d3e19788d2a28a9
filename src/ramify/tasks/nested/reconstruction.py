"""Reconstruction: the children of a node from its vector (AGENT, section 3.1)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.batching.document_batch import CONT, EOS, NUM_MARKS, LevelBatch, LevelDraws
from ramify.nn.heads import VocabularyHead
from ramify.nn.linear import linear
from ramify.tasks.nested.base import EncodedLevel, LevelLoss, LevelPass, relative_distance
from ramify.tasks.nested.candidates import Classes, precise
from ramify.tasks.nested.settings import LossWeights, check_not_negative, check_shares
from ramify.tasks.nested.similarity import space_of


@dataclass(frozen=True)
class ReconstructionSettings(LossWeights):
    """The settings of reconstruction."""

    vector_distance: float = 0.1
    """Weight of the relative distance between a child's vector and its reconstruction, above the tokens. The scores of the
    reconstruction fix neither length nor direction. With scores=cosine, the distance is that of the way back from a decoded or
    predicted state, and teaches this way alone."""
    label_smoothing: float = 0.0
    """Label smoothing of reconstructed tokens; Vaswani et al. 2017 take 0.1."""

    def check_reconstruction(self) -> None:
        check_not_negative(self, "vector_distance")
        check_shares(self, "label_smoothing")


class EndScores(nn.Module):
    """Scores of the two end marks by their cosine with a place's output."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(5.0))
        self.bias = nn.Parameter(torch.tensor(0.0))

    def forward(self, states: Float[Tensor, "place dim"], items: Float[Tensor, "item dim"]) -> Float[Tensor, "place 2"]:
        """The scores of EOS and CONT: a row ends if either is above 0."""
        marks = F.normalize(items[[EOS, CONT]], dim=1)
        return linear(F.normalize(states, dim=1), marks) * self.scale + self.bias


@dataclass(frozen=True)
class Reconstruction(LevelLoss):
    """The cross-entropy of every child and mark of a row, given the row's vector."""

    kind = "reconstruction"
    title = "Reconstruction: children from a vector"
    unit = "nats per place"
    of_decoder = True

    config: ReconstructionSettings
    head: VocabularyHead
    ends: nn.ModuleList | None
    """`EndScores` of each level above the tokens, if the end marks are no candidates."""
    spaces: nn.ModuleList | None
    """`CosineSpace` of each level above the tokens, if scores are cosines."""

    def count(self, rows: LevelBatch, draws: LevelDraws) -> float:
        return float(rows.lengths.sum())

    def value(self, level: LevelPass, scale: float) -> Float[Tensor, ""]:
        encoded, states = level.encoded, level.decoded.states
        labels = encoded.rows.slots.index_select(0, encoded.rows.true_slots)
        if encoded.classes is None:
            return self._of_tokens(states, labels, scale)
        return self._of_vectors(encoded, encoded.classes, states, labels) * scale

    def _of_tokens(
        self, states: Float[Tensor, "position dim"], labels: Int[Tensor, " position"], scale: float
    ) -> Float[Tensor, ""]:
        config = self.config
        weights = torch.full(labels.shape, config.reconstruction * scale, device=labels.device, dtype=precise(states.dtype))
        loss = self.head.loss(states, labels, weights)
        if not config.label_smoothing:
            return loss
        return loss + self._smoothing(states, labels) * (config.label_smoothing * config.reconstruction * scale)

    def _smoothing(self, states: Float[Tensor, "position dim"], labels: Int[Tensor, " position"]) -> Float[Tensor, ""]:
        """The sum over positions of the label's score less the mean of all scores, by which label smoothing adds to the
        cross-entropy."""
        head = self.head
        right = (states * F.embedding(labels, head.weight)).sum(1) + head.bias.index_select(0, labels)
        return (right - states @ head.weight.mean(0) - head.bias.mean()).sum()

    def _of_vectors(
        self,
        encoded: EncodedLevel,
        classes: Classes,
        states: Float[Tensor, "position dim"],
        labels: Int[Tensor, " position"],
    ) -> Float[Tensor, ""]:
        config, places = self.config, encoded.rows.child_place
        space = space_of(self.spaces, encoded.level)
        if self.ends is None:
            loss = classes.loss(states, labels, space).sum()
        else:
            children, right = states.index_select(0, places), labels.index_select(0, places)
            loss = classes.without_marks().loss(children, right - NUM_MARKS, space).sum()
            ends = self.ends[encoded.level - 1](states, encoded.items)
            wanted = torch.stack([labels == EOS, labels == CONT], 1).to(ends.dtype)
            loss = loss + F.binary_cross_entropy_with_logits(ends, wanted, reduction="sum") / 2
        loss = loss * config.reconstruction
        if config.vector_distance and len(places):
            vectors = F.embedding(labels.index_select(0, places), encoded.items).detach()
            children = states.index_select(0, places)
            children = children if space is None else space.restore(children.detach())
            distance = relative_distance(vectors, children)
            loss = loss + distance * (config.vector_distance * len(labels))
        return loss
