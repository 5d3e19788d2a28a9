"""Batches of rows of running text, each of which may continue where the same row of the batch before ended."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from ramify.batching.batch import AnyBatch
from ramify.batching.characters import Characters
from ramify.batching.movable import Movable, moved
from ramify.batching.views.streams import StreamInput, StreamRow
from ramify.nn.ragged import on_device


@dataclass(frozen=True)
class StreamTargets(Movable):
    """The tokens of each row that are predicted, in ascending order within each part of the row."""

    positions: Int[Tensor, "row target"]
    labels: Int[Tensor, "row target"]
    weight: Float[Tensor, "row target"]
    """0 where a row has fewer targets than others."""
    counts: tuple[int, ...]
    """Number of targets of each part."""
    total: float
    """Sum of all weights."""

    @classmethod
    def at(
        cls, positions: NDArray[np.int64], ids: Int[Tensor, "row token"], counts: tuple[int, ...] | None = None
    ) -> "StreamTargets":
        """Targets at these positions ([row, target]), whose labels are the tokens there; by default in one part."""
        places = on_device(positions, ids.device)
        weight = torch.ones(places.shape, device=ids.device)
        return cls(places, ids.gather(1, places), weight, counts or (positions.shape[1],), float(positions.size))

    def to(self, device: torch.device | str) -> "StreamTargets":
        return moved(self, device)


@dataclass(frozen=True)
class StreamBatch(AnyBatch):
    """Rows of equal length."""

    input_ids: Int[Tensor, "row token"]
    segments: Int[Tensor, "row token"] | None
    """The segment of each token; None: all tokens belong to one segment."""
    direction: NDArray[np.int64]
    """1: the row reads forwards; −1: it reads backwards, so that the memory before it holds the text after it."""
    begins: Bool[Tensor, " row"]
    """Whether the row begins a text, so that it continues nothing."""
    reused: int
    """Number of tokens at the start of each row after which the next batch continues; 0: nothing continues."""
    kept: Int[Tensor, " row"]
    """Number of the reused tokens, counted from the last, that the next batch may read."""
    continues: Bool[Tensor, " row"]
    """Whether the next batch may also read what this batch continues."""
    host_ids: NDArray[np.int64]
    """`input_ids` on the host, before corruption."""
    functional: NDArray[np.bool_]
    """[row, token]: separators, which are no part of the text and are not predicted."""
    is_next: Int[Tensor, " row"] | None = None
    """Whether the second of the row's two segments follows the first."""
    order: Int[Tensor, "row token"] | None = None
    """The factorization order. A token reads those with a lower or equal number; a target those with a lower number. None: a
    token reads all tokens."""
    parts: tuple[tuple[int, int], ...] = ()
    """Ranges that divide the rows; no token reads a token of a later part. (): the whole row is one part."""
    remembered: int | None = None
    """Number of states per layer that the next batch can read; None: as many as the model's memory has."""
    targets: StreamTargets | None = None
    """The tokens that the query stream predicts."""
    answers: StreamTargets | None = None
    """The tokens that were masked, for a model without a query stream."""
    characters: Characters | None = None
    """The characters of each token, for a model that reads them; None: those of the vocabulary's spelling."""

    @property
    def device(self) -> torch.device:
        return self.input_ids.device

    @property
    def num_targets(self) -> int:
        return len(self.input_ids)

    @property
    def num_target_tokens(self) -> int:
        return self.host_ids.size


def plain_rows(ids: NDArray[np.int64], order: NDArray[np.int64] | None = None, reused: int = 0) -> StreamBatch:
    """Texts of equal length ([row, token]) as rows without segments or separators, which continue nothing."""
    rows = len(ids)
    return StreamBatch(
        input_ids=torch.from_numpy(ids),
        segments=None,
        direction=np.ones(rows, dtype=np.int64),
        begins=torch.zeros(rows, dtype=torch.bool),
        reused=reused,
        kept=torch.full((rows,), reused),
        continues=torch.ones(rows, dtype=torch.bool),
        host_ids=ids,
        functional=np.zeros(ids.shape, dtype=bool),
        order=None if order is None else torch.from_numpy(order),
    )


def collate_streams(rows: Sequence[StreamRow], input: StreamInput) -> StreamBatch:
    """Rows as a batch, in the given order."""
    if not rows:
        raise ValueError("a batch of streams has at least one row")
    ids = np.stack([row.ids for row in rows])
    characters = [row.characters for row in rows if row.characters is not None]
    pair = input.segments == "pair"
    return StreamBatch(
        input_ids=torch.from_numpy(ids),
        segments=torch.from_numpy(np.stack([row.segments for row in rows])) if pair else None,
        direction=np.array([row.direction for row in rows]),
        begins=torch.tensor([row.begins for row in rows]),
        reused=input.reused_tokens,
        kept=torch.tensor([row.kept for row in rows]),
        continues=torch.tensor([row.continues for row in rows]),
        host_ids=ids,
        functional=np.stack([row.functional for row in rows]),
        is_next=torch.tensor([row.is_next for row in rows]).long() if pair else None,
        characters=Characters.of(np.stack(characters)) if characters else None,
    )
