"""Masked children, predicted from their siblings (AGENT, section 3.2)."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.batching.document_batch import NUM_MARKS, LevelBatch, LevelDraws
from ramify.models.agent import holds_child
from ramify.nn.heads import VocabularyHead
from ramify.nn.linear import Linear
from ramify.nn.pooling import on_tokens, row_sums
from ramify.nn.ragged import Rows
from ramify.tasks.constants import Constant, Frequencies, Several
from ramify.tasks.nested.base import EncodedLevel, LevelLoss, LevelPass, mean_distance, relative_distance
from ramify.tasks.nested.candidates import Classes, precise
from ramify.tasks.nested.settings import LossWeights, check_shares
from ramify.tasks.nested.similarity import CosineSpace, NearIdentity
from ramify.tasks.spans import check_split

HeadForm = Literal["gelu", "devlin", "deep"]
ClassKind = Literal["all_marks", "children"]

SMALL = 0.1
"""Beside a sibling path, the last layer of a deep head starts with weights of this size, divided by √(its inputs): at first,
the siblings predict."""


@dataclass(frozen=True)
class MaskSettings(LossWeights):
    """The settings of masked children."""

    mask_rate: float = 0.15
    mask_split: tuple[float, float, float] = (0.8, 0.1, 0.1)
    """The shares of chosen children that show the mask, a random child, and themselves."""
    mask_draw: Literal["count", "bernoulli"] = "count"
    """count: max(1, round(rate · n)) of n children. bernoulli: each with the probability of the rate, so perhaps none."""
    classes: ClassKind = "all_marks"
    """The candidates of masked children above the tokens. all_marks: vectors and marks. children: vectors alone. In
    reconstruction, marks are always candidates, because it also predicts them."""
    head: HeadForm = "gelu"
    """The layers between a state and its prediction, for vectors of length d. gelu: d to d, GELU. devlin: d to d, GELU,
    LayerNorm, as in BERT. deep: d to 2d, GELU, LayerNorm, 2d to d. Tokens have gelu in any case, before their tied embedding
    and its bias."""
    sibling_path: bool = False
    """Whether the prediction of a masked child above the tokens also holds a learned map, at first the identity, of its visible
    siblings: the sum of their n centred vectors, divided by √n. Chosen children are not visible, whatever they show."""

    def check_masks(self) -> None:
        check_shares(self, "mask_rate")
        check_split(self.mask_split)


class MaskedChildHead(nn.Module):
    """A dense layer with GELU before the comparison with the level's vectors, and more layers in other forms."""

    def __init__(self, dim: int, form: HeadForm = "gelu", *, small: bool = False, names: bool = False) -> None:
        """`small`: the last layer of a deep head starts with small weights. `names`: states hold answers of a memory of names,
        which are states of tokens: the dense layer starts as the identity, so that they resemble those tokens from the start.
        """
        super().__init__()
        width = 2 * dim if form == "deep" else dim
        self.dense = Linear(dim, width)
        if names:
            nn.init.eye_(self.dense.weight)
        self.norm = None if form == "gelu" else nn.LayerNorm(width)
        self.out = Linear(width, dim) if form == "deep" else None
        if self.out is not None and small:
            nn.init.normal_(self.out.weight, std=SMALL * width**-0.5)
            nn.init.zeros_(self.out.bias)

    def forward(self, x: Float[Tensor, "position dim"]) -> Float[Tensor, "position dim"]:
        x = F.gelu(self.dense(x))
        x = x if self.norm is None else self.norm(x)
        return x if self.out is None else self.out(x)


