"""Parts of the objectives of nested documents: candidates and their queue, heads, and the watch over levels that learn."""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ramify.batching.document_batch import CONT, EOS, NUM_MARKS, LevelBatch
from ramify.nn.linear import Linear, linear

WINDOW = 100
"""Number of updates over which losses are compared before a further level begins."""


@dataclass(frozen=True)
class Classes:
    """The candidates of a level's predictions: its marks, its vectors in the batch, and those of the queue."""

    vectors: Float[Tensor, "class dim"]
    content: Int[Tensor, " class"]
    scale: float = 1.0
    """The factor of all scores."""
    weight: float = 1.0
    """The factor of all losses."""

    def without_marks(self) -> "Classes":
        return replace(self, vectors=self.vectors[NUM_MARKS:], content=self.content[NUM_MARKS:])

    def loss(
        self, states: Float[Tensor, "position dim"], labels: Int[Tensor, " position"], per_class: bool
    ) -> Float[Tensor, " position"]:
        """The weighted negative log-probability of any class with the content of the label: duplicates are all right."""
        scores = linear(states * self.scale, self.vectors)
        scores = scores.to(precise(scores.dtype))
        right = self.content[None] == self.content.index_select(0, labels)[:, None]
        losses = torch.logsumexp(scores, 1) - torch.logsumexp(scores.masked_fill(~right, -math.inf), 1)
        losses = losses * self.weight
        return losses / math.log(max(2, len(self.vectors))) if per_class else losses


class MaskedChildHead(nn.Module):
    """A dense layer with GELU, before the dot product with the level's vectors."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dense = Linear(dim, dim)

    def forward(self, x: Float[Tensor, "position dim"]) -> Float[Tensor, "position dim"]:
        return F.gelu(self.dense(x))


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


class PlateauWatch(nn.Module):
    """The number of levels that learn, if each begins when the losses of the one below fall no further."""

    unlocked: Tensor
    began: Tensor
    sums: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("unlocked", torch.ones((), dtype=torch.int64))
        self.register_buffer("began", torch.zeros((), dtype=torch.int64))
        """The update after which the highest level began."""
        self.register_buffer("sums", torch.zeros(3, dtype=torch.float64))
        """The sum and number of the losses of this window, and the mean of the one before it (0: none)."""

    def before(self, updates: int) -> int:
        """The number of levels that learn in an update. A level that is unlocked in it begins with the next one, because the
        losses of all its micro-batches are counted beforehand."""
        unlocked = int(self.unlocked)
        return unlocked - 1 if unlocked > 1 and int(self.began) == updates else unlocked

    def observe(self, loss: float, updates: int, share: float, most: int) -> None:
        """Take the loss of the highest level that learns, and unlock the next one if it is due."""
        self.sums[0] += loss
        self.sums[1] += 1
        window = int(self.sums[1]) >= WINDOW
        mean, before = float(self.sums[0] / self.sums[1]), float(self.sums[2])
        if updates - int(self.began) >= max(1, most) or (window and before and before - mean < share * abs(before)):
            self.unlocked += 1
            self.began.fill_(updates)
            self.sums.zero_()
        elif window:
            self.sums.copy_(torch.tensor([0.0, 0.0, mean]))


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
