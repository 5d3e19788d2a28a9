"""The candidates of predictions above the tokens: the vectors of a batch, and a queue of earlier ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ramify.batching.document_batch import NUM_MARKS, LevelBatch
from ramify.tasks.constants import Frequencies, Known, Several
from ramify.tasks.nested.settings import Settings, check_not_negative
from ramify.tasks.nested.similarity import Cosines, CosineSpace, DotProducts, Similarity


@dataclass(frozen=True)
class CandidateSettings(Settings):
    """The settings of candidates above the tokens."""

    classes_detached: bool = True
    """Whether losses leave the vectors that are their classes unchanged. The vectors of the queue have no gradient. If those of
    the batch had one, all would be drawn in the direction that tells them from the queue's, and become alike."""
    balanced: bool = True
    """Whether losses above the tokens are divided by √d, the root of the length of their vectors. Embeddings of tokens have the
    variance 1/d. Vectors of higher levels are longer, so that without this the gradient of the levels above outweighs that of
    the tokens. Cosines have no length to make up for: set false with scores=cosine."""
    scores: Literal["plain", "scaled", "cosine"] = "plain"
    """The scores of candidates above the tokens. plain: dot products, as in the paper. scaled: dot products divided by √d,
    which bounds how certain a prediction can be. cosine: cosines of states and mapped, centred candidates, divided by a
    temperature; reconstruction and masked children learn a map and the logarithm of a temperature each. Decoding then needs
    vector_distance above 0, which teaches the way back from states to vectors."""
    per_class: bool = False
    """Whether losses above the tokens are divided by the logarithm of the number of classes, which depends on the batch."""
    queue: int = 1024
    """The number of earlier vectors per level that are further classes in training, without a gradient. With a frozen level,
    only the vectors that the stage is given have a queue, while levels above learn."""

    def check_candidates(self) -> None:
        check_not_negative(self, "queue")


@dataclass(frozen=True)
class Classes:
    """The candidates of a level's predictions: its marks, its vectors in the batch, and those of the queue."""

    vectors: Float[Tensor, "class dim"]
    content: Int[Tensor, " class"]
    scale: float = 1.0
    """The factor of all dot products."""
    weight: float = 1.0
    """The factor of all losses."""
    per_class: bool = False
    """Whether losses are divided by the logarithm of the number of classes."""
    centre: Float[Tensor, " dim"] | None = None
    """The mean of the level's vectors, if scores are cosines."""

    def without_marks(self) -> "Classes":
        return replace(self, vectors=self.vectors[NUM_MARKS:], content=self.content[NUM_MARKS:])

    def similarity(self, space: CosineSpace | None) -> Similarity:
        if space is None:
            return DotProducts(self.scale)
        assert self.centre is not None
        return Cosines(space, self.centre)

    def loss(
        self, states: Float[Tensor, "position dim"], labels: Int[Tensor, " position"], space: CosineSpace | None = None
    ) -> Float[Tensor, " position"]:
        """The weighted negative log-probability of any class with the content of the label: duplicates are all right.
        `space`: that of the states, if scores are cosines."""
        scores = self.similarity(space).scores(states, self.vectors)
        scores = scores.to(precise(scores.dtype))
        right = self.content[None] == self.content.index_select(0, labels)[:, None]
        losses = torch.logsumexp(scores, 1) - torch.logsumexp(scores.masked_fill(~right, -math.inf), 1)
        losses = losses * self.weight
        return losses / math.log(max(2, len(self.vectors))) if self.per_class else losses

    def constant(self, labels: Int[Tensor, " position"], marks: int = NUM_MARKS, weight: float = 1.0) -> Several:
        """The loss of the best constant prediction, times `weight`: it knows the frequencies of the marks, which are the
        first classes, and chooses among all others alike."""
        unit, is_mark = weight * self.weight, labels < marks
        unit = unit / math.log(max(2, len(self.vectors))) if self.per_class else unit
        kind = torch.where(is_mark, labels, marks)
        others, counts = self.content[marks:].unique(return_counts=True)
        content = self.content.index_select(0, labels[~is_mark])
        right = counts.index_select(0, torch.searchsorted(others, content))
        nats = len(content) * math.log(max(1, len(self.content) - marks)) - float(right.double().log().sum())
        return Several((Frequencies.of(kind, torch.full(kind.shape, unit), marks + 1), Known(nats * unit)))


def candidates(
    items: Float[Tensor, "item dim"],
    below: Sequence[LevelBatch],
    queue: "Queue",
    centre: Float[Tensor, " dim"] | None,
    config: CandidateSettings,
    *,
    training: bool,
) -> Classes:
    """The candidates among `items`: the marks, the vectors of the rows `below` and, in training, those of the queue. They were
    made by the weights of earlier updates. `centre`: the mean of the level's vectors, if one is used."""
    queued = len(queue)
    marks = torch.arange(NUM_MARKS, device=items.device)
    content = torch.cat([marks, *(rows.content for rows in below), queue.content[:queued]])
    if not training:
        items, content = items[: len(items) - queued], content[: len(content) - queued]
    narrow = items.shape[1] ** -0.5
    if config.classes_detached:
        items, centre = items.detach(), None if centre is None else centre.detach()
    return Classes(
        items,
        content,
        scale=narrow if config.scores == "scaled" else 1.0,
        weight=narrow if config.balanced else 1.0,
        per_class=config.per_class,
        centre=centre,
    )


class Queue(nn.Module):
    """The latest vectors of a level, without a gradient."""

    vectors: Tensor
    content: Tensor
    tree: Tensor
    filled: Tensor
    next: Tensor

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.zeros(size, dim))
        self.register_buffer("content", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("tree", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("filled", torch.zeros((), dtype=torch.int64))
        self.register_buffer("next", torch.zeros((), dtype=torch.int64))

    def __len__(self) -> int:
        return int(self.filled)

    def latest(self, dtype: torch.dtype) -> Float[Tensor, "vector dim"]:
        """The vectors that the queue holds now. Later ones do not change the copy."""
        return self.vectors[: len(self)].to(dtype, copy=True)

    def clear(self) -> None:
        self.filled.zero_()
        self.next.zero_()

    @torch.no_grad()
    def add(self, vectors: Float[Tensor, "row dim"], rows: LevelBatch) -> None:
        """Add the newest vectors in place of the oldest."""
        size = len(self.vectors)
        count = min(size, len(vectors))
        if not count:
            return
        index = (self.next + torch.arange(count, device=self.next.device)) % size
        self.vectors.index_copy_(0, index, vectors[-count:].detach().to(self.vectors.dtype))
        self.content.index_copy_(0, index, rows.content[-count:])
        self.tree.index_copy_(0, index, rows.tree[-count:])
        self.next.copy_((self.next + count) % size)
        self.filled.copy_((self.filled + count).clamp(max=size))


def precise(dtype: torch.dtype) -> torch.dtype:
    """The type of sums over a vocabulary or many rows: at least single precision."""
    return torch.promote_types(dtype, torch.float32)