@dataclass(frozen=True)
class ChildPredictor:
    """Predicts the masked children of one level, which are compared with the level's items."""

    head: MaskedChildHead
    siblings: NearIdentity | None
    """The map of the sibling path."""
    space: CosineSpace | None
    """The space of predictions, if scores are cosines."""
    kind: ClassKind
    """The candidates above the tokens."""
    weight: float
    distance_weight: float
    """The weight of what the way back from the space learns."""

    def __call__(
        self,
        states: Float[Tensor, "slot dim"],
        items: Float[Tensor, "item dim"],
        slots: Int[Tensor, " slot"],
        rows: Rows,
        masked: Int[Tensor, " masked"],
        centre: Float[Tensor, " dim"] | None,
    ) -> Float[Tensor, "masked dim"]:
        """Predictions for the slots `masked`, from the states of all slots and what these show."""
        predictions = self.head(states.index_select(0, masked))
        if self.siblings is None:
            return predictions
        assert centre is not None
        return predictions + self.siblings(visible_siblings(items, slots, rows, masked, centre))

    def of_level(self, encoded: EncodedLevel, draws: LevelDraws) -> Float[Tensor, "masked dim"]:
        """Predictions for the masked children of a batch."""
        items, slots, rows = encoded.items, draws.masked_slots, encoded.rows.rows
        states = encoded.with_names(encoded.encoder.states(items, slots, rows), rows)
        return self(states, items, slots, rows, draws.masked, encoded.centre)

    def loss(
        self,
        predictions: Float[Tensor, "masked dim"],
        classes: Classes,
        labels: Int[Tensor, " masked"],
        scale: float,
    ) -> Float[Tensor, ""]:
        """The weighted sum over masked children above the tokens, times `scale`. The way back from a space of cosines learns
        beside it."""
        right = labels
        chosen = classes
        if self.kind == "children":
            chosen, right = classes.without_marks(), labels - NUM_MARKS
        loss = chosen.loss(predictions, right, self.space).sum() * (self.weight * scale)
        if self.space is None or not self.distance_weight:
            return loss
        vectors = F.embedding(labels, classes.vectors).detach()
        distance = relative_distance(vectors, self.space.restore(predictions.detach()))
        return loss + distance * (self.distance_weight * scale * len(labels))

    def constant(self, classes: Classes, labels: Int[Tensor, " masked"]) -> Several:
        """The loss of the best constant prediction, in the unit of `loss`."""
        if self.kind == "children":
            choice = classes.without_marks().constant(labels - NUM_MARKS, marks=0, weight=self.weight)
        else:
            choice = classes.constant(labels, weight=self.weight)
        distance = 0.0 if self.space is None else self.distance_weight
        return Several((choice, mean_distance(F.embedding(labels, classes.vectors), distance * len(labels))))


def visible_siblings(
    items: Float[Tensor, "item dim"],
    slots: Int[Tensor, " slot"],
    rows: Rows,
    masked: Int[Tensor, " masked"],
    centre: Float[Tensor, " dim"],
) -> Float[Tensor, "masked dim"]:
    """For each slot in `masked`: the n children of its row that are not in `masked`, each less the centre, added up and divided
    by √n."""
    is_visible = holds_child(slots).index_fill(0, masked, False)[:, None]
    vectors = (F.embedding(slots, items) - centre) * is_visible
    counts = row_sums(is_visible.to(vectors.dtype), rows).clamp(min=1)
    return on_tokens(row_sums(vectors, rows) / counts.sqrt(), rows).index_select(0, masked)


@dataclass(frozen=True)
class MaskedChildren(LevelLoss):
    """The cross-entropy of every masked child, given the other children of its row."""

    kind = "mlm"
    title = "Masked children from their siblings"
    unit = "nats per child"
    of_children = True

    config: MaskSettings
    predictors: tuple[ChildPredictor, ...]
    """One predictor per level."""
    head: VocabularyHead

    def count(self, rows: LevelBatch, draws: LevelDraws) -> float:
        return float(len(draws.masked))

    def value(self, level: LevelPass, scale: float) -> Float[Tensor, ""] | None:
        encoded, draws = level.encoded, level.draws
        if not len(draws.masked):
            return None
        predictor, config = self.predictors[encoded.level], self.config
        states = predictor.of_level(encoded, draws)
        labels = encoded.rows.slots.index_select(0, draws.masked)
        if encoded.classes is None:
            weights = torch.ones(labels.shape, device=labels.device, dtype=precise(states.dtype))
            return self.head.loss(states, labels, weights) * (config.mlm * scale)
        return predictor.loss(states, encoded.classes, labels, scale)

    def constant(self, level: LevelPass) -> Constant:
        encoded, config = level.encoded, self.config
        labels = encoded.rows.slots.index_select(0, level.draws.masked)
        if encoded.classes is None:
            return Frequencies.of(labels, torch.full(labels.shape, config.mlm), len(self.head.bias))
        return self.predictors[encoded.level].constant(encoded.classes, labels)
